/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Files with a cache against files of MPI's own: each call is made on one of either kind, with the same arguments, and what
 * it returns, reads and counts has to be the same; at the end both have the same bytes. Views, offsets, sizes, types and calls
 * are drawn; what several ranks write at once has no byte in common. In atomic mode it has all in common, in parts of all
 * nodes, and one of them is there whole. `cachedfile [SEED [ROUNDS]]`.
 */
#include "common.h"

#include <limits.h>
#include <stdlib.h>
#include <sys/mman.h>

#define MOST 3000                        /* bytes of one request */
#define RANGE 200000                     /* offsets are below, in bytes; twice and three times as much in views without gaps */
/* Files are longer than views with gaps reach: ROMIO fills gaps behind the end of a file with whatever it has. */
#define LEAST 450000

static MPI_File cached, plain;
static uint64_t drawn;                   /* the same numbers at all ranks ... */
static uint64_t own;                     /* ... and others at each */
static bool together;                    /* all ranks have the same view */
static int64_t etype, show;              /* bytes of an etype; a rank's data of a view reach so far, in etypes */

static uint64_t next(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

static int64_t draw(uint64_t *state, int64_t n)
{
	return (int64_t)(next(state) % (uint64_t)n);
}

/* ---- Files ---- */

static void name_file(char *path, size_t room, const char *name)
{
	snprintf(path, room, "%s/%s", folder, name);
}

static MPI_Info cache_hints(const char *const *hints)
{
	char path[400];
	MPI_Info info;

	name_file(path, sizeof(path), "near");
	MPI_Info_create(&info);
	MPI_Info_set(info, "pmem_path", path);
	for (int i = 0; hints[i]; i += 2)
		MPI_Info_set(info, (char *)hints[i], (char *)hints[i + 1]);
	return info;
}

static void open_both(const char *const *hints)
{
	MPI_Info info = cache_hints(hints);
	int amode = MPI_MODE_RDWR | MPI_MODE_CREATE;
	char path[400];

	name_file(path, sizeof(path), "cached");
	check(MPI_File_open(MPI_COMM_WORLD, path, amode, info, &cached) == MPI_SUCCESS);
	name_file(path, sizeof(path), "plain");
	check(MPI_File_open(MPI_COMM_WORLD, path, amode, MPI_INFO_NULL, &plain) == MPI_SUCCESS);
	MPI_Info_free(&info);
	check(MPI_File_preallocate(cached, LEAST) == MPI_SUCCESS);
	check(MPI_File_preallocate(plain, LEAST) == MPI_SUCCESS);
}

/* What was written to MPI's own is there for all. */
static void settle(void)
{
	MPI_File_sync(plain);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_File_sync(plain);
}

static void *load(const char *name, size_t *len)
{
	char path[400];
	FILE *f;
	char *bytes;

	name_file(path, sizeof(path), name);
	f = fopen(path, "r");
	check(f && fseek(f, 0, SEEK_END) == 0);
	*len = (size_t)ftell(f);
	bytes = malloc(*len + 1);
	rewind(f);
	check(bytes && fread(bytes, 1, *len, f) == *len);
	fclose(f);
	return bytes;
}

static void compare_files(size_t way)
{
	size_t a_len, b_len;
	char *a, *b;

	if (rank != 0)
		return;
	a = load("cached", &a_len);
	b = load("plain", &b_len);
	check(a_len == b_len, "%zu, not %zu", a_len, b_len);
	for (size_t i = 0; i < a_len; i++)
		check(a[i] == b[i], "way %zu, byte %zu of %zu: %d, not %d", way, i, a_len, a[i], b[i]);
	free(a);
	free(b);
}

static void close_both(void)
{
	check(MPI_File_close(&cached) == MPI_SUCCESS);
	check(MPI_File_close(&plain) == MPI_SUCCESS);
	MPI_Barrier(MPI_COMM_WORLD);
}

/* ---- Views ---- */

static void set_both(MPI_Offset disp, MPI_Datatype e, MPI_Datatype f)
{
	int size;

	check(MPI_File_set_view(cached, disp, e, f, "native", MPI_INFO_NULL) == MPI_SUCCESS);
	check(MPI_File_set_view(plain, disp, e, f, "native", MPI_INFO_NULL) == MPI_SUCCESS);
	MPI_Type_size(e, &size);
	etype = size;
	show = 3 * RANGE / etype;
}

/* Blocks of each rank in turns. */
static MPI_Datatype vector_type(int block)
{
	MPI_Datatype items, turn;

	MPI_Type_contiguous(block, MPI_INT, &items);
	MPI_Type_create_resized(items, 0, (MPI_Aint)block * 4 * ranks, &turn);
	MPI_Type_free(&items);
	return turn;
}

/* Two blocks of each rank in a turn, the second one larger, and a gap that nobody has. */
static MPI_Datatype indexed_type(int block)
{
	int lens[2] = { block, 2 * block }, places[2] = { rank * block, ranks * block + rank * 2 * block };
	MPI_Datatype items, turn;

	MPI_Type_indexed(2, lens, places, MPI_INT, &items);
	MPI_Type_create_resized(items, 0, (MPI_Aint)(3 * ranks + 1) * block * 4, &turn);
	MPI_Type_free(&items);
	return turn;
}

/* Rows of a matrix, in which each rank has columns. */
static MPI_Datatype columns_type(int block)
{
	int sizes[2] = { 5, block * ranks }, part[2] = { 5, block }, from[2] = { 0, block * rank };
	MPI_Datatype turn;

	MPI_Type_create_subarray(2, sizes, part, from, MPI_ORDER_C, MPI_INT, &turn);
	return turn;
}

static void choose_view(void)
{
	int kind = (int)draw(&drawn, 6), block = 1 + (int)draw(&drawn, 50);
	MPI_Offset disp = draw(&drawn, 100) * 4;
	MPI_Datatype type;

	together = kind < 3;
	if (kind < 2) {
		set_both(disp, MPI_BYTE, MPI_BYTE);
		return;
	}
	if (kind == 2) {
		set_both(disp, MPI_INT, MPI_INT);
		return;
	}
	type = kind == 3 ? vector_type(block) : kind == 4 ? indexed_type(block) : columns_type(block);
	MPI_Type_commit(&type);
	set_both(kind == 3 ? disp + rank * block * 4 : disp, MPI_INT, type);
	MPI_Type_free(&type);
	show = RANGE / etype / ranks;
}

/* ---- Data ---- */

static char from[2 * MOST + 64], to_cached[2 * MOST + 64], to_plain[2 * MOST + 64];

struct call {
	MPI_Datatype type;
	int count;
	bool gaps;
};

/* Of so many etypes; half of them with gaps in memory. */
static struct call make_call(int64_t etypes)
{
	struct call c = { .gaps = draw(&own, 2), .count = (int)etypes };

	MPI_Type_vector(1, (int)etype, 2 * (int)etype, MPI_BYTE, &c.type);
	if (c.gaps) {
		MPI_Datatype block = c.type;

		MPI_Type_create_resized(block, 0, 2 * etype, &c.type);
		MPI_Type_free(&block);
	}
	MPI_Type_commit(&c.type);
	for (size_t i = 0; i < sizeof(from); i++)
		from[i] = (char)next(&own);
	memset(to_cached, 'x', sizeof(to_cached));
	memset(to_plain, 'x', sizeof(to_plain));
	return c;
}

static int64_t bytes_of(MPI_Status *s)
{
	int n;

	MPI_Get_count(s, MPI_BYTE, &n);
	return n;
}

/* Where the end of the file cuts a read that has gaps in it, ROMIO counts what was asked for, and OMPIO too in some calls: then only
 * what this kind of file says to have read is compared. */
static void compare(MPI_Status *s, MPI_Status *p, const struct call *c)
{
	size_t whole = (size_t)(bytes_of(s) / etype * etype * (c->gaps ? 2 : 1));

	check(bytes_of(s) <= bytes_of(p), "%d of %d", (int)bytes_of(s), (int)bytes_of(p));
	check(bytes_of(s) == bytes_of(p) || bytes_of(s) < c->count * etype);
	check(memcmp(to_cached, to_plain, whole) == 0);
	for (size_t i = whole; i < sizeof(to_cached) && bytes_of(s) % etype == 0; i++)
		check(to_cached[i] == 'x');
}

enum how { BLOCKING, NONBLOCKING, ALL, NONBLOCKING_ALL, SPLIT, HOWS };

/* For MPI's own: ROMIO within OpenMPI lacks some, and OMPIO waits for ever in others at the end of a file. */
static enum how simple(enum how how)
{
	return how == NONBLOCKING_ALL || how == SPLIT ? ALL : how;
}

static void wait_for(MPI_Request *r, MPI_Status *s)
{
	check(MPI_Wait(r, s) == MPI_SUCCESS);
}

static int write_at(MPI_File f, enum how how, MPI_Offset at, const struct call *c, MPI_Status *s)
{
	MPI_Request r = MPI_REQUEST_NULL;
	int code;

	if (how == BLOCKING)
		return MPI_File_write_at(f, at, from, c->count, c->type, s);
	if (how == ALL)
		return MPI_File_write_at_all(f, at, from, c->count, c->type, s);
	if (how == SPLIT) {
		code = MPI_File_write_at_all_begin(f, at, from, c->count, c->type);
		return code ? code : MPI_File_write_at_all_end(f, from, s);
	}
	code = how == NONBLOCKING ? MPI_File_iwrite_at(f, at, from, c->count, c->type, &r)
				  : MPI_File_iwrite_at_all(f, at, from, c->count, c->type, &r);
	wait_for(&r, s);
	return code;
}

static int read_at(MPI_File f, enum how how, MPI_Offset at, void *to, const struct call *c, MPI_Status *s)
{
	MPI_Request r = MPI_REQUEST_NULL;
	int code;

	if (how == BLOCKING)
		return MPI_File_read_at(f, at, to, c->count, c->type, s);
	if (how == ALL)
		return MPI_File_read_at_all(f, at, to, c->count, c->type, s);
	if (how == SPLIT) {
		code = MPI_File_read_at_all_begin(f, at, to, c->count, c->type);
		return code ? code : MPI_File_read_at_all_end(f, to, s);
	}
	code = how == NONBLOCKING ? MPI_File_iread_at(f, at, to, c->count, c->type, &r)
				  : MPI_File_iread_at_all(f, at, to, c->count, c->type, &r);
	wait_for(&r, s);
	return code;
}

static int write_here(MPI_File f, enum how how, const struct call *c, MPI_Status *s)
{
	MPI_Request r = MPI_REQUEST_NULL;
	int code;

	if (how == BLOCKING)
		return MPI_File_write(f, from, c->count, c->type, s);
	if (how == ALL)
		return MPI_File_write_all(f, from, c->count, c->type, s);
	if (how == SPLIT) {
		code = MPI_File_write_all_begin(f, from, c->count, c->type);
		return code ? code : MPI_File_write_all_end(f, from, s);
	}
	code = how == NONBLOCKING ? MPI_File_iwrite(f, from, c->count, c->type, &r)
				  : MPI_File_iwrite_all(f, from, c->count, c->type, &r);
	wait_for(&r, s);
	return code;
}

static int read_here(MPI_File f, enum how how, void *to, const struct call *c, MPI_Status *s)
{
	MPI_Request r = MPI_REQUEST_NULL;
	int code;

	if (how == BLOCKING)
		return MPI_File_read(f, to, c->count, c->type, s);
	if (how == ALL)
		return MPI_File_read_all(f, to, c->count, c->type, s);
	if (how == SPLIT) {
		code = MPI_File_read_all_begin(f, to, c->count, c->type);
		return code ? code : MPI_File_read_all_end(f, to, s);
	}
	code = how == NONBLOCKING ? MPI_File_iread(f, to, c->count, c->type, &r) : MPI_File_iread_all(f, to, c->count, c->type, &r);
	wait_for(&r, s);
	return code;
}

static int shared(MPI_File f, enum how how, bool writing, void *to, const struct call *c, MPI_Status *s)
{
	MPI_Request r = MPI_REQUEST_NULL;
	int code;

	if (how == BLOCKING)
		return writing ? MPI_File_write_shared(f, from, c->count, c->type, s) : MPI_File_read_shared(f, to, c->count, c->type, s);
	if (how == ALL)
		return writing ? MPI_File_write_ordered(f, from, c->count, c->type, s) : MPI_File_read_ordered(f, to, c->count, c->type, s);
	if (how == SPLIT) {
		code = writing ? MPI_File_write_ordered_begin(f, from, c->count, c->type) : MPI_File_read_ordered_begin(f, to, c->count, c->type);
		return code ? code : writing ? MPI_File_write_ordered_end(f, from, s) : MPI_File_read_ordered_end(f, to, s);
	}
	code = writing ? MPI_File_iwrite_shared(f, from, c->count, c->type, &r) : MPI_File_iread_shared(f, to, c->count, c->type, &r);
	wait_for(&r, s);
	return code;
}

static MPI_Offset size_of(MPI_File f)
{
	MPI_Offset size;

	check(MPI_File_get_size(f, &size) == MPI_SUCCESS);
	return size;
}

/* Where no other rank writes in this round. */
static int64_t own_place(int64_t etypes)
{
	int64_t slot = draw(&drawn, show / (MOST / 4 * ranks) + 1);

	return together ? (slot * ranks + rank) * (MOST / 4) : draw(&own, show - etypes);
}

static int64_t length(void)
{
	return 1 + draw(&own, MOST / 4 / etype);
}

static enum how choose_how(void)
{
	return (enum how)draw(&drawn, HOWS);
}

static void do_write_at(void)
{
	struct call c = make_call(length());
	int64_t at = own_place(c.count);
	enum how how = choose_how();
	MPI_Status s, p;

	check(write_at(cached, how, at, &c, &s) == MPI_SUCCESS);
	check(write_at(plain, simple(how), at, &c, &p) == MPI_SUCCESS);
	check(bytes_of(&s) == bytes_of(&p));
	MPI_Type_free(&c.type);
	settle();
}

static void do_read_at(void)
{
	struct call c = make_call(length());
	int64_t at = draw(&own, show);
	enum how how = choose_how();
	MPI_Status s, p;

	check(read_at(cached, how, at, to_cached, &c, &s) == MPI_SUCCESS);
	check(read_at(plain, simple(how), at, to_plain, &c, &p) == MPI_SUCCESS);
	compare(&s, &p, &c);
	MPI_Type_free(&c.type);
	MPI_Barrier(MPI_COMM_WORLD);
}

static MPI_Offset position(MPI_File f)
{
	MPI_Offset at;

	check(MPI_File_get_position(f, &at) == MPI_SUCCESS);
	return at;
}

static void do_pointer(void)
{
	struct call c = make_call(length());
	bool writing = draw(&drawn, 2);
	int64_t at = writing ? own_place(c.count) : draw(&own, show);
	enum how how = choose_how();
	MPI_Status s, p;

	check(MPI_File_seek(cached, at, MPI_SEEK_SET) == MPI_SUCCESS);
	check(MPI_File_seek(plain, at - 1, MPI_SEEK_SET) == (at ? MPI_SUCCESS : MPI_ERR_ARG) || !at);
	check(MPI_File_seek(plain, at ? 1 : 0, at ? MPI_SEEK_CUR : MPI_SEEK_SET) == MPI_SUCCESS);
	check(position(cached) == position(plain));
	if (writing) {
		check(write_here(cached, how, &c, &s) == MPI_SUCCESS);
		check(write_here(plain, simple(how), &c, &p) == MPI_SUCCESS);
		check(bytes_of(&s) == bytes_of(&p));
	} else {
		check(read_here(cached, how, to_cached, &c, &s) == MPI_SUCCESS);
		check(read_here(plain, simple(how), to_plain, &c, &p) == MPI_SUCCESS);
		compare(&s, &p, &c);
	}
	/* MPIs do not agree on where a read that meets the end leaves it. */
	if (bytes_of(&s) == c.count * etype)
		check(position(cached) == position(plain));
	MPI_Type_free(&c.type);
	settle();
}

/* One after the other, unless the call is collective. */
static void do_shared(void)
{
	struct call c = make_call(length());
	bool writing = draw(&drawn, 2);
	enum how how = choose_how();
	MPI_Offset at = draw(&drawn, show), a, b;
	MPI_Status s, p;

	how = how == NONBLOCKING_ALL ? NONBLOCKING : how;
	if (!together)
		return;
	check(MPI_File_seek_shared(cached, at, MPI_SEEK_SET) == MPI_SUCCESS);
	check(MPI_File_seek_shared(plain, at, MPI_SEEK_SET) == MPI_SUCCESS);
	for (int i = 0; i < ranks; i++) {
		if (how == ALL || how == SPLIT ? i == 0 : i == rank) {
			check(shared(cached, how, writing, to_cached, &c, &s) == MPI_SUCCESS);
			check(shared(plain, simple(how), writing, to_plain, &c, &p) == MPI_SUCCESS);
			if (writing)
				check(bytes_of(&s) == bytes_of(&p));
			else
				compare(&s, &p, &c);
		}
		settle();
	}
	check(MPI_File_get_position_shared(cached, &a) == MPI_SUCCESS);
	check(MPI_File_get_position_shared(plain, &b) == MPI_SUCCESS);
	check(a == b);
	MPI_Type_free(&c.type);
	MPI_Barrier(MPI_COMM_WORLD);
}

static void do_size(void)
{
	MPI_Offset size = LEAST + draw(&drawn, RANGE);
	int kind = (int)draw(&drawn, 8);

	settle();
	check(size_of(cached) == size_of(plain));
	MPI_Barrier(MPI_COMM_WORLD);
	if (kind == 0) {
		check(MPI_File_set_size(cached, size) == MPI_SUCCESS);
		check(MPI_File_set_size(plain, size) == MPI_SUCCESS);
	} else if (kind == 1) {
		check(MPI_File_preallocate(cached, size) == MPI_SUCCESS);
		check(MPI_File_preallocate(plain, size) == MPI_SUCCESS);
	} else if (kind == 2) {
		check(MPI_File_seek(cached, -3, MPI_SEEK_END) == MPI_File_seek(plain, -3, MPI_SEEK_END));
		check(!together || position(cached) == position(plain));
	}
	MPI_Barrier(MPI_COMM_WORLD);
	check(size_of(cached) == size_of(plain));
	MPI_Barrier(MPI_COMM_WORLD);
}

static void do_sync(void)
{
	int kind = (int)draw(&drawn, 4);

	check(MPI_File_sync(cached) == MPI_SUCCESS);
	if (kind < 2)
		check(MPI_File_set_atomicity(cached, kind) == MPI_SUCCESS);
}

static void one_round(void)
{
	static void (*const all[])(void) = {
		do_write_at, do_read_at, do_pointer, do_shared, do_size, do_sync, do_write_at, do_read_at, do_pointer,
	};

	if (draw(&drawn, 6) == 0)
		choose_view();
	all[draw(&drawn, sizeof(all) / sizeof(*all))]();
}

/* From MPI_BOTTOM, and into it. */
static void absolute_addresses(void)
{
	int numbers[2] = { 5 + rank, 6 + rank }, lens[2] = { 1, 1 };
	MPI_Aint places[2];
	MPI_Datatype type;

	MPI_Get_address(&numbers[0], &places[1]);
	MPI_Get_address(&numbers[1], &places[0]);
	MPI_Type_create_hindexed(2, lens, places, MPI_INT, &type);
	MPI_Type_commit(&type);
	check(MPI_File_set_view(cached, rank * 8, MPI_INT, MPI_INT, "native", MPI_INFO_NULL) == MPI_SUCCESS);
	check(MPI_File_set_view(plain, rank * 8, MPI_INT, MPI_INT, "native", MPI_INFO_NULL) == MPI_SUCCESS);
	check(MPI_File_write_at(cached, 0, MPI_BOTTOM, 1, type, MPI_STATUS_IGNORE) == MPI_SUCCESS);
	check(MPI_File_write_at(plain, 0, MPI_BOTTOM, 1, type, MPI_STATUS_IGNORE) == MPI_SUCCESS);
	numbers[0] = numbers[1] = 0;
	check(MPI_File_read_at(cached, 0, MPI_BOTTOM, 1, type, MPI_STATUS_IGNORE) == MPI_SUCCESS);
	check(numbers[0] == 5 + rank && numbers[1] == 6 + rank);
	MPI_Type_free(&type);
	settle();
}

/* ---- Atomic mode ---- */

#define ATOMIC_BYTES 400000              /* in parts of all nodes, in views with and without gaps */

/* All that is there is one rank's of this turn. */
static unsigned char read_one_writers(MPI_File file, int turn)
{
	static unsigned char bytes[ATOMIC_BYTES];
	int base = turn * ranks;

	memset(bytes, 0, sizeof(bytes));
	check(MPI_File_read_at(file, 100, bytes, ATOMIC_BYTES, MPI_BYTE, MPI_STATUS_IGNORE) == MPI_SUCCESS);
	check(bytes[0] > base && bytes[0] <= base + ranks, "turn %d: %d", turn, bytes[0]);
	for (size_t i = 1; i < ATOMIC_BYTES; i++)
		check(bytes[i] == bytes[0], "turn %d: byte %zu is of %d, the first of %d", turn, i, bytes[i], bytes[0]);
	return bytes[0];
}

/* All ranks write the same bytes at once, and read them while others still write. */
static void write_at_once(MPI_File file, int turn)
{
	static unsigned char bytes[ATOMIC_BYTES];
	unsigned char last, least, most;

	memset(bytes, turn * ranks + rank + 1, sizeof(bytes));
	MPI_Barrier(MPI_COMM_WORLD);
	check(MPI_File_write_at(file, 100, bytes, ATOMIC_BYTES, MPI_BYTE, MPI_STATUS_IGNORE) == MPI_SUCCESS);
	read_one_writers(file, turn);
	MPI_Barrier(MPI_COMM_WORLD);
	last = read_one_writers(file, turn);
	MPI_Allreduce(&last, &least, 1, MPI_UNSIGNED_CHAR, MPI_MIN, MPI_COMM_WORLD);
	MPI_Allreduce(&last, &most, 1, MPI_UNSIGNED_CHAR, MPI_MAX, MPI_COMM_WORLD);
	check(least == most, "turn %d: %d and %d", turn, least, most);
}

static void overlap(const char *const *hints)
{
	MPI_Info info = cache_hints(hints);
	MPI_Datatype gaps, items;
	MPI_File file;
	char path[400];

	name_file(path, sizeof(path), "overlapping");
	check(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_RDWR | MPI_MODE_CREATE, info, &file) == MPI_SUCCESS);
	MPI_Info_free(&info);
	check(MPI_File_preallocate(file, 2 * LEAST) == MPI_SUCCESS);
	check(MPI_File_set_atomicity(file, 1) == MPI_SUCCESS);
	MPI_Type_contiguous(1000, MPI_BYTE, &items);
	MPI_Type_create_resized(items, 0, 2000, &gaps);
	MPI_Type_commit(&gaps);
	for (int turn = 0; turn < 8; turn++) {
		check(MPI_File_set_view(file, 0, MPI_BYTE, turn % 2 ? gaps : MPI_BYTE, "native", MPI_INFO_NULL) == MPI_SUCCESS);
		write_at_once(file, turn);
	}
	MPI_Type_free(&items);
	MPI_Type_free(&gaps);
	check(MPI_File_close(&file) == MPI_SUCCESS);
}

