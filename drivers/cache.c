/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cache - a filter that keeps blocks of a store that is far away in a file that is near: what was read, so that it is read
 * from there again, and what was written, so that it can be written back later (cache_near.h: the file, and why recovery is
 * right; cache_index.h: what is in it, and what goes first; cache_write.c and cache_home.c).
 *
 * The lock of the index is held to look something up, and never while the near file or the far store answers.
 */
#include "cache.h"

#include "keys.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

extern const struct ummap_driver ummap_driver_cache;

#define RUN_MAX ((size_t)8 << 20)      /* of one request that is looked up at once */
#define ROW_MAX 64                     /* slots that are written at once */

/* ---- Trouble ---- */

/* The thread tells it, because this may be a signal handler. */
static void fails(struct cache *c, enum cache_trouble what, int err)
{
	if (atomic_fetch_or(&c->trouble, (uint32_t)what) & what)
		return;
	c->failed[what == CACHE_FAR_FAILS] = abs(err);
	cache_tell(c);
}

void cache_near_failed(struct cache *c, int err)
{
	fails(c, CACHE_NEAR_FAILS, err);
}

void cache_far_was(struct cache *c, int err)
{
	if (err < 0)
		fails(c, CACHE_FAR_FAILS, err);
	else if (c->trouble & CACHE_FAR_FAILS)
		c->trouble &= ~(uint32_t)CACHE_FAR_FAILS;
}

int cache_make_durable(struct cache *c)
{
	int err = cache_pass(&c->near);

	if (err)
		cache_near_failed(c, err);
	else if (c->trouble & CACHE_NEAR_FAILS)
		c->trouble &= ~(uint32_t)CACHE_NEAR_FAILS;
	return err;
}

/* ---- Reading ---- */

struct source {
	uint32_t slot;                 /* CACHE_NO_SLOT: the far store */
	uint32_t slots;                /* that lie side by side, as their blocks do */
	size_t skip;                   /* in the first one */
	size_t len;
};

/* How far the far store has to be asked: until there is a sector in the cache. */
static size_t far_run(struct cache *c, uint64_t off, size_t most)
{
	const struct cache_near *n = &c->near;
	unsigned sectors = 1u << (n->block_shift - n->sector_shift), from = 0;
	uint64_t end = off + most, at = off;

	from = (unsigned)((off >> n->sector_shift) & (sectors - 1));
	for (; at < end; from = 0) {
		uint64_t block = cache_block_of(c, at);
		uint32_t d = cache_find(&n->index, block, true), s = cache_find(&n->index, block, false);
		cache_mask there = (d == CACHE_NO_SLOT ? 0 : cache_valid(&n->index.slot[d])) |
				   (s == CACHE_NO_SLOT ? 0 : cache_valid(&n->index.slot[s]));
		unsigned run = there >> from ? cache_mask_run(there, from, sectors - from) : sectors - from;

		if (there >> from & 1)
			break;
		at = (block << n->block_shift) + ((uint64_t)(from + run) << n->sector_shift);
		if (from + run < sectors)
			break;
	}
	return (size_t)(min_u64(at, end) - off);
}

/* The slot that has a sector of a block; CACHE_NO_SLOT: none. */
static uint32_t slot_with(const struct cache_index *ix, uint64_t block, unsigned sector)
{
	uint32_t s = cache_find(ix, block, true);

	if (s == CACHE_NO_SLOT || !(cache_valid(&ix->slot[s]) >> sector & 1))
		s = cache_find(ix, block, false);
	return s == CACHE_NO_SLOT || !(cache_valid(&ix->slot[s]) >> sector & 1) ? CACHE_NO_SLOT : s;
}

/* Under the lock: where the next bytes are. Slots are pinned. */
static struct source find_source(struct cache *c, uint64_t off, size_t len)
{
	struct cache_index *ix = &c->near.index;
	unsigned shift = c->near.sector_shift, sectors = 1u << (c->near.block_shift - shift);
	size_t skip = off & (((size_t)1 << c->near.block_shift) - 1);
	unsigned sector = (unsigned)(skip >> shift), end;
	uint64_t block = cache_block_of(c, off);
	struct source src = { slot_with(ix, block, sector), 0, skip, 0 };
	uint32_t s = src.slot;

