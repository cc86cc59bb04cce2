/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kmeans - finds the centers of clusters of points:
 *
 *	mpirun -n 4 kmeans -k 5 points.txt -o centers.txt
 *
 * The job runs repeatedly on the same points, each time with the centers of the previous run, until
 * the centers no longer move. A job that was interrupted continues with the run in progress.
 */
#include "program.h"

#include <math.h>

#define MAX_CLUSTERS 1000
#define MAX_DIMENSIONS 100

/* The points of a cluster: those of a task, of a rank, or all. This is the value of a pair, whose
 * key is the number of the cluster. A cluster without points stores its center in place of the
 * sum, because a job that continues knows the center only from here. */
struct sum {
	double count;                 /* number of points */
	double total[MAX_DIMENSIONS]; /* sum of the points; only `dimensions` elements are used */
};

static unsigned clusters = 2, dimensions, max_runs = 100;
static double centers[MAX_CLUSTERS][MAX_DIMENSIONS];
static struct sum sums[MAX_CLUSTERS];

static size_t size_of_sum(void)
{
	return (1 + dimensions) * sizeof(double);
}

static unsigned parse_numbers(const char *p, double point[MAX_DIMENSIONS])
{
	unsigned n = 0;
	char *end;

	for (;; p = end) {
		p += strspn(p, " \t\r");
		if (!*p)
			return n;
		if (n == MAX_DIMENSIONS)
			return 0;
		point[n] = strtod(p, &end);
		if (end == p || !isfinite(point[n++]))
			return 0;
	}
}

/* Returns the number of coordinates in a line; 0: the line has something else, or too many. */
static unsigned parse_point(const char *line, size_t size, double point[MAX_DIMENSIONS])
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
			distance += (point[d] - centers[k][d]) * (point[d] - centers[k][d]);
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

/* Keys are big-endian, because keys are ordered by their bytes. */
static int emit_sums(ummr_job *job)
{
	for (unsigned k = 0; k < clusters; k++) {
		const unsigned char key[2] = { (unsigned char)(k >> 8), (unsigned char)k };

		if (sums[k].count == 0)
			memcpy(sums[k].total, centers[k], sizeof(sums[k].total));
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
		if (parse_point(line, (size_t)(end - line), point.total) != dimensions) {
			fprintf(stderr, "kmeans: cannot use '%s': the line at byte %" PRIu64
				" does not have %u numbers, as the first line has\n",
				task->path, task->offset + (uint64_t)(line - task->data),
				dimensions);
			return -1;
		}
		add(&sums[nearest(point.total)].count, &point.count);
	}
	return emit_sums(job);
}

static int reduce(const struct ummr_bytes *key, struct ummr_value *value,
		  const struct ummr_bytes *other, void *arg)
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

/* Returns a coordinate of the center of a cluster. sum: the elements of a struct sum. */
static double mean_of(const double *sum, unsigned d)
{
	return sum[0] > 0 ? sum[d + 1] / sum[0] : sum[d + 1];
}

static int print(FILE *out, const struct ummr_bytes *key, const struct ummr_bytes *value,
		 void *arg)
{
	const double *sum = value->data;
	int put = fprintf(out, "%.0f", sum[0]);

	(void)key, (void)arg;
	for (unsigned d = 0; put >= 0 && d < dimensions; d++)
		put = fprintf(out, " %.9g", mean_of(sum, d));
	return put < 0 || putc('\n', out) == EOF;
}

/* ---- Initial centers: the first points ---- */

static void read_centers(const char *path)
{
	FILE *in = fopen(path, "r");
	char *line = NULL;
	size_t room = 0;
	ssize_t size;
	unsigned k;

	for (k = 0; in && k < clusters && (size = getline(&line, &room, in)) > 0; k++) {
		size_t length = (size_t)(line[size - 1] == '\n' ? size - 1 : size);
		unsigned n = parse_point(line, length, centers[k]);

		if (k == 0)
			dimensions = n;
		if (n == 0 || n != dimensions)
			break;
	}
	free(line);
	if (!in || ferror(in))
		snprintf(error_message, sizeof(error_message), "cannot read '%s': %s", path,
			 strerror(errno));
	else if (k < clusters)
		snprintf(error_message, sizeof(error_message),
			 "cannot use line %u of '%s' as an initial center: %s", k + 1, path,
			 feof(in) ? "there is no such line"
				  : "it does not have as many numbers as the first line, "
				    "from 1 to 100");
	if (in)
		fclose(in);
}

static void share_centers(void)
{
	MPI_Bcast(&dimensions, 1, MPI_UNSIGNED, 0, MPI_COMM_WORLD);
	MPI_Bcast(centers, sizeof(centers), MPI_BYTE, 0, MPI_COMM_WORLD);
}

static const char *prepare(const struct options *o, struct ummr_config *config)
{
	int rank;

	config->tag = clusters;
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	if (rank == 0)
		read_centers(o->inputs[0]);
	MPI_Bcast(error_message, sizeof(error_message), MPI_CHAR, 0, MPI_COMM_WORLD);
	share_centers();
	return *error_message ? error_message : NULL;
}

/* ---- Runs ---- */

/* Reads the result at rank 0, and sends the new centers to all ranks. A cluster without points
 * keeps its center. *moved: a center has changed. */
static int take_centers(ummr_job *job, bool *moved)
{
	struct ummr_bytes key, value;
	int found;

	*moved = false;
	while ((found = ummr_next(job, &key, &value)) > 0) {
		const unsigned char *k = key.data;
		double *center = centers[k[0] << 8 | k[1]];
		const double *sum = value.data;

		for (unsigned d = 0; d < dimensions; d++) {
			double mean = mean_of(sum, d);

			*moved = *moved || fabs(mean - center[d]) > 1e-9 * fabs(mean);
			center[d] = mean;
		}
	}
	MPI_Bcast(moved, 1, MPI_C_BOOL, 0, MPI_COMM_WORLD);
	share_centers();
	return found;
}

static int run(ummr_job *job)
{
	bool moved = true;

	if (ummr_runs(job) > 0 && take_centers(job, &moved) < 0)
		return -1;
	while (moved && ummr_runs(job) < max_runs)
		if (ummr_run(job) < 0 || take_centers(job, &moved) < 0)
			return -1;
	return 0;
}

static bool set(int letter, const char *value)
{
	size_t n;
	bool good = parse_size(value, &n) && n <= (letter == 'k' ? MAX_CLUSTERS : INT32_MAX);

	if (good)
		*(letter == 'k' ? &clusters : &max_runs) = (unsigned)n;
	return good;
}

int main(int argc, char **argv)
{
	const struct program program = {
		.usage = "[options] FILE|FOLDER ...\n"
			 "\n"
			 "A line of the input is a point: numbers, separated by blanks, the\n"
			 "same number in each line. A line of the result is a cluster: the\n"
			 "number of its points, and the coordinates of its center. The first\n"
			 "points of the first input, a file, are the initial centers.\n"
			 "\n"
			 "Options:\n"
			 "  -k CLUSTERS           number of clusters, 1 to 1000 (2)\n"
			 "  -n RUNS               maximum number of runs (100)\n",
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
