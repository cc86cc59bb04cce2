/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * prog_umrun - what a program may do to its file mappings, by itself and under umrun: the same checks hold for both, and under
 * umrun the mappings are the library's where they are to be.
 */
#include "common.h"

#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#define PAGE ((size_t)4096)
#define SIZE (16 * MIB + 5000)  /* the file ends within a page */
#define OLD 1
#define NEW 2

static char data[320];  /* the file */

static int open_data(int flags)
{
	int fd = open(data, flags);

	check(fd >= 0, "%s", data);
	return fd;
}

static uint8_t *map_data(size_t len, int prot, int flags, off_t off)
{
	int fd = open_data(prot & PROT_WRITE ? O_RDWR : O_RDONLY);
	void *m = mmap(NULL, len, prot, flags, fd, off);

	check(m != MAP_FAILED);
	close(fd);
	return m;
}

/* Whether a load of the byte raises the signal. */
static sigjmp_buf jump;

static void on_signal(int sig)
{
	siglongjmp(jump, sig);
}

static int signal_of(volatile uint8_t *at, bool store)
{
	int sig;

	signal(SIGBUS, on_signal);
	signal(SIGSEGV, on_signal);
	sig = sigsetjmp(jump, 1);
	if (sig == 0) {
		uint8_t was = *at;

		if (store)
			*at = was;
	}
	signal(SIGBUS, SIG_DFL);
	signal(SIGSEGV, SIG_DFL);
	return sig;
}

/* ---- The parts; each has the file with OLD in it. ---- */

static void loads(void)
{
	uint8_t *shared = map_data(SIZE, PROT_READ, MAP_SHARED, 0);
	uint8_t *private = map_data(8 * MIB, PROT_READ, MAP_PRIVATE, 2 * MIB);

	for (int round = 0; round < 2; round++) {
		check_bytes(shared, SIZE, 0, OLD);
		check_bytes(private, 8 * MIB, 2 * MIB, OLD);
	}
	check_zeros(shared + SIZE, PAGE - SIZE % PAGE);
	check(signal_of(shared, true) == SIGSEGV);
	check(madvise(shared, SIZE, MADV_RANDOM) == 0 && madvise(shared, SIZE, MADV_WILLNEED) == 0);
	check(madvise(shared + MIB, MIB, MADV_DONTNEED) == 0 && posix_madvise(shared, SIZE, POSIX_MADV_SEQUENTIAL) == 0);
	check_bytes(shared, SIZE, 0, OLD);
	check(munmap(shared, SIZE) == 0 && munmap(private, 8 * MIB) == 0);
	check(signal_of(shared, false) == SIGSEGV);
}

static void stores(void)
{
	uint8_t *m = map_data(SIZE, READ_WRITE, MAP_SHARED, 0);
	int fd = open_data(O_RDWR);

	fill(m, SIZE, 0, NEW);
	check(msync(m, MIB, MS_ASYNC) == 0 && msync(m, SIZE, MS_SYNC) == 0);
	check_file(fd, 0, SIZE, 0, NEW);
	/* Without one: what reads the file finds it. */
	fill(m + 3 * MIB, 2 * MIB, 0, 3);
	check_file(fd, 3 * MIB, 2 * MIB, 0, 3);
	check(lseek(fd, 4 * MIB, SEEK_SET) == 4 * MIB);
	fill(m + 4 * MIB, 100, 0, 4);
	{
		uint8_t buf[100];

		check(read(fd, buf, 100) == 100);
		check_bytes(buf, 100, 0, 4);
	}
	fill(m, SIZE, 0, NEW);
	check(munmap(m, SIZE) == 0);
	check_file(fd, 0, SIZE, 0, NEW);
	close(fd);
}