	if (s == CACHE_NO_SLOT) {
		src.len = far_run(c, off, len < RUN_MAX ? len : RUN_MAX);
		return src;
	}
	do {
		end = sector + cache_mask_run(cache_valid(&ix->slot[s]), sector, sectors - sector);
		cache_pin(ix, s);
		cache_hit(ix, s);
		src.slots++;
		src.len = min_u64(len, ((uint64_t)(src.slots - 1) << c->near.block_shift) + ((size_t)end << shift) - skip);
		sector = 0;
		s = src.len < len && end == sectors ? slot_with(ix, block + src.slots, 0) : CACHE_NO_SLOT;
	} while (s != CACHE_NO_SLOT && s == src.slot + src.slots);
	return src;
}

static void unpin(struct cache *c, const struct source *src)
{
	for (uint32_t k = 0; k < src->slots; k++)
		cache_unpin(&c->near.index, src->slot + k);
}

/* Clean sectors that cannot be read are the far store's; false: some are dirty. Slots that are read only in part go as a whole. */
static bool forget_clean(struct cache *c, const struct source *src)
{
	struct cache_index *ix = &c->near.index;
	bool clean = true;

	cache_lock(c);
	for (uint32_t s = src->slot; s < src->slot + src->slots; s++) {
		if (cache_is_clean(ix, s))
			cache_drop(ix, s);
		else if (ix->slot[s].list == CACHE_DIRTY)
			clean = false;
	}
	cache_unlock(c);
	return clean;
}

/* As much as there are slices for; *bytes says how much. */
static int read_near(struct cache *c, const struct source *src, struct iovec *iov, int n, size_t *bytes)
{
	int err = side_readv(&c->near.file, iov, n, cache_place(&c->near, src->slot, src->skip));

	if (err) {
		cache_near_failed(c, err);
		*bytes = 0;
		if (forget_clean(c, src))
			err = 0;
	}
	cache_lock(c);
	unpin(c, src);
	cache_unlock(c);
	return err;
}

static int read_far(struct cache *c, struct cursor *cursor, struct iovec *iov, int n, size_t bytes, bool keep)
{
	struct cursor was = *cursor;
	int err;

	c->far_readers++;
	err = behind_readv(&c->far, iov, n, cursor->off);
	c->far_readers--;
	cache_far_was(c, err);
	if (!err && keep) {
		was.end = was.off + bytes;
		cache_keep(c, was);
	}
	return err;
}

int cache_read_at(struct cache *c, struct cursor *cursor, bool keep)
{
	int err = 0;

	while (cursor->off < cursor->end && !err) {
		struct iovec iov[CACHE_SLICES];
		struct source src;
		size_t bytes;
		int n;

		cache_lock(c);
		src = find_source(c, cursor->off, cursor->end - cursor->off);
		cache_unlock(c);
		bytes = cursor_slice(cursor, src.len, iov, CACHE_SLICES, &n);
		if (src.slot == CACHE_NO_SLOT)
			err = read_far(c, cursor, iov, n, bytes, keep);
		else
			err = read_near(c, &src, iov, n, &bytes);
		if (!err)
			cursor_advance(cursor, bytes);
	}
	return err;
}

static int cache_readv(void *h, const struct iovec *iov, int n, uint64_t off)
{
	struct cursor cursor = cursor_begin(iov, n, off);

	return cache_read_at(h, &cursor, true);
}

static int cache_read(void *h, void *buf, size_t len, uint64_t off)
{
	return cache_readv(h, &(struct iovec){ buf, len }, 1, off);
}

/* ---- Keeping what was read ---- */

/* Clean slots of neighbouring blocks that lie side by side, pinned, and what is written to them. */
struct row {
	uint32_t slot, n;
	uint64_t off, end;
	unsigned failures;             /* of passes, before it is written */
};

/* Under the lock: the clean slot of a block; a new one if there is none. */
static uint32_t clean_slot(struct cache_index *ix, uint64_t block)
{
	uint32_t s = cache_find(ix, block, false);

	if (s == CACHE_NO_SLOT) {
		s = cache_take(ix, block, false);
		if (s != CACHE_NO_SLOT)
			cache_put(ix, s, block, false, 0, 0);
	}
	return s;
}

/* From `off` on, as far as slots lie side by side. */
static struct row begin_row(struct cache *c, uint64_t off, uint64_t end)
{
	struct cache_index *ix = &c->near.index;
	uint64_t first = cache_block_of(c, off), last = min_u64(cache_block_of(c, end - 1), first + ROW_MAX - 1);
	struct row row = { .off = off, .failures = c->near.failures };
	uint32_t s;
	bool few;

