/* SPDX-License-Identifier: BSD-3-Clause */
#include "object/chunk.h"

#include "object/error.h"
#include "object/id.h"
#include "object/shape.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

static const char magic[8] = "UMOBJ\r\n\1";

/* At the beginning of a chunk, in the order of the processor's bytes, as all native types of HDF5 are. */
struct head {
	char magic[8];
	struct umobject_id id;
	uint64_t number, size, data;
	uint32_t block, blocks;
	uint64_t sum;    /* of the head, with 0 here, and of the sums */
	uint64_t sums[]; /* of each block */
};

/* So much of a chunk is read at once where it is read in order. */
#define WINDOW ((size_t)8 * CHUNK_BLOCK)

static uint64_t blocks_of(uint64_t size)
{
	return (size + CHUNK_BLOCK - 1) / CHUNK_BLOCK;
}

static size_t head_size(uint64_t size)
{
	return sizeof(struct head) + blocks_of(size) * sizeof(uint64_t);
}

/* HDF5 looks for its own head at 0, 512, 1024, 2048 and so on. */
static size_t skip_of(uint64_t size)
{
	size_t skip = 512;

	while (skip < head_size(size))
		skip *= 2;
	return skip;
}

static size_t block_length(uint64_t size, uint64_t block)
{
	return size - block * CHUNK_BLOCK < CHUNK_BLOCK ? (size_t)(size - block * CHUNK_BLOCK) : CHUNK_BLOCK;
}

static uint64_t head_sum(const struct head *head)
{
	struct head copy = *head;

	copy.sum = 0;
	return XXH3_64bits_withSeed(head->sums, head->blocks * sizeof(uint64_t), XXH3_64bits(&copy, sizeof(copy)));
}

/* ---- To be written ---- */

static int fit_frame(struct chunk_writer *w, const struct umobject_shape *shape, const uint64_t *count, uint64_t size)
{
	if (w->ready && memcmp(w->count, count, shape->rank * sizeof(*count)) == 0)
		return 0;
	frame_free(&w->frame);
	w->ready = false;
	if (frame_make(shape, count, skip_of(size), &w->frame) < 0)
		return -1;
	memcpy(w->count, count, shape->rank * sizeof(*count));
	w->ready = true;
	return 0;
}

int chunk_prepare(struct chunk_writer *w, const struct umobject_shape *shape, const struct umobject_id *id, uint64_t number,
		  const void *data, struct iovec iov[3])
{
	uint64_t start[UMOBJECT_RANK_MAX], count[UMOBJECT_RANK_MAX], i;
	uint64_t size = umobject_chunk(shape, number, start, count) * umobject_type_size(shape->type);
	struct head *head;

	if (fit_frame(w, shape, count, size) < 0)
		return -1;
	head = w->frame.front;
	*head = (struct head){ .id = *id, .number = number, .size = size, .data = w->frame.front_size, .block = CHUNK_BLOCK,
			       .blocks = (uint32_t)blocks_of(size) };
	memcpy(head->magic, magic, sizeof(magic));
	for (i = 0; i < head->blocks; i++)
		head->sums[i] = XXH3_64bits((const char *)data + i * CHUNK_BLOCK, block_length(size, i));
	head->sum = head_sum(head);
	iov[0] = (struct iovec){ w->frame.front, w->frame.front_size };
	iov[1] = (struct iovec){ (void *)(uintptr_t)data, size };
	iov[2] = (struct iovec){ w->frame.back, w->frame.back_size };
	return 0;
}

void chunk_writer_free(struct chunk_writer *w)
{
	frame_free(&w->frame);
	w->ready = false;
}

/* ---- To be read ---- */

static int damaged(const struct umobject_id *id, uint64_t number, const char *what)
{
	char text[ID_TEXT];

	id_text(id, text);
	return object_fail(EBADMSG, "chunk %llu of version '%s' is damaged: %s",
			   (unsigned long long)number, text, what);
}

