/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Functions that tests of the public calls share: checks, temporary files, patterns that identify
 * the position of each byte, values from /proc, child processes, and accesses that survive SIGBUS.
 */
#ifndef TESTS_COMMON_H
#define TESTS_COMMON_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "loop.h"
#include "sanitizers.h"
#include "ummap.h"

#define KIB ((size_t)1024)
#define MIB (1024 * KIB)
#define GIB (1024 * MIB)
#define READ_WRITE (PROT_READ | PROT_WRITE)

/* ---- Checks. A check that fails prints its place and the reason, and ends the process. ---- */

/* Forms: check(condition) and check(condition, "format", ...). */
#define check(cond, ...) check_at(!!(cond), #cond, __FILE__, __LINE__, " " __VA_ARGS__)
/* Checks that a call returns -1, and sets errno to `error` and the message of umerrormsg(3). */
#define check_fails(call, error) check_fails_at((call), (error), #call, __FILE__, __LINE__)

__attribute__((format(printf, 5, 6)))
static inline void check_at(bool ok, const char *what, const char *file, int line,
			    const char *format, ...)
{
	int error = errno;
	va_list args;

	if (ok)
		return;
	flockfile(stderr);
	fprintf(stderr, "%s:%d: [%d] failed: %s:", file, line, (int)getpid(), what);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fprintf(stderr, "\n    errno %d (%s); the last message of the library: %s\n",
		error, strerror(error), umerrormsg());
	funlockfile(stderr);
	exit(1);
}

/* Chooses between the value for `make check` and the one for `make check-long`. */
static inline unsigned by_time(unsigned little, unsigned much)
{
	return getenv("UMMAP_TEST_LONG") ? much : little;
}

/* Returns how many seconds a model test runs: UMMAP_STRESS_SECONDS, if it is set. */
static inline double stress_seconds(unsigned little, unsigned much)
{
	const char *text = getenv("UMMAP_STRESS_SECONDS");

	return text ? strtod(text, NULL) : by_time(little, much);
}

/* Checks that the message has several words and is not only the text of errno. */
static inline void check_sentence(int error, const char *what, const char *file, int line)
{
	const char *text = umerrormsg();

	check_at(text && strlen(text) >= 10 && strchr(text, ' ') &&
			 strcmp(text, strerror(error)) != 0,
		 what, file, line, " no useful sentence: \"%s\"", text ? text : "(null)");
}

static inline void check_fails_at(int result, int error, const char *what, const char *file,
				  int line)
{
	int got = errno;

	check_at(result == -1, what, file, line, " returned %d, expected %s", result,
		 strerror(error));
	errno = got;
	check_at(got == error, what, file, line, " failed, but not with %s", strerror(error));
	check_sentence(error, what, file, line);
}

/* ---- Temporary files. They are in $TMPDIR or /var/tmp, and vanish when the process ends. ---- */

static char temp_dir_name[256];
static pid_t temp_dir_owner;

static inline int temp_remove_entry(const char *path, const struct stat *st, int type,
				    struct FTW *walk)
{
	(void)st, (void)type, (void)walk;
	return remove(path);
}