/* By write(2), to a file that is mapped. */
static void written_meanwhile(int prot)
{
	uint8_t *m = map_data(SIZE, prot, MAP_SHARED, 0);
	int fd = open_data(O_RDWR);
	uint8_t buf[5000];
	struct iovec iov[2] = { { buf, 1000 }, { buf + 1000, 4000 } };

	check_bytes(m, SIZE, 0, OLD);
	for (off_t at = 777; at < (off_t)SIZE - 5000; at += 1234567) {
		fill(buf, 5000, 0, (uint64_t)at);
		if (at % 3 == 0)
			check(pwritev(fd, iov, 2, at) == 5000);
		else if (at % 3 == 1)
			check(lseek(fd, at, SEEK_SET) == at && write(fd, buf, 5000) == 5000);
		else
			check(pwrite(fd, buf, 5000, at) == 5000);
		check_bytes(m + at, 5000, 0, (uint64_t)at);
		check(m[at - 1] == pattern((uint64_t)at - 1, OLD) && m[at + 5000] == pattern((uint64_t)at + 5000, OLD));
	}
	check(munmap(m, SIZE) == 0);
	close(fd);
}

static void written_while_loaded(void)
{
	written_meanwhile(PROT_READ);
}

static void written_while_stored(void)
{
	written_meanwhile(READ_WRITE);
}

/* Calls that move bytes between descriptors, from and to a file that is mapped and stored to. */
static void copies(void)
{
	uint8_t *m = map_data(SIZE, READ_WRITE, MAP_SHARED, 0);
	int fd = open_data(O_RDWR), other = temp_file(0), ends[2];
	off_t from, to;

	fill(m, SIZE, 0, NEW);
	for (from = to = 0; from < (off_t)SIZE;)
		check(copy_file_range(fd, &from, other, &to, SIZE, 0) > 0);
	check_file(other, 0, SIZE, 0, NEW);
	fill(m, SIZE, 0, 3);
	check(lseek(other, 0, SEEK_SET) == 0);
	for (from = 0; from < (off_t)SIZE;)
		check(sendfile(other, fd, &from, SIZE) > 0);
	check_file(other, 0, SIZE, 0, 3);
	fill(m, SIZE, 0, 4);
	from = 5 * MIB;
	to = 0;
	check(pipe(ends) == 0 && splice(fd, &from, ends[1], NULL, 4096, 0) == 4096);
	check(splice(ends[0], NULL, other, &to, 4096, 0) == 4096);
	check_file(other, 0, 4096, 5 * MIB, 4);

	/* Into it: what was stored there before is gone, what was stored beside stays. */
	file_fill(other, 0, SIZE, 0, NEW);
	fill(m, SIZE, 0, 5);
	from = to = 1000;
	while (to < (off_t)(3 * MIB))
		check(copy_file_range(other, &from, fd, &to, 3 * MIB - (size_t)to, 0) > 0);
	check_bytes(m + 1000, 3 * MIB - 1000, 1000, NEW);
	check_bytes(m + 3 * MIB, SIZE - 3 * MIB, 3 * MIB, 5);
	from = 4 * MIB;
	check(lseek(fd, from, SEEK_SET) == from && sendfile(fd, other, &from, MIB) == (ssize_t)MIB);
	check_bytes(m + 4 * MIB, MIB, 4 * MIB, NEW);
	check(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 7 * MIB + 100, MIB) == 0 || errno == EOPNOTSUPP);
	if (m[7 * MIB + 200] != pattern(7 * MIB + 200, 5)) {
		for (size_t i = 0; i < MIB; i++)
			check(m[7 * MIB + 100 + i] == 0);
	}
	check(munmap(m, SIZE) == 0);
	check_file(fd, 1000, 3 * MIB - 1000, 1000, NEW);
	check_file(fd, 4 * MIB, MIB, 4 * MIB, NEW);
	close(ends[0]);
	close(ends[1]);
	close(other);
	close(fd);
}

/* As the kernel has it, without the C library. */
static void check_stored(int fd, uint64_t seed)
{
	static uint8_t buf[SIZE];
	size_t at = 0;
	long n;

	while (at < SIZE && (n = syscall(SYS_pread64, fd, buf + at, SIZE - at, at)) > 0)
		at += (size_t)n;
	check(at == SIZE);
	check_bytes(buf, SIZE, 0, seed);
}

static void made_durable(void)
{
	uint8_t *m = map_data(SIZE, READ_WRITE, MAP_SHARED, 0);
	int fd = open_data(O_RDWR);

	fill(m, SIZE, 0, 3);
	check(fsync(fd) == 0);
	check_stored(fd, 3);
	fill(m, SIZE, 0, NEW);
	check(fdatasync(fd) == 0);
	check_stored(fd, NEW);
	close(fd);
}

