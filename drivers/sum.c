/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The filter sum: keeps checksums of a store's blocks in a file beside the store, and fails reads
 * of blocks that differ. All bytes pass unchanged. sum.h specifies the file and its orders. Only
 * opening and closing allocate memory; all other calls may run in signal handlers.
 */
#include "sum.h"

#include "common/cursor.h"
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

#define DRAFTS 8
#define RUN (SUM_WINDOW / SUM_BLOCK)       /* blocks of a window */
#define WORDS (SUM_REGIONS / 64)

/* Memory for bytes of a window. The lock gives a thread all blocks of the windows that use the
 * draft (order 6). Bytes are copied there before their checksums are computed, because other
 * threads and devices may change the caller's memory. */
struct draft {
	_Atomic uint32_t lock;
	char *bytes;               /* memory of SUM_WINDOW bytes */
	uint64_t writes;           /* number + 1 of the region that is written; 0: none. Under
				      sum.lock */
};

struct sum {
	struct behind store;       /* the first field */
	struct side file;
	bool writable, handed;
	int fd;                    /* descriptor of the store with O_PATH */
	char name[PATH_MAX];       /* name of the store in messages */
	uint64_t zeros;            /* checksum of a block of zeros */
	struct draft drafts[DRAFTS]; /* that of window w is at w % DRAFTS */
	struct notice notice;
	struct held held[HELD_MAX];
	_Atomic bool unsure;       /* whether entries of regions in doubt may be wrong */
	_Atomic uint32_t flushes;  /* number of flushes */
	_Atomic uint32_t file_lock, lock;
	struct header slots;       /* under file_lock */
	struct sum_head head;      /* changed under both locks, so read under either. The durable
				      header has all its regions in doubt. */
	uint64_t written[WORDS];   /* bit set of regions, emptied when doubt is removed; under the
				      lock */
};

/* ---- Regions ---- */

static bool has_region(const uint64_t set[WORDS], uint64_t region)
{
	return set[region / 64] >> region % 64 & 1;
}

static void add_region(uint64_t set[WORDS], uint64_t region)
{
	set[region / 64] |= (uint64_t)1 << region % 64;
}

static bool has_any(const uint64_t set[WORDS])
{
	uint64_t any = 0;

	for (unsigned w = 0; w < WORDS; w++)
		any |= set[w];
	return any;
}

/* From now on, the regions stay in doubt until the next opening. */
static void keep_doubt(struct sum *s, int err)
{
	if (!atomic_exchange(&s->unsure, true))
		notice_give(&s->notice, "sum+: cannot keep the checksums in '%.150s': %s. Until "
			    "the store is opened again, blocks near those that were written are "
			    "not compared", s->file.path, strerror(abs(err)));
}

static int write_head(struct sum *s, const struct sum_head *head)
{
	int err = header_write_durable(&s->slots, &s->file, head, sizeof(*head));

	/* A flush that fails may have lost entries. */
	if (err)
		keep_doubt(s, err);
	return err;
}

static int add_doubt(struct sum *s, uint64_t region)
{
	struct sum_head head;
	int err;

	futex_lock(&s->file_lock);
	head = s->head;
	add_region(head.doubt, region);
	err = write_head(s, &head);
	futex_lock(&s->lock);
	if (!err)
		s->head = head;
	futex_unlock(&s->lock);
	futex_unlock(&s->file_lock);
	return err;
}

/* The regions in doubt that no write has touched since `written` was emptied. Under the lock. */
static void find_quiet(const struct sum *s, uint64_t quiet[WORDS])
{
	uint64_t busy[WORDS];

	memcpy(busy, s->written, sizeof(busy));
	for (const struct draft *d = s->drafts; d < s->drafts + DRAFTS; d++) {
		if (d->writes)
			add_region(busy, d->writes - 1);
	}
	for (unsigned w = 0; w < WORDS; w++)
		quiet[w] = s->head.doubt[w] & ~busy[w];
}

static void describe_store(const struct sum *s, const char *way, uint64_t size,
			   struct store_facts *facts)
{
	overlay_describe(facts, s->name, s->fd, size);
	/* Filters behind this one may write the file later. */
	if (strcmp(way, FILE_WAY) != 0)
		facts->seconds = facts->nanoseconds = 0;
}

