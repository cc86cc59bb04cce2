/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The public calls on whole mappings. Each call checks its arguments, calls the functions that do
 * the work, and turns -errno into errno. During a call, signals that have handlers are blocked and
 * the thread cannot be cancelled, because it may hold locks of segments. Writes that may take long
 * are therefore made in parts before the call does the rest (api_write_changes).
 */
#include "api/api.h"

#include "budget/budget.h"
#include "budget/machine.h"
#include "memory/shared_pool.h"
#include "engine/sigsegv.h"
#include "base/config.h"
#include "api/start.h"
#include "paging/fault/fault.h"
#include "paging/mapping/teardown.h"
#include "engine/engine.h"
#include "cache/group.h"
#include "paging/mapping/inplace.h"
#include "paging/mapping/shared_copy.h"
#include "paging/mapping/lock.h"
#include "base/log.h"
#include "paging/mapping/lookup.h"
#include "paging/mapping/handover.h"
#include "memory/tiers.h"
#include "paging/residency/tiering.h"
#include "paging/residency/neighbors.h"
#include "paging/residency/pagecache.h"
#include "io/plugin.h"
#include "paging/mapping/remap.h"
#include "paging/mapping/replace.h"
#include "paging/fault/segment.h"
#include "paging/mapping/stats.h"
#include "paging/sync/sync.h"
#include "io/vars.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

/* Maximum of `before` and `after` in bytes. It exceeds the address space and avoids overflow. */
#define MAX_ADJACENT_BYTES ((size_t)1 << 60)
/* Bytes. An arena has at least 16 frames and must fit into the address space. */
#define MAX_SEG_SIZE ((size_t)1 << 38)
#define KNOWN_FLAGS (UMMAP_CREATE | UMMAP_KERNEL | UMMAP_SHARED | UMMAP_BLANK | UMMAP_WRITERS | \
		     UMMAP_GROWS | UMMAP_NODE)
/* Flags of mappings that UMMAP_NODE_CACHE leaves alone. */
#define FLAGS_WITHOUT_COPY (UMMAP_KERNEL | UMMAP_SHARED | UMMAP_BLANK)

/* A store that the caller has opened: the arguments of ummap_open_handle. */
struct opened {
	const struct ummap_driver *driver;
	void *handle;
	const struct ummap_geom *geom;
};

/* Requested properties of a new mapping: the arguments of ummap, ummap_open or
 * ummap_open_handle. */
struct plan {
	const struct opened *opened; /* store that the caller has opened, or NULL */
	const char *uri;             /* URI of the store; with a descriptor, of the driver */
	int fd;                      /* descriptor of the file; -1: the URI names the store */
	size_t size;                 /* bytes of the mapping */
	off_t offset;                /* position of the mapping in the store, in bytes */
	int prot;                    /* PROT_* */
	struct ummap_attr attr;      /* attributes; seg_size is reduced for a small mapping */
	size_t wanted_seg_size;      /* segment size before that reduction */
	bool adapts;                 /* faults bring in neighbors (UMMAP_SEG_AUTO) */
	bool has_default_size;       /* nobody has chosen a segment size */
	bool writers;                /* other mappings write to the same bytes (UMMAP_WRITERS) */
	bool node;                   /* processes share the segments (UMMAP_NODE) */
	const struct engine *engine; /* engine that choose_engine has selected */
};

void api_enter(struct guard *g)
{
	guard_enter(g);
	fail_clear();
	sigsegv_keep();
}

int api_leave(struct guard *g, int err)
{
	if (err && !*fail_message())
		fail(-err, "%s", strerror(-err));
	guard_leave(g);
	if (!err)
		return 0;
	errno = -err;
	return -1;
}

/*
 * Writes the next part of a mapping or range. *at is the segment at which the part begins, and
 * becomes the segment after the part. Returns false after the last part.
 */
static bool write_part(const void *addr, size_t len, size_t *at)
{
	struct mapping *map = map_find(addr);
	size_t from, first, last;
	bool more;

	/* The caller looks the mapping up again, and reports the error. */
	if (!map)
		return false;
	from = (size_t)((const char *)addr - map->range);
	first = from >> map->shift;
	last = len && len < map->size - from ? ((from + len - 1) >> map->shift) + 1 : map->segs;
	*at = max_size(*at, first);
	more = (len || !from) && sync_some(map, at, last);
	map_leave(map);
	return more;
}

void api_write_changes(struct guard *g, const void *addr, size_t len)
{
	size_t at = 0;

	while (write_part(addr, len, &at)) {
		guard_leave(g);
		guard_enter(g);
	}
}

int api_fail_no_mapping(const void *addr)
{
	return fail(EINVAL, "cannot find a mapping that begins at %p", addr);
}

/* ---- ummap ---- */