/* Each shows the other's stores at once. */
static void twice(void)
{
	uint8_t *a = map_data(SIZE, PROT_READ, MAP_SHARED, 0), *b, *c;

	check_bytes(a, MIB, 0, OLD);
	b = map_data(SIZE, READ_WRITE, MAP_SHARED, 0);
	fill(b, SIZE, 0, NEW);
	check_bytes(a, SIZE, 0, NEW);
	c = map_data(4 * MIB, READ_WRITE, MAP_SHARED, 4 * MIB);
	fill(c, 4 * MIB, 0, 3);
	check_bytes(a + 4 * MIB, 4 * MIB, 0, 3);
	check_bytes(b + 4 * MIB, 4 * MIB, 0, 3);
	check(munmap(a, SIZE) == 0 && munmap(b, SIZE) == 0 && munmap(c, 4 * MIB) == 0);
}

/* The first is stored to, and what it holds is not in the file yet. */
static void twice_with_changes(void)
{
	uint8_t *a = map_data(SIZE, READ_WRITE, MAP_SHARED, 0), *b;

	fill(a, SIZE, 0, NEW);
	b = map_data(SIZE, PROT_READ, MAP_SHARED, 0);
	check_bytes(b, SIZE, 0, NEW);
	fill(a + 100, 100, 0, 3);
	check_bytes(b + 100, 100, 0, 3);
	check(munmap(b, SIZE) == 0);
	check_bytes(a + 100, 100, 0, 3);
	check(munmap(a, SIZE) == 0);
}

