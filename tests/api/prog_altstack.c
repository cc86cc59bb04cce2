/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Faults of threads with a small alternate signal stack. With each driver that transfers on the
 * faulting thread, a fault must not use more than the stack. If the stack is too small even for the
 * beginning of a fault, the process ends with a message. The memory below each stack has a fill
 * byte, which shows how much a fault has used.
 */
#include "common.h"
#include "ummap-driver.h"

#include <alloca.h>

/* Bytes with the fill byte below the stack that the kernel knows. */
#define BELOW (64 * KIB)
#define FILL_BYTE 0xa5
#define THREADS 4
/* Bytes of the stack beyond the minimum that the kernel accepts. Sanitizers need more. */
#if SANITIZED
#define EXTRA_BYTES (4 * KIB)
#else
#define EXTRA_BYTES KIB
#endif

struct small {
	uint8_t *painted, *sp;
	size_t size;
};

static struct small make_small(size_t size)
{
	struct small s = { .size = size };

	s.painted = mmap(NULL, BELOW + size, READ_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	check(s.painted != MAP_FAILED);
	memset(s.painted, FILL_BYTE, BELOW + size);
	s.sp = s.painted + BELOW;
	return s;
}

static void use_small(const struct small *s)
{
	stack_t stack = { .ss_sp = s->sp, .ss_size = s->size };

	check(sigaltstack(&stack, NULL) == 0, "%zu", s->size);
}

/* Returns the distance from the upper end to the last byte that differs from the fill byte. */
static size_t used_bytes(const struct small *s)
{
	size_t at = 0;

	while (at < BELOW + s->size && s->painted[at] == FILL_BYTE)
		at++;
	return BELOW + s->size - at;
}

static void disable_small(void)
{
	stack_t stack = { .ss_flags = SS_DISABLE };

	check(sigaltstack(&stack, NULL) == 0);
}

static void nothing(int sig)
{
	(void)sig;
}

/* Returns the bytes of the frame that the kernel and the smallest handler take. */
static size_t frame_of_a_signal(void)
{
	struct sigaction action = { .sa_handler = nothing, .sa_flags = SA_ONSTACK };
	struct small s = make_small(64 * KIB);

	use_small(&s);
	check(sigaction(SIGUSR1, &action, NULL) == 0);
	check(raise(SIGUSR1) == 0);
	disable_small();
	return used_bytes(&s);
}

/* Returns the larger of the kernel's minimum for an alternate stack and the frame of a signal. */
static size_t kernel_needs(void)
{
	return (size_t)sysconf(_SC_MINSIGSTKSZ);
}

/* ---- Faults that write and read ahead ---- */

struct run {
	const char *driver;
	size_t seg;
};

struct part {
	uint8_t *m;
	size_t len, used;
	uint64_t seed;
};

/* Adjacent dirty segments are written to make room, and sequential segments are read ahead. */
static void *go_through(void *arg)
{
	struct part *p = arg;
	struct small s = make_small(kernel_needs() + EXTRA_BYTES);
	uint64_t random = p->seed;

	use_small(&s);
	for (int pass = 0; pass < 2; pass++) {
		for (size_t at = 0; at < p->len; at += 4 * KIB)
			fill(p->m + at, 8, at, p->seed + pass);
		for (size_t at = 0; at < p->len; at += 4 * KIB)
			check_bytes(p->m + at, 8, at, p->seed + pass);
		for (int i = 0; i < 200; i++) {
			size_t at = next_random(&random) % (p->len / (4 * KIB)) * (4 * KIB);

			check_bytes(p->m + at, 8, at, p->seed + pass);
			if (i % 2)
				fill(p->m + at, 8, at, p->seed + pass);
		}
	}
	p->used = used_bytes(&s);
	disable_small();
	return NULL;
}

static void run(void *arg)
{
	const struct run *r = arg;
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	size_t segs = r->seg == 4 * KIB  ? 1024 :
		      r->seg == 64 * KIB ? 256 :
					   16,
	       size = segs * r->seg, most = 0;
	struct part parts[THREADS];
	pthread_t threads[THREADS];
	char path[320], uri[800];
	bool traced = strstr(r->driver, "trace");
	void *m;

	set_budget(size / 4);
	if (strcmp(r->driver, "mem") == 0)
		snprintf(uri, sizeof(uri), "mem:%zu", size);
	else {
		close(temp_named("store", size, path));
		snprintf(uri, sizeof(uri),
			 traced ? "%s:%s?error.nth=999999999&trace.file=%s.csv" : "%s:%s",
			 r->driver, path, path);
	}
	attr.seg_size = r->seg;
	check(ummap_open(uri, size, 0, READ_WRITE, &attr, &m) == 0, "%s", uri);
	for (int t = 0; t < THREADS; t++) {
		parts[t] = (struct part){ (uint8_t *)m + t * (size / THREADS), size / THREADS, 0,
					  1 + t };
		check(pthread_create(&threads[t], NULL, go_through, &parts[t]) == 0);
	}
	for (int t = 0; t < THREADS; t++) {
		check(pthread_join(threads[t], NULL) == 0);
		most = parts[t].used > most ? parts[t].used : most;
	}
	printf("%-18s %4zu KiB: %zu bytes used of %zu, any signal takes %zu\n", r->driver,
	       r->seg / KIB, most, kernel_needs() + EXTRA_BYTES, frame_of_a_signal());
	check(most <= kernel_needs() + EXTRA_BYTES);
	check(umunmap(m, 0) == 0);
}

/* ---- A fault within a fault ---- */

static uint8_t *below; /* mapping from which the driver `upon` reads */
static struct small upons;

static int upon_open(const struct ummap_uri *uri, int oflags, void **h, struct ummap_geom *geom)
{
	(void)uri, (void)oflags;
	*h = below;
	geom->size = MIB;
	geom->align = 1;
	geom->caps = UMMAP_CAP_PARALLEL | UMMAP_CAP_FAULTSAFE;
	return 0;
}

static int upon_close(void *h)
{
	(void)h;
	return 0;
}

static int upon_read(void *h, void *buf, size_t len, uint64_t off)
{
	memcpy(buf, (uint8_t *)h + off, len);
	return 0;
}

/* The inner fault has its own signal, whose frame must not overwrite that of the outer one. */
static void load_through_two(void *unused)
{
	static const struct ummap_driver upon = {
		.struct_size = sizeof(upon),
		.abi = UMMAP_DRIVER_ABI,
		.scheme = "upon",
		.help = "bytes of a mapping",
		.open = upon_open,
		.close = upon_close,
		.read = upon_read,
	};
	int fd = filled_file(MIB, 1);
	void *m;

	(void)unused;
	below = map_file(fd, MIB, 4 * KIB, PROT_READ, 0);
	check(ummap_driver_register(&upon) == 0);
	check(ummap_open("upon:x", MIB, 0, PROT_READ, NULL, &m) == 0);
	upons = make_small(kernel_needs() + EXTRA_BYTES);
	use_small(&upons);
	check_bytes(m, MIB, 0, 1);
	check(used_bytes(&upons) <= upons.size);
}

/* ---- Stacks that are too small ---- */

struct narrow {
	struct small stack;
	size_t left; /* bytes of the stack that are unused at the fault */
	int err;     /* file for the message of the process */
};

static struct narrow *narrow;
static volatile uint8_t *wanted;

static void fill_and_touch(int sig)
{
	uint8_t here;
	volatile uint8_t *taken = alloca((size_t)(&here - narrow->stack.sp) - narrow->left);

	(void)sig;
	taken[0] = 1;
	*wanted = taken[0];
}

static void touch_one(void *arg)
{
	struct sigaction action = { .sa_handler = fill_and_touch, .sa_flags = SA_ONSTACK };
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	void *m;

	narrow = arg;
	check(ummap_open("mem:64K", 64 * KIB, 0, READ_WRITE, &attr, &m) == 0);
	wanted = m;
	check(sigaction(SIGUSR1, &action, NULL) == 0);
	check(dup2(narrow->err, STDERR_FILENO) == STDERR_FILENO);
	use_small(&narrow->stack);
	check(raise(SIGUSR1) == 0);
}

enum outcome { KERNEL_ENDS, LIBRARY_ENDS, FITS };

static enum outcome try_with(size_t left)
{
	struct narrow n = { make_small(64 * KIB), left, temp_file(0) };
	char text[512] = "";
	int status = run_child(touch_one, &n);

