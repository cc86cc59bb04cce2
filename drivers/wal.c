/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * wal - a filter that makes a sync happen as a whole or not at all. What is written goes to a log beside the store, in whole
 * blocks; a flush ends an epoch there (wal_log.h: the form of the log, and why recovery is right); a thread brings home what
 * was committed (wal_home.c). Reads ask the index for blocks that are in the log, and take all others from the store.
 *
 * Reading takes no lock. Writing takes a draft of a record, and the log's lock across one request of the log's file; writes of
 * parts of blocks, which read the rest first, take `odd` around that. One handle has a store for writing, or several for reading
 * only.
 */
#include "wal.h"

#include "common/memory_calls.h"
#include "common/futex.h"
#include "keys.h"
#include "common/cursor.h"

#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

extern const struct ummap_driver ummap_driver_wal;

#define SLICES 60    /* pieces of memory in one record */

/* ---- Reading ---- */

/* One piece. The index cannot lead to room that is not the block's any more before wal_leave. */
static int read_piece(struct wal *w, char *buf, size_t len, uint64_t off)
{
	int err = 0;

	while (len > 0 && !err) {
		uint64_t block = off / WAL_BLOCK, skip = off % WAL_BLOCK, place;
		uint64_t run = blockmap_run(&w->index, block, (skip + len + WAL_BLOCK - 1) / WAL_BLOCK, WAL_BLOCK, &place);
		size_t bytes = run * WAL_BLOCK - skip < len ? run * WAL_BLOCK - skip : len;

		if (place)
			err = side_read(&w->log.file, buf, bytes, place + skip);
		else
			err = behind_read(&w->home, buf, bytes, off);
		buf += bytes;
		len -= bytes;
		off += bytes;
	}
	return err;
}

static int wal_readv(void *h, const struct iovec *iov, int n, uint64_t off)
{
	struct wal *w = h;
	unsigned ticket;
	int err = 0;

	if (w->index.count == 0)
		return behind_readv(&w->home, iov, n, off);
	ticket = wal_enter(w);
	for (int i = 0; i < n && !err; off += iov[i++].iov_len)
		err = read_piece(w, iov[i].iov_base, iov[i].iov_len, off);
	wal_leave(w, ticket);
	return err;
}

static int wal_read(void *h, void *buf, size_t len, uint64_t off)
{
	return wal_readv(h, &(struct iovec){ buf, len }, 1, off);
}

/* ---- Writing ---- */

/* The next bytes, at most `most`, without going on; whole blocks of them, as far as there are slices. */
static size_t slice(const struct cursor *c, size_t most, struct iovec *iov, int *n)
{
	size_t bytes = cursor_slice(c, most, iov, SLICES, n), over;

	for (over = bytes % WAL_BLOCK; over > 0 && *n > 0;) {
		struct iovec *last = &iov[*n - 1];
		size_t cut = over < last->iov_len ? over : last->iov_len;

		last->iov_len -= cut;
		over -= cut;
		bytes -= cut;
		*n -= last->iov_len == 0;
	}
	return bytes;
}

static void has_grown(struct wal *w, uint64_t end)
{
	uint64_t size = w->size;

	while (size < end && !atomic_compare_exchange_weak(&w->size, &size, end))
		;
}

/* The state of the log's file at an append. */
struct fill {
	bool full;                     /* wal.size leaves no room for the record */
	bool at_bound; /* the file has reached its bound, and a pass would make it shorter */
};

static int append(struct wal *w, struct wal_draft *d, uint64_t end, struct fill *fill)
{
	uint64_t first = d->record->where, place;
	uint32_t blocks = d->record->blocks;
	struct wal_spot due;
	int err;

	futex_lock(&w->log.lock);
	fill->full = wal_is_full(&w->log, blocks);
	err = wal_append(&w->log, d, &place);
	for (uint64_t k = 0; k < blocks && !err; k++)
		blockmap_set(&w->index, first + k, place + k * WAL_BLOCK);
	if (!err)
		has_grown(w, end);
	fill->at_bound = w->log.end.at >= wal_bound(w) && wal_due(&w->log, &due);
	futex_unlock(&w->log.lock);
	return err;
}