/* ---- Ways of having a cache ---- */

/* An item of 2 GiB, as programs put it together for more bytes than an int counts; and `gap` bytes before its last one. */
static MPI_Datatype large_type(MPI_Aint gap)
{
	int lengths[2] = { 1, 1 };
	MPI_Aint places[2] = { 0, INT_MAX + gap };
	MPI_Datatype parts[2] = { MPI_DATATYPE_NULL, MPI_BYTE }, type;

	MPI_Type_contiguous(INT_MAX, MPI_BYTE, &parts[0]);
	MPI_Type_create_struct(2, lengths, places, parts, &type);
	MPI_Type_commit(&type);
	MPI_Type_free(&parts[0]);
	return type;
}

/* Of which the file has only the beginning: the rest of the memory is not touched, and would be too much for tests. */
static void large_items(void)
{
	enum { SOME = 200000 };
	size_t room = (size_t)INT_MAX + 4096;
	MPI_Info info = cache_hints((const char *const[]){ NULL });
	unsigned char *memory = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	MPI_Status status;
	MPI_Count bytes;
	char path[400];
	MPI_File file;

	check(memory != MAP_FAILED);
	name_file(path, sizeof(path), "large");
	check(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_RDWR | MPI_MODE_CREATE | MPI_MODE_DELETE_ON_CLOSE, info, &file) == MPI_SUCCESS);
	MPI_Info_free(&info);
	for (int i = 0; i < SOME; i++)
		memory[i] = (unsigned char)(i / 251 + i);
	if (rank == 0)
		check(MPI_File_write_at(file, 0, memory, SOME, MPI_BYTE, MPI_STATUS_IGNORE) == MPI_SUCCESS);
	MPI_Barrier(MPI_COMM_WORLD);
	for (int gap = 0; gap < 2; gap++) {
		MPI_Datatype type = large_type(gap);

		memset(memory, 0, SOME);
		check(MPI_File_read_at(file, 0, memory, 1, type, &status) == MPI_SUCCESS);
		check(MPI_Get_elements_x(&status, MPI_BYTE, &bytes) == MPI_SUCCESS && bytes == SOME, "%lld bytes", (long long)bytes);
		for (int i = 0; i < SOME; i++)
			check(memory[i] == (unsigned char)(i / 251 + i), "at %d", i);
		MPI_Type_free(&type);
	}
	check(MPI_File_close(&file) == MPI_SUCCESS);
	munmap(memory, room);
}

