/* SPDX-License-Identifier: BSD-3-Clause */
/* The near file of cache+: see cache_near.h, which says why it is as it is. Allocates in opening; passes may run in signal
 * handlers. */
#include "cache_near.h"

#include "common/futex.h"
#include "common/minmax.h"
#include "common/random.h"
#include "keys.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEAD_MAGIC 0x3264686568636163u /* "cachehd2" */
#define SLOTS_MIN 16

_Static_assert(sizeof(struct cache_record) == 64, "records do not cross sectors");
_Static_assert(sizeof(struct cache_head) <= HEADER_BODY_MAX, "the head fits a slot");
_Static_assert(1 << 13 == CACHE_REGIONS, "cache_region has so many bits");

static uint64_t record_sum(const struct cache_near *n, const struct cache_record *r)
{
	return checksum(r, offsetof(struct cache_record, sum), n->head.salt);
}

static void lock(struct cache_near *n)
{
	futex_lock(&n->index.lock);
}

static void unlock(struct cache_near *n)
{
	futex_unlock(&n->index.lock);
}

/* ---- A pass ---- */

/* Under the lock: what the slots of a word of bits are, as records of this pass. Returns the bits of those whose second record
 * counts now. */
static uint64_t make_records(struct cache_near *n, uint32_t word, uint64_t bits, uint64_t pass)
{
	uint64_t copies = 0;

	for (uint64_t rest = bits; rest; rest &= rest - 1) {
		unsigned k = (unsigned)__builtin_ctzll(rest);
		struct cache_slot *slot = &n->index.slot[word * 64 + k];
		struct cache_record *r = &n->record[k];

		*r = (struct cache_record){ .key = slot->key, .valid = { slot->valid[0], slot->valid[1] }, .pass = pass,
					    .slot = word * 64 + k };
		r->sum = record_sum(n, r);
		n->digest ^= slot->sum ^ r->sum;
		slot->sum = r->sum;
		copies |= (uint64_t)slot->copy << k;
	}
	return copies;
}

/* Neighbours that go to the same table in one request. */
static int write_records(struct cache_near *n, uint32_t word, uint64_t bits, uint64_t copies)
{
	int err = 0;

	for (unsigned k = 0, run; k < 64 && bits >> k && !err; k += run) {
		unsigned copy = copies >> k & 1;

		run = 1;
		if (!(bits >> k & 1))
			continue;
		while (k + run < 64 && bits >> (k + run) & 1 && (copies >> (k + run) & 1) == copy)
			run++;
		err = side_write(&n->file, &n->record[k], run * sizeof(struct cache_record),
				 n->records_at[!copy] + (word * 64 + k) * sizeof(struct cache_record));
	}
	return err;
}

static int write_changed(struct cache_near *n, uint64_t pass)
{
	struct cache_index *ix = &n->index;
	int err = 0;

	for (uint32_t word = 0; word < (ix->slots + 63) / 64 && !err; word++) {
		uint64_t bits, copies;

		if (!ix->changed[word])
			continue;
		lock(n);
		ix->taken[word] = bits = atomic_exchange(&ix->changed[word], 0);
		copies = make_records(n, word, bits, pass);
		unlock(n);
		err = write_records(n, word, bits, copies);
	}
	return err;
}

/* What was taken counts; or has to be taken again, into the same places, because the others do. */
static void end_pass(struct cache_near *n, bool counts)
{
	struct cache_index *ix = &n->index;

	if (!counts) {
		lock(n);
		n->failures++;
		unlock(n);
	}
	for (uint32_t word = 0; word < (ix->slots + 63) / 64; word++) {
		uint64_t bits = ix->taken[word] | (counts ? 0 : ix->changed[word]);

		if (!bits)
			continue;
		lock(n);
		ix->taken[word] = 0;
		if (!counts)
			ix->changed[word] |= bits;
		for (; bits; bits &= bits - 1) {
			uint32_t s = word * 64 + (unsigned)__builtin_ctzll(bits);

			if (counts) {
				ix->slot[s].copy ^= 1;
				cache_settle(ix, s);
			} else if (cache_is_clean(ix, s)) {
				cache_drop(ix, s);
			}
		}
		unlock(n);
	}
}

static int flush(struct cache_near *n)
{
	int err = side_flush(&n->file);

	if (err)
		return err;
	header_set_flushed(&n->slots);
	n->durable = n->slots.number;
	return 0;
}

