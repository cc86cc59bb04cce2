/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cache - a filter that keeps blocks of a slow store, the far store, in a near file: blocks that
 * were read, and blocks that were written, until they are written back. The near file is an overlay
 * with a fixed number of slots.
 */
#include "cache.h"

#include "../keys.h"
#include "common/stamp.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define DEFAULT_BLOCK ((uint64_t)64 << 10)
#define MIN_SLOTS 16
#define OPEN_TRIES 100          /* attempts to open a near file that another handle makes */

static const struct overlay_policy policy = {
	.scheme = "cache", .file = "near file", .id = OVERLAY_CACHE,
	.has_failed = cache_forget_unflushed, .mend = cache_mend,
};

/* ---- Slots ---- */

unsigned cache_take(struct cache *c, unsigned n, uint32_t *first)
{
	uint32_t slot;
	int taken;

	overlay_reclaim(&c->o);
	taken = c->o.used < c->o.limit ? overlay_take(&c->o, n, &slot) : 0;
	if (taken <= 0)
		return 0;
	*first = slot;
	return (unsigned)taken;
}

void cache_put(struct cache *c, uint32_t s, uint64_t block, bool dirty, uint64_t parts)
{
	struct overlay_slot *slot = cache_slot(c, s);

	slot->block = block;
	slot->flags |= dirty ? 0 : SLOT_CLEAN;
	cache_set_parts(c, s, parts);
	cache_add(&c->index, s, block, dirty, cache_now());
}

void cache_set_parts(struct cache *c, uint32_t s, uint64_t parts)
{
	struct overlay_slot *slot = cache_slot(c, s);

	if (parts != slot->valid)
		slot->flags &= ~SLOT_SUMMED;
	slot->valid = parts;
	overlay_mark_changed(&c->o, s);
}

void cache_add_sum(struct cache *c, uint32_t s, uint64_t before, uint64_t sum)
{
	if (!c->o.verifies)
		return;
	cache_slot(c, s)->data = before ^ sum;
	cache_slot(c, s)->flags |= SLOT_SUMMED;
}

void cache_empty(struct cache *c, uint32_t s)
{
	overlay_empty(&c->o, s);
	c->last_drop = c->o.next;
}

void cache_drop(struct cache *c, uint32_t s)
{
	cache_unlist(&c->index, s);
	cache_empty(c, s);
}

void cache_doubt(struct cache *c, uint32_t s)
{
	if (c->far_unflushed != CACHE_FLUSHED || c->far_doubt)
		cache_slot(c, s)->flags |= SLOT_DOUBTFUL;
}

/* ---- Trouble, and commits ---- */

/* The thread gives the notice, because this may be a signal handler. */
static void begin_trouble(struct cache *c, enum cache_trouble trouble, int err)
{
	enum cache_failure file = trouble == CACHE_FAR_FAILS ? CACHE_FAR : CACHE_NEAR;

	c->nerrors[file]++;
	if (atomic_fetch_or(&c->trouble, (uint32_t)trouble) & trouble)
		return;
	c->failed[file] = abs(err);
	cache_wake(c);
}

void cache_near_failed(struct cache *c, int err)
{
	begin_trouble(c, CACHE_NEAR_FAILS, err);
}

void cache_far_was(struct cache *c, int err)
{
	if (err < 0)
		begin_trouble(c, CACHE_FAR_FAILS, err);
	else if (c->trouble & CACHE_FAR_FAILS)
		c->trouble &= ~(uint32_t)CACHE_FAR_FAILS;
}

static int note_near(struct cache *c, int err)
{
	if (err)
		cache_near_failed(c, err);
	else if (c->trouble & CACHE_NEAR_FAILS)
		c->trouble &= ~(uint32_t)CACHE_NEAR_FAILS;
	return -abs(err);
}

int cache_commit(struct cache *c)
{
	return note_near(c, overlay_commit_changes(&c->o));
}

