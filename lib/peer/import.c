/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A remote accessor of another process's mapping. While it accesses a segment, it delays that process, so it does
 * nothing there but copy: no lock, no wait, no page that could fault for long. It can be refused at any moment, and has
 * copied less then. The other process's memory is treated as input: numbers are bounded, and the mapped object cannot
 * become shorter. A forked child has no peers, so that their locks do not outlive the parent. Lock: `lock`, for opening
 * and closing.
 */
#include "peer/import.h"

#include "memory/frame.h"
#include "base/log.h"
#include "common/fork.h"
#include "common/try_lock.h"
#include "common/process.h"
#include "memory/shared_pool.h"
#include "peer/export.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* How often to look for a lock that is in the way, and for a slot. */
#define SPINS 64
/* Bytes; the owner is not delayed for longer than copying these takes. */
#define COPY_MOST ((size_t)256 << 10)

struct umimport {
	const struct export_head *head; /* of the other's object, all of which is mapped, to be read */
	size_t head_len;
	const struct seg *segs;
	size_t count;                  /* of these; 0: in a forked child */
	struct export_lines *lines;     /* the same again, to be written */
	struct export_line *line;       /* our own */
	size_t seg_size;
	unsigned shift;                /* log2 of seg_size */
	size_t arena;                  /* frames in each */
	char *_Atomic *arenas;         /* where they are mapped; NULL: not yet */
	_Atomic uint32_t arenas_end;   /* none is from here on */
	int control, pool;             /* descriptors; the first one holds our line */
	struct umimport *next;
};

static struct umimport *peers;
static _Atomic uint32_t lock;

/* ---- Opening ---- */

static int open_failed(const struct export_offer *o)
{
	int err = errno;

	if (!is_alive((struct process_id){ .pid = o->pid }))
		return fail(ESRCH, "cannot import the mapping: its process %d has ended", o->pid);
	if (err == EACCES || err == EPERM)
		return fail(err, "cannot import the mapping: this process may not open the memory "
			    "of process %d. Both processes must belong to one user, be no "
			    "set-user-ID programs, and permit ptrace(2)", o->pid);
	if (err == ENOENT)
		return fail(ESTALE, "cannot import the mapping of process %d: the mapping has "
			    "ended, or /proc does not show the process", o->pid);
	return fail(err, "cannot import the mapping: the memory of process %d cannot be opened: %s",
		    o->pid, strerror(err));
}

/* A descriptor of our own for one of the offer's, or -errno with a sentence. */
static int open_object(const struct export_offer *o, int theirs, uint64_t file)
{
	char path[64];
	struct stat st;
	int fd, seals;

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", o->pid, theirs);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return open_failed(o);
	seals = fcntl(fd, F_GET_SEALS);
	if (fstat(fd, &st) == 0 && st.st_dev == o->device && st.st_ino == file && seals >= 0 && seals & F_SEAL_SHRINK)
		return fd;
	close(fd);
	return fail(ESTALE, "cannot import the mapping of process %d: the mapping has ended",
		    o->pid);
}

static int open_objects(struct umimport *p, const struct export_offer *o)
{
	p->control = open_object(o, o->control, o->control_file);
	if (p->control < 0)
		return p->control;
	p->pool = open_object(o, o->pool, o->pool_file);
	return p->pool < 0 ? p->pool : 0;
}

static bool is_sound(const struct export_head *h, size_t len)
{
	return h->magic == EXPORT_MAGIC && h->version == REACH_VERSION && h->page == sys_page() &&
	       h->seg_size >= sys_page() && h->seg_size <= SHARED_POOL_MAX_FRAME && !(h->seg_size & (h->seg_size - 1)) &&
	       h->count > 0 && h->count <= (len - export_segs_at()) / sizeof(struct seg) &&
	       h->count <= INT64_MAX / h->seg_size;
}