/* The slot of the head behind the durable one. A flush that fails may have lost it, or not. */
static int write_slot(struct cache_near *n, const struct cache_head *head)
{
	return header_write(&n->slots, &n->file, head, sizeof(*head));
}

/* What may be there of a head although writing it has failed would speak of records that are written over next. */
static int take_back_head(struct cache_near *n)
{
	int err;

	n->slots.number = n->durable;
	header_set_flushed(&n->slots);
	err = write_slot(n, &n->head);
	if (!err)
		err = flush(n);
	return err;
}

static int write_head(struct cache_near *n, struct cache_head *head)
{
	int err = write_slot(n, head);

	if (!err)
		err = flush(n);
	if (err)
		return err;
	lock(n);
	n->head = *head;
	memcpy(n->sure, head->intent, sizeof(n->sure));
	unlock(n);
	/* What it says is durable already. */
	write_slot(n, head);
	return 0;
}

static bool any_changed(struct cache_near *n)
{
	bool any;

	for (uint32_t word = 0; word < (n->index.slots + 63) / 64; word++)
		if (n->index.changed[word])
			return true;
	lock(n);
	n->next.pass = n->head.pass;
	n->next.digest = n->head.digest;
	any = memcmp(&n->next, &n->head, sizeof(n->head)) != 0;
	unlock(n);
	return any;
}

static int pass(struct cache_near *n)
{
	struct cache_head head;
	int err;

	lock(n);
	for (unsigned i = 0; i < CACHE_REGIONS / 64; i++)
		n->sure[i] &= n->begun[i] = n->next.intent[i];
	unlock(n);
	err = write_changed(n, n->head.pass + 1);
	if (!err)
		err = flush(n);
	if (err)
		return err;
	/* Of what was intended at any time since the first record, some may be in the records. */
	lock(n);
	head = n->next;
	head.pass = n->head.pass + 1;
	head.digest = n->digest;
	for (unsigned i = 0; i < CACHE_REGIONS / 64; i++)
		head.intent[i] |= n->begun[i];
	unlock(n);
	err = write_head(n, &head);
	if (!err)
		end_pass(n, true);
	return err;
}

/* ---- After a flush that failed ---- */

/* Waits until nobody writes dirty slots; who wants to begin waits for the end of mending. */
static void keep_writers_out(struct cache_near *n)
{
	struct cache_index *ix = &n->index;
	uint32_t s;

	lock(n);
	n->mending = true;
	for (s = ix->list[CACHE_DIRTY].first; s != CACHE_NO_SLOT;) {
		if (!ix->slot[s].writers) {
			s = ix->slot[s].next;
			continue;
		}
		unlock(n);
		nanosleep(&cache_moment, NULL);
		lock(n);
		s = ix->list[CACHE_DIRTY].first;
	}
	unlock(n);
}

static int write_again(struct cache_near *n, uint32_t s, cache_mask sectors)
{
	int err = 0;

	for (unsigned k = 0; k < CACHE_SECTORS && sectors >> k && !err; k++) {
		uint64_t place = cache_place(n, s, (uint64_t)k << n->sector_shift);

		if (!(sectors >> k & 1))
			continue;
		err = side_read(&n->file, n->record, (size_t)1 << n->sector_shift, place);
		if (!err)
			err = side_write(&n->file, n->record, (size_t)1 << n->sector_shift, place);
	}
	return err;
}

static int mend(struct cache_near *n)
{
	struct cache_index *ix = &n->index;
	int err = 0;

	keep_writers_out(n);
	for (uint32_t s = 0; s < ix->slots && !err; s++) {
		cache_mask sectors = 0;

		lock(n);
		if (ix->slot[s].list == CACHE_DIRTY)
			sectors = cache_valid(&ix->slot[s]);
		if (sectors)
			cache_pin(ix, s);
		unlock(n);
		if (!sectors)
			continue;
		err = write_again(n, s, sectors);
		lock(n);
		cache_unpin(ix, s);
		unlock(n);
	}
	lock(n);
	n->mending = false;
	unlock(n);
	return err ? err : take_back_head(n);
}

int cache_pass(struct cache_near *n)
{
	int err;

	futex_lock(&n->passing);
	err = n->unsure ? mend(n) : 0;
	if (!err)
		err = any_changed(n) ? pass(n) : flush(n);
	n->unsure = err != 0;
	if (err)
		end_pass(n, false);
	futex_unlock(&n->passing);
	return err;
}

/* ---- What is found ---- */

