/* SPDX-License-Identifier: BSD-3-Clause */
#include "mapreduce/stream.h"

#include "mapreduce/error.h"

#include <errno.h>
#include <sys/stat.h>

#include <ummap.h>

#define COPY_BYTES ((size_t)1 << 16)

void stream_open(struct stream *s, struct pair_window *window)
{
	*s = (struct stream){ .window = window };
}

static void remove_last_block(struct stream *s)
{
	unsigned last = --s->blocks;

	window_detach_block(s->window, s->memory[last]);
	if (!s->keeps_ranges)
		window_free_range(s->window, s->offsets[last], last);
}

void stream_close(struct stream *s)
{
	while (s->blocks > 0)
		remove_last_block(s);
}

/* ---- Writing ---- */

static int add_block(struct stream *s, uint64_t offset)
{
	char *memory = window_attach_block(s->window, s->blocks, offset);

	if (!memory)
		return -1;
	MPI_Get_address(memory, &s->block[s->blocks].address);
	s->block[s->blocks].used = 0;
	s->offsets[s->blocks] = offset;
	s->memory[s->blocks++] = memory;
	return 0;
}

static int add_new_block(struct stream *s)
{
	if (s->blocks == MAX_STREAM_BLOCKS ||
	    s->window->first_block > (size_t)PTRDIFF_MAX / 2 >> s->blocks)
		return set_error(EFBIG, "cannot enlarge a window for pairs: it has the greatest "
				 "possible size. Try a larger bucket_size, or more ranks");
	return add_block(s, window_take_range(s->window, s->blocks));
}

static int append_bytes(struct stream *s, const void *data, size_t size)
{
	while (size > 0) {
		struct block *last = s->blocks > 0 ? &s->block[s->blocks - 1] : NULL;
		size_t part = 0;

		if (last)
			part = window_block_size(s->window, s->blocks - 1) - (size_t)last->used;
		if (part == 0) {
			if (add_new_block(s) < 0)
				return -1;
			continue;
		}
		if (part > size)
			part = size;
		memcpy(s->memory[s->blocks - 1] + last->used, data, part);
		last->used += (MPI_Aint)part;
		data = (const char *)data + part;
		size -= part;
	}
	return 0;
}

static int append_padded(struct stream *s, const void *data, size_t size)
{
	static const char zeros[8];

	if (append_bytes(s, data, size) < 0)
		return -1;
	return append_bytes(s, zeros, padded_size(size) - size);
}

int stream_append(struct stream *s, const struct pair *p)
{
	if (append_bytes(s, &p->header, sizeof(p->header)) < 0 ||
	    append_padded(s, p->key, p->header.key_size) < 0)
		return -1;
	return append_padded(s, p->value, p->header.value_size);
}

/* System calls cannot read memory that is not resident, so the bytes are copied first. */
static int write_block(const char *memory, size_t size, FILE *out)
{
	char copy[COPY_BYTES];

	for (size_t at = 0, part; at < size; at += part) {
		part = size - at < sizeof(copy) ? size - at : sizeof(copy);
		memcpy(copy, memory + at, part);
		if (fwrite(copy, 1, part, out) != part)
			return -1;
	}
	return 0;
}

int stream_write(const struct stream *s, FILE *out)
{
	for (unsigned i = 0; i < s->blocks; i++)
		if (write_block(s->memory[i], (size_t)s->block[i].used, out) < 0)
			return -1;
	return 0;
}

void stream_publish(struct stream *s, unsigned number)
{
	struct block *list = &s->window->mine[number * MAX_STREAM_BLOCKS];

	memcpy(list, s->block, s->blocks * sizeof(struct block));
	/* A block without bytes ends the list. */
	if (s->blocks < MAX_STREAM_BLOCKS)
		list[s->blocks].used = 0;
	MPI_Win_sync(s->window->lists);
}

/* ---- Saving ---- */

int stream_start_write(const struct stream *s)
{
	const struct pair_window *w = s->window;

	/* Memory that is no mapping of libummap, or only in part, is left to window_sync. */
	for (unsigned i = 0; w->file && i < s->blocks; i++)
		if (umsync_range(s->memory[i], window_block_size(w, i),
				 UMMAP_ASYNC | UMMAP_NOFLUSH) < 0 &&
		    errno != EINVAL && errno != ENOMEM)
			return set_error(errno, "cannot write '%s': %s", w->file, umerrormsg());
	return 0;
}

void stream_save(const struct stream *s, struct saved_stream *to)
{
	to->blocks = s->blocks;
	to->used = s->blocks > 0 ? (uint64_t)s->block[s->blocks - 1].used : 0;
	memcpy(to->offsets, s->offsets, s->blocks * sizeof(*s->offsets));
}

void stream_truncate(struct stream *s, const struct saved_stream *saved)
{
	while (s->blocks > saved->blocks)
		remove_last_block(s);
	if (s->blocks > 0)
		s->block[s->blocks - 1].used = (MPI_Aint)saved->used;
}

/* A window over a file that is too short would read zeros instead of the missing bytes. */
static int check_file(const struct pair_window *w, const struct saved_stream *saved)
{
	struct stat st;

	if (stat(w->file, &st) < 0)
		return set_error(errno == ENOENT ? EUCLEAN : errno, "cannot continue from '%s', "
				 "which an earlier job wrote: %s. Try to remove all files ummr.* "
				 "there, to begin again", w->file, strerror(errno));
	for (unsigned i = 0; i < saved->blocks; i++) {
		uint64_t used = i + 1 < saved->blocks ? window_block_size(w, i) : saved->used;

		if ((uint64_t)st.st_size < saved->offsets[i] + used)
			return set_error(EUCLEAN, "cannot continue from '%s': it is shorter than "
					 "the earlier job recorded. Try to remove all files ummr.* "
					 "there, to begin again", w->file);
	}
	return 0;
}

int stream_restore(struct stream *s, struct pair_window *window, const struct saved_stream *saved)
{
	stream_open(s, window);
	if (saved->blocks > 0 && check_file(window, saved) < 0)
		return -1;
	for (unsigned i = 0; i < saved->blocks; i++) {
		window_reserve_range(window, saved->offsets[i], i);
		if (add_block(s, saved->offsets[i]) < 0)
			return -1;
		s->block[i].used = (MPI_Aint)window_block_size(window, i);
	}
	if (saved->blocks > 0)
		s->block[s->blocks - 1].used = (MPI_Aint)saved->used;
	return 0;
}