/* Removes the doubt about regions that were quiet before a flush of the store. Under file_lock. */
static void remove_doubt(struct sum *s, const uint64_t before[WORDS])
{
	uint64_t quiet[WORDS], size = s->head.store.size;
	int err = side_flush(&s->file);

	if (err) {
		keep_doubt(s, err);
		return;
	}
	futex_lock(&s->lock);
	/* A write may have begun during the flushes. */
	find_quiet(s, quiet);
	for (unsigned w = 0; w < WORDS; w++)
		s->head.doubt[w] &= ~(before[w] & quiet[w]);
	futex_unlock(&s->lock);
	/* While no region is in doubt, no write begins without file_lock. */
	behind_size(&s->store, &size);
	describe_store(s, s->head.way, size, &s->head.store);
	write_head(s, &s->head);
}

/* Flushes the store, and removes the doubt about regions that were not written since the last call;
 * if `all`, about all regions, which no thread writes now. */
static int flush_and_settle(struct sum *s, bool all)
{
	uint64_t quiet[WORDS];
	int err;

	futex_lock(&s->file_lock);
	futex_lock(&s->lock);
	if (all)
		memset(s->written, 0, sizeof(s->written));
	find_quiet(s, quiet);
	memset(s->written, 0, sizeof(s->written));
	futex_unlock(&s->lock);
	err = behind_flush(&s->store, 0, UINT64_MAX);
	if (err < 0)
		keep_doubt(s, err);
	if (!err && !s->unsure && (all || has_any(quiet)))
		remove_doubt(s, quiet);
	futex_unlock(&s->file_lock);
	return err;
}

/* ---- Blocks and entries ---- */

static struct draft *take_draft(struct sum *s, uint64_t off)
{
	struct draft *d = &s->drafts[off / SUM_WINDOW % DRAFTS];

	futex_lock(&d->lock);
	return d;
}

/* Called before a write to the window of the offset, with its draft (order 1). */
static int begin_write(struct sum *s, struct draft *d, uint64_t off)
{
	uint64_t region = off / s->head.region % SUM_REGIONS;
	bool is_ready;
	int err = 0;

	do {
		futex_lock(&s->lock);
		is_ready = has_region(s->head.doubt, region);
		if (is_ready) {
			d->writes = region + 1;
			add_region(s->written, region);
		}
		futex_unlock(&s->lock);
		if (!is_ready)
			err = add_doubt(s, region);
	} while (!is_ready && !err);
	return err;
}

static void release_draft(struct sum *s, struct draft *d)
{
	futex_lock(&s->lock);
	d->writes = 0;
	futex_unlock(&s->lock);
	futex_unlock(&d->lock);
}

static uint64_t entry_at(uint64_t off)
{
	return SUM_ENTRIES_AT + off / SUM_BLOCK * sizeof(uint64_t);
}

static void make_entries(const struct sum *s, const char *bytes, size_t len, uint64_t *entries)
{
	for (size_t at = 0; at < len; at += SUM_BLOCK)
		*entries++ = overlay_sum(bytes + at) - s->zeros;
}

/* Whether a block may differ from its entry without being damaged. */
static bool is_in_doubt(struct sum *s, uint64_t off)
{
	bool is;

	futex_lock(&s->lock);
	is = (!s->writable || s->unsure) &&
	     has_region(s->head.doubt, off / s->head.region % SUM_REGIONS);
	futex_unlock(&s->lock);
	return is;
}

/* Compares whole blocks of one window with their entries. Returns 0; 1 if the block at *bad
 * differs; or a negative errno value. */
static int compare(struct sum *s, const char *bytes, size_t len, uint64_t off, uint64_t *bad)
{
	uint64_t found[RUN], entries[RUN];
	int err = side_read(&s->file, entries, len / SUM_BLOCK * sizeof(*entries), entry_at(off));

	if (err)
		return err;
	make_entries(s, bytes, len, found);
	for (size_t k = 0; k < len / SUM_BLOCK; k++) {
		*bad = off + k * SUM_BLOCK;
		if (found[k] != entries[k] && !is_in_doubt(s, *bad))
			return 1;
	}
	return 0;
}

/* Reads whole blocks of one window, whose draft this thread has, and compares them. */
static int read_blocks(struct sum *s, char *bytes, size_t len, uint64_t off)
{
	uint64_t bad;
	int err = behind_read(&s->store, bytes, len, off);

	if (err)
		return err;
	err = compare(s, bytes, len, off, &bad);
	if (err < 0)
		notice_give(&s->notice, "sum+: cannot read the checksums in '%.150s': %s",
			    s->file.path, strerror(-err));
	if (err <= 0)
		return err;
	notice_give(&s->notice, "sum+: cannot read block %ju (4 KiB at byte %ju) of %.150s: it "
		    "differs from its checksum in '%.150s'", (uintmax_t)(bad / SUM_BLOCK),
		    (uintmax_t)bad, s->name, s->file.path);
	return -EIO;
}

