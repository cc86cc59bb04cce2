/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * simulation - heat that spreads over a plate. Several processes have a band of rows each. Every
 * five steps, all processes put their bands into one version of an object: the first process begins
 * the version and tells the others its id, each process puts its chunk, and then the first process
 * commits. A reader gets one whole step at any time, even during the simulation or after it was
 * killed; the attribute "step" is its number. (This is the skeleton application of Chien et al.
 * with a computation.)
 *
 *	simulation CONTAINER [PROCESSES [STEPS]]
 *
 *	ummap object ls CONTAINER field
 *	h5dump -d data CONTAINER/h5/field.h5
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <ummap-object.h>
#include <unistd.h>

#define ROWS 256 /* rows of a process */
#define COLUMNS 512
#define STEPS_PER_VERSION 5

/* Memory that all processes share. */
struct plate {
	pthread_barrier_t all;    /* a barrier of all processes */
	struct umobject_id id;    /* the version in progress */
	double (*now)[COLUMNS];   /* the field of the current step */
	double (*next)[COLUMNS];  /* the field of the next step */
};

static unsigned processes = 4, steps = 200;

__attribute__((noreturn))
static void fail(const char *action)
{
	fprintf(stderr, "simulation: cannot %s: %s\n", action, umobject_errormsg());
	/* The other processes would wait for this one. */
	kill(0, SIGTERM);
	exit(1);
}

static void compute(unsigned rank, double (*from)[COLUMNS], double (*to)[COLUMNS])
{
	unsigned first = rank * ROWS, last = first + ROWS, r, c;

	for (r = first ? first : 1; r < last && r < processes * ROWS - 1; r++)
		for (c = 1; c < COLUMNS - 1; c++)
			to[r][c] = from[r][c] + 0.2 * (from[r - 1][c] + from[r + 1][c] +
						       from[r][c - 1] + from[r][c + 1] -
						       4 * from[r][c]);
}

/* Puts the band of a process into the version that the first process has begun. */
static void put_band(umobject_container *c, struct plate *p, unsigned rank,
		     double (*field)[COLUMNS])
{
	umobject_put *put;

	if (umobject_join(c, &p->id, &put) == -1 ||
	    umobject_put_chunk(put, rank, field[rank * ROWS]) == -1 || umobject_put_end(put) == -1)
		fail("put a band");
}

static void put_field(umobject_container *c, struct plate *p, unsigned rank,
		      double (*field)[COLUMNS], unsigned step)
{
	struct umobject_shape shape = {
		.type = UMOBJECT_DOUBLE, .rank = 2,
		.dims = { processes * ROWS, COLUMNS }, .chunk = { ROWS, COLUMNS },
	};
	umobject_put *put = NULL;
	uint64_t version;

	if (rank == 0 && umobject_begin(c, "field", &shape, &put, &p->id) == -1)
		fail("begin a version");
	pthread_barrier_wait(&p->all);
	if (rank > 0)
		put_band(c, p, rank, field);
	else if (umobject_put_chunk(put, 0, field[0]) == -1)
		fail("put a band");
	pthread_barrier_wait(&p->all);
	if (rank > 0)
		return;
	if (umobject_put_attribute(put, "step", &step, sizeof(step)) == -1 ||
	    umobject_commit(put, 0, &version) == -1)
		fail("commit the version");
	/* From now on, a reader of the newest version gets this step. */
	printf("step %u is version %llu\n", step, (unsigned long long)version);
}

static void simulate(const char *container, struct plate *p, unsigned rank)
{
	double (*from)[COLUMNS] = p->now, (*to)[COLUMNS] = p->next, (*was)[COLUMNS];
	umobject_container *c;
	unsigned step;

	/* Each process opens the container itself. */
	if (umobject_open(container, NULL, &c) == -1)
		fail("open the container");
	for (step = 1; step <= steps; step++) {
		compute(rank, from, to);
		pthread_barrier_wait(&p->all);
		was = from;
		from = to;
		to = was;
		if (step % STEPS_PER_VERSION == 0)
			put_field(c, p, rank, from, step);
	}
	umobject_close(c);
}

static struct plate *make_plate(void)
{
	size_t bytes = processes * ROWS * sizeof(double[COLUMNS]);
	char *memory = mmap(NULL, 4096 + 2 * bytes, PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct plate *p = (struct plate *)memory;
	pthread_barrierattr_t attr;

	if (memory == MAP_FAILED) {
		perror("simulation: cannot allocate the plate");
		exit(1);
	}
	pthread_barrierattr_init(&attr);
	pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_barrier_init(&p->all, &attr, processes);
	p->now = (double (*)[COLUMNS])(memory + 4096);
	p->next = (double (*)[COLUMNS])(memory + 4096 + bytes);
	/* The plate is hot in its middle. */
	p->now[processes * ROWS / 2][COLUMNS / 2] = 1000000;
	p->next[processes * ROWS / 2][COLUMNS / 2] = 1000000;
	return p;
}

/* Prints the middle of the newest version, which is in several chunks. */
static void print_middle(umobject_container *c)
{
	uint64_t start[2] = { processes * ROWS / 2 - 2, COLUMNS / 2 - 2 }, count[2] = { 5, 5 };
	double part[5][5];
	unsigned i;

	if (umobject_get(c, "field", start, count, part) == -1)
		fail("read the field");
	for (i = 0; i < 5; i++)
		printf("%10.2f %10.2f %10.2f %10.2f %10.2f\n", part[i][0], part[i][1], part[i][2],
		       part[i][3], part[i][4]);
}

int main(int argc, char **argv)
{
	struct umobject_attr attr = UMOBJECT_ATTR_INIT;
	umobject_container *c;
	struct plate *p;
	unsigned rank;
	int status, failed = 0;

	if (argc > 2)
		processes = (unsigned)atoi(argv[2]);
	if (argc > 3)
		steps = (unsigned)atoi(argv[3]);
	if (argc < 2 || processes < 1 || processes > 256 || steps < STEPS_PER_VERSION) {
		fprintf(stderr, "usage: simulation CONTAINER [PROCESSES [STEPS]]\n");
		return 2;
	}
	setpgid(0, 0);
	attr.flags = UMOBJECT_CREATE;
	attr.keep = 10;
	if (umobject_open(argv[1], &attr, &c) == -1)
		fail("open the container");
	p = make_plate();
	for (rank = 0; rank < processes; rank++) {
		if (fork() == 0) {
			simulate(argv[1], p, rank);
			exit(0);
		}
	}
	while (wait(&status) > 0)
		failed |= status;
	if (!failed)
		print_middle(c);
	umobject_close(c);
	return failed ? 1 : 0;
}