/* Checks the arguments, and completes the attributes in the plan. 0, or -errno with a message. */
static int check_plan(struct plan *p, void **addr)
{
	struct ummap_attr *a = &p->attr;

	if (!addr)
		return fail(EINVAL, "cannot create the mapping: addr is NULL. Try a pointer that "
			    "receives its address");
	if (p->size == 0)
		return fail(EINVAL, "cannot create the mapping: the size is 0");
	if (a->seg_size == 0)
		a->seg_size = config.seg_size;
	p->has_default_size = a->seg_size == 0;
	if (p->has_default_size)
		a->seg_size = UMMAP_SEG_AUTO;
	p->adapts = a->seg_size == UMMAP_SEG_AUTO;
	if (p->adapts)
		a->seg_size = budget_smallest_segment(p->size, a->budget, sizeof(struct seg));
	if (a->seg_size < sys_page() || (a->seg_size & (a->seg_size - 1)))
		return fail(EINVAL, "cannot create the mapping: the segment size is %zu. Try a "
			    "power of two of at least %zu", a->seg_size, sys_page());
	if (p->prot != PROT_READ && p->prot != (PROT_READ | PROT_WRITE))
		return fail(EINVAL, "cannot create the mapping: prot is %d. Try PROT_READ or "
			    "PROT_READ | PROT_WRITE", p->prot);
	if (p->offset < 0)
		return fail(EINVAL, "cannot create the mapping: the offset %lld is negative",
			    (long long)p->offset);
	if (p->size > (size_t)INT64_MAX || a->seg_size > (size_t)INT64_MAX ||
	    p->size > (size_t)INT64_MAX - a->seg_size || p->size > (size_t)(INT64_MAX - p->offset))
		return fail(EOVERFLOW, "cannot create the mapping: offset %lld + size %zu is "
			    "larger than a file can be", (long long)p->offset, p->size);
	p->wanted_seg_size = a->seg_size;
	/* A segment larger than the mapping would only waste memory. */
	while (a->seg_size / 2 >= p->size && a->seg_size > sys_page())
		a->seg_size /= 2;
	if (a->flush_interval < 0)
		return fail(EINVAL, "cannot create the mapping: flush_interval is %d. Try a number "
			    "of seconds, or 0 for never", a->flush_interval);
	if (!a->policy && !plugin_ptype(a->ptype))
		return fail(EINVAL, "cannot create the mapping: there is no policy %d. Try one of "
			    "UMMAP_PTYPE_*", a->ptype);
	if (a->flags & ~KNOWN_FLAGS)
		return fail(EINVAL, "cannot create the mapping: flags has unknown bits, %#x",
			    a->flags & ~KNOWN_FLAGS);
	p->writers = p->prot & PROT_WRITE && (config.writers || a->flags & UMMAP_WRITERS);
	if (p->writers && a->flags & UMMAP_BLANK)
		return fail(EINVAL, "cannot create the mapping: UMMAP_BLANK (read_file 0) excludes "
			    "UMMAP_WRITERS, because other writers may change the bytes that have "
			    "to read as zeros");
	if (a->flags & UMMAP_NODE && p->prot & PROT_WRITE)
		return fail(EINVAL, "cannot create the mapping: UMMAP_NODE is for mappings with "
			    "PROT_READ only");
	if (a->flags & UMMAP_NODE && p->opened)
		return fail(EINVAL, "cannot create the mapping: UMMAP_NODE needs a URI or a "
			    "descriptor, because other processes find the store by its file");
	p->node = a->flags & UMMAP_NODE ||
		  (config.node_cache && p->prot == PROT_READ && !p->opened &&
		   !(a->flags & FLAGS_WITHOUT_COPY) && !a->tiers &&
		   a->engine == UMMAP_ENGINE_DEFAULT);
	if (a->flags & UMMAP_SHARED && a->seg_size > SHARED_POOL_MAX_FRAME)
		return fail(EINVAL, "cannot create the mapping: segments of %zu bytes are too "
			    "large for UMMAP_SHARED. Try at most %zu", a->seg_size,
			    SHARED_POOL_MAX_FRAME);
	if (a->before % sys_page() || a->after % sys_page())
		return fail(EINVAL, "cannot create the mapping: before is %zu and after is %zu. "
			    "Try multiples of %zu", a->before, a->after, sys_page());
	if (a->before > MAX_ADJACENT_BYTES || a->after > MAX_ADJACENT_BYTES)
		return fail(ENOMEM, "cannot create the mapping: no address space for %zu bytes "
			    "before it and %zu after it", a->before, a->after);
	if (a->on_full < UMMAP_FULL_DEFAULT || a->on_full > UMMAP_FULL_SIGBUS)
		return fail(EINVAL, "cannot create the mapping: on_full is %d. Try one of "
			    "UMMAP_FULL_*", a->on_full);
	if (a->seg_size > min_size(MAX_SEG_SIZE, machine_ram() / MIN_FRAMES))
		return fail(ENOMEM, "cannot create the mapping: memory has %zu bytes, too few for "
			    "%d segments of %zu bytes. Try smaller segments", machine_ram(),
			    MIN_FRAMES, a->seg_size);
	return 0;
}