static inline void temp_remove(void)
{
	if (temp_dir_owner == getpid())
		nftw(temp_dir_name, temp_remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

static inline const char *temp_dir(void)
{
	const char *parent = getenv("TMPDIR");

	if (temp_dir_owner)
		return temp_dir_name;
	snprintf(temp_dir_name, sizeof(temp_dir_name), "%s/ummap-test-XXXXXX",
		 parent ? parent : "/var/tmp");
	check(mkdtemp(temp_dir_name), "%s", temp_dir_name);
	temp_dir_owner = getpid();
	check(atexit(temp_remove) == 0);
	return temp_dir_name;
}

/* Returns a file of size bytes without a name, which needs no removal. */
static inline int temp_file(uint64_t size)
{
	const char *parent = getenv("TMPDIR");
	char path[256];
	int fd;

	snprintf(path, sizeof(path), "%s/ummap-test-XXXXXX", parent ? parent : "/var/tmp");
	fd = mkostemp(path, O_CLOEXEC);
	check(fd >= 0, "%s", path);
	check(unlink(path) == 0);
	check(ftruncate(fd, size) == 0, "%" PRIu64, size);
	return fd;
}

/* Returns the path of a name in the test's folder. The last four results are valid. */
static inline const char *in_dir(const char *name)
{
	static char path[4][320];
	static int next;
	char *p = path[next++ % 4];

	snprintf(p, sizeof(path[0]), "%s/%s", temp_dir(), name);
	return p;
}

/* Creates a file in the test's folder, and stores its path in `path`. */
static inline int temp_named(const char *name, uint64_t size, char path[static 320])
{
	int fd;

	snprintf(path, 320, "%s/%s", temp_dir(), name);
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	check(fd >= 0, "%s", path);
	check(ftruncate(fd, size) == 0);
	return fd;
}

/* ---- Patterns. Each byte depends on its offset and is not 0. ---- */

static inline uint64_t mix(uint64_t x)
{
	x = (x ^ x >> 31) * 0x9e3779b97f4a7c15u;
	x = (x ^ x >> 29) * 0xc2b2ae3d27d4eb4fu;
	return x ^ x >> 32;
}

static inline uint64_t next_random(uint64_t *state)
{
	return mix(*state += 0x9e3779b97f4a7c15u);
}

/* Returns eight bytes of the pattern at off, a multiple of 8, as a little-endian word. */
static inline uint64_t pattern_word(uint64_t off, uint64_t seed)
{
	return mix(off / 8 + (seed << 48)) | 0x0101010101010101u;
}

static inline uint8_t pattern(uint64_t off, uint64_t seed)
{
	return (uint8_t)(pattern_word(off / 8 * 8, seed) >> off % 8 * 8);
}

/* Whether bytes + i and off + i are aligned for an access to a whole word, which is faster. */
static inline bool is_word(const uint8_t *bytes, size_t i, size_t len, uint64_t off)
{
	return len - i >= 8 && (uintptr_t)(bytes + i) % 8 == 0 && (off + i) % 8 == 0;
}

/*
 * A copy by the driver of a test, which TSan does not see. TSan does not know that a store to the
 * mapping happens before the driver gets the segment, because the kernel carries the fault to the
 * library; and it takes minutes to find that it must not report any word of the segment.
 */
__attribute__((no_sanitize("thread"))) static inline void
copy_unseen(void *to, const void *from, size_t len)
{
	volatile uint8_t *bytes = to;
	const uint8_t *others = from;

	for (size_t i = 0; i < len; i++)
		bytes[i] = others[i];
}

static inline void fill(void *buf, size_t len, uint64_t off, uint64_t seed)
{
	uint8_t *bytes = buf;

	for (size_t i = 0; i < len;) {
		if (is_word(bytes, i, len, off)) {
			*(uint64_t *)(bytes + i) = pattern_word(off + i, seed);
			i += 8;
		} else {
			bytes[i] = pattern(off + i, seed);
			i++;
		}
	}
}

#define check_bytes(buf, len, off, seed) \
	check_bytes_at((buf), (len), (off), (seed), __FILE__, __LINE__)
#define check_zeros(buf, len) check_zeros_at((buf), (len), __FILE__, __LINE__)

static inline void check_bytes_at(const void *buf, size_t len, uint64_t off, uint64_t seed,
				  const char *file, int line)
{
	const uint8_t *bytes = buf;

	for (size_t i = 0; i < len;) {
		if (is_word(bytes, i, len, off) &&
		    *(const uint64_t *)(bytes + i) == pattern_word(off + i, seed)) {
			i += 8;
			continue;
		}
		if (bytes[i] != pattern(off + i, seed))
			check_at(false, "bytes as written", file, line,
				 " byte %zu of %zu is %#x, not %#x", i, len, bytes[i],
				 pattern(off + i, seed));
		i++;
	}
}

static inline void check_zeros_at(const void *buf, size_t len, const char *file, int line)
{
	const uint8_t *bytes = buf;

	for (size_t i = 0; i < len; i++)
		if (bytes[i] != 0)
			check_at(false, "zeros", file, line, " byte %zu of %zu is %#x", i, len,
				 bytes[i]);
}

/* Fills [from, from + len) of a file; byte i of the range gets pattern(off + i). */
static inline void file_fill(int fd, uint64_t from, size_t len, uint64_t off, uint64_t seed)
{
	const size_t most = len < MIB ? len : MIB;
	uint8_t *buf = malloc(most);

	for (size_t at = 0, n; at < len; at += n) {
		n = len - at < most ? len - at : most;
		fill(buf, n, off + at, seed);
		check(pwrite(fd, buf, n, from + at) == (ssize_t)n);
	}
	free(buf);
}

#define check_file(fd, from, len, off, seed) \
	check_file_at(fd, from, len, off, seed, __FILE__, __LINE__)
#define check_file_zeros(fd, from, len) check_file_zeros_at(fd, from, len, __FILE__, __LINE__)

/* Creates a temporary file that holds `size` bytes of the pattern. */
static inline int filled_file(size_t size, uint64_t seed)
{
	int fd = temp_file(0);

	file_fill(fd, 0, size, 0, seed);
	return fd;
}

static inline void *file_read(int fd, uint64_t from, size_t len, const char *file, int line)
{
	void *buf = malloc(len ? len : 1);
	ssize_t got = pread(fd, buf, len, from);

	check_at(got == (ssize_t)len, "the file is long enough", file, line, " read %zd of %zu",
		 got, len);
	return buf;
}

static inline void check_file_at(int fd, uint64_t from, size_t len, uint64_t off, uint64_t seed,
				 const char *file, int line)
{
	void *buf = file_read(fd, from, len, file, line);

	check_bytes_at(buf, len, off, seed, file, line);
	free(buf);
}

static inline void check_file_zeros_at(int fd, uint64_t from, size_t len, const char *file,
				       int line)
{
	void *buf = file_read(fd, from, len, file, line);

	check_zeros_at(buf, len, file, line);
	free(buf);
}

static inline uint64_t file_size(int fd)
{
	struct stat st;

	check(fstat(fd, &st) == 0);
	return st.st_size;
}

/* ---- The state of the process, from /proc and the clock. ---- */

static inline double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

static inline void pause_ms(unsigned ms)
{
	struct timespec t = { ms / 1000, ms % 1000 * 1000000L };

	while (nanosleep(&t, &t) != 0)
		;
}

/* Counts descriptors, except those of /proc: this function has one, and library threads may. */
static inline int count_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	struct dirent *entry;
	char target[8];
	int n = 0;

	check(dir);
	while ((entry = readdir(dir))) {
		ssize_t len = readlinkat(dirfd(dir), entry->d_name, target, sizeof(target));

		n += len >= 0 && (len < 6 || memcmp(target, "/proc/", 6) != 0);
	}
	closedir(dir);
	return n;
}

/* Counts the lines of /proc/self/maps, without malloc(3), which could add one. */
static inline int count_maps(void)
{
	char buf[4096];
	ssize_t got;
	int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC), n = 0;

	check(fd >= 0);
	while ((got = read(fd, buf, sizeof(buf))) > 0)
		for (ssize_t i = 0; i < got; i++)
			n += buf[i] == '\n';
	close(fd);
	return n;
}