int cache_touch_far(struct cache *c)
{
	struct overlay *o = &c->o;
	int err = 0;

	if (c->touched)
		return 0;
	futex_lock(&o->file_lock);
	if (!c->touched) {
		o->head.flags |= OVERLAY_TOUCHED;
		err = overlay_write_head(o);
		c->touched = !err;
	}
	futex_unlock(&o->file_lock);
	return note_near(c, err);
}

/* ---- Other calls of the driver ---- */

static int cache_flush(void *h, uint64_t off, uint64_t len)
{
	struct cache *c = h;
	int err = 0, lost;

	(void)off;
	(void)len;
	if (!c->o.writable)
		return 0;
	err = c->flush_far ? cache_write_back(c) : cache_flush_far(c, false);
	if (!err && (c->mode == CACHE_BACK || c->landed || c->index.lists[CACHE_DIRTY].count > 0))
		err = cache_commit(c);
	lost = atomic_exchange(&c->far_lost, 0);
	/* The near file is mended before the next commit, so that nothing is lost. */
	return lost ? lost : abs(err);
}

static int cache_resize(void *h, uint64_t size)
{
	struct cache *c = h;
	int err;

	if (size == c->o.size)
		return 0;
	if (size < c->o.size || !c->o.grows)
		return -EOPNOTSUPP;
	c->past += CACHE_WRITE_BEGINS;
	err = cache_touch_far(c);
	if (!err)
		err = behind_resize(&c->o.store, size);
	if (!err)
		c->far_unflushed = CACHE_UNFLUSHED;
	c->past += CACHE_WRITE_ENDS;
	if (!err)
		overlay_grow(&c->o, size);
	return err;
}

/* ---- Keys ---- */

struct keys {
	struct store_facts far;
	char path[PATH_MAX];           /* near file, or a folder for it */
	char uri[OVERLAY_URI];         /* URI of the far store; "": no other process can open it */
	uint64_t size, block;          /* 0: not given */
	uint64_t dirty_percent, dirty_age;
	bool flush_given;
	bool doubt;                    /* whether `far` does not tell if the store has changed */
};

static const struct key_type types[] = { CACHE_KEYS(KEY_TYPE) KEY_TYPES_END };

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

static bool parse_value(struct cache *c, struct keys *k, const struct ummap_key *key)
{
	static const char *const modes[] = { "back", "through", "read", NULL };
	static const char *const populate[] = { "no", "background", NULL };
	static const char *const flush[] = { "near", "far", NULL };
	static const char *const closing[] = { "flush", "keep", NULL };
	int word = -1;

	if (strcmp(key->name, "path") == 0)
		return keys_path(key->value, k->path);
	if (strcmp(key->name, "size") == 0)
		return keys_size(key->value, &k->size);
	if (strcmp(key->name, "block") == 0)
		return keys_size(key->value, &k->block) && k->block >= OVERLAY_BLOCK &&
		       k->block <= OVERLAY_BLOCK_MAX && !(k->block & (k->block - 1));
	if (strcmp(key->name, "verify") == 0)
		return keys_flag(key->value, &c->o.verifies);
	if (strcmp(key->name, "dirty") == 0)
		return parse_dirty(k, key->value);
	if (strcmp(key->name, "mode") == 0) {
		word = keys_word(key->value, modes);
		c->mode = (enum cache_mode)word;
	} else if (strcmp(key->name, "populate") == 0) {
		word = keys_word(key->value, populate);
		c->populates = word == 1;
	} else if (strcmp(key->name, "flush") == 0) {
		word = keys_word(key->value, flush);
		c->flush_far = word == 1;
		k->flush_given = true;
	} else if (strcmp(key->name, "close") == 0) {
		word = keys_word(key->value, closing);
		c->keep = word == 1;
	}
	return word >= 0;
}

