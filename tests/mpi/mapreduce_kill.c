/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mapreduce_kill - a MapReduce job whose ranks are killed. mapreduce_kill.sh runs it:
 *
 *	mapreduce_kill FOLDER FORM TIME		continues the job, and kills all ranks after TIME ms
 *	mapreduce_kill FOLDER FORM never	completes the job
 *
 * The result must be that of an uninterrupted job. FORM is one of:
 *
 *	sums	numbers are added up by key
 *	groups	numbers are added up by reduce_all, with a table that is too small
 *	runs	three runs, whose factor follows from the result of the previous run
 */
#include "common.h"

#include <ummap-mapreduce.h>

#define KEYS 500
#define RECORDS 40000
#define TASKS 40
#define RUNS 3

struct record {
	uint32_t key, number;
};

static uint64_t factor = 1;

static void make_records(struct record *records)
{
	uint64_t seed = 7;

	for (size_t i = 0; i < RECORDS; i++) {
		seed = seed * 6364136223846793005u + 1442695040888963407u;
		records[i].key = i % 2 ? (uint32_t)(seed >> 33) % KEYS : 7;
		records[i].number = (uint32_t)(seed >> 40) + 1;
	}
}

/* The file is made only once, because the input of a continued job may not change. */
static void make_input(const struct record *records, char *path)
{
	char unfinished[400];
	FILE *f;

	snprintf(path, 400, "%s/input", folder);
	snprintf(unfinished, sizeof(unfinished), "%s/unfinished", folder);
	if (rank == 0 && access(path, F_OK) != 0) {
		f = fopen(unfinished, "w");
		check(f && fwrite(records, sizeof(*records), RECORDS, f) == RECORDS &&
		      fclose(f) == 0);
		check(rename(unfinished, path) == 0);
	}
	MPI_Barrier(MPI_COMM_WORLD);
}

/* Each task takes a few milliseconds, so that kills hit the phase Map. */
static int map_records(ummr_job *job, const struct ummr_task *task, void *arg)
{
	(void)arg;
	for (size_t at = 0; at < task->size; at += sizeof(struct record)) {
		struct record r;
		uint64_t number;

		memcpy(&r, task->data + at, sizeof(r));
		number = r.number * factor;
		if (ummr_emit(job, &r.key, sizeof(r.key), &number, sizeof(number)) < 0)
			return -1;
	}
	usleep(2000);
	return 0;
}

static int add_number(const struct ummr_bytes *key, struct ummr_value *value,
		      const struct ummr_bytes *other, void *arg)
{
	(void)key, (void)arg;
	*(uint64_t *)value->data += *(const uint64_t *)other->data;
	return 0;
}

static int add_all_numbers(ummr_job *job, const struct ummr_bytes *key, ummr_values *values,
			   void *arg)
{
	struct ummr_bytes value;
	uint64_t sum = 0;

	(void)key, (void)arg;
	while (ummr_next_value(values, &value) > 0)
		sum += *(const uint64_t *)value.data;
	return ummr_put(job, &sum, sizeof(sum));
}

/* Phases after Map take some time, so that kills hit them. */
static void delay_phase(const struct ummr_progress *progress, void *arg)
{
	(void)arg;
	if (progress->phase != UMMR_PHASE_MAP)
		usleep(3000);
}

/* ---- Killing ---- */

static pid_t pids[64];
static unsigned delay;

static void *kill_ranks(void *unused)
{
	(void)unused;
	pause_ms(delay);
	for (int i = 0; i < ranks; i++)
		if (i != rank)
			kill(pids[i], SIGKILL);
	kill(getpid(), SIGKILL);
	return NULL;
}

static void start_killer(const char *ms)
{
	pthread_t thread;
	pid_t mine = getpid();

	delay = (unsigned)atoi(ms);
	MPI_Allgather(&mine, sizeof(mine), MPI_BYTE, pids, sizeof(mine), MPI_BYTE, MPI_COMM_WORLD);
	if (rank == ranks - 1)
		check(pthread_create(&thread, NULL, kill_ranks, NULL) == 0);
}

/* ---- Results ---- */

/* Reads the result at rank 0. Each key must come once. */
static void read_sums(ummr_job *job, uint64_t sums[KEYS])
{
	struct ummr_bytes key, value;

	memset(sums, 0, KEYS * sizeof(*sums));
	while (ummr_next(job, &key, &value) > 0) {
		uint32_t k = *(const uint32_t *)key.data;

		check(key.size == 4 && k < KEYS && value.size == 8 && sums[k] == 0);
		sums[k] = *(const uint64_t *)value.data;
	}
}

static void check_sums(const struct record *records, const uint64_t found[KEYS])
{
	uint64_t sums[KEYS] = { 0 };

	for (size_t i = 0; i < RECORDS; i++)
		sums[records[i].key] += records[i].number * factor;
	for (int i = 0; rank == 0 && i < KEYS; i++)
		check(found[i] == sums[i], "key %d: %" PRIu64 ", not %" PRIu64, i, found[i],
		      sums[i]);
}

/* Sets the factor of the next run. */
static void set_factor(const uint64_t sums[KEYS])
{
	factor = sums[7] % 1000 + 2;
	MPI_Bcast(&factor, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
}

static void run_job(ummr_job *job, const struct record *records, uint64_t runs)
{
	uint64_t sums[KEYS];

	if (ummr_runs(job) > 0) {
		read_sums(job, sums);
		set_factor(sums);
	}
	while (ummr_runs(job) < runs) {
		uint64_t before = ummr_runs(job);

		check(ummr_run(job) == 0, "%s", ummr_error());
		check(ummr_runs(job) == before + 1);
		read_sums(job, sums);
		check_sums(records, sums);
		set_factor(sums);
	}
}

int main(int argc, char **argv)
{
	static struct record records[RECORDS];
	struct ummr_config c = UMMR_CONFIG_INIT;
	char input[400];
	const char *inputs[] = { input, NULL };
	bool groups;
	double begun;
	ummr_job *job;

	set_budget(MIB);
	set_env("UMMAP_SEG_SIZE", "64K");
	check(argc == 4, "mapreduce_kill.sh runs this");
	start_mpi(&argc, &argv, MPI_THREAD_SINGLE);
	snprintf(folder, sizeof(folder), "%s", argv[1]);
	groups = strncmp(argv[2], "groups", 6) == 0;
	make_records(records);
	make_input(records, input);
	c.inputs = inputs;
	c.split = UMMR_SPLIT_FIXED;
	c.record_size = sizeof(struct record);
	c.map = map_records;
	c.reduce = groups ? NULL : add_number;
	c.reduce_all = groups ? add_all_numbers : NULL;
	c.progress = delay_phase;
	c.task_size = sizeof(records) / TASKS;
	c.bucket_size = 20000;
	c.table_size = groups ? 30000 : 0;
	c.storage = folder;
	c.sync_tasks = 1;
	begun = MPI_Wtime();
	if (strcmp(argv[3], "never") != 0)
		start_killer(argv[3]);
	check(ummr_create(MPI_COMM_WORLD, &c, &job) == 0, "%s", ummr_error());
	run_job(job, records, strncmp(argv[2], "runs", 4) == 0 ? RUNS : 1);
	check(ummr_end(job) == 0);
	if (rank == 0)
		printf("complete after %.0f ms\n", (MPI_Wtime() - begun) * 1000);
	MPI_Finalize();
	return 0;
}
