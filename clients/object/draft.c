/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Drafts: arrays whose bytes are changed in place, over a version that stays as it is. Writes go to
 * a file without a name, in blocks. Chunks with written blocks are put when the program asks for
 * it. A put takes blocks that it has put already only if they were written again; the next put
 * takes all of them.
 */
#include "common/memory_calls.h"
#include "object/container.h"
#include "object/error.h"
#include "object/shape.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <ummap-object.h>

/* Bytes of a block. */
#define BLOCK 4096
/* Number of blocks of an array whose size is not known yet. The system gives memory for their bits
 * when they are used. */
#define MAX_GROWING_BLOCKS ((uint64_t)1 << 32)

struct umobject_draft {
	umobject_version *base;        /* NULL: zeros */
	struct umobject_shape shape;
	int file;                      /* -1: nothing has been written */
	uint8_t *written;              /* a bit for each block: whether the file has it */
	uint8_t *fresh;                /* a bit for each block: whether the last put lacks it */
	uint64_t nblocks;
	struct umobject_id last;       /* version of the last put */
	bool is_growing;               /* whether its size is not known yet */
};

/* ---- Bits ---- */

static bool has_bit(const uint8_t *bits, uint64_t n, uint64_t i)
{
	return bits && i < n && bits[i / 8] & 1 << i % 8;
}

static bool is_written(const umobject_draft *d, uint64_t block)
{
	return has_bit(d->written, d->nblocks, block);
}

static void mark_written(umobject_draft *d, uint64_t block)
{
	d->written[block / 8] |= (uint8_t)(1 << block % 8);
	d->fresh[block / 8] |= (uint8_t)(1 << block % 8);
}

static uint8_t *map_bits(uint64_t n)
{
	void *bits = mmap(NULL, n / 8 + 1, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return bits == MAP_FAILED ? NULL : bits;
}

static void drop_changes(umobject_draft *d)
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

static int create_file(umobject_draft *d)
{
	const char *folder = getenv("TMPDIR");

	if (d->file >= 0)
		return 0;
	folder = folder && *folder ? folder : "/var/tmp";
	d->nblocks = d->is_growing ? MAX_GROWING_BLOCKS : shape_bytes(&d->shape) / BLOCK + 1;
	d->written = map_bits(d->nblocks);
	d->fresh = map_bits(d->nblocks);
	d->file = d->written && d->fresh ? open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600) : -1;
	if (d->file >= 0)
		return 0;
	object_fail(errno, "cannot create a temporary file for changes of an object in '%s': %m. "
		    "Try another folder in TMPDIR", folder);
	drop_changes(d);
	return -1;
}

/* ---- Bytes ---- */