/* Returns the flags with which the mapping opens its stores (UMMAP_O_*). */
static int open_flags(const struct mapping *map)
{
	return (map->writable ? UMMAP_O_WRITE : 0) | (map->writers ? UMMAP_O_WRITERS : 0);
}

/* Locks the bytes that a writable mapping may write, so that no other mapping writes them. */
static int lock_range(const struct mapping *map, struct store *store, uint64_t offset, size_t size,
		      struct lock **lock)
{
	*lock = NULL;
	return map->writable ? lock_take(map, store, offset, size, map->writers, lock) : 0;
}

static int open_store(const struct plan *p, const struct mapping *map, struct store **store)
{
	int oflags = open_flags(map) | (p->attr.flags & UMMAP_CREATE ? UMMAP_O_CREATE : 0);

	if (p->opened)
		return io_adopt(p->opened->driver, p->opened->handle, p->opened->geom, oflags,
				store);
	if (p->fd >= 0)
		return io_open_fd(p->uri, p->fd, oflags, store);
	return io_open(p->uri, oflags, store);
}

static void warn_if_store_is_short(const struct plan *p, struct store *store)
{
	uint64_t end = (uint64_t)p->offset + p->size, have = io_size(store);

	if (p->prot & PROT_WRITE && !io_grows(store) && have < end)
		log_line(LOG_WARN, "io", "cannot write changes behind byte %" PRIu64 " of the "
			 "store: it ends there and does not grow, but the mapping ends at byte %"
			 PRIu64, have, end);
}

/* Extends the store to the end of the mapping without allocating space, if UMMAP_CREATE is set. */
static int lengthen_store(const struct plan *p, struct store *store)
{
	int flags = p->attr.flags & (UMMAP_CREATE | UMMAP_GROWS);
	uint64_t end = (uint64_t)p->offset + p->size;
	int err;

	if (!(p->prot & PROT_WRITE) || flags != UMMAP_CREATE)
		return 0;
	err = io_lengthen(store, end);
	return err ? fail(-err, "cannot make the store %llu bytes long: %s. Try UMMAP_GROWS, with "
			  "which it grows as it is written", (unsigned long long)end,
			  strerror(-err)) : 0;
}

/* complete: the store is completed, after all changes are durable; -EUCLEAN: that failed. */
static int close_backing(struct backing *b, bool complete)
{
	int err = 0;

	lock_drop(b->lock);
	if (complete)
		err = io_complete(b->store);
	else
		io_close(b->store);
	*b = (struct backing){ .store = NULL };
	return err;
}

static int open_backing(const struct plan *p, const struct mapping *map, struct backing *b)
{
	int err = open_store(p, map, &b->store);

	if (err)
		return err;
	b->offset = (uint64_t)p->offset;
	b->read = !(p->attr.flags & UMMAP_BLANK);
	err = lock_range(map, b->store, b->offset, map->size, &b->lock);
	if (!err)
		err = lengthen_store(p, b->store);
	if (err)
		close_backing(b, false);
	else
		warn_if_store_is_short(p, b->store);
	return err;
}

/* Returns the flag or variable that has led to the engine of a mapping; NULL: the choice of an
 * engine. */
static const char *reason_of_engine(const struct plan *p)
{
	if (p->attr.flags & UMMAP_SHARED)
		return "the flag UMMAP_SHARED";
	if (p->node)
		return p->attr.flags & UMMAP_NODE ? "the flag UMMAP_NODE" : "UMMAP_NODE_CACHE";
	return p->attr.flags & UMMAP_KERNEL ? "the flag UMMAP_KERNEL" : NULL;
}

/* Makes all parts of a mapping except its entry in the table. On failure, frees them again. */
static int build_mapping(struct mapping *map, const struct plan *p)
{
	int err;

	map->size = p->size;
	map->seg_size = p->attr.seg_size;
	map->writable = p->prot & PROT_WRITE;
	map->writers = p->writers;
	map->bus_when_full = p->attr.on_full ? p->attr.on_full == UMMAP_FULL_SIGBUS :
					       config.bus_when_full;
	err = open_backing(p, map, &map->backings[0]);
	if (err)
		return err;
	map->flush_interval = p->attr.flush_interval;
	map->flush_rate = p->attr.flush_rate ? p->attr.flush_rate : config.flush_rate;
	map->blank = p->attr.flags & UMMAP_BLANK;
	map->bulk = config.bulk_sync;
	map->engine = p->engine;
	map->shared = p->attr.flags & UMMAP_SHARED;
	map->frames = frame_find_class(p->adapts ? p->engine->copied_frames : p->engine->frames,
				       map->shared, map->seg_size);
	err = map->frames ? tiering_begin(map, p->attr.tiers, reason_of_engine(p)) :
			    fail(ENOMEM, "cannot create the mapping: too many sizes of segments in "
				 "this process");
	if (!err)
		err = map_create(map);
	if (!err) {
		map->member.cluster = map_cluster_size(map);
		map->member.least = MIN_FRAMES * map_hold(map);
		err = engine_attach(map->engine, map->size, map->seg_size, p->attr.before,
				    p->attr.after, map->writable, &map->range);
		if (!err)
			err = group_join(&map->member, &p->attr, map->seg_size);
		if (err) {
			if (map->range)
				engine_detach(map->engine, map->range, map->size);
			map_destroy(map);
		}
	}
	if (err)
		close_backing(&map->backings[0], false);
	return err;
}

