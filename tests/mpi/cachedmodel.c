/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cachedmodel - compares random calls on a file with an MPI-IO cache with a model of the file that
 * every rank keeps in memory: contents, counts, statuses, positions and sizes. Datatypes are
 * random; MPI_Pack gives their layout. Concurrent writes of several ranks have no byte in common.
 *
 *	cachedmodel [SEED [CALLS]]
 *
 * MODEL_VERBOSE=N prints all calls from number N on.
 */
#include "common.h"

#include <stdlib.h>

#define MAX_FILE (5 << 20)               /* bytes of the file */
#define MAX_REQUEST 120000               /* bytes of a request */
#define RANKS 16
#define MAX_BURST 3
#ifdef OPEN_MPI
#define DERIVED_KINDS 8
#define INTERNAL_EVERY 1000000000
#else
#define DERIVED_KINDS 9
#define INTERNAL_EVERY 5
#endif

static MPI_File file;
static MPI_Comm comm;
static uint64_t state;                   /* state of the random numbers, equal at all ranks */
static unsigned char *model;             /* contents of the file; zeros from `size` on */
static int64_t size;
static bool verbose;
static int amode;
static char path[400];
static int calls;

static uint64_t next(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state * 0x2545F4914F6CDD1Dull;
}

static void check_success(int code)
{
	char text[MPI_MAX_ERROR_STRING] = "";
	int len;

	if (code)
		MPI_Error_string(code, text, &len);
	check(code == MPI_SUCCESS, "call %d: %s", calls, text);
}

static int64_t draw(int64_t n)
{
	return (int64_t)((next() >> 11) % (uint64_t)n);
}

/* ---- Types ---- */

struct type {
	MPI_Datatype type;
	int64_t bytes;                   /* number of bytes of data */
	MPI_Aint extent, lb;
	int64_t *map;                    /* offset of each byte of data from the origin */
	MPI_Aint least, most;
};

/* Returns the offsets of all bytes of `count` items, and the bounds of the offsets. */
static int64_t *make_map(MPI_Datatype type, int count, int64_t *bytes, MPI_Aint *least,
			 MPI_Aint *most)
{
	MPI_Aint lb, extent, true_lb, true_extent, first, behind;
	int n, position;
	int64_t *map;
	unsigned char *place, *packed;

	MPI_Type_size(type, &n);
	MPI_Type_get_extent(type, &lb, &extent);
	MPI_Type_get_true_extent(type, &true_lb, &true_extent);
	*bytes = (int64_t)n * count;
	*least = *most = 0;
	if (*bytes == 0)
		return NULL;
	first = true_lb + (extent < 0 ? extent * (count - 1) : 0);
	behind = true_lb + true_extent + (extent > 0 ? extent * (count - 1) : 0);
	*least = first;
	*most = behind;
	map = calloc((size_t)*bytes, sizeof(*map));
	place = malloc((size_t)(behind - first));
	packed = malloc((size_t)*bytes);
	check(map && place && packed);
	for (int plane = 0; plane < 3; plane++) {
		for (MPI_Aint i = 0; i < behind - first; i++)
			place[i] = (unsigned char)(i >> (8 * plane));
		position = 0;
		check(MPI_Pack(place - first, count, type, packed, (int)*bytes, &position,
			       MPI_COMM_SELF) == MPI_SUCCESS);
		check(position == *bytes);
		for (int64_t i = 0; i < *bytes; i++)
			map[i] |= (int64_t)packed[i] << (8 * plane);
	}
	for (int64_t i = 0; i < *bytes; i++)
		map[i] += first;
	free(place);
	free(packed);
	return map;
}

static MPI_Datatype draw_basic_type(void)
{
	static const MPI_Datatype all[] = { MPI_BYTE,   MPI_CHAR,    MPI_SHORT, MPI_INT,
					    MPI_DOUBLE, MPI_INT64_T, MPI_FLOAT };

	return all[draw(7)];
}

