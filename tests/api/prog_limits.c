/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Processes without the resources that the library needs: little address space, no mremap(2), no
 * free VMAs. Either opening fails with a message, or all loads and stores work without SIGBUS, also
 * if the program takes all VMAs after opening.
 */
#include "common.h"
#include "uffd.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <linux/userfaultfd.h>
#include <stddef.h>

#ifndef MADV_POPULATE_WRITE /* Linux 5.14 */
#define MADV_POPULATE_WRITE 23
#endif

#define SEG (16 * KIB)
#define SIZE (256 * SEG)
#define BUDGET (SIZE / 4)

/* Number of successful and of failed calls, in memory that processes share. */
static struct { _Atomic unsigned opened, refused; } *count;

static int file;

static uint8_t *try_open(int engine)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	char uri[64];
	void *addr;

	snprintf(uri, sizeof(uri), "posix:/proc/self/fd/%d", file);
	attr.seg_size = SEG;
	attr.engine = engine;
	if (ummap_open(uri, SIZE, 0, READ_WRITE, &attr, &addr) == 0) {
		count->opened++;
		return addr;
	}
	check_sentence(errno, "ummap_open", __FILE__, __LINE__);
	count->refused++;
	return NULL;
}

static void use(uint8_t *m)
{
	for (int round = 0; round < 2; round++) {
		for (size_t at = 0; at < SIZE; at += SEG / 4) {
			check_bytes(m + at, 16, at, round ? 2 : 1);
			fill(m + at, 16, at, 2);
		}
	}
	check(umsync(m, 0) == 0);
	check(umunmap(m, 1) == 0);
}

static void with_addresses(void *more)
{
	size_t most = status_bytes("VmSize") + (size_t)more;
	uint8_t *m;

	check(setrlimit(RLIMIT_AS, &(struct rlimit){ most, most }) == 0);
	m = try_open(UMMAP_ENGINE_DEFAULT);
	check(m || strstr(umerrormsg(), "RLIMIT_AS"), "%s", umerrormsg());
	if (m)
		use(m);
}

/* A filter that has its own thread reports why the thread cannot start. */
static void with_few_addresses(void *uri)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	bool told = false, opened = false;
	void *first, *second;
	char path[320];
	size_t most;

	close(temp_named("store", SIZE, path));
	check(chdir(temp_dir()) == 0);
	attr.seg_size = SEG;
	/* The library starts with the resources that it needs itself. */
	check(ummap_open("mem:1M", SEG, 0, READ_WRITE, &attr, &first) == 0, "%s", umerrormsg());
	most = status_bytes("VmSize");
	for (size_t more = 0; more <= 256 * MIB && !opened; more += MIB) {
		check(setrlimit(RLIMIT_AS, &(struct rlimit){ most + more, RLIM_INFINITY }) == 0);
		opened = ummap_open(uri, SIZE, 0, READ_WRITE, &attr, &second) == 0;
		told |= !opened && errno == EAGAIN && strstr(umerrormsg(), "RLIMIT_AS");
	}
	check(opened, "%s", umerrormsg());
	check(told);
}

static void filter_calls(struct sock_filter *filter, unsigned short len)
{
	struct sock_fprog program = { len, filter };

	check(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	check(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

/* Lets a system call fail with EPERM from now on. */
static void forbid(unsigned call)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};

	filter_calls(filter, sizeof(filter) / sizeof(*filter));
}

/* Lets a system call fail if the argument number `place` has this value. */
static void forbid_with(unsigned call, unsigned place, unsigned value)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
			 offsetof(struct seccomp_data, args) + place * sizeof(uint64_t)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};

	filter_calls(filter, sizeof(filter) / sizeof(*filter));
}

static void is_refused(int engine, const char *call)
{
	check(!try_open(engine));
	check(errno == EPERM && strstr(umerrormsg(), call), "%s", umerrormsg());
}

static void without_mremap(void *unused)
{
	uint8_t *m;

	(void)unused;
	forbid(SYS_mremap);
	is_refused(UMMAP_ENGINE_SEGV, "mremap");
	/* The engines of userfaultfd do not need mremap(2). */
	m = try_open(has_uffd() ? UMMAP_ENGINE_UFFD : UMMAP_ENGINE_SIGBUS);
	if (m)
		use(m);
}

/* A call with a certain argument, and the name in the message. */
struct refusal {
	unsigned call, place, value;
	const char *name;
};

