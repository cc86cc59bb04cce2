/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The importer's side of another process's mapping. An access to a segment delays the owner of the
 * mapping, so during an access this file only copies: it takes no lock, does not wait, and touches
 * no page that could fault for long. An access may be refused at any moment, and then less is
 * copied. The owner's memory is untrusted input: numbers are checked, and the mapped object is
 * sealed against becoming shorter. A forked child closes its imports, because their locks must end
 * with the parent. Lock: `lock`, for opening and closing.
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

/* How often a lock or the slots of the line are read before an access is refused. */
#define MAX_SPINS 64
/* Bytes copied in one access, which bounds the delay of the owner. */
#define MAX_COPY_BYTES ((size_t)256 << 10)

struct umimport {
	const struct export_header *header; /* memory object of the mapping, mapped read-only */
	size_t object_len;                  /* bytes of that object */
	const struct seg *segs;             /* headers of segments in that object */
	size_t count;                       /* number of these headers; 0: in a forked child */
	struct export_lines *lines;         /* lines of that object, mapped writable */
	struct export_line *line;           /* line of this import */
	size_t seg_size;                    /* bytes of a segment */
	unsigned shift;                     /* log2 of seg_size */
	size_t arena_frames;                /* number of frames in an arena */
	char *_Atomic *arenas;              /* addresses of the owner's arenas; NULL: not mapped */
	_Atomic uint32_t arenas_end;        /* no arena from this index on is mapped */
	int control;                        /* descriptor of the object, which locks the line */
	int pool;                           /* descriptor of the owner's frames */
	struct umimport *next;
};

static struct umimport *imports;
static _Atomic uint32_t lock;

/* ---- Opening ---- */

static int fail_open(const struct export_description *d)
{
	int err = errno;

	if (!is_alive((struct process_id){ .pid = d->pid }))
		return fail(ESRCH, "cannot import the mapping: its process %d has ended", d->pid);
	if (err == EACCES || err == EPERM)
		return fail(err, "cannot import the mapping: this process may not open the memory "
			    "of process %d. Both processes must belong to one user, be no "
			    "set-user-ID programs, and permit ptrace(2)", d->pid);
	if (err == ENOENT)
		return fail(ESTALE, "cannot import the mapping of process %d: the mapping has "
			    "ended, or /proc does not show the process", d->pid);
	return fail(err, "cannot import the mapping: the memory of process %d cannot be opened: %s",
		    d->pid, strerror(err));
}

/* Opens the object of the owner's descriptor. Returns a descriptor, or -errno with a message. */
static int open_object(const struct export_description *d, int theirs, uint64_t file)
{
	char path[64];
	struct stat st;
	int fd, seals;

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", d->pid, theirs);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return fail_open(d);
	seals = fcntl(fd, F_GET_SEALS);
	if (fstat(fd, &st) == 0 && st.st_dev == d->device && st.st_ino == file && seals >= 0 &&
	    seals & F_SEAL_SHRINK)
		return fd;
	close(fd);
	return fail(ESTALE, "cannot import the mapping of process %d: the mapping has ended",
		    d->pid);
}

static int open_objects(struct umimport *p, const struct export_description *d)
{
	p->control = open_object(d, d->control, d->control_file);
	if (p->control < 0)
		return p->control;
	p->pool = open_object(d, d->pool, d->pool_file);
	return p->pool < 0 ? p->pool : 0;
}

/* Checks the header of an object of object_len bytes, and the length of the pool. */
static bool is_sound(const struct export_header *h, size_t object_len, uint64_t pool_len)
{
	/* An access behind the end of the pool would raise SIGBUS. */
	return pool_len >= (uint64_t)SHARED_POOL_SPANS << SHARED_POOL_SPAN_SHIFT &&
	       h->magic == EXPORT_MAGIC && h->version == EXPORT_VERSION && h->page == sys_page() &&
	       h->seg_size >= sys_page() && h->seg_size <= SHARED_POOL_MAX_FRAME &&
	       !(h->seg_size & (h->seg_size - 1)) && h->count > 0 &&
	       h->count <= (object_len - export_segs_at()) / sizeof(struct seg) &&
	       h->count <= INT64_MAX / h->seg_size;
}