/*
 * Frees all parts of a mapping, which is not in the table and has no users. pages: memory that is
 * moved to the mapped range (the caller has called handover_begin), or NULL. complete: as for
 * close_backing.
 */
static int destroy_mapping(struct mapping *map, bool complete, void *pages)
{
	int moved = 0, closed;

	if (map->copy)
		copy_leave(map);
	seg_hide(map);
	teardown(map, 0);
	seg_show(map);
	/* A fault on another mapping may have posted a job for a segment of this one. */
	map_quiesce(map);
	group_leave(&map->member);
	if (pages) {
		moved = engine_replace(map->engine, map->range, map->size, pages);
		handover_end();
	} else {
		engine_detach(map->engine, map->range, map->size);
	}
	neighbors_end(map);
	map_destroy(map);
	sync_close_older(map);
	closed = close_backing(&map->backings[map->current], complete);
	return moved ? fail(-moved, "the mapping has ended, but its place cannot be given to the "
			    "pages: %s. They stay where they were", strerror(-moved)) : closed;
}

/* Frees the addresses before and after a mapping that could not be made. */
static void free_adjacent(const struct mapping *map, const struct ummap_attr *attr)
{
	if (map->range && attr->before)
		raw_munmap(map->range - attr->before, attr->before);
	if (map->range && attr->after)
		raw_munmap(map->range + round_up(map->size, sys_page()), attr->after);
}

/* Returns the driver for a descriptor: UMMAP_DRIVER, pmem for a file on DAX, or NULL (default). */
static const char *driver_for(int fd)
{
	const struct ummap_driver *pmem;

	if (config.driver || !inplace_suits(fd))
		return config.driver;
	pmem = plugin_driver("pmem");
	return pmem && pmem->map ? pmem->scheme : config.driver;
}

/* Whether a failure to use a node copy is no error, because UMMAP_NODE_CACHE asks for one where it
 * can be used. The mapping then has segments of its own. */
static bool can_do_without_copy(struct plan *p, const char *name)
{
	if (!p->node || p->attr.flags & UMMAP_NODE)
		return false;
	log_line(LOG_INFO, "inplace", "%s. The store '%s' is mapped without a node copy",
		 fail_message(), name);
	fail_clear();
	p->node = false;
	return true;
}

static int choose_engine(struct plan *p)
{
	struct engine_wish wish = { .wanted = p->attr.engine,
				    .kernel = p->attr.flags & UMMAP_KERNEL,
				    .shared = p->attr.flags & UMMAP_SHARED, .node = p->node,
				    .whole = tier_count > 0, .seg_size = p->adapts ? sys_page() :
						 p->wanted_seg_size };
	int err = engine_choose(&wish, &p->engine);

	if (err && can_do_without_copy(p, p->uri ? p->uri : "")) {
		wish.node = false;
		err = engine_choose(&wish, &p->engine);
	}
	return err;
}

/* The store was opened after its key was made. If the key is the same now, it belongs to this very
 * store. */
static int enter_copy(const struct plan *p, struct mapping *map, const struct copy_key *key)
{
	struct copy_key now;
	int err = copy_identify(p->uri, p->fd, (uint64_t)p->offset, p->size, p->attr.seg_size,
				&now);

	if (err)
		return err;
	if (!key->text[0] && !now.text[0]) {
		err = copy_identify_remote(map, &now);
		return err ? err : copy_enter(map, &now);
	}
	if (strcmp(now.text, key->text) != 0)
		return fail(EAGAIN, "cannot create the mapping: the store '%s' changes while it is "
			    "opened. Try again", map->name);
	return copy_enter(map, key);
}

/* Maps the node copy of the store, or its pages in place, if the one or the other is possible. */
static int enter(struct plan *p, struct mapping *map, const struct copy_key *key)
{
	int err = p->node ? enter_copy(p, map, key) : 0;

	if (err && can_do_without_copy(p, map->name))
		err = 0;
	return err || p->node ? err : inplace_enter(map);
}

/* Neighbors are mapped by one call only if frames are copied for this process. Copied frames are in
 * no tier, so they are not used where the engine has others. */