/* Returns the value of a key of /proc/PID/status ("VmRSS", "VmHWM") in bytes. */
static inline size_t status_bytes_of(pid_t pid, const char *key)
{
	char line[256];
	size_t kib = 0;
	FILE *f;

	snprintf(line, sizeof(line), "/proc/%d/status", (int)pid);
	f = fopen(line, "re");
	check(f);
	while (fgets(line, sizeof(line), f))
		if (strncmp(line, key, strlen(key)) == 0 && line[strlen(key)] == ':')
			kib = strtoull(line + strlen(key) + 1, NULL, 10);
	fclose(f);
	return kib * KIB;
}

static inline size_t status_bytes(const char *key)
{
	return status_bytes_of(getpid(), key);
}

/* Resets VmHWM to VmRSS. */
static inline void reset_peak(void)
{
	int fd = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);

	check(fd >= 0 && write(fd, "5", 1) == 1);
	close(fd);
}

/* ---- Child processes. ---- */

/* Seconds after which a child is killed: a third of the time limit of the test, which is longer in
 * a virtual machine. */
static inline double child_seconds(void)
{
	const char *limit = getenv("UMMAP_TEST_TIMEOUT");
	double third = limit ? strtod(limit, NULL) / 3 : 0;

	return third > 100 ? third : 100;
}

static inline pid_t start_child(void (*body)(void *), void *arg)
{
	pid_t pid;

	temp_dir();  /* this process creates the folder, so that it removes the folder */
	fflush(NULL);
	pid = fork();
	check(pid >= 0);
	if (pid == 0) {
		/* Some children die on purpose. */
		setrlimit(RLIMIT_CORE, &(struct rlimit){ 0, 0 });
		/* Not alarm(2): a thread that hangs may have blocked its signal. */
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		body(arg);
		fflush(NULL);
		_exit(0);
	}
	return pid;
}

static inline int wait_child(pid_t pid)
{
	double end = now() + child_seconds();
	int status;
	pid_t got;

	while ((got = waitpid(pid, &status, WNOHANG)) == 0) {
		if (now() > end && kill(pid, SIGKILL) == 0)
			fprintf(stderr, "child %d hangs: killed\n", (int)pid);
		pause_ms(now() > end ? 100 : 1);
	}
	check(got == pid);
	return status;
}

/* Runs body in a child. Returns its wait status. */
static inline int run_child(void (*body)(void *), void *arg)
{
	return wait_child(start_child(body, arg));
}

#define check_exits(status, code) check_exits_at((status), (code), __FILE__, __LINE__)
#define check_killed(status, sig) check_killed_at((status), (sig), __FILE__, __LINE__)