static int read_head(struct chunk *c)
{
	size_t size = head_size(c->size);
	struct head *head = malloc(size);
	int result;

	if (!head)
		return object_fail(ENOMEM, "cannot read the header of chunk %llu: no memory",
				   (unsigned long long)c->number);
	result = c->stored->ops->read(c->stored, head, size, 0);
	if (result == 0 && (memcmp(head->magic, magic, sizeof(magic)) != 0 || head->size != c->size || head->block != CHUNK_BLOCK ||
			    head->blocks != blocks_of(c->size) || head->sum != head_sum(head)))
		result = damaged(&c->id, c->number, "its header is damaged, or of another size");
	if (result == 0 && (!id_same(&head->id, &c->id) || head->number != c->number))
		result = damaged(&c->id, c->number, "its file has another chunk");
	if (result == 0) {
		c->data = head->data;
		memcpy(c->sums, head->sums, head->blocks * sizeof(uint64_t));
	}
	free(head);
	return result;
}

int chunk_open(struct backend *b, const struct umobject_id *id, uint64_t number, uint64_t size, struct chunk **chunk)
{
	struct chunk *c = calloc(1, sizeof(*c));

	if (!c || !(c->sums = malloc(blocks_of(size) * sizeof(uint64_t)))) {
		free(c);
		return object_fail(ENOMEM, "cannot open chunk %llu: no memory",
				   (unsigned long long)number);
	}
	c->id = *id;
	c->number = number;
	c->size = size;
	if (b->ops->chunk_open(b, id, number, &c->stored) < 0 || read_head(c) < 0) {
		chunk_close(c);
		return -1;
	}
	*chunk = c;
	return 0;
}

void chunk_close(struct chunk *c)
{
	if (c->stored)
		c->stored->ops->close(c->stored);
	free(c->sums);
	free(c->window);
	free(c);
}

/* Whole blocks, checked. */
static int read_blocks(struct chunk *c, char *to, uint64_t first, size_t size)
{
	size_t done = 0;

	if (c->stored->ops->read(c->stored, to, size, c->data + first * CHUNK_BLOCK) < 0)
		return -1;
	while (done < size) {
		size_t len = block_length(c->size, first);

		if (XXH3_64bits(to + done, len) != c->sums[first])
			return damaged(&c->id, c->number, "the checksum of its data is wrong");
		done += len;
		first++;
	}
	return 0;
}

/* The window has the byte at `at`, and what of `size` bytes from there on it can have. */
static int move_window(struct chunk *c, uint64_t at, uint64_t size)
{
	uint64_t first = at / CHUNK_BLOCK, start = first * CHUNK_BLOCK;
	size_t len = size + (at - start) > WINDOW ? WINDOW : (size_t)(blocks_of(size + (at - start)) * CHUNK_BLOCK);

	if (c->window_size && at >= c->window_at && at < c->window_at + c->window_size)
		return 0;
	if (!c->window && !(c->window = malloc(WINDOW)))
		return object_fail(ENOMEM, "cannot read chunk %llu: no memory",
				   (unsigned long long)c->number);
	if (len > c->size - start)
		len = (size_t)(c->size - start);
	c->window_size = 0;
	if (read_blocks(c, c->window, first, len) < 0)
		return -1;
	c->window_at = start;
	c->window_size = len;
	return 0;
}

/* How much, from a block's beginning on, goes to the reader's memory at once; 0: it has to go by the window. */
static size_t whole_blocks(const struct chunk *c, uint64_t at, size_t size)
{
	if (at % CHUNK_BLOCK)
		return 0;
	if (size > WINDOW)
		return WINDOW;
	return at + size == c->size ? size : size / CHUNK_BLOCK * CHUNK_BLOCK;
}

int chunk_read(struct chunk *c, void *to, size_t size, uint64_t at, uint64_t more)
{
	char *p = to;

	while (size) {
		size_t len = whole_blocks(c, at, size);

		if (len) {
			if (read_blocks(c, p, at / CHUNK_BLOCK, len) < 0)
				return -1;
		} else {
			if (move_window(c, at, size + more) < 0)
				return -1;
			len = (size_t)(c->window_at + c->window_size - at);
			len = len < size ? len : size;
			memcpy(p, c->window + (at - c->window_at), len);
		}
		p += len;
		at += len;
		size -= len;
	}
	return 0;
}