static int map_control(struct umimport *p)
{
	void *all = MAP_FAILED;
	struct export_head head;
	struct stat st, pool;

	if (fstat(p->control, &st) < 0 || fstat(p->pool, &pool) < 0)
		return -errno;
	p->head_len = (size_t)st.st_size;
	if (p->head_len > export_segs_at())
		all = sys_map(p->head_len, PROT_READ, MAP_SHARED, p->control, 0);
	if (all == MAP_FAILED)
		return fail(ENOMEM, "cannot import the mapping: its segments cannot be mapped");
	p->head = all;
	/* A copy: it must not change after it was looked at. To touch what lies behind the end of a pool is a SIGBUS. */
	memcpy(&head, all, sizeof(head));
	if (!is_sound(&head, p->head_len) || (uint64_t)pool.st_size < (uint64_t)SHARED_POOL_SPANS << SHARED_POOL_SPAN_SHIFT)
		return fail(EINVAL, "cannot import the mapping: its export is damaged, or was made "
			    "by another version of the library");
	p->segs = (const struct seg *)((const char *)all + export_segs_at());
	p->count = head.count;
	p->seg_size = head.seg_size;
	p->shift = (unsigned)__builtin_ctzl(p->seg_size);
	p->arena = arena_frames(p->seg_size);
	return 0;
}

static int map_lines(struct umimport *p)
{
	void *lines = sys_map(sizeof(*p->lines), PROT_READ | PROT_WRITE, MAP_SHARED, p->control,
			      (int64_t)export_lines_at());

	if (lines == MAP_FAILED)
		return fail(ENOMEM, "cannot import the mapping: its segments cannot be mapped");
	p->lines = lines;
	p->arenas = sys_lazy(SHARED_POOL_SPANS * sizeof(*p->arenas));
	return p->arenas ? 0 : fail(ENOMEM, "cannot import the mapping: no address space. Try a "
				    "larger RLIMIT_AS (ulimit -v)");
}

static int take_line(struct umimport *p)
{
	uint32_t used = p->lines->used, k = 0;
	int err = -EBUSY;

	for (; k < EXPORT_PEERS; k++) {
		err = try_lock_bytes(p->control, F_WRLCK, k, 1);
		if (err != -EBUSY)
			break;
	}
	if (err && err != -EBUSY)
		return fail(-err, "cannot lock the export of the mapping: %s", strerror(-err));
	if (err)
		return fail(EAGAIN, "cannot import the mapping: it has %d imports already, the "
			    "maximum. Try to close one of them", EXPORT_PEERS);
	p->line = &p->lines->line[k];
	/* Somebody may have died here. */
	for (unsigned j = 0; j < EXPORT_SLOTS; j++)
		p->line->slot[j] = 0;
	while (used <= k && !atomic_compare_exchange_weak(&p->lines->used, &used, k + 1))
		;
	return 0;
}

/* Gives back all that there is. */
static void shut(struct umimport *p)
{
	for (uint32_t i = 0; i < p->arenas_end; i++) {
		if (p->arenas[i])
			raw_munmap(p->arenas[i], p->arena * p->seg_size);
	}
	if (p->arenas)
		raw_munmap(p->arenas, SHARED_POOL_SPANS * sizeof(*p->arenas));
	if (p->lines)
		raw_munmap(p->lines, sizeof(*p->lines));
	if (p->head)
		raw_munmap((void *)p->head, p->head_len);
	if (p->pool >= 0)
		close(p->pool);
	if (p->control >= 0)
		close(p->control);
	*p = (struct umimport){ .control = -1, .pool = -1, .next = p->next };
}

/* ---- Fork ---- */

static void shut_all_in_child(void)
{
	for (struct umimport *p = peers; p; p = p->next)
		shut(p);
}

__attribute__((constructor))
static void register_fork_handler(void)
{
	fork_register(FORK_IMPORTS, &lock, NULL, shut_all_in_child);
}