static MPI_Datatype derive_type(MPI_Datatype old, bool memory)
{
	MPI_Datatype new = MPI_DATATYPE_NULL;
	MPI_Aint lb, extent, places[4], at = draw(2) * draw(5);
	int lens[4], idx[4], n = 1 + (int)draw(4), sizes[3], subs[3], starts[3];
	MPI_Datatype types[4];

	MPI_Type_get_extent(old, &lb, &extent);
	for (int i = 0; i < n; i++) {
		lens[i] = memory ? (int)draw(4) : 1 + (int)draw(3);
		idx[i] = (int)at;
		places[i] = at * extent;
		types[i] = old;
		at += lens[i] + draw(2) * draw(6);
	}
	if (memory && draw(3) == 0)
		for (int i = 0; i < n / 2; i++) {
			int k = idx[i], l = lens[i];
			MPI_Aint p = places[i];

			idx[i] = idx[n - 1 - i], idx[n - 1 - i] = k;
			lens[i] = lens[n - 1 - i], lens[n - 1 - i] = l;
			places[i] = places[n - 1 - i], places[n - 1 - i] = p;
		}
	switch (draw(DERIVED_KINDS)) {
	case 0:
		MPI_Type_contiguous(1 + (int)draw(5), old, &new);
		break;
	case 1:
		MPI_Type_vector(1 + (int)draw(4), n,
				(memory && draw(3) == 0 ? -1 : 1) * (n + (int)draw(4)), old, &new);
		break;
	case 2:
		MPI_Type_indexed(n, lens, idx, old, &new);
		break;
	case 3:
		MPI_Type_create_hindexed(n, lens, places, old, &new);
		break;
	case 4:
		MPI_Type_create_struct(n, lens, places, types, &new);
		break;
	case 5:
		for (int i = 0; i < 3; i++) {
			sizes[i] = 1 + (int)draw(4);
			subs[i] = 1 + (int)draw(sizes[i]);
			starts[i] = (int)draw(sizes[i] - subs[i] + 1);
		}
		MPI_Type_create_subarray(3, sizes, subs, starts,
					 draw(2) ? MPI_ORDER_C : MPI_ORDER_FORTRAN, old, &new);
		break;
	case 6:
		MPI_Type_create_resized(old, memory ? -extent * draw(2) : 0, extent * (1 + draw(4)),
					&new);
		break;
	case 7:
		MPI_Type_create_hvector(1 + (int)draw(3), n, extent * (n + draw(5)), old, &new);
		break;
	case 8: {
		int dist[2] = { draw(2) ? MPI_DISTRIBUTE_BLOCK : MPI_DISTRIBUTE_CYCLIC,
				MPI_DISTRIBUTE_CYCLIC };
		int args[2] = { MPI_DISTRIBUTE_DFLT_DARG, 1 + (int)draw(3) }, procs[2] = { 2, 2 };

		sizes[0] = 2 + (int)draw(4);
		sizes[1] = 2 + (int)draw(6);
		MPI_Type_create_darray(4, (int)draw(4), 2, sizes, dist, args, procs, MPI_ORDER_C,
				       old, &new);
		break;
	}
	}
	return new;
}

static MPI_Datatype build_type(MPI_Datatype old, bool memory)
{
	MPI_Datatype type, newer;

	MPI_Type_dup(old, &type);
	for (int depth = (int)draw(4); depth > 0; depth--) {
		MPI_Aint lb, extent, true_lb, true_extent;
		int n;

		newer = derive_type(type, memory);
		MPI_Type_size(newer, &n);
		MPI_Type_get_extent(newer, &lb, &extent);
		MPI_Type_get_true_extent(newer, &true_lb, &true_extent);
		if (n > 20000 || extent > 200000 || true_extent > 200000) {
			MPI_Type_free(&newer);
			break;
		}
		MPI_Type_free(&type);
		type = newer;
	}
	MPI_Type_commit(&type);
	return type;
}

static MPI_Datatype repeat_type(MPI_Datatype old)
{
	MPI_Datatype type;

	MPI_Type_contiguous(1 + (int)draw(4), old, &type);
	MPI_Type_commit(&type);
	return type;
}

static struct type describe_type(MPI_Datatype type)
{
	struct type t = { .type = type };

	MPI_Type_get_extent(type, &t.lb, &t.extent);
	t.map = make_map(type, 1, &t.bytes, &t.least, &t.most);
	return t;
}

static void free_type(struct type *t)
{
	if (t->type && t->type != MPI_DATATYPE_NULL)
		MPI_Type_free(&t->type);
	free(t->map);
	t->map = NULL;
}

/* ---- Views of all ranks ---- */

struct view {
	int64_t disp;
	struct type e, f;
	int64_t at;                      /* individual file pointer, in etypes */
};

static struct view views[RANKS];
static int64_t shared_at;
static bool views_alike;

/* Whether a view can have this type: the offsets of its bytes must increase. */
static bool can_be_in_view(const struct type *f, bool etype)
{
	int64_t before = -1;

	if (f->bytes == 0)
		return !etype;
	if (f->extent <= 0 || f->lb < 0)
		return false;
	for (int64_t i = 0; i < f->bytes; i++) {
		if (f->map[i] <= before || f->map[i] < 0)
			return false;
		before = f->map[i];
	}
	return f->extent > before - f->map[0];
}

static int64_t place(const struct view *v, int64_t k)
{
	return v->disp + k / v->f.bytes * v->f.extent + v->f.map[k % v->f.bytes];
}

/* Duplicates a type, because each rank frees its own types. */
static struct type copy_type(const struct type *t)
{
	MPI_Datatype type;

	MPI_Type_dup(t->type, &type);
	return describe_type(type);
}

