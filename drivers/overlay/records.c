/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The records of an overlay file: where they are, how they are read and checked, and which commit
 * they make up. Reading records takes no lock: the file is being opened.
 */
#include "overlay.h"

#include "common/memory_calls.h"
#include "common/minmax.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#define COMMITS_BYTES (OVERLAY_COMMITS * OVERLAY_SECTOR)

_Static_assert(OVERLAY_COMMITS_AT + COMMITS_BYTES == OVERLAY_ACK_AT, "the acknowledgment follows");

/* ---- Places in the file ---- */

static uint64_t round_up(const struct overlay *o, uint64_t bytes)
{
	return (bytes + o->head.block - 1) & ~(o->head.block - 1);
}

static uint64_t group_at(const struct overlay *o, uint64_t group)
{
	uint64_t bytes = round_up(o, 2 * OVERLAY_TABLE_BYTES) + OVERLAY_GROUP * o->head.block;

	return round_up(o, OVERLAY_GROUPS_AT) + group * bytes;
}

uint64_t overlay_record_at(const struct overlay *o, uint32_t slot, unsigned copy)
{
	return group_at(o, slot / OVERLAY_GROUP) + copy * OVERLAY_TABLE_BYTES +
	       slot % OVERLAY_GROUP * sizeof(struct overlay_record);
}

uint64_t overlay_block_at(const struct overlay *o, uint32_t slot)
{
	return group_at(o, slot / OVERLAY_GROUP) + round_up(o, 2 * OVERLAY_TABLE_BYTES) +
	       slot % OVERLAY_GROUP * o->head.block;
}

uint32_t overlay_slot_at(const struct overlay *o, uint64_t place)
{
	uint64_t bytes = group_at(o, 1) - group_at(o, 0), off = place - group_at(o, 0);
	uint64_t in_group = off % bytes - round_up(o, 2 * OVERLAY_TABLE_BYTES);

	return (uint32_t)(off / bytes * OVERLAY_GROUP + in_group / o->head.block);
}

uint64_t overlay_commit_at(uint64_t number)
{
	return OVERLAY_COMMITS_AT + number % OVERLAY_COMMITS * OVERLAY_SECTOR;
}

uint64_t overlay_count_slots(const struct overlay *o, uint64_t size)
{
	uint64_t tables = round_up(o, 2 * OVERLAY_TABLE_BYTES), left;
	uint64_t group = group_at(o, 1) - group_at(o, 0);

	if (size == UINT64_MAX)
		return size;
	size -= min_u64(size, group_at(o, 0));
	left = size % group;
	return size / group * OVERLAY_GROUP + (left - min_u64(left, tables)) / o->head.block;
}

/* ---- Sums ---- */

static uint64_t record_sum(const struct overlay *o, const struct overlay_record *r)
{
	return checksum(r, offsetof(struct overlay_record, sum), o->head.salt);
}

static uint64_t commit_sum(const struct overlay *o, const struct overlay_commit *c)
{
	return checksum(c, offsetof(struct overlay_commit, sum), o->head.salt);
}

static uint64_t ack_sum(const struct overlay *o, const struct overlay_ack *ack)
{
	return checksum(ack, offsetof(struct overlay_ack, sum), o->head.salt);
}

struct overlay_record overlay_make_record(const struct overlay *o, uint32_t slot, uint64_t commit)
{
	const struct overlay_slot *s = overlay_slot(o, slot);
	/* A slot of the policy cache has its block before the first part is there, when the store
	 * may still end before the block. */
	bool is_empty = s->block == OVERLAY_EMPTY || (overlay_is_cache(o) && !s->valid);
	struct overlay_record r = { .block = is_empty ? OVERLAY_EMPTY : s->block,
				    .commit = commit, .slot = slot };

