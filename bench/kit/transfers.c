/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The simulated memory holds pages in two queues, first in, first out. One queue has the pages that
 * were accessed, or whose accesses are not seen. The other one has pages that were loaded with
 * others in a sampled area, and not accessed yet. Those leave first if they are older or many.
 */
#include "kit/transfers.h"

#include <stdbool.h>

#include "kit/common.h"
#include "kit/zipf.h"
#include "paging/residency/transfer_size.h"
#include "paging/tuning.h"

/* ---- Patterns ---- */

const char *const transfer_patterns[] = {
	"in-order", "random-4K", "random-16K", "random-64K", "random-256K", "unaligned-64K",
	"modify-64K", "rows", "columns", "zipf", "phases", "journal", NULL
};

struct pattern {
	uint32_t *page;
	size_t n, room;
	uint64_t bytes;            /* of the file */
	uint64_t seed;
};

static void use(struct pattern *p, uint64_t off, uint64_t len)
{
	for (uint64_t page = off / 4096; page <= (off + len - 1) / 4096; page++) {
		if (p->n == p->room) {
			p->room = p->room ? 2 * p->room : 1 << 20;
			p->page = realloc(p->page, p->room * sizeof(*p->page));
			if (!p->page)
				die("no memory for %zu uses", p->room);
		}
		p->page[p->n++] = (uint32_t)page;
	}
}

/* Blocks that are read from their first to their last page, `times` times each. */
static void use_blocks(struct pattern *p, uint64_t block, uint64_t align, unsigned times)
{
	for (uint64_t left = p->bytes / block; left > 0; left--) {
		uint64_t places = (p->bytes - block) / align + 1;
		uint64_t off = next_random(&p->seed) % places * align;

		for (unsigned k = 0; k < times; k++)
			use(p, off, block);
	}
}

/* A part of `part` bytes of each row of an array, and then, `times` times, the part of each row
 * that is `step` bytes farther. */
static void use_strided(struct pattern *p, uint64_t row, uint64_t part, uint64_t step,
			unsigned times)
{
	for (unsigned k = 0; k < times; k++)
		for (uint64_t off = k * step % row; off < p->bytes; off += row)
			use(p, off, part);
}

/* The verification of a journal: its entries in order, the objects to which each entry refers, of
 * which a few are in most entries, and a hash table. */
static void use_journal(struct pattern *p)
{
	enum { ENTRY = 700, OBJECT = 512, OBJECTS_PER_ENTRY = 6 };
	uint64_t table = p->bytes / 8, entries = (p->bytes - table) / ENTRY;
	size_t n = entries * OBJECTS_PER_ENTRY;
	uint32_t *object = zipf_draws((uint32_t)((p->bytes - table) / OBJECT), n, 1, 1);

	for (uint64_t e = 0; e + 1 < entries; e++) {
		use(p, table + e * ENTRY, ENTRY);
		for (unsigned k = 0; k < OBJECTS_PER_ENTRY; k++)
			use(p, table + object[e * OBJECTS_PER_ENTRY + k] %
				(e * ENTRY / OBJECT + 1) * OBJECT, 300);
		use(p, next_random(&p->seed) % (table / 16) * 16, 16);
	}
	free(object);
}

uint32_t *make_pattern(const char *pattern, uint32_t pages, size_t *n)
{
	struct pattern p = { .bytes = (uint64_t)pages * 4096, .seed = 1 };
	const char *dash = strrchr(pattern, '-');
	unsigned long kib = dash ? strtoul(dash + 1, NULL, 10) : 0;

	if (!strcmp(pattern, "in-order")) {
		use(&p, 0, p.bytes);
	} else if (!strncmp(pattern, "random-", 7)) {
		use_blocks(&p, kib * KIB, kib * KIB, 1);
	} else if (!strncmp(pattern, "unaligned-", 10)) {
		use_blocks(&p, kib * KIB, 1, 1);
	} else if (!strncmp(pattern, "modify-", 7)) {
		use_blocks(&p, kib * KIB, kib * KIB, 2);
	} else if (!strcmp(pattern, "rows")) {
		use_strided(&p, 64 * KIB, KIB, KIB, 128);
	} else if (!strcmp(pattern, "columns")) {
		use_strided(&p, 32 * KIB, 8, 256, 256);
	} else if (!strcmp(pattern, "zipf")) {
		uint32_t *draws = zipf_draws(pages, 16 * (size_t)pages, 1, 1);

		for (size_t i = 0; i < 16 * (size_t)pages; i++)
			use(&p, (uint64_t)draws[i] * 4096, 1);
		free(draws);
	} else if (!strcmp(pattern, "phases")) {
		for (unsigned k = 0; k < 4; k++)
			use_blocks(&p, k % 2 ? 64 * KIB : 4 * KIB, 4 * KIB, 1);
	} else {
		use_journal(&p);
	}
	*n = p.n;
	return p.page;
}

/* ---- Memory ---- */

enum { AHEAD, RESIDENT, QUEUES, ABSENT = QUEUES };