/* Compares whole blocks that were read. If one differs, it may have been written meanwhile. */
static int verify(struct sum *s, char *bytes, size_t len, uint64_t off)
{
	int err = 0;

	for (size_t n; len > 0 && !err; bytes += n, off += n, len -= n) {
		struct draft *d;
		uint64_t bad;

		n = min_size(len, SUM_WINDOW - off % SUM_WINDOW);
		if (compare(s, bytes, n, off, &bad) == 0)
			continue;
		d = take_draft(s, off);
		err = read_blocks(s, bytes, n, off);
		release_draft(s, d);
	}
	return err;
}

/* Makes the entries of blocks of one window from the store, with the draft of that window. Adds the
 * number of those that have changed to *changed. Entries that have not changed are written, too,
 * because a failed flush may have lost them; in a new file, they are holes, and remain so. */
static int renew_entries(struct sum *s, struct draft *d, size_t len, uint64_t off, bool is_new,
			 uint64_t *changed)
{
	uint64_t before[RUN], now[RUN], n_changed = 0;
	size_t n = len / SUM_BLOCK;
	int err = behind_read(&s->store, d->bytes, len, off);

	if (!err)
		err = side_read(&s->file, before, n * sizeof(*before), entry_at(off));
	if (err)
		return err;
	make_entries(s, d->bytes, len, now);
	for (size_t k = 0; k < n; k++)
		n_changed += now[k] != before[k];
	*changed += n_changed;
	if (is_new && !n_changed)
		return 0;
	return side_write(&s->file, now, n * sizeof(*now), entry_at(off));
}

/* ---- Transfers ---- */

/* The bytes of a transfer in one window. */
struct part {
	struct draft *d;           /* draft of the window */
	size_t from, end;          /* position in the window */
	size_t first, last;        /* the same, with whole blocks */
	uint64_t at;               /* offset of the first block in the store */
};

static struct part take_part(struct sum *s, const struct cursor *c)
{
	struct part p = { .d = take_draft(s, c->off), .from = c->off % SUM_WINDOW };

	p.end = (size_t)min_u64(SUM_WINDOW, p.from + (c->end - c->off));
	p.first = p.from - p.from % SUM_BLOCK;
	p.last = (p.end + SUM_BLOCK - 1) / SUM_BLOCK * SUM_BLOCK;
	p.at = c->off - c->off % SUM_BLOCK;
	return p;
}

/* Copies between the pieces of memory and the draft. */
static void copy_part(const struct part *p, struct cursor *c, bool writes)
{
	for (size_t at = p->from, n; at < p->end; at += n) {
		char *piece = (char *)c->piece->iov_base + c->skip;

		n = min_size(c->piece->iov_len - c->skip, p->end - at);
		memcpy(writes ? p->d->bytes + at : piece, writes ? piece : p->d->bytes + at, n);
		cursor_advance(c, n);
	}
}

static int read_part(struct sum *s, struct cursor *c)
{
	struct part p = take_part(s, c);
	int err = read_blocks(s, p.d->bytes + p.first, p.last - p.first, p.at);

	if (!err)
		copy_part(&p, c, false);
	release_draft(s, p.d);
	return err;
}

/* Fills the draft with the bytes that are written, and the rest of the first and the last block. */
static int fill_draft(struct sum *s, const struct part *p, struct cursor *c)
{
	char *bytes = p->d->bytes;
	size_t tail = p->last - SUM_BLOCK;
	int err = 0;

	if (p->from > p->first)
		err = read_blocks(s, bytes + p->first, SUM_BLOCK, p->at);
	if (!err && p->end < p->last && !(p->from > p->first && tail == p->first))
		err = read_blocks(s, bytes + tail, SUM_BLOCK, p->at + tail - p->first);
	if (!err)
		copy_part(p, c, true);
	return err;
}

