/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Drafts: bytes of an array that are changed in place, over a version that stays as it is. What is written goes to a file without
 * a name, block by block; chunks with such blocks are put when the program asks for it. Blocks that were put are put again by the same
 * put only if they were written again, and all of them by the next one.
 */
#include "common/memory_calls.h"
#include "object/container.h"
#include "object/error.h"
#include "object/shape.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <ummap-object.h>

/* What is written is kept in blocks of so many bytes. */
#define BLOCK 4096
/* Bits for arrays whose size is not known yet; none of this is used before it is needed. */
#define BLOCKS_GROWING ((uint64_t)1 << 32)

struct umobject_draft {
	umobject_version *base;        /* NULL: zeros */
	struct umobject_shape shape;
	int file;                      /* -1: nothing has been written */
	uint8_t *written, *fresh;      /* a bit for each block of it; those that the last put has not */
	uint64_t nblocks;
	struct umobject_id last;       /* of that put */
	bool growing;
};

static uint64_t size_of(const umobject_draft *d)
{
	return shape_bytes(&d->shape);
}

/* ---- Bits ---- */

static bool has(const uint8_t *bits, uint64_t n, uint64_t i)
{
	return bits && i < n && bits[i / 8] & 1 << i % 8;
}

static bool is_written(const umobject_draft *d, uint64_t block)
{
	return has(d->written, d->nblocks, block);
}

static void note(umobject_draft *d, uint64_t block)
{
	d->written[block / 8] |= (uint8_t)(1 << block % 8);
	d->fresh[block / 8] |= (uint8_t)(1 << block % 8);
}

static uint8_t *map_bits(uint64_t n)
{
	void *bits = mmap(NULL, n / 8 + 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return bits == MAP_FAILED ? NULL : bits;
}

static void drop(umobject_draft *d)
{
	if (d->file >= 0)
		close(d->file);
	if (d->written)
		raw_munmap(d->written, d->nblocks / 8 + 1);
	if (d->fresh)
		raw_munmap(d->fresh, d->nblocks / 8 + 1);
	d->file = -1;
	d->written = d->fresh = NULL;
}

/* Room for all blocks: none of it is taken before it is used. */
static int prepare(umobject_draft *d)
{
	const char *folder = getenv("TMPDIR");

	if (d->file >= 0)
		return 0;
	folder = folder && *folder ? folder : "/var/tmp";
	d->nblocks = d->growing ? BLOCKS_GROWING : size_of(d) / BLOCK + 1;
	d->written = map_bits(d->nblocks);
	d->fresh = map_bits(d->nblocks);
	d->file = d->written && d->fresh ? open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600) : -1;
	if (d->file >= 0)
		return 0;
	object_fail(errno, "cannot create a temporary file for changes of an object in '%s': %s. "
		    "Try another folder in TMPDIR", folder, strerror(errno));
	drop(d);
	return -1;
}

/* ---- Bytes ---- */

static int transfer(const umobject_draft *d, bool write, char *p, size_t len, uint64_t off)
{
	while (len) {
		ssize_t n = write ? pwrite(d->file, p, len, (off_t)off) : pread(d->file, p, len, (off_t)off);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return object_fail(errno, "cannot access the temporary file with the "
					   "changes of an object: %s", strerror(errno));
		if (n == 0) {
			memset(p, 0, len);
			return 0;
		}
		p += n;
		off += (uint64_t)n;
		len -= (size_t)n;
	}
	return 0;
}

static int read_base(const umobject_draft *d, void *buf, size_t len, uint64_t off)
{
	if (d->base)
		return umobject_read_bytes(d->base, buf, len, off);
	memset(buf, 0, len);
	return 0;
}

