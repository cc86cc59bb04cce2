/* SPDX-License-Identifier: BSD-3-Clause */
/* The regions in doubt, and the header of the file of checksums. */
#include "sum.h"

#include "common/futex.h"
#include "common/stamp.h"
#include "keys.h"

#include <stdlib.h>
#include <string.h>

void sum_keep_doubt(struct sum *s, int err)
{
	if (!atomic_exchange(&s->unsure, true))
		notice_give(&s->notice, "sum+: cannot keep the checksums in '%.150s': %s. Until "
			    "the store is opened again, blocks near those that were written are "
			    "not compared", s->file.path, strerror(abs(err)));
}

int sum_write_head(struct sum *s, const struct sum_head *head)
{
	int err = header_write_durable(&s->slots, &s->file, head, sizeof(*head));

	/* A flush that fails may have lost entries. */
	if (err)
		sum_keep_doubt(s, err);
	return err;
}

static int add_doubt(struct sum *s, uint64_t region)
{
	struct sum_head head;
	int err;

	futex_lock(&s->file_lock);
	head = s->head;
	sum_add_region(head.doubt, region);
	err = sum_write_head(s, &head);
	futex_lock(&s->lock);
	if (!err)
		sum_add_region(s->head.doubt, region);
	futex_unlock(&s->lock);
	futex_unlock(&s->file_lock);
	return err;
}

/* The regions in doubt that no write has touched since `written` was emptied. Under the lock. */
static void find_quiet(const struct sum *s, uint64_t quiet[SUM_WORDS])
{
	uint64_t busy[SUM_WORDS];

	memcpy(busy, s->written, sizeof(busy));
	for (const struct sum_draft *d = s->drafts; d < s->drafts + SUM_DRAFTS; d++) {
		if (d->writes)
			sum_add_region(busy, d->writes - 1);
	}
	for (unsigned w = 0; w < SUM_WORDS; w++)
		quiet[w] = s->head.doubt[w] & ~busy[w];
}

void sum_describe_store(const struct sum *s, const char *way, uint64_t size,
			struct store_facts *facts)
{
	overlay_describe(facts, s->name, s->fd, size);
	/* Filters behind this one may write the file later. */
	if (strcmp(way, FILE_WAY) != 0)
		facts->seconds = facts->nanoseconds = 0;
}

/* Removes the doubt about regions that were quiet before a flush of the store. Under file_lock. */
static void remove_doubt(struct sum *s, const uint64_t before[SUM_WORDS])
{
	uint64_t quiet[SUM_WORDS], size = s->head.store.size;
	int err = side_flush(&s->file);

	if (err) {
		sum_keep_doubt(s, err);
		return;
	}
	futex_lock(&s->lock);
	/* A write may have begun during the flushes. */
	find_quiet(s, quiet);
	for (unsigned w = 0; w < SUM_WORDS; w++)
		s->head.doubt[w] &= ~(before[w] & quiet[w]);
	futex_unlock(&s->lock);
	/* While no region is in doubt, no write begins without file_lock. */
	behind_size(&s->store, &size);
	sum_describe_store(s, s->head.way, size, &s->head.store);
	sum_write_head(s, &s->head);
}

int sum_settle(struct sum *s, bool all)
{
	uint64_t quiet[SUM_WORDS];
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
		sum_keep_doubt(s, err);
	if (!err && !s->unsure && (all || sum_has_any(quiet)))
		remove_doubt(s, quiet);
	futex_unlock(&s->file_lock);
	if (all && s->head.store.seconds)
		stamp_await((int64_t)s->head.store.seconds, (int64_t)s->head.store.nanoseconds);
	return err;
}

/* ---- Drafts ---- */

struct sum_draft *sum_take_draft(struct sum *s, uint64_t off)
{
	struct sum_draft *d = &s->drafts[off / SUM_WINDOW % SUM_DRAFTS];

	futex_lock(&d->lock);
	return d;
}

int sum_begin_write(struct sum *s, struct sum_draft *d, uint64_t off)
{
	uint64_t region = off / s->head.region % SUM_REGIONS;
	bool is_ready;
	int err = 0;

	do {
		futex_lock(&s->lock);
		is_ready = sum_has_region(s->head.doubt, region);
		if (is_ready) {
			d->writes = region + 1;
			sum_add_region(s->written, region);
		}
		futex_unlock(&s->lock);
		if (!is_ready)
			err = add_doubt(s, region);
	} while (!is_ready && !err);
	return err;
}

void sum_release_draft(struct sum *s, struct sum_draft *d)
{
	futex_lock(&s->lock);
	d->writes = 0;
	futex_unlock(&s->lock);
	futex_unlock(&d->lock);
}

bool sum_is_in_doubt(struct sum *s, uint64_t off)
{
	bool is;

	futex_lock(&s->lock);
	is = (!s->writable || s->unsure) &&
	     sum_has_region(s->head.doubt, off / s->head.region % SUM_REGIONS);
	futex_unlock(&s->lock);
	return is;
}