static void lay_out(struct cache_near *n)
{
	uint64_t table = (n->head.slots * sizeof(struct cache_record) + 4095) & ~(uint64_t)4095;

	n->block_shift = (unsigned)__builtin_ctzll(n->head.block);
	n->sector_shift = n->head.block / CACHE_SECTORS > CACHE_SECTOR_MIN ?
			  (unsigned)__builtin_ctzll(n->head.block / CACHE_SECTORS) : (unsigned)__builtin_ctz(CACHE_SECTOR_MIN);
	n->records_at[0] = HEADER_BYTES;
	n->records_at[1] = HEADER_BYTES + table;
	n->blocks_at = (HEADER_BYTES + 2 * table + n->head.block - 1) & ~(n->head.block - 1);
}

static uint64_t length_of(const struct cache_near *n)
{
	return cache_place(n, 0, 0) + n->head.slots * n->head.block;
}

/* Whether nothing is on a device, as far as one can see. */
static bool is_blank(struct cache_near *n)
{
	static const char zeros[sizeof(n->record)];
	uint64_t length;

	if (side_size(&n->file, &length) < 0)
		return false;
	for (uint64_t at = 0; at < min_u64(length, SIDE_BLANK); at += sizeof(zeros))
		if (side_read(&n->file, n->record, sizeof(zeros), at) < 0 || memcmp(n->record, zeros, sizeof(zeros)) != 0)
			return false;
	return true;
}

/* 0: it has a head; 1: it is new, or making it was cut off. */
static int read_head(struct cache_near *n, struct ummap_geom *geom)
{
	struct cache_head *head = &n->head;
	int err;

	n->slots = side_header(HEAD_MAGIC);
	err = header_read(&n->slots, &n->file, head, sizeof(*head));
	if (err == 1 || (err == -ENODATA && n->file.device && is_blank(n)))
		return 1;
	if (!err && (head->block < CACHE_BLOCK_MIN || head->block > CACHE_BLOCK_MAX || head->block & (head->block - 1) ||
		     head->slots < SLOTS_MIN || head->slots >= CACHE_NO_SLOT))
		err = -ENODATA;
	if (err == -ENODATA)
		return keys_refuse(geom, EUCLEAN, "cannot use '%.140s': it is no near file, or its "
				   "header is damaged%s", n->file.path,
				   n->file.device ? ". Try zeros in its first MiB" : "");
	if (err)
		return keys_refuse(geom, -err, "cannot read the near file '%.140s': %s",
				   n->file.path, strerror(-err));
	lay_out(n);
	return 0;
}

/* In which pass a record was written that is whole; 0: it is none. */
static uint64_t pass_of(const struct cache_near *n, const struct cache_record *r, uint32_t s)
{
	return r->slot == s && r->sum == record_sum(n, r) ? r->pass : 0;
}

static bool was_written(const struct cache_record *r)
{
	static const struct cache_record never;

	return memcmp(r, &never, sizeof(never)) != 0;
}

/* Of the two records of a slot the newer one that counts; an empty slot that never had one has none. One of a pass that did
 * not come to its end is to be written over by the next one, which has the same number; also one that is there in part, because
 * what a later pass leaves there in part may make it whole. */
static void load_slot(struct cache_near *n, uint32_t s, const struct cache_record *a, const struct cache_record *b)
{
	const struct cache_record *r[2] = { a, b };
	uint64_t pass[2] = { pass_of(n, a, s), pass_of(n, b, s) };
	unsigned copy;

	for (int i = 0; i < 2; i++) {
		if (pass[i] ? pass[i] <= n->head.pass : !was_written(r[i]))
			continue;
		pass[i] = 0;
		cache_mark_changed(&n->index, s);
	}
	copy = pass[1] > pass[0];
	if (!pass[copy])
		return;
	n->index.slot[s].copy = copy;
	n->index.slot[s].sum = r[copy]->sum;
	n->digest ^= r[copy]->sum;
	if (r[copy]->key != CACHE_NO_KEY)
		cache_restore(&n->index, s, r[copy]->key, r[copy]->valid, 0);
}

static int load_records(struct cache_near *n)
{
	enum { AT_ONCE = 64 };
	static const size_t size = sizeof(struct cache_record);
	struct cache_record *other = malloc(AT_ONCE * size);
	int err = other ? 0 : -ENOMEM;

	for (uint32_t s = 0, some; s < n->head.slots && !err; s += some) {
		some = n->head.slots - s < AT_ONCE ? (uint32_t)n->head.slots - s : AT_ONCE;
		err = side_read(&n->file, n->record, some * size, n->records_at[0] + s * size);
		if (!err)
			err = side_read(&n->file, other, some * size, n->records_at[1] + s * size);
		for (uint32_t k = 0; k < some && !err; k++)
			load_slot(n, s + k, &n->record[k], &other[k]);
	}
	free(other);
	return err;
}

