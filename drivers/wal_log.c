/* SPDX-License-Identifier: BSD-3-Clause */
/* The log of wal+: see wal_log.h, which says why it is as it is. Allocates in opening; all else may run in signal handlers. */
#include "wal_log.h"

#include "common/futex.h"
#include "common/memory_calls.h"
#include "common/minmax.h"
#include "common/random.h"
#include "file.h"
#include "keys.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define GRAIN sizeof(struct wal_record)  /* records begin at multiples of it */
#define WINDOW ((size_t)2 << 20)         /* read at a time; more than a record */
#define RETAINED ((uint64_t)64 << 20)    /* room that a log which begins anew does not give back */
#define RECORD_MAX (sizeof(struct wal_record) + WAL_BLOCKS_MAX * WAL_BLOCK)
#define STARTED ((uint64_t)8 << 20)      /* as soon as so many bytes have gathered, the disk begins with them */
#define BLOCKS_MOST ((uint64_t)INT64_MAX / WAL_BLOCK) /* of a store */

_Static_assert(sizeof(struct wal_record) == 64, "a record begins with 64 bytes");
_Static_assert(sizeof(struct wal_head) <= HEADER_BODY_MAX, "the head fits a slot");

static uint64_t record_sum(const struct wal_log *l, const struct wal_record *r)
{
	return checksum(r, offsetof(struct wal_record, sum), l->head.salt);
}

static uint64_t payload(const struct wal_record *r)
{
	return r->blocks * (uint64_t)WAL_BLOCK;
}

bool wal_is_whole(const struct wal_log *l, const void *blocks, uint64_t n, uint64_t data)
{
	return checksum(blocks, n * WAL_BLOCK, l->head.salt) == data;
}

/* ---- Reading records ---- */

struct scan {
	struct wal_log *log;
	struct wal_spot spot;      /* of the next record */
	uint64_t length;           /* of the file */
	char *window;              /* NULL: only what stands before the blocks is read */
	uint64_t at;               /* what the window has ... */
	size_t len;                /* ... and how much */
};