/* ---- Peers ---- */

static int check_offer(const struct export_offer *o)
{
	uint64_t machine, space;

	if (o->magic != (uint32_t)EXPORT_MAGIC)
		return fail(EINVAL, "cannot import the mapping: the export is not valid. Try the "
			    "structure that umexport filled");
	export_place(&machine, &space);
	if (machine != o->machine || space != o->space)
		return fail(EXDEV, "cannot import the mapping: its export was made on another "
			    "machine, or in another container");
	return 0;
}

/* In the list before it has anything that a forked child must not keep. */
static void enlist(struct umimport *p)
{
	futex_lock(&lock);
	p->next = peers;
	peers = p;
	futex_unlock(&lock);
}

int import_open(const struct umexport *offer, struct umimport **peer)
{
	struct export_offer o;
	struct umimport *p;
	int err;

	memcpy(&o, offer, sizeof(o));
	err = check_offer(&o);
	if (err)
		return err;
	p = calloc(1, sizeof(*p));
	if (!p)
		return fail(ENOMEM, "cannot import the mapping: no memory");
	p->control = p->pool = -1;
	enlist(p);
	err = open_objects(p, &o);
	if (!err)
		err = map_control(p);
	if (!err)
		err = map_lines(p);
	if (!err)
		err = take_line(p);
	if (err) {
		import_close(p);
		return err;
	}
	*peer = p;
	return 0;
}

void import_close(struct umimport *p)
{
	struct umimport **link = &peers;

	futex_lock(&lock);
	while (*link != p)
		link = &(*link)->next;
	*link = p->next;
	shut(p);
	futex_unlock(&lock);
	free(p);
}

/* ---- Visits ---- */

static char *map_arena(struct umimport *p, uint32_t arena)
{
	size_t len = p->arena * p->seg_size;
	uint32_t end = p->arenas_end;
	char *other = NULL, *base;
	int err = errno;

	base = sys_map(len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, p->pool,
		       (int64_t)arena << SHARED_POOL_SPAN_SHIFT);
	errno = err;
	if (base == MAP_FAILED)
		return NULL;
	while (end <= arena && !atomic_compare_exchange_weak(&p->arenas_end, &end, arena + 1))
		;
	if (atomic_compare_exchange_strong(&p->arenas[arena], &other, base))
		return base;
	raw_munmap(base, len);
	return other;
}

static inline char *find_frame(struct umimport *p, uint32_t frame)
{
	uint32_t arena = frame >> 16, i = frame & 0xffff;
	char *base = atomic_load_explicit(&p->arenas[arena], memory_order_acquire);

	if (!base)
		base = map_arena(p, arena);
	return base && i < p->arena ? base + ((size_t)i << p->shift) : NULL;
}

static inline bool is_locked(const struct seg *s)
{
	return atomic_load_explicit(&s->lock, memory_order_acquire) != 0;
}

/* Says where it goes; NULL: all slots are taken. */
static inline _Atomic uint64_t *enter(struct umimport *p, size_t i)
{
	for (unsigned n = 0; n < SPINS * EXPORT_SLOTS; n++) {
		_Atomic uint64_t *slot = &p->line->slot[n % EXPORT_SLOTS];
		uint64_t none = 0;

		if (atomic_load_explicit(slot, memory_order_relaxed) == 0 &&
		    atomic_compare_exchange_strong(slot, &none, i + 1))
			return slot;
	}
	return NULL;
}

static inline void leave(_Atomic uint64_t *slot)
{
	atomic_store_explicit(slot, 0, memory_order_release);
}

/* Where the segment is, for one whose slot says so; NULL: it cannot be visited. The lock is looked for twice:
 * before, because what a holder has done since is seen then; and after, because a holder may undo what it has just
 * done, and waits for the slot before that. */
