/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cachedfile - compares a file with an MPI-IO cache with a file of the MPI library. Each call is
 * made on both files with the same arguments; return codes, data and counts must be equal, and so
 * must the files in the end. Views, offsets, sizes, datatypes and calls are random. Concurrent
 * writes of several ranks have no byte in common. In atomic mode, all ranks write the same bytes of
 * all nodes, and the file must have those of one rank. `cachedfile [SEED [ROUNDS]]`
 */
#include "common.h"

#include <limits.h>
#include <stdlib.h>
#include <sys/mman.h>

#define MAX_REQUEST 3000                 /* bytes of a request */
/* Upper bound of offsets, in bytes; in views without gaps, two or three times as much. */
#define MAX_OFFSET 200000
/*
 * Minimum size of files, larger than the end of views with gaps: ROMIO fills gaps behind the end of
 * a file with arbitrary bytes.
 */
#define MIN_FILE 450000

static MPI_File cached, plain;
static uint64_t common_state;            /* random state, equal at all ranks */
static uint64_t own_state;               /* random state of this rank */
static bool same_view;                   /* all ranks have the same view */
static int64_t etype;                    /* bytes of an etype */
static int64_t view_end;                 /* end of the data of this rank in the view, in etypes */

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
	check(MPI_File_preallocate(cached, MIN_FILE) == MPI_SUCCESS);
	check(MPI_File_preallocate(plain, MIN_FILE) == MPI_SUCCESS);
}

/* Makes the written data of the file of the MPI library visible to all ranks. */
static void sync_plain_file(void)
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
		check(a[i] == b[i], "way %zu, byte %zu of %zu: %d, not %d", way, i, a_len, a[i],
		      b[i]);
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
	view_end = 3 * MAX_OFFSET / etype;
}

/* Blocks of all ranks in turn. */
static MPI_Datatype vector_type(int block)
{
	MPI_Datatype items, turn;

	MPI_Type_contiguous(block, MPI_INT, &items);
	MPI_Type_create_resized(items, 0, (MPI_Aint)block * 4 * ranks, &turn);
	MPI_Type_free(&items);
	return turn;
}

/* Two blocks of each rank in turn, the second one larger, and a gap. */
static MPI_Datatype indexed_type(int block)
{
	int lens[2] = { block, 2 * block },
	    places[2] = { rank * block, ranks * block + rank * 2 * block };
	MPI_Datatype items, turn;

	MPI_Type_indexed(2, lens, places, MPI_INT, &items);
	MPI_Type_create_resized(items, 0, (MPI_Aint)(3 * ranks + 1) * block * 4, &turn);
	MPI_Type_free(&items);
	return turn;
}

/* Rows of a matrix; each rank has some columns. */
static MPI_Datatype columns_type(int block)
{
	int sizes[2] = { 5, block * ranks }, part[2] = { 5, block }, from[2] = { 0, block * rank };
	MPI_Datatype turn;

	MPI_Type_create_subarray(2, sizes, part, from, MPI_ORDER_C, MPI_INT, &turn);
	return turn;
}

static void choose_view(void)
{
	int kind = (int)draw(&common_state, 6), block = 1 + (int)draw(&common_state, 50);
	MPI_Offset disp = draw(&common_state, 100) * 4;
	MPI_Datatype type;

	same_view = kind < 3;
	if (kind < 2) {
		set_both(disp, MPI_BYTE, MPI_BYTE);
		return;
	}
	if (kind == 2) {
		set_both(disp, MPI_INT, MPI_INT);
		return;
	}
	type = kind == 3 ? vector_type(block) :
	       kind == 4 ? indexed_type(block) :
			   columns_type(block);
	MPI_Type_commit(&type);
	set_both(kind == 3 ? disp + rank * block * 4 : disp, MPI_INT, type);
	MPI_Type_free(&type);
	view_end = MAX_OFFSET / etype / ranks;
}

/* ---- Data ---- */

static char from[2 * MAX_REQUEST + 64], to_cached[2 * MAX_REQUEST + 64],
	to_plain[2 * MAX_REQUEST + 64];

struct call {
	MPI_Datatype type;
	int count;
	bool gaps;
};

