/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * prog_hdf5_kill - a writer of an HDF5 file is killed at any moment. Afterwards the file opens, and
 * has the contents of the last flush, or of the one in progress.
 *
 * prog_hdf5_kill [ROUNDS [plain]]: with `plain`, the same kills with the default driver of HDF5, to
 * count the files that are broken.
 */
#include <ummap-hdf5.h>

#include "model.h"

/* Shared by the parent and its children, in a file. */
struct progress {
	_Atomic unsigned begun;   /* number of the change whose flush has begun */
	_Atomic unsigned flushed; /* number of the change whose flush has returned */
	_Atomic unsigned found;   /* number of the change that the file has */
};

/* How the file is written, in all rounds with one file. */
struct way {
	const char *uri;          /* NULL: the default driver of HDF5 */
	bool latest;              /* the newest format */
	bool is_swmr;             /* written as SWMR */
};

/* Seconds after which no more rounds begin, unless the caller gives their number: a busy machine
 * has fewer of them. */
#define MAX_SECONDS 200
/* Changes of one writer, which then waits for its end: the datasets of SWMR have limited space. */
#define MAX_CHANGES 300

static const char *program;
static struct progress *progress;

static const char *format_of(const struct way *way)
{
	return way->is_swmr ? "swmr" : way->latest ? "latest" : "earliest";
}

static hid_t access_of(const struct way *way)
{
	hid_t fapl = H5Pcreate(H5P_FILE_ACCESS);

	if (way->uri)
		check(H5Pset_fapl_ummap(fapl, way->uri, NULL) >= 0);
	if (way->latest)
		check(H5Pset_libver_bounds(fapl, H5F_LIBVER_LATEST, H5F_LIBVER_LATEST) >= 0);
	return fapl;
}

/* ---- Children, which are programs of their own: a fork would inherit HDF5 ---- */

/* Writes until it is killed. Some changes become durable by a flush, others because the file is
 * closed. */
static void write_file(const struct way *way, const char *path, uint64_t seed, unsigned first)
{
	static struct model m;
	hid_t fapl = access_of(way), file;

	model_begin(&m, seed, way->is_swmr);
	while (m.step < first)
		model_step(&m, -1);
	file = first == 0 ? model_create(&m, path, fapl) : model_open(&m, path, fapl);
	while (m.step < first + MAX_CHANGES) {
		model_step(&m, file);
		progress->begun = m.step;
		if (m.step % 5 == 0) {
			check(H5Fclose(file) >= 0);
			file = model_open(&m, path, fapl);
		} else {
			model_flush(&m, file);
		}
		progress->flushed = m.step;
	}
	for (;;)
		pause();
}

static int read_file(const struct way *way, const char *path, uint64_t seed, bool write)
{
	hid_t fapl = access_of(way);
	hid_t file = H5Fopen(path, write ? H5F_ACC_RDWR : H5F_ACC_RDONLY, fapl);
	unsigned step;

	if (file < 0 || !file_is_whole(file, seed, way->is_swmr, &step))
		return 1;
	progress->found = step;
	return H5Fclose(file) < 0;
}

static pid_t start(const char *task, const struct way *way, const char *path, uint64_t seed,
		   unsigned first)
{
	char numbers[2][32];
	char *args[] = { (char *)(uintptr_t)program, (char *)(uintptr_t)task,
			 (char *)(uintptr_t)(way->uri ? way->uri : "-"),
			 (char *)(uintptr_t)format_of(way),
			 (char *)(uintptr_t)path, numbers[0], numbers[1], NULL };
	pid_t pid;

	snprintf(numbers[0], sizeof(numbers[0]), "%" PRIu64, seed);
	snprintf(numbers[1], sizeof(numbers[1]), "%u", first);
	fflush(NULL);
	pid = fork();
	check(pid >= 0);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		setrlimit(RLIMIT_CORE, &(struct rlimit){ 0, 0 });
		execv(program, args);
		_exit(127);
	}
	return pid;
}

static int run_task(char **args)
{
	struct way way = { strcmp(args[2], "-") == 0 ? NULL : args[2],
			   strcmp(args[3], "earliest") != 0, strcmp(args[3], "swmr") == 0 };
	uint64_t seed = strtoull(args[5], NULL, 10);
	unsigned first = (unsigned)strtoul(args[6], NULL, 10);

	if (strcmp(args[1], "write") == 0)
		write_file(&way, args[4], seed, first);
	return read_file(&way, args[4], seed, first);
}