static bool can_adapt(const struct plan *p)
{
	const struct engine *e = p->engine;

	return !p->node && e->copied_frames &&
	       (e->copied_frames == e->frames || (p->prot == PROT_READ && !tier_count));
}

/* Whether single pages are a good choice: stores to them in order cost more than stores to large
 * segments, unless they are guessed (paging/sync/guess.h) and blocks are on huge pages. */
static bool adapts_well(const struct plan *p)
{
	return !(p->prot & PROT_WRITE) || (!p->writers && engine_moves_blocks(p->engine, true));
}

static int use_default_size(struct plan *p, void **addr)
{
	int err;

	p->attr.seg_size = budget_default_segment(p->attr.budget);
	err = check_plan(p, addr);
	return err ? err : choose_engine(p);
}

static int make_mapping(struct plan *p, void **addr)
{
	struct mapping *map;
	struct copy_key key;
	int err = start_library();

	if (!err)
		err = check_plan(p, addr);
	if (!err)
		err = choose_engine(p);
	if (!err && p->adapts && !(can_adapt(p) && (!p->has_default_size || adapts_well(p))))
		err = use_default_size(p, addr);
	if (err)
		return err;
	if (!p->uri)
		p->uri = driver_for(p->fd);
	if (p->node)
		err = copy_identify(p->uri, p->fd, (uint64_t)p->offset, p->size, p->attr.seg_size,
				    &key);
	if (err && can_do_without_copy(p, p->uri))
		err = choose_engine(p);
	if (err)
		return err;
	map = map_alloc();
	if (!map)
		return fail(ENOMEM, "cannot create the mapping: no memory");
	map_name(map, p->uri, p->fd);
	err = build_mapping(map, p);
	if (!err) {
		err = enter(p, map, &key);
		if (!err && p->adapts && !map->in_place)
			err = neighbors_begin(map);
		if (!err && map->in_place && map->shared)
			err = fail(EOPNOTSUPP, "cannot use UMMAP_SHARED: the store '%s' is mapped "
				   "in place. Try to map the store in the other processes, too",
				   map->name);
		if (!err && !map->in_place)
			err = start_prepare(map);
		if (!err)
			err = pagecache_prepare(map);
		if (!err)
			err = map_insert(map);
		if (err)
			destroy_mapping(map, false, NULL);
	}
	if (err) {
		free_adjacent(map, &p->attr);
		map_free(map);
		return err;
	}
	if (p->opened)
		io_take(map->backings[0].store);
	if (!map->in_place)
		start_note_mapping(map);
	*addr = map->range;
	return 0;
}

int ummap(size_t size, size_t seg_size, int prot, int fd, off_t offset,
	  int flush_interval, int read_file, int ptype, void **addr)
{
	struct plan p = { .fd = fd, .size = size, .offset = offset, .prot = prot,
			  .attr = UMMAP_ATTR_INIT };
	struct guard g;
	int err;

	p.attr.seg_size = seg_size;
	p.attr.flush_interval = flush_interval < 0 ? 0 : flush_interval == 0 ? 1 : flush_interval;
	p.attr.flags = read_file ? 0 : UMMAP_BLANK;
	/* Programs written for uMMAP-IO pass 0 for the policy fifo. */
	p.attr.ptype = ptype ? ptype : UMMAP_PTYPE_FIFO;
	api_enter(&g);
	err = fd < 0 ? fail(EBADF, "cannot create the mapping: %d is not a descriptor", fd) :
		       make_mapping(&p, addr);
	return api_leave(&g, err);
}

/* Whether attr has a nonzero byte after the fields that this release knows. */
static bool has_unknown_fields(const struct ummap_attr *attr)
{
	const char *bytes = (const char *)attr;
	size_t i = sizeof(*attr);

	while (i < attr->struct_size && !bytes[i])
		i++;
	return i < attr->struct_size;
}

/* Copies the caller's attributes into the plan, and makes the mapping. */
static int map_with_attr(struct plan *p, const struct ummap_attr *attr, void **addr)
{
	if (attr && (attr->struct_size < sizeof(size_t) || attr->struct_size > 4096))
		return fail(EINVAL, "cannot create the mapping: attr->struct_size is %zu. Try to "
			    "start from UMMAP_ATTR_INIT", attr->struct_size);
	if (attr && has_unknown_fields(attr))
		return fail(EINVAL, "cannot create the mapping: attr has fields of a later release "
			    "that are not 0. Try 0, or that release");
	/* A program built against an earlier release has fewer fields; the others keep their
	 * defaults. */
	if (attr)
		memcpy(&p->attr, attr, min_size(attr->struct_size, sizeof(p->attr)));
	return make_mapping(p, addr);
}