/* Makes a call of `etypes` etypes. Half of the calls have gaps in memory. */
static struct call make_call(int64_t etypes)
{
	struct call c = { .gaps = draw(&own_state, 2), .count = (int)etypes };

	MPI_Type_vector(1, (int)etype, 2 * (int)etype, MPI_BYTE, &c.type);
	if (c.gaps) {
		MPI_Datatype block = c.type;

		MPI_Type_create_resized(block, 0, 2 * etype, &c.type);
		MPI_Type_free(&block);
	}
	MPI_Type_commit(&c.type);
	for (size_t i = 0; i < sizeof(from); i++)
		from[i] = (char)next(&own_state);
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

/*
 * If the end of the file shortens a read with gaps, ROMIO returns the requested count, and so do
 * some calls of OMPIO. Then only the bytes that the file with the cache has counted are compared.
 */
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

/*
 * Returns the kind of call for the file of the MPI library: ROMIO in OpenMPI lacks some kinds, and
 * OMPIO deadlocks in others at the end of a file.
 */
static enum how supported_kind(enum how how)
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

static int read_at(MPI_File f, enum how how, MPI_Offset at, void *to, const struct call *c,
		   MPI_Status *s)
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
	code = how == NONBLOCKING ? MPI_File_iread(f, to, c->count, c->type, &r) :
				    MPI_File_iread_all(f, to, c->count, c->type, &r);
	wait_for(&r, s);
	return code;
}

static int shared(MPI_File f, enum how how, bool writing, void *to, const struct call *c,
		  MPI_Status *s)
{
	MPI_Request r = MPI_REQUEST_NULL;
	int code;

	if (how == BLOCKING)
		return writing ? MPI_File_write_shared(f, from, c->count, c->type, s) :
				 MPI_File_read_shared(f, to, c->count, c->type, s);
	if (how == ALL)
		return writing ? MPI_File_write_ordered(f, from, c->count, c->type, s) :
				 MPI_File_read_ordered(f, to, c->count, c->type, s);
	if (how == SPLIT) {
		code = writing ? MPI_File_write_ordered_begin(f, from, c->count, c->type) :
				 MPI_File_read_ordered_begin(f, to, c->count, c->type);
		return code    ? code :
		       writing ? MPI_File_write_ordered_end(f, from, s) :
				 MPI_File_read_ordered_end(f, to, s);
	}
	code = writing ? MPI_File_iwrite_shared(f, from, c->count, c->type, &r) :
			 MPI_File_iread_shared(f, to, c->count, c->type, &r);
	wait_for(&r, s);
	return code;
}

static MPI_Offset size_of(MPI_File f)
{
	MPI_Offset size;

	check(MPI_File_get_size(f, &size) == MPI_SUCCESS);
	return size;
}

/* Returns an offset where no other rank writes in this round. */
static int64_t own_place(int64_t etypes)
{
	int64_t slot = draw(&common_state, view_end / (MAX_REQUEST / 4 * ranks) + 1);

	return same_view ? (slot * ranks + rank) * (MAX_REQUEST / 4) :
			   draw(&own_state, view_end - etypes);
}

static int64_t length(void)
{
	return 1 + draw(&own_state, MAX_REQUEST / 4 / etype);
}

static enum how choose_how(void)
{
	return (enum how)draw(&common_state, HOWS);
}

static void do_write_at(void)
{
	struct call c = make_call(length());
	int64_t at = own_place(c.count);
	enum how how = choose_how();
	MPI_Status s, p;

	check(write_at(cached, how, at, &c, &s) == MPI_SUCCESS);
	check(write_at(plain, supported_kind(how), at, &c, &p) == MPI_SUCCESS);
	check(bytes_of(&s) == bytes_of(&p));
	MPI_Type_free(&c.type);
	sync_plain_file();
}