static int parse_keys(struct cache *c, struct keys *k, const struct ummap_uri *uri, int oflags,
		      struct ummap_geom *geom)
{
	*k = (struct keys){ .dirty_percent = 50, .dirty_age = 10 };
	if (oflags & UMMAP_O_WRITERS)
		return keys_refuse(geom, EINVAL, "cannot use cache+ with UMMAP_WRITERS: it keeps "
				   "data that other processes may change");
	for (unsigned i = 0; i < uri->nkeys; i++)
		if (!parse_value(c, k, &uri->keys[i]))
			return keys_refuse_value(geom, "cache.", &uri->keys[i], types);
	if (!*k->path)
		return keys_refuse(geom, EINVAL, "cannot use cache+ without cache.path. Try the "
				   "path of the near file, or of a folder for it");
	if (k->flush_given && c->mode != CACHE_BACK && !c->flush_far)
		return keys_refuse(geom, EINVAL, "cannot use cache.flush=near without "
				   "cache.mode=back");
	return 0;
}

/* In a folder, the near file is named after the store, with a number, because several stores may
 * have the same name. */
static int choose_path(struct keys *k, const struct ummap_uri *uri, struct ummap_geom *geom)
{
	char real[PATH_MAX];
	const char *name = k->far.name;
	struct stat st;
	size_t len = strlen(k->path);

	if (stat(k->path, &st) < 0 || !S_ISDIR(st.st_mode))
		return 0;
	overlay_resolve(real, *uri->path ? uri->path : "descriptor");
	if (len + NAME_MAX + 32 > sizeof(k->path))
		return keys_refuse(geom, ENAMETOOLONG, "cannot use cache.path='%.140s': it is too "
				   "long", k->path);
	snprintf(k->path + len, sizeof(k->path) - len, "/%.200s-%016jx.cache",
		 *name ? name : "store",
		 (uintmax_t)checksum(real, strlen(real), *uri->path ? 0 : k->far.id));
	return 0;
}

/* ---- The far store ---- */

/* Updates the properties of a far store that is a file. Returns whether it is one, or a device. */
static bool look_at_far(struct cache *c, struct store_facts *facts)
{
	struct stat st;

	if (c->far_fd < 0 || fstat(c->far_fd, &st) < 0)
		return false;
	if (S_ISBLK(st.st_mode))
		return true;
	if (!S_ISREG(st.st_mode) || (uint64_t)st.st_ino != facts->id)
		return false;
	facts->seconds = (uint64_t)st.st_mtim.tv_sec;
	facts->nanoseconds = (uint64_t)st.st_mtim.tv_nsec;
	return true;
}

/* Waits until the next change of the far store would set another time stamp. */
static void await_stamp(const struct cache *c, const struct store_facts *far)
{
	if (c->far_fd >= 0 && far->seconds)
		stamp_await((int64_t)far->seconds, (int64_t)far->nanoseconds);
}

/* The time of the last write of a file does not tell whether its log has commits. */
static bool has_commits(struct behind *far)
{
	uint64_t oldest, newest;

	return behind_commits(far, &oldest, &newest) == 0 && newest > 0;
}

/* A remote store that is no file has its state in its identity: handles with one identity show the
 * same bytes. */
static bool take_validator(const struct cache *c, const struct ummap_geom *geom,
			   struct store_facts *facts)
{
	bool is_known = !(geom->caps & UMMAP_CAP_WRITE) || c->o.store.driver.identity;

	if (c->far_fd >= 0 || !(geom->caps & UMMAP_CAP_REMOTE) || !is_known)
		return false;
	facts->seconds = geom->id[1];
	return true;
}

static int describe_far(struct cache *c, struct keys *k, const struct ummap_uri *uri, int fd,
			struct ummap_geom *geom)
{
	char real[PATH_MAX];