#ifndef UFFDIO_MOVE
#define UFFDIO_MOVE 0xc028aa05 /* Linux 6.8 */
#endif

static bool has_sigbus(void)
{
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | 1 /* UFFD_USER_MODE_ONLY */);

	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

static const struct refusal of_userfaultfd[] = {
	{ SYS_ioctl, 1, UFFDIO_API, "UFFDIO_API" },
	{ SYS_ioctl, 1, UFFDIO_REGISTER, "UFFDIO_REGISTER" },
	{ SYS_ioctl, 1, UFFDIO_COPY, "UFFDIO_COPY" },
	{ SYS_ioctl, 1, UFFDIO_WRITEPROTECT, "UFFDIO_WRITEPROTECT" },
	{ SYS_ioctl, 1, UFFDIO_MOVE, "UFFDIO_MOVE" },
	{ SYS_madvise, 2, MADV_DONTNEED, "MADV_DONTNEED" },
};

/* AUTO chooses an engine that works. A requested engine reports the call that it lacks. */
static void without_a_call(void *arg)
{
	const struct refusal *r = arg;
	uint8_t *m;

	forbid_with(r->call, r->place, r->value);
	m = try_open(UMMAP_ENGINE_AUTO);
	check(m, "%s", umerrormsg());
	use(m);
	/* A kernel that cannot move pages does not need UFFDIO_MOVE. */
	if (r->value != UFFDIO_MOVE || !try_open(UMMAP_ENGINE_SIGBUS))
		is_refused(UMMAP_ENGINE_SIGBUS, r->name);
}

/* Large segments use the engine sigbus, too, if segv does not work. */
static void auto_without_mremap(void *unused)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	void *addr;

	(void)unused;
	forbid(SYS_mremap);
	attr.seg_size = 64 * KIB;
	attr.engine = UMMAP_ENGINE_AUTO;
	if (ummap_open("mem:1M", MIB, 0, READ_WRITE, &attr, &addr) < 0) {
		check(strstr(umerrormsg(), "mremap"), "%s", umerrormsg());
		return;
	}
	fill(addr, MIB, 0, 3);
	check_bytes(addr, MIB, 0, 3);
	check(umunmap(addr, 1) == 0);
}

static void without_dontfork(void *unused)
{
	(void)unused;
	forbid_with(SYS_madvise, 2, MADV_DONTFORK);
	is_refused(UMMAP_ENGINE_AUTO, "MADV_DONTFORK");
}

/* MADV_POPULATE_WRITE only makes the library faster. */
static void without_populate(void *unused)
{
	uint8_t *m;

	(void)unused;
	forbid_with(SYS_madvise, 2, MADV_POPULATE_WRITE);
	m = try_open(UMMAP_ENGINE_SEGV);
	check(m, "%s", umerrormsg());
	use(m);
}

/* A log line must have a reason. */
static void without_fstat(void *unused)
{
	int log = temp_file(0), own = dup(STDERR_FILENO);
	char said[4096] = "";
	uint8_t *m;

	(void)unused;
	check(dup2(log, STDERR_FILENO) >= 0);
#ifdef SYS_newfstatat
	forbid(SYS_newfstatat);
#endif
	forbid(SYS_fstat);
	m = try_open(UMMAP_ENGINE_DEFAULT);
	check(dup2(own, STDERR_FILENO) >= 0);
	if (m)
		use(m);
	check(pread(log, said, sizeof(said) - 1, 0) >= 0);
	check(!strstr(said, ": \n"), "%s", said);
}

