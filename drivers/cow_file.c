/* SPDX-License-Identifier: BSD-3-Clause */
/* The changes of cow+: see cow_file.h, which says why it is as it is. Allocates in opening; all else may run in signal
 * handlers, but for the commit. */
#include "cow_file.h"

#include "common/futex.h"
#include "common/random.h"
#include "keys.h"

#include <errno.h>
#include <inttypes.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define HEAD_MAGIC 0x3164616568776f63u /* "cowhead1" */
#define GROUP_BYTES ((COW_GROUP + 1) * COW_BLOCK)
#define COPIED COW_GROUP               /* blocks in one request of a commit */

_Static_assert(COW_GROUP * sizeof(struct cow_entry) == COW_BLOCK, "the entries of a group are a page");
_Static_assert(sizeof(struct cow_head) <= HEADER_BODY_MAX, "the head fits a slot");

static uint64_t entry_at(uint64_t slot)
{
	return HEADER_BYTES + slot / COW_GROUP * GROUP_BYTES + slot % COW_GROUP * sizeof(struct cow_entry);
}

static uint64_t block_at(uint64_t slot)
{
	return HEADER_BYTES + slot / COW_GROUP * GROUP_BYTES + COW_BLOCK + slot % COW_GROUP * COW_BLOCK;
}

/* Slots from this one on that are neighbours in the file, at most n. */
static uint64_t neighbours(uint64_t slot, uint64_t n)
{
	uint64_t left = COW_GROUP - slot % COW_GROUP;

	return n < left ? n : left;
}

static uint64_t entry_sum(const struct cow_file *f, uint64_t slot, uint64_t block)
{
	const uint64_t both[] = { slot, block };

	return checksum(both, sizeof(both), f->head.salt);
}

/* The other slot of the head is durable: this one may be written over and over until it is. */
static int write_head(struct cow_file *f)
{
	header_repeat(&f->slots);
	return header_write(&f->slots, &f->file, &f->head, sizeof(f->head));
}

/* ---- Opening ---- */

void cow_describe(struct cow_base *base, const char *path, int fd, uint64_t size)
{
	char copy[PATH_MAX];
	struct stat st = { .st_mode = 0 };

	*base = (struct cow_base){ .size = size };
	snprintf(copy, sizeof(copy), "%s", path);
	snprintf(base->name, sizeof(base->name), "%s", basename(copy));
	if ((fd < 0 ? stat(path, &st) : fstat(fd, &st)) < 0 || !S_ISREG(st.st_mode))
		return;
	base->inode = st.st_ino;
	base->seconds = st.st_mtim.tv_sec;
	base->nanoseconds = st.st_mtim.tv_nsec;
}

static bool is_same(const struct cow_base *a, const struct cow_base *b)
{
	return a->inode == b->inode && (a->inode || strcmp(a->name, b->name) == 0);
}

/* A commit that has begun has written to the store. */
int cow_fits(const struct cow_file *f, const struct cow_base *now, struct ummap_geom *geom)
{
	const struct cow_base *then = &f->head.base;

	if (!is_same(now, then))
		return keys_refuse(geom, EINVAL, "cannot use '%.140s': it has the changes of "
				   "another store, '%.30s'. Try another file by cow.path, or by "
				   "--changes of the command", f->file.path, then->name);
	if (f->head.committing != COW_COMMITTING && (now->size != then->size || now->seconds != then->seconds ||
				    now->nanoseconds != then->nanoseconds))
		return keys_refuse(geom, ESTALE, "cannot use '%.140s': the store was written since "
				   "its changes began. Try `ummap cow discard`", f->file.path);
	return 0;
}

static int damaged(const struct cow_file *f, struct ummap_geom *geom)
{
	return keys_refuse(geom, EUCLEAN, "cannot use '%.140s': it is damaged at byte %ju. Try "
			   "`ummap cow` to show or discard it", f->file.path,
			   (uintmax_t)f->damaged_at);
}

/* One that is new, or was never used. */
static int begin(struct cow_file *f, const struct cow_base *base, const char *way)
{
	f->head.salt = random_id();
	f->head.base = *base;
	f->head.size = base->size;
	strncpy(f->head.way, way, sizeof(f->head.way) - 1);
	return header_write_both(&f->slots, &f->file, &f->head, sizeof(f->head));
}

