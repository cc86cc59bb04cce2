/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Loads segments of a node copy. A load reads into a buffer of this process, and the pages appear
 * in the copy as a whole, because a process that finds a page there does not fault. Locks: the
 * words of segments (nodecopy/table.h), and one of the buffers.
 *
 * Memory. The budgets of the holders of a copy count its bytes in equal parts, so the memory group
 * counts them once. Each holder gives the copy its part and what its own budget has left. The sum
 * of all gifts is the budget of the copy. The background thread of each process adjusts its gift;
 * a load that evicts a segment asks it to do so.
 */
#include "paging/mapping/shared_copy.h"

#include "base/config.h"
#include "base/log.h"
#include "base/worker.h"
#include "budget/budget.h"
#include "budget/share.h"
#include "common/stamp.h"
#include "engine/engine.h"
#include "io/identity.h"
#include "io/io.h"
#include "nodecopy/nodecopy.h"
#include "paging/mapping/inplace.h"
#include "paging/mapping/lookup.h"
#include "paging/residency/readahead.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>


struct shared_copy {
	struct nodecopy node;
	char *buffers;                 /* COPY_BUFFERS times load_bytes */
	size_t load_bytes;
	_Atomic uint32_t used;         /* a bit for each buffer that is in use */
	_Atomic uint32_t freed;        /* changes when a buffer becomes free */
	_Atomic size_t expected, ahead; /* first and last segment of the next fault, if accesses are
					   in order: jobs load those before `ahead` */
	_Atomic unsigned window;       /* segments of the last load in order; 0: not in order */
	_Atomic unsigned holders;      /* copy_adjust: processes that have the copy */
	_Atomic size_t part;           /* copy_adjust: bytes of it that count in this process */
	uint64_t excess_since;         /* copy_adjust: since when it exceeds its budget; 0: not */
};

static _Atomic size_t open_copies; /* number of mappings of copies in this process */

/* ---- The key ---- */

/* Loads begin when a later change sets another time stamp. */
static int stat_store(const char *path, int fd, struct stat *st)
{
	int64_t doubt;

	for (int i = 0; i < 2; i++) {
		if ((fd < 0 ? stat(path, st) : fstat(fd, st)) < 0)
			return -errno;
		doubt = stamp_doubt(st->st_ctim.tv_sec, st->st_ctim.tv_nsec);
		if (doubt <= 0)
			break;
		usleep((unsigned)(doubt / 1000 + 1));
	}
	return 0;
}

/* Whether a URI has one driver: behind filters, the bytes may change though the file does not. */
static bool has_filters(const struct identity *id)
{
	const char *end = strchr(id->way, ')');

	return !end || end[1];
}

int copy_identify(const char *uri, int fd, uint64_t offset, size_t size, size_t seg_size,
		  struct copy_key *key)
{
	struct identity id;
	struct stat st;
	const char *path = NULL;
	int err = io_identify(uri, fd, &id), len;

	if (err)
		return err;
	key->text[0] = 0;
	if (has_filters(&id))
		err = fail(EOPNOTSUPP, "cannot use UMMAP_NODE: behind a filter, the bytes may "
			   "change though the store does not. Try the URI without filters");
	if (err || !id.file[1]) {
		identity_free(&id);
		return err;
	}
	if (fd < 0)
		path = strrchr(id.end, ')') + 1;
	err = stat_store(path, fd, &st);
	if (!err && !S_ISREG(st.st_mode))
		err = fail(EOPNOTSUPP, "cannot use UMMAP_NODE: the store is not a regular file");
	if (!err) {
		len = snprintf(key->text, sizeof(key->text), "%s %ju:%ju %jd %jd.%09ld %jd.%09ld "
			       "%" PRIu64 "+%zu/%zu", id.way, (uintmax_t)st.st_dev,
			       (uintmax_t)st.st_ino, (intmax_t)st.st_size,
			       (intmax_t)st.st_mtim.tv_sec, st.st_mtim.tv_nsec,
			       (intmax_t)st.st_ctim.tv_sec, st.st_ctim.tv_nsec, offset, size,
			       seg_size);
		if (len >= (int)sizeof(key->text))
			err = fail(ENAMETOOLONG, "cannot use UMMAP_NODE: the keys of the URI are "
				   "too long");
	}
	identity_free(&id);
	return err;
}

