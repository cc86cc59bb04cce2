/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mapreduce_faults - MapReduce jobs in storage that fails: windows that cannot be made durable,
 * full disks, and damaged or missing files. A job fails with a message at all ranks, or loses the
 * work that it has acknowledged last. The next job maps only the tasks that are missing, and has
 * the right result. A job with another configuration is refused.
 */
#include "common.h"
#include "../small_fs.h"

#include <ummap-mapreduce.h>

#define TASKS 30
#define RECORD 4096

static char input_path[400], storage[400];

/* Number of tasks that this rank has mapped. */
static int mapped;

static int map_record(ummr_job *job, const struct ummr_task *task, void *arg)
{
	const uint64_t one = 1;
	const void *value = arg ? (const void *)task->data : &one;

	check(task->size == RECORD);
	mapped++;
	/* Each task emits its own keys, and one key that all tasks have. With an argument, values
	 * are large. */
	for (uint32_t i = 0; i < 200; i++) {
		uint64_t key = task->offset / RECORD * 1000 + i;

		if (ummr_emit(job, &key, sizeof(key), value, arg ? 1000 : sizeof(one)) < 0)
			return -1;
	}
	return ummr_emit(job, "all", 3, &one, sizeof(one));
}

static int add_number(const struct ummr_bytes *key, struct ummr_value *value,
		      const struct ummr_bytes *other, void *arg)
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
	c.map = map_record;
	c.reduce = add_number;
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

static int count_mapped_tasks(void)
{
	int all;

	MPI_Allreduce(&mapped, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	mapped = 0;
	return all;
}

/* Runs a job to its end. It must map at most `limit` tasks, and leave no file. */
static void complete_job(struct ummr_config c, int limit)
{
	struct dirent *e;
	ummr_job *job;
	int tasks;
	DIR *d;

	check(ummr_create(MPI_COMM_WORLD, &c, &job) == 0, "%s", ummr_error());
	check(ummr_run(job) == 0, "%s", ummr_error());
	check_result(job);
	check(ummr_end(job) == 0);
	tasks = count_mapped_tasks();
	check(tasks <= limit, "%d tasks are mapped, of %d", tasks, limit);
	d = opendir(storage);
	check(d);
	while ((e = readdir(d)))
		check(e->d_name[0] == '.' || strncmp(e->d_name, "ummr.", 5) != 0, "%s is left",
		      e->d_name);
	closedir(d);
	MPI_Barrier(MPI_COMM_WORLD);
}

/* Runs a job that fails. Returns the number of tasks that it has mapped. */
static int fail_job(struct ummr_config c, int error, const char *words)
{
	ummr_job *job;
	int result, code;

	check(ummr_create(MPI_COMM_WORLD, &c, &job) == 0, "%s", ummr_error());
	result = ummr_run(job);
	code = errno;
	check(result == -1 && code == error, "%d, errno %d: %s", result, code, ummr_error());
	check(strstr(ummr_error(), words), "\"%s\" is not in \"%s\"", words, ummr_error());
	check(ummr_end(job) == 0);
	return count_mapped_tasks();
}

static void check_refused_job(struct ummr_config c, int error, const char *words)
{
	ummr_job *job;

	check(ummr_create(MPI_COMM_WORLD, &c, &job) == -1 && errno == error, "errno %d: %s", errno,
	      ummr_error());
	check(strstr(ummr_error(), words), "\"%s\" is not in \"%s\"", words, ummr_error());
	MPI_Barrier(MPI_COMM_WORLD);
}

/* ---- Jobs that are interrupted because the map function fails for the last task ---- */

static bool fails_now;

static int map_until(ummr_job *job, const struct ummr_task *task, void *arg)
{
	return fails_now && task->offset / RECORD == TASKS - 1 ? 1 : map_record(job, task, arg);
}

/* Leaves a job that has acknowledged some tasks, but not the last one. Returns the number of the
 * other tasks. */
static int interrupt_job(void)
{
	struct ummr_config c = make_config();
	int done;

	c.map = map_until;
	fails_now = true;
	done = fail_job(c, ECANCELED,
			"the map function has failed 3 times for the 4096 bytes at 118784");
	fails_now = false;
	return TASKS - done;
}

static void test_other_jobs(void)
{
	struct ummr_config c = make_config();
	struct timespec times[2] = { { 1, 0 }, { 1, 0 } };
	int left = interrupt_job();

	c.tag = 7;
	check_refused_job(c, EEXIST, "with another tag (0, and 7 now)");
	c.tag = 0;
	c.order = UMMR_ORDER_DESCENDING;
	check_refused_job(c, EEXIST, "with another order");
	c.order = 0;
	c.task_size = 2 * RECORD;
	check_refused_job(c, EEXIST, "with another task_size");
	c.task_size = RECORD;
	c.sync_tasks = UMMR_SYNC_NEVER;
	check_refused_job(c, EEXIST, "unfinished job that syncs");
	c.sync_tasks = 3;
	complete_job(c, left);
	interrupt_job();
	if (rank == 0)
		check(utimensat(AT_FDCWD, input_path, times, 0) == 0);
	MPI_Barrier(MPI_COMM_WORLD);
	check_refused_job(make_config(), EEXIST,
			  "with another input (a file's name, size or time of its last change). "
			  "Try");
}

/* By default, the first sync starts behind the task that ends after the first second, and ends
 * behind the next task. The job has one rank, so that the order of tasks is known. */
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

static void remove_own_files(void)
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
	remove_own_files();
	MPI_Barrier(MPI_COMM_WORLD);
}

