/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * actions.h - actions on the overlays of the filters wal+, cow+ and cache+, for the commands
 * overlay, wal, cow and cache. If an action fails, it prints a message and ends the command.
 */
#ifndef TOOLS_OVERLAY_ACTIONS_H
#define TOOLS_OVERLAY_ACTIONS_H

#include "../../drivers/overlay/cow.h"
#include "../beside.h"

#include <inttypes.h>

#define MAX_LOOKS 20
#define LOOK_SLEEP_US 10000

/* Files that an action accepts: those of any filter, or of one. */
static const struct overlay_policy any_overlay = { .scheme = "overlay", .file = "overlay" };
static const struct overlay_policy any_log = { .scheme = "wal", .file = "log", .id = OVERLAY_WAL };
static const struct overlay_policy any_changes = {
	.scheme = "cow", .file = "file of changes", .id = OVERLAY_COW
};
static const struct overlay_policy any_near = {
	.scheme = "cache", .file = "near file", .id = OVERLAY_CACHE
};

__attribute__((noreturn)) static inline void refuse_file(int err, const struct ummap_geom *geom)
{
	refuse("%s", *geom->why ? geom->why : strerror(-err));
}

/* The near file of a store has no default path, so the command may have guessed a wrong one. */
static inline void refuse_missing(const struct job *job, const struct overlay_policy *policy,
				  int err)
{
	if (err == -ENOENT && policy->id == OVERLAY_CACHE && !job->named && job->store)
		refuse("cannot find the cache of '%s': there is no file '%s'. Try --cache with the "
		       "near file, or 'ls' with the folder that cache.path names", job->store,
		       job->file);
}

/* Returns -EBUSY if another process has the overlay. */
static inline int open_overlay(const struct job *job, const struct overlay_policy *policy, int lock,
			struct overlay *o)
{
	const struct overlay_opening how = { .path = job->file, .lock = lock,
					     .write = lock == UMMAP_LOCK_EXCLUSIVE };
	struct ummap_geom geom = { .size = 0 };
	int err;

	memset(o, 0, sizeof(*o));
	o->policy = policy;
	err = overlay_open(o, &how, &geom);
	/* A log without a header has no commits: a crash has interrupted its creation. */
	if (err == 1 && policy->id == OVERLAY_WAL) {
		o->head.block = OVERLAY_BLOCK;
		return 0;
	}
	if (err == 1)
		refuse("cannot read '%s': it was never used", job->file);
	refuse_missing(job, policy, err);
	/* If no commit is whole, the slots are those of none. */
	if (!err && (!o->damaged_at || o->newest.number > o->head.base))
		err = overlay_load(o);
	if (err == -EBUSY && lock == UMMAP_LOCK_SHARED)
		return err;
	if (err)
		refuse_file(err, &geom);
	return 0;
}

/*
 * Opens an overlay with its index, and changes nothing. Damage is no error. With UMMAP_LOCK_NONE,
 * the overlay may be in use, and may look damaged while a filter writes it. If it can be locked, it
 * is not in use.
 */
static inline void look_at(const struct job *job, const struct overlay_policy *policy, int lock,
	     struct overlay *o)
{
	int err = open_overlay(job, policy, lock, o);

	for (unsigned looks = 1; lock == UMMAP_LOCK_NONE && o->damaged_at; looks++) {
		overlay_close(o);
		err = open_overlay(job, policy, UMMAP_LOCK_SHARED, o);
		if (err != -EBUSY)
			return;
		if (looks == MAX_LOOKS)
			break;
		usleep(LOOK_SLEEP_US);
		err = open_overlay(job, policy, UMMAP_LOCK_NONE, o);
	}
	if (err)
		refuse("cannot read '%s': it is in use. Try again when the mapping has ended",
		       job->file);
}

/* The oldest commit that may be opened. After damage it may be newer than o->newest. */
static inline uint64_t oldest_commit(const struct overlay *o)
{
	return o->newest.floor > o->head.floor ? o->newest.floor : o->head.floor;
}

static inline uint64_t file_length(const struct job *job, struct overlay *o)
{
	uint64_t length;
	int err = side_size(&o->file, &length);

	if (err)
		refuse("cannot read '%s': %s", job->file, strerror(-err));
	return length;
}

/* Compares the blocks that the store does not have with their checksums. */
static inline void check_blocks(const struct job *job, struct overlay *o)
{
	uint64_t bad;
	int err = o->damaged_at ? 0 : overlay_check_blocks(o, &bad);

	if (err)
		refuse("cannot read '%s': %s", job->file, strerror(-err));
}

/* Prints the positions of damage, if there is any. Returns whether there is. */
static inline bool print_damage(const struct job *job, const struct overlay *o)
{
	if (o->slots.damaged)
		printf("%s: one of the two copies of the header is damaged; the other one is "
		       "intact\n",
		       job->file);
	if (o->damaged_at)
		printf("%s: damaged at byte %" PRIu64 ", after commit %" PRIu64 "\n", job->file,
		       o->damaged_at, o->newest.number);
	return o->slots.damaged || o->damaged_at;
}

/* ---- Applying ---- */

/* Opens the store through the filter of an overlay, which writes its contents to the store when the
 * handle is closed. */