/* Blocks that are in the same place go together. */
int umobject_draft_read(umobject_draft *d, void *buf, size_t len, uint64_t off)
{
	char *to = buf;

	while (len) {
		bool written = is_written(d, off / BLOCK);
		uint64_t end = off / BLOCK + 1;
		size_t n;

		while (end * BLOCK < off + len && is_written(d, end) == written)
			end++;
		n = end * BLOCK - off < len ? (size_t)(end * BLOCK - off) : len;
		if ((written ? transfer(d, false, to, n, off) : read_base(d, to, n, off)) < 0)
			return -1;
		to += n;
		off += n;
		len -= n;
	}
	return 0;
}

/* A block of which only a part is written has the rest of what was there. */
static int fill_block(umobject_draft *d, uint64_t block)
{
	char bytes[BLOCK];

	if (is_written(d, block))
		return 0;
	if (read_base(d, bytes, BLOCK, block * BLOCK) < 0 || transfer(d, true, bytes, BLOCK, block * BLOCK) < 0)
		return -1;
	note(d, block);
	return 0;
}

int umobject_draft_write(umobject_draft *d, const void *buf, size_t len, uint64_t off)
{
	uint64_t end = off + len;

	if (len == 0)
		return 0;
	if (prepare(d) < 0)
		return -1;
	if ((!d->growing && end > size_of(d)) || end < off || (end - 1) / BLOCK >= d->nblocks)
		return object_fail(EFBIG, "cannot write bytes %llu to %llu: they are behind the "
				   "end of the array", (unsigned long long)off,
				   (unsigned long long)end - 1);
	if ((off % BLOCK && fill_block(d, off / BLOCK) < 0) || (end % BLOCK && fill_block(d, end / BLOCK) < 0) ||
	    transfer(d, true, (char *)(uintptr_t)buf, len, off) < 0)
		return -1;
	for (uint64_t block = off / BLOCK; block * BLOCK < end; block++)
		note(d, block);
	return 0;
}

/* ---- Chunks ---- */

/* A row of a chunk is bytes that stand together in the array as well. */
struct rows {
	uint64_t start[UMOBJECT_RANK_MAX], count[UMOBJECT_RANK_MAX], at[UMOBJECT_RANK_MAX], bytes;
};

static uint64_t row_offset(const struct umobject_shape *shape, const struct rows *r)
{
	uint64_t off = 0;

	for (unsigned i = 0; i < shape->rank; i++)
		off = off * shape->dims[i] + r->start[i] + r->at[i];
	return off * umobject_type_size(shape->type);
}

static bool next_row(const struct umobject_shape *shape, struct rows *r)
{
	for (unsigned i = shape->rank - 1; i-- > 0;) {
		if (++r->at[i] < r->count[i])
			return true;
		r->at[i] = 0;
	}
	return false;
}

static void first_row(const struct umobject_shape *shape, uint64_t number, struct rows *r, uint64_t *bytes)
{
	*r = (struct rows){ .at = { 0 } };
	*bytes = umobject_chunk(shape, number, r->start, r->count) * umobject_type_size(shape->type);
	r->bytes = shape->rank ? r->count[shape->rank - 1] * umobject_type_size(shape->type) : *bytes;
}

/* Whether a block of it is fresh; with `forget`, none is any more. */
static bool visit(umobject_draft *d, uint64_t number, bool forget)
{
	bool any = false;
	uint64_t bytes;
	struct rows r;

	first_row(&d->shape, number, &r, &bytes);
	do {
		uint64_t off = row_offset(&d->shape, &r), end = off + r.bytes;

		for (uint64_t block = off / BLOCK; block * BLOCK < end && (forget || !any); block++) {
			any = any || has(d->fresh, d->nblocks, block);
			if (forget)
				d->fresh[block / 8] &= (uint8_t)~(1 << block % 8);
		}
	} while ((forget || !any) && d->shape.rank > 1 && next_row(&d->shape, &r));
	return any;
}

/* Whether the new version has the same in this chunk already, of the old one: what is written comes in segments, of which most has
 * not changed. One that was put stays as that was, unless it is put again. */
static bool is_unchanged(const umobject_draft *d, const umobject_put *put, uint64_t number, const struct rows *r, const char *data,
			 char *old, uint64_t bytes)
{
	return d->base && put_has_chunk_of(put, d->base, number) && umobject_read(d->base, r->start, r->count, old) == 0 &&
	       memcmp(old, data, bytes) == 0;
}