	cache_lock(c);
	row.slot = s = clean_slot(ix, first);
	while (s != CACHE_NO_SLOT && s == row.slot + row.n) {
		cache_pin(ix, s);
		row.n++;
		s = first + row.n <= last ? clean_slot(ix, first + row.n) : CACHE_NO_SLOT;
	}
	few = ix->list[CACHE_FREE].count < cache_reserve(c);
	cache_unlock(c);
	row.end = min_u64(end, (first + row.n) << c->near.block_shift);
	if (few)
		cache_tell(c);
	return row;
}

static void end_row(struct cache *c, const struct row *row, bool written)
{
	struct cache_index *ix = &c->near.index;
	uint64_t block = cache_block_of(c, row->off);

	cache_lock(c);
	for (uint32_t s = row->slot; s < row->slot + row->n; s++, block++) {
		cache_mask sectors = cache_sectors_of(c, block, row->off, row->end);
		uint32_t dirty = cache_find(ix, block, true);

		if (dirty != CACHE_NO_SLOT)
			sectors &= ~cache_valid(&ix->slot[dirty]);
		/* It may have been emptied meanwhile, or lost by a flush. */
		if (written && c->near.failures == row->failures && sectors && ix->slot[s].key == block << 1)
			cache_set_valid(ix, s, cache_valid(&ix->slot[s]) | sectors);
		cache_unpin(ix, s);
	}
	cache_unlock(c);
}

static int write_row(struct cache *c, const struct row *row, struct cursor at)
{
	size_t skip = row->off & (((size_t)1 << c->near.block_shift) - 1);
	int err = 0;

	while (at.off < row->end && !err) {
		struct iovec iov[CACHE_SLICES];
		int n;
		size_t bytes = cursor_slice(&at, row->end - at.off, iov, CACHE_SLICES, &n);

		err = side_writev(&c->near.file, iov, n, cache_place(&c->near, row->slot, skip + at.off - row->off));
		cache_has_written(c, bytes);
		cursor_advance(&at, bytes);
	}
	if (err)
		cache_near_failed(c, err);
	return err;
}

void cache_keep(struct cache *c, struct cursor cursor)
{
	uint64_t sector = (uint64_t)1 << c->near.sector_shift, whole = (cursor.off + sector - 1) & ~(sector - 1);
	uint64_t end = min_u64(cursor.end, (c->size + sector - 1) & ~(sector - 1)) & ~(sector - 1);
	int err = 0;

	if (c->trouble & CACHE_NEAR_FAILS || whole >= end)
		return;
	cursor_advance(&cursor, whole - cursor.off);
	while (cursor.off < end && !err) {
		struct row row = begin_row(c, cursor.off, end);

		if (row.n == 0)
			return;
		err = write_row(c, &row, cursor);
		end_row(c, &row, !err);
		cursor_advance(&cursor, row.end - row.off);
	}
}

/* ---- Other calls ---- */

static int cache_write(void *h, const void *buf, size_t len, uint64_t off)
{
	return cache_writev(h, &(struct iovec){ (void *)(uintptr_t)buf, len }, 1, off);
}

void cache_has_grown(struct cache *c, uint64_t end)
{
	if (c->size >= end)
		return;
	cache_lock(c);
	if (c->size < end)
		c->size = c->near.next.size = end;
	cache_unlock(c);
}

/* What was written past the cache may be lost, or not. */
static void forget_intended(struct cache *c)
{
	struct cache_index *ix = &c->near.index;

	cache_lock(c);
	for (uint32_t s = 0; s < ix->slots; s++)
		if (cache_is_clean(ix, s) && cache_intends(c->near.next.intent, ix->slot[s].key >> 1))
			cache_drop(ix, s);
	cache_unlock(c);
}

/* Under the lock of flushes, because one that fails may lose what another thread has written, whose own flush then finds nothing
 * to complain of: those that come after it see far_failures, and far_lost. */
static int flush_far(struct cache *c)
{
	uint32_t was = CACHE_UNFLUSHED;
	bool unflushed = atomic_compare_exchange_strong(&c->far_unflushed, &was, CACHE_BEING_FLUSHED);
	int err = behind_flush(&c->far, 0, UINT64_MAX);

	/* What came meanwhile may be lost, too. */
	unflushed |= err && c->far_unflushed != CACHE_FLUSHED;
	cache_far_was(c, err);
	was = CACHE_BEING_FLUSHED;
	if (err && unflushed)
		c->far_unflushed = CACHE_UNFLUSHED;
	else if (unflushed)
		atomic_compare_exchange_strong(&c->far_unflushed, &was, CACHE_FLUSHED);
	if (err < 0)
		c->far_failures++;
	if (err < 0 && unflushed) {
		c->far_doubt = true;
		forget_intended(c);
		c->far_lost = err;
	}
	return err;
}

