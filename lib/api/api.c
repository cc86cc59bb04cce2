/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The public calls on whole mappings: check the arguments, call a room, turn -errno into errno. While a call works, signals
 * that have handlers are blocked and the thread cannot be cancelled, because it may hold locks of segments. What may take long
 * is done by parts before. See ummap(7).
 */
#include "api/api.h"

#include "memory/budget.h"
#include "engine/chain.h"
#include "base/config.h"
#include "api/core.h"
#include "paging/fault.h"
#include "paging/ending.h"
#include "engine/engine.h"
#include "cache/group.h"
#include "paging/inplace.h"
#include "paging/lock.h"
#include "base/log.h"
#include "paging/map.h"
#include "io/plugin.h"
#include "api/remap.h"
#include "paging/segment.h"
#include "api/stats.h"
#include "io/vars.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

/* Segments up to this size cost less by userfaultfd than by SIGSEGV. */
#define SMALL_SEG ((size_t)16 << 10)
/* More room beside a mapping than there are addresses. */
#define BESIDE_MAX ((size_t)1 << 60)
/* Frames come in arenas of at least 16, which have to fit the address space. */
#define SEG_SIZE_MAX ((size_t)1 << 38)
#define FLAGS (UMMAP_CREATE | UMMAP_KERNEL | UMMAP_SHARED | UMMAP_BLANK | UMMAP_WRITERS | UMMAP_GROWS)

/* What a new mapping is to be; from ummap or ummap_open. */
struct plan {
	const char *uri;      /* of the store; with fd, of the driver */
	int fd;               /* -1: by uri */
	size_t size;
	off_t offset;
	int prot;
	struct ummap_attr attr;
	bool small;           /* it was asked for segments that are */
	bool writers;         /* others write to its bytes, too */
	const struct engine *engine;
};

