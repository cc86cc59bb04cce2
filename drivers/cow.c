/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cow - a filter that leaves the store behind it as it is. Blocks that are written go to a file of changes (cow_file.h: its
 * form, and why recovery is right), and are read from there; all others from the store.
 *
 * Reading takes no lock. Writing takes that of the changes, across one request of their file, and where a block is written in
 * part for the first time also across reading the rest of it from the store.
 */
#include "cow_file.h"

#include "behind.h"
#include "common/futex.h"
#include "common/minmax.h"
#include "held.h"
#include "keys.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

extern const struct ummap_driver ummap_driver_cow;

struct cow {
	struct behind store;
	struct cow_file changes;   /* file.h NULL: read-only, and there are none */
	bool writable;
	_Atomic uint64_t size;     /* of the store with its changes */
	char *block;               /* one, under the lock of the changes */
	bool handed;               /* the store is handed over to another handle */
	bool commits;              /* the other handle needs these changes in the store */
	bool committed;            /* the store has all of these changes now */
	char path[PATH_MAX];       /* of the store, when it is handed over */
	struct held held[HELD_MAX];
};

/* Blocks from `block` on, at most those of len bytes behind the first `skip` ones, that are in one place: *place, or the store
 * with 0; in bytes. */
static size_t run_of(struct cow *c, uint64_t block, size_t skip, size_t len, uint64_t *place)
{
	uint64_t run = blockmap_run(&c->changes.index, block, (skip + len + COW_BLOCK - 1) / COW_BLOCK, COW_BLOCK, place);

	return (size_t)min_u64(run * COW_BLOCK - skip, len);
}

/* ---- Reading ---- */

static int cow_read(void *h, void *buf, size_t len, uint64_t off)
{
	struct cow *c = h;
	uint64_t size = c->size, inside = off < size ? min_u64(len, size - off) : 0;
	char *to = buf;
	int err = 0;

	/* The last block of the changes may have bytes behind the end. */
	memset(to + inside, 0, len - inside);
	for (size_t bytes; inside > 0 && !err; to += bytes, off += bytes, inside -= bytes) {
		uint64_t place;

		bytes = run_of(c, off / COW_BLOCK, off % COW_BLOCK, inside, &place);
		if (place)
			err = side_read(&c->changes.file, to, bytes, place + off % COW_BLOCK);
		else
			err = behind_read(&c->store, to, bytes, off);
	}
	return err;
}

/* Whether it is as it is in the store. */
static bool is_unchanged(struct cow *c, size_t len, uint64_t off)
{
	uint64_t place;

	return run_of(c, off / COW_BLOCK, off % COW_BLOCK, len, &place) == len && !place;
}

static int cow_readv(void *h, const struct iovec *iov, int n, uint64_t off)
{
	struct cow *c = h;
	size_t len = 0;
	int err = 0;

	for (int i = 0; i < n; i++)
		len += iov[i].iov_len;
	if (is_unchanged(c, len, off))
		return behind_readv(&c->store, iov, n, off);
	for (int i = 0; i < n && !err; off += iov[i++].iov_len)
		err = cow_read(c, iov[i].iov_base, iov[i].iov_len, off);
	return err;
}

/* ---- Writing ---- */

static void has_grown(struct cow *c, uint64_t end)
{
	uint64_t size = c->size;

	while (size < end && !atomic_compare_exchange_weak(&c->size, &size, end))
		;
}

/* A block of which a part is written, for the first time: the rest of it is the store's. */
static int add_part(struct cow *c, uint64_t block, size_t skip, const char *buf, size_t len)
{
	int err = behind_read(&c->store, c->block, COW_BLOCK, block * COW_BLOCK);

	if (err)
		return err;
	memcpy(c->block + skip, buf, len);
	return cow_add(&c->changes, block, 1, c->block);
}

/* Some of the bytes; *bytes says how many. */
static int write_some(struct cow *c, const char *buf, size_t len, uint64_t off, size_t *bytes)
{
	uint64_t block = off / COW_BLOCK, place;
	size_t skip = off % COW_BLOCK;

	*bytes = run_of(c, block, skip, len, &place);
	if (place)
		return side_write(&c->changes.file, buf, *bytes, place + skip);
	if (skip || *bytes < COW_BLOCK) {
		*bytes = min_u64(*bytes, COW_BLOCK - skip);
		return add_part(c, block, skip, buf, *bytes);
	}
	*bytes -= *bytes % COW_BLOCK;
	return cow_add(&c->changes, block, *bytes / COW_BLOCK, buf);
}

static int cow_write(void *h, const void *buf, size_t len, uint64_t off)
{
	struct cow *c = h;
	const char *from = buf;
	int err = 0;

	if (!c->writable)
		return -EBADF;
	futex_lock(&c->changes.lock);
	for (size_t bytes; len > 0 && !err; from += bytes, off += bytes, len -= bytes) {
		err = write_some(c, from, len, off, &bytes);
		if (!err)
			has_grown(c, off + bytes);
	}
	futex_unlock(&c->changes.lock);
	return err;
}