static int map_object(struct umimport *p)
{
	void *all = MAP_FAILED;
	struct export_header header;
	struct stat st, pool;

	if (fstat(p->control, &st) < 0 || fstat(p->pool, &pool) < 0)
		return -errno;
	p->object_len = (size_t)st.st_size;
	if (p->object_len > export_segs_at())
		all = sys_map(p->object_len, PROT_READ, MAP_SHARED, p->control, 0);
	if (all == MAP_FAILED)
		return fail(ENOMEM, "cannot import the mapping: its segments cannot be mapped");
	p->header = all;
	/* The check needs a copy, because the owner could change the header after the check. */
	memcpy(&header, all, sizeof(header));
	if (!is_sound(&header, p->object_len, (uint64_t)pool.st_size))
		return fail(EINVAL, "cannot import the mapping: its export is damaged, or was made "
			    "by another version of the library");
	p->segs = (const struct seg *)((const char *)all + export_segs_at());
	p->count = header.count;
	p->seg_size = header.seg_size;
	p->shift = (unsigned)__builtin_ctzl(p->seg_size);
	p->arena_frames = arena_frames(p->seg_size);
	return 0;
}

static int map_lines(struct umimport *p)
{
	void *lines = sys_map(sizeof(*p->lines), PROT_READ | PROT_WRITE, MAP_SHARED, p->control,
			      (int64_t)export_lines_at());

	if (lines == MAP_FAILED)
		return fail(ENOMEM, "cannot import the mapping: its segments cannot be mapped");
	p->lines = lines;
	p->arenas = sys_map_anonymous(SHARED_POOL_SPANS * sizeof(*p->arenas));
	return p->arenas ? 0 : fail(ENOMEM, "cannot import the mapping: no address space. Try a "
				    "larger RLIMIT_AS (ulimit -v)");
}

static int take_line(struct umimport *p)
{
	uint32_t used = p->lines->used, k = 0;
	int err = -EBUSY;

	for (; k < EXPORT_MAX_IMPORTS; k++) {
		err = try_lock_bytes(p->control, F_WRLCK, k, 1);
		if (err != -EBUSY)
			break;
	}
	if (err && err != -EBUSY)
		return fail(-err, "cannot lock the export of the mapping: %s", strerror(-err));
	if (err)
		return fail(EAGAIN, "cannot import the mapping: it has %d imports already, the "
			    "maximum. Try to close one of them", EXPORT_MAX_IMPORTS);
	p->line = &p->lines->line[k];
	/* The importer that had the line before may have died during an access. */
	for (unsigned j = 0; j < EXPORT_LINE_SLOTS; j++)
		p->line->slot[j] = 0;
	while (used <= k && !atomic_compare_exchange_weak(&p->lines->used, &used, k + 1))
		;
	return 0;
}

/* Unmaps and closes all that an import has, which may be incomplete. */
static void release_import(struct umimport *p)
{
	for (uint32_t i = 0; i < p->arenas_end; i++) {
		if (p->arenas[i])
			raw_munmap(p->arenas[i], p->arena_frames * p->seg_size);
	}
	if (p->arenas)
		raw_munmap(p->arenas, SHARED_POOL_SPANS * sizeof(*p->arenas));
	if (p->lines)
		raw_munmap(p->lines, sizeof(*p->lines));
	if (p->header)
		raw_munmap((void *)p->header, p->object_len);
	if (p->pool >= 0)
		close(p->pool);
	if (p->control >= 0)
		close(p->control);
	*p = (struct umimport){ .control = -1, .pool = -1, .next = p->next };
}