int cache_flush_far(struct cache *c)
{
	int err;

	futex_lock(&c->flushing);
	err = flush_far(c);
	futex_unlock(&c->flushing);
	return err;
}

int cache_flush_past(struct cache *c)
{
	int err;

	/* Nobody waits for what goes home. */
	if (c->far_unflushed == CACHE_FLUSHED)
		return 0;
	futex_lock(&c->flushing);
	err = c->far_unflushed == CACHE_FLUSHED ? 0 : flush_far(c);
	futex_unlock(&c->flushing);
	return err;
}

static int cache_flush(void *h, uint64_t off, uint64_t len)
{
	struct cache *c = h;
	int err = 0, lost;

	(void)off;
	(void)len;
	if (!c->writable)
		return 0;
	if (c->flush_far)
		err = cache_bring_home(c);
	else
		err = cache_flush_past(c);
	if (!err && (c->mode == CACHE_BACK || c->landed || c->near.index.list[CACHE_DIRTY].count > 0))
		err = cache_make_durable(c);
	lost = atomic_exchange(&c->far_lost, 0);
	/* What is in the cache is mended before the next pass. */
	return lost ? lost : err < 0 ? -err : err;
}

/* What was written since the last flush is of no use before the next one. */
static int cache_push(void *h)
{
	(void)h;
	return 0;
}

static int cache_resize(void *h, uint64_t size)
{
	struct cache *c = h;
	int err;

	if (size == c->size)
		return 0;
	if (size < c->size || !c->grows)
		return -EOPNOTSUPP;
	/* It is another store then, by its size. */
	c->direct++;
	cache_lock(c);
	c->near.next.touched = 1;
	cache_unlock(c);
	err = cache_make_durable(c);
	if (!err)
		err = behind_resize(&c->far, size);
	if (!err)
		c->far_unflushed = CACHE_UNFLUSHED;
	c->direct += CACHE_DIRECT_END;
	if (!err)
		cache_has_grown(c, size);
	return err;
}

static int cache_size(void *h, uint64_t *size)
{
	*size = ((struct cache *)h)->size;
	return 0;
}

static int cache_lock_range(void *h, uint64_t off, uint64_t len, int how, char why[160])
{
	return behind_lock(&((struct cache *)h)->far, off, len, how, why);
}

static void cache_set_notice(void *h, ummap_notice *notice, void *arg)
{
	struct cache *c = h;

	behind_set_notice(&c->far, notice, arg);
	notice_set(&c->notice, notice, arg);
}

/* ---- Asynchronous requests: reads of which nothing is near go to the far store; all others are done at once, and held ---- */

static bool is_far(struct cache *c, const struct ummap_io *io)
{
	struct source src;

	if (io->op != UMMAP_IO_READ)
		return false;
	cache_lock(c);
	src = find_source(c, io->off, io->len);
	unpin(c, &src);
	cache_unlock(c);
	return src.slot == CACHE_NO_SLOT && src.len == io->len;
}

static int cache_submit(void *h, struct ummap_io **io, unsigned n)
{
	struct cache *c = h;
	int thread = held_self(), taken;
	unsigned i, far = 0;

	while (far < n && is_far(c, io[far]))
		far++;
	if (far > 0) {
		c->far_readers += far;
		taken = c->far.driver.submit(c->far.h, io, far);
		c->far_readers -= far - (taken > 0 ? (unsigned)taken : 0);
		return taken;
	}
	for (i = 0; i < n && (i == 0 || !is_far(c, io[i])); i++) {
		struct held *place = held_take(c->held, thread);

		if (!place)
			break;
		if (io[i]->op == UMMAP_IO_WRITE)
			io[i]->res = cache_write(c, io[i]->buf, io[i]->len, io[i]->off);
		else
			io[i]->res = cache_read(c, io[i]->buf, io[i]->len, io[i]->off);
		place->io = io[i];
	}
	return (int)i;
}

static void keep_request(struct cache *c, const struct ummap_io *io)
{
	struct iovec iov = { io->buf, io->len };

	c->far_readers--;
	cache_far_was(c, io->res);
	if (!io->res)
		cache_keep(c, cursor_begin(&iov, 1, io->off));
}