/* Whole blocks; the store ends at `end` then, if it ended earlier. */
static int write_blocks(struct wal *w, uint64_t first, uint32_t blocks, const struct iovec *iov, int n, uint64_t end)
{
	int err = blockmap_reserve(&w->index, first, blocks);
	struct fill fill;
	struct wal_draft *d;

	if (err)
		return err;
	d = wal_draft_begin(&w->log, first, blocks, iov, n);
	err = append(w, d, end, &fill);
	/* What was committed may make way; what was not has to stay. */
	if ((err == -ENOSPC || err == -EDQUOT) && wal_make_room(w))
		err = append(w, d, end, &fill);
	wal_draft_end(d);
	/* Where bringing home fails, that is the reason, and is told. */
	if (err && fill.full && !w->failed_at)
		wal_tell_full(w);
	else if (!err && fill.at_bound)
		wal_make_room(w);
	return err;
}

/* A part of one block: the rest of it stays as it is. */
static int write_part(struct wal *w, struct cursor *c)
{
	uint64_t block = c->off / WAL_BLOCK, from = c->off % WAL_BLOCK;
	size_t len = WAL_BLOCK - from < c->end - c->off ? WAL_BLOCK - from : (size_t)(c->end - c->off);
	uint64_t end = c->off + len;
	int err = 0;

	futex_lock(&w->odd);
	if (from == 0 && end >= w->size)
		memset(w->block, 0, WAL_BLOCK);
	else
		err = wal_read(w, w->block, WAL_BLOCK, block * WAL_BLOCK);
	for (size_t done = 0, n; done < len && !err; done += n) {
		n = c->piece->iov_len - c->skip < len - done ? c->piece->iov_len - c->skip : len - done;
		memcpy(w->block + from + done, (char *)c->piece->iov_base + c->skip, n);
		cursor_advance(c, n);
	}
	if (!err)
		err = write_blocks(w, block, 1, &(struct iovec){ w->block, WAL_BLOCK }, 1, end);
	futex_unlock(&w->odd);
	return err;
}

static int write_some(struct wal *w, struct cursor *c)
{
	struct iovec iov[SLICES];
	uint64_t left = c->end - c->off, most = WAL_BLOCKS_MAX * WAL_BLOCK;
	size_t bytes = 0;
	int n, err;

	if (c->off % WAL_BLOCK == 0)
		bytes = slice(c, left < most ? left : most, iov, &n);
	if (bytes == 0)
		return write_part(w, c);
	err = write_blocks(w, c->off / WAL_BLOCK, (uint32_t)(bytes / WAL_BLOCK), iov, n, c->off + bytes);
	cursor_advance(c, bytes);
	return err;
}

static int wal_writev(void *h, const struct iovec *iov, int n, uint64_t off)
{
	struct wal *w = h;
	struct cursor c = cursor_begin(iov, n, off);
	int err = 0;

	if (!w->writable)
		return -EBADF;
	if (c.end > w->size && !w->grows)
		return -ENOSPC;
	while (c.off < c.end && !err)
		err = write_some(w, &c);
	return err;
}

static int wal_write(void *h, const void *buf, size_t len, uint64_t off)
{
	return wal_writev(h, &(struct iovec){ (void *)(uintptr_t)buf, len }, 1, off);
}

static int wal_flush(void *h, uint64_t off, uint64_t len)
{
	struct wal *w = h;
	int err;

	(void)off;
	(void)len;
	if (!w->writable)
		return 0;
	futex_lock(&w->log.lock);
	err = wal_commit(&w->log, w->size);
	futex_unlock(&w->log.lock);
	if (err)
		return err;
	w->committed = true;
	wal_tell(w);
	return 0;
}

/* What was written since the last commit is of no use before the next one. */
static int wal_push(void *h)
{
	(void)h;
	return 0;
}

/* A store that is longer shows nothing that was stored; one that is shorter would. */
static int wal_resize(void *h, uint64_t size)
{
	struct wal *w = h;
	int err;

	if (size == w->size)
		return 0;
	if (size < w->size || !w->grows)
		return -EOPNOTSUPP;
	err = behind_resize(&w->home, size);
	if (!err)
		has_grown(w, size);
	return err;
}