	if (!is_empty && overlay_is_cache(o)) {
		r.valid[0] = s->valid;
		r.flags = s->flags & SLOT_DOUBTFUL ? OVERLAY_DOUBTFUL :
			  s->flags & SLOT_CLEAN ? 0 : OVERLAY_DIRTY;
		if (s->flags & SLOT_SUMMED) {
			r.flags |= OVERLAY_SUMMED;
			r.data = s->data;
		}
	} else if (!is_empty) {
		r.valid[0] = r.valid[1] = UINT64_MAX;
		r.data = s->flags & SLOT_CUT ? 0 : s->data;
		r.flags = OVERLAY_DIRTY | (s->flags & SLOT_CUT ? OVERLAY_CUT : OVERLAY_SUMMED);
	}
	r.sum = record_sum(o, &r);
	return r;
}

/* The number of the commit of a whole record; 0: the record is not whole. */
static uint64_t commit_of(const struct overlay *o, const struct overlay_record *r, uint32_t slot)
{
	bool sound = r->block == OVERLAY_EMPTY || r->block < INT64_MAX / o->head.block;

	return r->slot == slot && r->sum == record_sum(o, r) && r->commit > o->head.base && sound ?
		       r->commit : 0;
}

/* ---- Commit records ---- */

int overlay_write_commit(struct overlay *o, struct overlay_commit *c)
{
	c->magic = OVERLAY_COMMIT_MAGIC;
	c->sum = commit_sum(o, c);
	return side_write(&o->file, c, sizeof(*c), overlay_commit_at(c->number));
}

int overlay_acknowledge(struct overlay *o, uint64_t number)
{
	struct overlay_ack ack = { .number = number };
	int err;

	ack.sum = ack_sum(o, &ack);
	err = side_write(&o->file, &ack, sizeof(ack), OVERLAY_ACK_AT);
	if (!err)
		o->acked = number;
	return err;
}

bool overlay_find_commit(const struct overlay *o, uint64_t number, struct overlay_commit *c)
{
	*c = o->commits[number % OVERLAY_COMMITS];
	if (c->magic && c->number == number)
		return true;
	*c = (struct overlay_commit){ .number = o->head.base, .size = o->head.base_size,
				      .floor = o->head.base };
	return number == o->head.base;
}

static bool is_whole(const struct overlay *o, const struct overlay_commit *c, unsigned i)
{
	return c->magic == OVERLAY_COMMIT_MAGIC && c->number % OVERLAY_COMMITS == i &&
	       c->number > o->head.base && c->floor <= c->number && c->size <= INT64_MAX &&
	       c->number < INT64_MAX && c->number - c->floor < OVERLAY_KEEP_MAX &&
	       c->sum == commit_sum(o, c);
}

/* Commits after the goal, if there is one, do not count. */
int overlay_read_commits(struct overlay *o, uint64_t *newest)
{
	_Alignas(64) char buf[COMMITS_BYTES + OVERLAY_SECTOR];
	const struct overlay_ack *ack = (const void *)(buf + COMMITS_BYTES);
	uint64_t most = o->head.goal ? o->head.goal - 1 : UINT64_MAX;
	int err = side_read(&o->file, buf, sizeof(buf), OVERLAY_COMMITS_AT);

	*newest = o->head.base;
	memset(o->commits, 0, sizeof(o->commits));
	for (unsigned i = 0; i < OVERLAY_COMMITS && !err; i++) {
		struct overlay_commit *c = &o->commits[i];

		memcpy(c, buf + i * OVERLAY_SECTOR, sizeof(*c));
		if (!is_whole(o, c, i) || c->number > most) {
			o->has_newer |= is_whole(o, c, i);
			c->magic = 0;
			continue;
		}
		c->floor = max_u64(c->floor, o->head.floor);
		*newest = max_u64(*newest, c->number);
	}
	/* Commits up to `home` and `floor` were durable before the header was written. */
	o->acked = max_u64(o->head.home, o->head.floor);
	if (!err && ack->sum == ack_sum(o, ack))
		o->acked = max_u64(o->acked, ack->number);
	o->acked = min_u64(o->acked, most);
	return err;
}

/* ---- Reading all records ---- */

struct scan {
	struct overlay *o;
	uint64_t m;                /* commit as of which the slots are filled */
	uint64_t ngroups;          /* groups in the file */
	uint64_t digest;
	uint64_t suspect;          /* offset of a record that was damaged, or torn; 0: none */
	char *buf;                 /* two tables; then blocks */
};