/* What is not whole counts for nothing, but where it was durable. */
static int take_entry(struct cow_file *f, uint64_t slot, const struct cow_entry *e, uint64_t length)
{
	bool whole = e->sum == entry_sum(f, slot, e->block), lasts = slot < f->head.slots;
	bool right = e->block == COW_VOID || (e->block <= f->head.size / COW_BLOCK && e->block * COW_BLOCK < f->head.size &&
					      block_at(slot) + COW_BLOCK <= length && !blockmap_get(&f->index, e->block));
	int err = 0;

	if ((!whole && lasts) || (whole && !right)) {
		f->damaged_at = f->damaged_at ? f->damaged_at : entry_at(slot);
		return 0;
	}
	if (!lasts)
		err = blockmap_reserve(&f->entries, slot, 1);
	if (!err && whole && e->block != COW_VOID)
		err = blockmap_reserve(&f->index, e->block, 1);
	if (err)
		return err;
	if (!lasts)
		blockmap_set(&f->entries, slot, (whole ? e->block : COW_VOID) + 1);
	if (whole && e->block != COW_VOID)
		blockmap_set(&f->index, e->block, block_at(slot));
	if (whole)
		f->end = slot + 1;
	return 0;
}

static int find(struct cow_file *f)
{
	struct cow_entry *entries = (struct cow_entry *)f->page;
	uint64_t length;
	int err = side_size(&f->file, &length);

	f->durable = f->end = f->head.slots;
	for (uint64_t slot = 0; !err && (entry_at(slot) < length || slot < f->head.slots); slot += COW_GROUP) {
		err = side_read(&f->file, entries, COW_BLOCK, entry_at(slot));
		for (uint64_t k = 0; k < COW_GROUP && !err; k++)
			err = take_entry(f, slot + k, &entries[k], length);
	}
	return err;
}

/* 0: it has a head, and what it has was found; 1: it is new, or was never used. */
static int read_file(struct cow_file *f, struct ummap_geom *geom)
{
	int err;

	f->slots = side_header(HEAD_MAGIC);
	f->page = malloc(COW_BLOCK);
	if (!f->page)
		return -ENOMEM;
	err = header_read(&f->slots, &f->file, &f->head, sizeof(f->head));
	if (err == 1)
		return 1;
	if (err == -ENODATA)
		return keys_refuse(geom, EUCLEAN, "cannot use '%.140s': it is no file of cow+, or "
				   "its header is damaged", f->file.path);
	if (!err)
		err = find(f);
	if (err)
		keys_refuse(geom, -err, "cannot read '%.140s': %s", f->file.path, strerror(-err));
	return err;
}

/* What was found is there for good, and nothing behind the end of the store shows if that becomes longer. */
static int make_ready(struct cow_file *f)
{
	static const char zeros[COW_BLOCK];
	uint64_t tail = f->head.size % COW_BLOCK, place = tail ? blockmap_get(&f->index, f->head.size / COW_BLOCK) : 0;
	int err = side_flush(&f->file);

	if (err)
		return err;
	header_set_flushed(&f->slots);
	err = header_mend(&f->slots, &f->file, &f->head, sizeof(f->head));
	if (err)
		return err;
	return place ? side_write(&f->file, zeros, COW_BLOCK - tail, place + tail) : 0;
}

static int check_and_use(struct cow_file *f, const struct cow_wish *wish, struct ummap_geom *geom)
{
	int err = cow_fits(f, wish->base, geom);

	if (err)
		return err;
	if (f->damaged_at)
		return damaged(f, geom);
	if (f->head.committing == COW_COMMITTING)
		return keys_refuse(geom, EUCLEAN, "cannot use '%.140s': its commit to the store was "
				   "interrupted. Try `ummap cow commit` first", f->file.path);
	return wish->write ? make_ready(f) : 0;
}

int cow_open(struct cow_file *f, const struct cow_wish *wish, struct ummap_geom *geom)
{
	int oflags = wish->write ? UMMAP_O_WRITE | UMMAP_O_CREATE : 0, err;

	memset(f, 0, sizeof(*f));
	err = side_open(&f->file, wish->path, oflags, wish->mode, wish->write ? UMMAP_LOCK_EXCLUSIVE : UMMAP_LOCK_SHARED, geom);
	if (err == -ENOENT && !wish->write) {
		*geom->why = '\0';
		return 0;
	}
	if (err)
		return err;
	err = side_must_be_file(&f->file, geom);
	if (!err)
		err = read_file(f, geom);
	if (err == 1 && wish->write)
		err = begin(f, wish->base, wish->way);
	else if (err == 0)
		err = check_and_use(f, wish, geom);
	if (err < 0 && !*geom->why)
		keys_refuse(geom, -err, "cannot prepare '%.140s': %s", wish->path, strerror(-err));
	if (err)
		cow_close(f);
	return err < 0 ? err : 0;
}