static void release_all_in_child(void)
{
	for (struct umimport *p = imports; p; p = p->next)
		release_import(p);
}

__attribute__((constructor))
static void register_fork_handler(void)
{
	fork_register(FORK_IMPORTS, &lock, NULL, release_all_in_child);
}

static int check_description(const struct export_description *d)
{
	if (d->magic != (uint32_t)EXPORT_MAGIC)
		return fail(EINVAL, "cannot import the mapping: the export is not valid. Try the "
			    "structure that umexport filled");
	if (process_machine() != d->machine || process_namespace() != d->pid_namespace)
		return fail(EXDEV, "cannot import the mapping: its export was made on another "
			    "machine, or in another container");
	return 0;
}

int import_open(const struct umexport *exported, struct umimport **imported)
{
	struct export_description d;
	struct umimport *p;
	int err;

	memcpy(&d, exported, sizeof(d));
	err = check_description(&d);
	if (err)
		return err;
	p = calloc(1, sizeof(*p));
	if (!p)
		return fail(ENOMEM, "cannot import the mapping: no memory");
	p->control = p->pool = -1;
	/* The list has the import before the import has resources, which a forked child must
	 * release. */
	futex_lock(&lock);
	p->next = imports;
	imports = p;
	futex_unlock(&lock);
	err = open_objects(p, &d);
	if (!err)
		err = map_object(p);
	if (!err)
		err = map_lines(p);
	if (!err)
		err = take_line(p);
	if (err) {
		import_close(p);
		return err;
	}
	*imported = p;
	return 0;
}

void import_close(struct umimport *p)
{
	struct umimport **link = &imports;

	futex_lock(&lock);
	while (*link != p)
		link = &(*link)->next;
	*link = p->next;
	release_import(p);
	futex_unlock(&lock);
	free(p);
}

/* ---- Access ---- */

static char *map_arena(struct umimport *p, uint32_t arena)
{
	size_t len = p->arena_frames * p->seg_size;
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
	return base && i < p->arena_frames ? base + ((size_t)i << p->shift) : NULL;
}

static inline bool is_locked(const struct seg *s)
{
	return atomic_load_explicit(&s->lock, memory_order_acquire) != 0;
}

/* Writes segment i into a free slot. NULL: all slots are in use. */
static inline _Atomic uint64_t *take_slot(struct umimport *p, size_t i)
{
	for (unsigned n = 0; n < MAX_SPINS * EXPORT_LINE_SLOTS; n++) {
		_Atomic uint64_t *slot = &p->line->slot[n % EXPORT_LINE_SLOTS];
		uint64_t none = 0;

		if (atomic_load_explicit(slot, memory_order_relaxed) == 0 &&
		    atomic_compare_exchange_strong(slot, &none, i + 1))
			return slot;
	}
	return NULL;
}

static inline void free_slot(_Atomic uint64_t *slot)
{
	atomic_store_explicit(slot, 0, memory_order_release);
}

/* Whether segments with this header have the wanted bits. Contents that a commit needs must not
 * change: then the owner makes a copy before it stores. */
static inline bool is_accessible(uint64_t head, uint64_t wanted)
{
	return (head & wanted) == wanted && !(wanted & SEG_DIRTY && head & SEG_COMMIT);
}

/*
 * Returns the address of a segment that a slot of this line has. wanted: bits that its header must
 * have. NULL: the segment is not accessible. Reads the lock twice. If the lock is free before, the
 * changes of its last holder are visible. If it is free after, a later holder waits for the slot
 * before it changes the segment.
 */
static inline char *find_segment(struct umimport *p, const struct seg *s, uint64_t wanted)
{
	uint64_t head;
	uint32_t frame;

	if (atomic_load(&s->lock))
		return NULL;
	head = atomic_load_explicit(&s->head, memory_order_acquire);
	frame = __atomic_load_n(&s->frame, __ATOMIC_ACQUIRE);
	if (!is_accessible(head, wanted) || is_locked(s))
		return NULL;
	return find_frame(p, frame);
}