static int cache_reap(void *h, struct ummap_io **done, unsigned max, unsigned min)
{
	struct cache *c = h;
	unsigned n = held_let_go(c->held, done, max);
	int got;

	if (n == max || (n > 0 && n >= min))
		return (int)n;
	got = c->far.driver.reap(c->far.h, done + n, max - n, min - n);
	for (int i = 0; i < got; i++)
		keep_request(c, done[n + (unsigned)i]);
	if (got < 0)
		return n > 0 ? (int)n : got;
	return (int)n + got;
}

/* ---- Opening and closing ---- */

struct keys {
	struct cache_wish wish;
	char path[PATH_MAX];
	bool flush_given;
	uint64_t dirty_percent, dirty_age;
};

/* Parses "PERCENT" or "PERCENT,SECONDS". */
static bool parse_dirty(struct keys *k, const char *value)
{
	char copy[64], *comma;

	if (strlen(value) >= sizeof(copy))
		return false;
	strcpy(copy, value);
	comma = strchr(copy, ',');
	if (comma)
		*comma = '\0';
	return keys_number(copy, 1, 90, &k->dirty_percent) &&
	       (!comma || keys_number(comma + 1, 0, 1000000, &k->dirty_age));
}

static const struct key_type types[] = { CACHE_KEYS(KEY_TYPE) KEY_TYPES_END };

static bool parse_value(struct cache *c, struct keys *k, const struct ummap_key *key)
{
	int word = -1;

	if (strcmp(key->name, "path") == 0) {
		if (!*key->value || strlen(key->value) >= sizeof(k->path))
			return false;
		strcpy(k->path, key->value);
		return true;
	}
	if (strcmp(key->name, "size") == 0)
		return keys_size(key->value, &k->wish.size);
	if (strcmp(key->name, "block") == 0)
		return keys_size(key->value, &k->wish.block) && k->wish.block >= CACHE_BLOCK_MIN &&
		       k->wish.block <= CACHE_BLOCK_MAX && !(k->wish.block & (k->wish.block - 1));
	if (strcmp(key->name, "dirty") == 0)
		return parse_dirty(k, key->value);
	if (strcmp(key->name, "mode") == 0) {
		word = keys_word(key->value, (const char *const[]){ "back", "through", "read", NULL });
		c->mode = (enum cache_mode)word;
	} else if (strcmp(key->name, "populate") == 0) {
		word = keys_word(key->value, (const char *const[]){ "no", "background", NULL });
		c->populate = word == 1;
	} else if (strcmp(key->name, "flush") == 0) {
		word = keys_word(key->value, (const char *const[]){ "near", "far", NULL });
		c->flush_far = word == 1;
		k->flush_given = true;
	} else if (strcmp(key->name, "close") == 0) {
		word = keys_word(key->value, (const char *const[]){ "flush", "keep", NULL });
		c->keep = word == 1;
	}
	return word >= 0;
}

static int parse_keys(struct cache *c, struct keys *k, const struct ummap_uri *uri, int oflags, struct ummap_geom *geom)
{
	int err = 0;

	k->dirty_percent = 50;
	k->dirty_age = 10;
	if (oflags & UMMAP_O_WRITERS)
		return keys_refuse(geom, EINVAL, "cannot use cache+ with UMMAP_WRITERS: it keeps "
				   "data that other processes may change");
	for (unsigned i = 0; i < uri->nkeys && !err; i++)
		err = parse_value(c, k, &uri->keys[i]) ? 0 : keys_refuse_value(geom, "cache.", &uri->keys[i], types);
	if (!err && !*k->path)
		err = keys_refuse(geom, EINVAL, "cannot use cache+ without cache.path. Try the "
				  "path of the near file, or of a folder for it");
	if (!err && k->flush_given && c->mode != CACHE_BACK && !c->flush_far)
		err = keys_refuse(geom, EINVAL, "cannot use cache.flush=near without "
				  "cache.mode=back");
	return err;
}