/* Takes all VMAs that the process may have except for `left`. */
static void take_vmas(size_t left)
{
	size_t page = 4 * KIB, len = 2 * GIB, at = page;
	uint8_t *all =
		mmap(NULL, len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	check(all != MAP_FAILED);
	while (at < len && mprotect(all + at, page, PROT_READ) == 0)
		at += 2 * page;
	check(at < len && errno == ENOMEM, "vm.max_map_count is larger than this test expects");
	for (size_t taken = 0; taken < left; taken += 2)
		check(mprotect(all + (at -= 2 * page), page, PROT_NONE) == 0);
}

static void with_few_vmas(void *left)
{
	uint8_t *m;

	take_vmas((size_t)left);
	m = try_open(UMMAP_ENGINE_SEGV);
	if (m)
		use(m);
}

/* An engine, and the bytes that are in memory when the program takes all VMAs. */
struct later {
	int engine;
	size_t loaded;
};

static void run_short_later(void *arg)
{
	const struct later *later = arg;
	uint8_t *m = try_open(later->engine);

	check(m);
	for (size_t at = 0; at < later->loaded; at += SEG)
		check_bytes(m + at, 16, at, 1);
	take_vmas(0);
	use(m);
}

/* The file size is limited to 1 MiB. Writes beyond it fail during stores and syncs, without
 * SIGXFSZ. */
static void with_short_files(void *engine)
{
	struct rlimit most = { MIB, MIB };
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	char uri[64];
	uint8_t *m;

	snprintf(uri, sizeof(uri), "%s:/proc/self/fd/%d", (intptr_t)engine % 2 ? "posix" : "uring",
		 temp_file(MIB));
	attr.seg_size = 16 * KIB;
	attr.engine = (int)(intptr_t)engine / 2;
	check(ummap_open(uri, 2 * BUDGET, 0, READ_WRITE, &attr, (void **)&m) == 0);
	check(setrlimit(RLIMIT_FSIZE, &most) == 0);
	for (size_t i = 0; i < 2 * BUDGET; i += KIB)
		m[i] = (uint8_t)(i >> 10 | 1);
	check_fails(umsync(m, 0), EFBIG);
	for (size_t i = 0; i < 2 * BUDGET; i += KIB)
		check(m[i] == (uint8_t)(i >> 10 | 1));
	check(umunmap(m, 0) == 0);
}

static int in_child(void (*body)(void *), void *arg)
{
	int status;

	file = filled_file(SIZE, 1);
	status = run_child(body, arg);
	close(file);
	return status;
}

static void begin(void)
{
	count->opened = count->refused = 0;
}

/* Checks that calls have succeeded and failed, so the limits were near the need. */
static void end(const char *name)
{
	printf("%s: %u opened, %u refused\n", name, count->opened, count->refused);
	fflush(stdout);
	check(count->opened && count->refused);
}

int main(void)
{
	count = mmap(NULL, sizeof(*count), READ_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	check(count != MAP_FAILED);
	set_budget(BUDGET);
#if !SANITIZED /* sanitizers take address space */
	begin();
	for (size_t more = MIB; more <= 4 * GIB; more *= 2)
		check_exits(in_child(with_addresses, (void *)more), 0);
	end("addresses");
	check_exits(in_child(with_few_addresses, "wal+posix:store"), 0);
	check_exits(in_child(with_few_addresses, "cache+posix:store?cache.path=near&cache.size=8M"),
		    0);
	begin();
	for (size_t left = 4; left <= 1024; left += left < 64 ? by_time(12, 4) : 3 * left)
		check_exits(in_child(with_few_vmas, (void *)left), 0);
	end("mappings");
	/* The number of segments that readahead has loaded varies. */
	for (int i = 0; i < (int)by_time(1, 3); i++) {
		check_exits(in_child(run_short_later,
				     &(struct later){ UMMAP_ENGINE_SEGV, SIZE / 2 }),
			    0);
		check_exits(in_child(run_short_later,
				     &(struct later){ UMMAP_ENGINE_SEGV, i * SEG }),
			    0);
		if (has_uffd())
			check_exits(in_child(run_short_later,
					     &(struct later){ UMMAP_ENGINE_UFFD, i * SEG }),
				    0);
	}
	printf("VMAs, later\n");
#endif
	for (intptr_t how = 2 * UMMAP_ENGINE_SEGV; how < 2 * (UMMAP_ENGINE_SEGV + 1 + has_uffd());
	     how++)
		check_exits(in_child(with_short_files, (void *)how), 0);
	begin();
	check_exits(in_child(without_mremap, NULL), 0);
	end("mremap");
	begin();
	if (has_sigbus()) {
		for (size_t i = 0; i < sizeof(of_userfaultfd) / sizeof(*of_userfaultfd); i++)
			check_exits(in_child(without_a_call, (void *)&of_userfaultfd[i]), 0);
		end("a call of userfaultfd");
	}
	check_exits(in_child(auto_without_mremap, NULL), 0);
	check_exits(in_child(without_dontfork, NULL), 0);
	check_exits(in_child(without_populate, NULL), 0);
	check_exits(in_child(without_fstat, NULL), 0);
	printf("calls, one by one\n");
	return 0;
}