int ummap_open(const char *uri, size_t size, off_t offset, int prot,
	       const struct ummap_attr *attr, void **addr)
{
	struct plan p = { .uri = uri, .fd = -1, .size = size, .offset = offset, .prot = prot,
			  .attr = UMMAP_ATTR_INIT };
	struct guard g;

	api_enter(&g);
	if (!uri)
		return api_leave(&g, fail(EINVAL, "cannot create the mapping: the URI is NULL"));
	return api_leave(&g, map_with_attr(&p, attr, addr));
}

int ummap_open_handle(const struct ummap_driver *driver, void *h, const struct ummap_geom *geom,
		      size_t size, off_t offset, int prot, const struct ummap_attr *attr,
		      void **addr)
{
	struct opened opened = { driver, h, geom };
	struct plan p = { .opened = &opened, .fd = -1, .size = size, .offset = offset,
			  .prot = prot, .attr = UMMAP_ATTR_INIT };
	struct guard g;
	int err;

	api_enter(&g);
	err = driver && geom ? plugin_check_driver(driver, true) :
			       fail(EINVAL, "cannot create the mapping: driver or geom is NULL");
	if (err)
		return api_leave(&g, err);
	p.uri = driver->scheme;
	return api_leave(&g, map_with_attr(&p, attr, addr));
}

int ummap_setvar(const char *name, const char *value)
{
	struct guard g;

	api_enter(&g);
	return api_leave(&g, vars_set(name, value));
}

/* ---- umsync ---- */

int umsync(void *addr, int evict)
{
	struct guard g;
	struct mapping *map;
	int err;

	api_enter(&g);
	api_write_changes(&g, addr, 0);
	map = map_find(addr);
	if (!map || map->range != addr) {
		if (map)
			map_leave(map);
		return api_leave(&g, api_fail_no_mapping(addr));
	}
	err = sync_all(map);
	if (!err && evict)
		seg_evict(map, 0, map->segs);
	map_leave(map);
	return api_leave(&g, err);
}

/* ---- umunmap, umremap ---- */

/* Ends a mapping that is frozen. The sync that the caller has requested is done. */
static int end_mapping(struct mapping *map, bool complete, void *pages)
{
	int err;

	if (pages)
		handover_begin(map);
	map_remove(map);
	err = destroy_mapping(map, complete, pages);
	stats_ending(map);
	return err;
}

/* pages: memory that is moved to the mapped range, or NULL. */
static int unmap_at(void *addr, int sync, void *pages)
{
	struct guard g;
	struct mapping *map;
	int err = 0, closing = 0;

	api_enter(&g);
	if (sync)
		api_write_changes(&g, addr, 0);
	map = map_find_alone(addr);
	if (!map)
		return api_leave(&g, api_fail_no_mapping(addr));
	/* The frozen mapping has no stores during the final sync, except through pins. */
	if (pages && map_pinned_bytes(map))
		err = fail(EBUSY, "cannot end the mapping at %p: part of it is pinned. Try umunpin "
			   "first", addr);
	if (!err && sync)
		err = sync == UMMAP_NOFLUSH ? sync_write(map) : sync_all(map);
	/* EUCLEAN tells the caller that the mapping has ended, and here it has not. */
	if (err == -EUCLEAN)
		err = -EIO;
	if (!err)
		closing = end_mapping(map, sync, pages);
	map_thaw(map);
	map_leave(map);
	if (!err)
		map_free(map);
	return api_leave(&g, err ? err : closing);
}

int umunmap(void *addr, int sync)
{
	return unmap_at(addr, sync, NULL);
}

int umunmap_onto(void *addr, int sync, void *pages)
{
	struct guard g;

	if (pages && (uintptr_t)pages % sys_page() == 0)
		return unmap_at(addr, sync, pages);
	api_enter(&g);
	return api_leave(&g, fail(EINVAL, "cannot end the mapping: pages is %p, which is not the "
				  "address of a page", pages));
}

static int check_remap(const struct mapping *map, const struct remap *want, int sync)
{
	if (sync & ~(UMMAP_SYNC | UMMAP_SWITCH))
		return fail(EINVAL, "cannot change the mapping: sync is %d. Try UMMAP_SYNC, "
			    "UMMAP_SWITCH, both or 0", sync);
	if (want->size > (size_t)INT64_MAX - map->seg_size ||
	    want->size > (size_t)(INT64_MAX - want->offset))
		return fail(EOVERFLOW, "cannot change the mapping: offset %llu + size %zu is "
			    "larger than a file can be", (unsigned long long)want->offset,
			    want->size);
	if (want->moved && !map->writable && !want->switch_over)
		return fail(EACCES, "cannot migrate the contents: the mapping is read-only. "
			    "Try UMMAP_SWITCH");
	return 0;
}

/* Store that a remap names. uri NULL and fd -1: the mapping keeps its store. */
struct store_name {
	const char *uri;         /* URI, or NULL */
	int fd;                  /* descriptor, which is used if uri is NULL; or -1 */
};