int copy_identify_remote(const struct mapping *map, struct copy_key *key)
{
	const struct backing *t = &map->backings[map->current];
	const struct ummap_geom *geom = io_geom(t->store);

	if (!io_is_remote(t->store) || !geom->id[0])
		return fail(EOPNOTSUPP, "cannot use UMMAP_NODE: the store '%s' is neither a file "
			    "nor has a version, so a change of it could not be noticed. Try the "
			    "drivers posix, uring and http", map->name);
	snprintf(key->text, sizeof(key->text), "remote %" PRIx64 ":%" PRIx64 " %" PRIu64
		 "+%zu/%zu", geom->id[0], geom->id[1], t->offset, map->size, map->seg_size);
	return 0;
}

/* ---- Joining ---- */

static int make_buffers(struct mapping *map, struct shared_copy *c)
{
	c->load_bytes = max_size(map->seg_size, min_size(MAX_COPY_LOAD_BYTES, config.readahead));
	c->load_bytes = round_up(c->load_bytes, map->seg_size);
	c->buffers = sys_map_anonymous(COPY_BUFFERS * c->load_bytes);
	return c->buffers ? 0 : fail(ENOMEM, "cannot use UMMAP_NODE: no address space for the "
				     "buffers of loads. Try a larger RLIMIT_AS (ulimit -v)");
}

static void free_copy(struct shared_copy *c)
{
	if (c->buffers)
		raw_munmap(c->buffers, COPY_BUFFERS * c->load_bytes);
	free(c);
}

static int join(struct mapping *map, struct shared_copy *c, const struct copy_key *key)
{
	const struct nodecopy_table *t;
	size_t len = round_up(map->size, sys_page());
	int err = nodecopy_join(&c->node, key->text, map->segs, map->seg_size,
				account_most(map_account(map)));

	if (err)
		return err;
	t = c->node.view.table;
	sys_forget_failure();
	err = map->engine->share(map->range, len, c->node.memory, (int64_t)t->data_at);
	if (err) {
		engine_fail(map->engine, "share the memory of the node copy", err);
		engine_reset(map->engine, map->range, len, map->writable);
		nodecopy_leave(&c->node);
	}
	return err;
}

/* A write(2) sets the time stamps when it begins. File systems lock a file during a write, and some
 * of them during a search for data, too, but not during a read. A search behind the end therefore
 * waits for the writes that have set the stamps of the key, and returns at once otherwise. */
static void wait_for_writes(const struct mapping *map)
{
	io_is_hole(map->backings[map->current].store, INT64_MAX, 1);
}

int copy_enter(struct mapping *map, const struct copy_key *key)
{
	struct shared_copy *c = calloc(1, sizeof(*c));
	int err = c ? make_buffers(map, c) : fail(ENOMEM, "cannot use UMMAP_NODE: no memory");

	if (!err) {
		wait_for_writes(map);
		err = join(map, c, key);
	}
	if (err) {
		if (c)
			free_copy(c);
		return err;
	}
	/* Until the background thread knows the copy. */
	nodecopy_give(&c->node, budget_gift(0, ++open_copies));
	c->expected = SIZE_MAX;
	map->copy = c;
	map->in_place = true;
	log_line(LOG_INFO, "inplace", "the store '%s' is mapped at %p from the node copy '%s'",
		 map->name, (void *)map->range, c->node.path);
	return 0;
}

void copy_leave(struct mapping *map)
{
	struct shared_copy *c = map->copy;

	map->copy = NULL;
	open_copies--;
	nodecopy_leave(&c->node);
	free_copy(c);
}

void copy_forget(struct mapping *map)
{
	if (map->copy)
		nodecopy_forget(&map->copy->node);
	open_copies = 0;
}

/* ---- Budget ---- */

/* Segments in excess are evicted when the excess has lasted: a process that joins has a part of the
 * copy before it has a budget. */
static void trim_excess(struct shared_copy *c)
{
	const struct nodecopy_table *t = c->node.view.table;
	uint64_t now = sys_now();

	if (nodecopy_count(t) <= t->limit)
		c->excess_since = 0;
	else if (!c->excess_since)
		c->excess_since = now;
	else if (now - c->excess_since >= COPY_EXCESS_MS)
		nodecopy_trim(&c->node.view);
}

void copy_count_parts(void)
{
	struct mapping *map;
	size_t sum = 0;

	if (!open_copies && !budget_copies())
		return;
	for (size_t n = 0; (map = map_nth(n)); n++) {
		struct shared_copy *c = map->copy;

		if (c) {
			c->holders = nodecopy_holders(&c->node);
			c->part = nodecopy_bytes(&c->node) / c->holders;
			sum += c->part;
		}
		map_leave(map);
	}
	budget_set_copies(sum);
}