static int scan_begin(struct scan *s, struct wal_log *l, const struct wal_spot *from, bool data)
{
	int err;

	*s = (struct scan){ .log = l, .spot = *from };
	err = side_size(&l->file, &s->length);
	if (err || !data)
		return err;
	s->window = mmap(NULL, WINDOW, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (s->window != MAP_FAILED)
		return 0;
	s->window = NULL;
	return -ENOMEM;
}

static void scan_end(struct scan *s)
{
	if (s->window)
		raw_munmap(s->window, WINDOW);
}

/* Has the window hold so many bytes from `at` on; the file has them. */
static int scan_load(struct scan *s, uint64_t at, size_t len)
{
	if (at >= s->at && at + len <= s->at + s->len)
		return 0;
	s->at = at;
	s->len = s->length - at < WINDOW ? (size_t)(s->length - at) : WINDOW;
	return side_read(&s->log->file, s->window, s->len, at);
}

static bool is_next(const struct scan *s, const struct wal_record *r)
{
	const struct wal_spot *spot = &s->spot;
	bool data = r->kind == WAL_DATA && r->blocks > 0 && r->blocks <= WAL_BLOCKS_MAX &&
		    r->where <= BLOCKS_MOST - r->blocks;
	bool commit = r->kind == WAL_COMMIT && r->blocks == 0 && r->where <= INT64_MAX && r->data <= r->epoch &&
		      r->epoch - r->data < WAL_KEEP_MAX;

	return r->magic == WAL_RECORD_MAGIC && r->place == spot->at && r->prev == spot->chain &&
	       r->epoch == spot->epoch + 1 && (data || commit) && r->sum == record_sum(s->log, r) &&
	       payload(r) <= s->length - spot->at - sizeof(*r);
}

/* 1, and goes on behind it; 0: there is no whole record here; or -errno. */
static int scan_next(struct scan *s, struct wal_record *r)
{
	uint64_t at = s->spot.at;
	int err;

	if (at > s->length || s->length - at < sizeof(*r))
		return 0;
	if (s->window) {
		err = scan_load(s, at, sizeof(*r));
		memcpy(r, s->window + (at - s->at), sizeof(*r));
	} else {
		err = side_read(&s->log->file, r, sizeof(*r), at);
	}
	if (err || !is_next(s, r))
		return err;
	if (s->window && r->kind == WAL_DATA) {
		err = scan_load(s, at, sizeof(*r) + payload(r));
		if (err)
			return err;
		if (!wal_is_whole(s->log, s->window + (at - s->at) + sizeof(*r), r->blocks, r->data))
			return 0;
	}
	s->spot.at += sizeof(*r) + payload(r);
	s->spot.chain = r->sum;
	if (r->kind == WAL_COMMIT) {
		s->spot.epoch = r->epoch;
		s->spot.size = r->where;
		s->spot.floor = r->data;
	}
	return 1;
}

/* At the tail. */
static struct wal_spot tail_spot(const struct wal_log *l)
{
	return (struct wal_spot){ .at = l->head.tail, .chain = l->head.chain, .epoch = l->head.home, .floor = l->head.floor };
}

int wal_each(struct wal_log *l, uint64_t to, int (*visit)(void *arg, const struct wal_record *record), void *arg)
{
	struct wal_spot from = tail_spot(l);
	struct wal_record r;
	struct scan s;
	int got = scan_begin(&s, l, &from, false);

	while (!got && s.spot.at < to) {
		got = scan_next(&s, &r);
		if (got >= 0)
			got = got == 0 ? -EBADMSG : visit(arg, &r);
	}
	scan_end(&s);
	return got;
}

/* ---- What is in a log ---- */

/* Whether there is a record behind `from` that can only be there if the epoch after `epoch` was durable once. */
static int look_behind(struct scan *s, uint64_t from, uint64_t epoch, bool *found)
{
	int err = 0;

	for (uint64_t at = from; at + GRAIN <= s->length && !err && !*found; at += GRAIN) {
		const struct wal_record *r;

		err = scan_load(s, at, GRAIN);
		r = (const struct wal_record *)(s->window + (at - s->at));
		*found = !err && r->magic == WAL_RECORD_MAGIC && r->place == at && r->epoch > epoch + 1 &&
			 r->sum == record_sum(s->log, r);
	}
	return err;
}

/* Records since the last commit, which do not count before the next one. */
struct pending {
	struct wal_record *record;
	size_t n, room;
};

static int keep_pending(struct pending *p, const struct wal_record *r)
{
	size_t room = p->room ? 2 * p->room : 64;
	struct wal_record *more;

	if (p->n == p->room) {
		more = realloc(p->record, room * sizeof(*more));
		if (!more)
			return -ENOMEM;
		p->record = more;
		p->room = room;
	}
	p->record[p->n++] = *r;
	return 0;
}

/* The wish may be to end before this commit. */
static int visit_pending(struct pending *p, const struct wal_wish *wish, uint64_t epoch)
{
	bool counts = !wish->back || epoch <= wish->epoch;
	int err = 0;

	for (size_t i = 0; i < p->n && counts && !err; i++)
		err = wish->visit(wish->arg, &p->record[i]);
	p->n = 0;
	return err;
}

/* Reads all of it. What is whole goes to found; the last commits are noted; NULL: nobody wishes to see records. */
static int find(struct wal_log *l, const struct wal_wish *wish, struct wal_found *found)
{
	struct pending pending = { .n = 0 };
	bool visits = wish && wish->visit;
	struct wal_spot from = tail_spot(l);
	struct wal_record r;
	struct scan s;
	uint64_t records = 0, blocks = 0;
	bool later = false;
	int got = scan_begin(&s, l, &from, true), err;

	found->end = from;
	found->length = s.length;
	while (got == 0 && (got = scan_next(&s, &r)) == 1) {
		got = 0;
		records++;
		blocks += r.blocks;
		if (visits)
			got = r.kind == WAL_DATA ? keep_pending(&pending, &r) : visit_pending(&pending, wish, r.epoch);
		if (r.kind == WAL_DATA)
			continue;
		found->records = records;
		found->blocks = blocks;
		found->end = s.spot;
		l->commits[r.epoch % (2 * WAL_KEEP_MAX)] = s.spot;
	}
	err = got;
	if (!err && l->head.acked <= found->end.epoch)
		err = look_behind(&s, s.spot.at + GRAIN, found->end.epoch, &later);
	if (!err && (later || l->head.acked > found->end.epoch))
		found->damaged_at = s.spot.at;
	found->floor = max_u64(l->head.floor, found->end.floor);
	scan_end(&s);
	free(pending.record);
	return err;
}

/* Sums say that a head is as it was written, not by whom. */
static bool is_sound(const struct wal_head *head)
{
	return head->tail >= WAL_START && head->tail % GRAIN == 0 && head->tail <= INT64_MAX - WINDOW && head->acked <= INT64_MAX &&
	       head->home <= head->floor && head->floor <= head->acked;
}

/* 0: it has a head; 1: it is new, or was never used. */
static int read_head(struct wal_log *l, struct ummap_geom *geom)
{
	int err;

	l->slots = side_header(WAL_HEAD_MAGIC);
	err = header_read(&l->slots, &l->file, &l->head, sizeof(l->head));
	if (err == 1)
		return 1;
	if (err == -ENODATA || (!err && !is_sound(&l->head)))
		return keys_refuse(geom, EUCLEAN, "cannot use '%.140s': it is no log of wal+, or "
				   "its header is damaged", l->file.path);
	if (err)
		return keys_refuse(geom, -err, "cannot read the log '%.140s': %s", l->file.path,
				   strerror(-err));
	return 0;
}

int wal_look(struct wal_log *l, const char *path, int how, struct wal_found *found, struct ummap_geom *geom)
{
	int err;

	memset(l, 0, sizeof(*l));
	memset(found, 0, sizeof(*found));
	err = side_open(&l->file, path, how == UMMAP_LOCK_EXCLUSIVE ? UMMAP_O_WRITE : 0, 0, how, geom);
	if (err)
		return err;
	err = read_head(l, geom);
	if (err == 0) {
		err = find(l, NULL, found);
		if (err)
			keys_refuse(geom, -err, "cannot read the log '%.140s': %s", path,
				    strerror(-err));
	}
	if (err < 0)
		wal_close(l);
	return err < 0 ? err : 0;
}

void wal_resolve(char itself[PATH_MAX], const char *store)
{
	if (!realpath(store, itself))
		snprintf(itself, PATH_MAX, "%s", store);
}

int wal_beside(char log[PATH_MAX], const char *store)
{
	char itself[PATH_MAX];

	wal_resolve(itself, store);
	return snprintf(log, PATH_MAX, "%s" WAL_SUFFIX, itself) < PATH_MAX ? 0 : -ENAMETOOLONG;
}

int wal_has_commits(const char *path)
{
	struct ummap_geom geom = { .size = 0 };
	struct wal_record r = { .kind = 0 };
	struct wal_log l = { .keep = 0 };
	struct wal_spot from;
	struct scan s;
	bool found = false;
	int err;

	err = side_open(&l.file, path, 0, 0, UMMAP_LOCK_NONE, &geom);
	if (err)
		return err == -ENOENT ? 0 : err;
	err = read_head(&l, &geom);
	if (err == 0 && l.head.acked <= l.head.home) {
		from = tail_spot(&l);
		err = scan_begin(&s, &l, &from, false);
		while (!err && !found && scan_next(&s, &r) == 1)
			found = r.kind == WAL_COMMIT;
		scan_end(&s);
		err = !found;
	}
	wal_close(&l);
	/* A head that is damaged may be that of a log which is needed. */
	return err == 0 || err == -EUCLEAN ? 1 : err > 0 ? 0 : err;
}

int wal_check_store(const char *path, struct ummap_geom *geom)
{
	char log[PATH_MAX];
	struct stat st;
	int has;

	if (wal_beside(log, path) < 0 || stat(log, &st) < 0 || !S_ISREG(st.st_mode))
		return 0;
	has = wal_has_commits(log);
	if (has < 0)
		return keys_refuse(geom, EUCLEAN, "cannot read the log '%.140s', which may have "
				   "unapplied commits: %s", log, strerror(-has));
	if (has)
		return keys_refuse(geom, EUCLEAN, "cannot open the store: '%.140s' has commits that "
				   "are not in it yet. Try wal+, or `ummap wal apply`", log);
	/* This is no error; the user gets a message, unless the log is that of a handle that is
	 * being handed over. */
	if (!lock_group_is_offered(&st))
		keys_refuse(geom, 0, "the log '%.140s' is beside the store, but has no commits",
			    log);
	return 0;
}

/* ---- Opening ---- */

/* The head of a log without records. */
static void empty_head(struct wal_log *l, uint64_t epoch)
{
	l->salt = l->head.salt = random_id();
	l->head.tail = WAL_START;
	l->head.chain = l->head.salt;
	l->head.home = l->head.acked = l->head.floor = epoch;
}

static int write_head(struct wal_log *l)
{
	return header_write_both(&l->slots, &l->file, &l->head, sizeof(l->head));
}

/* Where the records of epochs up to this one end. */
static struct wal_spot spot_of(const struct wal_log *l, uint64_t epoch)
{
	return epoch == l->head.home ? tail_spot(l) : l->commits[epoch % (2 * WAL_KEEP_MAX)];
}

static int go_back(struct wal_log *l, const struct wal_wish *wish, struct wal_found *found, struct ummap_geom *geom)
{
	uint64_t newest = found->end.epoch;
	int err = 0;

	if (wish->epoch < found->floor || wish->epoch > newest)
		return keys_refuse(geom, EINVAL, "cannot go back to commit %ju: '%.140s' has the "
				   "commits %ju to %ju", (uintmax_t)wish->epoch, l->file.path,
				   (uintmax_t)found->floor, (uintmax_t)newest);
	found->end = spot_of(l, wish->epoch);
	/* Before anything is cut off: what may be at home in part already is not to be gone back behind, nor missed. */
	l->head.acked = wish->epoch;
	l->head.floor = found->floor;
	if (wish->write)
		err = write_head(l);
	return err;
}

/* Nothing behind the end is ever taken for what comes next, and what was found is there for good. */
static int make_ready(struct wal_log *l, const struct wal_found *found)
{
	char *records = mmap(NULL, WAL_DRAFTS * RECORD_MAX, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int err = 0;

	if (records == MAP_FAILED)
		return -ENOMEM;
	for (size_t i = 0; i < WAL_DRAFTS; i++)
		l->drafts[i].record = (struct wal_record *)(records + i * RECORD_MAX);
	if (found->length > found->end.at) {
		err = side_resize(&l->file, found->end.at);
		err = err ? err : side_flush(&l->file);
	}
	return err ? err : header_mend(&l->slots, &l->file, &l->head, sizeof(l->head));
}

static int begin(struct wal_log *l, const struct wal_wish *wish, struct wal_found *found)
{
	empty_head(l, 0);
	strncpy(l->head.name, wish->name ? wish->name : "", sizeof(l->head.name) - 1);
	strncpy(l->head.way, wish->way ? wish->way : "", sizeof(l->head.way) - 1);
	found->end = tail_spot(l);
	found->length = HEADER_BYTES;
	return write_head(l);
}

static int damaged(const struct wal_log *l, const struct wal_found *found, struct ummap_geom *geom)
{
	/* Without a commit that can be opened, the log can only be dropped. */
	const char *remedy = found->floor > found->end.epoch ? "" : "go back or ";

	return keys_refuse(geom, EUCLEAN, "cannot use '%.140s': damaged at byte %ju, after commit "
			   "%ju. Try `ummap wal` to %sdrop it", l->file.path,
			   (uintmax_t)found->damaged_at, (uintmax_t)found->end.epoch, remedy);
}

/* What was committed through cow+, say, is about what cow+ shows: written to the store itself it would change that. A log in
 * which nothing is left to apply is everybody's. */
static int check_way(struct wal_log *l, const struct wal_wish *wish, const struct wal_found *found, struct ummap_geom *geom)
{
	if (!wish->way || strcmp(l->head.way, wish->way) == 0)
		return 0;
	if (*l->head.way && found->end.epoch > l->head.home)
		return keys_refuse(geom, EINVAL, "cannot use '%.140s': its commits are for "
				   "wal+%.20s:, not wal+%.16s:. Try the former URI", l->file.path,
				   l->head.way, wish->way);
	strncpy(l->head.way, wish->way, sizeof(l->head.way) - 1);
	return wish->write && !found->damaged_at ? write_head(l) : 0;
}

/*
 * A process that was killed may have left a header, and records before it, that are not durable.
 * The other slot has the durable header. Until both are durable, neither that slot nor the records
 * that only the durable header shows may change.
 */
static int flush_found(struct wal_log *l)
{
	int err = side_flush(&l->file);

	if (!err)
		header_set_flushed(&l->slots);
	return err;
}

static int find_and_choose(struct wal_log *l, const struct wal_wish *wish, struct wal_found *found, struct ummap_geom *geom)
{
	int err;

	if (wish->name && *l->head.name && strncmp(l->head.name, wish->name, sizeof(l->head.name) - 1) != 0)
		return keys_refuse(geom, EINVAL, "cannot use '%.140s': it is the log of "
				   "another store, '%.30s'. Try another wal.path", l->file.path,
				   l->head.name);
	err = find(l, wish, found);
	if (!err && wish->write)
		err = flush_found(l);
	if (!err)
		err = check_way(l, wish, found, geom);
	if (err)
		return err;
	if (wish->back)
		return found->damaged_at && wish->epoch > found->end.epoch ? damaged(l, found, geom) : go_back(l, wish, found, geom);
	return found->damaged_at ? damaged(l, found, geom) : 0;
}

static int no_epoch(const struct wal_wish *wish, struct ummap_geom *geom)
{
	return keys_refuse(geom, EINVAL, "cannot go back to commit %ju: there is no log '%.140s'",
			   (uintmax_t)wish->epoch, wish->path);
}

int wal_open(struct wal_log *l, const struct wal_wish *wish, struct ummap_geom *geom)
{
	struct wal_found found = { .records = 0 };
	/* Epoch 0 is the store as it is. */
	bool needed = wish->back && wish->epoch > 0, create = wish->create && !needed;
	int oflags = wish->write ? UMMAP_O_WRITE | (create ? UMMAP_O_CREATE : 0) : 0, err;

	memset(l, 0, sizeof(*l));
	err = side_open(&l->file, wish->path, oflags, wish->mode, wish->write ? UMMAP_LOCK_EXCLUSIVE : UMMAP_LOCK_SHARED, geom);
	if (err == -ENOENT && !create) {
		*geom->why = '\0';
		return needed ? no_epoch(wish, geom) : 0;
	}
	if (err)
		return err;
	err = side_must_be_file(&l->file, geom);
	if (!err)
		err = read_head(l, geom);
	if (err == 1 && needed)
		err = no_epoch(wish, geom);
	else if (err == 1)
		err = wish->write ? begin(l, wish, &found) : 1;
	else if (err == 0)
		err = find_and_choose(l, wish, &found, geom);
	if (err == 0 && wish->write)
		err = make_ready(l, &found);
	if (err) {
		if (err < 0 && !*geom->why)
			keys_refuse(geom, -err, "cannot prepare the log '%.140s': %s", wish->path,
				    strerror(-err));
		wal_close(l);
		return err < 0 ? err : 0;
	}
	l->end = l->durable = found.end;
	l->durable.floor = max_u64(found.floor, found.end.floor);
	if (l->durable.epoch == l->head.home)
		l->end.size = l->durable.size = wish->store_size;
	l->keep = wish->keep;
	l->limit = wish->limit;
	l->salt = l->head.salt;
	l->tail = l->head.tail;
	l->started = l->end.at;
	l->acked = l->head.acked = l->durable.epoch;
	return 0;
}

int wal_close(struct wal_log *l)
{
	if (l->drafts->record)
		raw_munmap(l->drafts->record, WAL_DRAFTS * RECORD_MAX);
	l->drafts->record = NULL;
	return side_close(&l->file);
}

/* ---- Appending ---- */

/* Writes a record, whose blocks stand behind it in memory. */
static int write_record(struct wal_log *l, struct wal_record *r)
{
	r->prev = l->end.chain;
	r->sum = record_sum(l, r);
	return side_write(&l->file, r, sizeof(*r) + payload(r), r->place);
}

static void sum_up(struct wal_draft *d, uint64_t salt)
{
	d->salt = salt;
	d->record->data = checksum(d->record + 1, payload(d->record), salt);
}

/* One that is free; if there is none, the first one when it is. */
static struct wal_draft *take_draft(struct wal_log *l)
{
	for (struct wal_draft *d = l->drafts; d < l->drafts + WAL_DRAFTS; d++)
		if (futex_trylock(&d->lock))
			return d;
	futex_lock(&l->drafts->lock);
	return l->drafts;
}

struct wal_draft *wal_draft_begin(struct wal_log *l, uint64_t first, uint32_t blocks, const struct iovec *iov, int n)
{
	struct wal_draft *d = take_draft(l);
	char *to = (char *)(d->record + 1);

	*d->record = (struct wal_record){ .magic = WAL_RECORD_MAGIC, .kind = WAL_DATA, .blocks = blocks, .where = first };
	for (int i = 0; i < n; to += iov[i++].iov_len)
		memcpy(to, iov[i].iov_base, iov[i].iov_len);
	sum_up(d, l->salt);
	return d;
}

void wal_draft_end(struct wal_draft *d)
{
	futex_unlock(&d->lock);
}

bool wal_is_full(const struct wal_log *l, uint32_t blocks)
{
	return l->end.at + sizeof(struct wal_record) + blocks * (uint64_t)WAL_BLOCK - l->tail > l->limit;
}

/* Whether anything can be appended. */
static int check_begun(struct wal_log *l)
{
	if (l->broken)
		return -EIO;
	return l->restarting ? wal_restart(l) : 0;
}

int wal_append(struct wal_log *l, struct wal_draft *d, uint64_t *place)
{
	struct wal_record *r = d->record;
	int err = check_begun(l);

	if (err)
		return err;
	if (wal_is_full(l, r->blocks))
		return -ENOSPC;
	/* The log has begun anew since. */
	if (d->salt != l->head.salt)
		sum_up(d, l->head.salt);
	r->epoch = l->end.epoch + 1;
	r->place = l->end.at;
	err = write_record(l, r);
	if (err)
		return err;
	*place = r->place + sizeof(*r);
	l->end.at += sizeof(*r) + payload(r);
	l->end.chain = r->sum;
	if (l->end.at - l->started >= STARTED) {
		side_start(&l->file, l->started, l->end.at - l->started);
		l->started = l->end.at;
	}
	return 0;
}

/* A flush that failed may have lost what was written since the last one, and the next may go well for nothing: it is written
 * once more, if it can still be read as it was. */
static int write_again(struct wal_log *l)
{
	struct wal_record r;
	struct scan s;
	int got = scan_begin(&s, l, &l->durable, true);

	while (!got && s.spot.at < l->end.at) {
		got = scan_next(&s, &r);
		l->broken = got == 0;
		got = got == 0 ? -EIO : got == 1 ? 0 : got;
	}
	for (uint64_t at = l->durable.at; !got && at < l->end.at; at += s.len) {
		s.len = l->end.at - at < WINDOW ? (size_t)(l->end.at - at) : WINDOW;
		got = side_read(&l->file, s.window, s.len, at);
		if (!got)
			got = side_write(&l->file, s.window, s.len, at);
	}
	scan_end(&s);
	return got;
}

/* What is flushed is durable, the newest slot of the head included, if nobody writes one meanwhile; then the next one can say
 * which commit that was. */
static int flush_and_note(struct wal_log *l, uint64_t epoch)
{
	bool mine = futex_trylock(&l->head_lock);
	int err = side_flush(&l->file);

	if (mine && !err) {
		header_set_flushed(&l->slots);
		l->head.acked = epoch;
		header_write(&l->slots, &l->file, &l->head, sizeof(l->head));
	} else if (mine) {
		header_repeat(&l->slots);
	}
	if (mine)
		futex_unlock(&l->head_lock);
	return err;
}

int wal_commit(struct wal_log *l, uint64_t size)
{
	uint64_t epoch = l->end.epoch + 1, oldest = epoch >= l->keep ? epoch - l->keep + 1 : 0;
	struct wal_record r = { .magic = WAL_RECORD_MAGIC, .kind = WAL_COMMIT, .epoch = epoch, .where = size };
	int err = check_begun(l);

	if (!err && l->unsure)
		err = write_again(l);
	if (l->broken)
		return -EIO;
	r.place = l->end.at;
	r.data = max_u64(l->durable.floor, oldest);
	if (!err)
		err = write_record(l, &r);
	if (err)
		return -err;
	err = flush_and_note(l, epoch);
	l->unsure = err != 0;
	if (err)
		return -err;
	l->end = (struct wal_spot){ l->end.at + sizeof(r), r.sum, epoch, size, r.data };
	l->durable = l->commits[epoch % (2 * WAL_KEEP_MAX)] = l->end;
	l->acked = epoch;
	return 0;
}

/* ---- Freeing ---- */

bool wal_due(struct wal_log *l, struct wal_spot *due)
{
	if (l->durable.floor <= l->head.home)
		return false;
	*due = spot_of(l, l->durable.floor);
	return true;
}

bool wal_is_empty(const struct wal_log *l)
{
	return l->end.at == l->head.tail;
}

int wal_advance(struct wal_log *l, const struct wal_spot *spot)
{
	struct wal_head before;
	int err;

	futex_lock(&l->head_lock);
	before = l->head;
	l->head.tail = spot->at;
	l->head.chain = spot->chain;
	l->head.home = spot->epoch;
	l->head.floor = max_u64(l->head.floor, spot->epoch);
	l->head.acked = l->acked;
	err = write_head(l);
	/* Either head may be there: all that they say of is, and is read and applied again until the tail has moved. */
	if (err)
		l->head = before;
	futex_unlock(&l->head_lock);
	return err;
}

int wal_forget_epochs(struct wal_log *l)
{
	int err;

	futex_lock(&l->head_lock);
	l->head.floor = l->durable.floor = l->durable.epoch;
	l->head.acked = l->acked;
	err = write_head(l);
	futex_unlock(&l->head_lock);
	return err;
}

int wal_restart(struct wal_log *l)
{
	uint64_t length;
	int err;

	futex_lock(&l->head_lock);
	empty_head(l, l->end.epoch);
	err = write_head(l);
	/* Which head counts nobody knows. All that it was for is at home, and nothing is appended before there is one that does. */
	l->restarting = err != 0;
	futex_unlock(&l->head_lock);
	if (err)
		return err;
	l->tail = l->started = WAL_START;
	l->end.at = l->durable.at = WAL_START;
	l->end.chain = l->durable.chain = l->head.chain;
	l->durable.floor = l->durable.epoch;
	if (side_size(&l->file, &length) == 0 && length > RETAINED)
		side_resize(&l->file, RETAINED);
	return 0;
}

int wal_resume(struct wal_log *l)
{
	struct header slots = side_header(WAL_HEAD_MAGIC);
	struct wal_head head;
	uint64_t length;
	int err;

	futex_lock(&l->head_lock);
	err = side_size(&l->file, &length);
	if (!err)
		err = length < l->end.at ? -EIO
					 : header_read(&slots, &l->file, &head, sizeof(head));
	if (!err && slots.number != l->slots.number) {
		l->slots = slots;
		err = write_head(l);
	}
	/* Neither the records in the log nor later ones are reliable. */
	if (err)
		l->broken = true;
	futex_unlock(&l->head_lock);
	return err ? -EIO : 0;
}

/* ---- Moving to the front ---- */

struct move {
	uint64_t salt;
	uint64_t shift;
	struct wal_spot to;        /* of the next copy */
	struct wal_spot commits[2 * WAL_KEEP_MAX];
};

/* Writes one record, whose blocks follow it in memory, to its new place. */
static int copy_record(struct wal_log *l, struct move *m, struct wal_record *r)
{
	int err;

	r->place -= m->shift;
	r->prev = m->to.chain;
	if (r->kind == WAL_DATA)
		r->data = checksum(r + 1, payload(r), m->salt);
	r->sum = checksum(r, offsetof(struct wal_record, sum), m->salt);
	err = side_write(&l->file, r, sizeof(*r) + payload(r), r->place);
	m->to.at = r->place + sizeof(*r) + payload(r);
	m->to.chain = r->sum;
	if (r->kind == WAL_COMMIT) {
		m->to.epoch = r->epoch;
		m->to.size = r->where;
		m->to.floor = r->data;
		m->commits[r->epoch % (2 * WAL_KEEP_MAX)] = m->to;
	}
	return err;
}

static int copy_records(struct wal_log *l, struct move *m)
{
	struct wal_spot from = tail_spot(l);
	struct wal_record r;
	struct scan s;
	int got = scan_begin(&s, l, &from, true);

	while (!got && s.spot.at < l->end.at) {
		uint64_t at = s.spot.at;

		got = scan_next(&s, &r);
		if (got == 1)
			got = copy_record(l, m,
					  (struct wal_record *)(void *)(s.window + (at - s.at)));
		else if (got == 0)
			got = -EBADMSG;
	}
	scan_end(&s);
	return got;
}

/* After a failed write, the file may have either head. Both describe the same commits, but later
 * records follow only one of them. So the older head is written again; if that fails, too, the log
 * is broken. */
static int replace_head(struct wal_log *l, const struct move *m)
{
	struct wal_head before = l->head;
	int err;

	futex_lock(&l->head_lock);
	l->head.salt = l->head.chain = m->salt;
	l->head.tail = WAL_START;
	l->head.acked = l->acked;
	err = write_head(l);
	if (err) {
		l->head = before;
		l->broken = write_head(l) != 0;
	}
	futex_unlock(&l->head_lock);
	return err;
}

int wal_move_to_front(struct wal_log *l, uint64_t *shift)
{
	struct move m = { .salt = random_id(), .shift = l->head.tail - WAL_START };
	int err;

	m.to = (struct wal_spot){ .at = WAL_START, .chain = m.salt };
	err = copy_records(l, &m);
	if (!err) {
		err = side_flush(&l->file);
		l->unsure = l->unsure || err;
	}
	if (!err)
		err = replace_head(l, &m);
	if (err)
		return err;
	for (size_t i = 0; i < 2 * WAL_KEEP_MAX; i++)
		l->commits[i] = m.commits[i];
	l->durable.at -= m.shift;
	l->durable.chain = l->durable.epoch == l->head.home
				   ? m.salt
				   : m.commits[l->durable.epoch % (2 * WAL_KEEP_MAX)].chain;
	l->end.at = m.to.at;
	l->end.chain = m.to.chain;
	l->salt = m.salt;
	l->tail = WAL_START;
	l->started = l->end.at;
	*shift = m.shift;
	return 0;
}
