/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kmeans - the centres of clusters of points:
 *
 *	mpirun -n 4 kmeans -k 5 points.txt -o centres.txt
 *
 * The job runs again and again on the same points, each time with the centres that the run before has found, until they stay
 * where they are. If it is interrupted, it goes on with the run that it was in.
 */
#include "program.h"

#include <math.h>

#define MOST_CLUSTERS 1000
#define MOST_DIMENSIONS 100

/* What is known of a cluster: for a task, for a rank, for all points. The value of a pair; its key is the cluster's number. One
 * without points has its centre in place of their sum: a job that goes on has no other memory of where it is. */
struct sum {
	double count;
	double of[MOST_DIMENSIONS]; /* as many as there are dimensions */
};

static unsigned clusters = 2, dimensions, most_runs = 100;
static double centres[MOST_CLUSTERS][MOST_DIMENSIONS];
static struct sum sums[MOST_CLUSTERS];

static size_t size_of_sum(void)
{
	return (1 + dimensions) * sizeof(double);
}

static unsigned parse_numbers(const char *p, double point[MOST_DIMENSIONS])
{
	unsigned n = 0;
	char *end;

	for (;; p = end) {
		p += strspn(p, " \t\r");
		if (!*p)
			return n;
		if (n == MOST_DIMENSIONS)
			return 0;
		point[n] = strtod(p, &end);
		if (end == p || !isfinite(point[n++]))
			return 0;
	}
}

/* The numbers of a line of this size; 0: it has something else, or too many. */
static unsigned parse_point(const char *line, size_t size, double point[MOST_DIMENSIONS])
{
	char *text = strndup(line, size);
	unsigned n = text ? parse_numbers(text, point) : 0;

	free(text);
	return n;
}

static unsigned nearest(const double *point)
{
	unsigned best = 0;
	double least = INFINITY;

	for (unsigned k = 0; k < clusters; k++) {
		double distance = 0;

		for (unsigned d = 0; d < dimensions; d++)
			distance += (point[d] - centres[k][d]) * (point[d] - centres[k][d]);
		if (distance < least) {
			least = distance;
			best = k;
		}
	}
	return best;
}

static void add(double *to, const double *other)
{
	for (unsigned d = 0; d <= dimensions; d++)
		to[d] += other[d];
}

/* Keys are in order of their bytes. */
static int emit_sums(ummr_job *job)
{
	for (unsigned k = 0; k < clusters; k++) {
		const unsigned char key[2] = { (unsigned char)(k >> 8), (unsigned char)k };

		if (sums[k].count == 0)
			memcpy(sums[k].of, centres[k], sizeof(sums[k].of));
		if (ummr_emit(job, key, sizeof(key), &sums[k], size_of_sum()) < 0)
			return -1;
	}
	return 0;
}

static int map(ummr_job *job, const struct ummr_task *task, void *arg)
{
	const char *line = task->data, *stop = line + task->size, *end;
	struct sum point = { .count = 1 };

	(void)arg;
	memset(sums, 0, sizeof(sums));
	for (; line < stop; line = end + 1) {
		end = memchr(line, '\n', (size_t)(stop - line));
		end = end ? end : stop;
		if (parse_point(line, (size_t)(end - line), point.of) != dimensions) {
			fprintf(stderr, "kmeans: %s: the line at byte %" PRIu64 " has no %u numbers, as the first one has\n",
				task->path, task->offset + (uint64_t)(line - task->data), dimensions);
			return -1;
		}
		add(&sums[nearest(point.of)].count, &point.count);
	}
	return emit_sums(job);
}

static int reduce(const struct ummr_bytes *key, struct ummr_value *value, const struct ummr_bytes *other, void *arg)
{
	double *sum = value->data;
	const double *more = other->data;

	(void)key, (void)arg;
	if (sum[0] == 0)
		memcpy(sum, more, size_of_sum());
	else if (more[0] > 0)
		add(sum, more);
	return 0;
}

/* The centre, of what is known of all points. */
static double mean_of(const double *sum, unsigned d)
{
	return sum[0] > 0 ? sum[d + 1] / sum[0] : sum[d + 1];
}