/* In a folder the file has the name of the store, and a number, because stores of one name may be many. */
static int choose_path(struct keys *k, const struct ummap_uri *uri, struct ummap_geom *geom)
{
	char copy[PATH_MAX], real[PATH_MAX];
	const char *name = k->wish.far.name;
	struct stat st;
	size_t len;

	k->wish.path = k->path;
	if (stat(k->path, &st) < 0 || !S_ISDIR(st.st_mode))
		return 0;
	snprintf(copy, sizeof(copy), "%s", uri->path);
	if (!realpath(copy, real))
		snprintf(real, sizeof(real), "%s", *copy ? copy : "descriptor");
	len = strlen(k->path);
	if (len + NAME_MAX + 32 > sizeof(k->path))
		return keys_refuse(geom, ENAMETOOLONG, "cannot use cache.path='%.140s': it is too "
				   "long", k->path);
	snprintf(k->path + len, sizeof(k->path) - len, "/%.200s-%016jx.cache", *name ? name : "store",
		 (uintmax_t)checksum(real, strlen(real), *copy ? 0 : k->wish.far.id));
	return 0;
}

/* Commits in a log are not seen by the time at which the file was changed. */
static bool has_commits(struct behind *far)
{
	uint64_t oldest, newest;

	return far->driver.commits && far->driver.commits(far->h, &oldest, &newest) == 0 && newest > 0;
}

/* The file itself, to be looked at now and then; what is no file has no path, or one that leads to none. */
static int open_far(struct cache *c, const struct ummap_uri *uri, int fd, struct ummap_geom *geom)
{
	if (fd < 0 && !*uri->path)
		return 0;
	c->far_fd = fd >= 0 ? fcntl(fd, F_DUPFD_CLOEXEC, 0) : open(uri->path, O_PATH | O_CLOEXEC);
	if (c->far_fd >= 0 || errno == ENOENT || errno == ENOTDIR || errno == EACCES || errno == ELOOP || errno == ENAMETOOLONG)
		return 0;
	return keys_refuse(geom, errno, "cannot examine '%.140s': %s", uri->path, strerror(errno));
}

/* A driver that cannot write, and whose stores are no files, has the state of the store in its
 * identity: handles with one identity show the same bytes. */
static bool take_validator(const struct cache *c, const struct ummap_geom *geom,
			   struct cache_facts *facts)
{
	if (c->far_fd >= 0 || c->far.driver.write)
		return false;
	facts->seconds = geom->id[1];
	return true;
}

static int open_facts(struct cache *c, struct keys *k, const struct ummap_uri *uri, int fd, struct ummap_geom *geom)
{
	char itself[PATH_MAX];
	int err;

	/* It is the same store by a link. */
	if (!realpath(uri->path, itself))
		snprintf(itself, sizeof(itself), "%s", uri->path);
	snprintf(k->wish.far.name, sizeof(k->wish.far.name), "%s", *itself ? basename(itself) : "");
	k->wish.far.id = geom->id[0];
	k->wish.far.size = geom->size;
	err = open_far(c, uri, fd, geom);
	if (err)
		return err;
	/* One that is of this process ends with it, and so does what is kept of it. */
	c->lasts = cache_look_at_far(c, &k->wish.far) || !geom->id[0] ||
		   take_validator(c, geom, &k->wish.far);
	k->wish.doubt = !c->lasts || has_commits(&c->far);
	return 0;
}

/* A slot of the block in which the store ends: what is behind the end goes, and of the last sector it becomes zeros. */
static int cut_slot(struct cache *c, uint32_t s, uint64_t block)
{
	static const char zeros[CACHE_SECTOR_MAX];
	size_t sector = (size_t)1 << c->near.sector_shift, inside = c->size % sector;
	uint64_t skip = c->size - (block << c->near.block_shift);
	unsigned whole = (unsigned)(skip / sector);
	cache_mask valid = cache_valid(&c->near.index.slot[s]), left = whole ? valid & cache_mask_of(0, whole) : 0;
	bool ends_in = inside && valid >> whole & 1;

	if (ends_in)
		left |= (cache_mask)1 << whole;
	if (left != valid)
		cache_set_valid(&c->near.index, s, left);
	if (!left)
		cache_drop(&c->near.index, s);
	return ends_in ? side_write(&c->near.file, zeros, sector - inside, cache_place(&c->near, s, skip)) : 0;
}

/* A crash may have left bytes of a write that made the store longer, without the length: they must not appear when it becomes longer
 * again. */
static int cut_end(struct cache *c)
{
	struct cache_index *ix = &c->near.index;
	int err = 0;

	for (uint32_t s = 0; s < ix->slots && !err; s++) {
		uint64_t block = ix->slot[s].key >> 1, from = block << c->near.block_shift;

		if (ix->slot[s].key == CACHE_NO_KEY || from + ((uint64_t)1 << c->near.block_shift) <= c->size)
			continue;
		if (from >= c->size)
			cache_drop(ix, s);
		else
			err = cut_slot(c, s, block);
	}
	return err;
}