/* A change of a mapping to another store, or to another place in its store. */
struct change {
	struct remap want;           /* new store, offset and size */
	struct replacement other;    /* the store that the caller names */
	struct identity id;          /* identity of `other` */
	bool handed_over;            /* the stores are handed over to `other` (replace.h) */
	bool synced;                 /* the mapping was synced before the hand-over */
};

static int open_other(struct change *c)
{
	struct store *store;
	int err = replace_open(&c->other, &store);

	if (!err)
		c->want.store = store;
	return err;
}

static int resize_mapping(struct mapping *map, size_t size)
{
	const struct backing *now = &map->backings[map->current];
	struct remap want = { .store = now->store, .offset = now->offset, .size = size };

	return remap_apply(map, &want);
}

/* The mapping grows first, because this can be undone until the store is replaced. */
static int begin_switch(struct mapping *map, struct change *c, int sync)
{
	size_t before = map->size;
	int err = 0;

	if (sync & UMMAP_SYNC)
		err = sync_all(map);
	if (!err && c->want.size > before)
		err = resize_mapping(map, c->want.size);
	if (!err)
		err = replace_begin_switch(map, &c->other);
	c->handed_over = !err;
	if (!err)
		err = open_other(c);
	if (err && c->handed_over)
		replace_end(map, &c->id, true);
	if (err && map->size > before)
		resize_mapping(map, before);
	c->handed_over = !err;
	return err;
}

static int begin_keep(struct mapping *map, struct change *c)
{
	const struct backing *now;
	int err = replace_keep(map, &c->other);

	if (err)
		return err;
	now = &map->backings[map->current];
	/* The sync in replace_keep may have closed the only store that had to be replaced. */
	if (!io_is(now->store, &c->id))
		return open_other(c);
	c->want.store = io_hold(now->store);
	c->want.moved = c->want.offset != now->offset;
	return 0;
}

/* Finds errors now that would appear later, when the change is more difficult to undo. */
static int check_range(struct mapping *map, const struct change *c)
{
	struct lock *lock;
	int err;

	if (map_pinned_bytes(map))
		return fail(EBUSY, "cannot change the mapping of '%s': part of it is pinned. Try "
			    "umunpin first", map->name);
	err = lock_range(map, map->backings[map->current].store, c->want.offset, c->want.size,
			 &lock);
	lock_drop(lock);
	return err;
}

/* Begins to replace a store of the mapping by another one that stores in the same file. */
static int begin_replacing(struct mapping *map, struct change *c, int sync)
{
	int err = check_range(map, c);

	if (err)
		return err;
	c->synced = !c->want.switch_over || sync & UMMAP_SYNC;
	return c->want.switch_over ? begin_switch(map, c, sync) : begin_keep(map, c);
}

/* Whether a mapping can use the descriptor. If not, the caller opens it to get the message. */
static bool is_usable(int fd, bool writable)
{
	int access = fcntl(fd, F_GETFL);

	return access >= 0 && !(access & O_PATH) &&
	       ((access & O_ACCMODE) == O_RDWR || (!writable && (access & O_ACCMODE) == O_RDONLY));
}

/* Sets want.store, which the caller must close. */
static int find_store(struct mapping *map, struct change *c, int sync)
{
	uint64_t oldest, newest;
	struct store *known;
	int err = io_identify(c->other.uri, c->other.fd, &c->id);

	if (err)
		return err;
	known = replace_find(map, &c->id);
	/* The key wal.commit takes effect when the store is opened. */
	if (known && c->want.switch_over && io_epoch(known, &oldest, &newest) == 0)
		known = NULL;
	if (known && c->other.fd >= 0 && !is_usable(c->other.fd, map->writable))
		err = open_other(c);
	else if (known)
		c->want.store = io_hold(known);
	else if (replace_is_needed(map, &c->id))
		err = begin_replacing(map, c, sync);
	else
		err = open_other(c);
	/* A store that is not a file can only be compared by its handle. */
	for (unsigned i = 0; i < SEG_BACKINGS && !err && !c->handed_over; i++) {
		known = map->backings[i].store;
		if (known && known != c->want.store && io_is_like(known, c->want.store)) {
			io_close(c->want.store);
			c->want.store = io_hold(known);
		}
	}
	return err;
}

/* Closes the store of the change before the mapping uses its own handle again. */
static void end_change(struct mapping *map, struct change *c)
{
	io_close(c->want.store);
	if (c->handed_over)
		replace_end(map, &c->id, true);
	identity_free(&c->id);
}