static int print(FILE *out, const struct ummr_bytes *key, const struct ummr_bytes *value, void *arg)
{
	const double *sum = value->data;
	int put = fprintf(out, "%.0f", sum[0]);

	(void)key, (void)arg;
	for (unsigned d = 0; put >= 0 && d < dimensions; d++)
		put = fprintf(out, " %.9g", mean_of(sum, d));
	return put < 0 || putc('\n', out) == EOF;
}

/* ---- The first centres are the first points ---- */

static void read_centres(const char *path)
{
	FILE *in = fopen(path, "r");
	char *line = NULL;
	size_t room = 0;
	ssize_t size;
	unsigned k;

	for (k = 0; in && k < clusters && (size = getline(&line, &room, in)) > 0; k++) {
		unsigned n = parse_point(line, (size_t)(line[size - 1] == '\n' ? size - 1 : size), centres[k]);

		if (k == 0)
			dimensions = n;
		if (n == 0 || n != dimensions)
			break;
	}
	free(line);
	if (!in || ferror(in))
		snprintf(complaint, sizeof(complaint), "%s cannot be read: %s", path, strerror(errno));
	else if (k < clusters)
		snprintf(complaint, sizeof(complaint), "%s: line %u, one of the first centres, %s", path, k + 1,
			 feof(in) ? "is not there" : "does not have as many numbers as the first one, from 1 to 100");
	if (in)
		fclose(in);
}

static void share_centres(void)
{
	MPI_Bcast(&dimensions, 1, MPI_UNSIGNED, 0, MPI_COMM_WORLD);
	MPI_Bcast(centres, sizeof(centres), MPI_BYTE, 0, MPI_COMM_WORLD);
}

static const char *prepare(const struct options *o, struct ummr_config *config)
{
	int rank;

	config->tag = clusters;
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	if (rank == 0)
		read_centres(o->inputs[0]);
	MPI_Bcast(complaint, sizeof(complaint), MPI_CHAR, 0, MPI_COMM_WORLD);
	share_centres();
	return *complaint ? complaint : NULL;
}

/* ---- From run to run ---- */

/* What rank 0 walks all have to know. Clusters without points stay where they are. *moved: others do not. */
static int take_centres(ummr_job *job, bool *moved)
{
	struct ummr_bytes key, value;
	int there;

	*moved = false;
	while ((there = ummr_next(job, &key, &value)) > 0) {
		const unsigned char *k = key.data;
		double *centre = centres[k[0] << 8 | k[1]];
		const double *sum = value.data;

		for (unsigned d = 0; d < dimensions; d++) {
			double mean = mean_of(sum, d);

			*moved = *moved || fabs(mean - centre[d]) > 1e-9 * fabs(mean);
			centre[d] = mean;
		}
	}
	MPI_Bcast(moved, 1, MPI_C_BOOL, 0, MPI_COMM_WORLD);
	share_centres();
	return there;
}

static int run(ummr_job *job)
{
	bool moved = true;

	if (ummr_runs(job) > 0 && take_centres(job, &moved) < 0)
		return -1;
	while (moved && ummr_runs(job) < most_runs)
		if (ummr_run(job) < 0 || take_centres(job, &moved) < 0)
			return -1;
	return 0;
}

static bool set(int letter, const char *value)
{
	size_t n;
	bool good = parse_size(value, &n) && n <= (letter == 'k' ? MOST_CLUSTERS : INT32_MAX);

	if (good)
		*(letter == 'k' ? &clusters : &most_runs) = (unsigned)n;
	return good;
}

int main(int argc, char **argv)
{
	const struct program program = {
		.usage = "[options] FILE|FOLDER ...\n"
			 "\n"
			 "A line of the input is a point: numbers with blanks between, as many in each line. Each\n"
			 "line of the result is a cluster: how many points it has, and where its centre is. The\n"
			 "first points of the first input, a file, are the first centres.\n"
			 "\n"
			 "Options:\n"
			 "  -k CLUSTERS           how many, 1 to 1000 (2)\n"
			 "  -n RUNS               no more than so many, if centres still move (100)\n",
		.letters = "k:n:",
		.set = set,
		.prepare = prepare,
		.run = run,
		.print = print,
	};
	struct ummr_config config = UMMR_CONFIG_INIT;

	config.map = map;
	config.reduce = reduce;
	return run_program(&program, &config, argc, argv);
}