	/* A symbolic link leads to the same store. */
	overlay_resolve(real, uri->path);
	snprintf(k->far.name, sizeof(k->far.name), "%s", *real ? basename(real) : "");
	k->far.id = geom->id[0];
	k->far.size = geom->size;
	if (fd >= 0)
		c->far_fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	else if (*uri->path)
		c->far_fd = open(uri->path, O_PATH | O_CLOEXEC);
	/* A store that is no file has no path, or one that leads to nothing. */
	if (c->far_fd < 0 && (fd >= 0 || *uri->path) && errno != ENOENT && errno != ENOTDIR &&
	    errno != EACCES && errno != ELOOP && errno != ENAMETOOLONG)
		return keys_refuse(geom, errno, "cannot examine '%.140s': %s", uri->path,
				   strerror(errno));
	/* A store of this process ends with it, so its near file is of no use afterwards. */
	c->is_fixed = take_validator(c, geom, &k->far);
	c->lasts = c->is_fixed || look_at_far(c, &k->far) || !geom->id[0];
	k->doubt = !c->lasts || has_commits(&c->o.store);
	if (c->lasts && fd < 0)
		behind_uri(uri, k->uri, sizeof(k->uri));
	return 0;
}

/* ---- The near file ---- */

static uint64_t near_length(const struct cache *c)
{
	uint32_t last = (uint32_t)c->o.head.slots_max - 1;

	return overlay_block_at(&c->o, last) + c->o.head.block;
}

/* A device must be long enough; a file gets all of its space. */
static int reserve_space(struct cache *c, struct ummap_geom *geom)
{
	uint64_t length = near_length(c), now;
	struct side *file = &c->o.file;
	int err = file->device ? side_size(file, &now) : side_reserve(file, length);

	if (!err && file->device && now < length)
		err = -ENOSPC;
	if (!err)
		err = side_flush(file);
	return err ? keys_refuse(geom, -err, "cannot make the near file '%.140s' %" PRIu64 " bytes "
				 "long: %s", file->path, length, strerror(-err)) : 0;
}

static int create_near(struct cache *c, const struct keys *k, struct ummap_geom *geom)
{
	struct overlay_head *head = &c->o.head;
	uint64_t size = k->size, slots;
	int err = !size && c->o.file.device ? side_size(&c->o.file, &size) : 0;

	if (err || !size)
		return keys_refuse(geom, EINVAL, "cannot create the near file '%.140s': its size "
				   "is not given. Try the key cache.size", c->o.file.path);
	memset(head, 0, sizeof(*head));
	head->block = k->block ? k->block : DEFAULT_BLOCK;
	slots = overlay_count_slots(&c->o, size);
	head->slots_max = MIN_SLOTS;
	if (slots < MIN_SLOTS)
		return keys_refuse(geom, EINVAL, "cannot create the near file: cache.size must be "
				   "at least %" PRIu64 " bytes for blocks of %" PRIu64 " bytes, %d "
				   "of them", near_length(c), head->block, MIN_SLOTS);
	if (slots >= OVERLAY_NO_SLOT)
		return keys_refuse(geom, EINVAL, "cannot create the near file: cache.size makes %"
				   PRIu64 " blocks of %" PRIu64 " bytes, more than 2^32-2. Try a "
				   "larger cache.block", slots, head->block);
	head->slots_max = slots;
	head->base_size = k->far.size;
	head->store = k->far;
	await_stamp(c, &k->far);
	strcpy(head->uri, k->uri);
	/* A device that is too short stays as it is. */
	err = c->o.file.device ? reserve_space(c, geom) : 0;
	if (!err) {
		err = overlay_create(&c->o);
		if (err)
			return keys_refuse(geom, -err, "cannot write the near file '%.140s': %s",
					   k->path, strerror(-err));
	}
	return err ? err : reserve_space(c, geom);
}

