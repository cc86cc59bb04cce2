/* SPDX-License-Identifier: BSD-3-Clause */
/* The filter sum: opening, closing and handing over a store. Only these calls allocate memory. */
#include "sum.h"

#include "common/fd_path.h"
#include "common/futex.h"
#include "common/memory_calls.h"
#include "common/minmax.h"
#include "keys.h"
#include "transparent.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

extern const struct ummap_driver ummap_driver_sum;

/* ---- Opening and closing ---- */

static const struct key_type types[] = { SUM_KEYS(KEY_TYPE) KEY_TYPES_END };

enum changed { CHANGED_REFUSE, CHANGED_CHECK, CHANGED_RENEW };

/* The settings of a handle, and the store that it opens. */
struct opening {
	const struct ummap_uri *uri;
	struct ummap_geom *geom;
	enum changed changed;      /* value of sum.changed */
	char path[PATH_MAX];       /* path of the file of checksums; "": sum.path is not given */
	bool is_new;               /* whether the file gets checksums of the whole store */
	bool differs;              /* whether the store differs from the facts in the header */
};

static int parse_keys(struct opening *how)
{
	static const char *const words[] = { "refuse", "check", "renew", NULL };

	for (unsigned i = 0; i < how->uri->nkeys; i++) {
		const struct ummap_key *key = &how->uri->keys[i];
		bool is_path = strcmp(key->name, "path") == 0;
		int word = is_path ? 0 : keys_word(key->value, words);

		if (word < 0 || (is_path && !keys_path(key->value, how->path)))
			return keys_refuse_value(how->geom, "sum.", key, types);
		if (!is_path)
			how->changed = (enum changed)word;
	}
	return 0;
}

/* The contents of a store that is not in a file may end with its handle. */
static int choose_path(struct opening *how, const struct stat *st)
{
	if (!S_ISREG(st->st_mode) && !S_ISBLK(st->st_mode))
		return keys_refuse(how->geom, EINVAL, "cannot use sum+: the store is not a regular "
				   "file or a block device");
	if (!*how->path && (!S_ISREG(st->st_mode) || !*how->uri->path))
		return keys_refuse(how->geom, EINVAL, "cannot choose a file for the checksums: the "
				   "store is not a regular file with a path. Try to name one by "
				   "sum.path");
	return *how->path ? 0 : overlay_beside(how->path, how->uri->path, SUM_SUFFIX);
}

static bool is_sound(const struct sum_head *head)
{
	return head->block == SUM_BLOCK && head->region > 0 && head->region % SUM_WINDOW == 0 &&
	       head->region <= INT64_MAX && memchr(head->way, '\0', sizeof(head->way));
}

static int refuse_missing(const struct opening *how)
{
	return keys_refuse(how->geom, ENOENT, "cannot open the store: '%.140s' has no checksums "
			   "of it. Try `ummap sum make`", how->path);
}

/* 0, also if the file is new. */
static int read_head(struct sum *s, struct opening *how)
{
	int err;

	s->slots = side_header(SUM_MAGIC);
	err = header_read(&s->slots, &s->file, &s->head, sizeof(s->head));
	how->is_new = err == 1;
	if (how->is_new)
		return s->writable ? 0 : refuse_missing(how);
	if (err == -ENODATA || (!err && !is_sound(&s->head)))
		return keys_refuse(how->geom, EUCLEAN, "cannot use '%.140s': it is no file of "
				   "checksums, or its header is damaged. Try to remove it",
				   s->file.path);
	return err;
}

/* Compares the store with the facts in the header, which do not count while a region is in
 * doubt. */
static int check_facts(const struct sum *s, struct opening *how, const struct store_facts *now,
		       const char *way)
{
	const struct store_facts *then = &s->head.store;
	bool is_later = now->size != then->size || now->seconds != then->seconds ||
			now->nanoseconds != then->nanoseconds;

	how->differs = strcmp(s->head.way, way) != 0 ||
		       (is_later && !sum_has_any(s->head.doubt));
	how->is_new |= how->differs && s->writable && how->changed == CHANGED_RENEW;
	if (how->is_new || !how->differs || how->changed == CHANGED_CHECK)
		return 0;
	return keys_refuse(how->geom, ESTALE, "cannot use '%.100s': the store was written without "
			   "sum+ since, or is opened as sum+%.30s:, not as sum+%.30s:. Try "
			   "sum.changed=check to compare it with the old checksums, or "
			   "sum.changed=renew to make new ones", s->file.path, way, s->head.way);
}

