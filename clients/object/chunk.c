/* SPDX-License-Identifier: BSD-3-Clause */
#include "object/chunk.h"

#include "object/error.h"
#include "object/id.h"
#include "object/shape.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

static const char magic[8] = "UMOBJ\r\n\1";

/* The beginning of a stored chunk, in the byte order of the processor, as all native types of
 * HDF5. */
struct chunk_header {
	char magic[8];
	struct umobject_id id;
	uint64_t number, size, data;
	uint32_t block, blocks; /* bytes of a block, number of blocks */
	uint64_t sum;           /* checksum of the header, with 0 here, and of the sums */
	uint64_t sums[];        /* checksum of each block */
};

/* Bytes that are read at once if a chunk is read in order. */
#define WINDOW_BYTES ((size_t)8 * CHUNK_BLOCK)

static uint64_t blocks_of(uint64_t size)
{
	return (size + CHUNK_BLOCK - 1) / CHUNK_BLOCK;
}

static size_t header_size(uint64_t size)
{
	return sizeof(struct chunk_header) + blocks_of(size) * sizeof(uint64_t);
}

/* Bytes of the user block: HDF5 looks for its own header at 0, 512, 1024, 2048 and so on. */
static size_t user_block_size(uint64_t size)
{
	size_t bytes = 512;

	while (bytes < header_size(size))
		bytes *= 2;
	return bytes;
}

static size_t block_length(uint64_t size, uint64_t block)
{
	return min_size(size - block * CHUNK_BLOCK, CHUNK_BLOCK);
}

static uint64_t header_sum(const struct chunk_header *header)
{
	struct chunk_header copy = *header;

	copy.sum = 0;
	return XXH3_64bits_withSeed(header->sums, header->blocks * sizeof(uint64_t),
				    XXH3_64bits(&copy, sizeof(copy)));
}

/* ---- Writing ---- */

int chunk_prepare(struct chunk_writer *w, const struct umobject_shape *shape,
		  const struct umobject_id *id, uint64_t number, const void *data,
		  struct iovec iov[CHUNK_PIECES])
{
	struct box box = shape_chunk(shape, number);
	uint64_t size = box_bytes(shape, &box);
	size_t length = header_size(size);
	struct chunk_header *header = realloc(w->header, length);

	if (!header)
		return fail_no_memory("put a chunk");
	w->header = header;
	w->frame = frame_fit(w->frame, shape, box.count, user_block_size(size));
	if (!w->frame)
		return -1;
	*header = (struct chunk_header){ .id = *id, .number = number, .size = size,
					 .data = w->frame->front_size, .block = CHUNK_BLOCK,
					 .blocks = (uint32_t)blocks_of(size) };
	memcpy(header->magic, magic, sizeof(magic));
	for (uint64_t i = 0; i < header->blocks; i++)
		header->sums[i] = XXH3_64bits((const char *)data + i * CHUNK_BLOCK,
					      block_length(size, i));
	header->sum = header_sum(header);
	iov[0] = (struct iovec){ header, length };
	iov[1] = (struct iovec){ w->frame->front + length, w->frame->front_size - length };
	iov[2] = (struct iovec){ (void *)(uintptr_t)data, size };
	iov[3] = (struct iovec){ w->frame->back, w->frame->back_size };
	return 0;
}

void chunk_writer_free(struct chunk_writer *w)
{
	frame_release(w->frame);
	free(w->header);
}

/* ---- Reading ---- */

static int fail_damaged(const struct chunk *c, const char *reason)
{
	char text[ID_TEXT];

	id_text(&c->id, text);
	return object_fail(EBADMSG, "chunk %" PRIu64 " of version '%s' is damaged: %s", c->number,
			   text, reason);
}