static const char *const ways[][9] = {
	{ NULL },
	{ "pmem_stripe", "64K", "pmem_flush", "1", NULL },
	{ "pmem_durable", "write", NULL },
	{ "pmem_close", "keep", NULL },
	{ "pmem_populate", "true", "pmem_size", "2M", NULL },
};

int main(int argc, char **argv)
{
	uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
	int rounds = argc > 2 ? atoi(argv[2]) : 20;
	char path[400];

	start_mpi(&argc, &argv, MPI_THREAD_SINGLE);
	name_file(path, sizeof(path), "near");
	if (rank == 0)
		check(mkdir(path, 0700) == 0);
	MPI_Barrier(MPI_COMM_WORLD);
	drawn = seed * 0x9E3779B97F4A7C15ull | 1;
	own = (seed + 77) * 0x9E3779B97F4A7C15ull + (uint64_t)rank * 0x1234567 + 1;
	for (size_t w = 0; w < sizeof(ways) / sizeof(*ways); w++) {
		bool keeps = ways[w][0] && strcmp(ways[w][0], "pmem_close") == 0;

		open_both(ways[w]);
		absolute_addresses();
		choose_view();
		for (int i = 0; i < rounds; i++)
			one_round();
		settle();
		close_both();
		if (!keeps)
			compare_files(w);
		MPI_Barrier(MPI_COMM_WORLD);
		overlap(ways[w]);
	}
	large_items();
	MPI_Finalize();
	return 0;
}