/* Makes the header of a file without entries, with all blocks of the store in doubt (order 4). */
static int begin_file(struct sum *s, uint64_t size, const char *way)
{
	int err = side_resize(&s->file, 0);

	if (!err)
		err = side_flush(&s->file);
	s->slots = side_header(SUM_MAGIC);
	s->head = (struct sum_head){ .block = SUM_BLOCK, .region = SUM_REGION };
	strcpy(s->head.way, way);
	for (uint64_t r = 0; r < SUM_REGIONS && r * SUM_REGION < size; r++)
		sum_add_region(s->head.doubt, r);
	return err ? err : sum_write_head(s, &s->head);
}

/* Finds the first window at or after an offset that is not a hole of the store, up to its end. */
static uint64_t skip_holes(struct sum *s, uint64_t off, uint64_t size)
{
	uint64_t begin, end;

	if (!s->store.driver.data || s->store.driver.data(s->store.h, off, &begin, &end) < 0)
		return off;
	return min_u64(max_u64(off, begin - begin % SUM_WINDOW), size);
}

/* Makes the entries of all regions in doubt (order 3). */
static int renew_doubtful(struct sum *s, const struct opening *how, uint64_t size)
{
	uint64_t file_size, changed = 0, off = 0;
	int err = side_size(&s->file, &file_size);

	/* A crash may leave entries of blocks that it has lost. */
	if (!err && file_size > SUM_ENTRIES_AT)
		size = max_u64(size, (file_size - SUM_ENTRIES_AT) / sizeof(uint64_t) * SUM_BLOCK);
	for (; off < size && !err; off += SUM_WINDOW) {
		off = how->is_new ? skip_holes(s, off, size) : off;
		if (off < size && sum_has_region(s->head.doubt, off / s->head.region % SUM_REGIONS))
			err = sum_renew_entries(s, s->drafts, SUM_WINDOW, off, how->is_new,
						&changed);
	}
	if (!err && changed && !how->is_new)
		keys_refuse(how->geom, 0, "the last writer of the store did not end normally: %ju "
			    "blocks near its writes differed from the checksums in '%.140s', and "
			    "count as right now", (uintmax_t)changed, s->file.path);
	return err;
}