static struct type draw_etype(void)
{
	for (;;) {
		struct type e = describe_type(draw(5) ? repeat_type(draw_basic_type()) :
							build_type(MPI_BYTE, false));

		if (can_be_in_view(&e, true) && e.bytes < 500)
			return e;
		free_type(&e);
	}
}

static struct type draw_filetype(const struct type *e)
{
	for (;;) {
		struct type f = describe_type(build_type(e->type, false));

		if (can_be_in_view(&f, false) && f.extent % e->extent == 0 &&
		    (f.bytes > 0 || draw(20) == 0))
			return f;
		free_type(&f);
	}
}

static void set_byte_view(struct view *v)
{
	MPI_Type_dup(MPI_BYTE, &v->e.type);
	MPI_Type_dup(MPI_BYTE, &v->f.type);
	v->e = describe_type(v->e.type);
	v->f = describe_type(v->f.type);
	v->disp = v->at = 0;
}

static void set_views(void)
{
	int kind = (int)draw(4);

	views_alike = kind < 2;
	for (int r = 0; r < ranks; r++) {
		struct view *v = &views[r];

		free_type(&v->e);
		free_type(&v->f);
		if (kind == 0) {
			set_byte_view(v);
			continue;
		}
		/* All ranks have the same etype. */
		v->e = r ? copy_type(&views[0].e) : draw_etype();
		v->f = r && views_alike ? copy_type(&views[0].f) : draw_filetype(&v->e);
		v->disp = r && views_alike ? views[0].disp :
			  draw(3)          ? draw(1000) :
					     draw(MAX_FILE / 8192) * 4096;
		v->at = 0;
	}
	shared_at = 0;
	check_success(
		MPI_File_set_view(file, views[rank].disp, views[rank].e.type, views[rank].f.type,
				  draw(INTERNAL_EVERY) ? "native" : "internal", MPI_INFO_NULL));
}

/* ---- Requests ---- */

struct request {
	bool writing;
	int64_t at;                      /* offset in the view, in etypes */
	int count;
	struct type t;                   /* datatype in memory */
	int64_t bytes;                   /* number of bytes of all items */
	int64_t *map;                    /* offsets of the bytes of all items */
	MPI_Aint least, most;
	uint64_t seed;
	int64_t got;                     /* number of transferred bytes */
};

static int64_t etypes_of(const struct request *a, const struct view *v)
{
	return a->bytes / v->e.bytes;
}

static unsigned char byte_of(uint64_t seed, int64_t k)
{
	uint64_t x = (seed + (uint64_t)k / 8) * 0x9E3779B97F4A7C15ull;

	x ^= x >> 29;
	x *= 0xBF58476D1CE4E5B9ull;
	x ^= x >> 32;
	return (unsigned char)(x >> (k % 8 * 8)) | 1;
}

static bool has_overlap(const struct request *a)
{
	char *seen = calloc(1, (size_t)(a->most - a->least) + 1);
	bool found = false;

	for (int64_t i = 0; i < a->bytes && !found; i++) {
		found = seen[a->map[i] - a->least];
		seen[a->map[i] - a->least] = 1;
	}
	free(seen);
	return found;
}

static void free_request(struct request *a)
{
	free_type(&a->t);
	free(a->map);
	a->map = NULL;
}

/* Makes the request empty. */
static void cancel(struct request *a)
{
	a->count = 0;
	a->bytes = 0;
}

/* Draws a request whose size in memory is a multiple of the etype. */
static void draw_request(struct request *a, const struct view *v, bool writing)
{
	int64_t limit = draw(3) ? 2000 : MAX_REQUEST;

	memset(a, 0, sizeof(*a));
	a->writing = writing;
	for (;;) {
		int64_t n;

		a->t = describe_type(
			draw(3) ? build_type(v->e.type, true) :
				  build_type(draw(2) ? MPI_BYTE : draw_basic_type(), true));
		n = a->t.bytes ? limit / a->t.bytes : 3;
		a->count = n > 0 ? (int)draw(n + 1) : 1;
		if (a->t.extent > 0)
			while (a->count > 1 && a->count * a->t.extent > 1 << 22)
				a->count /= 2;
		a->bytes = a->t.bytes * a->count;
		if (a->bytes % v->e.bytes == 0) {
			int64_t bytes;

			a->map = make_map(a->t.type, a->count, &bytes, &a->least, &a->most);
			if (writing || !has_overlap(a))
				break;
			free(a->map);
			a->map = NULL;
		}
		free_type(&a->t);
	}
	a->seed = next();
}

static int64_t highest(const struct view *v, int64_t limit)
{
	int64_t tiles;

	if (v->f.bytes == 0)
		return 100;
	tiles = (limit - v->disp) / v->f.extent;
	return tiles > 0 ? tiles * v->f.bytes / v->e.bytes : 1;
}