/* Begins an access to segment i, and returns its address. The caller ends the access by free_slot.
 * NULL: the segment is not accessible at the moment. */
static inline __attribute__((always_inline))
char *begin_access(struct umimport *p, size_t i, uint64_t wanted, _Atomic uint64_t **slot)
{
	const struct seg *s = &p->segs[i];
	char *frame;

	for (unsigned n = 0; is_locked(s); n++) {
		if (n == MAX_SPINS)
			return NULL;
	}
	*slot = take_slot(p, i);
	if (!*slot)
		return NULL;
	frame = find_segment(p, s, wanted);
	if (!frame)
		free_slot(*slot);
	return frame;
}

/* Most transfers have the length of a word, for which the compiler makes one load and store. */
static inline void copy_fast(void *to, const void *from, size_t len)
{
	if (len == sizeof(uint64_t))
		memcpy(to, from, sizeof(uint64_t));
	else
		memcpy(to, from, len);
}

/* Copies within one segment, which takes the place of `to` or `from` if that is NULL. Returns the
 * number of bytes; 0: the segment is not accessible at the moment. */
static inline size_t copy_in_segment(struct umimport *p, void *to, const void *from, size_t len,
				     uint64_t offset, uint64_t wanted)
{
	size_t at = (size_t)offset & (p->seg_size - 1);
	_Atomic uint64_t *slot;
	char *frame = begin_access(p, (size_t)(offset >> p->shift), wanted, &slot);

	if (!frame)
		return 0;
	len = min_size(min_size(len, p->seg_size - at), MAX_COPY_BYTES);
	copy_fast(to ? to : frame + at, from ? from : frame + at, len);
	free_slot(slot);
	return len;
}

/* Returns the number of bytes of [offset, offset + len) that the mapping has and this import
 * knows. */
static inline size_t limit_len(const struct umimport *p, size_t len, uint64_t offset)
{
	uint64_t end = (uint64_t)p->count << p->shift, size;

	if (end == 0)
		return 0;
	size = atomic_load_explicit(&p->header->size, memory_order_relaxed);
	end = size < end ? size : end;
	return offset < end ? min_size(len, end - offset) : 0;
}

size_t import_get(struct umimport *p, void *buf, size_t len, uint64_t offset)
{
	size_t done = 0, n = 1;

	for (len = limit_len(p, len, offset); done < len && n; done += n)
		n = copy_in_segment(p, (char *)buf + done, NULL, len - done, offset + done,
				    SEG_VALID);
	return done;
}

size_t import_put(struct umimport *p, const void *buf, size_t len, uint64_t offset)
{
	size_t done = 0, n = 1;

	for (len = limit_len(p, len, offset); done < len && n; done += n)
		n = copy_in_segment(p, NULL, (const char *)buf + done, len - done, offset + done,
				    SEG_VALID | SEG_DIRTY);
	return done;
}

int import_hold(struct umimport *p, uint64_t offset, bool store, struct umhold *hold)
{
	uint64_t wanted = store ? SEG_VALID | SEG_DIRTY : SEG_VALID;
	size_t at = (size_t)offset & (p->seg_size - 1);
	size_t len = limit_len(p, p->seg_size - at, offset);
	_Atomic uint64_t *slot;
	char *frame = NULL;

	if (len)
		frame = begin_access(p, (size_t)(offset >> p->shift), wanted, &slot);
	if (!frame)
		return -1;
	/* The atomic exchange of take_slot is a full barrier for the caller's loads on x86 only. */
#if !defined(__x86_64__)
	atomic_thread_fence(memory_order_seq_cst);
#endif
	*hold = (struct umhold){ .addr = frame + at, .len = len, .slot = (void *)slot };
	return 0;
}

void import_release(struct umhold *hold)
{
	free_slot((_Atomic uint64_t *)hold->slot);
}
