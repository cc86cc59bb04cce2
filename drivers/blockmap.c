/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A tree of nodes of 512 words, like a page table: six levels of nine bits, which is enough for the
 * blocks of a store of 2^63 bytes. Nodes are parts of chunks from mmap(2), because malloc must not
 * be called in signal handlers. They stay until the map ends, so a reader can use any that it has
 * found.
 */
#include "blockmap.h"

#include "common/memory_calls.h"
#include "common/futex.h"

#include <errno.h>
#include <sys/mman.h>

#define BITS 9
#define WIDTH (1u << BITS)
#define LEVELS 6
#define CHUNK_NODES 64

/* Inner nodes have pointers, those of the last level places. */
struct blockmap_node {
	_Atomic uint64_t word[WIDTH];
};

struct blockmap_chunk {
	struct blockmap_chunk *next;
	unsigned used;
	struct blockmap_node nodes[CHUNK_NODES] __attribute__((aligned(4096)));
};

static unsigned index_at(uint64_t block, unsigned level)
{
	return (unsigned)(block >> level * BITS) & (WIDTH - 1);
}

/* Returns a node of zeros, or NULL: there is no memory. The caller holds the lock. */
static struct blockmap_node *make_node(struct blockmap *m)
{
	struct blockmap_chunk *c = m->chunks;

	if (!c || c->used == CHUNK_NODES) {
		void *at = raw_mmap(NULL, sizeof(*c), PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (at == MAP_FAILED)
			return NULL;
		c = at;
		c->next = m->chunks;
		m->chunks = c;
	}
	return &c->nodes[c->used++];
}

/* The node of a level that has this block; NULL: it does not exist. */
static struct blockmap_node *find(struct blockmap *m, uint64_t block, unsigned level)
{
	struct blockmap_node *node = m->root;

	for (unsigned l = LEVELS - 1; node && l > level; l--)
		node = (struct blockmap_node *)(uintptr_t)node->word[index_at(block, l)];
	return node;
}

/* Finds the leaf of a block, and makes missing nodes. The caller holds the lock. */
static struct blockmap_node *make_leaf(struct blockmap *m, uint64_t block)
{
	struct blockmap_node *node = m->root;

	if (!node)
		m->root = node = make_node(m);
	for (unsigned l = LEVELS - 1; node && l > 0; l--) {
		_Atomic uint64_t *word = &node->word[index_at(block, l)];

		node = (struct blockmap_node *)(uintptr_t)*word;
		if (!node) {
			node = make_node(m);
			*word = (uintptr_t)node;
		}
	}
	return node;
}

int blockmap_reserve(struct blockmap *m, uint64_t first, uint64_t n)
{
	uint64_t end = first + n;
	int err = 0;

	for (uint64_t at = first; at < end && !err; at = (at | (WIDTH - 1)) + 1) {
		if (find(m, at, 0))
			continue;
		futex_lock(&m->lock);
		err = make_leaf(m, at) ? 0 : -ENOMEM;
		futex_unlock(&m->lock);
	}
	return err;
}

uint64_t blockmap_get(struct blockmap *m, uint64_t block)
{
	struct blockmap_node *leaf = find(m, block, 0);

	return leaf ? leaf->word[index_at(block, 0)] : 0;
}

void blockmap_set(struct blockmap *m, uint64_t block, uint64_t value)
{
	_Atomic uint64_t *word = &find(m, block, 0)->word[index_at(block, 0)];
	uint64_t before = atomic_exchange(word, value);

	if (!before && value)
		m->count++;
	else if (before && !value)
		m->count--;
}

bool blockmap_drop(struct blockmap *m, uint64_t block, uint64_t value)
{
	struct blockmap_node *leaf = find(m, block, 0);
	bool was = leaf && atomic_compare_exchange_strong(&leaf->word[index_at(block, 0)], &value,
							  0);

	m->count -= was;
	return was;
}

uint64_t blockmap_run(struct blockmap *m, uint64_t first, uint64_t n, uint64_t step,
		      uint64_t *value)
{
	struct blockmap_node *leaf = find(m, first, 0);
	uint64_t k = 1, word;

	*value = leaf ? leaf->word[index_at(first, 0)] : 0;
	while (k < n) {
		if (index_at(first + k, 0) == 0)
			leaf = find(m, first + k, 0);
		if (!leaf && !*value) {
			uint64_t rest = WIDTH - index_at(first + k, 0);

			k += rest < n - k ? rest : n - k;
			continue;
		}
		word = leaf ? leaf->word[index_at(first + k, 0)] : 0;
		if (word != (*value ? *value + k * step : 0))
			break;
		k++;
	}
	return k;
}

bool blockmap_next(struct blockmap *m, uint64_t *block, uint64_t *value)
{
	uint64_t at = *block;
	unsigned level = 0;

	while (at >> LEVELS * BITS == 0) {
		struct blockmap_node *node = find(m, at, level);
		unsigned i = index_at(at, level);

		while (node && i < WIDTH && !node->word[i])
			i++;
		if (!node || i == WIDTH) {
			/* The node has no further entry: go on with the next node. */
			if (++level == LEVELS)
				return false;
			at = ((at >> level * BITS) + 1) << level * BITS;
			continue;
		}
		/* The first block below the word, or the block asked for if that is below it. */
		if (i != index_at(at, level))
			at = ((at >> (level + 1) * BITS << BITS) + i) << level * BITS;
		if (level == 0) {
			*block = at;
			*value = node->word[i];
			if (*value)
				return true;
			continue;
		}
		level--;
	}
	return false;
}

void blockmap_free(struct blockmap *m)
{
	while (m->chunks) {
		struct blockmap_chunk *c = m->chunks;

		m->chunks = c->next;
		raw_munmap(c, sizeof(*c));
	}
	m->root = NULL;
	m->count = 0;
}