	check(pread(n.err, text, sizeof(text) - 1, 0) >= 0);
	close(n.err);
	check(used_bytes(&n.stack) <= n.stack.size + EXTRA_BYTES / 4, "%zu left: %zu used",
	      left, used_bytes(&n.stack));
	check(munmap(n.stack.painted, BELOW + n.stack.size) == 0);
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT) {
		check(strstr(text, "the alternate signal stack of this thread: it has 65536 bytes"),
		      "%s", text);
		check(strstr(text, "bytes for sigaltstack(2)"), "%s", text);
		return LIBRARY_ENDS;
	}
	/* Other threads of the library may have logged that the kernel has reset the handler. */
	if (WIFSIGNALED(status)) {
		check_killed(status, SIGSEGV);
		check(!strstr(text, "alternate signal stack"), "%zu left: %s", left, text);
		return KERNEL_ENDS;
	}
	check_exits(status, 0);
	return FITS;
}

/*
 * With the smallest stacks, the kernel ends the process, because the registers do not fit. With
 * larger ones, the library ends it with a message, until the stack is large enough. Only the few
 * bytes that the library needs to detect this are written below the stack.
 */
static void grow_until_it_fits(void)
{
	enum outcome before = KERNEL_ENDS, now_it;
	size_t left = kernel_needs() / 2;
	unsigned said = 0;

	for (; (now_it = try_with(left)) != FITS; left += 64) {
		check(now_it >= before, "%zu left: %d after %d", left, now_it, before);
		before = now_it;
		said += now_it == LIBRARY_ENDS;
	}
	printf("%zu bytes are enough; the library refused %u smaller stacks\n", left, said);
	check(said > 0);
	check(left <= kernel_needs() + EXTRA_BYTES);
}

int main(void)
{
	static const char *const drivers[] = { "posix", "uring", "mem", "trace+error+posix",
					       "trace+error+uring" };
	static const size_t segs[] = { 4 * KIB, 64 * KIB, 2 * MIB };

	set_env("UMMAP_ENGINE", "segv"); /* the engine whose faults are signals */
	set_budget(4 * MIB);
	for (size_t d = 0; d < sizeof(drivers) / sizeof(drivers[0]); d++) {
		if (strstr(drivers[d], "uring") && !has_driver("uring"))
			continue;
		for (size_t i = 0; i < sizeof(segs) / sizeof(segs[0]); i++) {
			struct run r = { drivers[d], segs[i] };

			check_exits(run_child(run, &r), 0);
		}
	}
	check_exits(run_child(load_through_two, NULL), 0);
	if (!SANITIZED) /* sanitizers use thousands of bytes before the library runs */
		grow_until_it_fits();
	return 0;
}