static inline char *look(struct umimport *p, const struct seg *s, uint64_t wanted)
{
	uint64_t head;
	uint32_t frame;

	if (atomic_load(&s->lock))
		return NULL;
	head = atomic_load_explicit(&s->head, memory_order_acquire);
	frame = __atomic_load_n(&s->frame, __ATOMIC_ACQUIRE);
	if ((head & wanted) != wanted || is_locked(s))
		return NULL;
	return find_frame(p, frame);
}

/* Enters segment i, to access what `wanted` says; NULL: it cannot be visited just now, and *slot is left. */
static inline __attribute__((always_inline)) char *visit(struct umimport *p, size_t i, uint64_t wanted, _Atomic uint64_t **slot)
{
	const struct seg *s = &p->segs[i];
	char *frame;

	for (unsigned n = 0; is_locked(s); n++) {
		if (n == SPINS)
			return NULL;
	}
	*slot = enter(p, i);
	if (!*slot)
		return NULL;
	frame = look(p, s, wanted);
	if (!frame)
		leave(*slot);
	return frame;
}

/* Words whole: they are what most transfers are of. */
static inline void copy(void *to, const void *from, size_t len)
{
	if (len == sizeof(uint64_t))
		memcpy(to, from, sizeof(uint64_t));
	else
		memcpy(to, from, len);
}

/* Copies within one segment; 0: it cannot be visited just now. */
static inline size_t copy_some(struct umimport *p, void *to, const void *from, size_t len, uint64_t offset, uint64_t wanted)
{
	size_t at = (size_t)offset & (p->seg_size - 1);
	_Atomic uint64_t *slot;
	char *frame = visit(p, (size_t)(offset >> p->shift), wanted, &slot);

	if (!frame)
		return 0;
	len = min_size(min_size(len, p->seg_size - at), COPY_MOST);
	copy(to ? to : frame + at, from ? from : frame + at, len);
	leave(slot);
	return len;
}

/* As much of [offset, offset + len) as is the mapping's, and known. */
static inline size_t within(const struct umimport *p, size_t len, uint64_t offset)
{
	uint64_t end = (uint64_t)p->count << p->shift, size;

	if (end == 0)
		return 0;
	size = atomic_load_explicit(&p->head->size, memory_order_relaxed);
	end = size < end ? size : end;
	return offset < end ? min_size(len, end - offset) : 0;
}

size_t import_get(struct umimport *p, void *buf, size_t len, uint64_t offset)
{
	size_t done = 0, n = 1;

	for (len = within(p, len, offset); done < len && n; done += n)
		n = copy_some(p, (char *)buf + done, NULL, len - done, offset + done, SEG_VALID);
	return done;
}

size_t import_put(struct umimport *p, const void *buf, size_t len, uint64_t offset)
{
	size_t done = 0, n = 1;

	for (len = within(p, len, offset); done < len && n; done += n)
		n = copy_some(p, NULL, (const char *)buf + done, len - done, offset + done, SEG_VALID | SEG_DIRTY);
	return done;
}

/* Where entering has not been one: an atomic exchange orders loads behind the store before it on some processors only. */
static inline void be_barrier(void)
{
#if !defined(__x86_64__)
	atomic_thread_fence(memory_order_seq_cst);
#endif
}

int import_hold(struct umimport *p, uint64_t offset, bool store, struct umhold *hold)
{
	size_t at = (size_t)offset & (p->seg_size - 1), len = within(p, p->seg_size - at, offset);
	_Atomic uint64_t *slot;
	char *frame = NULL;

	if (len)
		frame = visit(p, (size_t)(offset >> p->shift), store ? SEG_VALID | SEG_DIRTY : SEG_VALID, &slot);
	if (!frame)
		return -1;
	be_barrier();
	*hold = (struct umhold){ .addr = frame + at, .len = len, .slot = (void *)slot };
	return 0;
}

void import_release(struct umhold *hold)
{
	leave((_Atomic uint64_t *)hold->slot);
}