static void draw_place(struct request *a, const struct view *v)
{
	int64_t most = highest(v, draw(4) ? size + 5000 : MAX_FILE) - etypes_of(a, v);

	a->at = most > 0 ? draw(most + 1) : 0;
}

static bool is_in_range(const struct request *a, const struct view *v)
{
	if (v->f.bytes == 0)
		return a->bytes == 0 || !a->writing;
	return a->bytes == 0 || place(v, a->at * v->e.bytes + a->bytes - 1) < MAX_FILE;
}

static int64_t apply_write(const struct request *a, const struct view *v)
{
	for (int64_t k = 0; k < a->bytes; k++) {
		int64_t p = place(v, a->at * v->e.bytes + k);

		model[p] = byte_of(a->seed, a->map[k] - a->least);
		if (p >= size)
			size = p + 1;
	}
	return a->bytes;
}

static int64_t readable(const struct request *a, const struct view *v)
{
	int64_t k = 0;

	if (v->f.bytes)
		while (k < a->bytes && place(v, a->at * v->e.bytes + k) < size)
			k++;
	return k;
}

/* Sets the number of bytes that a read returns. */
static void expect(struct request *a, const struct view *v)
{
	a->got = a->writing ? apply_write(a, v) : readable(a, v);
}

/* ---- Calls ---- */

enum where { AT, HERE, SHARED };
enum how { BLOCKING, NONBLOCKING, ALL, SPLIT, NONBLOCKING_ALL };

struct flight {
	struct request a;
	unsigned char *memory, *origin;
	MPI_Request request;
	unsigned char *want;             /* bytes that a read must return */
	MPI_Status status;
	enum where where;
	enum how how;
};

static void board(struct flight *f, const struct request *a)
{
	memset(f, 0, sizeof(*f));
	f->a = *a;
	f->request = MPI_REQUEST_NULL;
	f->memory = malloc((size_t)(a->most - a->least) + 1);
	check(f->memory);
	f->origin = f->memory - a->least;
	memset(f->memory, 'x', (size_t)(a->most - a->least));
	if (a->writing)
		for (int64_t k = 0; k < a->bytes; k++)
			f->origin[a->map[k]] = byte_of(a->seed, a->map[k] - a->least);
}

/* Copies the bytes of a write to the model. If a byte is there has_overlap, the last one counts. */
static void update_model(struct flight *f, const struct view *v)
{
	f->want = malloc((size_t)f->a.bytes + 1);
	check(f->want);
	for (int64_t k = 0; k < f->a.got && !f->a.writing; k++)
		f->want[k] = model[place(v, f->a.at * v->e.bytes + k)];
}

static const char *kinds[] = { "at", "here", "shared" };
static const char *ways[] = { "blocking", "nonblocking", "all", "split", "nonblocking all" };

static void start(struct flight *f)
{
	const struct request *a = &f->a;
	void *m = f->origin;
	MPI_Status *s = &f->status;
	int n = a->count, code = -1;
	MPI_Datatype t = a->t.type;
	bool w = a->writing;

	if (verbose)
		printf("[%d] call %d: %s %s %s at %lld, %lld bytes, %d of %lld\n", rank, calls,
		       w ? "write" : "read", kinds[f->where], ways[f->how], (long long)a->at,
		       (long long)a->bytes, a->count, (long long)a->t.bytes);
	memset(s, 0x55, sizeof(*s));
#define PICK(how_, where_, wcall, rcall) \
	if (f->how == how_ && f->where == where_) \
	code = w ? wcall : rcall
	PICK(BLOCKING, AT, MPI_File_write_at(file, a->at, m, n, t, s),
	     MPI_File_read_at(file, a->at, m, n, t, s));
	PICK(BLOCKING, HERE, MPI_File_write(file, m, n, t, s), MPI_File_read(file, m, n, t, s));
	PICK(BLOCKING, SHARED, MPI_File_write_shared(file, m, n, t, s),
	     MPI_File_read_shared(file, m, n, t, s));
	PICK(ALL, AT, MPI_File_write_at_all(file, a->at, m, n, t, s),
	     MPI_File_read_at_all(file, a->at, m, n, t, s));
	PICK(ALL, HERE, MPI_File_write_all(file, m, n, t, s), MPI_File_read_all(file, m, n, t, s));
	PICK(ALL, SHARED, MPI_File_write_ordered(file, m, n, t, s),
	     MPI_File_read_ordered(file, m, n, t, s));
	PICK(NONBLOCKING, AT, MPI_File_iwrite_at(file, a->at, m, n, t, &f->request),
	     MPI_File_iread_at(file, a->at, m, n, t, &f->request));
	PICK(NONBLOCKING, HERE, MPI_File_iwrite(file, m, n, t, &f->request),
	     MPI_File_iread(file, m, n, t, &f->request));
	PICK(NONBLOCKING, SHARED, MPI_File_iwrite_shared(file, m, n, t, &f->request),
	     MPI_File_iread_shared(file, m, n, t, &f->request));
	PICK(NONBLOCKING_ALL, AT, MPI_File_iwrite_at_all(file, a->at, m, n, t, &f->request),
	     MPI_File_iread_at_all(file, a->at, m, n, t, &f->request));
	PICK(NONBLOCKING_ALL, HERE, MPI_File_iwrite_all(file, m, n, t, &f->request),
	     MPI_File_iread_all(file, m, n, t, &f->request));
	PICK(SPLIT, AT, MPI_File_write_at_all_begin(file, a->at, m, n, t),
	     MPI_File_read_at_all_begin(file, a->at, m, n, t));
	PICK(SPLIT, HERE, MPI_File_write_all_begin(file, m, n, t),
	     MPI_File_read_all_begin(file, m, n, t));
	PICK(SPLIT, SHARED, MPI_File_write_ordered_begin(file, m, n, t),
	     MPI_File_read_ordered_begin(file, m, n, t));
	check(code == MPI_SUCCESS, "call %d: %s %s %s", calls, w ? "write" : "read",
	      kinds[f->where], ways[f->how]);
}

