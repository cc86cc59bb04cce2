/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Processes that share a node's memory, in static and dynamic mode: shares are equal or follow the
 * need, and change when processes start, end and are killed; idle processes give up memory; no data
 * are lost.
 */
#include "node/registry.h"
#include "node.h"

#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <stddef.h>

#define SHARES 4

static bool all_have(uint64_t bytes)
{
	for (unsigned i = 0; i < node_count; i++) {
		if (node_children[i].order != NODE_END && node_children[i].pid &&
		    node_children[i].budget != bytes)
			return false;
	}
	return true;
}

/* ---- static ---- */

static void static_shares(void *unused)
{
	struct node_child *c[SHARES];
	char path[128];

	(void)unused;
	node_begin();
	for (int i = 0; i < SHARES; i++) {
		c[i] = node_start(false);
		node_until(all_have(NODE_LIMIT / (i + 1)));
	}
	/* All of the memory is used, and no process has more than its share. */
	for (int i = 0; i < SHARES; i++)
		node_use(c[i], NODE_SIZE);
	for (int i = 0; i < SHARES; i++) {
		node_await_round(c[i]);
		check(c[i]->held <= NODE_LIMIT / SHARES + NODE_SLACK, "%" PRIu64, c[i]->held);
		check(c[i]->held >= NODE_LIMIT / SHARES - NODE_SLACK, "%" PRIu64, c[i]->held);
	}
	for (int i = 0; i < SHARES; i++)
		node_check(c[i]);
	node_end(c[3]);
	node_until(all_have(NODE_LIMIT / 3));
	node_kill(c[0]);
	c[0]->pid = 0;
	node_until(all_have(NODE_LIMIT / 2));
	node_kill(c[1]);
	c[1]->pid = 0;
	node_until(all_have(NODE_LIMIT));
	check(node_table(path));
	node_end(c[2]);
	check(!node_table(path), "%s is left", path);
}

/* A process holds dirty segments only and then does nothing: its background thread evicts them. */
static void given_up_in_the_background(void *dynamic)
{
	struct node_child *a, *b;
	uint64_t sum;

	node_begin();
	a = node_start(dynamic);
	node_use(a, NODE_SIZE);
	node_until(a->held >= NODE_LIMIT - NODE_SLACK);
	node_await_round(a);
	a->order = NODE_REST;
	b = node_start(dynamic);
	node_use(b, NODE_SIZE);
	node_until(b->budget >= NODE_LIMIT / 2 && b->held >= NODE_LIMIT / 2 - NODE_SLACK);
	node_until(a->held <= NODE_LIMIT / 2 + NODE_SLACK);
	sum = node_resident();
	check(sum <= NODE_LIMIT + 2 * NODE_SLACK, "%" PRIu64, sum);
	b->order = NODE_REST;
	node_check(a);
	b->use = 0;
	node_end(a);
	node_end(b);
}

/* ---- dynamic ---- */

static void by_need(void *unused)
{
	struct node_child *a, *b, *c;

	(void)unused;
	node_begin();
	a = node_start(true);
	b = node_start(true);
	c = node_start(true);
	/* A single process reads far ahead, and keeps the segments. */
	node_until(b->budget && b->budget <= NODE_LIMIT / 3 && c->budget &&
		   c->budget <= NODE_LIMIT / 3);
	node_use(b, NODE_LIMIT / 16);
	node_use(c, NODE_LIMIT / 16);
	node_await_round(b);
	node_await_round(c);
	/* Far more than a third, because the others do not need theirs. */
	node_use(a, NODE_SIZE);
	node_until(a->held >= NODE_LIMIT * 3 / 4);
	check(b->held <= NODE_LIMIT / 8 && c->held <= NODE_LIMIT / 8,
	      "%" PRIu64 " and %" PRIu64 " KiB", b->held / KIB, c->held / KIB);
	/* Now the others need their shares. */
	node_use(b, NODE_SIZE);
	node_use(c, NODE_SIZE);
	node_until(b->held >= NODE_LIMIT / 3 - NODE_SLACK &&
		   c->held >= NODE_LIMIT / 3 - NODE_SLACK);
	node_until(a->held <= NODE_LIMIT / 3 + NODE_SLACK);
	node_until(node_sum() <= NODE_LIMIT + 3 * NODE_SLACK);
	/* Now they do not: a killed process keeps nothing. */
	node_kill(b);
	node_kill(c);
	node_until(a->held >= NODE_LIMIT - NODE_SLACK);
	node_check(a);
	node_end(a);
}