static void do_read_at(void)
{
	struct call c = make_call(length());
	int64_t at = draw(&own_state, view_end);
	enum how how = choose_how();
	MPI_Status s, p;

	check(read_at(cached, how, at, to_cached, &c, &s) == MPI_SUCCESS);
	check(read_at(plain, supported_kind(how), at, to_plain, &c, &p) == MPI_SUCCESS);
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
	bool writing = draw(&common_state, 2);
	int64_t at = writing ? own_place(c.count) : draw(&own_state, view_end);
	enum how how = choose_how();
	MPI_Status s, p;

	check(MPI_File_seek(cached, at, MPI_SEEK_SET) == MPI_SUCCESS);
	check(MPI_File_seek(plain, at - 1, MPI_SEEK_SET) == (at ? MPI_SUCCESS : MPI_ERR_ARG) ||
	      !at);
	check(MPI_File_seek(plain, at ? 1 : 0, at ? MPI_SEEK_CUR : MPI_SEEK_SET) == MPI_SUCCESS);
	check(position(cached) == position(plain));
	if (writing) {
		check(write_here(cached, how, &c, &s) == MPI_SUCCESS);
		check(write_here(plain, supported_kind(how), &c, &p) == MPI_SUCCESS);
		check(bytes_of(&s) == bytes_of(&p));
	} else {
		check(read_here(cached, how, to_cached, &c, &s) == MPI_SUCCESS);
		check(read_here(plain, supported_kind(how), to_plain, &c, &p) == MPI_SUCCESS);
		compare(&s, &p, &c);
	}
	/* After a read at the end of the file, the pointer depends on the MPI. */
	if (bytes_of(&s) == c.count * etype)
		check(position(cached) == position(plain));
	MPI_Type_free(&c.type);
	sync_plain_file();
}

/* Ranks make the calls in turn, unless the call is collective. */
static void do_shared(void)
{
	struct call c = make_call(length());
	bool writing = draw(&common_state, 2);
	enum how how = choose_how();
	MPI_Offset at = draw(&common_state, view_end), a, b;
	MPI_Status s, p;

	how = how == NONBLOCKING_ALL ? NONBLOCKING : how;
	if (!same_view)
		return;
	check(MPI_File_seek_shared(cached, at, MPI_SEEK_SET) == MPI_SUCCESS);
	check(MPI_File_seek_shared(plain, at, MPI_SEEK_SET) == MPI_SUCCESS);
	for (int i = 0; i < ranks; i++) {
		if (how == ALL || how == SPLIT ? i == 0 : i == rank) {
			check(shared(cached, how, writing, to_cached, &c, &s) == MPI_SUCCESS);
			check(shared(plain, supported_kind(how), writing, to_plain, &c, &p) ==
			      MPI_SUCCESS);
			if (writing)
				check(bytes_of(&s) == bytes_of(&p));
			else
				compare(&s, &p, &c);
		}
		sync_plain_file();
	}
	check(MPI_File_get_position_shared(cached, &a) == MPI_SUCCESS);
	check(MPI_File_get_position_shared(plain, &b) == MPI_SUCCESS);
	check(a == b);
	MPI_Type_free(&c.type);
	MPI_Barrier(MPI_COMM_WORLD);
}

static void do_size(void)
{
	MPI_Offset size = MIN_FILE + draw(&common_state, MAX_OFFSET);
	int kind = (int)draw(&common_state, 8);

	sync_plain_file();
	check(size_of(cached) == size_of(plain));
	MPI_Barrier(MPI_COMM_WORLD);
	if (kind == 0) {
		check(MPI_File_set_size(cached, size) == MPI_SUCCESS);
		check(MPI_File_set_size(plain, size) == MPI_SUCCESS);
	} else if (kind == 1) {
		check(MPI_File_preallocate(cached, size) == MPI_SUCCESS);
		check(MPI_File_preallocate(plain, size) == MPI_SUCCESS);
	} else if (kind == 2) {
		check(MPI_File_seek(cached, -3, MPI_SEEK_END) ==
		      MPI_File_seek(plain, -3, MPI_SEEK_END));
		check(!same_view || position(cached) == position(plain));
	}
	MPI_Barrier(MPI_COMM_WORLD);
	check(size_of(cached) == size_of(plain));
	MPI_Barrier(MPI_COMM_WORLD);
}