static inline void write_through(const struct job *job, const struct overlay_policy *policy)
{
	static char store[STORE_URI_MAX], file[3 * PATH_MAX];
	static char uri[sizeof(store) + sizeof(file) + 32];
	struct ummap_driver driver = { .struct_size = sizeof(driver) };
	struct ummap_geom geom;
	void *h;
	int err;

	store_uri(store, job->store);
	uri_encode(file, sizeof(file), job->file);
	snprintf(uri, sizeof(uri), "%s+%s%c%s.path=%s", policy->scheme, store,
		 strchr(store, '?') ? '&' : '?', policy->scheme, file);
	if (ummap_driver_open(uri, UMMAP_O_WRITE, &driver, &h, &geom) < 0)
		refuse("%s", umerrormsg());
	err = driver.close(h);
	if (err)
		refuse("cannot apply '%s' to '%s': %s. The %s is kept", job->file, job->store,
		       strerror(-err), policy->file);
}

/* Writes all commits to the store, and removes the log. Returns the number of the newest commit. */
static inline uint64_t apply_log(const struct job *job)
{
	struct overlay o;

	/* Opening the store would create a missing log, but look_at ends the command. */
	look_at(job, &any_log, UMMAP_LOCK_NONE, &o);
	overlay_close(&o);
	if (*o.head.store.name && *job->path && !is_called(job->path, o.head.store.name))
		refuse("cannot apply '%s' to '%s': it is the log of another store, '%s'. Try %s",
		       job->file, job->store, o.head.store.name, job->remedy);
	write_through(job, &any_log);
	return o.newest.number;
}

static inline void open_store(const struct job *job, struct ummap_driver *driver, void **h,
		       struct ummap_geom *geom)
{
	static char uri[STORE_URI_MAX];
	char who[160] = "";

	store_uri(uri, job->store);
	if (ummap_driver_open(uri, UMMAP_O_WRITE, driver, h, geom) < 0)
		refuse("%s", umerrormsg());
	if (driver->lock && driver->lock(*h, 0, INT64_MAX, UMMAP_LOCK_EXCLUSIVE, who) == -EBUSY)
		refuse("cannot commit to '%s': it is in use by %s. Try again when that has ended",
		       job->store, *who ? who : "another process");
}

/* Changes that were made over another filter must be committed through it: its file has part of the
 * contents. */
static inline void check_way(const struct job *job, const struct overlay *o)
{
	if (*o->head.way && strcmp(o->head.way, "posix") != 0 && !is_uri(job->store))
		refuse("cannot commit '%s': its store was opened as '%s'. Try the URI of the store "
		       "in place of its path",
		       job->file, o->head.way);
}

/* Writes the changes to the store, and removes them. Returns the number of the newest commit. */
static inline uint64_t apply_changes(const struct job *job)
{
	struct ummap_driver driver = { .struct_size = sizeof(driver) };
	struct ummap_geom geom;
	struct store_facts now;
	struct overlay o;
	void *store;
	int err;

	look_at(job, &any_changes, UMMAP_LOCK_EXCLUSIVE, &o);
	check_way(job, &o);
	open_store(job, &driver, &store, &geom);
	overlay_describe(&now, job->path, -1, geom.size);
	err = cow_commit(&o, &now, &driver, store, &geom);
	if (err)
		refuse("%s", geom.why);
	overlay_close(&o);
	err = driver.close(store);
	if (err)
		refuse("cannot close '%s': %s", job->store, strerror(-err));
	return o.newest.number;
}

/* Writes the dirty blocks of a near file, which stays, to its store. Returns the number of the
 * newest commit. */
static inline uint64_t flush_near(const struct job *job)
{
	struct overlay o;

	/* Opening the store would create a missing near file, but look_at ends the command. */
	look_at(job, &any_near, UMMAP_LOCK_NONE, &o);
	overlay_close(&o);
	write_through(job, &any_near);
	return o.newest.number;
}

/* ---- Removing ---- */

/* Whether a file has the header of a format before overlays. */
static inline bool is_earlier(struct side *file)
{
	static const char *const earlier[] = { "walhead1", "cowhead1", "cachehd2" };
	char magic[8];

	for (unsigned i = 0; i < 6; i++)
		if (side_read(file, magic, sizeof(magic), i % 2 * HEADER_SLOT) == 0 &&
		    memcmp(magic, earlier[i / 2], 8) == 0)
			return true;
	return false;
}

/* Removes an overlay, or a file of an earlier version of the library. */
static inline int drop_overlay(const struct job *job, const struct overlay_policy *policy)
{
	struct ummap_geom geom = { .size = 0 };
	struct overlay o = { .policy = policy };
	int err = side_open(&o.file, job->file, UMMAP_O_WRITE, 0, UMMAP_LOCK_EXCLUSIVE, &geom);

	refuse_missing(job, policy, err);
	if (err)
		refuse_file(err, &geom);
	if (!is_earlier(&o.file)) {
		side_close(&o.file);
		look_at(job, policy, UMMAP_LOCK_EXCLUSIVE, &o);
	}
	if (o.head.flags & (OVERLAY_APPLYING | OVERLAY_MIXED))
		refuse("cannot remove '%s': a commit was not completed, and its store '%s' has a "
		       "part of it. Try '%s'", job->file, o.head.store.name,
		       policy->id ? "commit" : "apply");
	err = tool_remove(job, &o.file, policy->id != OVERLAY_COW && job->store ?
			  o.head.store.name : "");
	overlay_close(&o);
	return err;
}

#endif
