/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mapreduce_faults - jobs of MapReduce in storage that fails. A window that cannot be made durable, a disk that is full, and a
 * record that was cut short end a job with a sentence, at all ranks, or cost what it had acknowledged last; the next job goes
 * on, maps what is missing and nothing else, and has the right result. A job that is another one is refused.
 */
#include "common.h"
#include "../small_fs.h"

#include <ummap-mapreduce.h>

#define TASKS 30
#define RECORD 4096

static char input_path[400], storage[400];

/* What a map function has seen, at this rank. */
static int mapped;

static int map(ummr_job *job, const struct ummr_task *task, void *arg)
{
	const uint64_t one = 1;
	const void *value = arg ? (const void *)task->data : &one;

	check(task->size == RECORD);
	mapped++;
	/* Pairs that no other task has, larger where there is an argument, and one key that all have. */
	for (uint32_t i = 0; i < 200; i++) {
		uint64_t key = task->offset / RECORD * 1000 + i;

		if (ummr_emit(job, &key, sizeof(key), value, arg ? 1000 : sizeof(one)) < 0)
			return -1;
	}
	return ummr_emit(job, "all", 3, &one, sizeof(one));
}

static int add(const struct ummr_bytes *key, struct ummr_value *value, const struct ummr_bytes *other, void *arg)
{
	(void)key, (void)arg;
	check(value->size == 8 && other->size == 8);
	*(uint64_t *)value->data += *(const uint64_t *)other->data;
	return 0;
}

static struct ummr_config make_config(void)
{
	static const char *inputs[] = { input_path, NULL };
	struct ummr_config c = UMMR_CONFIG_INIT;

	c.inputs = inputs;
	c.split = UMMR_SPLIT_FIXED;
	c.record_size = c.task_size = RECORD;
	c.map = map;
	c.reduce = add;
	c.bucket_size = 5000;
	c.storage = storage;
	c.sync_tasks = 1;
	return c;
}

static void check_result(ummr_job *job)
{
	struct ummr_bytes key, value;
	uint32_t pairs = 0;

	for (; ummr_next(job, &key, &value) > 0; pairs++) {
		if (key.size == 3)
			check(value.size == 8 && *(const uint64_t *)value.data == TASKS);
		else
			check(key.size == 8 && value.size > 0);
	}
	check(pairs == (rank == 0 ? TASKS * 200 + 1 : 0), "%u pairs", pairs);
}