static int set_up(struct cache *c, struct keys *k, const struct ummap_uri *uri, int fd, struct ummap_geom *geom)
{
	int err;

	c->writable = geom->caps & UMMAP_CAP_WRITE;
	c->grows = geom->caps & UMMAP_CAP_GROW;
	c->async = behind_is_async(&c->far);
	snprintf(c->store, sizeof(c->store), "%s", geom->id[0] ? uri->path : "");
	err = open_facts(c, k, uri, fd, geom);
	if (err)
		return err;
	if (c->lasts && fd < 0)
		behind_uri(uri, k->wish.store, sizeof(k->wish.store));
	k->wish.create = true;
	err = choose_path(k, uri, geom);
	if (!err)
		err = cache_near_open(&c->near, &k->wish, geom);
	if (err)
		return err;
	if (c->near.index.list[CACHE_DIRTY].count > 0 && c->near.head.size > geom->size)
		geom->size = c->near.head.size;
	c->size = c->near.next.size = geom->size;
	err = cut_end(c);
	if (err) {
		cache_near_close(&c->near);
		return keys_refuse(geom, -err, "cannot write the near file '%.140s': %s", k->path,
				   strerror(-err));
	}
	c->dirty_most = (uint32_t)(c->near.index.slots * k->dirty_percent / 100);
	c->dirty_age = (uint32_t)k->dirty_age;
	geom->caps |= UMMAP_CAP_PARALLEL | (c->async ? UMMAP_CAP_ASYNC : 0);
	err = cache_home_init(c);
	if (!err)
		err = cache_start_thread(c, geom);
	if (err)
		cache_near_close(&c->near);
	return err;
}

static void release(struct cache *c)
{
	cache_home_end(c);
	if (c->far_fd >= 0)
		close(c->far_fd);
	free(c);
}

static int open_both(const struct ummap_uri *uri, int fd, int oflags, void **h, struct ummap_geom *geom)
{
	struct cache *c = calloc(1, sizeof(*c));
	struct keys k = { .flush_given = false };
	int err;

	if (!c)
		return -ENOMEM;
	c->far_fd = -1;
	err = parse_keys(c, &k, uri, oflags, geom);
	if (!err)
		err = behind_open(&c->far, uri, fd, oflags | UMMAP_O_OVERLAID, geom);
	if (!err) {
		err = set_up(c, &k, uri, fd, geom);
		if (err)
			behind_close(&c->far);
	}
	if (err) {
		release(c);
		return err;
	}
	*h = c;
	return 0;
}

static int cache_open_uri(const struct ummap_uri *uri, int oflags, void **h, struct ummap_geom *geom)
{
	return open_both(uri, -1, oflags, h, geom);
}

static int cache_open_fd(const struct ummap_uri *uri, int fd, int oflags, void **h, struct ummap_geom *geom)
{
	return open_both(uri, fd, oflags, h, geom);
}

/* The far store is closed, and complete. */
/* So many bytes it has itself: what makes it longer may be dirty still. */
static void note_far(struct cache *c, uint64_t size)
{
	struct cache_near *n = &c->near;

	cache_lock(c);
	n->next.far.size = size;
	cache_look_at_far(c, &n->next.far);
	n->next.touched = 0;
	if (!c->far_doubt)
		memset(n->next.intent, 0, sizeof(n->next.intent));
	cache_unlock(c);
}

static void tell_end(struct cache *c, int err)
{
	const char *begin = "cache+: cannot write all changes back to the store";
	const char *near = c->near.file.path;

	if (*c->store)
		notice_give(&c->notice, "%s: %s. Nothing is lost. Try to repair the storage, then "
			    "`ummap cache --cache %.140s flush %.140s`", begin, strerror(abs(err)),
			    near, c->store);
	else
		notice_give(&c->notice, "%s: %s. Nothing is lost: the rest is in '%.140s', and is "
			    "written back when the store is opened again", begin,
			    strerror(abs(err)), near);
}

/* All that is dirty goes to the far store, unless it is to be kept. What that does not take stays, durably. How the far store is
 * known again is noted when it is closed, because a filter there may write until then. */
