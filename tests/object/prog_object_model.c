/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * prog_object_model - arrays of random shapes, types and chunks are put whole, in chunks, and from
 * older versions. Parts of them are read as boxes and as bytes, and compared with a copy in memory.
 * At the end the collector finds all garbage. Argument: number of rounds.
 */
#include "object.h"

#define NAMES 4
#define KEEP 3
#define BYTES (3 * MIB)

struct shadow {
	bool there;
	struct umobject_shape shape;
	uint64_t version, bytes;
	uint8_t *data;
};

static struct shadow shadows[NAMES];
static const char *const names[NAMES] = { "plain", "with/slash and \xce\xb1", ".hidden",
	"../escape" };
static uint64_t seed = 1;

static uint64_t below(uint64_t n)
{
	return next_random(&seed) % n;
}

/* Makes a shape of at most BYTES bytes, in at most a few hundred chunks. */
static struct umobject_shape any_shape(void)
{
	struct umobject_shape s = { .type = (enum umobject_type)(1 + below(UMOBJECT_LDOUBLE)),
		.rank = (unsigned)below(6) };
	uint64_t room = BYTES / umobject_type_size(s.type);

	for (unsigned d = 0; d < s.rank; d++) {
		uint64_t most = d + 1 == s.rank || below(3) == 0 ? room : room < 40 ? room : 40;

		s.dims[d] = 1 + below(most);
		room = room / s.dims[d] ? room / s.dims[d] : 1;
		s.chunk[d] = below(4) ? s.dims[d] / (1 + below(3)) + 1 : 0;
	}
	return s;
}

static uint64_t bytes_of(const struct umobject_shape *s)
{
	uint64_t bytes = umobject_type_size(s->type);

	for (unsigned d = 0; d < s->rank; d++)
		bytes *= s->dims[d];
	return bytes;
}

/* Copies element by element, which is slow and simple. */
static uint64_t offset_of(const struct umobject_shape *s, const uint64_t *start, const uint64_t *at)
{
	uint64_t off = 0;

	for (unsigned d = 0; d < s->rank; d++)
		off = off * s->dims[d] + start[d] + at[d];
	return off * umobject_type_size(s->type);
}

static bool next_element(const struct umobject_shape *s, const uint64_t *count, uint64_t *at)
{
	for (unsigned d = s->rank; d-- > 0;) {
		if (++at[d] < count[d])
			return true;
		at[d] = 0;
	}
	return false;
}

static void copy_box(const struct shadow *s, const uint64_t *start, const uint64_t *count,
		     uint8_t *box, bool in)
{
	size_t size = umobject_type_size(s->shape.type);
	uint64_t at[UMOBJECT_RANK_MAX] = { 0 };

	do {
		uint8_t *element = s->data + offset_of(&s->shape, start, at);

		if (in)
			memcpy(element, box, size);
		else
			memcpy(box, element, size);
		box += size;
	} while (next_element(&s->shape, count, at));
}

static void put_whole(umobject_container *c, unsigned i)
{
	struct shadow *s = &shadows[i];

	s->version = s->there ? s->version + 1 : 1;
	s->there = true;
	s->shape = any_shape();
	s->bytes = bytes_of(&s->shape);
	free(s->data);
	s->data = malloc(s->bytes);
	fill(s->data, s->bytes, 0, below(1000));
	good(umobject_put_array(c, names[i], &s->shape, s->data));
}

/* Some chunks change through two handles, one of which has joined the put. */
static void put_some(umobject_container *c, unsigned i)
{
	struct shadow *s = &shadows[i];
	uint64_t start[UMOBJECT_RANK_MAX], count[UMOBJECT_RANK_MAX],
		n = umobject_chunks(&s->shape), version;
	umobject_version *v;
	umobject_put *p, *other;
	struct umobject_id id;

	good(umobject_hold(c, names[i], 0, &v));
	good(umobject_begin_from(v, &p, &id));
	good(umobject_join(c, &id, &other));
	for (unsigned k = 0; k < 4; k++) {
		uint64_t number = below(n), elements = umobject_chunk(&s->shape, number, start,
								      count);
		uint64_t bytes = elements * umobject_type_size(s->shape.type);
		uint8_t *chunk = malloc(bytes);

		fill(chunk, bytes, 0, below(1000));
		good(umobject_put_chunk(k % 2 ? p : other, number, chunk));
		copy_box(s, start, count, chunk, true);
		free(chunk);
	}
	good(umobject_put_end(other));
	good(umobject_put_attribute(p, "round", &seed, sizeof(seed)));
	good(umobject_commit(p, 0, &version));
	s->version++;
	check(version == s->version, "%" PRIu64 ", not %" PRIu64, version, s->version);
	umobject_release(v);
}