static inline void check_exits_at(int status, int code, const char *file, int line)
{
	check_at(WIFEXITED(status) && WEXITSTATUS(status) == code, "the child exits", file, line,
		 " wait status %#x, not exit(%d)", status, code);
}

static inline void check_killed_at(int status, int sig, const char *file, int line)
{
	check_at(WIFSIGNALED(status) && WTERMSIG(status) == sig, "the child is killed", file, line,
		 " wait status %#x, not signal %d", status, sig);
}

static inline void set_env(const char *name, const char *value)
{
	check(setenv(name, value, 1) == 0);
}

/* Whether mappings have this engine by default. */
static inline bool engine_is(const char *name)
{
	const char *engine = getenv("UMMAP_ENGINE");

	return strcmp(engine ? engine : "segv", name) == 0;
}

static inline void set_group(void)
{
	const char *prefix = getenv("UMMAP_TEST_GROUP");
	char text[64];

	snprintf(text, sizeof(text), "%s.%d", prefix ? prefix : "test", (int)getpid());
	set_env("UMMAP_GROUP", text);
}

/* Sets the budget of a process that has not mapped anything yet and shares it with no process. */
static inline void set_budget(size_t bytes)
{
	char text[32];

	snprintf(text, sizeof(text), "%zu", bytes);
	set_env("UMMAP_MEM_LIMIT", text);
	set_group();
}

/* ---- Mappings. ---- */

static inline uint8_t *map_file(int fd, size_t size, size_t seg_size, int prot, off_t offset)
{
	void *addr = NULL;

	check(ummap(size, seg_size, prot, fd, offset, -1, 1, UMMAP_PTYPE_FIFO, &addr) == 0);
	check(addr && (uintptr_t)addr % sysconf(_SC_PAGESIZE) == 0, "%p", addr);
	return addr;
}

static inline void open_by_driver(void *scheme)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	char path[320], uri[400];
	void *addr;

	close(temp_named("driver", KIB, path));
	snprintf(uri, sizeof(uri), "%s:%s", (const char *)scheme, path);
	if (ummap_open(uri, KIB, 0, PROT_READ, &attr, &addr) == 0)
		_exit(0);
	check(errno == EOPNOTSUPP, "%s", uri);
	printf("without %s: %s\n", (const char *)scheme, umerrormsg());
	fflush(stdout);
	_exit(1);
}

/* Whether a driver of files is built in and works here. Tries in a child, because the library of
 * this process must not start yet. */
static inline bool has_driver(const char *scheme)
{
	int status = run_child(open_by_driver, (void *)(uintptr_t)scheme);

	check_at(WIFEXITED(status) && WEXITSTATUS(status) <= 1, "the driver says what it is",
		 __FILE__, __LINE__, " %s: wait status %#x", scheme, status);
	return WEXITSTATUS(status) == 0;
}

/* A part of a test that needs a process of its own. */
struct test_part {
	const char *name;
	void (*run)(void);
};

static inline void call_test_part(void *part)
{
	((const struct test_part *)part)->run();
	/* The process leaves its group in order. */
	exit(0);
}

static inline void run_test_part(const struct test_part *part)
{
	printf("%s\n", part->name);
	check_exits(run_child(call_test_part, (void *)(uintptr_t)part), 0);
}

static inline struct umstat stat_of(const void *addr)
{
	struct umstat st = { .struct_size = sizeof(st) };

	check(umstat(addr, &st) == 0);
	return st;
}

/* ---- Loads and stores that storage may fail. ---- */

static __thread sigjmp_buf bus_jump;
static __thread siginfo_t bus_info;  /* information of the last SIGBUS */

static inline void on_sigbus(int sig, siginfo_t *info, void *context)
{
	(void)sig, (void)context;
	bus_info = *info;
	siglongjmp(bus_jump, 1);
}

static inline void catch_sigbus(void)
{
	struct sigaction action = { .sa_sigaction = on_sigbus, .sa_flags = SA_SIGINFO };

	check(sigaction(SIGBUS, &action, NULL) == 0);
}

/* A word at any address, because si_addr of a SIGBUS may be that of any byte. */
struct unaligned {
	uint64_t value;
} __attribute__((packed));

/* try_load and try_store return false after SIGBUS. */
static inline bool try_load(const volatile void *p, uint64_t *value)
{
	if (sigsetjmp(bus_jump, 1) != 0)
		return false;
	*value = ((const volatile struct unaligned *)p)->value;
	return true;
}

static inline bool try_store(volatile void *p, uint64_t value)
{
	if (sigsetjmp(bus_jump, 1) != 0)
		return false;
	((volatile struct unaligned *)p)->value = value;
	return true;
}

#endif