int cow_look(struct cow_file *f, const char *path, int how, struct ummap_geom *geom)
{
	int err;

	memset(f, 0, sizeof(*f));
	err = side_open(&f->file, path, how == UMMAP_LOCK_EXCLUSIVE ? UMMAP_O_WRITE : 0, 0, how, geom);
	if (err)
		return err;
	err = read_file(f, geom);
	if (err == 1)
		err = keys_refuse(geom, ENODATA, "cannot find changes in '%.140s': it was never "
				  "used", path);
	if (err)
		cow_close(f);
	return err;
}

/* Whether the file of changes with that path says that a commit has begun. false also if there is
 * none, or another handle has a lock that excludes `how`. */
static bool is_committing(const char *path, int how)
{
	struct ummap_geom geom = { .size = 0 };
	struct cow_file f = { .head.committing = 0 };
	int err = side_open(&f.file, path, 0, 0, how, &geom);

	if (err)
		return false;
	f.slots = side_header(HEAD_MAGIC);
	err = header_read(&f.slots, &f.file, &f.head, sizeof(f.head));
	side_close(&f.file);
	return !err && f.head.committing == COW_COMMITTING;
}

int cow_check_store(const char *path, struct ummap_geom *geom)
{
	char changes[PATH_MAX];
	struct stat st;

	if (snprintf(changes, sizeof(changes), "%s" COW_SUFFIX, path) >= PATH_MAX ||
	    stat(changes, &st) < 0 || !S_ISREG(st.st_mode))
		return 0;
	/* A commit at work, or a mapping that is handed over, has locked the file. */
	if (!is_committing(changes, UMMAP_LOCK_NONE) || !is_committing(changes, UMMAP_LOCK_SHARED))
		return 0;
	return keys_refuse(geom, EUCLEAN, "cannot open the store: the commit of '%.140s' to it was "
			   "interrupted. Try `ummap cow commit`", changes);
}

int cow_close(struct cow_file *f)
{
	blockmap_free(&f->index);
	blockmap_free(&f->entries);
	free(f->page);
	f->page = NULL;
	return side_close(&f->file);
}

/* ---- Adding ---- */

static int add_neighbours(struct cow_file *f, uint64_t block, uint64_t n, const char *buf)
{
	int err = blockmap_reserve(&f->index, block, n);

	if (!err)
		err = blockmap_reserve(&f->entries, f->end, n);
	if (!err)
		err = side_write(&f->file, buf, n * COW_BLOCK, block_at(f->end));
	for (uint64_t k = 0; k < n && !err; k++, f->end++) {
		blockmap_set(&f->entries, f->end, block + k + 1);
		blockmap_set(&f->index, block + k, block_at(f->end));
	}
	return err;
}

int cow_add(struct cow_file *f, uint64_t block, uint64_t n, const char *buf)
{
	int err = 0;

	for (uint64_t done = 0, now; done < n && !err; done += now) {
		now = neighbours(f->end, n - done);
		err = add_neighbours(f, block + done, now, buf + done * COW_BLOCK);
	}
	return err;
}

/* ---- Flushing ---- */

/* Blocks that a failed flush may have lost: what can be read of them still is written once more. Under the lock, because they
 * may be written meanwhile. */
static int write_again(struct cow_file *f, uint64_t end)
{
	int err = 0;

	for (uint64_t slot = f->durable; slot < end && !err; slot++) {
		err = side_read(&f->file, f->page, COW_BLOCK, block_at(slot));
		if (!err)
			err = side_write(&f->file, f->page, COW_BLOCK, block_at(slot));
	}
	return err;
}

static int write_entries(struct cow_file *f, uint64_t end)
{
	struct cow_entry *entries = (struct cow_entry *)f->page;
	int err = 0;

	for (uint64_t slot = f->durable, n; slot < end && !err; slot += n) {
		n = neighbours(slot, end - slot);
		for (uint64_t k = 0; k < n; k++) {
			uint64_t block = blockmap_get(&f->entries, slot + k) - 1;

			entries[k] = (struct cow_entry){ block, entry_sum(f, slot + k, block) };
		}
		err = side_write(&f->file, entries, n * sizeof(*entries), entry_at(slot));
	}
	return err;
}

static int flush_file(struct cow_file *f)
{
	int err = side_flush(&f->file);

	if (!err) {
		header_set_flushed(&f->slots);
		return 0;
	}
	/* The head may be lost, too. */
	f->unsure = f->head_due = true;
	return err;
}