static void read_boxes(umobject_version *v, const struct shadow *s)
{
	uint64_t start[UMOBJECT_RANK_MAX], count[UMOBJECT_RANK_MAX];
	uint8_t *got = malloc(s->bytes), *wanted = malloc(s->bytes);

	for (unsigned k = 0; k < 3; k++) {
		uint64_t bytes = umobject_type_size(s->shape.type);

		for (unsigned d = 0; d < s->shape.rank; d++) {
			start[d] = below(s->shape.dims[d]);
			count[d] = 1 + below(s->shape.dims[d] - start[d]);
			bytes *= count[d];
		}
		copy_box(s, start, count, wanted, false);
		good(umobject_read(v, start, count, got));
		check(memcmp(got, wanted, bytes) == 0);
	}
	good(umobject_read(v, NULL, NULL, got));
	check(memcmp(got, s->data, s->bytes) == 0);
	free(got);
	free(wanted);
}

static void read_bytes(umobject_version *v, const struct shadow *s)
{
	for (unsigned k = 0; k < 4; k++) {
		uint64_t off = below(s->bytes + 10), len = below(k % 2 ? 100 : s->bytes + 10);
		uint8_t *got = malloc(len + 1);

		good(umobject_read_bytes(v, got, len, off));
		for (uint64_t j = 0; j < len; j++)
			check(got[j] == (off + j < s->bytes ? s->data[off + j] : 0), "byte %"
			      PRIu64 " of %" PRIu64, off + j, s->bytes);
		free(got);
	}
}

static void read_some(umobject_container *c, unsigned i)
{
	const struct shadow *s = &shadows[i];
	umobject_version *v;
	struct umobject_stat st;

	good(umobject_hold(c, names[i], 0, &v));
	st = stat_held(v);
	check(st.version == s->version && st.bytes == s->bytes && st.shape.rank == s->shape.rank &&
	      strcmp(st.name, names[i]) == 0);
	check(umobject_check(v, NULL, NULL) == 0);
	read_boxes(v, s);
	read_bytes(v, s);
	umobject_release(v);
}

static int count_version(void *n, uint64_t version)
{
	(void)version;
	++*(unsigned *)n;
	return 0;
}

static int find_name(void *found, const char *name)
{
	unsigned *mask = found;

	for (unsigned i = 0; i < NAMES; i++)
		if (strcmp(name, names[i]) == 0)
			*mask |= 1u << i;
	return 0;
}

static void check_names(umobject_container *c)
{
	unsigned mask = 0;

	good(umobject_list(c, find_name, &mask));
	for (unsigned i = 0; i < NAMES; i++) {
		unsigned n = 0;

		check(shadows[i].there == !!(mask & 1u << i), "%s", names[i]);
		if (!shadows[i].there)
			continue;
		good(umobject_versions(c, names[i], count_version, &n));
		check(n == (shadows[i].version < KEEP ? shadows[i].version : KEEP), "%u versions "
		      "of %s", n, names[i]);
	}
}

static void remove_name(umobject_container *c, unsigned i)
{
	good(umobject_delete(c, names[i]));
	shadows[i].there = false;
	refused(umobject_get(c, names[i], NULL, NULL, NULL), ENOENT, names[i]);
}

static void run_step(umobject_container *c, unsigned i)
{
	switch (below(8)) {
	case 0: case 1:
		put_whole(c, i);
		break;
	case 2: case 3: case 4:
		if (shadows[i].there)
			put_some(c, i);
		break;
	case 5:
		if (shadows[i].there && below(4) == 0)
			remove_name(c, i);
		break;
	case 6:
		good(umobject_gc(c, NULL));
		break;
	}
	if (shadows[i].there)
		read_some(c, i);
}

static void run_model(unsigned rounds)
{
	umobject_container *c = new_box(KEEP);

	for (unsigned r = 0; r < rounds; r++)
		run_step(c, (unsigned)below(NAMES));
	check_names(c);
	for (unsigned i = 0; i < NAMES; i++)
		if (shadows[i].there)
			remove_name(c, i);
	good(umobject_gc(c, NULL));
	check(count_stored(CHUNKS) == 0 && count_stored(VERSIONS) == 0 && count_stored(VIEWS) == 0);
	umobject_close(c);
}

int main(int argc, char **argv)
{
	unsigned rounds = argc > 1 ? (unsigned)atoi(argv[1]) : by_time(50, 3000);

	if (!getenv("UMMAP_DRIVER_PATH"))
		set_env("UMMAP_DRIVER_PATH", OBJECT_PLUGINS ":" OBJECT_TEST_PLUGINS);
	run_model(rounds);
	if (test_folders()) {
		set_env("OBJECT_STORE", "memory:test/");
		run_model(rounds);
	}
	return 0;
}