static int load(struct cache_near *n, struct ummap_geom *geom)
{
	int err = cache_index_init(&n->index, (uint32_t)n->head.slots);

	if (err)
		return keys_refuse(geom, ENOMEM, "cannot open the near file '%.140s': no memory for "
				   "its index", n->file.path);
	err = load_records(n);
	if (err)
		return keys_refuse(geom, -err, "cannot read the near file '%.140s': %s",
				   n->file.path, strerror(-err));
	if (n->digest != n->head.digest)
		return keys_refuse(geom, EUCLEAN, "cannot use '%.140s': its records "
				   "are damaged. Try `ummap cache drop`, which loses unwritten "
				   "changes", n->file.path);
	n->next = n->head;
	memcpy(n->sure, n->head.intent, sizeof(n->sure));
	return 0;
}

/* ---- Opening ---- */

static int has_room(struct cache_near *n)
{
	uint64_t length;
	int err = side_size(&n->file, &length);

	return err ? err : length < length_of(n) ? -ENOSPC : 0;
}

static int give_room(struct cache_near *n, struct ummap_geom *geom)
{
	int err = n->file.device ? has_room(n) : side_reserve(&n->file, length_of(n));

	if (!err)
		err = side_flush(&n->file);
	return err ? keys_refuse(geom, -err, "cannot make the near file '%.140s' %" PRIu64 " bytes "
				 "long: %s", n->file.path, length_of(n), strerror(-err)) : 0;
}

static uint64_t besides(uint64_t block)
{
	return HEADER_BYTES + 2 * 4096 + block - 4096;
}

static uint64_t slots_in(uint64_t size, uint64_t block)
{
	return size < besides(block) ? 0 : (size - besides(block)) / (block + 2 * sizeof(struct cache_record));
}

static int begin(struct cache_near *n, const struct cache_wish *wish, struct ummap_geom *geom)
{
	uint64_t block = wish->block ? wish->block : CACHE_BLOCK, size = wish->size;
	int err = !size && n->file.device ? side_size(&n->file, &size) : 0;

	if (err || !size)
		return keys_refuse(geom, EINVAL, "cannot create the near file '%.140s': its size is "
				   "not given. Try the key cache.size", n->file.path);
	memset(&n->head, 0, sizeof(n->head));
	n->head.block = block;
	n->head.slots = slots_in(size, block);
	if (n->head.slots < SLOTS_MIN)
		return keys_refuse(geom, EINVAL, "cannot create the near file: cache.size must be "
				   "at least %" PRIu64 " bytes for blocks of %" PRIu64 " bytes, %d "
				   "of them", besides(block) + SLOTS_MIN *
				   (block + 2 * sizeof(struct cache_record)), block, SLOTS_MIN);
	if (n->head.slots >= CACHE_NO_SLOT)
		return keys_refuse(geom, EINVAL, "cannot create the near file: cache.size makes %"
				   PRIu64 " blocks of %" PRIu64 " bytes, more than 2^32-2. Try a "
				   "larger cache.block", n->head.slots, block);
	n->head.salt = random_id();
	n->head.far = wish->far;
	n->head.touched = wish->doubt;
	n->head.size = wish->far.size;
	strcpy(n->head.store, wish->store);
	lay_out(n);
	/* What is on a device that is too short stays. */
	err = n->file.device ? give_room(n, geom) : 0;
	if (err)
		return err;
	err = header_write_both(&n->slots, &n->file, &n->head, sizeof(n->head));
	n->durable = n->slots.number;
	if (err)
		return keys_refuse(geom, -err, "cannot write the near file '%.140s': %s", wish->path,
				   strerror(-err));
	return give_room(n, geom);
}