/* Whether the near file belongs to the store, and the store is as the filter has left it. */
static int recognize(struct cache *c, const struct keys *k, struct ummap_geom *geom)
{
	const struct overlay_head *head = &c->o.head;
	const struct store_facts *was = &head->store, *is = &k->far;
	bool same = !*was->name || !*is->name || strcmp(was->name, is->name) == 0;
	bool changed = is->size != was->size || is->seconds != was->seconds ||
		       is->nanoseconds != was->nanoseconds;

	if (was->id != is->id || !same)
		return keys_refuse(geom, EINVAL, "cannot use '%.140s': it is the cache of another "
				   "store, '%.30s'. Try another file by cache.path, or by --cache "
				   "of the command", c->o.file.path, was->name);
	if (head->flags & OVERLAY_TOUCHED ? is->size < was->size : changed)
		return keys_refuse(geom, ESTALE, "cannot use '%.140s': the store was "
				   "changed since, and not through cache+. Try `ummap cache drop`",
				   c->o.file.path);
	if ((k->block && k->block != head->block) ||
	    (k->size && overlay_count_slots(&c->o, k->size) != head->slots_max))
		return keys_refuse(geom, EINVAL, "cannot resize '%.140s' (%" PRIu64 " blocks of %"
				   PRIu64 " bytes). Try without cache.size and cache.block, or "
				   "`ummap cache drop`", c->o.file.path, head->slots_max,
				   head->block);
	return 0;
}

static int check_near(struct cache *c, const struct keys *k, struct ummap_geom *geom)
{
	uint64_t length;
	int err = recognize(c, k, geom);

	if (err)
		return err;
	if (c->o.damaged_at || c->o.head.slots_max < MIN_SLOTS)
		return overlay_refuse_damaged(&c->o, geom);
	/* Before the first commit, the file may consist of the header. */
	if (c->o.newest.number == c->o.head.base)
		return reserve_space(c, geom);
	if (side_size(&c->o.file, &length) == 0 && length < near_length(c))
		return keys_refuse(geom, EUCLEAN, "cannot use '%.140s': it has become "
				   "shorter. Try `ummap cache drop`, which loses unwritten changes",
				   c->o.file.path);
	return 0;
}

/* Puts the slots of the file into the index. Doubtful ones count as empty, and all clean ones if
 * nothing tells whether the far store has changed. */
static int load_index(struct cache *c, bool doubt)
{
	uint32_t nslots = (uint32_t)c->o.head.slots_max;
	int err = cache_index_init(&c->index, nslots);

	c->shift = (unsigned)__builtin_ctzll(c->o.head.block);
	c->o.limit = nslots;
	c->o.keep = 1;
	if (!err)
		err = overlay_add_groups(&c->o, (nslots - 1) / OVERLAY_GROUP + 1);
	for (uint32_t s = 0; s < nslots && !err; s++) {
		struct overlay_slot *slot = cache_slot(c, s);
		bool clean = slot->flags & SLOT_CLEAN;

		if (slot->block == OVERLAY_EMPTY)
			continue;
		if ((clean && (doubt || slot->flags & SLOT_DOUBTFUL)) ||
		    cache_find(&c->index, slot->block, !clean) != CACHE_NO_SLOT)
			cache_empty(c, s);
		else
			cache_add(&c->index, s, slot->block, !clean, 0);
	}
	return err;
}

/*
 * Cuts a slot that reaches beyond the end of the store. A crash may have left bytes of a write that
 * made the store longer, without the length. They must not appear when it becomes longer again.
 */
static int cut_slot(struct cache *c, uint32_t s)
{
	static const char zeros[OVERLAY_PART];
	struct overlay_slot *slot = cache_slot(c, s);
	uint64_t from = slot->block << c->shift, skip = c->o.size - from;
	unsigned whole = (unsigned)(skip / OVERLAY_PART), inside = skip % OVERLAY_PART;
	uint64_t parts;

	if (from >= c->o.size) {
		cache_drop(c, s);
		return 0;
	}
	if (skip >= cache_block_bytes(c))
		return 0;
	parts = slot->valid & cache_parts(0, whole + (inside > 0));
	if (parts != slot->valid)
		cache_set_parts(c, s, parts);
	if (!inside || !(parts >> whole & 1))
		return 0;
	return side_write(&c->o.file, zeros, OVERLAY_PART - inside,
			  overlay_block_at(&c->o, s) + skip);
}

