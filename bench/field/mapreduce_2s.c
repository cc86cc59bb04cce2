/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Word count by MapReduce-2S: MapReduce with two-sided and collective MPI, for comparison with the
 * one-sided method of the library. Rank 0 distributes tasks in rounds by MPI_Scatter. All ranks
 * read the tasks of a round by collective MPI-IO, map them, and report to rank 0 by MPI_Gather.
 * After the last round, one MPI_Alltoallv brings each pair to the rank of its key. Ranks reduce
 * their pairs, and send the sorted results up a tree to rank 0.
 *
 * Pairs are in plain memory. The hash table and the timeline are those of the library, so that both
 * methods do the same work for each pair. An error ends the program.
 */
#include <limits.h>

#include <ummap-mapreduce.h>

#include "kit/common.h"
#include "kit/data.h"
#include "mapreduce.h"
#include "mapreduce_2s.h"
#include "mapreduce/error.h"
#include "mapreduce/table.h"
#include "mapreduce/timeline.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#define DEFAULT_TABLE_BYTES ((size_t)256 << 20)
#define MAX_MESSAGE_BYTES ((size_t)1 << 16) /* of a message with a part of a result */
#define LOOKAHEAD_BYTES ((size_t)64 << 10)  /* read behind a task for the end of its last line */

/* The result at this rank: pairs in order of keys. */
static struct buffer result;

void buffer_append(struct buffer *b, const void *data, size_t size)
{
	if (size > b->capacity - b->size) {
		b->capacity = 2 * (b->size + size);
		b->data = realloc(b->data, b->capacity);
		if (!b->data)
			die("no memory for %zu bytes of pairs", b->capacity);
	}
	memcpy(b->data + b->size, data, size);
	b->size += size;
}

static void append_padded(struct buffer *b, const void *data, size_t size)
{
	static const char zeros[8];

	buffer_append(b, data, size);
	buffer_append(b, zeros, padded_size(size) - size);
}

static void append_pair(struct buffer *b, const struct pair *p)
{
	buffer_append(b, &p->header, sizeof(p->header));
	append_padded(b, p->key, p->header.key_size);
	append_padded(b, p->value, p->header.value_size);
}

static struct pair pair_of(const struct entry *e)
{
	return (struct pair){ e->header, e->key, e->value };
}

/* ---- Map ---- */

struct map {
	const struct words_options *options;
	struct table table;
	struct buffer *buckets; /* pairs by target rank */
	struct timeline *timeline;
	MPI_File file;          /* the text */
	char *text;             /* bytes of a task */
	size_t capacity;        /* bytes of `text` */
};

/* One assignment of rank 0 to a rank. */
struct assignment {
	int64_t task;      /* -1: no task in this round */
	int64_t continues; /* 0: all tasks are done */
};

static int add_counts(const struct ummr_bytes *key, struct ummr_value *value,
		      const struct ummr_bytes *other, void *arg)
{
	(void)key, (void)arg;
	*(uint64_t *)value->data += *(const uint64_t *)other->data;
	return 0;
}

static void open_table(struct table *t)
{
	if (table_open(t, add_counts, NULL) < 0)
		die("%s", ummr_error());
}

static void add_pair(struct table *t, const struct ummr_header *h, const void *key,
		     const void *value)
{
	if (table_add(t, h->hash, key, h->key_size, value, h->value_size) < 0)
		die("%s", ummr_error());
}

static void empty_table(struct map *m)
{
	for (const struct entry *e = m->table.oldest; e; e = e->next) {
		struct pair p = pair_of(e);

		append_pair(&m->buckets[rank_of_hash(p.header.hash, job.ranks)], &p);
	}
	table_clear(&m->table);
}

static bool emit_word(const char *word, size_t size, void *arg)
{
	struct map *m = arg;
	size_t limit = m->options->table ? m->options->table : DEFAULT_TABLE_BYTES;
	struct ummr_header h = { XXH3_64bits(word, size), size, sizeof(uint64_t) };
	uint64_t one = 1;

	add_pair(&m->table, &h, word, &one);
	if (m->table.bytes > limit)
		empty_table(m);
	return true;
}