/* Whether it is the cache of this store, and the store is as it was left. */
static int recognize(struct cache_near *n, const struct cache_wish *wish, struct ummap_geom *geom)
{
	const struct cache_facts *was = &n->head.far, *is = &wish->far;
	bool same = !*was->name || !*is->name || strcmp(was->name, is->name) == 0;

	if (was->id != is->id || !same)
		return keys_refuse(geom, EINVAL, "cannot use '%.140s': it is the cache of another "
				   "store, '%.30s'. Try another file by cache.path, or by --cache "
				   "of the command", n->file.path, was->name);
	if (n->head.touched ? is->size < was->size : is->size != was->size || is->seconds != was->seconds ||
	    is->nanoseconds != was->nanoseconds)
		return keys_refuse(geom, ESTALE, "cannot use '%.140s': the store was "
				   "changed since, and not through cache+. Try `ummap cache drop`",
				   n->file.path);
	if ((wish->block && wish->block != n->head.block) ||
	    (wish->size && slots_in(wish->size, n->head.block) != n->head.slots))
		return keys_refuse(geom, EINVAL, "cannot resize '%.140s' (%" PRIu64 " blocks of %"
				   PRIu64 " bytes). Try without cache.size and cache.block, or "
				   "`ummap cache drop`", n->file.path, n->head.slots,
				   n->head.block);
	return 0;
}

/* What was written past the cache may be there, or not; it is intended still, until the far store was flushed. Where nobody
 * knows who else has written the store, nothing clean is right for sure. */
static void forget_doubtful(struct cache_near *n, bool all)
{
	for (uint32_t s = 0; s < n->index.slots; s++)
		if (cache_is_clean(&n->index, s) && (all || cache_intends(n->head.intent, n->index.slot[s].key >> 1)))
			cache_drop(&n->index, s);
}

static int find(struct cache_near *n, const struct cache_wish *wish, struct ummap_geom *geom)
{
	uint64_t length;
	int err = recognize(n, wish, geom);

	if (err)
		return err;
	/* Before the first pass there may be no more than the head. */
	if (n->head.pass == 0)
		err = give_room(n, geom);
	else if (side_size(&n->file, &length) == 0 && length < length_of(n))
		return keys_refuse(geom, EUCLEAN, "cannot use '%.140s': it has become "
				   "shorter. Try `ummap cache drop`, which loses unwritten changes",
				   n->file.path);
	if (!err)
		err = load(n, geom);
	if (err)
		return err;
	forget_doubtful(n, wish->doubt);
	/* A filter there may write the store by itself: wal+ applies the commits in its log. */
	if (wish->doubt)
		n->next.touched = 1;
	if (*wish->store)
		memcpy(n->next.store, wish->store, sizeof(n->next.store));
	err = flush(n);
	if (!err)
		err = header_mend(&n->slots, &n->file, &n->head, sizeof(n->head));
	n->durable = n->slots.number;
	if (!err)
		err = cache_pass(n);
	return err ? keys_refuse(geom, -err, "cannot write the near file '%.140s': %s", n->file.path,
				 strerror(-err)) : 0;
}

int cache_near_open(struct cache_near *n, const struct cache_wish *wish, struct ummap_geom *geom)
{
	int oflags = UMMAP_O_WRITE | (wish->create ? UMMAP_O_CREATE : 0);
	int err = side_open(&n->file, wish->path, oflags, 0600, UMMAP_LOCK_EXCLUSIVE, geom);

	if (err)
		return err;
	err = read_head(n, geom);
	if (err == 1) {
		err = begin(n, wish, geom);
		if (!err)
			err = load(n, geom);
	} else if (!err) {
		err = find(n, wish, geom);
	}
	if (!err)
		err = side_map(&n->file);
	if (err && n->file.made && !n->index.memory)
		side_remove(&n->file);
	if (err)
		cache_near_close(n);
	return err;
}

int cache_near_look(struct cache_near *n, const char *path, int how, struct ummap_geom *geom)
{
	int err = side_open(&n->file, path, how == UMMAP_LOCK_EXCLUSIVE ? UMMAP_O_WRITE : 0, 0, how, geom);

	if (err)
		return err;
	err = read_head(n, geom);
	if (!err && how != UMMAP_LOCK_NONE)
		err = load(n, geom);
	if (err < 0)
		cache_near_close(n);
	return err;
}

int cache_near_close(struct cache_near *n)
{
	cache_index_end(&n->index);
	return side_close(&n->file);
}

int cache_near_resume(struct cache_near *n)
{
	struct header slots = side_header(HEAD_MAGIC);
	struct ummap_geom unused = { .size = 0 };
	struct cache_head head;
	int err = header_read(&slots, &n->file, &head, sizeof(head));

	if (!err && slots.number == n->slots.number)
		return 0;
	cache_index_end(&n->index);
	n->digest = 0;
	if (!err)
		err = read_head(n, &unused);
	if (!err)
		err = load(n, &unused);
	n->durable = n->slots.number;
	return err > 0 ? -EIO : err;
}