static void finish(struct flight *f)
{
	void *m = f->origin;
	MPI_Status *s = &f->status;
	bool w = f->a.writing;
	int code = MPI_SUCCESS, flag = 0;

	if (f->how == SPLIT) {
		PICK(SPLIT, AT, MPI_File_write_at_all_end(file, m, s),
		     MPI_File_read_at_all_end(file, m, s));
		PICK(SPLIT, HERE, MPI_File_write_all_end(file, m, s),
		     MPI_File_read_all_end(file, m, s));
		PICK(SPLIT, SHARED, MPI_File_write_ordered_end(file, m, s),
		     MPI_File_read_ordered_end(file, m, s));
	} else if (f->how == NONBLOCKING || f->how == NONBLOCKING_ALL) {
		if (f->a.seed & 256) {
			while (!flag)
				check(MPI_Test(&f->request, &flag, s) == MPI_SUCCESS);
		} else if (f->a.seed & 512) {
			check(MPI_Waitall(1, &f->request, s) == MPI_SUCCESS);
		} else {
			code = MPI_Wait(&f->request, s);
		}
		check(f->request == MPI_REQUEST_NULL);
	}
	check(code == MPI_SUCCESS);
}

static void compare(struct flight *f)
{
	const struct request *a = &f->a;
	int n, elements, cancelled;
	MPI_Count x;

	MPI_Get_count(&f->status, MPI_BYTE, &n);
	check(n == a->got, "call %d (%s %s %s): %d bytes, not %lld of %lld", calls,
	      a->writing ? "write" : "read", kinds[f->where], ways[f->how], n, (long long)a->got,
	      (long long)a->bytes);
	if (a->t.bytes) {
		MPI_Get_count(&f->status, a->t.type, &n);
		check(n == (a->got % a->t.bytes ? MPI_UNDEFINED : a->got / a->t.bytes),
		      "call %d: count %d", calls, n);
		MPI_Get_elements(&f->status, MPI_BYTE, &elements);
		check(elements == a->got);
		MPI_Get_elements_x(&f->status, MPI_BYTE, &x);
		check(x == a->got);
	}
	MPI_Test_cancelled(&f->status, &cancelled);
	check(!cancelled);
	if (!a->writing)
		for (int64_t k = 0; k < a->bytes; k++)
			check(f->origin[a->map[k]] == (k < a->got ? f->want[k] : 'x'),
			      "call %d (%s %s): byte %lld of %lld (%lld) is %d, not %d", calls,
			      kinds[f->where], ways[f->how], (long long)k, (long long)a->bytes,
			      (long long)a->got, f->origin[a->map[k]],
			      k < a->got ? f->want[k] : 'x');
	/* The gaps are unchanged. */
	if (!a->writing) {
		for (int64_t k = 0; k < a->bytes; k++)
			f->origin[a->map[k]] = 'x';
		for (int64_t i = 0; i < a->most - a->least; i++)
			check(f->memory[i] == 'x', "call %d: gap at %lld", calls, (long long)i);
	}
	free(f->memory);
	free(f->want);
}

/*
 * Whether two requests of different ranks conflict: they overlap and one of them writes, or one of
 * them extends the file.
 */