static int write_draft(struct sum *s, const struct part *p)
{
	size_t len = p->last - p->first;
	uint64_t entries[RUN], changed = 0;
	int err, renewing;

	make_entries(s, p->d->bytes + p->first, len, entries);
	err = side_write(&s->file, entries, len / SUM_BLOCK * sizeof(*entries), entry_at(p->at));
	if (!err)
		err = behind_write(&s->store, p->d->bytes + p->from, p->end - p->from,
				   p->at + p->from - p->first);
	/* A part of the bytes may have been written. */
	renewing = err ? renew_entries(s, p->d, len, p->at, false, &changed) : 0;
	if (renewing)
		keep_doubt(s, renewing);
	return err;
}

static int write_part(struct sum *s, struct cursor *c)
{
	struct part p = take_part(s, c);
	int err = begin_write(s, p.d, p.at);

	if (!err)
		err = fill_draft(s, &p, c);
	if (!err)
		err = write_draft(s, &p);
	release_draft(s, p.d);
	return err;
}

static bool is_whole(uint64_t off, uint64_t len)
{
	return (off | len) % SUM_BLOCK == 0;
}

static int sum_readv(void *h, const struct iovec *iov, int n, uint64_t off)
{
	struct cursor c = cursor_begin(iov, n, off);
	bool whole = is_whole(off, 0);
	struct sum *s = h;
	int err;

	for (int i = 0; i < n; i++)
		whole &= is_whole(off, iov[i].iov_len);
	err = whole ? behind_readv(&s->store, iov, n, off) : 0;
	for (int i = 0; whole && i < n && !err; off += iov[i++].iov_len)
		err = verify(s, iov[i].iov_base, iov[i].iov_len, off);
	while (!whole && c.off < c.end && !err)
		err = read_part(s, &c);
	return err;
}

static int sum_read(void *h, void *buf, size_t len, uint64_t off)
{
	return sum_readv(h, &(struct iovec){ buf, len }, 1, off);
}

static int sum_writev(void *h, const struct iovec *iov, int n, uint64_t off)
{
	struct cursor c = cursor_begin(iov, n, off);
	struct sum *s = h;
	int err = s->writable ? 0 : -EBADF;

	while (c.off < c.end && !err)
		err = write_part(s, &c);
	return err;
}

static int sum_write(void *h, const void *buf, size_t len, uint64_t off)
{
	return sum_writev(h, &(struct iovec){ (void *)(uintptr_t)buf, len }, 1, off);
}

static int sum_flush(void *h, uint64_t off, uint64_t len)
{
	struct sum *s = h;
	int err;

	if (s->writable && ++s->flushes % SUM_CLEAR_FLUSHES == 0)
		return flush_and_settle(s, false);
	err = behind_flush(&s->store, off, len);
	if (err < 0)
		keep_doubt(s, err);
	return err;
}

/* The bytes between the old end and the new one are zeros, and so are their entries. But the facts
 * about the store change, which must not count as a write without the filter (order 5). */
static int sum_resize(void *h, uint64_t size)
{
	struct sum *s = h;
	struct draft *d;
	uint64_t now;
	int err = behind_size(&s->store, &now);

	if (err || size <= now || !s->writable)
		return err ? err : size == now ? 0 : -EOPNOTSUPP;
	d = take_draft(s, size - 1);
	err = begin_write(s, d, size - 1);
	if (!err)
		err = behind_resize(&s->store, size);
	release_draft(s, d);
	return err;
}

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

/* ---- Asynchronous requests ---- */

static bool is_for_store(void *h, const struct ummap_io *io)
{
	(void)h;
	return io->op == UMMAP_IO_READ && is_whole(io->off, io->len);
}

static int sum_submit(void *h, struct ummap_io **io, unsigned n)
{
	static const struct ummap_driver own = { .read = sum_read, .write = sum_write };
	struct sum *s = h;

	return held_submit(s->held, &s->store, &own, s, is_for_store, io, n);
}