static int allocate_drafts(struct sum *s)
{
	char *at = mmap(NULL, SUM_DRAFTS * SUM_WINDOW, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	for (unsigned i = 0; i < SUM_DRAFTS && at != MAP_FAILED; i++)
		s->drafts[i].bytes = at + i * SUM_WINDOW;
	return at == MAP_FAILED ? -ENOMEM : 0;
}

/* Makes the header that was found durable, which the page cache may have from a dead process. */
static int flush_head(struct sum *s)
{
	int err = side_flush(&s->file);

	if (err)
		return err;
	header_set_flushed(&s->slots);
	return header_mend(&s->slots, &s->file, &s->head, sizeof(s->head));
}

/* Prepares a file for writing. */
static int make_ready(struct sum *s, struct opening *how, const char *way)
{
	int err = how->is_new ? begin_file(s, how->geom->size, way) : flush_head(s);

	if (!err && !how->is_new && !how->differs && !sum_has_any(s->head.doubt))
		return 0;
	strcpy(s->head.way, way);
	if (!err)
		err = renew_doubtful(s, how, how->geom->size);
	if (!err)
		err = -abs(sum_settle(s, true));
	return err ? err : s->unsure ? -EIO : 0;
}

static void close_files(struct sum *s)
{
	if (s->drafts->bytes)
		raw_munmap(s->drafts->bytes, SUM_DRAFTS * SUM_WINDOW);
	if (s->fd >= 0)
		close(s->fd);
	side_close(&s->file);
}

static int open_file(struct sum *s, struct opening *how, const struct stat *st)
{
	int err = side_open(&s->file, how->path,
			    s->writable ? UMMAP_O_WRITE | UMMAP_O_CREATE : 0,
			    (st->st_mode & 0666) | 0600,
			    s->writable ? UMMAP_LOCK_EXCLUSIVE : UMMAP_LOCK_SHARED, how->geom);
	struct store_facts now;
	char way[BEHIND_WAY];

	if (err == -ENOENT)
		return refuse_missing(how);
	if (err)
		return err;
	behind_way(how->uri, way);
	err = side_must_be_file(&s->file, how->geom);
	if (!err)
		err = allocate_drafts(s);
	if (!err)
		err = read_head(s, how);
	if (!err) {
		sum_describe_store(s, way, how->geom->size, &now);
		err = check_facts(s, how, &now, way);
	}
	if (!err && s->writable)
		err = make_ready(s, how, way);
	return err;
}

static int set_up(struct sum *s, struct opening *how, int fd)
{
	static const char none[SUM_BLOCK];
	struct stat st = { .st_mode = 0 };
	char opened[FD_PATH_BYTES];
	int err = parse_keys(how);

	/* The path may be relative, and the descriptor is the caller's. */
	fd_path(opened, fd);
	s->fd = open(fd < 0 ? how->uri->path : opened, O_PATH | O_CLOEXEC);
	s->zeros = overlay_sum(none);
	overlay_name_store(how->uri, s->name);
	if (s->fd >= 0)
		fstat(s->fd, &st);
	if (!err)
		err = choose_path(how, &st);
	if (!err)
		err = open_file(s, how, &st);
	if (err && !*how->geom->why)
		keys_refuse(how->geom, -err, "cannot prepare '%.140s': %s", how->path,
			    strerror(-err));
	if (err)
		close_files(s);
	return err;
}

static int open_both(const struct ummap_uri *uri, int fd, int oflags, void **h,
		     struct ummap_geom *geom)
{
	struct opening how = { .uri = uri, .geom = geom };
	struct sum *s;
	int err;

	if (oflags & UMMAP_O_WRITERS)
		return keys_refuse(geom, EINVAL, "cannot use sum+ with UMMAP_WRITERS: the "
				   "checksums have only one writer");
	s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	err = behind_open(&s->store, uri, fd, oflags | UMMAP_O_OVERLAID, geom);
	if (err) {
		free(s);
		return err;
	}
	s->writable = geom->caps & UMMAP_CAP_WRITE;
	err = set_up(s, &how, fd);
	if (err) {
		behind_close(&s->store);
		free(s);
		return err;
	}
	geom->caps |= UMMAP_CAP_PARALLEL | (behind_is_async(&s->store) ? UMMAP_CAP_ASYNC : 0);
	*h = s;
	return 0;
}

OPENING_CALLS(sum, open_both)

/* If the flush fails, the regions stay in doubt. */
static int sum_close(void *h)
{
	struct sum *s = h;
	int err;

	if (s->writable && !s->handed && !behind_inherited(&s->store) && sum_has_any(s->head.doubt))
		sum_settle(s, true);
	close_files(s);
	err = behind_close(&s->store);
	free(s);
	return err;
}

/* ---- Handing over (ummap-driver.h) ---- */

/* The other handle may have written the header. */
static int read_head_again(struct sum *s)
{
	int err;

	futex_lock(&s->file_lock);
	futex_lock(&s->lock);
	err = header_read(&s->slots, &s->file, &s->head, sizeof(s->head));
	futex_unlock(&s->lock);
	futex_unlock(&s->file_lock);
	if (err)
		sum_keep_doubt(s, err);
	return err ? -EIO : 0;
}

static int sum_hand_over(void *h, struct ummap_handover *to)
{
	struct sum *s = h;
	bool cancels = to->how == UMMAP_HANDOVER_CANCEL;
	int err = 0, reading = 0;

	if (to->how == UMMAP_HANDOVER_FINISH)
		return behind_hand_over(&s->store, to);
	if (s->writable && !cancels)
		err = -abs(sum_settle(s, true));
	if (!err)
		err = behind_hand_over(&s->store, to);
	if (err && !cancels)
		return err;
	side_hand_over(&s->file, to);
	s->handed = !cancels;
	if (cancels && s->writable)
		reading = read_head_again(s);
	return err ? err : reading;
}

/* ---- The table ---- */

static int sum_size(void *h, uint64_t *size)
{
	return behind_size(h, size);
}

static int sum_push(void *h)
{
	return behind_push(h);
}

static void sum_set_notice(void *h, ummap_notice *notice, void *arg)
{
	struct sum *s = h;

	behind_set_notice(&s->store, notice, arg);
	notice_set(&s->notice, notice, arg);
}

const struct ummap_driver ummap_driver_sum = {
	.struct_size = sizeof(struct ummap_driver),
	.abi = UMMAP_DRIVER_ABI,
	.scheme = "sum",
	.keys = SUM_KEYS(KEY_NAME),
	.help = "sum+URI  compares each read with checksums in a file beside the store (sum.path, "
		"sum.changed=refuse|check|renew)",
	.filter = 1,
	.open = sum_open,
	.open_fd = sum_open_fd,
	.close = sum_close,
	.read = sum_read,
	.write = sum_write,
	.flush = sum_flush,
	.resize = sum_resize,
	.submit = sum_submit,
	.reap = sum_reap,
	.readv = sum_readv,
	.writev = sum_writev,
	.size = sum_size,
	.push = sum_push,
	.lock = pass_lock,
	.commits = pass_commits,
	.set_notice = sum_set_notice,
	.hand_over = sum_hand_over,
};