static void do_sync(void)
{
	int kind = (int)draw(&common_state, 4);

	check(MPI_File_sync(cached) == MPI_SUCCESS);
	if (kind < 2)
		check(MPI_File_set_atomicity(cached, kind) == MPI_SUCCESS);
}

static void run_round(void)
{
	static void (*const all[])(void) = {
		do_write_at, do_read_at,  do_pointer, do_shared,  do_size,
		do_sync,     do_write_at, do_read_at, do_pointer,
	};

	if (draw(&common_state, 6) == 0)
		choose_view();
	all[draw(&common_state, sizeof(all) / sizeof(*all))]();
}

/* Transfers with absolute addresses, relative to MPI_BOTTOM. */
static void test_absolute_addresses(void)
{
	int numbers[2] = { 5 + rank, 6 + rank }, lens[2] = { 1, 1 };
	MPI_Aint places[2];
	MPI_Datatype type;

	MPI_Get_address(&numbers[0], &places[1]);
	MPI_Get_address(&numbers[1], &places[0]);
	MPI_Type_create_hindexed(2, lens, places, MPI_INT, &type);
	MPI_Type_commit(&type);
	check(MPI_File_set_view(cached, rank * 8, MPI_INT, MPI_INT, "native", MPI_INFO_NULL) ==
	      MPI_SUCCESS);
	check(MPI_File_set_view(plain, rank * 8, MPI_INT, MPI_INT, "native", MPI_INFO_NULL) ==
	      MPI_SUCCESS);
	check(MPI_File_write_at(cached, 0, MPI_BOTTOM, 1, type, MPI_STATUS_IGNORE) == MPI_SUCCESS);
	check(MPI_File_write_at(plain, 0, MPI_BOTTOM, 1, type, MPI_STATUS_IGNORE) == MPI_SUCCESS);
	numbers[0] = numbers[1] = 0;
	check(MPI_File_read_at(cached, 0, MPI_BOTTOM, 1, type, MPI_STATUS_IGNORE) == MPI_SUCCESS);
	check(numbers[0] == 5 + rank && numbers[1] == 6 + rank);
	MPI_Type_free(&type);
	sync_plain_file();
}

/* ---- Atomic mode ---- */

#define ATOMIC_BYTES 400000 /* a range in parts of all nodes, in views with and without gaps */

/* All bytes must be from one rank of this turn. */
static unsigned char read_one_writers(MPI_File file, int turn)
{
	static unsigned char bytes[ATOMIC_BYTES];
	int base = turn * ranks;

	memset(bytes, 0, sizeof(bytes));
	check(MPI_File_read_at(file, 100, bytes, ATOMIC_BYTES, MPI_BYTE, MPI_STATUS_IGNORE) ==
	      MPI_SUCCESS);
	check(bytes[0] > base && bytes[0] <= base + ranks, "turn %d: %d", turn, bytes[0]);
	for (size_t i = 1; i < ATOMIC_BYTES; i++)
		check(bytes[i] == bytes[0], "turn %d: byte %zu is of %d, the first of %d", turn, i,
		      bytes[i], bytes[0]);
	return bytes[0];
}

/* All ranks write the same bytes concurrently, and read them while others still write. */
static void write_at_once(MPI_File file, int turn)
{
	static unsigned char bytes[ATOMIC_BYTES];
	unsigned char last, least, most;

	memset(bytes, turn * ranks + rank + 1, sizeof(bytes));
	MPI_Barrier(MPI_COMM_WORLD);
	check(MPI_File_write_at(file, 100, bytes, ATOMIC_BYTES, MPI_BYTE, MPI_STATUS_IGNORE) ==
	      MPI_SUCCESS);
	read_one_writers(file, turn);
	MPI_Barrier(MPI_COMM_WORLD);
	last = read_one_writers(file, turn);
	MPI_Allreduce(&last, &least, 1, MPI_UNSIGNED_CHAR, MPI_MIN, MPI_COMM_WORLD);
	MPI_Allreduce(&last, &most, 1, MPI_UNSIGNED_CHAR, MPI_MAX, MPI_COMM_WORLD);
	check(least == most, "turn %d: %d and %d", turn, least, most);
}