static bool have_conflict(struct request (*asks)[MAX_BURST], int burst)
{
	static unsigned char *marks;
	bool grows = false, reads = false, bad = false;

	if (!marks)
		marks = malloc(MAX_FILE);
	memset(marks, 0, MAX_FILE);
	for (int i = 0; i < 2 * ranks * burst; i++) {
		int r = i / burst % ranks;
		const struct request *a = &asks[r][i % burst];
		const struct view *v = &views[r];
		bool writes = i < ranks * burst;

		if (!v->f.bytes || a->writing != writes)
			continue;
		reads |= !writes && a->bytes > 0;
		for (int64_t k = 0; k < a->bytes; k++) {
			int64_t p = place(v, a->at * v->e.bytes + k);

			grows |= writes && p >= size;
			if (p >= MAX_FILE)
				continue;
			bad |= marks[p] && marks[p] != r + 1;
			if (writes)
				marks[p] = (unsigned char)(r + 1);
		}
	}
	return bad || (grows && reads);
}

static bool is_allowed(bool writing)
{
	return writing ? !(amode & MPI_MODE_RDONLY) : !(amode & MPI_MODE_WRONLY);
}

static bool draw_writing(void)
{
	bool writing = draw(2);

	return is_allowed(writing) ? writing : !writing;
}

static void check_positions(void)
{
	MPI_Offset at, bytes;

	check_success(MPI_File_get_position(file, &at));
	check(at == views[rank].at, "call %d: at %lld, not %lld", calls, (long long)at,
	      (long long)views[rank].at);
	check_success(MPI_File_get_position_shared(file, &at));
	check(at == shared_at, "call %d: shared at %lld, not %lld", calls, (long long)at,
	      (long long)shared_at);
	check_success(MPI_File_get_size(file, &bytes));
	check(bytes == size, "call %d: %lld bytes, not %lld", calls, (long long)bytes,
	      (long long)size);
	MPI_Barrier(comm);
}

/* Advances the file pointers by the requested or by the read bytes. */
static void advance_pointers(struct request *a, enum where where, int r)
{
	struct view *v = &views[r];

	if (where == HERE)
		v->at += (a->writing ? a->bytes : a->got) / v->e.bytes;
	if (where == SHARED)
		shared_at += etypes_of(a, v);
}

static void seek_somewhere(void)
{
	int how = (int)draw(3);

	for (int r = 0; r < ranks; r++) {
		struct request a = { .bytes = 0 };
		struct view *v = &views[r];
		int64_t was = v->at, move;

		draw_place(&a, v);
		v->at = a.at;
		move = v->at - was;
		if (how == 2 && v->f.bytes == 1 && v->f.extent == 1 && v->disp == 0) {
			if (r == rank)
				check_success(MPI_File_seek(file, v->at - size, MPI_SEEK_END));
		} else if (r == rank)
			check_success(MPI_File_seek(file, how == 1 ? move : v->at,
						    how == 1 ? MPI_SEEK_CUR : MPI_SEEK_SET));
	}
	MPI_Barrier(comm);
}

static void seek_shared(void)
{
	struct request a = { .bytes = 0 };
	bool relative = draw(2);
	int64_t was = shared_at;

	draw_place(&a, &views[0]);
	shared_at = a.at;
	check_success(MPI_File_seek_shared(file, relative ? shared_at - was : shared_at,
					   relative ? MPI_SEEK_CUR : MPI_SEEK_SET));
}

static void check_between(void)
{
	MPI_Offset bytes;

	check_success(MPI_File_get_size(file, &bytes));
}

/* Each rank makes one call, or several non-blocking calls. */
static void transfer(void)
{
	static struct request asks[RANKS][MAX_BURST];
	struct flight f[MAX_BURST];
	enum how how = (enum how)draw(5);
	enum where where = (enum where)draw(views_alike ? 3 : 2);
	bool collective = how >= ALL, writing = draw_writing(),
	     in_turns = where == SHARED && !collective;
	int burst = how == NONBLOCKING ? 1 + (int)draw(MAX_BURST) : 1;
	int64_t old_at = shared_at;

	if (how == NONBLOCKING_ALL && where == SHARED)
		how = SPLIT;
	if (where == HERE && draw(2))
		seek_somewhere();
	if (where == SHARED && (draw(2) || shared_at > highest(&views[0], MAX_FILE) / 2))
		seek_shared();
	old_at = shared_at;
	for (int r = 0; r < ranks; r++) {
		int64_t at = views[r].at;

		for (int b = 0; b < burst; b++) {
			struct request *a = &asks[r][b];

			draw_request(a, &views[r], collective ? writing : draw_writing());
			draw_place(a, &views[r]);
			if (where == HERE)
				a->at = at;
			if (where == SHARED)
				a->at = old_at;
			if (!is_in_range(a, &views[r]))
				cancel(a);
			at += etypes_of(a, &views[r]);
			old_at += etypes_of(a, &views[r]);
		}
	}
	if (collective && have_conflict(asks, burst))
		for (int r = 0; r < ranks; r++)
			if (r != calls % ranks)
				cancel(&asks[r][0]);
	/* Ordered calls: each rank continues behind the previous one. */
	if (where == SHARED) {
		old_at = shared_at;
		for (int r = 0; r < ranks; r++)
			for (int b = 0; b < burst; b++) {
				asks[r][b].at = old_at;
				old_at += etypes_of(&asks[r][b], &views[r]);
			}
	}
	in_turns |= !collective && have_conflict(asks, burst);
	for (int r = 0; r < ranks; r++) {
		bool mine = r == rank;

		for (int b = 0; b < burst; b++) {
			struct request *a = &asks[r][b];

			if (where == HERE)
				a->at = views[r].at;
			if (mine) {
				board(&f[b], a);
				f[b].where = where;
				f[b].how = how;
			}
			expect(a, &views[r]);
			if (mine) {
				f[b].a = *a;
				update_model(&f[b], &views[r]);
				if (in_turns)
					start(&f[b]);
			}
			advance_pointers(a, where, r);
		}
		if (in_turns) {
			for (int b = 0; b < burst && mine; b++)
				finish(&f[b]);
			MPI_Barrier(comm);
		}
	}
	if (!in_turns) {
		for (int b = 0; b < burst; b++)
			start(&f[b]);
		if (how == SPLIT && draw(2))
			check_between();
		for (int b = burst - 1; b >= 0; b--)
			finish(&f[b]);
	}
	for (int b = 0; b < burst; b++)
		compare(&f[b]);
	for (int r = 0; r < ranks; r++)
		for (int b = 0; b < burst; b++)
			free_request(&asks[r][b]);
	MPI_Barrier(comm);
}