#define LARGE_SEG (2 * MIB)

/* Like node_body, with segments that are larger than the default step of a budget. */
static void work_large(void *child)
{
	struct node_child *c = child;
	uint8_t *m;

	set_env("UMMAP_MEMCONFIG", "dynamic");
	m = map_file(temp_file(NODE_SIZE), NODE_SIZE, LARGE_SEG, READ_WRITE, 0);
	for (; c->order != NODE_END; node_report(c))
		node_go_round(c, m, true);
	exit(0);
}

/* A second process gets its share of the memory that the first one has filled. */
static void large_segments(void *unused)
{
	struct node_child *a, *b;

	(void)unused;
	node_begin();
	a = node_start_with(work_large, true);
	node_use(a, NODE_SIZE);
	node_until(a->held >= NODE_LIMIT - 6 * LARGE_SEG);
	b = node_start_with(work_large, true);
	node_use(b, NODE_SIZE);
	node_until(b->held >= NODE_LIMIT / 2 - 3 * LARGE_SEG);
	node_end(a);
	node_end(b);
}

/* The mode is that of the process's first mapping. */
static void work_by_default(void *child)
{
	unsetenv("UMMAP_MEMCONFIG");
	umunmap(map_file(temp_file(NODE_SEG), NODE_SEG, NODE_SEG, READ_WRITE, 0), 0);
	node_work(child);
}

/* By default, a process uses what others do not use, and an idle process does not cost it half. */
static void dynamic_by_default(void *unused)
{
	struct node_child *a, *b;

	(void)unused;
	node_begin();
	b = node_start_with(work_by_default, false);
	node_use(b, NODE_LIMIT / 16);
	a = node_start_with(work_by_default, false);
	node_use(a, NODE_SIZE);
	node_until(a->held >= NODE_LIMIT * 3 / 4);
	node_use(b, NODE_SIZE);
	node_until(b->held >= NODE_LIMIT / 2 - NODE_SLACK &&
		   a->held <= NODE_LIMIT / 2 + NODE_SLACK);
	node_check(a);
	node_check(b);
	node_end(a);
	node_end(b);
}

/* A stopped process gives up nothing. A new process works with little memory, and gets its share
 * when the other one continues. */
static void beside_stopped_process(void *dynamic)
{
	struct node_child *a, *b;

	node_begin();
	a = node_start(dynamic);
	node_use(a, NODE_SIZE);
	node_until(a->held >= NODE_LIMIT - NODE_SLACK);
	check(kill(a->pid, SIGSTOP) == 0);
	b = node_start(dynamic);
	node_use(b, NODE_LIMIT / 4);
	node_await_round(b);
	check(b->held <= NODE_SLACK, "%" PRIu64, b->held);
	check(kill(a->pid, SIGCONT) == 0);
	node_use(b, NODE_SIZE);
	node_until(b->held >= NODE_LIMIT / 2 - NODE_SLACK &&
		   a->held <= NODE_LIMIT / 2 + NODE_SLACK);
	node_check(a);
	node_check(b);
	node_end(a);
	node_end(b);
}

static void static_beside_dynamic(void *unused)
{
	struct node_child *a, *b;

	(void)unused;
	node_begin();
	a = node_start(true);
	node_use(a, NODE_SIZE);
	node_until(a->held >= NODE_LIMIT - NODE_SLACK);
	b = node_start(false);
	node_until(b->budget == NODE_LIMIT / 2);
	node_until(a->held <= NODE_LIMIT / 2 + NODE_SLACK);
	node_check(a);
	node_end(b);
	node_use(a, NODE_SIZE);
	node_until(a->held >= NODE_LIMIT - NODE_SLACK);
	node_end(a);
}

