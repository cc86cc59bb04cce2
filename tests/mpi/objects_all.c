/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * objects_all - collective puts and gets of arrays with random shapes and chunks, in which each
 * rank has a random block. Every element must be at its place in the memory of every rank. Invalid
 * calls fail at all ranks and have no visible effect.
 */
#include "common.h"

#include <sys/resource.h>
#include <ummap-object-mpi.h>

#define ROUNDS ((int)by_time(40, 600))
#define check_success(call) check((call) == 0, "%s", umobject_errormsg())
#define check_refused(call, error, words) \
	do { \
		check((call) == -1 && errno == (error), "%s: errno %d, %s", #call, errno, \
		      umobject_errormsg()); \
		check(strstr(umobject_errormsg(), words), "%s: \"%s\" says nothing of \"%s\"", \
		      #call, umobject_errormsg(), words); \
	} while (0)

struct block {
	uint64_t start[UMOBJECT_RANK_MAX], count[UMOBJECT_RANK_MAX];
};

static umobject_container *box;
static uint64_t random_state; /* equal at all ranks */

static uint64_t draw(uint64_t n)
{
	return next_random(&random_state) % n;
}

static struct umobject_shape random_shape(void)
{
	struct umobject_shape s = { .type = draw(2) ? UMOBJECT_INT64 : UMOBJECT_INT32,
				    .rank = 1 + (unsigned)draw(4) };
	const uint64_t most[] = { 0, 5000, 90, 24, 11 };

	for (unsigned d = 0; d < s.rank; d++) {
		s.dims[d] = 1 + draw(most[s.rank]);
		s.chunk[d] = draw(4) ? 1 + draw(s.dims[d]) : 0;
	}
	return s;
}

static uint64_t elements_of(unsigned dims, const struct block *b)
{
	uint64_t n = 1;

	for (unsigned d = 0; d < dims; d++)
		n *= b->count[d];
	return n;
}

/* Divides the array into a block for each rank by repeated cuts. Some blocks are empty. */
static void cut(const struct umobject_shape *s, struct block b, int first, int n, struct block *all)
{
	unsigned d = (unsigned)draw(s->rank);
	struct block other = b;
	uint64_t at;
	int half = n / 2;

	if (n == 1) {
		all[first] = b;
		return;
	}
	at = draw(b.count[d] + 1);
	b.count[d] = at;
	other.start[d] += at;
	other.count[d] -= at;
	cut(s, b, first, half, all);
	cut(s, other, first + half, n - half, all);
}

static int64_t value_at(const struct umobject_shape *s, const uint64_t *at, int version)
{
	uint64_t n = 0;

	for (unsigned d = 0; d < s->rank; d++)
		n = n * s->dims[d] + at[d];
	return (int64_t)(n % 1000003) * 7 + version;
}

/* Stores or checks the elements of a block. */
static void visit(const struct umobject_shape *s, const struct block *b, void *data, int version,
		  bool write)
{
	uint64_t at[UMOBJECT_RANK_MAX], n = elements_of(s->rank, b);

	memcpy(at, b->start, sizeof(at));
	for (uint64_t i = 0; i < n; i++) {
		int64_t value = value_at(s, at, version), got;

		if (s->type == UMOBJECT_INT64 && write)
			((int64_t *)data)[i] = value;
		else if (write)
			((int32_t *)data)[i] = (int32_t)value;
		got = s->type == UMOBJECT_INT64 ? ((int64_t *)data)[i] : ((int32_t *)data)[i];
		check(got == value, "element %" PRIu64 " is %" PRId64 ", not %" PRId64, i, got,
		      value);
		for (unsigned d = s->rank; d-- > 0;) {
			if (++at[d] < b->start[d] + b->count[d])
				break;
			at[d] = b->start[d];
		}
	}
}

static void *room_for(const struct umobject_shape *s, const struct block *b)
{
	return calloc(elements_of(s->rank, b) + 1, umobject_type_size(s->type));
}

static struct block random_block(const struct umobject_shape *s)
{
	struct block b = { { 0 }, { 0 } };

	for (unsigned d = 0; d < s->rank; d++) {
		b.start[d] = draw(s->dims[d]);
		b.count[d] = draw(s->dims[d] - b.start[d] + 1);
	}
	return b;
}

static void one(int round)
{
	struct umobject_shape s = random_shape();
	struct block whole = { { 0 }, { 0 } }, all[64], b;
	char name[32];
	void *data;

	snprintf(name, sizeof(name), "array%d", round % 5);
	memcpy(whole.count, s.dims, sizeof(whole.count));
	cut(&s, whole, 0, ranks, all);
	data = room_for(&s, &all[rank]);
	visit(&s, &all[rank], data, round, true);
	check_success(umobject_put_all(MPI_COMM_WORLD, box, name, &s, all[rank].start,
				       all[rank].count, data));
	free(data);
	/* Each rank draws the blocks of all ranks, so that all random numbers stay equal. */
	for (int i = 0; i < ranks; i++)
		all[i] = random_block(&s);
	b = all[rank];
	data = room_for(&s, &b);
	check_success(umobject_get_all(MPI_COMM_WORLD, box, name, 0, b.start, b.count, data));
	visit(&s, &b, data, round, false);
	free(data);
	if (rank == 0) {
		data = room_for(&s, &whole);
		check_success(umobject_get(box, name, NULL, NULL, data));
		visit(&s, &whole, data, round, false);
		free(data);
	}
	MPI_Barrier(MPI_COMM_WORLD);
}

/* A put in several steps, with an attribute, and a get of a version by its number. */
static void test_steps(void)
{
	struct umobject_shape s = {
		.type = UMOBJECT_INT32, .rank = 2, .dims = { 8, 8 }, .chunk = { 3, 3 }
	};
	uint64_t start[] = { (uint64_t)(8 * rank / ranks), 0 },
		 count[] = { (uint64_t)(8 * (rank + 1) / ranks) - start[0], 8 };
	struct block b = { .start = { start[0] }, .count = { count[0], 8 } };
	int32_t data[64];
	uint64_t version;
	umobject_version *held;
	umobject_put *put;
	size_t size;

	for (int i = 1; i <= 2; i++) {
		visit(&s, &b, data, i, true);
		check_success(umobject_begin_all(MPI_COMM_WORLD, box, "steps", &s, &put));
		check_success(umobject_put_blocks(MPI_COMM_WORLD, put, &s, start, count, data));
		if (rank == 0)
			check_success(umobject_put_attribute(put, "step", &i, sizeof(i)));
		check_success(umobject_commit_all(MPI_COMM_WORLD, put, 0, &version));
		check(version == (uint64_t)i);
	}
	memset(data, 0, sizeof(data));
	check_success(umobject_get_all(MPI_COMM_WORLD, box, "steps", 1, start, count, data));
	visit(&s, &b, data, 1, false);
	check_success(umobject_hold(box, "steps", 0, &held));
	check(*(const int *)umobject_attribute(held, "step", &size) == 2);
	umobject_release(held);
}

/* An array without dimensions has one element, which rank 0 has. */
static void test_scalar(void)
{
	struct umobject_shape s = { .type = UMOBJECT_DOUBLE };
	double x = rank == 0 ? 2.5 : -1, got = 0;
	uint64_t one_of = 1;

	check_success(umobject_put_all(MPI_COMM_WORLD, box, "scalar", &s, NULL, NULL, &x));
	check_success(
		umobject_get_all(MPI_COMM_WORLD, box, "scalar", 0, &one_of, &one_of, &got));
	check(got == 2.5);
}

static int count_name(void *arg, const char *name)
{
	*(int *)arg += strncmp(name, "bad", 3) == 0;
	return 0;
}

static void test_invalid_calls(void)
{
	struct umobject_shape s = { .type = UMOBJECT_INT32,
				    .rank = 1,
				    .dims = { 1000 },
				    .chunk = { 300 } },
			      other = s, none = s;
	uint64_t start = 1000 * (uint64_t)rank / (uint64_t)ranks,
		 count = 1000 * ((uint64_t)rank + 1) / (uint64_t)ranks - start, more = count + 1;
	int32_t *data = calloc(1100, sizeof(*data)), names = 0;
	umobject_put *put;
	struct rlimit was, small;

	if (ranks > 1) {
		other.dims[0] = 1000 + (uint64_t)rank;
		check_refused(umobject_put_all(MPI_COMM_WORLD, box, "bad", &other,
					       &start, &count, data),
			      EINVAL, "differs from that of rank 0");
		check_refused(umobject_put_all(MPI_COMM_WORLD, box, rank ? "bad1" : "bad0", &s,
					       &start, &count, data),
			      EINVAL, "differs from");
		check_refused(umobject_put_all(MPI_COMM_WORLD, box, "bad", &s,
					       &start, rank ? &count : &more, data),
			      EINVAL, "in common");
	}
	check_refused(umobject_put_all(MPI_COMM_WORLD, box, "bad", &s, &start,
				       rank < ranks - 1 ? &count : &more, data),
		      EINVAL, "not within it");
	check_refused(umobject_put_all(MPI_COMM_WORLD, box, "bad", &s, &start,
				       rank ? &count : NULL, data),
		      EINVAL, "the blocks of all ranks");
	check_refused(umobject_put_all(MPI_COMM_WORLD, box, "bad", &s, &start,
				       &count, rank == ranks - 1 ? NULL : data),
		      EINVAL, "data is NULL");
	check_refused(umobject_put_all(MPI_COMM_WORLD, box, NULL, &s, &start, &count, data), EINVAL,
		      "is NULL");
	/* The last rank continues with other arguments. */
	check_success(umobject_begin_all(MPI_COMM_WORLD, box, "bad", &s, &put));
	none.chunk[0] = 200;
	check_refused(umobject_put_blocks(MPI_COMM_WORLD, put, rank == ranks - 1 ? &none : &s,
					  &start, &count, data),
		      EINVAL, "the put began");
	none.dims[0] = 0;
	check_refused(umobject_put_all(MPI_COMM_WORLD, box, "bad", &none, &start,
				       &count, data),
		      EINVAL, "rank 0");
	check_refused(umobject_get_all(MPI_COMM_WORLD, box, "bad", 0, &start, &count,
				       data),
		      ENOENT, "rank 0");
	/* The storage of the last rank is full. */
	s.dims[0] = 100000;
	s.chunk[0] = 30000;
	start = 100000 * (uint64_t)rank / (uint64_t)ranks;
	count = 100000 * ((uint64_t)rank + 1) / (uint64_t)ranks - start;
	data = realloc(data, count * sizeof(*data));
	memset(data, 1, count * sizeof(*data));
	signal(SIGXFSZ, SIG_IGN);
	getrlimit(RLIMIT_FSIZE, &was);
	small = was;
	small.rlim_cur = 8 * KIB;
	if (rank == ranks - 1)
		check(setrlimit(RLIMIT_FSIZE, &small) == 0);
	check(umobject_put_all(MPI_COMM_WORLD, box, "bad", &s, &start, &count,
			       data) == -1);
	check(strstr(umobject_errormsg(), "rank "), "%s", umobject_errormsg());
	if (rank == ranks - 1)
		check(setrlimit(RLIMIT_FSIZE, &was) == 0);
	check_success(umobject_list(box, count_name, &names));
	check(names == 0, "%d", names);
	MPI_Barrier(MPI_COMM_WORLD);
	check_success(
		umobject_put_all(MPI_COMM_WORLD, box, "good", &s, &start, &count, data));
	check_success(umobject_get_all(MPI_COMM_WORLD, box, "good", 0, NULL, NULL, NULL));
	free(data);
}

int main(int argc, char **argv)
{
	struct umobject_attr attr = UMOBJECT_ATTR_INIT;
	char path[400];

	start_mpi(&argc, &argv, MPI_THREAD_SINGLE);
	snprintf(path, sizeof(path), "%s/box", folder);
	attr.flags = UMOBJECT_CREATE;
	attr.keep = 2;
	if (rank == 0) {
		check_success(umobject_open(path, &attr, &box));
		umobject_close(box);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	check_success(umobject_open(path, NULL, &box));
	random_state = 1;
	for (int i = 0; i < ROUNDS; i++)
		one(i);
	test_steps();
	test_scalar();
	test_invalid_calls();
	umobject_close(box);
	MPI_Finalize();
	return 0;
}
