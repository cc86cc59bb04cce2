/* SPDX-License-Identifier: BSD-3-Clause */
/* umcopy: copies from and to mappings whose stores fail, with each engine. */
#include "common.h"

#define SEG (16 * KIB)
#define SIZE (8 * SEG)

static const struct {
	const char *name;
	int engine;
} engines[] = {
	{ "segv", UMMAP_ENGINE_SEGV },
	{ "uffd", UMMAP_ENGINE_UFFD },
	{ "sigbus", UMMAP_ENGINE_SIGBUS },
};

static volatile unsigned told, signals;
static sigjmp_buf out;

static void note_error(void *addr, int error)
{
	(void)addr, (void)error;
	told++;
}

static void on_bus(int sig)
{
	(void)sig;
	signals++;
	siglongjmp(out, 1);
}

/* Returns a mapping whose reads fail, or NULL if this kernel does not have the engine. */
static uint8_t *map_failing(int fd, int engine, const char *times)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	void *m = NULL;
	char uri[160];

	attr.engine = engine;
	attr.seg_size = SEG;
	snprintf(uri, sizeof(uri), "error+posix:/proc/self/fd/%d?error.op=read&error.nth=3&"
		 "error.errno=ENODEV&error.times=%s", fd, times);
	if (ummap_open(uri, SIZE, 0, READ_WRITE, &attr, &m) < 0) {
		check(errno == EPERM || errno == ENOSYS || errno == EOPNOTSUPP);
		return NULL;
	}
	check(umadvise(m, SIZE, UMMAP_ADV_RANDOM) == 0);
	return m;
}

static void check_mask(const sigset_t *before)
{
	sigset_t now;

	check(pthread_sigmask(SIG_SETMASK, NULL, &now) == 0);
	for (int sig = 1; sig < NSIG; sig++)
		check(sigismember(&now, sig) == sigismember(before, sig), "signal %d", sig);
}

static void copy_from(int fd, int engine)
{
	uint8_t *m = map_failing(fd, engine, "1"), copy[SIZE];
	sigset_t before;

	if (!m)
		return;
	check(pthread_sigmask(SIG_SETMASK, NULL, &before) == 0);
	check_fails(umcopy(copy, m, SIZE), ENODEV);
	check_mask(&before);
	check(umcopy(copy, m, SIZE) == 0 && !*umerrormsg());
	check_bytes(copy, SIZE, 0, 1);
	check(umunmap(m, 0) == 0);
}

static void copy_to(int fd, int engine)
{
	uint8_t *m = map_failing(fd, engine, "1"), copy[SIZE];

	if (!m)
		return;
	memset(copy, 5, SIZE);
	/* The copy begins inside a segment, so that the segment must be read. */
	check_fails(umcopy(m + 8, copy, SIZE - 16), ENODEV);
	check(umcopy(m + 8, copy, SIZE - 16) == 0);
	check(m[8] == 5 && m[SIZE - 9] == 5);
	check_bytes(m, 8, 0, 1);
	check_bytes(m + SIZE - 8, 8, SIZE - 8, 1);
	check(umunmap(m, 0) == 0);
}

/* Errors outside of umcopy still raise SIGBUS, also after copies that failed. */
static void load_after_copy(int fd, int engine)
{
	struct sigaction act = { .sa_handler = on_bus };
	uint8_t *m = map_failing(fd, engine, "always"), copy[SIZE];

	if (!m)
		return;
	check(sigaction(SIGBUS, &act, NULL) == 0);
	check_fails(umcopy(copy, m, SIZE), ENODEV);
	check(told == 0 && signals == 0);
	if (sigsetjmp(out, 1) == 0)
		check(((volatile uint8_t *)m)[SIZE - 1] == 0, "the load must not return");
	check(told > 0 && signals == 1);
	told = signals = 0;
	act.sa_handler = SIG_DFL;
	check(sigaction(SIGBUS, &act, NULL) == 0);
	check(umunmap(m, 0) == 0);
}

static void *copy_on_small_stack(void *arg)
{
	static char stack[8192];
	stack_t alternate = { .ss_sp = stack, .ss_size = sizeof(stack) }, now;

	check(sigaltstack(&alternate, NULL) == 0);
	copy_from(*(int *)arg, UMMAP_ENGINE_SEGV);
	check(sigaltstack(NULL, &now) == 0 && now.ss_sp == stack && now.ss_flags == 0);
	alternate.ss_flags = SS_DISABLE;
	check(sigaltstack(&alternate, NULL) == 0);
	return NULL;
}

static void copy_plain(void)
{
	char text[] = "plain memory", copy[sizeof(text)];

	check(umcopy(copy, text, sizeof(text)) == 0 && strcmp(copy, text) == 0);
	check(umcopy(copy, text, 0) == 0);
}

int main(void)
{
	int fd = temp_file(SIZE);
	pthread_t thread;

	file_fill(fd, 0, SIZE, 0, 1);
	copy_plain();
	umonerror(note_error);
	for (size_t i = 0; i < sizeof(engines) / sizeof(*engines); i++) {
		copy_from(fd, engines[i].engine);
		copy_to(fd, engines[i].engine);
		check(told == 0, "%s", engines[i].name);
		load_after_copy(fd, engines[i].engine);
	}
	check(pthread_create(&thread, NULL, copy_on_small_stack, &fd) == 0);
	check(pthread_join(thread, NULL) == 0);
	return 0;
}