static int put_chunk(umobject_draft *d, umobject_put *put, uint64_t number)
{
	uint64_t bytes;
	struct rows r;
	char *data, *to;
	int result = 0;

	first_row(&d->shape, number, &r, &bytes);
	to = data = malloc(2 * bytes);
	if (!data)
		return object_fail(ENOMEM, "cannot put chunk %llu: no memory for %llu bytes",
				   (unsigned long long)number, 2 * (unsigned long long)bytes);
	do {
		result = umobject_draft_read(d, to, (size_t)r.bytes, row_offset(&d->shape, &r));
		to += r.bytes;
	} while (result == 0 && d->shape.rank > 1 && next_row(&d->shape, &r));
	if (result == 0 && !is_unchanged(d, put, number, &r, data, data + bytes, bytes))
		result = umobject_put_chunk(put, number, data);
	free(data);
	return result;
}

/* Chunks of another shape would be read as if they were of this one. */
static bool has_shape(const umobject_draft *d, const struct umobject_shape *theirs)
{
	struct umobject_shape mine;

	return shape_complete(&d->shape, &mine) == 0 && memcmp(&mine, theirs, sizeof(mine)) == 0;
}

int umobject_draft_put(umobject_draft *d, umobject_put *put, uint64_t first, uint64_t count)
{
	uint64_t chunks = umobject_chunks(&d->shape), end = count > UINT64_MAX - first ? UINT64_MAX : first + count;
	struct umobject_shape shape;

	umobject_put_shape(put, &shape);
	if (!has_shape(d, &shape))
		return object_fail(EINVAL, "cannot put the draft: its shape differs from the shape "
				   "of the put");
	if (d->file < 0)
		return 0;
	if (memcmp(&d->last, put_id(put), sizeof(d->last)) != 0)
		memcpy(d->fresh, d->written, size_of(d) / BLOCK / 8 + 1);
	d->last = *put_id(put);
	end = chunks < end ? chunks : end;
	for (uint64_t number = first; number < end; number++) {
		if (visit(d, number, false) && put_chunk(d, put, number) < 0)
			return -1;
	}
	/* Not before: a block may lie in several chunks. */
	for (uint64_t number = first; number < end; number++)
		visit(d, number, true);
	return 0;
}

/* ---- Drafts ---- */

int umobject_draft_begin(umobject_version *base, const struct umobject_shape *shape, umobject_draft **draft)
{
	umobject_draft *d = calloc(1, sizeof(*d));

	*draft = NULL;
	if (!d)
		return object_fail(ENOMEM, "cannot begin a draft: no memory");
	d->base = base;
	d->shape = *shape;
	d->file = -1;
	d->growing = shape->rank == 1 && shape->dims[0] == 0;
	if (base && !has_shape(d, &base->object->shape)) {
		free(d);
		return object_fail(EINVAL, "cannot begin the draft: its shape differs from the "
				   "shape of the version");
	}
	*draft = d;
	return 0;
}

int umobject_draft_is_written(const umobject_draft *d)
{
	return d->file >= 0;
}

void umobject_draft_reshape(umobject_draft *d, const struct umobject_shape *shape)
{
	d->shape = *shape;
}

static bool is_any_fresh(const umobject_draft *d, uint64_t bytes)
{
	uint64_t i = 0;

	while (d->fresh && i < bytes && !d->fresh[i])
		i++;
	return d->fresh && i < bytes;
}

void umobject_draft_rebase(umobject_draft *d, umobject_version *base)
{
	uint64_t bytes = size_of(d) / BLOCK / 8 + 1;

	if (is_any_fresh(d, bytes))
		memcpy(d->written, d->fresh, bytes);
	else
		drop(d);
	d->base = base;
	d->growing = false;
}

void umobject_draft_end(umobject_draft *d)
{
	if (d)
		drop(d);
	free(d);
}
