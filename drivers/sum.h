/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The file of checksums of the filter sum+, which is beside a store:
 *
 *	0 B       header: two slots of 4 KiB (common/header.h), each with a struct sum_head
 *	8 KiB     entries of 8 bytes: number b is that of block b of the store
 *
 * An entry is the XXH3 checksum of a block of 4 KiB minus that of a block of zeros. Bytes beyond
 * the end of the store are zeros. So a hole of the file has the entries of a hole of the store.
 *
 * A block and its entry cannot change in one step. Therefore the header divides the store into
 * regions, and has a bit for each region IN DOUBT: the blocks of such a region may differ from
 * their entries after a crash, without being damaged.
 *
 * ORDERS
 *	1. A region is in doubt in the durable header before the first of its blocks or entries is
 *	   written.
 *	2. A region is no longer in doubt only after a flush of the store, a flush of the file and
 *	   a write of the header, in this order, which follow the last write to its blocks and the
 *	   last write to its entries.
 *	3. Before an opening for writing returns, it flushes the file, and then makes the entries of
 *	   all regions in doubt from the blocks that the store has, also behind its end, where no
 *	   block is. Then order 2 applies.
 *	4. A new file has all regions of the store in doubt before its first entry is written.
 *	5. The facts of the store in the header are those after the flush of order 2. They count
 *	   only while no region is in doubt.
 *	6. A block that is being written belongs to one thread. A reader that finds a difference
 *	   waits until the block is its own, and reads the block and the entry again.
 *
 * WHAT A CRASH LEAVES. In a region in doubt, each block and each entry is the old one, the new one,
 * or torn. All other blocks agree with their entries (2), so a difference there is damage. An
 * opening for writing accepts the blocks of the regions in doubt as they are. It can be interrupted
 * and repeated, since the regions stay in doubt until the end. An opening for reading changes
 * nothing, and compares no block of a region in doubt.
 *
 * WHY NOT BOTH CHECKSUMS. A file with the checksums of the old and of the new block would tell a
 * torn block from a damaged one. But it would have to be flushed before each write of a block; a
 * region is flushed once for all writes to its blocks. The filter wal+ prevents torn blocks.
 *
 * WHEN. Every SUM_CLEAR_FLUSHES flushes, the regions that were not written since the last time are
 * no longer in doubt; closing and handing over do this to all regions. The other flushes do not
 * flush the file. If a flush or a write fails and the entries cannot be made from the store, the
 * regions stay in doubt until the next opening, and their blocks are not compared until then.
 *
 * LOCKS. A draft's lock, from before its blocks are claimed until after they are written; inside it
 * or by itself, `file_lock` around changes of the header and flushes of the file; inside it or by
 * itself, `lock`, which is never held during a transfer.
 */
#ifndef DRIVERS_SUM_H
#define DRIVERS_SUM_H

#include "overlay/overlay.h"

#define SUM_SUFFIX ".sum"
#define SUM_MAGIC 0x31736d75736d6d75u      /* "ummsums1" */
#define SUM_BLOCK OVERLAY_BLOCK
#define SUM_ENTRIES_AT HEADER_BYTES
#define SUM_WINDOW ((size_t)1 << 20)       /* unit of transfers, which are aligned to it */
#define SUM_REGIONS 4096
#define SUM_REGION ((uint64_t)64 << 20)    /* bytes of a region in new files */
#define SUM_CLEAR_FLUSHES 16

struct sum_head {
	uint64_t block;                    /* bytes of a block */
	uint64_t region;                   /* bytes of a region, a multiple of SUM_WINDOW */
	uint64_t doubt[SUM_REGIONS / 64];  /* bit set: region r is in doubt if r % 4096 is in it */
	struct store_facts store;          /* properties of the store (order 5) */
	char way[BEHIND_WAY];              /* drivers behind the filter */
};

_Static_assert(sizeof(struct sum_head) <= HEADER_BODY_MAX, "the header fits its slot");

#define SUM_DRAFTS 8
#define SUM_WORDS (SUM_REGIONS / 64)

/* Memory for bytes of a window. The lock gives a thread all blocks of the windows that use the
 * draft (order 6). Bytes are copied there before their checksums are computed, because other
 * threads and devices may change the caller's memory. */
struct sum_draft {
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
	struct sum_draft drafts[SUM_DRAFTS]; /* that of window w is at w % SUM_DRAFTS */
	struct notice notice;
	struct held held[HELD_MAX];
	_Atomic bool unsure;       /* whether entries of regions in doubt may be wrong */
	_Atomic uint32_t flushes;  /* number of flushes */
	_Atomic uint32_t file_lock, lock;
	struct header slots;       /* under file_lock */
	struct sum_head head;      /* under file_lock; `doubt` is changed under both locks, so read
				      under either. The durable header has all its regions in
				      doubt. */
	uint64_t written[SUM_WORDS]; /* bit set of regions, emptied when doubt is removed; under
				        the lock */
};

/* ---- sum_doubt.c: regions in doubt ---- */

static inline bool sum_has_region(const uint64_t set[SUM_WORDS], uint64_t region)
{
	return set[region / 64] >> region % 64 & 1;
}

static inline void sum_add_region(uint64_t set[SUM_WORDS], uint64_t region)
{
	set[region / 64] |= (uint64_t)1 << region % 64;
}

static inline bool sum_has_any(const uint64_t set[SUM_WORDS])
{
	uint64_t any = 0;

	for (unsigned w = 0; w < SUM_WORDS; w++)
		any |= set[w];
	return any;
}

/* Keeps the regions in doubt until the next opening, after an error that may have lost entries. */
void sum_keep_doubt(struct sum *s, int err);
/* Writes a header durably. Under file_lock. */
int sum_write_head(struct sum *s, const struct sum_head *head);
/* The facts of the store, whose drivers are those of `way`. */
void sum_describe_store(const struct sum *s, const char *way, uint64_t size,
			struct store_facts *facts);
/* Flushes the store, and returns the result. Then removes the doubt about regions that were not
 * written since the last call; if `all`, about all regions that no thread writes now. */
int sum_settle(struct sum *s, bool all);
/* Whether a block may differ from its entry without being damaged. */
bool sum_is_in_doubt(struct sum *s, uint64_t off);
/* Takes the draft of the window of an offset. */
struct sum_draft *sum_take_draft(struct sum *s, uint64_t off);
/* Called before a write to the window, with its draft: marks its region (order 1). */
int sum_begin_write(struct sum *s, struct sum_draft *d, uint64_t off);
void sum_release_draft(struct sum *s, struct sum_draft *d);

/* ---- sum.c: transfers ---- */

/* Makes the entries of blocks of one window from the store, with the draft of that window. Adds the
 * number of those that have changed to *changed. Entries that have not changed are written, too,
 * because a failed flush may have lost them; in a new file, they are holes, and remain so. */
int sum_renew_entries(struct sum *s, struct sum_draft *d, size_t len, uint64_t off, bool is_new,
		      uint64_t *changed);
int sum_read(void *h, void *buf, size_t len, uint64_t off);
int sum_readv(void *h, const struct iovec *iov, int n, uint64_t off);
int sum_write(void *h, const void *buf, size_t len, uint64_t off);
int sum_writev(void *h, const struct iovec *iov, int n, uint64_t off);
int sum_flush(void *h, uint64_t off, uint64_t len);
int sum_resize(void *h, uint64_t size);
int sum_submit(void *h, struct ummap_io **io, unsigned n);
int sum_reap(void *h, struct ummap_io **done, unsigned max, unsigned min);

#endif