static int cut_end(struct cache *c)
{
	int err = 0;

	for (uint32_t s = 0; s < c->index.nslots && !err; s++)
		if (c->index.slots[s].key != CACHE_NO_KEY)
			err = cut_slot(c, s);
	return err;
}

static int use_near(struct cache *c, const struct keys *k, struct ummap_geom *geom)
{
	struct overlay *o = &c->o;
	int err = check_near(c, k, geom);

	if (!err)
		err = overlay_load(o);
	if (!err)
		err = overlay_make_ready(o);
	if (err || !*k->uri || strcmp(o->head.uri, k->uri) == 0)
		return err;
	strcpy(o->head.uri, k->uri);
	return overlay_write_head(o);
}

/* Opens the near file of another handle for reading. */
static int open_as_guest(struct cache *c, const struct keys *k, struct ummap_geom *geom)
{
	int err = cache_guest_open(c, k->path, geom);

	if (!err)
		err = recognize(c, k, geom);
	if (!err && c->o.head.slots_max < MIN_SLOTS)
		err = overlay_refuse_damaged(&c->o, geom);
	if (!err)
		err = cache_guest_start(c, geom);
	c->o.size = geom->size;
	c->populates = false;
	return err;
}

/* Opens the near file, and fills the index. The header of a store that a filter behind this one may
 * write says so. */
static int open_near(struct cache *c, const struct keys *k, struct ummap_geom *geom)
{
	const struct overlay_opening how = { .path = k->path, .write = true, .create = true,
					     .mode = 0600 };
	struct overlay *o = &c->o;
	bool may_share = cache_may_share(c) && !k->doubt;
	int err, tries = 0;

	do {
		if (tries > 0)
			cache_pause();
		err = overlay_open(o, &how, geom);
		if (err == -EBUSY && may_share)
			err = open_as_guest(c, k, geom);
	} while (err == -EAGAIN && ++tries < OPEN_TRIES);
	if (err < 0 || c->is_guest)
		return err == -EAGAIN ? -EBUSY : err;
	err = err == 1 ? create_near(c, k, geom) : use_near(c, k, geom);
	if (!err)
		err = load_index(c, k->doubt);
	c->touched = !err && o->head.flags & OVERLAY_TOUCHED;
	if (!err && c->index.lists[CACHE_DIRTY].count > 0)
		geom->size = max_u64(geom->size, o->newest.size);
	o->size = geom->size;
	if (!err)
		err = cut_end(c);
	if (!err && k->doubt)
		err = cache_touch_far(c);
	if (!err)
		err = cache_note_machine(c);
	if (!err)
		err = side_map(&o->file);
	if (err && !*geom->why)
		keys_refuse(geom, -err, "cannot prepare the near file '%.140s': %s", k->path,
			    strerror(-err));
	if (err && o->file.made && !c->index.memory)
		side_remove(&o->file);
	return err;
}

/* ---- Opening ---- */

static void close_near(struct cache *c)
{
	cache_index_end(&c->index);
	overlay_close(&c->o);
}

static int set_up(struct cache *c, struct keys *k, const struct ummap_uri *uri, int fd,
		  struct ummap_geom *geom)
{
	int err;