static void parts(void)
{
	uint8_t *m = map_data(SIZE, READ_WRITE, MAP_SHARED, 0);

	fill(m, SIZE, 0, NEW);
	check(munmap(m + 2 * MIB, 3 * MIB) == 0);
	check(signal_of(m + 3 * MIB, false) == SIGSEGV);
	check_bytes(m, 2 * MIB, 0, NEW);
	check_bytes(m + 5 * MIB, SIZE - 5 * MIB, 5 * MIB, NEW);
	check(munmap(m, SIZE) == 0);

	m = map_data(SIZE, READ_WRITE, MAP_SHARED, 0);
	fill(m, SIZE, 0, 3);
	check(mprotect(m + MIB, MIB, PROT_READ) == 0);
	check(signal_of(m + MIB, true) == SIGSEGV && signal_of(m, true) == 0 && signal_of(m + 2 * MIB, true) == 0);
	check_bytes(m, SIZE, 0, 3);
	check(munmap(m, SIZE) == 0);

	m = map_data(SIZE, PROT_READ, MAP_SHARED, 0);
	check_bytes(m, SIZE, 0, 3);
	check(mmap(m + 4 * MIB, MIB, READ_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == m + 4 * MIB);
	check_zeros(m + 4 * MIB, MIB);
	check_bytes(m, 4 * MIB, 0, 3);
	check_bytes(m + 5 * MIB, SIZE - 5 * MIB, 5 * MIB, 3);
	check(munmap(m, SIZE) == 0);
}

/* By private mappings, which may be made writable later. */
static void becomes_private(void)
{
	uint8_t *m = map_data(SIZE, PROT_READ, MAP_PRIVATE, 0);
	int fd = open_data(O_RDONLY);

	check_bytes(m, SIZE, 0, OLD);
	check(mprotect(m, SIZE, READ_WRITE) == 0);
	fill(m, SIZE, 0, NEW);
	check_bytes(m, SIZE, 0, NEW);
	check_file(fd, 0, SIZE, 0, OLD);
	check(munmap(m, SIZE) == 0);
	close(fd);
}

static void moves(void)
{
	uint8_t *m = map_data(4 * MIB, PROT_READ, MAP_SHARED, MIB), *w;

	check_bytes(m, 4 * MIB, MIB, OLD);
	m = mremap(m, 4 * MIB, 10 * MIB, MREMAP_MAYMOVE);
	check(m != MAP_FAILED);
	check_bytes(m, 10 * MIB, MIB, OLD);
	m = mremap(m, 10 * MIB, 2 * MIB, 0);
	check(m != MAP_FAILED);
	check_bytes(m, 2 * MIB, MIB, OLD);
	check(munmap(m, 2 * MIB) == 0);
	w = map_data(4 * MIB, READ_WRITE, MAP_SHARED, 0);
	fill(w, 4 * MIB, 0, NEW);
	w = mremap(w, 4 * MIB, 8 * MIB, MREMAP_MAYMOVE);
	check(w != MAP_FAILED);
	check_bytes(w, 4 * MIB, 0, NEW);
	check_bytes(w + 4 * MIB, 4 * MIB, 4 * MIB, OLD);
	check(munmap(w, 8 * MIB) == 0);
}

/* Longer than the file, which grows and shrinks. */
static void file_ends(void)
{
	size_t len = SIZE + 4 * MIB, end = (SIZE + PAGE - 1) & ~(PAGE - 1);
	uint8_t *m = map_data(len, READ_WRITE, MAP_SHARED, 0);
	int fd = open_data(O_RDWR);

	fill(m, SIZE, 0, NEW);
	check(signal_of(m + end, false) == SIGBUS && signal_of(m + end - 1, false) == 0);
	check(ftruncate(fd, (off_t)len) == 0);
	check_zeros(m + SIZE, len - SIZE);
	fill(m + SIZE, len - SIZE, SIZE, NEW);
	check_file(fd, 0, len, 0, NEW);
	check(ftruncate(fd, 3 * MIB) == 0);
	check_bytes(m, 3 * MIB, 0, NEW);
	check(signal_of(m + 3 * MIB, false) == SIGBUS && signal_of(m + SIZE, false) == SIGBUS);
	check(munmap(m, len) == 0);
	close(fd);
}

static void forks(void)
{
	uint8_t *r = map_data(4 * MIB, PROT_READ, MAP_PRIVATE, 0);
	uint8_t *m = map_data(8 * MIB, READ_WRITE, MAP_SHARED, 8 * MIB);
	int status;
	pid_t child;

	check_bytes(r, 4 * MIB, 0, OLD);
	check(munmap(r, 4 * MIB) == 0);
	fill(m, 8 * MIB, 0, NEW);
	child = fork();
	check(child >= 0);
	if (child == 0) {
		check_bytes(m, 8 * MIB, 0, NEW);
		fill(m + MIB, MIB, 0, 3);
		_exit(0);
	}
	check(waitpid(child, &status, 0) == child);
	check_exits(status, 0);
	check_bytes(m + MIB, MIB, 0, 3);
	check_bytes(m, MIB, 0, NEW);
	fill(m, 8 * MIB, 0, 5);
	check(munmap(m, 8 * MIB) == 0);
}

/* The child of a program that only loads. */
static void forks_and_loads(void)
{
	uint8_t *m = map_data(SIZE, PROT_READ, MAP_SHARED, 0);
	int status;
	pid_t child;

	check_bytes(m, MIB, 0, OLD);
	child = fork();
	check(child >= 0);
	if (child == 0) {
		check_bytes(m, SIZE, 0, OLD);
		check(munmap(m, SIZE) == 0);
		m = map_data(SIZE, PROT_READ, MAP_SHARED, 0);
		check_bytes(m, SIZE, 0, OLD);
		_exit(0);
	}
	check_bytes(m, SIZE, 0, OLD);
	check(waitpid(child, &status, 0) == child);
	check_exits(status, 0);
	check(munmap(m, SIZE) == 0);
}

/* The kernel is given addresses that are not in memory. */
static void calls(void)
{
	uint8_t *m = map_data(SIZE, READ_WRITE, MAP_SHARED, 0);
	int out = temp_file(0), pair[2];
	size_t at = 0;
	ssize_t n;
	FILE *file;

	while (at < SIZE && (n = write(out, m + at, SIZE - at)) > 0)
		at += (size_t)n;
	check(at == SIZE);
	check_file(out, 0, SIZE, 0, OLD);
	file_fill(out, 0, SIZE, 0, NEW);
	check(pread(out, m, SIZE, 0) == (ssize_t)SIZE);
	check_bytes(m, SIZE, 0, NEW);
	{
		struct iovec iov[3] = { { m + 9 * MIB, 1000 }, { m, 3 * MIB }, { m + 5 * MIB, 7 } };

		check(pwritev(out, iov, 3, 0) == (ssize_t)(3 * MIB + 1007));
		check_file(out, 1000, 3 * MIB, 0, NEW);
		check(lseek(out, 1000, SEEK_SET) == 1000 && readv(out, iov + 1, 1) == (ssize_t)(3 * MIB));
		check_bytes(m, 3 * MIB, 0, NEW);
	}
	check(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
	check(send(pair[0], m + 11 * MIB, 5000, 0) == 5000);
	check(recv(pair[1], m + 1 * MIB, 5000, MSG_WAITALL) == 5000);
	check_bytes(m + MIB, 5000, 11 * MIB, NEW);
	fill(m + MIB, 5000, MIB, NEW);
	file = fdopen(dup(out), "r+");
	rewind(file);
	check(fwrite(m, 1, SIZE, file) == SIZE && fflush(file) == 0);
	rewind(file);
	check(fread(m, 1000, SIZE / 1000, file) == SIZE / 1000);
	fclose(file);
	check_bytes(m, SIZE, 0, NEW);
	check(mlock(m + MIB, 100000) == 0 || errno == ENOMEM);
	check(munlock(m + MIB, 100000) == 0);
	close(pair[0]);
	close(pair[1]);
	close(out);
	check(munmap(m, SIZE) == 0);
}

static uint8_t *common_map;

static void *use(void *arg)
{
	uint64_t random = (uintptr_t)arg;

	for (int i = 0; i < 300; i++) {
		size_t at = ((next_random(&random) % (SIZE / (4 * PAGE) - 1)) * 4 + (size_t)(uintptr_t)arg) * PAGE;

		if (at + PAGE > SIZE)
			continue;
		fill(common_map + at, PAGE, at, NEW);
		check_bytes(common_map + at, PAGE, at, NEW);
		if (i % 50 == 0) {
			uint8_t *own = map_data(2 * MIB, PROT_READ, MAP_PRIVATE, 0);

			(void)*(volatile uint8_t *)(own + MIB);
			check(munmap(own, 2 * MIB) == 0);
		}
	}
	return NULL;
}

static void threads(void)
{
	pthread_t thread[4];

	common_map = map_data(SIZE, READ_WRITE, MAP_SHARED, 0);
	for (size_t i = 0; i < 4; i++)
		check(pthread_create(&thread[i], NULL, use, (void *)(uintptr_t)i) == 0);
	for (size_t i = 0; i < 4; i++)
		check(pthread_join(thread[i], NULL) == 0);
	check(munmap(common_map, SIZE) == 0);
}

/* What was stored is in the file, however the program ends. */
static void ends_by_return(void)
{
	fill(map_data(SIZE, READ_WRITE, MAP_SHARED, 0), SIZE, 0, NEW);
}

static void ends_at_once(void)
{
	ends_by_return();
	_exit(0);
}

static void ends_by_exec(void)
{
	ends_by_return();
	execl("/bin/true", "true", (char *)NULL);
	check(false, "execl");
}

static void ends_by_execv(void)
{
	char *args[] = { (char *)"true", NULL };

	ends_by_return();
	execv("/bin/true", args);
	check(false, "execv");
}

static void ends_by_execvpe(void)
{
	char *args[] = { (char *)"true", NULL };

	ends_by_return();
	execvpe("true", args, args + 1);
	check(false, "execvpe");
}

static void ends_by_fexecve(void)
{
	char *args[] = { (char *)"true", NULL };
	int fd = open("/bin/true", O_RDONLY);

	ends_by_return();
	fexecve(fd, args, args + 1);
	check(false, "fexecve");
}

static void ends_quickly(void)
{
	ends_by_return();
	quick_exit(0);
}

/* ---- Running them. ---- */

static const struct part {
	const char *name;
	void (*run)(void);
	bool ends;     /* the file has to hold NEW afterwards */
	bool stats;    /* the program says at the end what was taken */
} all[] = {
	{ "loads", loads, false, true },
	{ "stores", stores, true, true },
	{ "written while loaded", written_while_loaded, false, true },
	{ "written while stored", written_while_stored, false, true },
	{ "copies", copies, false, true },
	{ "made durable", made_durable, true, true },
	{ "twice", twice, false, true },
	{ "twice with changes", twice_with_changes, false, true },
	{ "parts", parts, false, true },
	{ "becomes private", becomes_private, false, true },
	{ "moves", moves, false, true },
	{ "file ends", file_ends, false, true },
	{ "forks", forks, false, true },
	{ "forks and loads", forks_and_loads, false, true },
	{ "calls", calls, false, true },
	{ "threads", threads, false, true },
	{ "ends by return", ends_by_return, true, true },
	{ "ends at once", ends_at_once, true, false },
	{ "ends by exec", ends_by_exec, true, false },
	{ "ends by execv", ends_by_execv, true, false },
	{ "ends by execvpe", ends_by_execvpe, true, false },
	{ "ends by fexecve", ends_by_fexecve, true, false },
	{ "ends quickly", ends_quickly, true, false },
};

static const struct part *find(const char *name)
{
	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
		if (strcmp(all[i].name, name) == 0)
			return &all[i];
	}
	check(false, "%s", name);
	return NULL;
}

static char umrun[512], self[512], log_name[320];

/* As another program, with or without umrun. */
static void run_part(const struct part *part, bool under)
{
	char *args[] = { umrun, (char *)"--limit", (char *)"4M", (char *)"--segment", (char *)"128K", (char *)"--stats", self,
			 (char *)(uintptr_t)part->name, data, NULL };
	int fd = open(data, O_RDWR | O_CREAT | O_TRUNC, 0600), status;
	pid_t child;

	printf("%s%s\n", part->name, under ? ", under umrun" : "");
	fflush(stdout);
	file_fill(fd, 0, SIZE, 0, OLD);
	child = fork();
	check(child >= 0);
	if (child == 0) {
		int out = open(log_name, O_WRONLY | O_CREAT | O_TRUNC, 0600);

		dup2(out, STDERR_FILENO);
		execv(under ? umrun : self, under ? args : args + 6);
		_exit(100);
	}
	check(waitpid(child, &status, 0) == child);
	if (status) {
		char line[2000];
		FILE *log = fopen(log_name, "r");

		while (log && fgets(line, sizeof(line), log))
			fputs(line, stderr);
	}
	check(status == 0, "%s: wait status %#x", part->name, status);
	if (part->ends)
		check_file(fd, 0, SIZE, 0, NEW);
	close(fd);
}

/* Whether mappings were the library's. */
static void check_taken(const struct part *part)
{
	FILE *log = fopen(log_name, "r");
	unsigned long taken = 0;
	char line[2000];

	while (fgets(line, sizeof(line), log)) {
		const char *at = strstr(line, ": ");

		at = at ? strstr(at + 2, ": ") : NULL;
		if (at && sscanf(at, ": %lu mappings", &taken) == 1)
			break;
	}
	check(taken > 0, "%s: %s", part->name, line);
	fclose(log);
}

static bool refuses(const char *option, const char *value)
{
	int status;
	pid_t child = fork();

	if (child == 0) {
		freopen("/dev/null", "w", stderr);
		execl(umrun, "umrun", option, value, "true", (char *)NULL);
		_exit(100);
	}
	return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 125;
}

int main(int argc, char **argv)
{
	if (argc == 3) {
		snprintf(data, sizeof(data), "%s", argv[2]);
		find(argv[1])->run();
		return 0;
	}
	check(readlink("/proc/self/exe", self, sizeof(self) - 1) > 0);
	snprintf(umrun, sizeof(umrun), "%.*s/../umrun", (int)(strrchr(self, '/') - self), self);
	snprintf(data, sizeof(data), "%s/data", temp_dir());
	snprintf(log_name, sizeof(log_name), "%s/log", temp_dir());
	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
		run_part(&all[i], false);
		run_part(&all[i], true);
		if (all[i].stats)
			check_taken(&all[i]);
	}
	check(refuses("--limit", "7Q") && refuses("--policy", "nonsense") && refuses("--driver", "nonsense"));
	check(refuses("--segment", "5000") && refuses("--limit", "1") && refuses("--nonsense", "1") && refuses("--min", "-1"));
	return 0;
}