/* Removes the files of all ranks except the last one with acknowledged work. Returns this rank. */
static int keep_last_rank(void)
{
	int last = -1;
	struct stat st;

	for (int i = 0; i < 2; i++)
		if (stat(file_of("state", i), &st) == 0 && st.st_size > 0)
			last = rank;
	MPI_Allreduce(MPI_IN_PLACE, &last, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
	check(last >= 0);
	if (rank != last)
		remove_own_files();
	MPI_Barrier(MPI_COMM_WORLD);
	return last;
}

/* A job with fewer ranks notices the acknowledged work of the ranks beyond its own, and removes
 * their files if they have none. */
static void test_fewer_ranks(void)
{
	struct ummr_config c = make_config();
	char words[80];
	ummr_job *job;
	int last;

	snprintf(words, sizeof(words), "another number of ranks (%d, and 1 now)", ranks);
	interrupt_job();
	last = keep_last_rank();
	if (rank == 0 && last > 0) {
		check(ummr_create(MPI_COMM_SELF, &c, &job) == -1 && errno == EEXIST, "errno %d: %s",
		      errno, ummr_error());
		check(strstr(ummr_error(), words), "\"%s\" is not in \"%s\"", words, ummr_error());
		check(access(file_of("state", 0), F_OK) != 0 &&
		      access(file_of("state", 1), F_OK) != 0,
			      "a job that was refused has left files");
	}
	MPI_Barrier(MPI_COMM_WORLD);
	for (int i = 0; i < 2 && rank == last; i++)
		check(truncate(file_of("state", i), 0) == 0 || errno == ENOENT);
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0)
		check(run_alone(&c) == 0 && mapped == TASKS, "%d tasks are mapped", mapped);
	mapped = 0;
	complete_job(c, TASKS);
}

static void test_syncs_by_time(void)
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

/* Changes one byte of a record of this rank. */
static void damage_record(int which)
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

/* If the damaged record is the newest one, the rank loses the work that it has acknowledged
 * last. */
static void test_damaged_records(void)
{
	for (int which = 0; which < 2; which++) {
		int left = interrupt_job();

		damage_record(which);
		MPI_Barrier(MPI_COMM_WORLD);
		complete_job(make_config(), left + ranks);
	}
	interrupt_job();
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
	check_refused_job(make_config(), EUCLEAN, "are damaged");
	clear_storage();
}

/* The size in a header is larger than memory, and than all pairs together. */
static void test_damaged_pairs(void)
{
	const uint64_t key_size = (uint64_t)1 << 45;
	int fd;

	interrupt_job();
	fd = open(file_of("pairs", -1), O_WRONLY | O_CLOEXEC);
	if (fd >= 0)
		check(pwrite(fd, &key_size, sizeof(key_size),
			     offsetof(struct ummr_header, key_size)) == sizeof(key_size));
	close(fd);
	MPI_Barrier(MPI_COMM_WORLD);
	fail_job(make_config(), EIO, "are damaged, and one is longer than the rest of them");
	clear_storage();
}