static int sum_reap(void *h, struct ummap_io **done, unsigned max, unsigned min)
{
	struct sum *s = h;
	int n = held_reap(s->held, &s->store, done, max, min);

	for (int i = 0; i < n; i++) {
		if (is_for_store(s, done[i]) && !done[i]->res)
			done[i]->res = verify(s, done[i]->buf, done[i]->len, done[i]->off);
	}
	return n;
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
		keep_doubt(s, err);
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
		err = -abs(flush_and_settle(s, true));
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

/* ---- Opening and closing ---- */

static const struct key_type types[] = { SUM_KEYS(KEY_TYPE) KEY_TYPES_END };

enum changed { CHANGED_REFUSE, CHANGED_CHECK, CHANGED_RENEW };

/* The settings of a handle, and the store that it opens. */
struct opening {
	const struct ummap_uri *uri;
	struct ummap_geom *geom;
	const char *named;         /* value of sum.path; NULL: not given */
	enum changed changed;      /* value of sum.changed */
	char path[PATH_MAX];       /* path of the file of checksums */
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

		if (word < 0 || (is_path && (!*key->value || strlen(key->value) >= PATH_MAX)))
			return keys_refuse_value(how->geom, "sum.", key, types);
		if (is_path)
			how->named = key->value;
		else
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
	if (!how->named && (!S_ISREG(st->st_mode) || !*how->uri->path))
		return keys_refuse(how->geom, EINVAL, "cannot choose a file for the checksums: the "
				   "store is not a regular file with a path. Try to name one by "
				   "sum.path");
	if (!how->named)
		return overlay_beside(how->path, how->uri->path, SUM_SUFFIX);
	strcpy(how->path, how->named);
	return 0;
}

static bool is_sound(const struct sum_head *head)
{
	return head->block == SUM_BLOCK && head->region > 0 && head->region % SUM_WINDOW == 0 &&
	       head->region <= INT64_MAX && memchr(head->way, '\0', sizeof(head->way));
}

static int refuse_missing(const struct opening *how)
{
	return keys_refuse(how->geom, ENOENT, "cannot compare checksums: '%.140s' has none. Try "
			   "`ummap sum make`", how->path);
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
	bool other_way = strcmp(s->head.way, way) != 0;

	how->differs = other_way || (!has_any(s->head.doubt) &&
				     (now->size != then->size || now->seconds != then->seconds ||
				      now->nanoseconds != then->nanoseconds));
	if (how->is_new || !how->differs || how->changed == CHANGED_CHECK)
		return 0;
	how->is_new = s->writable && how->changed == CHANGED_RENEW;
	if (how->is_new)
		return 0;
	if (other_way)
		return keys_refuse(how->geom, ESTALE, "cannot use '%.140s': its checksums are for "
				   "sum+%.20s:, not sum+%.16s:. Try the former URI, or "
				   "sum.changed=check or renew", s->file.path, s->head.way, way);
	return keys_refuse(how->geom, ESTALE, "cannot use '%.140s': the store was written without "
			   "sum+ since. Try sum.changed=check to compare it with the old "
			   "checksums, or sum.changed=renew to make new ones", s->file.path);
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
		add_region(s->head.doubt, r);
	return err ? err : write_head(s, &s->head);
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
		if (off < size && has_region(s->head.doubt, off / s->head.region % SUM_REGIONS))
			err = renew_entries(s, s->drafts, SUM_WINDOW, off, how->is_new,
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
	char *at = mmap(NULL, DRAFTS * SUM_WINDOW, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	for (unsigned i = 0; i < DRAFTS && at != MAP_FAILED; i++)
		s->drafts[i].bytes = at + i * SUM_WINDOW;
	return at == MAP_FAILED ? -ENOMEM : 0;
}

/* Prepares a file for writing. */
static int make_ready(struct sum *s, struct opening *how, const char *way)
{
	int err = how->is_new ? begin_file(s, how->geom->size, way) :
		  header_mend(&s->slots, &s->file, &s->head, sizeof(s->head));
	if (!err && !how->is_new && !how->differs && !has_any(s->head.doubt))
		return 0;
	strcpy(s->head.way, way);
	if (!err)
		err = renew_doubtful(s, how, how->geom->size);
	if (!err)
		err = -abs(flush_and_settle(s, true));
	return err ? err : s->unsure ? -EIO : 0;
}

static void close_files(struct sum *s)
{
	if (s->drafts->bytes)
		raw_munmap(s->drafts->bytes, DRAFTS * SUM_WINDOW);
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
		describe_store(s, way, how->geom->size, &now);
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

static int sum_open(const struct ummap_uri *uri, int oflags, void **h, struct ummap_geom *geom)
{
	return open_both(uri, -1, oflags, h, geom);
}

static int sum_open_fd(const struct ummap_uri *uri, int fd, int oflags, void **h,
		       struct ummap_geom *geom)
{
	return open_both(uri, fd, oflags, h, geom);
}

/* If the flush fails, the regions stay in doubt. */
static int sum_close(void *h)
{
	struct sum *s = h;
	int err;

	if (s->writable && !s->handed && !behind_inherited(&s->store) && has_any(s->head.doubt))
		flush_and_settle(s, true);
	close_files(s);
	err = behind_close(&s->store);
	free(s);
	return err;
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
