/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * prog_modes - processes that share a node's memory, static and dynamic: parts are equal or by need, follow those who
 * come and go and are killed, memory is given up by a process that does nothing, and no data is lost on the way.
 */
#include "node.h"

#define SHARES 4

static bool all_have(uint64_t bytes)
{
	for (unsigned i = 0; i < node_count; i++) {
		if (node_children[i].order != NODE_END && node_children[i].pid && node_children[i].budget != bytes)
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
	/* All of it is used, and nobody has more. */
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

/* A process that holds everything, changed, and does nothing at all any more: the background thread lets go. */
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
	/* Who is alone reads far ahead, and keeps what it has read. */
	node_until(b->budget && b->budget <= NODE_LIMIT / 3 && c->budget && c->budget <= NODE_LIMIT / 3);
	node_use(b, NODE_LIMIT / 16);
	node_use(c, NODE_LIMIT / 16);
	node_await_round(b);
	node_await_round(c);
	/* Far beyond a third, because the others do not need theirs. */
	node_use(a, NODE_SIZE);
	node_until(a->held >= NODE_LIMIT * 3 / 4);
	check(b->held <= NODE_LIMIT / 8 && c->held <= NODE_LIMIT / 8,
	      "%" PRIu64 " and %" PRIu64 " KiB", b->held / KIB, c->held / KIB);
	/* Now they do. */
	node_use(b, NODE_SIZE);
	node_use(c, NODE_SIZE);
	node_until(b->held >= NODE_LIMIT / 3 - NODE_SLACK && c->held >= NODE_LIMIT / 3 - NODE_SLACK);
	node_until(a->held <= NODE_LIMIT / 3 + NODE_SLACK);
	node_until(node_sum() <= NODE_LIMIT + 3 * NODE_SLACK);
	/* And now no longer: who is killed keeps nothing. */
	node_kill(b);
	node_kill(c);
	node_until(a->held >= NODE_LIMIT - NODE_SLACK);
	node_check(a);
	node_end(a);
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

/* What the processes hold together, looked at all the time while they come, go and want more. */
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
		node_use(c[next_random(&random) % 6], (next_random(&random) % 16 + 1) * NODE_LIMIT / 16);
		for (int i = 0; i < 8; i++) {
			sum = node_resident();
			most = sum > most ? sum : most;
			pause_ms(5);
		}
	}
	printf("%s: at most %" PRIu64 " KiB of %zu\n", dynamic ? "dynamic" : "static", most / KIB, NODE_LIMIT / KIB);
	check(most >= NODE_LIMIT / 2 && most <= NODE_LIMIT + 6 * NODE_SLACK, "%" PRIu64, most);
	for (int i = 0; i < 6; i++) {
		c[i]->order = NODE_REST;
		node_end(c[i]);
	}
}

/* ---- SIGEVICT ---- */

/* Signals of others are not the program's business: its calls are not interrupted, even those that no flag protects. */
static void sleep_in_peace(void *child)
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
	a = node_start_with(sleep_in_peace, true);
	node_until(a->held >= NODE_LIMIT - NODE_SLACK);
	b = node_start(true);
	node_use(b, NODE_SIZE);
	node_until(a->held <= NODE_LIMIT / 2 + NODE_SLACK);
	node_end(b);
	node_end(a);
	unsetenv("UMMAP_MEMCONFIG");
}

/* By hand, from anybody who may: the process itself, with all signals blocked in its threads, comes down by half of its
 * excess. */
static void signalled(void *child)
{
	struct node_child *c = child;
	sigset_t all;

	sigfillset(&all);
	sigdelset(&all, SIGSEGV);
	check(pthread_sigmask(SIG_SETMASK, &all, NULL) == 0);
	c->sigevict = SIGRTMIN + 3;
	node_work(c);
}

static void halves_its_excess(void *unused)
{
	struct node_child *a, *b;
	uint64_t before;

	(void)unused;
	node_begin();
	b = node_start(true);
	node_use(b, NODE_SEG);
	a = node_start_with(signalled, true);
	node_use(a, NODE_SIZE);
	/* As much as there is: it would grow on, else. */
	node_until(a->budget >= NODE_LIMIT * 15 / 16 && a->held >= NODE_LIMIT * 7 / 8);
	a->order = NODE_REST;
	pause_ms(20);
	before = a->budget;
	check(kill(a->pid, SIGRTMIN + 3) == 0);
	node_until(a->budget < before && a->held < before);
	check(a->budget >= NODE_LIMIT / 2, "never below its share: %" PRIu64, a->budget);
	check(a->budget <= NODE_LIMIT / 2 + (before - NODE_LIMIT / 2) / 2 + NODE_LIMIT / 64);
	node_check(a);
	node_end(a);
	node_end(b);
}

static void on_own_signal(int sig)
{
	(void)sig;
}

static void signal_is_taken(void *unused)
{
	int fd = temp_file(NODE_SIZE), fds = count_fds();
	void *addr;
	char text[16];

	(void)unused;
	set_budget(NODE_LIMIT);
	snprintf(text, sizeof(text), "%d", SIGRTMIN + 5);
	set_env("UMMAP_SIGEVICT", text);
	signal(SIGRTMIN + 5, on_own_signal);
	check_fails(ummap(NODE_SIZE, NODE_SEG, READ_WRITE, fd, 0, -1, 1, 0, &addr), EBUSY);
	check(strstr(umerrormsg(), "UMMAP_SIGEVICT"));
	check(count_fds() == fds);
	/* Another program's mistake is not for ever. */
	signal(SIGRTMIN + 5, SIG_DFL);
	check(umunmap(map_file(fd, NODE_SIZE, NODE_SEG, READ_WRITE, 0), 1) == 0);
}

/* All are the program's, as in the runtimes of some languages: it works, and hears of others by and by. */
static void no_signal_left(void *child)
{
	struct sigaction act;

	for (int sig = SIGRTMIN; sig <= SIGRTMAX; sig++)
		signal(sig, on_own_signal);
	node_work(child);
	for (int sig = SIGRTMIN; sig <= SIGRTMAX; sig++)
		check(sigaction(sig, NULL, &act) == 0 && act.sa_handler == on_own_signal, "signal %d", sig);
}

static void without_a_signal(void *unused)
{
	struct node_child *a, *b;

	(void)unused;
	node_begin();
	a = node_start_with(no_signal_left, false);
	node_use(a, NODE_SIZE);
	node_until(a->held >= NODE_LIMIT - NODE_SLACK);
	b = node_start(false);
	node_until(b->budget == NODE_LIMIT / 2 && a->budget == NODE_LIMIT / 2);
	node_end(b);
	node_end(a);
}

static void in_child(void (*test)(void *), void *arg, const char *name)
{
	double start = now();

	check_exits(run_child(test, arg), 0);
	printf("%s: %.1f s\n", name, now() - start);
}

int main(void)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	in_child(static_shares, NULL, "static shares");
	in_child(given_up_in_the_background, NULL, "given up in the background, static");
	in_child(given_up_in_the_background, "", "given up in the background, dynamic");
	in_child(by_need, NULL, "by need");
	in_child(static_beside_dynamic, NULL, "static beside dynamic");
	in_child(sum_is_bounded, NULL, "the sum, static");
	in_child(sum_is_bounded, "", "the sum, dynamic");
	in_child(calls_are_not_interrupted, NULL, "calls are not interrupted");
	in_child(halves_its_excess, NULL, "halves its excess");
	in_child(signal_is_taken, NULL, "the signal is taken");
	in_child(without_a_signal, NULL, "without a signal");
	return 0;
}