static int cow_flush_handle(void *h, uint64_t off, uint64_t len)
{
	struct cow *c = h;

	(void)off;
	(void)len;
	return c->writable ? cow_flush(&c->changes, c->size) : 0;
}

/* A store that became shorter would show what it has behind the new end when it becomes longer again. */
static int cow_resize(void *h, uint64_t size)
{
	struct cow *c = h;

	if (!c->writable || size < c->size)
		return -EOPNOTSUPP;
	has_grown(c, size);
	return 0;
}

static int cow_size(void *h, uint64_t *size)
{
	*size = ((struct cow *)h)->size;
	return 0;
}

/* Nobody is to write the store; any number may have changes of their own. */
static int cow_lock(void *h, uint64_t off, uint64_t len, int how, char why[160])
{
	return behind_lock(&((struct cow *)h)->store, off, len, how == UMMAP_LOCK_EXCLUSIVE ? UMMAP_LOCK_SHARED : how, why);
}

static void cow_set_notice(void *h, ummap_notice *notice, void *arg)
{
	behind_set_notice(&((struct cow *)h)->store, notice, arg);
}

/* ---- Handing over (ummap-driver.h) ---- */

/* The store gets the changes if the other handle goes on with the contents and has no file of
 * changes itself. */
static bool must_commit(const struct cow *c, const struct ummap_handover *to)
{
	const struct ummap_uri *uri = to->to;

	while (uri && strcmp(uri->scheme, ummap_driver_cow.scheme) != 0)
		uri = uri->next_uri;
	return to->how == UMMAP_HANDOVER_KEEP && c->writable && !uri;
}

static int prepare(struct cow *c, struct ummap_handover *to)
{
	int err = 0;

	if (c->changes.head.committing && to->how == UMMAP_HANDOVER_SWITCH) {
		snprintf(to->why, sizeof(to->why), "cannot leave '%.140s': writing its changes to the store failed, and "
			 "the store has a part of them. Try again without UMMAP_SWITCH",
			 c->changes.file.path);
		return -EUCLEAN;
	}
	if (c->writable && cow_is_due(&c->changes, c->size))
		err = cow_flush(&c->changes, c->size);
	if (!err)
		err = behind_hand_over(&c->store, to);
	if (err)
		return -abs(err);
	side_hand_over(&c->changes.file, to);
	snprintf(c->path, sizeof(c->path), "%s", to->to->path);
	c->commits = must_commit(c, to);
	c->handed = true;
	return 0;
}

static int commit(struct cow *c, struct ummap_handover *to)
{
	struct ummap_geom geom = { .size = 0 };
	struct cow_base base = c->changes.head.base;
	int err = cow_write_changes(&c->changes, &base, to->driver, to->h, &geom);

	memcpy(to->why, geom.why, sizeof(to->why));
	c->committed = !err;
	return err ? err : 1;
}

static int cancel(struct cow *c, struct ummap_handover *to)
{
	int err = behind_hand_over(&c->store, to);
	int ending = c->commits ? cow_end_commit(&c->changes, c->path) : 0;

	side_hand_over(&c->changes.file, to);
	c->handed = c->committed = false;
	return err ? err : ending;
}

static int cow_hand_over(void *h, struct ummap_handover *to)
{
	struct cow *c = h;

	if (to->how == UMMAP_HANDOVER_FINISH)
		return c->commits ? commit(c, to) : 0;
	return to->how == UMMAP_HANDOVER_CANCEL ? cancel(c, to) : prepare(c, to);
}

/* ---- Asynchronous reads go to the store where it has not changed; all else is done at once, and held ---- */

static bool is_for_store(void *h, const struct ummap_io *io)
{
	return io->op == UMMAP_IO_READ && is_unchanged(h, io->len, io->off);
}

static int cow_submit(void *h, struct ummap_io **io, unsigned n)
{
	struct cow *c = h;

	return held_submit(c->held, &c->store, &ummap_driver_cow, c, is_for_store, io, n);
}

static int cow_reap(void *h, struct ummap_io **done, unsigned max, unsigned min)
{
	struct cow *c = h;

	return held_reap(c->held, &c->store, done, max, min);
}

/* ---- Opening and closing ---- */

static const struct key_type types[] = { COW_KEYS(KEY_TYPE) KEY_TYPES_END };

/* The changes of a regular file are beside it by default. Other stores need cow.path. */
static int choose_path(char path[PATH_MAX], const struct ummap_uri *uri, const struct cow_base *base, struct ummap_geom *geom)
{
	const char *named = uri->nkeys ? uri->keys[0].value : NULL;

	if (named && (!*named || strlen(named) >= PATH_MAX))
		return keys_refuse_value(geom, "cow.", uri->keys, types);
	if (!named && (!base->inode || !*uri->path))
		return keys_refuse(geom, EINVAL, "cannot choose a file for the changes: the store "
				   "is not a regular file with a path. Try to name one by "
				   "cow.path");
	if (snprintf(path, PATH_MAX, "%s%s", named ? named : uri->path, named ? "" : COW_SUFFIX) >= PATH_MAX)
		return -ENAMETOOLONG;
	return 0;
}