static int transfer(const umobject_draft *d, bool write, char *p, size_t len, uint64_t off)
{
	while (len) {
		ssize_t n = write ? pwrite(d->file, p, len, (off_t)off) :
			pread(d->file, p, len, (off_t)off);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return object_fail(errno, "cannot access the temporary file with the "
					   "changes of an object: %m");
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

int umobject_draft_read(umobject_draft *d, void *buf, size_t len, uint64_t off)
{
	char *to = buf;

	while (len) {
		bool written = is_written(d, off / BLOCK);
		uint64_t end = off / BLOCK + 1;
		size_t n;

		while (end * BLOCK < off + len && is_written(d, end) == written)
			end++;
		n = min_size(end * BLOCK - off, len);
		if ((written ? transfer(d, false, to, n, off) : read_base(d, to, n, off)) < 0)
			return -1;
		to += n;
		off += n;
		len -= n;
	}
	return 0;
}

/* Copies a block of the base, before a part of the block is written. */
static int fill_block(umobject_draft *d, uint64_t block)
{
	char bytes[BLOCK];

	if (is_written(d, block))
		return 0;
	if (read_base(d, bytes, BLOCK, block * BLOCK) < 0 ||
	    transfer(d, true, bytes, BLOCK, block * BLOCK) < 0)
		return -1;
	mark_written(d, block);
	return 0;
}

int umobject_draft_write(umobject_draft *d, const void *buf, size_t len, uint64_t off)
{
	uint64_t end = off + len;

	if (len == 0)
		return 0;
	if (create_file(d) < 0)
		return -1;
	if ((!d->is_growing && end > shape_bytes(&d->shape)) || end < off ||
	    (end - 1) / BLOCK >= d->nblocks)
		return object_fail(EFBIG, "cannot write bytes %" PRIu64 " to %" PRIu64 ": they are "
				   "behind the end of the array", off, end - 1);
	if ((off % BLOCK && fill_block(d, off / BLOCK) < 0) ||
	    (end % BLOCK && fill_block(d, end / BLOCK) < 0) ||
	    transfer(d, true, (char *)(uintptr_t)buf, len, off) < 0)
		return -1;
	for (uint64_t block = off / BLOCK; block * BLOCK < end; block++)
		mark_written(d, block);
	return 0;
}

/* ---- Chunks ---- */

/* The rows of a chunk. A row is contiguous in the array as well. */
struct rows {
	struct box box;                 /* the chunk */
	uint64_t at[UMOBJECT_RANK_MAX]; /* index of the current row */
	uint64_t bytes;                 /* bytes of a row */
};

static uint64_t row_offset(const struct umobject_shape *shape, const struct rows *r)
{
	uint64_t off = 0;

	for (unsigned i = 0; i < shape->rank; i++)
		off = off * shape->dims[i] + r->box.start[i] + r->at[i];
	return off * umobject_type_size(shape->type);
}

static bool next_row(const struct umobject_shape *shape, struct rows *r)
{
	for (unsigned i = shape->rank; i-- > 1;) {
		if (++r->at[i - 1] < r->box.count[i - 1])
			return true;
		r->at[i - 1] = 0;
	}
	return false;
}

static struct rows begin_rows(const struct umobject_shape *shape, uint64_t number)
{
	struct rows r = { .box = shape_chunk(shape, number) };

	r.bytes = umobject_type_size(shape->type);
	if (shape->rank)
		r.bytes *= r.box.count[shape->rank - 1];
	return r;
}

/* Whether a block of the chunk is fresh. forget: afterwards, none is. */
static bool is_fresh(umobject_draft *d, uint64_t number, bool forget)
{
	struct rows r = begin_rows(&d->shape, number);
	bool fresh = false;

	do {
		uint64_t off = row_offset(&d->shape, &r), end = off + r.bytes;

		for (uint64_t block = off / BLOCK; block * BLOCK < end; block++) {
			fresh = fresh || has_bit(d->fresh, d->nblocks, block);
			if (forget)
				d->fresh[block / 8] &= (uint8_t)~(1 << block % 8);
		}
	} while ((forget || !fresh) && next_row(&d->shape, &r));
	return fresh;
}

/* Whether the new version has the same data in this chunk already, from the base: the library
 * writes whole segments, most of whose bytes may be unchanged. `old` receives the data of the
 * base. */
static bool is_unchanged(const umobject_draft *d, const umobject_put *put, uint64_t number,
			 const struct box *box, const char *data, char *old)
{
	return d->base && put_has_chunk_of(put, d->base, number) &&
		umobject_read(d->base, box->start, box->count, old) == 0 &&
		memcmp(old, data, box_bytes(&d->shape, box)) == 0;
}

static int put_chunk(umobject_draft *d, umobject_put *put, uint64_t number)
{
	struct rows r = begin_rows(&d->shape, number);
	uint64_t bytes = box_bytes(&d->shape, &r.box);
	char *data = malloc(2 * bytes), *to = data;
	int result;

	if (!data)
		return fail_no_memory("put a chunk of a draft");
	do {
		result = umobject_draft_read(d, to, (size_t)r.bytes, row_offset(&d->shape, &r));
		to += r.bytes;
	} while (result == 0 && next_row(&d->shape, &r));
	if (result == 0 && !is_unchanged(d, put, number, &r.box, data, data + bytes))
		result = umobject_put_chunk(put, number, data);
	free(data);
	return result;
}

int umobject_draft_put(umobject_draft *d, umobject_put *put, uint64_t first, uint64_t count)
{
	uint64_t end = count > UINT64_MAX - first ? UINT64_MAX : first + count;
	struct umobject_shape shape;

	umobject_put_shape(put, &shape);
	if (!shape_equals(&d->shape, &shape))
		return object_fail(EINVAL, "cannot put the draft: its shape differs from the shape "
				   "of the put");
	if (d->file < 0)
		return 0;
	if (memcmp(&d->last, put_id(put), sizeof(d->last)) != 0)
		memcpy(d->fresh, d->written, shape_bytes(&d->shape) / BLOCK / 8 + 1);
	d->last = *put_id(put);
	end = min_u64(end, umobject_chunks(&d->shape));
	for (uint64_t number = first; number < end; number++)
		if (is_fresh(d, number, false) && put_chunk(d, put, number) < 0)
			return -1;
	/* A block may lie in several chunks, so all of them come first. */
	for (uint64_t number = first; number < end; number++)
		is_fresh(d, number, true);
	return 0;
}

/* ---- Drafts ---- */

int umobject_draft_begin(umobject_version *base, const struct umobject_shape *shape,
			 umobject_draft **draft)
{
	umobject_draft *d = calloc(1, sizeof(*d));

	*draft = NULL;
	if (!d)
		return fail_no_memory("begin a draft");
	d->base = base;
	d->shape = *shape;
	d->file = -1;
	d->is_growing = shape->rank == 1 && shape->dims[0] == 0;
	if (base && !shape_equals(shape, &base->object->shape)) {
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

static bool has_fresh(const umobject_draft *d, uint64_t bytes)
{
	uint64_t i = 0;

	while (d->fresh && i < bytes && !d->fresh[i])
		i++;
	return d->fresh && i < bytes;
}

void umobject_draft_rebase(umobject_draft *d, umobject_version *base)
{
	uint64_t bytes = shape_bytes(&d->shape) / BLOCK / 8 + 1;

	if (has_fresh(d, bytes))
		memcpy(d->written, d->fresh, bytes);
	else
		drop_changes(d);
	d->base = base;
	d->is_growing = false;
}

void umobject_draft_end(umobject_draft *d)
{
	if (d)
		drop_changes(d);
	free(d);
}