static int read_header(struct chunk *c)
{
	struct chunk_header *header = malloc(header_size(c->size));
	int result;

	if (!header)
		return fail_no_memory("read the header of a chunk");
	result = c->stored->ops->read(c->stored, header, header_size(c->size), 0);
	if (result == 0 && (memcmp(header->magic, magic, sizeof(magic)) != 0 ||
			    header->size != c->size || header->block != CHUNK_BLOCK ||
			    header->blocks != blocks_of(c->size) ||
			    header->sum != header_sum(header)))
		result = fail_damaged(c, "its header is damaged, or of another size");
	if (result == 0 && (!id_same(&header->id, &c->id) || header->number != c->number))
		result = fail_damaged(c, "its file has another chunk");
	if (result == 0) {
		c->data = header->data;
		memcpy(c->sums, header->sums, header->blocks * sizeof(uint64_t));
	}
	free(header);
	return result;
}

struct chunk *chunk_open(struct backend *b, const struct umobject_id *id, uint64_t number,
			 uint64_t size)
{
	struct chunk *c = calloc(1, sizeof(*c));

	if (!c || !(c->sums = malloc(blocks_of(size) * sizeof(uint64_t)))) {
		free(c);
		fail_no_memory("open a chunk");
		return NULL;
	}
	c->id = *id;
	c->number = number;
	c->size = size;
	c->stored = b->ops->chunks->open(b, id, number);
	if (c->stored && read_header(c) == 0)
		return c;
	chunk_close(c);
	return NULL;
}

void chunk_close(struct chunk *c)
{
	int error = errno;

	if (c->stored)
		c->stored->ops->close(c->stored);
	free(c->sums);
	free(c->window);
	free(c);
	errno = error;
}

/* Reads and checks whole blocks. */
static int read_blocks(struct chunk *c, char *to, uint64_t first, size_t size)
{
	size_t done = 0;

	if (c->stored->ops->read(c->stored, to, size, c->data + first * CHUNK_BLOCK) < 0)
		return -1;
	for (; done < size; first++) {
		size_t len = block_length(c->size, first);

		if (XXH3_64bits(to + done, len) != c->sums[first])
			return fail_damaged(c, "the checksum of its data is wrong");
		done += len;
	}
	return 0;
}

/* Lets the window contain the byte at `at`, and as many of the `size` bytes from there as fit. */
static int move_window(struct chunk *c, uint64_t at, uint64_t size)
{
	uint64_t start = at / CHUNK_BLOCK * CHUNK_BLOCK, end = at + size;
	size_t len = end - start > WINDOW_BYTES ? WINDOW_BYTES :
		blocks_of(end - start) * CHUNK_BLOCK;

	if (c->window_size && at >= c->window_at && at < c->window_at + c->window_size)
		return 0;
	if (!c->window && !(c->window = malloc(WINDOW_BYTES)))
		return fail_no_memory("read a chunk");
	len = min_size(len, c->size - start);
	c->window_size = 0;
	if (read_blocks(c, c->window, start / CHUNK_BLOCK, len) < 0)
		return -1;
	c->window_at = start;
	c->window_size = len;
	return 0;
}

/* Bytes from `at` on that can be read to the caller's memory; 0: they must go through the
 * window. */
static size_t direct_length(const struct chunk *c, uint64_t at, size_t size)
{
	if (at % CHUNK_BLOCK)
		return 0;
	if (size > WINDOW_BYTES)
		return WINDOW_BYTES;
	return at + size == c->size ? size : size / CHUNK_BLOCK * CHUNK_BLOCK;
}

int chunk_read(struct chunk *c, void *to, size_t size, uint64_t at, uint64_t more)
{
	char *p = to;

	while (size) {
		size_t len = direct_length(c, at, size);

		if (len) {
			if (read_blocks(c, p, at / CHUNK_BLOCK, len) < 0)
				return -1;
		} else {
			if (move_window(c, at, size + more) < 0)
				return -1;
			len = min_size(size, c->window_at + c->window_size - at);
			memcpy(p, c->window + (at - c->window_at), len);
		}
		p += len;
		at += len;
		size -= len;
	}
	return 0;
}