static int wal_size(void *h, uint64_t *size)
{
	struct wal *w = h;

	if (!w->log.file.h)
		return behind_size(&w->home, size);
	*size = w->size;
	return 0;
}

static int wal_lock(void *h, uint64_t off, uint64_t len, int how, char why[160])
{
	return behind_lock(&((struct wal *)h)->home, off, len, how, why);
}

static int wal_commits(void *h, uint64_t *oldest, uint64_t *newest)
{
	struct wal *w = h;

	futex_lock(&w->log.lock);
	*oldest = w->log.durable.floor;
	*newest = w->log.durable.epoch;
	futex_unlock(&w->log.lock);
	return 0;
}

static void wal_set_notice(void *h, ummap_notice *notice, void *arg)
{
	struct wal *w = h;

	behind_set_notice(&w->home, notice, arg);
	notice_set(&w->notice, notice, arg);
}

/* ---- Asynchronous reads go to the store if nothing of them is in the log; all else is done at once, and held ---- */

/* While it is under way, nobody writes these blocks home: they would have to be committed, and so be written, first. */
static bool is_for_store(void *h, const struct ummap_io *io)
{
	struct wal *w = h;
	uint64_t first = io->off / WAL_BLOCK, n = (io->off + io->len + WAL_BLOCK - 1) / WAL_BLOCK - first, place;

	return io->op == UMMAP_IO_READ &&
	       (w->index.count == 0 || (blockmap_run(&w->index, first, n, WAL_BLOCK, &place) == n && !place));
}

static int wal_submit(void *h, struct ummap_io **io, unsigned n)
{
	struct wal *w = h;

	return held_submit(w->held, &w->home.driver, w->home.h, &ummap_driver_wal, w, is_for_store, io, n);
}

static int wal_reap(void *h, struct ummap_io **done, unsigned max, unsigned min)
{
	struct wal *w = h;

	return held_reap(w->held, &w->home.driver, w->home.h, done, max, min);
}

/* ---- Opening and closing ---- */

struct keys {
	struct wal_wish wish;
	char path[PATH_MAX];
	char name[256];
	char way[BEHIND_WAY];
};

static const struct key_type types[] = { WAL_KEYS(KEY_TYPE) KEY_TYPES_END };

static int parse_key(struct keys *k, const struct ummap_key *key, struct ummap_geom *geom)
{
	uint64_t keep = k->wish.keep;
	bool ok;

	if (strcmp(key->name, "path") == 0) {
		ok = *key->value && strlen(key->value) < sizeof(k->path);
		if (ok)
			strcpy(k->path, key->value);
	} else if (strcmp(key->name, "size") == 0) {
		ok = keys_size(key->value, &k->wish.limit);
	} else if (strcmp(key->name, "keep") == 0) {
		ok = keys_number(key->value, 1, WAL_KEEP_MAX, &keep);
		k->wish.keep = (unsigned)keep;
	} else {
		ok = keys_number(key->value, 0, UINT64_MAX, &k->wish.epoch);
		k->wish.back = true;
	}
	return ok ? 0 : keys_refuse_value(geom, "wal.", key, types);
}

static int parse_keys(struct keys *k, const struct ummap_uri *uri, int oflags, struct ummap_geom *geom)
{
	int err = 0;

	memset(k, 0, sizeof(*k));
	k->wish.limit = UINT64_MAX;
	k->wish.keep = 1;
	if (oflags & UMMAP_O_WRITERS)
		return keys_refuse(geom, EINVAL, "cannot use wal+ with UMMAP_WRITERS: it writes "
				   "whole blocks, parts of which other processes may change");
	for (unsigned i = 0; i < uri->nkeys && !err; i++)
		err = parse_key(k, &uri->keys[i], geom);
	if (!err && k->wish.back && oflags & UMMAP_O_OVERLAID)
		return keys_refuse(geom, EINVAL, "cannot go back to commit %ju: the filter above wal+ keeps blocks of a newer state of the "
				   "store. Try wal+ without that filter", (uintmax_t)k->wish.epoch);
	return err;
}