/* ---- Other calls ---- */

static void change_size(void)
{
	int64_t n = draw(3) ? draw(MAX_FILE) : draw(3) ? size : draw(5000);
	bool shorter = draw(2);

	if (!is_allowed(true))
		return;
	if (verbose && rank == 0)
		printf("call %d: %s %lld, was %lld\n", calls, shorter ? "set_size" : "preallocate",
		       (long long)n, (long long)size);
	if (shorter) {
		check_success(MPI_File_set_size(file, n));
		if (n < size)
			memset(model + n, 0, (size_t)(size - n));
		size = n;
	} else {
		check_success(MPI_File_preallocate(file, n));
		if (n > size)
			size = n;
	}
}

static void read_whole(void)
{
	int64_t from = draw(MAX_FILE), n = draw(MAX_FILE - from + 1),
		got = from >= size    ? 0 :
		      size - from < n ? size - from :
					n;
	unsigned char *m = malloc((size_t)n + 1);
	MPI_Status s;
	int k;

	if (!is_allowed(false) || views[rank].f.bytes != 1 || views[rank].f.extent != 1 ||
	    views[rank].disp != 0 || views[rank].e.bytes != 1) {
		free(m);
		return;
	}
	check_success(MPI_File_read_at(file, from, m, (int)n, MPI_BYTE, &s));
	MPI_Get_count(&s, MPI_BYTE, &k);
	check(k == got);
	for (int64_t i = 0; i < got; i++)
		check(m[i] == model[from + i], "call %d: byte %lld of %lld is %d, not %d", calls,
		      (long long)(from + i), (long long)size, m[i], model[from + i]);
	free(m);
}

static bool kept;

/* Compares the file with the model. */
static void check_contents(void)
{
	struct stat st;
	unsigned char *m;
	int fd;

	if (rank != 0)
		return;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	check(fd >= 0 && fstat(fd, &st) == 0);
	check(st.st_size == size, "call %d: the file has %lld bytes, not %lld", calls,
	      (long long)st.st_size, (long long)size);
	m = malloc((size_t)size + 1);
	check(m && read(fd, m, (size_t)size) == size);
	for (int64_t i = 0; i < size; i++)
		check(m[i] == model[i], "call %d: byte %lld of %lld of the file is %d, not %d",
		      calls, (long long)i, (long long)size, m[i], model[i]);
	free(m);
	close(fd);
}

static void set_byte_views(void)
{
	views_alike = true;
	for (int r = 0; r < ranks; r++) {
		free_type(&views[r].e);
		free_type(&views[r].f);
		set_byte_view(&views[r]);
	}
}

static void set_random(MPI_Info info, const char *name, int n, const char *const *values)
{
	const char *value = values[draw(n)];

	if (value[0])
		MPI_Info_set(info, name, (char *)value);
	if (verbose && rank == 0 && value[0])
		printf("  %s %s\n", name, value);
}

static bool deletes;