static void test_lost_files(void)
{
	ummr_job *job;
	struct ummr_config c = make_config();
	int left;

	/* The file of a window is shorter than its record says. */
	interrupt_job();
	if (rank == ranks - 1 && access(file_of("pairs", -1), F_OK) == 0)
		check(truncate(file_of("pairs", -1), 100) == 0);
	MPI_Barrier(MPI_COMM_WORLD);
	check(ummr_create(MPI_COMM_WORLD, &c, &job) == 0, "%s", ummr_error());
	check(ummr_run(job) == -1 && errno == EUCLEAN && strstr(ummr_error(), "shorter"), "errno "
	      "%d: %s", errno, ummr_error());
	check(ummr_end(job) == 0);
	clear_storage();
	interrupt_job();
	unlink(file_of("pairs", -1));
	MPI_Barrier(MPI_COMM_WORLD);
	fail_job(c, EUCLEAN, "No such file or directory. Try to remove all files ummr.* there");
	clear_storage();
	/* One rank has lost all its files; the tasks of the other ranks are acknowledged. */
	left = interrupt_job();
	if (rank == ranks - 1) {
		unlink(file_of("pairs", -1));
		unlink(file_of("state", 0));
		unlink(file_of("state", 1));
	}
	MPI_Barrier(MPI_COMM_WORLD);
	complete_job(make_config(), ranks > 1 ? TASKS : left + TASKS);
}

/* ---- Two jobs ---- */

static void test_two_jobs(void)
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
	count_mapped_tasks();
}

/* ---- Errors of storage ---- */

/* One request of a kind fails at each rank: the first one, the second one, and so on. The next job
 * continues the work. */
static void test_failing_syncs(void)
{
	const char *before = getenv("UMMAP_DRIVER");
	int failed = 0;

	for (int nth = 1; nth < 40; nth = nth < 4 ? nth + 1 : 2 * nth) {
		struct ummr_config c = make_config();
		char driver[100];
		ummr_job *job;
		int result;

		snprintf(driver, sizeof(driver), "error+posix:?error.op=%s&error.nth=%d", nth % 2
			 ? "flush" : "write", nth);
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
		count_mapped_tasks();
		if (result < 0)
			complete_job(make_config(), TASKS);
	}
	check(failed > 0);
}

/* ---- A full disk: a tmpfs with space for 1 MB of 6 MB of pairs ---- */

/* Returns a descriptor of the disk, which is unmounted already and lives as long as the process; -1
 * if it cannot be mounted. */
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

static void set_disk_full(int root, bool is_full)
{
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0 && is_full)
		fill_up(root, space(root) - MIB);
	else if (rank == 0)
		make_space(root);
	MPI_Barrier(MPI_COMM_WORLD);
}

static void test_result_on_full_disk(int root)
{
	struct ummr_config c = make_config();
	char path[400];
	ummr_job *job;

	snprintf(path, sizeof(path), "%.300s/result", storage);
	c.arg = &c;
	c.storage = NULL;
	check(ummr_create(MPI_COMM_WORLD, &c, &job) == 0 && ummr_run(job) == 0, "%s", ummr_error());
	set_disk_full(root, true);
	check(ummr_write(job, path, NULL) == -1 && errno == ENOSPC, "errno %d: %s", errno,
	      ummr_error());
	set_disk_full(root, false);
	check(rank != 0 || space(root) > 8 * MIB, "the incomplete result is left");
	check(ummr_write(job, path, NULL) == 0, "%s", ummr_error());
	check(ummr_end(job) == 0);
	count_mapped_tasks();
}

static void test_full_disk(void)
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
	set_disk_full(root, true);
	c.arg = &c;
	done = fail_job(c, ENOSPC, "o space left");
	again = fail_job(c, ENOSPC, "o space left");
	set_disk_full(root, false);
	check(done < TASKS && again < TASKS, "%d and %d tasks", done, again);
	complete_job(c, TASKS);
	test_result_on_full_disk(root);
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
	complete_job(make_config(), TASKS);
	test_other_jobs();
	clear_storage();
	test_fewer_ranks();
	test_syncs_by_time();
	test_damaged_records();
	test_damaged_pairs();
	test_lost_files();
	test_two_jobs();
	test_failing_syncs();
	test_full_disk();
	MPI_Finalize();
	return 0;
}