static void release(struct cow *c)
{
	free(c->block);
	free(c);
}

static int open_changes(struct cow *c, const struct ummap_uri *uri, int fd, struct ummap_geom *geom)
{
	struct stat st = { .st_mode = 0 };
	char path[PATH_MAX], way[BEHIND_WAY];
	struct cow_base base;
	struct cow_wish wish = { .path = path, .base = &base, .way = way, .write = c->writable };
	int err;

	behind_way(uri, way);
	cow_describe(&base, uri->path, fd, geom->size);
	err = choose_path(path, uri, &base, geom);
	if (err)
		return err;
	/* Who may read the store may read what becomes of it. */
	if (base.inode && (fd < 0 ? stat(uri->path, &st) : fstat(fd, &st)) == 0)
		wish.mode = st.st_mode & 0666;
	wish.mode |= 0600;
	return cow_open(&c->changes, &wish, geom);
}

static int set_up(struct cow *c, const struct ummap_uri *uri, int fd, int oflags, struct ummap_geom *geom)
{
	int err;

	c->writable = oflags & UMMAP_O_WRITE;
	c->block = malloc(COW_BLOCK);
	if (!c->block)
		return -ENOMEM;
	err = open_changes(c, uri, fd, geom);
	if (err)
		return err;
	if (c->changes.file.h) {
		geom->size = c->changes.head.size;
		geom->id[0] = c->changes.file.id[0];
		geom->id[1] = ~c->changes.file.id[1];
	}
	c->size = geom->size;
	geom->caps |= UMMAP_CAP_PARALLEL | (c->writable ? UMMAP_CAP_WRITE | UMMAP_CAP_GROW : 0);
	if (behind_is_async(&c->store))
		geom->caps |= UMMAP_CAP_ASYNC;
	return 0;
}

static int open_both(const struct ummap_uri *uri, int fd, int oflags, void **h, struct ummap_geom *geom)
{
	struct cow *c;
	int err;

	if (oflags & UMMAP_O_WRITERS)
		return keys_refuse(geom, EINVAL, "cannot use cow+ with UMMAP_WRITERS: a file of "
				   "changes has only one writer");
	c = calloc(1, sizeof(*c));
	if (!c)
		return -ENOMEM;
	/* It is only read, and so it has to be there. */
	err = behind_open(&c->store, uri, fd, (oflags & ~(UMMAP_O_WRITE | UMMAP_O_CREATE)) | UMMAP_O_OVERLAID, geom);
	if (err)
		free(c);
	if (err == -ENOENT && oflags & UMMAP_O_CREATE)
		return keys_refuse(geom, ENOENT, "cannot open '%.140s': it does not exist, and cow+ "
				   "only reads it. Try to create it first, even if it is empty",
				   uri->path);
	if (err)
		return err;
	err = set_up(c, uri, fd, oflags, geom);
	if (err) {
		behind_close(&c->store);
		release(c);
		return err;
	}
	*h = c;
	return 0;
}

static int cow_open_uri(const struct ummap_uri *uri, int oflags, void **h, struct ummap_geom *geom)
{
	return open_both(uri, -1, oflags, h, geom);
}

static int cow_open_fd(const struct ummap_uri *uri, int fd, int oflags, void **h, struct ummap_geom *geom)
{
	return open_both(uri, fd, oflags, h, geom);
}

/* Without its entry a block that was written would be missed by whoever comes next. */
static int cow_close_handle(void *h)
{
	struct cow *c = h;
	int err = 0, closing;

	if (c->writable && !c->handed && !behind_inherited(&c->store) &&
	    cow_is_due(&c->changes, c->size))
		err = cow_flush(&c->changes, c->size);
	/* A file of changes that cannot be removed is marked as being committed; ummap-cow(1) completes
	 * that. */
	if (c->committed && !behind_inherited(&c->store))
		err = side_remove(&c->changes.file);
	if (c->changes.file.h)
		cow_close(&c->changes);
	closing = behind_close(&c->store);
	release(c);
	return err > 0 ? -err : err ? err : closing;
}

const struct ummap_driver ummap_driver_cow = {
	.struct_size = sizeof(struct ummap_driver),
	.abi = UMMAP_DRIVER_ABI,
	.scheme = "cow",
	.keys = COW_KEYS(KEY_NAME),
	.help = "cow+URI  the store stays as it is, and what is written goes to a file of changes (cow.path)",
	.filter = 1,
	.open = cow_open_uri,
	.open_fd = cow_open_fd,
	.close = cow_close_handle,
	.read = cow_read,
	.write = cow_write,
	.flush = cow_flush_handle,
	.resize = cow_resize,
	.submit = cow_submit,
	.reap = cow_reap,
	.readv = cow_readv,
	.size = cow_size,
	.lock = cow_lock,
	.set_notice = cow_set_notice,
	.hand_over = cow_hand_over,
};