/* Reads a part of the text by itself, if `collective` is false. */
static void read_text(struct map *m, size_t at, size_t size, uint64_t offset, bool collective)
{
	MPI_Status status;
	int count;

	if (at + size > m->capacity) {
		m->capacity = at + size;
		m->text = realloc(m->text, m->capacity);
		if (!m->text)
			die("no memory for a task of %zu bytes", m->capacity);
	}
	if (size > INT_MAX)
		die("-t: a task of MapReduce-2S has at most %d bytes", INT_MAX);
	job_check(collective
		  ? MPI_File_read_at_all(m->file, (MPI_Offset)offset, m->text + at, (int)size,
					 MPI_BYTE, &status)
		  : MPI_File_read_at(m->file, (MPI_Offset)offset, m->text + at, (int)size,
				     MPI_BYTE, &status), m->options->path);
	MPI_Get_count(&status, MPI_BYTE, &count);
	if ((size_t)count < size)
		die("%s: the file has become shorter", m->options->path);
}

/* Returns the offset behind the first newline at `from` or behind it, or `size` if there is
 * none. */
static size_t find_line(const char *text, size_t from, size_t size)
{
	const char *newline = from < size ? memchr(text + from, '\n', size - from) : NULL;

	return newline ? (size_t)(newline - text) + 1 : size;
}

/* Maps the lines that begin in a task. Reading begins one byte before the task: this byte tells
 * whether a line begins with the task. All ranks call this; task -1 has no bytes. */
static void map_task(struct map *m, int64_t task)
{
	const struct words_options *o = m->options;
	uint64_t begin = task < 0 ? 0 : (uint64_t)task * o->task;
	uint64_t end = task < 0 ? 0 : begin + o->task < o->size ? begin + o->task : o->size;
	uint64_t offset = begin > 0 ? begin - 1 : 0;
	uint64_t read_end = task < 0 ? 0 : end + LOOKAHEAD_BYTES < o->size ? end + LOOKAHEAD_BYTES
									   : o->size;
	size_t size = (size_t)(read_end - offset), first, last;

	read_text(m, 0, size, offset, true);
	if (task < 0)
		return;
	task_work(o, (uint64_t)task);
	first = begin > 0 ? find_line(m->text, 0, size) : 0;
	if (first < (size_t)(end - offset)) {
		while ((last = find_line(m->text, (size_t)(end - offset) - 1, size)) == size &&
		       m->text[size - 1] != '\n' && offset + size < o->size) {
			size_t rest = (size_t)(o->size - offset) - size;
			size_t more = rest < LOOKAHEAD_BYTES ? rest : LOOKAHEAD_BYTES;

			read_text(m, size, more, offset + size, false);
			size += more;
		}
		words_each(m->text + first, last - first, o->pairs, emit_word, m);
	}
	timeline_add(m->timeline, UMMR_PHASE_MAP, EVENT_STEP);
}

static void assign_tasks(struct assignment *to, int64_t task, int64_t tasks)
{
	for (int i = 0; i < job.ranks; i++)
		to[i] = (struct assignment){ task + i < tasks ? task + i : -1, task < tasks };
}

static void save_pairs(struct map *m)
{
	struct buffer image = { 0 };

	for (int i = 0; i < job.ranks; i++)
		buffer_append(&image, m->buckets[i].data, m->buckets[i].size);
	for (const struct entry *e = m->table.oldest; e; e = e->next) {
		struct pair p = pair_of(e);

		append_pair(&image, &p);
	}
	write_checkpoint(m->options->storage, "pairs", &image);
	free(image.data);
	timeline_add(m->timeline, UMMR_PHASE_MAP, EVENT_SYNC);
}

/* The default is a checkpoint after each round. */
static bool is_checkpoint_due(const struct words_options *o, uint64_t rounds)
{
	return o->storage && o->sync != UINT32_MAX && rounds % (o->sync ? o->sync : 1) == 0;
}

