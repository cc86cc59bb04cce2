/* SPDX-License-Identifier: BSD-3-Clause */
/* Writes overlay files by hand: their sums are right, whatever they say. Each slot is used once. */
#ifndef TESTS_OVERLAY_FILE_H
#define TESTS_OVERLAY_FILE_H

#include <string.h>

#include "drivers/overlay/overlay.h"

#define GROUP_BYTES (2 * OVERLAY_TABLE_BYTES + OVERLAY_GROUP * OVERLAY_BLOCK)

struct overlay_file {
	struct side side;
	struct overlay_head head;
	uint32_t slots;  /* that were written */
	uint64_t number; /* of the newest commit */
	uint64_t digest;
	int failed; /* first error of a write */
};

static inline uint64_t file_record_at(uint32_t slot)
{
	return OVERLAY_GROUPS_AT + slot / OVERLAY_GROUP * GROUP_BYTES +
	       slot % OVERLAY_GROUP * sizeof(struct overlay_record);
}

static inline uint64_t file_block_at(uint32_t slot)
{
	return OVERLAY_GROUPS_AT + slot / OVERLAY_GROUP * GROUP_BYTES + 2 * OVERLAY_TABLE_BYTES +
	       slot % OVERLAY_GROUP * OVERLAY_BLOCK;
}

static inline void file_put(struct overlay_file *f, const void *bytes, size_t len, uint64_t off)
{
	int err = side_write(&f->side, bytes, len, off);

	f->failed = f->failed ? f->failed : err;
}

/* Opens an existing file, and writes its header, whose fields the caller has set. */
static inline int file_begin(struct overlay_file *f, const char *path,
			     const struct overlay_head *head)
{
	struct header slots = side_header(OVERLAY_MAGIC);
	struct ummap_geom geom = { .size = 0 };
	int err = side_open(&f->side, path, UMMAP_O_WRITE | UMMAP_O_CREATE, 0600, UMMAP_LOCK_NONE,
			    &geom);

	f->head = *head;
	f->slots = 0;
	f->number = head->base;
	f->digest = 0;
	f->failed = 0;
	if (!err)
		err = side_resize(&f->side, 0);
	return err ? err : header_write_both(&slots, &f->side, &f->head, sizeof(f->head));
}

/* Writes a block, and a record for the next commit; r says what may be wrong of the record. */
static inline void file_add_record(struct overlay_file *f, const char *bytes,
				   struct overlay_record *r)
{
	r->sum = checksum(r, offsetof(struct overlay_record, sum), f->head.salt);
	f->digest ^= r->sum;
	file_put(f, bytes, OVERLAY_BLOCK, file_block_at(f->slots));
	file_put(f, r, sizeof(*r), file_record_at(f->slots));
	f->slots++;
}

static inline struct overlay_record file_record(const struct overlay_file *f, uint64_t block,
						const char *bytes)
{
	return (struct overlay_record){
		.block = block,
		.commit = f->number + 1,
		.valid = { UINT64_MAX, UINT64_MAX },
		.data = overlay_sum(bytes),
		.slot = f->slots,
		.flags = OVERLAY_SUMMED | OVERLAY_DIRTY,
	};
}

/* All bytes of the block have one value. */
static inline void file_add_block(struct overlay_file *f, uint64_t block, int value)
{
	char bytes[OVERLAY_BLOCK];
	struct overlay_record r;

	memset(bytes, value, sizeof(bytes));
	r = file_record(f, block, bytes);
	file_add_record(f, bytes, &r);
}

static inline struct overlay_commit file_commit(const struct overlay_file *f, uint64_t size,
						uint64_t floor)
{
	return (struct overlay_commit){
		.magic = OVERLAY_COMMIT_MAGIC,
		.number = f->number + 1,
		.size = size,
		.floor = floor,
		.slots = f->slots,
		.digest = f->digest,
	};
}

static inline void file_add_commit(struct overlay_file *f, struct overlay_commit *c)
{
	uint64_t sector = (f->number + 1) % OVERLAY_COMMITS;

	c->sum = checksum(c, offsetof(struct overlay_commit, sum), f->head.salt);
	file_put(f, c, sizeof(*c), OVERLAY_COMMITS_AT + sector * OVERLAY_SECTOR);
	f->number++;
}

static inline void file_acknowledge(struct overlay_file *f, uint64_t number)
{
	struct overlay_ack ack = { .number = number };

	ack.sum = checksum(&ack, offsetof(struct overlay_ack, sum), f->head.salt);
	file_put(f, &ack, sizeof(ack), OVERLAY_ACK_AT);
}

static inline int file_end(struct overlay_file *f)
{
	int err = side_close(&f->side);

	return f->failed ? f->failed : err;
}

#endif