/* Checks the sum of what the processes hold while they start, end and want more. */
static void sum_is_bounded(void *dynamic)
{
	struct node_child *c[6];
	uint64_t random = 5, sum, most = 0;

	node_begin();
	for (int i = 0; i < 6; i++)
		c[i] = node_start(dynamic);
	for (int i = 0; i < 6; i++)
		node_until(c[i]->budget);
	for (int turn = 0; turn < 40; turn++) {
		node_use(c[next_random(&random) % 6],
			 (next_random(&random) % 16 + 1) * NODE_LIMIT / 16);
		for (int i = 0; i < 8; i++) {
			sum = node_resident();
			most = sum > most ? sum : most;
			pause_ms(5);
		}
	}
	printf("%s: at most %" PRIu64 " KiB of %zu\n", dynamic ? "dynamic" : "static", most / KIB,
	       NODE_LIMIT / KIB);
	check(most >= NODE_LIMIT / 2 && most <= NODE_LIMIT + 6 * NODE_SLACK, "%" PRIu64, most);
	for (int i = 0; i < 6; i++) {
		c[i]->order = NODE_REST;
		node_end(c[i]);
	}
}

/* ---- Requests to give up memory ---- */

/* A request does not interrupt calls of the program, even those that SA_RESTART does not restart.
 * */
static void sleep_uninterrupted(void *child)
{
	struct node_child *c = child;
	uint8_t *m = map_file(temp_file(NODE_SIZE), NODE_SIZE, NODE_SEG, READ_WRITE, 0);

	c->use = NODE_SIZE;
	c->order = NODE_USE;
	node_go_round(c, m, true);
	c->order = NODE_REST;
	node_report(c);
	while (c->order != NODE_END) {
		struct timespec t = { 0, 100000000 };

		check(nanosleep(&t, NULL) == 0, "interrupted");
		node_report(c);
	}
}

static void calls_are_not_interrupted(void *unused)
{
	struct node_child *a, *b;

	(void)unused;
	node_begin();
	set_env("UMMAP_MEMCONFIG", "dynamic");
	a = node_start_with(sleep_uninterrupted, true);
	node_until(a->held >= NODE_LIMIT - NODE_SLACK);
	b = node_start(true);
	node_use(b, NODE_SIZE);
	node_until(a->held <= NODE_LIMIT / 2 + NODE_SLACK);
	node_end(b);
	node_end(a);
	unsetenv("UMMAP_MEMCONFIG");
}

/* Resets all handlers with system calls, as runtimes and shells do before exec, except for the
 * signals that engines need. */
static void reset_all_signals(void)
{
	const struct {
		void *handler;
		unsigned long flags;
		void *restorer;
		uint64_t mask;
	} none = { .handler = SIG_DFL };

	for (int sig = 1; sig <= SIGRTMAX; sig++) {
		if (sig != SIGSEGV && sig != SIGBUS && sig != SIGKILL && sig != SIGSTOP)
			check(syscall(SYS_rt_sigaction, sig, &none, NULL, sizeof(none.mask)) == 0,
			      "signal %d", sig);
	}
}

static void work_reset(void *child)
{
	umunmap(map_file(temp_file(NODE_SEG), NODE_SEG, NODE_SEG, READ_WRITE, 0), 0);
	reset_all_signals();
	node_work(child);
}

static void work_blocked(void *child)
{
	sigset_t all;

	sigfillset(&all);
	sigdelset(&all, SIGSEGV);
	sigdelset(&all, SIGBUS);
	check(pthread_sigmask(SIG_SETMASK, &all, NULL) == 0);
	work_reset(child);
}

/* Before Linux 5.16, or if it is forbidden, the kernel cannot wait for two words. */
static void work_without_waitv(void *child)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 449 /* futex_waitv */, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = { sizeof(code) / sizeof(*code), code };

	check(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	check(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0);
	node_work(child);
}