static void map_rounds(struct map *m)
{
	struct assignment assignments[job.ranks], mine;
	int64_t tasks = (int64_t)tasks_of(m->options);
	int mapped = 0, all_mapped[job.ranks];

	for (int64_t task = 0, rounds = 1; ; task += job.ranks, rounds++) {
		if (job.rank == 0)
			assign_tasks(assignments, task, tasks);
		MPI_Scatter(assignments, sizeof(mine), MPI_BYTE, &mine, sizeof(mine), MPI_BYTE, 0,
			    MPI_COMM_WORLD);
		if (!mine.continues)
			return;
		map_task(m, mine.task);
		if (is_checkpoint_due(m->options, (uint64_t)rounds))
			save_pairs(m);
		mapped += mine.task >= 0;
		MPI_Gather(&mapped, 1, MPI_INT, all_mapped, 1, MPI_INT, 0, MPI_COMM_WORLD);
	}
}

static void map_all(struct map *m)
{
	m->buckets = calloc((size_t)job.ranks, sizeof(*m->buckets));
	if (!m->buckets)
		die("no memory for the pairs of %d ranks", job.ranks);
	open_table(&m->table);
	job_check(MPI_File_open(MPI_COMM_WORLD, m->options->path, MPI_MODE_RDONLY, MPI_INFO_NULL,
				&m->file), m->options->path);
	map_rounds(m);
	MPI_File_close(&m->file);
	empty_table(m);
	table_close(&m->table);
	free(m->text);
}

/* ---- Exchange. Sizes are in words of 8 bytes, which all pairs consist of. ---- */

/* Sets offsets of consecutive parts. Returns their total. */
static int place_parts(const int *words, int *offsets)
{
	int64_t sum = 0;

	for (int i = 0; i < job.ranks; i++) {
		offsets[i] = (int)sum;
		sum += words[i];
		if (sum > INT_MAX)
			die("MapReduce-2S exchanges at most %d words of 8 bytes", INT_MAX);
	}
	return (int)sum;
}

/* Frees the buckets, and returns the pairs of all ranks with the keys of this one. */
static struct buffer exchange_pairs(struct map *m)
{
	int sent[job.ranks], sent_at[job.ranks], received[job.ranks], received_at[job.ranks];
	struct buffer out = { 0 }, in = { 0 };

	for (int i = 0; i < job.ranks; i++) {
		if (m->buckets[i].size / 8 > INT_MAX)
			die("MapReduce-2S exchanges at most %d words of 8 bytes", INT_MAX);
		sent[i] = (int)(m->buckets[i].size / 8);
		buffer_append(&out, m->buckets[i].data, m->buckets[i].size);
		free(m->buckets[i].data);
	}
	free(m->buckets);
	MPI_Alltoall(sent, 1, MPI_INT, received, 1, MPI_INT, MPI_COMM_WORLD);
	place_parts(sent, sent_at);
	in.size = (size_t)place_parts(received, received_at) * 8;
	in.data = malloc(in.size + 1);
	if (!in.data)
		die("no memory for %zu bytes of pairs", in.size);
	MPI_Alltoallv(out.data, sent, sent_at, MPI_UINT64_T, in.data, received, received_at,
		      MPI_UINT64_T, MPI_COMM_WORLD);
	free(out.data);
	return in;
}

/* ---- Reduce ---- */

static void reduce_pairs(const struct buffer *in)
{
	struct table table;
	struct entry **sorted;
	struct pair p;

	open_table(&table);
	for (size_t at = 0; at < in->size; ) {
		at += parse_pair(in->data + at, &p);
		add_pair(&table, &p.header, p.key, p.value);
	}
	sorted = table_sort(&table, false);
	if (!sorted)
		die("%s", ummr_error());
	for (uint64_t i = 0; i < table.entries; i++) {
		p = pair_of(sorted[i]);
		append_pair(&result, &p);
	}
	free(sorted);
	table_close(&table);
}

static void reduce_all(struct map *m)
{
	struct buffer in = exchange_pairs(m);

	reduce_pairs(&in);
	free(in.data);
	timeline_add(m->timeline, UMMR_PHASE_REDUCE, EVENT_STEP);
	if (m->options->storage && m->options->sync != UINT32_MAX) {
		write_checkpoint(m->options->storage, "result", &result);
		timeline_add(m->timeline, UMMR_PHASE_REDUCE, EVENT_SYNC);
	}
}