static void open_file(void)
{
	static const char *const sizes[] = { "2M", "2100K", "3M", "8M", "" }, *const stripes[] = {
		"", "64K", "128K", "1M", ""
	};
	static const char *const flushes[] = { "1", "close", "2", "" }, *const bools[] = { "true",
											   "false",
											   "" };
	static const char *const durables[] = { "write", "sync", "", "" }, *const closes[] = {
		"keep", "flush", ""
	};
	char near[420], nodes[10], got[300];
	MPI_Info info;
	int kind = (int)draw(8), flag;

	amode = kind == 0 && size ? MPI_MODE_RDONLY :
		kind == 1         ? MPI_MODE_WRONLY | MPI_MODE_CREATE :
				    MPI_MODE_RDWR | MPI_MODE_CREATE;
	if (draw(5) == 0)
		amode |= MPI_MODE_APPEND;
	if (draw(5) == 0)
		amode |= MPI_MODE_UNIQUE_OPEN;
	deletes = false;
	if (draw(8) == 0 && !(amode & MPI_MODE_RDONLY)) {
		amode |= MPI_MODE_DELETE_ON_CLOSE;
		deletes = true;
	}
	MPI_Info_create(&info);
	snprintf(near, sizeof(near), "%s/near", folder);
	snprintf(nodes, sizeof(nodes), "%d", 1 + (int)draw(4));
	setenv("UMMAP_TEST_IOCACHE_NODES", nodes, 1);
	if (verbose && rank == 0)
		printf("call %d: opened with %#x, %s nodes, %lld bytes\n", calls, amode, nodes,
		       (long long)size);
	MPI_Info_set(info, "pmem_path", near);
	set_random(info, "pmem_size", 5, sizes);
	set_random(info, "pmem_stripe", 5, stripes);
	set_random(info, "pmem_flush", 4, flushes);
	set_random(info, "pmem_populate", 3, bools);
	set_random(info, "pmem_durable", 4, durables);
	set_random(info, "pmem_close", 3, closes);
	check_success(MPI_File_open(comm, path, amode, info, &file));
	MPI_Info_free(&info);
	check_success(MPI_File_get_info(file, &info));
	MPI_Info_get(info, "pmem_path", 299, got, &flag);
	check(flag && strcmp(got, near) == 0);
	MPI_Info_get(info, "pmem_close", 299, got, &flag);
	kept = flag && strcmp(got, "keep") == 0;
	check(flag);
	MPI_Info_free(&info);
	set_byte_views();
	shared_at = 0;
	if (amode & MPI_MODE_APPEND) {
		shared_at = size;
		for (int r = 0; r < ranks; r++)
			views[r].at = size;
	}
	check(MPI_File_get_amode(file, &flag) == MPI_SUCCESS && flag == amode);
}

static void close_file(void)
{
	MPI_Barrier(comm);
	check_success(MPI_File_close(&file));
	check(file == MPI_FILE_NULL);
	MPI_Barrier(comm);
	if (deletes) {
		check(access(path, F_OK) != 0);
		memset(model, 0, (size_t)size);
		size = 0;
	} else if (!kept) {
		check_contents();
	}
	MPI_Barrier(comm);
}

static void run_call(void)
{
	int kind = (int)draw(40);

	if (kind == 0)
		change_size();
	else if (kind == 1)
		check_success(MPI_File_sync(file));
	else if (kind == 2) {
		int flag = (int)draw(2), is = -1;

		check_success(MPI_File_set_atomicity(file, flag));
		check(MPI_File_get_atomicity(file, &is) == MPI_SUCCESS && is == flag);
	} else if (kind == 3) {
		close_file();
		open_file();
	} else if (kind < 8)
		set_views();
	else if (kind == 8)
		read_whole();
	else
		transfer();
	if (draw(3) == 0)
		check_positions();
}

int main(int argc, char **argv)
{
	uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
	int most = argc > 2 ? atoi(argv[2]) : 300,
	    from = getenv("MODEL_VERBOSE") ? atoi(getenv("MODEL_VERBOSE")) : 1 << 30;
	char near[420];

	start_mpi(&argc, &argv, MPI_THREAD_SINGLE);
	comm = MPI_COMM_WORLD;
	if (seed % 3 == 0) {
		MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &comm);
		MPI_Comm_rank(comm, &rank);
	}
	snprintf(path, sizeof(path), "%s/file", folder);
	snprintf(near, sizeof(near), "%s/near", folder);
	if (rank == 0)
		check(mkdir(near, 0700) == 0);
	MPI_Barrier(comm);
	setlinebuf(stdout);
	model = calloc(1, MAX_FILE);
	state = seed * 0x9E3779B97F4A7C15ull | 1;
	for (int i = 0; i < 20; i++)
		next();
	verbose = from == 0;
	open_file();
	for (calls = 0; calls < most; calls++) {
		verbose = calls >= from;
		run_call();
	}
	close_file();
	for (int r = 0; r < ranks; r++) {
		free_type(&views[r].e);
		free_type(&views[r].f);
	}
	if (comm != MPI_COMM_WORLD)
		MPI_Comm_free(&comm);
	if (rank == 0)
		printf("seed %llu: all as it should\n", (unsigned long long)seed);
	MPI_Finalize();
	return 0;
}
