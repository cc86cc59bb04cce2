/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The slot of this process in the node's registry. A process takes a slot by writing its owner atomically, and any
 * other process frees it when it sees that the owner is dead: no process keeps others waiting by dying. The contents of
 * the registry are treated as input. Other processes are asked for memory by a word in their slots, on which their
 * background thread waits: no signal is sent, and asking a process that is dead, or whose slot another one has now, is
 * harmless. If the name no longer leads to the registry (the last process has left, or it was removed), its processes
 * join the next one. One lock, within this process, while descriptors are open.
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

/* How often a process tries again whose registry was removed while it joined. */
#define TRIES 100
/* How often to look where the kernel cannot wait for two words. */
#define POLL_MS 50

static struct registry *table;          /* NULL: not joined */
static struct registry_slot *mine;
static uint64_t me;                  /* as the slot's owner */
static struct stat file;             /* of the table */
static char path[REGISTRY_PATH_LEN];
static struct node_self self;
static _Atomic uint32_t attending;   /* thread that lives as long as this program */
static uint32_t answered;            /* mine->asks, as far as it has been looked at */
static _Atomic bool left;            /* for good: the process ends */
static bool alone;                   /* it could not join, and has said so */
static _Atomic uint32_t lock;

static size_t plus(size_t a, size_t b)
{
	return a > SIZE_MAX - b ? SIZE_MAX : a + b;
}

/* ---- Coming and going ---- */

/* The name may lead elsewhere by now, and what was cut short must not be touched. */
static bool is_there(void)
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

/* The descriptor, which may be closed: what is mapped by it holds the table. */
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
	off_t at = (off_t)offsetof(struct registry, page) + (slot - table->slot) * (off_t)sizeof(struct registry_page);

	if (fallocate(fd, 0, at, sizeof(struct registry_page)) == 0)
		return 0;
	return fail(errno, "cannot allocate memory in '%s': %s", path, strerror(errno));
}

/* What another one has left there, or this one leaves. */
static void clear(void)
{
	mine->thread = 0;
	mine->limit = 0;
	mine->budget = 0;
	mine->held = 0;
	mine->lacks = 0;
}

static int claim(void)
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
	clear();
	mine->thread = registry_thread(me, attending);
	answered = mine->asks;
	mine->dynamic = self.dynamic;
	mine->limit = self.limit;
	return 0;
}

static void release(void)
{
	uint64_t owner = me;

	clear();
	atomic_compare_exchange_strong(&mine->owner, &owner, 0);
}

static void reap(void)
{
	for (unsigned i = 0; i < REGISTRY_SLOTS; i++) {
		struct registry_slot *s = &table->slot[i];
		uint64_t owner = s->owner;

		/* This process in another slot is the program that this one has replaced. */
		if (owner && s != mine && (owner == me || !registry_alive(owner, s->thread)))
			atomic_compare_exchange_strong(&s->owner, &owner, 0);
	}
}

static int enter(void)
{
	int fd = attach(), err;
	bool there;

	if (fd < 0)
		return fd;
	reap();
	err = claim();
	if (!err)
		err = make_page(fd, mine);
	/* It may have been removed before it was held. */
	there = is_there();
	close(fd);
	if (!err && there)
		return 0;
	if (mine)
		release();
	detach();
	return err ? err : -EAGAIN;
}

/* Under the lock. */
static int join(void)
{
	int err = -EAGAIN;

	me = registry_owner(getpid());
	for (int i = 0; i < TRIES && err == -EAGAIN; i++) {
		fail_clear();
		err = enter();
		/* That the table is full has its sentence. */
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
	err = join();
	alone = err;
	futex_unlock(&lock);
	return err;
}

/* Under the lock. Other threads may still be writing to the slot: they write to private memory from now on. */
static void leave(void)
{
	void *instead;

	if (!table)
		return;
	if (is_there() && mine->owner == me)
		release();
	instead = sys_lazy(sizeof(*table));
	if (instead)
		raw_mremap(instead, sizeof(*table), sizeof(*table), MREMAP_MAYMOVE | MREMAP_FIXED, table);
	registry_remove(path);
}

void node_leave(void)
{
	futex_lock(&lock);
	left = true;
	leave();
	futex_unlock(&lock);
}

/* Under the lock. */
static int keep(void)
{
	if (table && is_there() && mine->owner == me)
		return 0;
	if (table)
		detach();
	return join();
}

bool node_keep(void)
{
	int err;

	futex_lock(&lock);
	err = left ? -ESRCH : keep();
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
	if (table && is_there())
		mine->thread = registry_thread(me, attending);
}

/* ---- What the processes tell each other ---- */

void node_publish(size_t budget, size_t held, size_t lacks)
{
	mine->budget = budget;
	mine->held = held;
	mine->lacks = lacks;
}

void node_look(struct node_view *view)
{
	*view = (struct node_view){ .live = 1, .limit = self.limit };
	for (unsigned i = 0; i < REGISTRY_SLOTS; i++) {
		const struct registry_slot *s = &table->slot[i];
		size_t budget, held;

		if (s == mine || !s->owner)
			continue;
		budget = s->budget;
		held = s->held;
		view->live++;
		view->limit = max_size(view->limit, s->limit);
		view->others = plus(view->others, max_size(budget, held));
		view->pending = plus(view->pending, held > budget ? held - budget : 0);
		view->waiting |= s->lacks > 0;
	}
}

void node_reap(void)
{
	futex_lock(&lock);
	reap();
	futex_unlock(&lock);
}

void node_ask(unsigned live)
{
	futex_lock(&lock);
	for (unsigned i = 0; i < REGISTRY_SLOTS; i++) {
		struct registry_slot *s = &table->slot[i];

		if (s != mine && s->owner && s->budget > s->limit / live) {
			s->asks++;
			futex_wake_shared(&s->asks);
		}
	}
	futex_unlock(&lock);
}

bool node_asked(void)
{
	uint32_t before = answered;

	answered = mine->asks;
	return answered != before;
}

/* Only the kernel looks at the table here: the file may have been cut short meanwhile. */
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

/* ---- fork ---- */

/* The lock is held while descriptors are open, so the child inherits none. */
__attribute__((constructor))
static void register_fork_handler(void)
{
	fork_register(FORK_NODE, &lock, NULL, NULL);
}

void node_forget(void)
{
	table = NULL;
	mine = NULL;
	attending = 0;
}
