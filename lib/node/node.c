/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The slot of this process in the node's registry. A process takes a slot by writing its owner
 * atomically. Any other process frees the slot when it sees that the owner is dead, so a process
 * that dies keeps no other process waiting. The contents of the registry are treated as input.
 * A process asks another one for memory by a word in the other's slot, on which that process's
 * background thread waits. No signal is sent, and the request is harmless if the process is dead or
 * another process has the slot. If the name no longer leads to the registry (the last process has
 * left, or the file was removed), the processes of the registry join the next one. One lock, within
 * this process, while descriptors are open.
 */
#include "node/node.h"

#include "base/log.h"
#include "common/fork.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The number of attempts to join if the registry is removed meanwhile. */
#define MAX_JOIN_TRIES 100
/* The interval of looks at the registry if the kernel cannot wait for two words. */
#define POLL_MS 50

static struct registry *table;       /* registry; NULL: not joined */
static struct registry_slot *mine;   /* slot of this process */
static uint64_t me;                  /* identity of this process, as the slot's owner */
static struct stat file;             /* identity and size of the registry's file */
static char path[REGISTRY_PATH_LEN]; /* name of the registry */
static struct node_self self;        /* numbers that this process publishes */
static _Atomic uint32_t attending;   /* background thread, which lives as long as the program */
static uint32_t answered;            /* value of mine->asks at the last look */
static _Atomic bool left;            /* the process ends, and does not join again */
static bool alone;                   /* joining has failed, and a message has said so */
static _Atomic uint32_t lock;

/* ---- Joining and leaving ---- */

/* Whether the name still leads to the registry, and its memory can be accessed: a file that was cut
 * short must not be. */
static bool is_current(void)
{
	struct stat st;

	return lstat(path, &st) == 0 && st.st_ino == file.st_ino && st.st_dev == file.st_dev &&
	       st.st_size == file.st_size;
}

static void detach(void)
{
	raw_munmap(table, sizeof(*table));
	table = NULL;
	mine = NULL;
}

/* Maps the registry. Returns its descriptor, which the caller may close, because the mapping keeps
 * the registry. */
