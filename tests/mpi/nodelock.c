/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * nodelock - the locks between ranks of one machine, by forked processes without MPI. An exclusive
 * lock excludes all others, and shared locks coexist. A process does not overtake a waiting one,
 * unless it has a lock already. If a process dies while it has a lock or waits for one, no other
 * process waits forever.
 */
#include "../common.h"

#include "rma/nodelock.c"

#define RANKS 5
#define TURNS ((int)by_time(2000, 20000))

struct common {
	struct process_id processes[RANKS];
	_Atomic int alone, together, most, done;
	int64_t first,
		second; /* equal words, which the holder of the exclusive lock changes in turn */
	char locks[2][4096] __attribute__((aligned(64)));
};

static struct common *common;
static struct nodelocks all;

static void idle(void *unused)
{
	(void)unused;
}

static struct nodelock *lock_of(int i)
{
	return (struct nodelock *)common->locks[i];
}

static pid_t start(int rank, void (*run)(void))
{
	pid_t pid = fork();

	check(pid >= 0);
	if (pid)
		return pid;
	all.me = rank;
	common->processes[rank] = process_identify(getpid());
	run();
	exit(0);
}

static void begin(void)
{
	common = mmap(NULL, sizeof(*common), READ_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	check(common != MAP_FAILED && nodelock_size(RANKS) <= sizeof(common->locks[0]));
	all = (struct nodelocks){
		.processes = common->processes, .ranks = RANKS, .me = 0, .idle = idle
	};
	common->processes[0] = process_identify(getpid());
}

static void end(void)
{
	munmap(common, sizeof(*common));
}

static void wait_until(const _Atomic int *n, int value)
{
	while (atomic_load(n) < value)
		pause_ms(1);
}

/* ---- All processes at the same time ---- */

static void take_turns(void)
{
	uint64_t dice = (uint64_t)all.me;

	for (int i = 0; i < TURNS; i++) {
		bool exclusive = next_random(&dice) % 2;

		nodelock_take(lock_of(0), &all, exclusive ? NODELOCK_EXCLUSIVE : NODELOCK_SHARED);
		if (exclusive) {
			check(atomic_fetch_add(&common->alone, 1) == 0 &&
			      atomic_load(&common->together) == 0);
			common->first++;
			common->second++;
			atomic_fetch_sub(&common->alone, 1);
		} else {
			atomic_fetch_add(&common->together, 1);
			check(atomic_load(&common->alone) == 0 && common->first == common->second);
			atomic_fetch_sub(&common->together, 1);
		}
		nodelock_drop(lock_of(0), &all);
	}
	atomic_fetch_add(&common->done, 1);
}

/* Takes both locks shared, one after the other, while others wait for one of them exclusively. */
static void share_both(void)
{
	for (int i = 0; i < TURNS; i++) {
		int first = (i + all.me) % 2;

		nodelock_take(lock_of(first), &all, NODELOCK_SHARED);
		nodelock_take(lock_of(!first), &all, NODELOCK_AHEAD);
		check(atomic_load(&common->alone) == 0);
		nodelock_drop(lock_of(!first), &all);
		nodelock_drop(lock_of(first), &all);
	}
}

static void lock_exclusively(void)
{
	for (int i = 0; i < TURNS; i++) {
		nodelock_take(lock_of(i % 2), &all, NODELOCK_EXCLUSIVE);
		if (i % 2) {
			atomic_fetch_add(&common->alone, 1);
			atomic_fetch_sub(&common->alone, 1);
		}
		nodelock_drop(lock_of(i % 2), &all);
	}
}

static void run_all(void (*one)(void), void (*other)(void))
{
	pid_t pids[RANKS];

	begin();
	for (int i = 1; i < RANKS; i++)
		pids[i] = start(i, i % 2 ? one : other);
	for (int i = 1; i < RANKS; i++) {
		int status;

		check(waitpid(pids[i], &status, 0) == pids[i]);
		check_exits(status, 0);
	}
	check(common->first == common->second);
	end();
}

/* ---- Order ---- */

/* Holds the lock until another process waits for it. */
static void share_until_asked(void)
{
	nodelock_take(lock_of(0), &all, NODELOCK_SHARED);
	atomic_fetch_add(&common->done, 1);
	while (atomic_load(&lock_of(0)->slot[2]) == 0)
		pause_ms(1);
	nodelock_drop(lock_of(0), &all);
}

/* Waits behind a process that wants the exclusive lock. */
static void share_behind(void)
{
	uint64_t first;

	while ((first = atomic_load(&lock_of(0)->slot[0])) == 0 || first == CHOOSING)
		pause_ms(1);
	nodelock_take(lock_of(0), &all, NODELOCK_SHARED);
	check(atomic_load(&common->alone) == 1,
	      "who shares a lock has passed one who waited for it");
	nodelock_drop(lock_of(0), &all);
}

static void test_order(void)
{
	pid_t pids[2];
	int status;

	begin();
	pids[0] = start(1, share_until_asked);
	wait_until(&common->done, 1);
	pids[1] = start(2, share_behind);
	nodelock_take(lock_of(0), &all, NODELOCK_EXCLUSIVE);
	atomic_fetch_add(&common->alone, 1);
	nodelock_drop(lock_of(0), &all);
	for (int i = 0; i < 2; i++) {
		check(waitpid(pids[i], &status, 0) == pids[i]);
		check_exits(status, 0);
	}
	end();
}

/* ---- Deaths ---- */

static void take_and_stay(void)
{
	nodelock_take(lock_of(0), &all, NODELOCK_EXCLUSIVE);
	atomic_fetch_add(&common->done, 1);
	pause();
}

static void share_and_stay(void)
{
	nodelock_take(lock_of(0), &all, NODELOCK_AHEAD);
	atomic_fetch_add(&common->done, 1);
	pause();
}

/* Leaves the state of a process that dies between two instructions. */
static void choose_and_stay(void)
{
	atomic_store(&lock_of(0)->slot[all.me], CHOOSING);
	atomic_fetch_add(&common->done, 1);
	pause();
}

static void die_with(void (*run)(void))
{
	pid_t pid;

	begin();
	pid = start(1, run);
	wait_until(&common->done, 1);
	check(kill(pid, SIGKILL) == 0 && waitpid(pid, NULL, 0) == pid);
	nodelock_take(lock_of(0), &all, NODELOCK_EXCLUSIVE);
	nodelock_drop(lock_of(0), &all);
	end();
}

/* Dies while it waits, behind one process and in front of another. */
static void die_waiting(void)
{
	pid_t pid;

	begin();
	nodelock_take(lock_of(0), &all, NODELOCK_EXCLUSIVE);
	pid = start(1, take_and_stay);
	while (atomic_load(&lock_of(0)->slot[1]) == 0)
		pause_ms(1);
	check(kill(pid, SIGKILL) == 0 && waitpid(pid, NULL, 0) == pid);
	nodelock_drop(lock_of(0), &all);
	pid = start(2, take_turns);
	wait_until(&common->done, 1);
	check(waitpid(pid, NULL, 0) == pid);
	end();
}

/* The parent does not wait for the dead process, which stays a zombie. */
static void die_unnoticed(void)
{
	pid_t pid;

	begin();
	pid = start(1, take_and_stay);
	wait_until(&common->done, 1);
	check(kill(pid, SIGKILL) == 0);
	nodelock_take(lock_of(0), &all, NODELOCK_SHARED);
	nodelock_drop(lock_of(0), &all);
	check(waitpid(pid, NULL, 0) == pid);
	end();
}

int main(void)
{
	run_all(take_turns, take_turns);
	run_all(share_both, lock_exclusively);
	test_order();
	die_with(take_and_stay);
	die_with(share_and_stay);
	die_with(choose_and_stay);
	die_waiting();
	die_unnoticed();
	return 0;
}