	c->o.policy = &policy;
	c->o.writable = geom->caps & UMMAP_CAP_WRITE;
	c->o.grows = geom->caps & UMMAP_CAP_GROW;
	c->async = behind_is_async(&c->o.store);
	if (geom->id[0])
		overlay_name_store(uri, c->store);
	err = describe_far(c, k, uri, fd, geom);
	if (!err)
		err = choose_path(k, uri, geom);
	if (!err)
		err = open_near(c, k, geom);
	if (!err) {
		c->max_dirty = (uint32_t)(c->index.nslots * k->dirty_percent / 100);
		c->max_age = (uint32_t)k->dirty_age;
		geom->caps |= UMMAP_CAP_PARALLEL | (c->async ? UMMAP_CAP_ASYNC : 0);
		err = c->is_guest ? 0 : cache_start(c, geom);
	}
	if (err)
		close_near(c);
	return err;
}

static void release_handle(struct cache *c)
{
	if (c->far_fd >= 0)
		close(c->far_fd);
	cache_free(c);
}

static int open_both(const struct ummap_uri *uri, int fd, int oflags, void **h,
		     struct ummap_geom *geom)
{
	struct cache *c = calloc(1, sizeof(*c));
	struct keys k;
	int err;

	if (!c)
		return -ENOMEM;
	c->far_fd = -1;
	err = parse_keys(c, &k, uri, oflags, geom);
	if (!err)
		err = behind_open(&c->o.store, uri, fd, oflags | UMMAP_O_OVERLAID, geom);
	if (!err) {
		err = set_up(c, &k, uri, fd, geom);
		if (err)
			behind_close(&c->o.store);
	}
	if (err)
		release_handle(c);
	else
		*h = c;
	return err;
}

OPENING_CALLS(cache, open_both)

/* ---- Closing ---- */

/* Asks the far store, while it is open, for the properties by which it is recognized later. */
static int ask_far(struct cache *c, struct store_facts *facts)
{
	uint64_t id[2];

	*facts = c->o.head.store;
	if (behind_identity(&c->o.store, id) == 0)
		facts->seconds = id[1];
	return behind_size(&c->o.store, &facts->size);
}

/* Notes these properties in the header. The store may be longer if dirty blocks make it so. */
static int note_far(struct cache *c, const struct store_facts *far)
{
	struct store_facts facts = *far;
	int err = 0;

	look_at_far(c, &facts);
	futex_lock(&c->o.file_lock);
	if (c->touched || memcmp(&facts, &c->o.head.store, sizeof(facts)) != 0) {
		c->o.head.store = facts;
		c->o.head.flags &= ~(uint64_t)OVERLAY_TOUCHED;
		err = overlay_write_head(&c->o);
		c->touched = false;
	}
	futex_unlock(&c->o.file_lock);
	await_stamp(c, &facts);
	return note_near(c, err);
}

static void report_dirty_end(struct cache *c, int err)
{
	const char *near = c->o.file.path, *reason = strerror(abs(err));

	if (*c->store)
		notice_give(&c->o.notice, "cache+: cannot write all changes back to the store: %s. "
			    "Nothing is lost. Try to repair the storage, then `ummap cache --cache "
			    "%.140s flush %.180s`", reason, near, c->store);
	else
		notice_give(&c->o.notice, "cache+: cannot write all changes back to the store: %s. "
			    "Nothing is lost: the rest is in '%.140s', and is written back when "
			    "the store is opened again", reason, near);
}

/* Writes all dirty blocks back, and makes all clean ones certain. */
static int write_all_back(struct cache *c)
{
	int err = cache_write_back(c);

	return err ? err : cache_settle_far(c);
}

/* Dirty blocks that cannot be written back stay, durably. A filter behind this one may write the
 * far store until it is closed. */