void api_enter(struct guard *g)
{
	guard_enter(g);
	fail_clear();
	chain_keep();
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

/* One part; false: it was the last one. */
static bool write_part(const void *addr, size_t len, size_t *at)
{
	struct map *map = map_get(addr);
	size_t from, first, last;
	bool more;

	/* Whoever comes next says so. */
	if (!map)
		return false;
	from = (size_t)((const char *)addr - map->set.view);
	first = from >> map->set.shift;
	last = len && len < map->set.size - from ? ((from + len - 1) >> map->set.shift) + 1 : map->set.segs;
	*at = max_size(*at, first);
	more = (len || !from) && map_write_some(map, at, last);
	set_put(&map->set);
	return more;
}

void api_write(struct guard *g, const void *addr, size_t len)
{
	size_t at = 0;

	while (write_part(addr, len, &at)) {
		guard_leave(g);
		guard_enter(g);
	}
}

int api_no_mapping(const void *addr)
{
	return fail(EINVAL, "no mapping begins at %p", addr);
}

/* ---- ummap ---- */

static int check_plan(struct plan *p, void **addr)
{
	struct ummap_attr *a = &p->attr;

	if (!addr)
		return fail(EINVAL, "addr is NULL: there is no place for the base address");
	if (p->size == 0)
		return fail(EINVAL, "the size is 0");
	if (a->seg_size == 0)
		a->seg_size = config.seg_size;
	if (a->seg_size < sys_page() || (a->seg_size & (a->seg_size - 1)))
		return fail(EINVAL, "the segment size is %zu: it must be a power of two of at least %zu",
			    a->seg_size, sys_page());
	if (p->prot != PROT_READ && p->prot != (PROT_READ | PROT_WRITE))
		return fail(EINVAL, "prot is %d: it must be PROT_READ or PROT_READ | PROT_WRITE", p->prot);
	if (p->offset < 0)
		return fail(EINVAL, "the offset is %lld: it must not be negative", (long long)p->offset);
	if (p->size > (size_t)INT64_MAX || a->seg_size > (size_t)INT64_MAX ||
	    p->size > (size_t)INT64_MAX - a->seg_size || p->size > (size_t)(INT64_MAX - p->offset))
		return fail(EOVERFLOW, "offset %lld + size %zu is more than a file can have",
			    (long long)p->offset, p->size);
	p->small = a->seg_size <= SMALL_SEG;
	/* A segment larger than the mapping would only waste memory. */
	while (a->seg_size / 2 >= p->size && a->seg_size > sys_page())
		a->seg_size /= 2;
	if (a->flush_interval < 0)
		return fail(EINVAL, "flush_interval is %d: it must be a number of seconds, or 0 for never", a->flush_interval);
	if (!a->policy && !plugin_ptype(a->ptype))
		return fail(EINVAL, "there is no policy %d: it must be one of UMMAP_PTYPE_*", a->ptype);
	if (a->flags & ~FLAGS)
		return fail(EINVAL, "flags has bits that mean nothing: %#x", a->flags & ~FLAGS);
	p->writers = p->prot & PROT_WRITE && (config.writers || a->flags & UMMAP_WRITERS);
	if (p->writers && a->flags & UMMAP_BLANK)
		return fail(EINVAL, "what was not written cannot read as zeros where others write, too: UMMAP_BLANK, or "
			    "read_file 0, does not go with UMMAP_WRITERS");
	if (a->flags & UMMAP_SHARED && a->seg_size > FRAME_SHARED_MAX)
		return fail(EINVAL, "segments of %zu bytes cannot be reached by others: at most %zu", a->seg_size,
			    FRAME_SHARED_MAX);
	if (a->before % sys_page() || a->after % sys_page())
		return fail(EINVAL, "there are to be %zu bytes before and %zu after the mapping: they must be multiples of %zu",
			    a->before, a->after, sys_page());
	if (a->before > BESIDE_MAX || a->after > BESIDE_MAX)
		return fail(ENOMEM, "there is no address space for %zu bytes before and %zu after the mapping", a->before,
			    a->after);
	if (a->engine < UMMAP_ENGINE_DEFAULT || a->engine > UMMAP_ENGINE_UFFD)
		return fail(EINVAL, "there is no engine %d: it must be one of UMMAP_ENGINE_*", a->engine);
	if (a->seg_size > min_size(SEG_SIZE_MAX, budget_ram() / FRAMES_MIN))
		return fail(ENOMEM, "segments of %zu bytes cannot be held in memory, which has %zu, %d at a time", a->seg_size,
			    budget_ram(), FRAMES_MIN);
	return 0;
}

/* How its stores are opened. */
static int writing(const struct set *set)
{
	return (set->writable ? UMMAP_O_WRITE : 0) | (set->writers ? UMMAP_O_WRITERS : 0);
}

/* Others are kept from the bytes that the mapping may write, if it is one that others could spoil. */
static int lock_range(const struct set *set, struct store *store, uint64_t offset, size_t size, struct lock **lock)
{
	*lock = NULL;
	return set->writable ? lock_take(set, store, offset, size, set->writers, lock) : 0;
}

static int open_store(const struct plan *p, const struct set *set, struct store **store)
{
	int oflags = writing(set) |
		     (p->attr.flags & UMMAP_CREATE ? UMMAP_O_CREATE : 0);

	if (p->fd >= 0)
		return io_open_fd(p->uri, p->fd, oflags, store);
	return io_open(p->uri, oflags, store);
}

/* A store that is made is as long as it was asked to be, without taking room. */
static int make_length(const struct plan *p, struct store *store)
{
	uint64_t end = (uint64_t)p->offset + p->size;
	int err;

	if (!(p->prot & PROT_WRITE) || (p->attr.flags & (UMMAP_CREATE | UMMAP_GROWS)) != UMMAP_CREATE)
		return 0;
	err = io_lengthen(store, end);
	return err ? fail(-err, "the store cannot be made %llu bytes long: %s; with UMMAP_GROWS it grows as it is written",
			  (unsigned long long)end, strerror(-err)) : 0;
}

static int open_target(const struct plan *p, const struct set *set, struct target *t)
{
	int err = open_store(p, set, &t->store);

	if (err)
		return err;
	t->offset = (uint64_t)p->offset;
	t->read = !(p->attr.flags & UMMAP_BLANK);
	err = lock_range(set, t->store, t->offset, set->size, &t->lock);
	if (err)
		io_close(t->store);
	return err;
}

static void close_target(struct target *t)
{
	lock_drop(t->lock);
	io_close(t->store);
	*t = (struct target){ .store = NULL };
}

static int make_target(const struct plan *p, const struct set *set, struct target *t)
{
	int err = open_target(p, set, t);

	if (err)
		return err;
	err = make_length(p, t->store);
	if (err)
		close_target(t);
	return err;
}

/* Everything of a mapping but its place in the table; undoes itself. */
static int build(struct map *map, const struct plan *p)
{
	struct set *set = &map->set;
	int err;

	set->size = p->size;
	set->seg_size = p->attr.seg_size;
	set->writable = p->prot & PROT_WRITE;
	set->writers = p->writers;
	err = make_target(p, set, &set->targets[0]);
	if (err)
		return err;
	map->flush_interval = p->attr.flush_interval;
	map->blank = p->attr.flags & UMMAP_BLANK;
	set->bulk = config.bulk_sync;
	set->engine = p->engine;
	set->shared = p->attr.flags & UMMAP_SHARED;
	set->stored = remap_stored(set->targets[0].store, set->targets[0].offset, set->size);
	err = set_create(set);
	if (!err) {
		set->member.piece = set_piece(set);
		set->member.least = FRAMES_MIN * set_hold(set);
		set->view = engine_attach(set->engine, set->size, set->seg_size, p->attr.before, p->attr.after);
		err = set->view ? group_join(&set->member, &p->attr, set->seg_size) :
				  fail(ENOMEM, "there is no address space for %zu bytes",
				       p->attr.before + set->size + p->attr.after);
		if (err) {
			if (set->view)
				engine_detach(set->engine, set->view, set->size);
			set_destroy(set);
		}
	}
	if (err)
		close_target(&set->targets[0]);
	return err;
}

/* Gives back all that a mapping has; it is not in the table (any more), and nobody uses it. */
static void demolish(struct map *map)
{
	struct set *set = &map->set;

	seg_hide(set);
	ending_forget(set, 0);
	seg_show(set);
	/* A fault on another mapping may have found one of our segments, and posted a job for it. */
	set_quiesce(set);
	group_leave(&set->member);
	engine_detach(set->engine, set->view, set->size);
	set_destroy(set);
	map_close_old(map);
	close_target(&set->targets[set->current]);
}

/* What is beside a mapping is the caller's, but nobody hears of it if the mapping does not come about. */
static void drop_beside(const struct map *map, const struct ummap_attr *attr)
{
	if (map->set.view && attr->before)
		munmap(map->set.view - attr->before, attr->before);
	if (map->set.view && attr->after)
		munmap(map->set.view + round_up(map->set.size, sys_page()), attr->after);
}

/* For a descriptor, where nobody has said which. */
static const char *driver_for(int fd)
{
	const struct ummap_driver *pmem;

	if (config.driver || !inplace_suits(fd))
		return config.driver;
	pmem = plugin_driver("pmem");
	return pmem && pmem->map ? pmem->scheme : config.driver;
}

static int choose_engine(struct plan *p)
{
	struct engine_wish wish = { .wanted = p->attr.engine, .kernel = p->attr.flags & UMMAP_KERNEL,
				    .shared = p->attr.flags & UMMAP_SHARED, .small = p->small,
				    .writable = p->prot & PROT_WRITE };

	return engine_choose(&wish, &p->engine);
}

static int make_mapping(struct plan *p, void **addr)
{
	struct map *map;
	int err = core_start();

	if (!err)
		err = check_plan(p, addr);
	if (!err)
		err = choose_engine(p);
	if (err)
		return err;
	if (!p->uri)
		p->uri = driver_for(p->fd);
	map = map_alloc();
	if (!map)
		return fail(ENOMEM, "no memory for a mapping");
	map_name(map, p->uri, p->fd);
	err = build(map, p);
	if (!err) {
		err = inplace_enter(&map->set);
		if (!err && map->set.in_place && map->set.shared)
			err = fail(EOPNOTSUPP, "UMMAP_SHARED is for segments, but the store is mapped in place: others can "
				   "map it themselves");
		if (!err && !map->set.in_place)
			err = core_prepare(&map->set);
		if (!err)
			err = map_insert(map);
		if (err)
			demolish(map);
	}
	if (err) {
		drop_beside(map, &p->attr);
		map_free(map);
		return err;
	}
	if (!map->set.in_place)
		core_note_mapping(&map->set);
	*addr = map->set.view;
	return 0;
}

int ummap(size_t size, size_t seg_size, int prot, int fd, off_t offset,
	  int flush_interval, int read_file, int ptype, void **addr)
{
	struct plan p = { .fd = fd, .size = size, .offset = offset, .prot = prot, .attr = UMMAP_ATTR_INIT };
	struct guard g;
	int err;

	p.attr.seg_size = seg_size;
	p.attr.flush_interval = flush_interval < 0 ? 0 : flush_interval == 0 ? 1 : flush_interval;
	p.attr.flags = read_file ? 0 : UMMAP_BLANK;
	p.attr.ptype = ptype;
	api_enter(&g);
	err = fd < 0 ? fail(EBADF, "%d is no descriptor", fd) : make_mapping(&p, addr);
	return api_leave(&g, err);
}

/* Whether there is something behind all fields that are known here. */
static bool wants_more(const struct ummap_attr *attr)
{
	const char *bytes = (const char *)attr;
	size_t i = sizeof(*attr);

	while (i < attr->struct_size && !bytes[i])
		i++;
	return i < attr->struct_size;
}

int ummap_open(const char *uri, size_t size, off_t offset, int prot,
	       const struct ummap_attr *attr, void **addr)
{
	struct plan p = { .uri = uri, .fd = -1, .size = size, .offset = offset, .prot = prot,
			  .attr = UMMAP_ATTR_INIT };
	struct guard g;
	int err = 0;

	api_enter(&g);
	if (!uri)
		err = fail(EINVAL, "the URI is NULL");
	else if (attr && (attr->struct_size < sizeof(size_t) || attr->struct_size > 4096))
		err = fail(EINVAL, "attr->struct_size is %zu: start from UMMAP_ATTR_INIT", attr->struct_size);
	else if (attr && wants_more(attr))
		err = fail(EINVAL, "attr has fields of a later release, which this one does not know: leave them 0");
	/* A program built against an earlier release: fields that it does not know keep their defaults. */
	if (!err && attr)
		memcpy(&p.attr, attr, min_size(attr->struct_size, sizeof(p.attr)));
	if (!err)
		err = make_mapping(&p, addr);
	return api_leave(&g, err);
}

int ummap_setvar(const char *name, const char *value)
{
	struct guard g;

	api_enter(&g);
	return api_leave(&g, vars_set(name, value));
}

/* ---- umunmap, umremap ---- */

int umunmap(void *addr, int sync)
{
	struct guard g;
	struct map *map;
	int err = 0;

	api_enter(&g);
	if (sync)
		api_write(&g, addr, 0);
	map = map_get_alone(addr);
	if (!map)
		return api_leave(&g, api_no_mapping(addr));
	if (sync)
		err = map_sync(map);
	if (!err) {
		map_remove(map);
		demolish(map);
		stats_ending(map);
	}
	set_thaw(&map->set);
	set_put(&map->set);
	if (!err)
		map_free(map);
	return api_leave(&g, err);
}

static int check_remap(const struct map *map, const struct remap *want, int fd, int sync)
{
	const struct set *set = &map->set;

	if (sync & ~(UMMAP_SYNC | UMMAP_SWITCH))
		return fail(EINVAL, "sync is %d: it must be made of UMMAP_SYNC and UMMAP_SWITCH", sync);
	if (want->size > (size_t)INT64_MAX - set->seg_size || want->size > (size_t)(INT64_MAX - want->offset))
		return fail(EOVERFLOW, "offset %llu + size %zu is more than a file can have",
			    (unsigned long long)want->offset, want->size);
	if ((fd >= 0 || want->moved) && !set->writable && !want->switch_over)
		return fail(EACCES, "a read-only mapping cannot carry its contents to a new target: "
			    "use UMMAP_SWITCH");
	return 0;
}

/* One of a mapping's stores by another handle is that one: the locks that the mapping has of it are the old handle's. */
static void take_known(const struct set *set, struct store **store)
{
	for (unsigned i = 0; i < SEG_TARGETS; i++) {
		struct store *known = set->targets[i].store;

		if (known && known != *store && io_same(known, *store)) {
			io_close(*store);
			*store = io_hold(known);
		}
	}
}

static int remap(struct map *map, size_t size, int fd, off_t offset, int sync)
{
	struct set *set = &map->set;
	const struct target *now = &set->targets[set->current];
	struct remap want = { .store = now->store, .offset = offset == -1 ? now->offset : (uint64_t)offset,
			      .size = size ? size : set->size, .switch_over = sync & UMMAP_SWITCH };
	struct lock *before;
	int err;

	want.moved = fd >= 0 || want.offset != now->offset;
	err = check_remap(map, &want, fd, sync);
	if (!err && fd >= 0)
		err = io_open_fd(driver_for(fd), fd, writing(set), &want.store);
	else if (!err)
		io_hold(want.store);
	if (err)
		return err;
	take_known(set, &want.store);
	err = lock_range(set, want.store, want.offset, want.size, &want.lock);
	if (!err && sync & UMMAP_SYNC)
		err = map_sync(map);
	if (!err)
		err = remap_apply(map, &want);
	before = want.lock;
	if (!err) {
		before = set->targets[set->current].lock;
		set->targets[set->current].lock = want.lock;
	}
	lock_drop(before);
	io_close(want.store);
	return err;
}

int umremap(void *old_addr, size_t size, int fd, off_t offset, int sync, void **new_addr)
{
	struct guard g;
	struct map *map;
	int err;

	api_enter(&g);
	if (!new_addr || (*new_addr && *new_addr != old_addr))
		return api_leave(&g, fail(EINVAL, "*new_addr must be NULL or the old address"));
	if (offset < -1)
		return api_leave(&g, fail(EINVAL, "the offset is %lld: it must not be negative", (long long)offset));
	if (fd < -1)
		return api_leave(&g, fail(EBADF, "%d is no descriptor", fd));
	if (sync & UMMAP_SYNC)
		api_write(&g, old_addr, 0);
	map = map_get_alone(old_addr);
	if (!map)
		return api_leave(&g, api_no_mapping(old_addr));
	err = remap(map, size, fd, offset, sync);
	if (!err) {
		*new_addr = map->set.view;
		if (fd >= 0)
			map_name(map, NULL, fd);
	}
	set_thaw(&map->set);
	set_put(&map->set);
	return api_leave(&g, err);
}

/* ---- The rest ---- */

int umstat(const void *addr, struct umstat *st)
{
	struct umstat full;
	struct guard g;
	struct map *map;
	uint64_t size;

	api_enter(&g);
	if (!st || st->struct_size < sizeof(size) || st->struct_size > 4096)
		return api_leave(&g, fail(EINVAL, "st->struct_size must be sizeof(struct umstat)"));
	memset(&full, 0, sizeof(full));
	if (addr) {
		map = map_get(addr);
		if (!map)
			return api_leave(&g, fail(EINVAL, "no mapping holds %p", addr));
		stats_map(map, &full);
		set_put(&map->set);
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
	fault_onerror(fn);
	return 0;
}

const char *umerrormsg(void)
{
	return fail_message();
}

int umfault(int sig, void *info, void *context)
{
	return sig == SIGSEGV && info && context && chain_serve(info, context);
}