bool cow_is_due(const struct cow_file *f, uint64_t size)
{
	return f->durable < f->end || f->head_due || f->head.size != size;
}

/* First blocks and head, ... */
static int flush_blocks(struct cow_file *f, uint64_t size, uint64_t *end)
{
	int err = 0;

	futex_lock(&f->lock);
	*end = f->end;
	if (f->unsure)
		err = write_again(f, *end);
	futex_unlock(&f->lock);
	if (err)
		return err;
	f->head_due |= f->head.size != size;
	f->head.size = size;
	/* Nothing is lost yet. */
	if (f->head_due && (err = write_head(f)))
		return -err;
	err = flush_file(f);
	if (!err)
		f->unsure = f->head_due = false;
	return err;
}

/* ... then what leads to the blocks. */
static int flush_entries(struct cow_file *f, uint64_t end)
{
	int err = write_entries(f, end);

	if (err)
		return -err;
	err = flush_file(f);
	if (err)
		return err;
	f->durable = f->head.slots = end;
	/* By the way: the next flush makes it durable, and it is no matter if that fails. */
	write_head(f);
	return 0;
}

int cow_flush(struct cow_file *f, uint64_t size)
{
	uint64_t end;
	int err;

	futex_lock(&f->flushing);
	err = flush_blocks(f, size, &end);
	if (!err && end > f->durable)
		err = flush_entries(f, end);
	futex_unlock(&f->flushing);
	return err;
}

/* ---- Committing ---- */

static int copy_blocks(struct cow_file *f, const struct ummap_driver *driver, void *store)
{
	char *buf = malloc(COPIED * COW_BLOCK);
	uint64_t block = 0, place, n;
	int err = buf ? 0 : -ENOMEM;

	for (; !err && blockmap_next(&f->index, &block, &place); block += n) {
		uint64_t off = block * COW_BLOCK, len;

		n = side_collect(&f->file, &f->index, block, COPIED, COW_BLOCK, buf, &err);
		len = n * COW_BLOCK < f->head.size - off ? n * COW_BLOCK : f->head.size - off;
		if (!err)
			err = driver->write(store, buf, len, off);
	}
	free(buf);
	return err;
}

static int write_store(struct cow_file *f, uint64_t size, const struct ummap_driver *driver, void *store)
{
	int err = 0;

	if (f->head.size > size)
		err = driver->resize ? driver->resize(store, f->head.size) : -EOPNOTSUPP;
	if (!err)
		err = copy_blocks(f, driver, store);
	if (!err && driver->flush)
		err = driver->flush(store, 0, UINT64_MAX);
	return err > 0 ? -err : err;
}

int cow_write_changes(struct cow_file *f, const struct cow_base *base,
		      const struct ummap_driver *driver, void *store, struct ummap_geom *geom)
{
	int err = cow_fits(f, base, geom);

	if (err)
		return err;
	if (f->damaged_at)
		return damaged(f, geom);
	err = make_ready(f);
	if (!err && f->head.committing != COW_COMMITTING) {
		f->head.committing = COW_COMMITTING;
		err = header_write_both(&f->slots, &f->file, &f->head, sizeof(f->head));
	}
	if (err)
		return keys_refuse(geom, -err, "cannot write '%.140s': %s. The store is unchanged",
				   f->file.path, strerror(-err));
	err = write_store(f, base->size, driver, store);
	if (err)
		return keys_refuse(geom, -err, "cannot write to the store: %s. Try to commit "
				   "'%.140s' again, which stays", strerror(-err), f->file.path);
	return 0;
}

int cow_commit(struct cow_file *f, const struct cow_base *base, const struct ummap_driver *driver,
	       void *store, struct ummap_geom *geom)
{
	int err = cow_write_changes(f, base, driver, store, geom);

	if (err)
		return err;
	err = side_remove(&f->file);
	if (err)
		return keys_refuse(geom, -err, "cannot remove '%.140s': %s. Its changes are "
				   "committed", f->file.path, strerror(-err));
	return 0;
}

int cow_end_commit(struct cow_file *f, const char *path)
{
	struct cow_base now;
	struct stat st;

	if (f->head.committing != COW_COMMITTING)
		return 0;
	if (stat(path, &st) < 0)
		return -errno;
	cow_describe(&now, path, -1, (uint64_t)st.st_size);
	now.size = S_ISREG(st.st_mode) ? now.size : f->head.base.size;
	f->head.base = now;
	f->head.committing = COW_MIXED;
	return header_write_both(&f->slots, &f->file, &f->head, sizeof(f->head));
}