unsigned copy_adjust(void)
{
	size_t count = open_copies;
	struct mapping *map;

	if (!count)
		return ROUND_PERIOD_MS;

	for (size_t n = 0; (map = map_nth(n)); n++) {
		struct shared_copy *c = map->copy;

		if (c) {
			nodecopy_give(&c->node, budget_gift(c->part, count));
			trim_excess(c);
		}
		map_leave(map);
	}
	return share_is_dynamic() ? COPY_ADJUST_MS : ROUND_PERIOD_MS;
}

/* ---- Loads ---- */

static unsigned take_buffer(struct shared_copy *c)
{
	for (;;) {
		uint32_t seen = c->freed, used = c->used;
		unsigned k = (unsigned)__builtin_ctz(~used);

		if (k >= COPY_BUFFERS)
			futex_wait(&c->freed, seen, 100);
		else if (atomic_compare_exchange_strong(&c->used, &used, used | 1u << k))
			return k;
	}
}

static void give_buffer(struct shared_copy *c, unsigned k)
{
	c->used &= ~(1u << k);
	c->freed++;
	futex_wake(&c->freed, 1);
}

/* The number of segments that a load for a fault on segment i reads if faults are in order; 0: they
 * are not. A fault in the segments that jobs load continues the order. */
static size_t choose_window(struct mapping *map, size_t i)
{
	struct shared_copy *c = map->copy;
	/* Segments that are loaded ahead must not evict one another. */
	size_t most = min_size(c->load_bytes >> map->shift,
			       c->node.view.table->slots / (4 * (1 + COPY_JOBS)));

	if (!readahead_is_wanted(map))
		c->window = 0;
	else if (readahead_is_in_order(map))
		c->window = (unsigned)most;
	else if (i >= c->expected && i <= c->ahead)
		c->window = (unsigned)min_size(2 * (size_t)c->window + 1, most);
	else
		c->window = 0;
	return c->window;
}

/* Claims the segments after segment i, which is claimed, as long as the copy has none of them and
 * no other process loads them. Returns the number of claimed segments. */
static size_t claim_more(struct mapping *map, size_t i, size_t window)
{
	const struct nodecopy_view *view = &map->copy->node.view;
	size_t n = 1;

	window = min_size(window, map->segs - i);
	while (n < window && nodecopy_claim(view, i + n, LOAD_IN_ORDER, false) == CLAIM_LOAD)
		n++;
	return n;
}

static int read_segments(struct mapping *map, size_t i, size_t n, char *buf)
{
	const struct backing *t = &map->backings[map->current];
	size_t slots = map_slots_len(map, i, (unsigned)n);
	size_t len = min_size(n << map->shift, map->size - (i << map->shift));
	struct ummap_io io = { .op = UMMAP_IO_READ, .buf = buf, .len = len,
			       .off = t->offset + ((uint64_t)i << map->shift), .owner = map };

	memset(buf + len, 0, slots - len);
	io_run(t->store, &io, 1, false, &map->stat.io);
	return io.res;
}

/* Reads and fills n claimed segments. */
static int load(struct mapping *map, size_t i, size_t n)
{
	struct shared_copy *c = map->copy;
	unsigned k = take_buffer(c);
	char *buf = c->buffers + k * c->load_bytes;
	int err = read_segments(map, i, n, buf);

	if (!err)
		err = map->engine->fill(map_slot(map, i), buf, map_slots_len(map, i, (unsigned)n));
	give_buffer(c, k);
	return err;
}

/* Whether a load evicts no segment. Otherwise, asks for a larger budget. */
static bool has_room(const struct mapping *map)
{
	if (!nodecopy_is_full(map->copy->node.view.table))
		return true;
	share_ask_growth();
	return false;
}

static void load_claimed(struct mapping *map, size_t i, size_t n)
{
	nodecopy_done(&map->copy->node.view, i, n, load(map, i, n) == 0);
}

/* Loads segments from segment i on, unless the copy has them or other threads load them. In b:
 * their number, and the clock of the copy when the job was posted. If a segment was evicted since
 * then, the job is late: the processes have read that segment. */