static int attach(void)
{
	int fd = registry_open(path), err;

	if (fd == -ENOENT)
		fd = registry_create(path);
	if (fd < 0)
		return fd == -EEXIST ? -EAGAIN : fd;
	registry_hold(fd);
	fstat(fd, &file);
	table = sys_map(sizeof(*table), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (table == MAP_FAILED) {
		table = NULL;
		err = fail(errno, "cannot map '%s': %s", path, strerror(errno));
		close(fd);
		return err;
	}
	raw_madvise(table, sizeof(*table), MADV_DONTFORK);
	return fd;
}

/* Allocates memory for the counters, which this process will write. */
static int make_page(int fd, const struct registry_slot *slot)
{
	off_t at = (off_t)offsetof(struct registry, page) +
		   (slot - table->slot) * (off_t)sizeof(struct registry_page);

	if (fallocate(fd, 0, at, sizeof(struct registry_page)) == 0)
		return 0;
	return fail(errno, "cannot allocate memory in '%s': %s", path, strerror(errno));
}

/* Clears the numbers that this process, or the last owner of the slot, has published. */
static void clear_slot(void)
{
	mine->thread = 0;
	mine->limit = 0;
	mine->budget = 0;
	mine->held = 0;
	mine->lacks = 0;
}

static int claim_slot(void)
{
	for (unsigned i = 0; i < REGISTRY_SLOTS && !mine; i++) {
		struct registry_slot *s = &table->slot[i];
		uint64_t owner = 0;

		if (atomic_compare_exchange_strong(&s->owner, &owner, me))
			mine = s;
	}
	if (!mine)
		return fail(EAGAIN, "cannot join the memory group '%s': %d processes use it "
			    "already. Try another group (UMMAP_GROUP)", path, REGISTRY_SLOTS);
	clear_slot();
	mine->thread = registry_thread(me, attending);
	answered = mine->asks;
	mine->dynamic = self.dynamic;
	mine->limit = self.limit;
	return 0;
}

static void release_slot(void)
{
	uint64_t owner = me;

	clear_slot();
	atomic_compare_exchange_strong(&mine->owner, &owner, 0);
}

static void reap_slots(void)
{
	for (unsigned i = 0; i < REGISTRY_SLOTS; i++) {
		struct registry_slot *s = &table->slot[i];
		uint64_t owner = s->owner;

		/* A process that calls execve(2) keeps its slot, which the old program owned. */
		if (owner && s != mine && (owner == me || !registry_alive(owner, s->thread)))
			atomic_compare_exchange_strong(&s->owner, &owner, 0);
	}
}

static int try_join(void)
{
	int fd = attach(), err;
	bool there;

	if (fd < 0)
		return fd;
	reap_slots();
	err = claim_slot();
	if (!err)
		err = make_page(fd, mine);
	/* The registry may have been removed before it was held. */
	there = is_current();
	close(fd);
	if (!err && there)
		return 0;
	if (mine)
		release_slot();
	detach();
	return err ? err : -EAGAIN;
}

/* Under the lock. */
static int join_locked(void)
{
	int err = -EAGAIN;

	me = registry_owner(getpid());
	for (int i = 0; i < MAX_JOIN_TRIES && err == -EAGAIN; i++) {
		fail_clear();
		err = try_join();
		/* The registry is full, and the message says so. */
		if (err == -EAGAIN && *fail_message())
			return err;
	}
	if (err == -EAGAIN)
		fail(EAGAIN, "cannot join the memory group '%s': the file was removed or replaced "
		     "during each attempt. Try again, or another group (UMMAP_GROUP)", path);
	return err;
}

int node_join(const char *group, const struct node_self *as)
{
	int err;

	futex_lock(&lock);
	self = *as;
	registry_path(group, path);
	left = false;
	registry_sweep();
	err = join_locked();
	alone = err;
	futex_unlock(&lock);
	return err;
}

/* Under the lock. Other threads may still write to the slot: from now on, they write to private
 * memory. */
static void leave_locked(void)
{
	void *instead;

	if (!table)
		return;
	if (is_current() && mine->owner == me)
		release_slot();
	instead = sys_map_anonymous(sizeof(*table));
	if (instead)
		raw_mremap(instead, sizeof(*table), sizeof(*table),
			   MREMAP_MAYMOVE | MREMAP_FIXED, table);
	registry_remove(path);
}

void node_leave(void)
{
	futex_lock(&lock);
	left = true;
	leave_locked();
	futex_unlock(&lock);
}

/* Under the lock. */
static int keep_locked(void)
{
	if (table && is_current() && mine->owner == me)
		return 0;
	if (table)
		detach();
	return join_locked();
}

bool node_keep(void)
{
	int err;

	futex_lock(&lock);
	err = left ? -ESRCH : keep_locked();
	futex_unlock(&lock);
	if (err && !left && !alone)
		log_line(LOG_ERROR, "node", "cannot stay in the node's memory group: %s",
			 fail_message());
	if (!err && alone)
		log_line(LOG_WARN, "node", "the process is in the memory group '%s' again", path);
	alone = err;
	return !err;
}

void node_attend(void)
{
	attending = (uint32_t)syscall(SYS_gettid);
	if (table && is_current())
		mine->thread = registry_thread(me, attending);
}

/* ---- Numbers and requests of the processes ---- */

void node_publish(size_t budget, size_t held, size_t lacks)
{
	mine->budget = budget;
	mine->held = held;
	mine->lacks = lacks;
}

const struct registry_slot *node_next(const struct registry_slot *slot)
{
	const struct registry_slot *end = table->slot + REGISTRY_SLOTS;

	slot = slot ? slot + 1 : table->slot;
	while (slot < end && (slot == mine || !slot->owner))
		slot++;
	return slot < end ? slot : NULL;
}

void node_reap(void)
{
	futex_lock(&lock);
	reap_slots();
	futex_unlock(&lock);
}

void node_ask(const struct registry_slot *slot)
{
	_Atomic uint32_t *asks = &table->slot[slot - table->slot].asks;

	(*asks)++;
	futex_wake_shared(asks);
}

bool node_asked(void)
{
	uint32_t before = answered;

	answered = mine->asks;
	return answered != before;
}

/* Only the kernel reads the registry here, because the file may have been cut short meanwhile. */
void node_wait(_Atomic uint32_t *word, uint32_t value, unsigned ms)
{
	int err = table ? futex_wait_both(word, value, &mine->asks, answered, ms) : -ENOENT;

	if (err && err != -EAGAIN)
		futex_wait(word, value, (int)(table ? min_size(ms, POLL_MS) : ms));
}

struct registry_page *node_page(void)
{
	return table && !left ? &table->page[mine - table->slot] : NULL;
}

/* ---- Fork ---- */

/* The lock is held while descriptors are open, so the child inherits none. */
__attribute__((constructor))
static void register_fork_handler(void)
{
	fork_register(FORK_NODE, &lock, NULL, NULL);
}

void node_fork_child(void)
{
	table = NULL;
	mine = NULL;
	attending = 0;
}