/* ---- Combine ---- */

static void send_result(int to)
{
	MPI_Send(&result.size, sizeof(result.size), MPI_BYTE, to, 0, MPI_COMM_WORLD);
	for (size_t at = 0, part; at < result.size; at += part) {
		part = result.size - at < MAX_MESSAGE_BYTES ? result.size - at : MAX_MESSAGE_BYTES;
		MPI_Send(result.data + at, (int)part, MPI_BYTE, to, 0, MPI_COMM_WORLD);
	}
	free(result.data);
	result = (struct buffer){ 0 };
}

static struct buffer receive_result(int from)
{
	struct buffer b = { 0 };
	char message[MAX_MESSAGE_BYTES];
	size_t size;

	MPI_Recv(&size, sizeof(size), MPI_BYTE, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	while (b.size < size) {
		MPI_Status status;
		int part;

		MPI_Recv(message, sizeof(message), MPI_BYTE, from, 0, MPI_COMM_WORLD, &status);
		MPI_Get_count(&status, MPI_BYTE, &part);
		buffer_append(&b, message, (size_t)part);
	}
	return b;
}

/* Two ranks never have the same key. */
static void merge_results(const struct buffer *other)
{
	struct buffer merged = { 0 };
	size_t a_at = 0, b_at = 0;

	while (a_at < result.size || b_at < other->size) {
		struct pair a, b;
		size_t a_size = a_at < result.size ? parse_pair(result.data + a_at, &a) : 0;
		size_t b_size = b_at < other->size ? parse_pair(other->data + b_at, &b) : 0;
		bool takes_a = b_size == 0 ||
			(a_size > 0 && compare_keys(a.key, a.header.key_size, b.key,
						    b.header.key_size) < 0);

		append_pair(&merged, takes_a ? &a : &b);
		a_at += takes_a ? a_size : 0;
		b_at += takes_a ? 0 : b_size;
	}
	free(result.data);
	result = merged;
}

static void combine_all(struct map *m)
{
	for (int step = 1; step < job.ranks; step *= 2) {
		struct buffer other;

		if (job.rank & step) {
			send_result(job.rank - step);
			return;
		}
		if (job.rank + step >= job.ranks)
			continue;
		other = receive_result(job.rank + step);
		merge_results(&other);
		free(other.data);
		timeline_add(m->timeline, UMMR_PHASE_COMBINE, EVENT_STEP);
	}
}

/* ---- The method ---- */

static void run_phase(struct map *m, int number, void (*phase)(struct map *m))
{
	timeline_add(m->timeline, number, EVENT_BEGIN);
	phase(m);
	timeline_add(m->timeline, number, EVENT_END);
}

static void count_words(const struct words_options *o)
{
	struct timeline timeline;
	struct map m = { .options = o, .timeline = &timeline };

	if (timeline_open(&timeline, MPI_COMM_WORLD, o->timeline) < 0)
		die("%s", ummr_error());
	timeline_start(&timeline, MPI_COMM_WORLD);
	run_phase(&m, UMMR_PHASE_MAP, map_all);
	run_phase(&m, UMMR_PHASE_REDUCE, reduce_all);
	run_phase(&m, UMMR_PHASE_COMBINE, combine_all);
	if (timeline_write(&timeline, MPI_COMM_WORLD) < 0)
		die("%s", ummr_error());
	timeline_close(&timeline);
}

static void read_result(const struct words_options *o, struct counted *to)
{
	struct pair p, before = { .key = NULL };

	(void)o;
	for (size_t at = 0; at < result.size; before = p) {
		uint64_t count;

		at += parse_pair(result.data + at, &p);
		to->ordered = to->ordered && compare_keys(before.key, before.header.key_size, p.key,
							  p.header.key_size) < 0;
		memcpy(&count, p.value, sizeof(count));
		counted_add(to, p.key, p.header.key_size, count);
	}
	free(result.data);
}

const struct way way_2s = { "2s", "MapReduce-2S", count_words, read_result };