static void load_job(void *arg, uint64_t i, uint64_t b)
{
	struct mapping *map = arg;
	size_t end = i + (uint32_t)b, count;

	for (; i < end && !map_is_frozen(map); i += count) {
		count = 1;
		if (nodecopy_evicted_since(map->copy->node.view.table, i, (uint32_t)(b >> 32)))
			break;
		if (nodecopy_claim(&map->copy->node.view, i, LOAD_IN_ORDER, false) == CLAIM_LOAD) {
			count = claim_more(map, i, end - i);
			load_claimed(map, i, count);
		}
	}
	map_leave(map);
}

/* After a fault on segment i that is in order, jobs load what comes after its window. Other threads
 * may post the same jobs, which then find the segments there. */
static void load_ahead(struct mapping *map, size_t i, size_t window)
{
	struct shared_copy *c = map->copy;
	size_t end = min_size(i + (1 + COPY_JOBS) * window, map->segs), n;
	size_t at = max_size(i >= c->expected ? c->ahead : 0, i + window);
	uint64_t clock = c->node.view.table->queues.clock;

	c->expected = i + 1;
	for (; at < end; at += n) {
		n = min_size(window, end - at);
		map_use(map);
		if (!worker_post(load_job, map, at, clock << 32 | n)) {
			map_leave(map);
			break;
		}
	}
	c->ahead = max_size(at, i + window);
}

int copy_load(struct mapping *map, size_t i)
{
	size_t window = choose_window(map, i), n;
	enum nodecopy_load why = window ? LOAD_IN_ORDER : LOAD_AT_RANDOM;
	int err;

	if (window)
		load_ahead(map, i, window);
	else
		map->copy->expected = map->copy->ahead = i + 1;
	if (nodecopy_claim(&map->copy->node.view, i, why, true) == CLAIM_RESIDENT)
		return 0;
	add(map->stat.read_faults, 1);
	has_room(map);
	n = claim_more(map, i, max_size(window, 1));
	err = load(map, i, n);
	if (err && n > 1) {
		/* The error may be of another segment than the one that is needed. */
		nodecopy_done(&map->copy->node.view, i + 1, n - 1, false);
		n = 1;
		err = load(map, i, n);
	}
	nodecopy_done(&map->copy->node.view, i, n, !err);
	return err;
}

/* ---- Prefetching and pins ---- */

bool copy_lacks(const struct mapping *map, size_t i)
{
	return !nodecopy_has(map->copy->node.view.table, i);
}

size_t copy_prefetch_room(const struct mapping *map)
{
	const struct nodecopy_table *t = map->copy->node.view.table;

	return max_size(subtract_size(t->slots, nodecopy_count(t)), t->slots / COPY_PREFETCH_PART);
}

bool copy_await_room(const struct mapping *map, size_t taken)
{
	size_t limit = map->copy->node.view.table->limit;

	for (unsigned tries = 0; tries < COPY_GROW_TRIES && !map_is_frozen(map); tries++) {
		if (has_room(map) || taken < limit / COPY_PREFETCH_PART)
			return true;
		usleep(COPY_GROW_US);
	}
	return false;
}

void copy_prefetch(struct mapping *map, const size_t *list, size_t n)
{
	const struct nodecopy_view *view = &map->copy->node.view;
	size_t most = map->copy->load_bytes >> map->shift, count;

	for (size_t k = 0; k < n; k += max_size(count, 1)) {
		count = 0;
		while (count < min_size(n - k, most) && list[k + count] == list[k] + count &&
		       nodecopy_claim(view, list[k + count], LOAD_PREFETCH, false) == CLAIM_LOAD)
			count++;
		if (count)
			load_claimed(map, list[k], count);
	}
}

int copy_pin(struct mapping *map, size_t i)
{
	const struct nodecopy_view *view = &map->copy->node.view;
	int err = 0;

	if (!nodecopy_pin(view, i))
		return -ENOMEM;
	while (!err && !nodecopy_keeps(view, i))
		err = copy_load(map, i);
	if (err)
		nodecopy_unpin(view, i);
	return err;
}

void copy_unpin(const struct mapping *map, size_t i)
{
	nodecopy_unpin(&map->copy->node.view, i);
}

size_t copy_part(const struct mapping *map)
{
	return map->copy->part;
}

unsigned copy_sharers(const struct mapping *map)
{
	return map->copy->holders;
}

void copy_count(const struct mapping *map, uint64_t *resident, uint64_t *budget)
{
	const struct nodecopy_table *t = map->copy->node.view.table;

	*resident = nodecopy_count(t) << map->shift;
	*budget = t->limit << map->shift;
}