struct memory {
	uint32_t pages, room;
	uint32_t *next, *prev;     /* rings; queue q begins at number pages + q */
	uint32_t count[QUEUES];
	uint8_t *where;            /* queue of a page, or ABSENT */
	uint64_t *arrival, clock;  /* time at which a page came */
};

static void *allocate(size_t n, size_t size)
{
	void *p = calloc(n, size);

	if (!p)
		die("no memory for %zu pages", n);
	return p;
}

static struct memory begin(uint32_t pages, uint32_t room)
{
	size_t n = (size_t)pages + QUEUES;
	struct memory m = { .pages = pages, .room = room, .next = allocate(n, 4),
		.prev = allocate(n, 4), .where = allocate(n, 1), .arrival = allocate(n, 8) };

	memset(m.where, ABSENT, n);
	for (uint32_t q = pages; q < n; q++)
		m.next[q] = m.prev[q] = q;
	return m;
}

static void end(struct memory *m)
{
	free(m->next);
	free(m->prev);
	free(m->where);
	free(m->arrival);
}

static void take(struct memory *m, uint32_t page)
{
	m->next[m->prev[page]] = m->next[page];
	m->prev[m->next[page]] = m->prev[page];
	m->count[m->where[page]]--;
	m->where[page] = ABSENT;
}

static void put(struct memory *m, uint32_t page, uint8_t queue)
{
	uint32_t ring = m->pages + queue;

	m->prev[page] = m->prev[ring];
	m->next[page] = ring;
	m->next[m->prev[ring]] = page;
	m->prev[ring] = page;
	m->where[page] = queue;
	m->count[queue]++;
	m->arrival[page] = ++m->clock;
}

static void make_room(struct memory *m)
{
	uint32_t ahead = m->next[m->pages + AHEAD], resident = m->next[m->pages + RESIDENT];
	bool first = m->count[AHEAD] &&
		     (!m->count[RESIDENT] || m->count[AHEAD] > m->room / 8 ||
		      m->arrival[ahead] < m->arrival[resident]);

	if (m->count[AHEAD] + m->count[RESIDENT] >= m->room)
		take(m, first ? ahead : resident);
}

static void finish(struct transfers *r)
{
	r->seconds = ((double)r->loads * REQUEST_NS + (double)r->pages * 4096 / BYTES_PER_NS +
		      (double)r->returns * RETURN_NS) * 1e-9;
}

/* Blocks of a fixed size come and go as a whole: they are the pages of a smaller memory. */
struct transfers play_fixed(const uint32_t *uses, size_t n, uint32_t pages, uint32_t room,
			    unsigned level)
{
	struct memory m = begin((pages >> level) + 1, room >> level ? room >> level : 1);
	struct transfers r = { 0 };

	for (size_t i = 0; i < n; i++) {
		uint32_t block = uses[i] >> level;

		if (m.where[block] != ABSENT)
			continue;
		make_room(&m);
		put(&m, block, RESIDENT);
		r.loads++;
	}
	r.pages = r.loads << level;
	finish(&r);
	end(&m);
	return r;
}

/* Makes the loaded pages of a block resident, one of which is accessed in a sampled area. */
static void return_block(struct memory *m, uint32_t page, unsigned level)
{
	uint32_t first = page >> level << level;

	for (uint32_t p = first; p < first + (1u << level) && p < m->pages; p++) {
		if (m->where[p] != AHEAD)
			continue;
		take(m, p);
		put(m, p, RESIDENT);
	}
}

/* Loads the absent pages of a block. Returns how many. */
static uint32_t load_block(struct memory *m, const struct transfer_size *t, uint32_t page,
			   bool sampled)
{
	uint32_t first = page >> t->level << t->level, n = 0;

	for (uint32_t p = first; p < first + (1u << t->level) && p < m->pages; p++) {
		if (m->where[p] != ABSENT)
			continue;
		make_room(m);
		put(m, p, sampled && p >> t->resolution != page >> t->resolution ? AHEAD :
									  RESIDENT);
		n++;
	}
	if (m->where[page] == ABSENT)
		put(m, page, RESIDENT);
	return n;
}

struct transfers play_adaptive(const uint32_t *uses, size_t n, uint32_t pages, uint32_t room)
{
	uint32_t *stamps = allocate(transfer_stamps_len(pages, 12), 1);
	struct memory m = begin(pages, room);
	struct transfers r = { 0 };
	struct transfer_size t;

	transfer_begin(&t, stamps, pages, 12, room);
	for (size_t i = 0; i < n; i++) {
		bool sampled = transfer_is_sampled(&t, uses[i]);

		if (m.where[uses[i]] == RESIDENT)
			continue;
		if (sampled)
			transfer_touch(&t, uses[i]);
		if (m.where[uses[i]] == AHEAD) {
			return_block(&m, uses[i], t.resolution);
			transfer_count_return(&t);
			r.returns++;
		} else {
			uint32_t loaded = load_block(&m, &t, uses[i], sampled);

			transfer_count_load(&t, loaded);
			r.loads++;
			r.pages += loaded;
		}
	}
	finish(&r);
	end(&m);
	free(stamps);
	return r;
}