#define BLOCKS_BYTES (OVERLAY_GROUP * OVERLAY_BLOCK)
#define SCAN_BYTES (2 * OVERLAY_TABLE_BYTES + BLOCKS_BYTES)

static int scan_begin(struct scan *s, struct overlay *o, uint64_t m)
{
	uint64_t length;
	int err = side_size(&o->file, &length);

	*s = (struct scan){ .o = o, .m = m };
	if (err)
		return err;
	if (length > group_at(o, 0))
		s->ngroups = (length - group_at(o, 0) - 1) / (group_at(o, 1) - group_at(o, 0)) + 1;
	if (s->ngroups > OVERLAY_GROUPS_MAX)
		return -EFBIG;
	s->buf = mmap(NULL, SCAN_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (s->buf != MAP_FAILED)
		return 0;
	s->buf = NULL;
	return -ENOMEM;
}

static void scan_end(struct scan *s)
{
	if (s->buf)
		raw_munmap(s->buf, SCAN_BYTES);
}

static int read_tables(struct scan *s, uint32_t group)
{
	return side_read(&s->o->file, s->buf, 2 * OVERLAY_TABLE_BYTES, group_at(s->o, group));
}

/* With the blocks, if all of them are checked: then the file is read in order, once. */
static int read_group(struct scan *s, uint32_t group)
{
	size_t blocks = s->o->policy->checks_blocks ? BLOCKS_BYTES : 0;
	size_t bytes = 2 * OVERLAY_TABLE_BYTES + blocks;

	return side_read(&s->o->file, s->buf, bytes, group_at(s->o, group));
}

static const struct overlay_record *record(const struct scan *s, unsigned copy, unsigned k)
{
	return (const struct overlay_record *)(const void *)s->buf + copy * OVERLAY_GROUP + k;
}

static bool was_written(const struct overlay_record *r)
{
	static const struct overlay_record never;

	return memcmp(r, &never, sizeof(never)) != 0;
}

/* Fills a slot with the newer one of its records at the commit. */
static int fill_slot(struct scan *s, uint32_t slot)
{
	struct overlay *o = s->o;
	const char *blocks = s->buf + 2 * OVERLAY_TABLE_BYTES;
	const char *block = blocks + slot % OVERLAY_GROUP * OVERLAY_BLOCK;
	const struct overlay_record *r = NULL;
	struct overlay_slot *to;
	unsigned copy = 0;
	int err;

	for (unsigned i = 0; i < 2; i++) {
		const struct overlay_record *one = record(s, i, slot % OVERLAY_GROUP);
		uint64_t number = was_written(one) ? commit_of(o, one, slot) : OVERLAY_NEVER;

		if (number == 0 && !s->suspect)
			s->suspect = overlay_record_at(o, slot, i);
		o->has_newer |= number > s->m && number != OVERLAY_NEVER;
		if (number == 0 || number > s->m || (r && number <= r->commit))
			continue;
		r = one;
		copy = i;
	}
	err = r ? overlay_add_groups(o, slot / OVERLAY_GROUP + 1) : 0;
	if (err || !r)
		return err;
	to = overlay_slot(o, slot);
	to->block = r->block;
	to->commit = r->commit;
	to->data = r->data;
	to->sum = r->sum;
	to->valid = r->valid[0];
	to->flags = (copy ? SLOT_COPY : 0) | (r->flags & OVERLAY_DIRTY ? 0 : SLOT_CLEAN) |
		    (r->flags & OVERLAY_DOUBTFUL ? SLOT_DOUBTFUL | SLOT_DOUBTS_DURABLY : 0) |
		    (r->flags & OVERLAY_SUMMED ? SLOT_SUMMED : 0) |
		    (r->flags & OVERLAY_CUT && o->head.policy == OVERLAY_COW ? SLOT_CUT : 0);
	s->digest ^= r->sum;
	if (o->policy->checks_blocks && r->block != OVERLAY_EMPTY && r->commit > o->head.home &&
	    overlay_sum(block) != r->data)
		to->flags |= SLOT_BAD;
	return 0;
}

int overlay_read_newest(struct overlay *o, uint32_t first, unsigned n,
			struct overlay_record newest[OVERLAY_NEWEST_MAX])
{
	struct overlay_record other[OVERLAY_NEWEST_MAX];
	int err = side_read(&o->file, newest, n * sizeof(*newest), overlay_record_at(o, first, 0));

	if (!err)
		err = side_read(&o->file, other, n * sizeof(*other),
				overlay_record_at(o, first, 1));
	for (unsigned k = 0; k < n && !err; k++) {
		uint64_t number = commit_of(o, &newest[k], first + k);

		if (commit_of(o, &other[k], first + k) > number)
			newest[k] = other[k];
		else if (number == 0)
			newest[k].block = OVERLAY_EMPTY;
	}
	return err;
}

static int fill_slots(struct scan *s)
{
	int err = 0;

	overlay_forget_slots(s->o);
	for (uint32_t g = 0; g < s->ngroups && !err; g++) {
		err = read_group(s, g);
		for (unsigned k = 0; k < OVERLAY_GROUP && !err; k++)
			err = fill_slot(s, g * OVERLAY_GROUP + k);
	}
	return err;
}

/* Compares a run of blocks with their sums. *bad: a block that differs. */
static int check_run(struct scan *s, uint32_t slot, unsigned n, uint64_t *bad)
{
	struct overlay *o = s->o;
	bool checked = o->policy->checks_blocks;
	int err = 0;

	if (!checked)
		err = side_read(&o->file, s->buf, n * o->head.block, overlay_block_at(o, slot));
	for (unsigned k = 0; k < n && !err && *bad == OVERLAY_EMPTY; k++) {
		const struct overlay_slot *one = overlay_slot(o, slot + k);

		if (checked ? !(one->flags & SLOT_BAD)
			    : overlay_sum(s->buf + k * o->head.block) == one->data)
			continue;
		*bad = one->block;
		s->suspect = overlay_block_at(o, slot + k);
	}
	return err;
}

/* Whether a slot has a block of this commit; with number 0, of any that the store may not have. */
static bool is_of(const struct overlay *o, uint32_t slot, uint64_t number)
{
	const struct overlay_group *group = overlay_group(o, slot / OVERLAY_GROUP);
	const struct overlay_slot *s = &group->slot[slot % OVERLAY_GROUP];
	bool used = overlay_has_bit(group->used, slot);

	if (s->block == OVERLAY_EMPTY || s->flags & SLOT_CUT || overlay_is_cache(o))
		return false;
	return number ? s->commit == number : used && s->commit > o->head.home;
}

static int check_blocks(struct scan *s, uint64_t number, uint64_t *bad)
{
	uint32_t end = s->o->ngroups * OVERLAY_GROUP, n;
	int err = 0;

	*bad = OVERLAY_EMPTY;
	for (uint32_t slot = 0; slot < end && !err && *bad == OVERLAY_EMPTY; slot += n) {
		for (n = 0; n < OVERLAY_GROUP - slot % OVERLAY_GROUP; n++) {
			if (!is_of(s->o, slot + n, number))
				break;
		}
		if (n > 0)
			err = check_run(s, slot, n, bad);
		n += n == 0;
	}
	return err;
}

int overlay_scan(struct overlay *o, const struct overlay_commit *c, bool blocks, bool *holds)
{
	uint64_t bad = OVERLAY_EMPTY;
	struct scan s;
	int err = scan_begin(&s, o, c->number);

	if (!err)
		err = fill_slots(&s);
	*holds = !err && s.digest == c->digest;
	if (*holds && blocks && c->number > o->head.base)
		err = check_blocks(&s, c->number, &bad);
	*holds = *holds && bad == OVERLAY_EMPTY;
	if (!*holds && !o->damaged_at)
		o->damaged_at = s.suspect ? s.suspect : overlay_commit_at(c->number);
	scan_end(&s);
	return err;
}

int overlay_check_blocks(struct overlay *o, uint64_t *bad)
{
	struct scan s;
	int err = scan_begin(&s, o, 0);

	if (!err)
		err = check_blocks(&s, 0, bad);
	if (!err && s.suspect)
		o->damaged_at = s.suspect;
	scan_end(&s);
	return err;
}

/* ---- Which commit is the newest ---- */

/* The newest commit is damaged: finds an older one that holds. If there is none, the base is the
 * newest commit, and the floor is newer. */
static int find_older(struct overlay *o, uint64_t number)
{
	uint64_t floor = o->head.floor;
	bool holds = false;
	int err = 0;

	for (unsigned i = 0; i < OVERLAY_COMMITS; i++)
		if (o->commits[i].magic)
			floor = max_u64(floor, o->commits[i].floor);
	while (!err && !holds && number > floor && number-- > o->head.base)
		if (overlay_find_commit(o, number, &o->newest))
			err = overlay_scan(o, &o->newest, false, &holds);
	if (!err && !holds) {
		overlay_find_commit(o, o->head.base, &o->newest);
		o->newest.floor = floor;
	}
	return err;
}

/* Only an unacknowledged commit may be torn, and then the one before it must hold. */
static int find_newest(struct overlay *o, uint64_t number)
{
	bool holds = false, has = overlay_find_commit(o, number, &o->newest), torn;
	bool goes_back = o->head.goal && number + 1 != o->head.goal;
	int err = 0;

	if (has && number >= o->acked && !goes_back)
		err = overlay_scan(o, &o->newest, number > o->acked, &holds);
	if (err || holds)
		return err;
	torn = has && number > max_u64(o->acked, o->head.base) && !o->head.goal;
	if (torn && overlay_find_commit(o, number - 1, &o->newest)) {
		uint64_t suspect = o->damaged_at;

		o->damaged_at = 0;
		err = overlay_scan(o, &o->newest, false, &holds);
		o->has_newer = true;
		if (err || holds)
			return err;
		o->damaged_at = suspect;
	}
	if (!o->damaged_at)
		o->damaged_at = overlay_commit_at(max_u64(number, o->acked));
	return find_older(o, number + (o->acked > number));
}

int overlay_find_newest(struct overlay *o)
{
	uint64_t number;
	int err = overlay_read_commits(o, &number);

	return err ? err : find_newest(o, number);
}

/* ---- Erasing ---- */

static int erase_commits(struct overlay *o)
{
	static const struct overlay_commit zeros;
	_Alignas(64) char sector[OVERLAY_SECTOR];
	const struct overlay_commit *c = (const void *)sector;
	int err = 0;

	for (unsigned i = 0; i < OVERLAY_COMMITS && !err; i++) {
		uint64_t at = overlay_commit_at(i);

		err = side_read(&o->file, sector, sizeof(sector), at);
		if (err || !is_whole(o, c, i) || c->number <= o->newest.number)
			continue;
		o->commits[i].magic = 0;
		err = side_write(&o->file, &zeros, sizeof(zeros), at);
	}
	return err;
}

static int erase_record(struct scan *s, uint32_t slot, unsigned copy)
{
	static const struct overlay_record zeros;
	const struct overlay_record *r = record(s, copy, slot % OVERLAY_GROUP);

	if (commit_of(s->o, r, slot) <= s->m)
		return 0;
	return side_write(&s->o->file, &zeros, sizeof(zeros), overlay_record_at(s->o, slot, copy));
}

int overlay_erase_newer(struct overlay *o)
{
	struct scan s;
	int err = scan_begin(&s, o, o->newest.number);

	for (uint32_t g = 0; g < s.ngroups && !err; g++) {
		err = read_tables(&s, g);
		for (unsigned k = 0; k < 2 * OVERLAY_GROUP && !err; k++)
			err = erase_record(&s, g * OVERLAY_GROUP + k / 2, k % 2);
	}
	scan_end(&s);
	if (!err)
		err = erase_commits(o);
	if (!err)
		err = overlay_acknowledge(o, o->newest.number);
	if (!err)
		o->has_newer = false;
	return err;
}