/* ---- Rounds ---- */

/* Kills the writer during or after some flush. */
static void kill_writer(const struct way *way, const char *path, uint64_t seed, unsigned first,
			uint64_t *chance)
{
	unsigned goal = first + 1 + next_random(chance) % 12;
	pid_t pid;
	int status;

	progress->begun = progress->flushed = first;
	pid = start("write", way, path, seed, first);
	while (progress->begun < goal && waitpid(pid, &status, WNOHANG) == 0)
		usleep(50);
	check(progress->begun >= goal, "the writer has ended: status %#x", status);
	if (next_random(chance) % 4)
		usleep(next_random(chance) % 4000);
	kill(pid, SIGKILL);
	check(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status));
}

static bool is_whole(const struct way *way, const char *path, uint64_t seed, bool write)
{
	int status;

	progress->found = 0;
	status = wait_child(start("read", way, path, seed, write));
	/* Before the first flush there is no file. */
	if (progress->flushed == 0 && progress->found == 0)
		return true;
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 &&
	       (progress->found == progress->flushed || progress->found == progress->begun);
}

static void remove_file(const char *path)
{
	char log[400];

	unlink(path);
	snprintf(log, sizeof(log), "%s.wal", path);
	unlink(log);
}

/* Most rounds go on with the file of the round before. Returns the number of rounds. */
static unsigned run_rounds(const struct way *way, unsigned rounds, double end, uint64_t *chance)
{
	const char *path = in_dir("kill.h5");
	uint64_t seed = 0;
	unsigned first = 0, round;

	for (round = 0; round < rounds && now() < end; round++) {
		if (round % 8 == 0 || first == 0) {
			remove_file(path);
			seed = next_random(chance) % 1000000;
			first = 0;
		}
		kill_writer(way, path, seed, first, chance);
		check(is_whole(way, path, seed, round % 2), "%s, %s, round %u, seed %" PRIu64
		      ": flushed %u, begun %u, found %u", way->uri,
		      format_of(way), round, seed, progress->flushed,
		      progress->begun, progress->found);
		first = progress->found;
	}
	remove_file(path);
	return round;
}

static void count_plain(unsigned rounds, bool latest, bool is_swmr, uint64_t *chance)
{
	struct way way = { NULL, latest, is_swmr };
	const char *path = in_dir("plain.h5");
	unsigned broken = 0;

	set_env("HDF5_USE_FILE_LOCKING", "FALSE");
	for (unsigned round = 0; round < rounds; round++) {
		uint64_t seed = next_random(chance) % 1000000;

		remove_file(path);
		kill_writer(&way, path, seed, 0, chance);
		broken += !is_whole(&way, path, seed, false);
	}
	remove_file(path);
	printf("the default driver, %s: %u of %u files are broken\n",
	       format_of(&way), broken, rounds);
}

static void share_progress(void)
{
	const char *path = getenv("HDF5_TEST_PROGRESS");
	int fd;

	if (!path) {
		path = in_dir("progress");
		set_env("HDF5_TEST_PROGRESS", path);
	}
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	check(fd >= 0 && ftruncate(fd, sizeof(*progress)) == 0);
	progress = mmap(NULL, sizeof(*progress), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	check(progress != MAP_FAILED);
	close(fd);
}

int main(int argc, char **argv)
{
	static const struct way ways[] = {
		{ "wal+posix:", false, false }, { "wal+posix:", true, false },
		{ "wal+posix:", true, true },
		{ "wal+uring:", false, false }, { "wal+uring:", true, false },
		{ "wal+uring:", true, true },
	};
	unsigned rounds = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : by_time(60, 1000);
	unsigned nways = has_driver("uring") ? 6 : 3, done = 0;
	double seconds = argc > 1 ? 1e9 : MAX_SECONDS;
	uint64_t chance = (uint64_t)time(NULL);

	program = "/proc/self/exe";
	if (argc > 6) {
		H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
		share_progress();
		return run_task(argv);
	}
	share_progress();
	set_group();
	printf("seed %" PRIu64 "\n", chance);
	if (argc > 2) {
		count_plain(rounds / 3, false, false, &chance);
		count_plain(rounds / 3, true, false, &chance);
		count_plain(rounds / 3, true, true, &chance);
		return 0;
	}
	for (unsigned i = 0; i < nways; i++)
		done += run_rounds(&ways[i], rounds / nways,
				   now() + seconds / nways, &chance);
	printf("%u kills\n", done);
	return 0;
}