static int mapped_by_all(void)
{
	int all;

	MPI_Allreduce(&mapped, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	mapped = 0;
	return all;
}

/* A job that comes to its end, having mapped so many tasks at most, and leaves nothing. */
static void complete(struct ummr_config c, int most)
{
	struct dirent *e;
	ummr_job *job;
	int tasks;
	DIR *d;

	check(ummr_create(MPI_COMM_WORLD, &c, &job) == 0, "%s", ummr_error());
	check(ummr_run(job) == 0, "%s", ummr_error());
	check_result(job);
	check(ummr_end(job) == 0);
	tasks = mapped_by_all();
	check(tasks <= most, "%d tasks are mapped, of %d", tasks, most);
	d = opendir(storage);
	check(d);
	while ((e = readdir(d)))
		check(e->d_name[0] == '.' || strncmp(e->d_name, "ummr.", 5) != 0, "%s is left", e->d_name);
	closedir(d);
	MPI_Barrier(MPI_COMM_WORLD);
}

/* The number of tasks that it mapped. */
static int fails(struct ummr_config c, int error, const char *words)
{
	ummr_job *job;
	int result, got;

	check(ummr_create(MPI_COMM_WORLD, &c, &job) == 0, "%s", ummr_error());
	result = ummr_run(job);
	got = errno;
	check(result == -1 && got == error, "%d, errno %d: %s", result, got, ummr_error());
	check(strstr(ummr_error(), words), "\"%s\" is not in \"%s\"", words, ummr_error());
	check(ummr_end(job) == 0);
	return mapped_by_all();
}

static void refused(struct ummr_config c, int error, const char *words)
{
	ummr_job *job;

	check(ummr_create(MPI_COMM_WORLD, &c, &job) == -1 && errno == error, "errno %d: %s", errno, ummr_error());
	check(strstr(ummr_error(), words), "\"%s\" is not in \"%s\"", words, ummr_error());
	MPI_Barrier(MPI_COMM_WORLD);
}

/* ---- Interrupted by an error of the program's own: the last task of some rank's fails ---- */

static bool fails_now;

static int map_until(ummr_job *job, const struct ummr_task *task, void *arg)
{
	return fails_now && task->offset / RECORD == TASKS - 1 ? 1 : map(job, task, arg);
}

/* Some tasks, the last one not, are acknowledged; the windows stay. Returns how many are not. */
static int interrupt(void)
{
	struct ummr_config c = make_config();
	int done;

	c.map = map_until;
	fails_now = true;
	done = fails(c, ECANCELED, "the map function has failed 3 times for the 4096 bytes at 118784");
	fails_now = false;
	return TASKS - done;
}

static void other_jobs(void)
{
	struct ummr_config c = make_config();
	struct timespec times[2] = { { 1, 0 }, { 1, 0 } };
	int left = interrupt();

	c.tag = 7;
	refused(c, EEXIST, "with another tag (0, and 7 now)");
	c.tag = 0;
	c.order = UMMR_ORDER_DESCENDING;
	refused(c, EEXIST, "with another order");
	c.order = 0;
	c.task_size = 2 * RECORD;
	refused(c, EEXIST, "with another task_size");
	c.task_size = RECORD;
	c.sync_tasks = UMMR_SYNC_NEVER;
	refused(c, EEXIST, "unfinished job that syncs");
	c.sync_tasks = 3;
	complete(c, left);
	interrupt();
	if (rank == 0)
		check(utimensat(AT_FDCWD, input_path, times, 0) == 0);
	MPI_Barrier(MPI_COMM_WORLD);
	refused(make_config(), EEXIST, "with another input (a file's name, size or time of its last change). Try");
}

/* Without a number of tasks, syncs come by time: the first one behind what took more than a second, and it ends behind the
 * next task. One rank by itself does it, so that it is known who has which task. */
static int map_slowly(ummr_job *job, const struct ummr_task *task, void *arg)
{
	if (task->offset / RECORD == 10)
		nanosleep(&(struct timespec){ 1, 100000000 }, NULL);
	return map_until(job, task, arg);
}

static int run_alone(const struct ummr_config *c)
{
	ummr_job *job;
	int result;

	mapped = 0;
	check(ummr_create(MPI_COMM_SELF, c, &job) == 0, "%s", ummr_error());
	result = ummr_run(job);
	check(result == 0 || errno == ECANCELED, "%s", ummr_error());
	check(ummr_end(job) == 0);
	return result;
}

static const char *file_of(const char *kind, int which)
{
	static char path[500];

	if (which < 0)
		snprintf(path, sizeof(path), "%s/ummr.%s.%d", storage, kind, rank);
	else
		snprintf(path, sizeof(path), "%s/ummr.%s.%d.%d", storage, kind, which, rank);
	return path;
}

static void remove_own(void)
{
	unlink(file_of("pairs", -1));
	for (int i = 0; i < 2; i++) {
		unlink(file_of("result", i));
		unlink(file_of("state", i));
	}
}

static void clear_storage(void)
{
	MPI_Barrier(MPI_COMM_WORLD);
	remove_own();
	MPI_Barrier(MPI_COMM_WORLD);
}

/* The last rank that has acknowledged anything keeps its files, the others do not. */
static int keep_last(void)
{
	int last = -1;
	struct stat st;

	for (int i = 0; i < 2; i++)
		if (stat(file_of("state", i), &st) == 0 && st.st_size > 0)
			last = rank;
	MPI_Allreduce(MPI_IN_PLACE, &last, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
	check(last >= 0);
	if (rank != last)
		remove_own();
	MPI_Barrier(MPI_COMM_WORLD);
	return last;
}

/* What ranks have acknowledged that the next job has not is not passed over, and nothing of theirs stays that has no meaning. */
static void more_ranks(void)
{
	struct ummr_config c = make_config();
	char words[80];
	ummr_job *job;
	int last;

	snprintf(words, sizeof(words), "another number of ranks (%d, and 1 now)", ranks);
	interrupt();
	last = keep_last();
	if (rank == 0 && last > 0) {
		check(ummr_create(MPI_COMM_SELF, &c, &job) == -1 && errno == EEXIST, "errno %d: %s", errno, ummr_error());
		check(strstr(ummr_error(), words), "\"%s\" is not in \"%s\"", words, ummr_error());
		check(access(file_of("state", 0), F_OK) != 0 && access(file_of("state", 1), F_OK) != 0,
		      "a job that was refused has left files");
	}
	MPI_Barrier(MPI_COMM_WORLD);
	for (int i = 0; i < 2 && rank == last; i++)
		check(truncate(file_of("state", i), 0) == 0 || errno == ENOENT);
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0)
		check(run_alone(&c) == 0 && mapped == TASKS, "%d tasks are mapped", mapped);
	mapped = 0;
	complete(c, TASKS);
}

static void syncs_by_time(void)
{
	struct ummr_config c = make_config();

	c.sync_tasks = 0;
	c.map = map_slowly;
	fails_now = true;
	if (rank == 0)
		check(run_alone(&c) == -1);
	fails_now = false;
	if (rank == 0)
		check(run_alone(&c) == 0 && mapped <= TASKS - 11, "%d tasks are mapped", mapped);
	mapped = 0;
	MPI_Barrier(MPI_COMM_WORLD);
}

/* ---- Damage ---- */

/* One byte of the record that is named. */
static void damage(int which)
{
	int fd = open(file_of("state", which), O_RDWR | O_CLOEXEC);
	off_t at = fd < 0 ? 0 : lseek(fd, 0, SEEK_END) * 2 / 3;
	char byte;

	if (fd < 0 || at == 0)
		return;
	check(pread(fd, &byte, 1, at) == 1);
	byte ^= 1;
	check(pwrite(fd, &byte, 1, at) == 1);
	close(fd);
}

/* Whichever record is the newest: a rank loses what was acknowledged last, or nothing. */
static void torn_records(void)
{
	for (int which = 0; which < 2; which++) {
		int left = interrupt();

		damage(which);
		MPI_Barrier(MPI_COMM_WORLD);
		complete(make_config(), left + ranks);
	}
	interrupt();
	/* A rank that mapped one task has one record. */
	if (rank == 0) {
		int fd = open(file_of("state", 0), O_RDWR | O_CREAT | O_CLOEXEC, 0600);

		check(fd >= 0 && ftruncate(fd, 0) == 0 && pwrite(fd, "not a record", 12, 0) == 12);
		close(fd);
		fd = open(file_of("state", 1), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
		check(fd >= 0 && ftruncate(fd, 0) == 0 && pwrite(fd, "not a record", 12, 0) == 12);
		close(fd);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	refused(make_config(), EUCLEAN, "are damaged");
	clear_storage();
}

/* A pair that would be larger than memory, and than all pairs together, is none. */
static void broken_pairs(void)
{
	const uint64_t key_size = (uint64_t)1 << 45;
	int fd;

	interrupt();
	fd = open(file_of("pairs", -1), O_WRONLY | O_CLOEXEC);
	if (fd >= 0)
		check(pwrite(fd, &key_size, sizeof(key_size), offsetof(struct ummr_header, key_size)) == sizeof(key_size));
	close(fd);
	MPI_Barrier(MPI_COMM_WORLD);
	fails(make_config(), EIO, "are damaged, and one is longer than the rest of them");
	clear_storage();
}

static void lost_files(void)
{
	ummr_job *job;
	struct ummr_config c = make_config();
	int left;

	/* One rank's windows: what its record speaks of is not there. */
	interrupt();
	if (rank == ranks - 1 && access(file_of("pairs", -1), F_OK) == 0)
		check(truncate(file_of("pairs", -1), 100) == 0);
	MPI_Barrier(MPI_COMM_WORLD);
	check(ummr_create(MPI_COMM_WORLD, &c, &job) == 0, "%s", ummr_error());
	check(ummr_run(job) == -1 && errno == EUCLEAN && strstr(ummr_error(), "shorter"), "errno %d: %s", errno, ummr_error());
	check(ummr_end(job) == 0);
	clear_storage();
	interrupt();
	unlink(file_of("pairs", -1));
	MPI_Barrier(MPI_COMM_WORLD);
	fails(c, EUCLEAN, "No such file or directory. Try to remove all files ummr.* there");
	clear_storage();
	/* All that a rank has: the others' tasks are acknowledged. */
	left = interrupt();
	if (rank == ranks - 1) {
		unlink(file_of("pairs", -1));
		unlink(file_of("state", 0));
		unlink(file_of("state", 1));
	}
	MPI_Barrier(MPI_COMM_WORLD);
	complete(make_config(), ranks > 1 ? TASKS : left + TASKS);
}

/* ---- Two jobs ---- */

static void two_jobs(void)
{
	struct ummr_config c = make_config();
	ummr_job *first, *second;
	char words[80];

	check(ummr_create(MPI_COMM_WORLD, &c, &first) == 0, "%s", ummr_error());
	check(ummr_create(MPI_COMM_WORLD, &c, &second) == -1 && errno == EBUSY, "%s", ummr_error());
	snprintf(words, sizeof(words), "another job uses it, in process %d of ", (int)getpid());
	check(strstr(ummr_error(), rank == 0 ? words : "another job uses it"), "%s", ummr_error());
	check(ummr_run(first) == 0, "%s", ummr_error());
	check_result(first);
	check(ummr_end(first) == 0);
	mapped_by_all();
}

/* ---- Errors of storage ---- */

/* Each request of a kind fails in turn, at each rank, until there are no more: the next job goes on. */
static void failing_syncs(void)
{
	const char *before = getenv("UMMAP_DRIVER");
	int failed = 0;

	for (int nth = 1; nth < 40; nth = nth < 4 ? nth + 1 : 2 * nth) {
		struct ummr_config c = make_config();
		char driver[100];
		ummr_job *job;
		int result;

		snprintf(driver, sizeof(driver), "error+posix:?error.op=%s&error.nth=%d", nth % 2 ? "flush" : "write", nth);
		set_env("UMMAP_DRIVER", driver);
		check(ummr_create(MPI_COMM_WORLD, &c, &job) == 0, "%s", ummr_error());
		result = ummr_run(job);
		check(result == 0 || errno == EIO, "errno %d: %s", errno, ummr_error());
		if (result == 0)
			check_result(job);
		check(ummr_end(job) == 0);
		failed += result < 0;
		if (before)
			set_env("UMMAP_DRIVER", before);
		else
			unsetenv("UMMAP_DRIVER");
		mapped_by_all();
		if (result < 0)
			complete(make_config(), TASKS);
	}
	check(failed > 0);
}

/* ---- A full disk: 6 MB of pairs, and room for 1. In memory, because it needs no loop device ---- */

/* Its mount is gone, and the rest goes with the process. -1: not here. */
static int mount_memory(char *path)
{
	char dir[400];
	int root;

	snprintf(dir, sizeof(dir), "%s/mount", folder);
	check(mkdir(dir, 0700) == 0);
	if (mount("none", dir, "tmpfs", 0, "size=24m") < 0)
		return -1;
	root = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	check(umount2(dir, MNT_DETACH) == 0 && root >= 0);
	snprintf(path, 64, "/proc/%d/fd/%d", (int)getpid(), root);
	return root;
}

static void fill_disk(int root, bool full)
{
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0 && full)
		fill_up(root, space(root) - MIB);
	else if (rank == 0)
		make_space(root);
	MPI_Barrier(MPI_COMM_WORLD);
}

static void full_result(int root)
{
	struct ummr_config c = make_config();
	char path[400];
	ummr_job *job;

	snprintf(path, sizeof(path), "%.300s/result", storage);
	c.arg = &c;
	c.storage = NULL;
	check(ummr_create(MPI_COMM_WORLD, &c, &job) == 0 && ummr_run(job) == 0, "%s", ummr_error());
	fill_disk(root, true);
	check(ummr_write(job, path, NULL) == -1 && errno == ENOSPC, "errno %d: %s", errno, ummr_error());
	fill_disk(root, false);
	check(rank != 0 || space(root) > 8 * MIB, "what was not complete is left");
	check(ummr_write(job, path, NULL) == 0, "%s", ummr_error());
	check(ummr_end(job) == 0);
	mapped_by_all();
}

static void full_disk(void)
{
	struct ummr_config c = make_config();
	char path[64] = "";
	int root = rank == 0 ? mount_memory(path) : 0, done, again;

	MPI_Bcast(&root, 1, MPI_INT, 0, MPI_COMM_WORLD);
	if (root < 0) {
		if (rank == 0)
			printf("all but a full disk, which needs root\n");
		fflush(stdout);
		MPI_Finalize();
		exit(77);
	}
	MPI_Bcast(path, sizeof(path), MPI_CHAR, 0, MPI_COMM_WORLD);
	snprintf(storage, sizeof(storage), "%s", path);
	fill_disk(root, true);
	c.arg = &c;
	done = fails(c, ENOSPC, "o space left");
	again = fails(c, ENOSPC, "o space left");
	fill_disk(root, false);
	check(done < TASKS && again < TASKS, "%d and %d tasks", done, again);
	complete(c, TASKS);
	full_result(root);
}

int main(int argc, char **argv)
{
	static const char zeros[TASKS * RECORD];
	FILE *f;

	set_budget(MIB);
	set_env("UMMAP_SEG_SIZE", "64K");
	start_mpi(&argc, &argv, MPI_THREAD_SINGLE);
	snprintf(input_path, sizeof(input_path), "%s/input", folder);
	snprintf(storage, sizeof(storage), "%s/100%%r", folder);
	if (rank == 0) {
		f = fopen(input_path, "w");
		check(f && fwrite(zeros, 1, sizeof(zeros), f) == sizeof(zeros) && fclose(f) == 0);
		check(mkdir(storage, 0700) == 0);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	complete(make_config(), TASKS);
	other_jobs();
	clear_storage();
	more_ranks();
	syncs_by_time();
	torn_records();
	broken_pairs();
	lost_files();
	two_jobs();
	failing_syncs();
	full_disk();
	MPI_Finalize();
	return 0;
}