/* A process gives up memory on request, whatever it has done with its signals. */
static void gives_up_on_request(void *body)
{
	struct node_child *a, *b;

	node_begin();
	set_env("UMMAP_MEMCONFIG", "dynamic");
	a = node_start_with(*(void (**)(void *))body, true);
	node_use(a, NODE_SIZE);
	node_until(a->held >= NODE_LIMIT - NODE_SLACK);
	node_await_round(a);
	a->order = NODE_REST;
	b = node_start(true);
	node_use(b, NODE_SIZE);
	node_until(b->budget >= NODE_LIMIT / 2 - NODE_SLACK &&
		   a->held <= NODE_LIMIT / 2 + NODE_SLACK);
	node_check(a);
	node_end(b);
	node_end(a);
	unsetenv("UMMAP_MEMCONFIG");
}

/* Requests memory as another process would do. */
static void request_memory(pid_t pid)
{
	struct registry *t;
	char path[128];
	unsigned i = 0;
	int fd;

	check(node_table(path));
	fd = open(path, O_RDWR | O_CLOEXEC);
	check(fd >= 0);
	t = mmap(NULL, sizeof(*t), READ_WRITE, MAP_SHARED, fd, 0);
	check(t != MAP_FAILED);
	while (i < REGISTRY_SLOTS && registry_pid(t->slot[i].owner) != pid)
		i++;
	check(i < REGISTRY_SLOTS, "%d is not in the table", (int)pid);
	t->slot[i].asks++;
	check(syscall(SYS_futex, &t->slot[i].asks, FUTEX_WAKE, 1, NULL, NULL, 0) >= 0);
	munmap(t, sizeof(*t));
	close(fd);
}

/* A process reduces its excess by half for one request. */
static void halves_its_excess(void *unused)
{
	struct node_child *a, *b;
	uint64_t before;

	(void)unused;
	node_begin();
	b = node_start(true);
	node_use(b, NODE_SEG);
	a = node_start(true);
	node_use(a, NODE_SIZE);
	/* All of the memory, because its budget would grow otherwise. */
	node_until(a->budget >= NODE_LIMIT * 15 / 16 && a->held >= NODE_LIMIT * 7 / 8);
	a->order = NODE_REST;
	pause_ms(20);
	before = a->budget;
	request_memory(a->pid);
	node_until(a->budget < before && a->held < before);
	check(a->budget >= NODE_LIMIT / 2, "never below its share: %" PRIu64, a->budget);
	/* The budget may have grown up to the limit between the look at it and the request. */
	check(a->budget <= NODE_LIMIT / 2 + NODE_LIMIT / 4 + NODE_LIMIT / 64,
	      "%" PRIu64 " of %" PRIu64, a->budget, before);
	node_check(a);
	node_end(a);
	node_end(b);
}

static void in_child(void (*test)(void *), void *arg, const char *name)
{
	double start = now();

	check_exits(run_child(test, arg), 0);
	printf("%s: %.1f s\n", name, now() - start);
}

int main(void)
{
	static void (*reset)(void *) = work_reset, (*blocked)(void *) = work_blocked;
	static void (*without_waitv)(void *) = work_without_waitv;

	setvbuf(stdout, NULL, _IOLBF, 0);
	in_child(static_shares, NULL, "static shares");
	in_child(given_up_in_the_background, NULL, "given up in the background, static");
	in_child(given_up_in_the_background, "", "given up in the background, dynamic");
	in_child(by_need, NULL, "by need");
	in_child(large_segments, NULL, "large segments");
	in_child(dynamic_by_default, NULL, "dynamic by default");
	in_child(beside_stopped_process, NULL, "beside one that is stopped, static");
	in_child(beside_stopped_process, "", "beside one that is stopped, dynamic");
	in_child(static_beside_dynamic, NULL, "static beside dynamic");
	in_child(sum_is_bounded, NULL, "the sum, static");
	in_child(sum_is_bounded, "", "the sum, dynamic");
	in_child(calls_are_not_interrupted, NULL, "calls are not interrupted");
	in_child(halves_its_excess, NULL, "halves its excess");
	in_child(gives_up_on_request, &reset, "asked with all signals reset");
	in_child(gives_up_on_request, &blocked, "asked with all signals reset and blocked");
	in_child(gives_up_on_request, &without_waitv, "asked without futex_waitv");
	return 0;
}