/* Beside a store that is a regular file there is a place for the log; others have to name one. */
static int choose_path(struct keys *k, const struct ummap_uri *uri, struct ummap_geom *geom)
{
	char itself[PATH_MAX];
	struct stat st = { .st_mode = 0 };

	wal_resolve(itself, *uri->path ? uri->path : k->path);
	snprintf(k->name, sizeof(k->name), "%s", basename(itself));
	k->wish.name = k->name;
	behind_way(uri, k->way);
	k->wish.way = k->way;
	k->wish.path = k->path;
	if (*uri->path)
		stat(uri->path, &st);
	k->wish.mode = S_ISREG(st.st_mode) ? st.st_mode & 0666 : 0600;
	if (*k->path)
		return 0;
	if (!S_ISREG(st.st_mode))
		return keys_refuse(geom, EINVAL, "cannot choose a log: the store is not a regular "
				   "file with a path. Try to name one by wal.path");
	return wal_beside(k->path, uri->path);
}

static int index_record(void *arg, const struct wal_record *r)
{
	struct wal *w = arg;
	int err = r->blocks ? blockmap_reserve(&w->index, r->where, r->blocks) : 0;

	for (uint64_t k = 0; k < r->blocks && !err; k++)
		blockmap_set(&w->index, r->where + k, r->place + sizeof(*r) + k * WAL_BLOCK);
	return err;
}

static void release(struct wal *w)
{
	blockmap_free(&w->index);
	free(w->block);
	if (w->buffer)
		raw_munmap(w->buffer, WAL_BUFFER);
	free(w);
}

/* Who reads may have no log to lock, and would see what a writer applies. Before the log is looked for: one that comes later has
 * such a writer. The last byte is for those who make the store longer. Where there are no locks, nobody can tell. */
static int lock_for_reading(struct wal *w, struct ummap_geom *geom)
{
	char who[160] = "";

	if (w->writable || behind_lock(&w->home, 0, INT64_MAX - 1, UMMAP_LOCK_SHARED, who) != -EBUSY)
		return 0;
	return keys_refuse(geom, EBUSY, "cannot open the store for reading: it is in use by %.140s, "
			   "which writes it", *who ? who : "another process");
}

/* The log, and what of it the index has to say. */
static int open_log(struct wal *w, struct keys *k, const struct ummap_uri *uri, struct ummap_geom *geom)
{
	int err = choose_path(k, uri, geom);

	if (!err)
		err = lock_for_reading(w, geom);
	if (err)
		return err;
	k->wish.store_size = geom->size;
	k->wish.write = k->wish.create = w->writable;
	k->wish.visit = index_record;
	k->wish.arg = w;
	err = wal_open(&w->log, &k->wish, geom);
	if (err)
		return err;
	if (!w->log.file.h)
		return 0;
	err = w->writable ? wal_start_thread(w, geom) : 0;
	if (err)
		wal_close(&w->log);
	return err;
}

/* A file by its path; what is reached by other ways by its URI, in quotes for a shell. */
static void name_for_umwal(struct wal *w, const struct ummap_uri *uri)
{
	static const char descriptor[] = "/proc/self/fd/";
	char way[BEHIND_WAY], store[sizeof(w->store) - 2], itself[PATH_MAX];
	bool is_descriptor = strncmp(uri->path, descriptor, strlen(descriptor)) == 0;

	behind_way(uri, way);
	behind_uri(uri, store, sizeof(store));
	wal_resolve(itself, uri->path);
	/* A descriptor of this process means nothing to the user's shell. */
	if (is_descriptor)
		snprintf(w->store, sizeof(w->store), "%.*s", (int)sizeof(w->store) - 1, itself);
	else if (strcmp(way, FILE_WAY) == 0 || !*uri->path || !*store)
		snprintf(w->store, sizeof(w->store), "%s", uri->path);
	else
		snprintf(w->store, sizeof(w->store), "'%s'", store);
}