static int end_handle(struct cache *c)
{
	int err = 0, closing, noting = 0, committing;
	struct store_facts far;

	cache_stop(c);
	if (c->o.writable)
		err = c->keep ? cache_settle_far(c) : write_all_back(c);
	if (c->o.writable && !err)
		err = ask_far(c, &far);
	closing = behind_close(&c->o.store);
	err = err ? err : closing;
	committing = c->is_guest ? 0 : cache_commit(c);
	if (c->o.writable && !err && !committing)
		noting = note_far(c, &far);
	cache_give_notices(c);
	if (c->o.writable && err && c->index.lists[CACHE_DIRTY].count)
		report_dirty_end(c, err);
	if (!c->lasts && !err && !c->index.lists[CACHE_DIRTY].count)
		side_remove(&c->o.file);
	return err ? err : committing ? committing : noting;
}

/* ---- Handing over (ummap-driver.h) ---- */

static int prepare_hand_over(struct cache *c, struct ummap_handover *to)
{
	struct store_facts far;
	int err;

	futex_lock(&c->stepping);
	err = c->o.writable ? write_all_back(c) : 0;
	if (err)
		snprintf(to->why, sizeof(to->why), "cannot write the changes in '%.140s' back: %s",
			 c->o.file.path, strerror(abs(err)));
	else
		err = behind_hand_over(&c->o.store, to);
	if (err) {
		futex_unlock(&c->stepping);
		return -abs(err);
	}
	if (!c->is_guest)
		cache_commit(c);
	if (c->o.writable && ask_far(c, &far) == 0)
		note_far(c, &far);
	c->handed_near = !c->is_guest && overlay_has_layer(c->o.policy, to->to);
	c->handed = true;
	if (!c->is_guest)
		side_hand_over(&c->o.file, to);
	return 0;
}

/* The other handle may have used the near file before it failed. Nothing is dirty. */
static int resume_near(struct cache *c)
{
	bool changed;
	int err = overlay_reload(&c->o, &changed);

	if (err || !changed)
		return err ? -EIO : 0;
	cache_index_end(&c->index);
	err = c->o.damaged_at ? -EIO : overlay_load(&c->o);
	if (!err)
		err = load_index(c, false);
	c->touched = c->o.head.flags & OVERLAY_TOUCHED;
	return err ? -EIO : 0;
}

static int cancel_hand_over(struct cache *c, struct ummap_handover *to)
{
	int err = behind_hand_over(&c->o.store, to), resuming;

	if (!c->is_guest)
		side_hand_over(&c->o.file, to);
	resuming = c->handed_near ? resume_near(c) : 0;
	c->handed = false;
	futex_unlock(&c->stepping);
	cache_wake(c);
	return err ? err : resuming;
}

static int cache_hand_over(void *h, struct ummap_handover *to)
{
	struct cache *c = h;

	if (to->how == UMMAP_HANDOVER_FINISH)
		return behind_hand_over(&c->o.store, to);
	return to->how == UMMAP_HANDOVER_CANCEL ? cancel_hand_over(c, to) :
						  prepare_hand_over(c, to);
}

static int end_handed(struct cache *c)
{
	c->stop = true;
	futex_unlock(&c->stepping);
	cache_stop(c);
	if (!c->lasts && !c->handed_near)
		side_remove(&c->o.file);
	return behind_close(&c->o.store);
}

static int cache_close(void *h)
{
	struct cache *c = h;
	int err;

	if (behind_inherited(&c->o.store))
		err = behind_close(&c->o.store);
	else
		err = c->handed ? end_handed(c) : end_handle(c);
	close_near(c);
	release_handle(c);
	return -abs(err);
}

const struct ummap_driver ummap_driver_cache = {
	.struct_size = sizeof(struct ummap_driver),
	.abi = UMMAP_DRIVER_ABI,
	.scheme = "cache",
	.keys = CACHE_KEYS(KEY_NAME),
	.help = "cache+URI  a near file in front of a slow store (cache.path, cache.size, "
		"cache.mode=back|through|read)",
	.filter = 1,
	.open = cache_open,
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
	.size = overlay_size,
	.lock = overlay_lock,
	.push = overlay_push,
	.set_notice = overlay_set_notice,
	.hand_over = cache_hand_over,
};