static void test_atomic_mode(const char *const *hints)
{
	MPI_Info info = cache_hints(hints);
	MPI_Datatype gaps, items;
	MPI_File file;
	char path[400];

	name_file(path, sizeof(path), "overlapping");
	check(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_RDWR | MPI_MODE_CREATE, info, &file) ==
	      MPI_SUCCESS);
	MPI_Info_free(&info);
	check(MPI_File_preallocate(file, 2 * MIN_FILE) == MPI_SUCCESS);
	check(MPI_File_set_atomicity(file, 1) == MPI_SUCCESS);
	MPI_Type_contiguous(1000, MPI_BYTE, &items);
	MPI_Type_create_resized(items, 0, 2000, &gaps);
	MPI_Type_commit(&gaps);
	for (int turn = 0; turn < 8; turn++) {
		check(MPI_File_set_view(file, 0, MPI_BYTE, turn % 2 ? gaps : MPI_BYTE, "native",
					MPI_INFO_NULL) == MPI_SUCCESS);
		write_at_once(file, turn);
	}
	MPI_Type_free(&items);
	MPI_Type_free(&gaps);
	check(MPI_File_close(&file) == MPI_SUCCESS);
}

/* ---- Large items ---- */

/*
 * Makes a datatype of 2 GiB, as programs use it for more bytes than an int counts, with `gap` bytes
 * before its last byte.
 */
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

/* The file has only the beginning of an item. The rest of the memory is not accessed. */
static void test_large_items(void)
{
	enum { SOME = 200000 };
	size_t room = (size_t)INT_MAX + 4096;
	MPI_Info info = cache_hints((const char *const[]){ NULL });
	unsigned char *memory = mmap(NULL, room, PROT_READ | PROT_WRITE,
				     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	MPI_Status status;
	MPI_Count bytes;
	char path[400];
	MPI_File file;

	check(memory != MAP_FAILED);
	name_file(path, sizeof(path), "large");
	check(MPI_File_open(MPI_COMM_WORLD, path,
			    MPI_MODE_RDWR | MPI_MODE_CREATE | MPI_MODE_DELETE_ON_CLOSE, info,
			    &file) == MPI_SUCCESS);
	MPI_Info_free(&info);
	for (int i = 0; i < SOME; i++)
		memory[i] = (unsigned char)(i / 251 + i);
	if (rank == 0)
		check(MPI_File_write_at(file, 0, memory, SOME, MPI_BYTE, MPI_STATUS_IGNORE) ==
		      MPI_SUCCESS);
	MPI_Barrier(MPI_COMM_WORLD);
	for (int gap = 0; gap < 2; gap++) {
		MPI_Datatype type = large_type(gap);

		memset(memory, 0, SOME);
		check(MPI_File_read_at(file, 0, memory, 1, type, &status) == MPI_SUCCESS);
		check(MPI_Get_elements_x(&status, MPI_BYTE, &bytes) == MPI_SUCCESS && bytes == SOME,
		      "%lld bytes", (long long)bytes);
		for (int i = 0; i < SOME; i++)
			check(memory[i] == (unsigned char)(i / 251 + i), "at %d", i);
		MPI_Type_free(&type);
	}
	check(MPI_File_close(&file) == MPI_SUCCESS);
	munmap(memory, room);
}

static const char *const hint_sets[][9] = {
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
	common_state = seed * 0x9E3779B97F4A7C15ull | 1;
	own_state = (seed + 77) * 0x9E3779B97F4A7C15ull + (uint64_t)rank * 0x1234567 + 1;
	for (size_t w = 0; w < sizeof(hint_sets) / sizeof(*hint_sets); w++) {
		bool keeps = hint_sets[w][0] && strcmp(hint_sets[w][0], "pmem_close") == 0;

		open_both(hint_sets[w]);
		test_absolute_addresses();
		choose_view();
		for (int i = 0; i < rounds; i++)
			run_round();
		sync_plain_file();
		close_both();
		if (!keeps)
			compare_files(w);
		MPI_Barrier(MPI_COMM_WORLD);
		test_atomic_mode(hint_sets[w]);
	}
	test_large_items();
	MPI_Finalize();
	return 0;
}