static int set_up(struct wal *w, struct keys *k, const struct ummap_uri *uri, struct ummap_geom *geom)
{
	int err;

	w->writable = geom->caps & UMMAP_CAP_WRITE;
	w->grows = geom->caps & UMMAP_CAP_GROW;
	w->async = behind_is_async(&w->home);
	w->keep = k->wish.keep;
	name_for_umwal(w, uri);
	w->block = malloc(WAL_BLOCK);
	w->buffer = mmap(NULL, WAL_BUFFER, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (w->buffer == MAP_FAILED)
		w->buffer = NULL;
	if (!w->block || !w->buffer)
		return -ENOMEM;
	err = open_log(w, k, uri, geom);
	if (err)
		return err;
	if (w->log.durable.size > geom->size)
		geom->size = w->log.durable.size;
	w->size = geom->size;
	geom->caps |= UMMAP_CAP_PARALLEL | (w->async ? UMMAP_CAP_ASYNC : 0);
	return 0;
}

static int open_both(const struct ummap_uri *uri, int fd, int oflags, void **h, struct ummap_geom *geom)
{
	struct keys k;
	struct wal *w;
	int err = parse_keys(&k, uri, oflags, geom);

	if (err)
		return err;
	w = calloc(1, sizeof(*w));
	if (!w)
		return -ENOMEM;
	err = behind_open(&w->home, uri, fd, oflags | UMMAP_O_LOGGED, geom);
	if (err) {
		free(w);
		return err;
	}
	err = set_up(w, &k, uri, geom);
	if (err) {
		behind_close(&w->home);
		release(w);
		return err;
	}
	*h = w;
	return 0;
}

static int wal_open_uri(const struct ummap_uri *uri, int oflags, void **h, struct ummap_geom *geom)
{
	return open_both(uri, -1, oflags, h, geom);
}

static int wal_open_fd(const struct ummap_uri *uri, int fd, int oflags, void **h, struct ummap_geom *geom)
{
	return open_both(uri, fd, oflags, h, geom);
}

static void tell_end(struct wal *w, int err)
{
	notice_give(&w->notice, "wal+: cannot apply all commits to the store: %s. Nothing is lost. "
		    "Try to repair the storage, then `ummap wal --log %.150s apply %.150s`",
		    strerror(abs(err)), w->log.file.path, *w->store ? w->store : "STORE");
}

/* All that was committed goes home, and the log away. Where older epochs were found and nothing was added to them, they stay. */
static int end_log(struct wal *w)
{
	int err = 0;

	wal_stop_thread(w);
	if (w->keep > 1 && !w->committed && w->log.durable.floor < w->log.durable.epoch)
		return 0;
	if (w->log.durable.floor < w->log.durable.epoch)
		err = wal_forget_epochs(&w->log);
	if (!err)
		err = wal_bring_home(w);
	if (err) {
		tell_end(w, err);
		return err;
	}
	err = side_remove(&w->log.file);
	if (err)
		notice_give(&w->notice, "wal+: cannot remove the log '%.150s': %s. The store is "
			    "complete", w->log.file.path, strerror(-err));
	return err;
}

static int wal_close_handle(void *h)
{
	struct wal *w = h;
	int err = 0, closing;

	if (w->handed && !behind_inherited(&w->home))
		wal_end_handed(w);
	else if (w->writable && !behind_inherited(&w->home))
		err = end_log(w);
	if (w->log.file.h)
		wal_close(&w->log);
	closing = behind_close(&w->home);
	release(w);
	return err ? err : closing;
}

const struct ummap_driver ummap_driver_wal = {
	.struct_size = sizeof(struct ummap_driver),
	.abi = UMMAP_DRIVER_ABI,
	.scheme = "wal",
	.keys = WAL_KEYS(KEY_NAME),
	.help = "wal+URI  a sync happens as a whole or not at all (wal.path, wal.size, wal.keep=1..16, wal.commit=N)",
	.filter = 1,
	.open = wal_open_uri,
	.open_fd = wal_open_fd,
	.close = wal_close_handle,
	.read = wal_read,
	.write = wal_write,
	.flush = wal_flush,
	.resize = wal_resize,
	.submit = wal_submit,
	.reap = wal_reap,
	.readv = wal_readv,
	.writev = wal_writev,
	.size = wal_size,
	.lock = wal_lock,
	.commits = wal_commits,
	.push = wal_push,
	.set_notice = wal_set_notice,
	.hand_over = wal_hand_over,
};