static int end(struct cache *c)
{
	int err = 0, closing, passing;
	uint64_t size = 0;

	cache_stop_thread(c);
	if (c->writable && !c->keep) {
		if (c->near.index.list[CACHE_DIRTY].count > 1)
			cache_gather_crew(c);
		err = cache_bring_home(c);
	}
	cache_dismiss_crew(c);
	if (c->writable && !err)
		err = cache_settle_far(c);
	if (c->writable && !err)
		err = behind_size(&c->far, &size);
	closing = behind_close(&c->far);
	err = err ? err : closing;
	if (c->writable && !err)
		note_far(c, size);
	passing = cache_make_durable(c);
	cache_give_notice(c);
	if (c->writable && err && c->near.index.list[CACHE_DIRTY].count)
		tell_end(c, err);
	/* Where nobody may write the far store, what is dirty is dirty still. */
	if (!c->lasts && !err && !c->near.index.list[CACHE_DIRTY].count)
		side_remove(&c->near.file);
	return err ? err : passing;
}

/* ---- Handing over (ummap-driver.h) ---- */

/* Whether the other handle may have this near file. */
static bool has_cache(const struct ummap_uri *uri)
{
	while (uri && strcmp(uri->scheme, ummap_driver_cache.scheme) != 0)
		uri = uri->next_uri;
	return uri;
}

/* Afterwards the far store has everything, and nothing in the near file is dirty. */
static int bring_all_home(struct cache *c)
{
	int err;

	if (c->near.index.list[CACHE_DIRTY].count > 1)
		cache_gather_crew(c);
	err = cache_bring_home(c);
	return err ? err : cache_settle_far(c);
}

static int prepare(struct cache *c, struct ummap_handover *to)
{
	uint64_t size = 0;
	int err;

	futex_lock(&c->stepping);
	err = c->writable ? bring_all_home(c) : 0;
	if (err)
		snprintf(to->why, sizeof(to->why), "cannot write the changes in '%.140s' back: %s",
			 c->near.file.path, strerror(abs(err)));
	if (!err)
		err = behind_hand_over(&c->far, to);
	if (err) {
		futex_unlock(&c->stepping);
		return -abs(err);
	}
	if (c->writable && behind_size(&c->far, &size) == 0)
		note_far(c, size);
	cache_make_durable(c);
	c->handed_near = has_cache(to->to);
	c->handed = true;
	side_hand_over(&c->near.file, to);
	return 0;
}

static int cancel(struct cache *c, struct ummap_handover *to)
{
	int err = behind_hand_over(&c->far, to), resuming;

	side_hand_over(&c->near.file, to);
	resuming = c->handed_near ? cache_near_resume(&c->near) : 0;
	c->handed = false;
	futex_unlock(&c->stepping);
	cache_tell(c);
	return err ? err : resuming;
}

static int cache_hand_over(void *h, struct ummap_handover *to)
{
	struct cache *c = h;

	if (to->how == UMMAP_HANDOVER_FINISH)
		return behind_hand_over(&c->far, to);
	return to->how == UMMAP_HANDOVER_CANCEL ? cancel(c, to) : prepare(c, to);
}

static int end_handed(struct cache *c)
{
	c->stop = true;
	futex_unlock(&c->stepping);
	cache_stop_thread(c);
	cache_dismiss_crew(c);
	if (!c->lasts && !c->handed_near)
		side_remove(&c->near.file);
	return behind_close(&c->far);
}

static int cache_close(void *h)
{
	struct cache *c = h;
	int err;

	if (behind_inherited(&c->far))
		err = behind_close(&c->far);
	else if (c->handed)
		err = end_handed(c);
	else
		err = end(c);
	cache_near_close(&c->near);
	release(c);
	return err ? -abs(err) : 0;
}

const struct ummap_driver ummap_driver_cache = {
	.struct_size = sizeof(struct ummap_driver),
	.abi = UMMAP_DRIVER_ABI,
	.scheme = "cache",
	.keys = CACHE_KEYS(KEY_NAME),
	.help = "cache+URI  a file that is near before a store that is not (cache.path, cache.size, cache.mode=back|through|read)",
	.filter = 1,
	.open = cache_open_uri,
	.open_fd = cache_open_fd,
	.close = cache_close,
	.read = cache_read,
	.write = cache_write,
	.flush = cache_flush,
	.resize = cache_resize,
	.submit = cache_submit,
	.reap = cache_reap,
	.readv = cache_readv,
	.writev = cache_writev,
	.size = cache_size,
	.lock = cache_lock_range,
	.push = cache_push,
	.set_notice = cache_set_notice,
	.hand_over = cache_hand_over,
};