/* Applies the change, of which want.store is open. */
static int apply_change(struct mapping *map, struct change *c, int sync)
{
	struct remap *want = &c->want;
	struct backing *now;
	int err = lock_range(map, want->store, want->offset, want->size, &want->lock);

	if (!err && sync & UMMAP_SYNC && !c->synced)
		err = sync_all(map);
	if (!err)
		err = remap_apply(map, want);
	if (err) {
		lock_drop(want->lock);
		return err;
	}
	now = &map->backings[map->current];
	lock_drop(now->lock);
	now->lock = want->lock;
	if (c->handed_over)
		replace_end(map, &c->id, false);
	c->handed_over = false;
	return pagecache_prepare(map);
}

static int change_mapping(struct mapping *map, size_t size, const struct store_name *to,
			  off_t offset, int sync)
{
	const struct backing *now = &map->backings[map->current];
	bool named = to->uri || to->fd >= 0;
	struct change c = { .want = { .store = now->store,
				      .offset = offset == -1 ? now->offset : (uint64_t)offset,
				      .size = size ? size : map->size,
				      .switch_over = sync & UMMAP_SWITCH } };
	int err;

	c.want.moved = named || c.want.offset != now->offset;
	err = check_remap(map, &c.want, sync);
	if (err)
		return err;
	c.other = (struct replacement){ .uri = to->uri || to->fd < 0 ? to->uri : driver_for(to->fd),
					.fd = to->uri ? -1 : to->fd,
					.id = &c.id,
					.offset = c.want.offset,
					.oflags = open_flags(map) };
	if (to->uri && !c.want.switch_over)
		c.other.oflags |= UMMAP_O_CREATE;
	if (named)
		err = find_store(map, &c, sync);
	else
		io_hold(now->store);
	if (err) {
		identity_free(&c.id);
		return err;
	}
	err = apply_change(map, &c, sync);
	end_change(map, &c);
	return err;
}

static int remap_to(void *old_addr, const struct store_name *to, size_t size, off_t offset,
		    int sync, void **new_addr)
{
	struct guard g;
	struct mapping *map;
	int err;

	api_enter(&g);
	if (!new_addr || (*new_addr && *new_addr != old_addr))
		return api_leave(&g, fail(EINVAL, "cannot change the mapping: new_addr does not "
					  "point to NULL or to the old address"));
	if (offset < -1)
		return api_leave(&g, fail(EINVAL, "cannot change the mapping: the offset %lld is "
					  "negative", (long long)offset));
	if (to->fd < -1)
		return api_leave(&g, fail(EBADF, "cannot change the mapping: %d is not a "
					  "descriptor", to->fd));
	if (sync & UMMAP_SYNC)
		api_write_changes(&g, old_addr, 0);
	map = map_find_alone(old_addr);
	if (!map)
		return api_leave(&g, api_fail_no_mapping(old_addr));
	err = change_mapping(map, size, to, offset, sync);
	if (!err) {
		*new_addr = map->range;
		if (to->uri || to->fd >= 0)
			map_name(map, to->uri, to->fd);
	}
	map_thaw(map);
	map_leave(map);
	return api_leave(&g, err);
}

int umremap(void *old_addr, size_t size, int fd, off_t offset, int sync, void **new_addr)
{
	struct store_name to = { .fd = fd };

	return remap_to(old_addr, &to, size, offset, sync, new_addr);
}

int umremap_open(void *old_addr, const char *uri, size_t size, off_t offset, int sync,
		 void **new_addr)
{
	struct store_name to = { .uri = uri, .fd = -1 };

	return remap_to(old_addr, &to, size, offset, sync, new_addr);
}

/* ---- Other calls ---- */

int umstart(void)
{
	struct guard g;

	api_enter(&g);
	return api_leave(&g, start_library());
}

int umstat(const void *addr, struct umstat *st)
{
	struct umstat full;
	struct guard g;
	struct mapping *map;
	uint64_t size;

	api_enter(&g);
	if (!st || st->struct_size < sizeof(size) || st->struct_size > 4096)
		return api_leave(&g, fail(EINVAL, "cannot read the counters: st is NULL, or "
					  "st->struct_size is not sizeof(struct umstat)"));
	memset(&full, 0, sizeof(full));
	if (addr) {
		map = map_find(addr);
		if (!map)
			return api_leave(&g, fail(EINVAL, "cannot find a mapping that contains %p",
						  addr));
		stats_map(map, &full);
		map_leave(map);
	} else {
		stats_process(&full);
	}
	size = st->struct_size;
	memcpy(st, &full, min_size(size, sizeof(full)));
	st->struct_size = size;
	return api_leave(&g, 0);
}

int umonerror(void (*fn)(void *addr, int error))
{
	fail_clear();
	fault_onerror(fn);
	return 0;
}

int umonstore(int (*fn)(void *addr))
{
	fail_clear();
	fault_onstore(fn);
	return 0;
}

const char *umerrormsg(void)
{
	return fail_message();
}

int umseterror(int error, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	fail_with(error, format, args);
	va_end(args);
	errno = error;
	return -1;
}

int umfault(int sig, void *info, void *context)
{
	return info && context && sigsegv_serve(sig, info, context);
}
