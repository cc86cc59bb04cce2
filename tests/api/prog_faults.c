/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Stores that fail: each read, write and flush of a workload fails in turn. A failed load raises
 * SIGBUS and works when it is repeated. A failed write-back is reported once. No byte and no frame
 * is lost. Calls fail once, several times or always, completely or after a part of their bytes; in
 * the first file of the mapping or in the file that it is migrated to; with a driver that is called
 * and with one that takes submissions.
 *
 * All cases take minutes, so the suite runs a sample of them.
 *
 *	prog_faults [all | seed SEED | OP TIMES source|target NTH [posix|uring [SHORT [ahead]]]]
 *
 * OP is read, write or flush; TIMES 0 means always.
 */
#include "common.h"

#define SEG (16 * KIB)
#define SEGS ((size_t)32)
#define SIZE (SEGS * SEG)
#define STRIDE (2 * KIB)  /* distance of the words that the workload uses; other bytes stay */
#define SLOTS (SIZE / STRIDE)
#define OLD 1
#define NOTHING_FIRED 10  /* exit status */
#define NEVER 1000000     /* more calls than a run makes */
#define LANES 4           /* concurrent runs, which mostly wait for storage */

struct job {
	const char *op;
	unsigned times;         /* number of calls that fail; 0: all from the nth on */
	bool in_target;         /* calls to the second file fail */
	unsigned nth;
	const char *driver;
	size_t halfway;         /* bytes that a failing call transfers first */
	bool ahead;             /* sequential access: a failure of readahead is not reported */
	unsigned lane;          /* number of the run, which has its own files */
	/* Fields of the child: */
	uint8_t *base;
	size_t budget;
	int source, backing;    /* descriptors of both files, whose calls do not fail */
	uint64_t shadow[SLOTS]; /* version of each word that was stored */
	unsigned buses, errors; /* number of failures that were reported */
	char source_path[320], count_path[320];
};

/* Calls of the failing kind in the last run, in memory that processes share. */
static unsigned *seen;
/* Number of runs of a sample, and of those runs in which a call failed. */
static unsigned sampled, sampled_failing;

static uint64_t word(size_t slot, uint64_t version)
{
	return (uint64_t)(slot + 1) << 32 | version;
}

static uint64_t *at_slot(uint8_t *base, size_t slot)
{
	return (uint64_t *)(base + slot * STRIDE);
}

/* ---- Loads and stores. They return false if the fault is permanent. ---- */

static bool after_sigbus(struct job *j, size_t slot)
{
	check(bus_info.si_addr == at_slot(j->base, slot), "%p", bus_info.si_addr);
	check(strcmp(j->op, "read") == 0, "only reads fail a load");
	j->buses++;
	check(j->times == 0 || j->buses <= j->times, "%u", j->buses);
	return j->times > 0;
}

static void store(struct job *j, size_t slot)
{
	bool again = true;

	while (again) {
		if (try_store(at_slot(j->base, slot), word(slot, j->shadow[slot] + 1))) {
			j->shadow[slot]++;
			return;
		}
		again = after_sigbus(j, slot);
	}
}

static void load(struct job *j, size_t slot)
{
	bool again = true;
	uint64_t value;

	while (again) {
		if (try_load(at_slot(j->base, slot), &value)) {
			check(value == word(slot, j->shadow[slot]),
			      "slot %zu: %#" PRIx64 ", version %" PRIu64, slot, value,
			      j->shadow[slot]);
			return;
		}
		again = after_sigbus(j, slot);
	}
}

/* Accesses each segment once, sequentially or in large strides. */
static void each_slot(struct job *j, void (*act)(struct job *, size_t), size_t segs)
{
	for (size_t i = 0; i < segs; i++)
		for (size_t k = 0; k < SEG / STRIDE; k++)
			act(j, (j->ahead ? i : (i * 13 + 5) % SEGS) * (SEG / STRIDE) + k);
}

/* ---- Calls, repeated until they succeed. They return false if the fault is permanent. ---- */

static int sync_all(struct job *j)
{
	return umsync(j->base, j->nth % 2);
}

static int migration(struct job *j)
{
	void *base = NULL;

	return umremap(j->base, 0, j->backing, 0, j->nth / 2 % 2 ? UMMAP_SYNC : 0, &base);
}

static int unmap_it(struct job *j)
{
	return umunmap(j->base, 1);
}

static bool repeat_call(struct job *j, int (*call)(struct job *))
{
	for (unsigned tries = 0;; tries++) {
		if (call(j) == 0)
			return true;
		check(errno == EIO);
		check_sentence(EIO, j->op, __FILE__, __LINE__);
		j->errors++;
		if (j->times == 0)
			return false;
		check(tries < j->times, "%u times", tries + 1);
	}
}

/* ---- The workload ---- */

/* Creates both files. The first one has the old data. */
static void make_files(struct job *j)
{
	char name[2][32];

	snprintf(name[0], sizeof(name[0]), "source%u", j->lane);
	snprintf(name[1], sizeof(name[1]), "count%u", j->lane);
	j->source = temp_named(name[0], 0, j->source_path);
	file_fill(j->source, 0, SIZE, 0, OLD);
	for (size_t slot = 0; slot < SLOTS; slot++)
		check(pwrite(j->source, &(uint64_t){ word(slot, 0) }, 8, slot * STRIDE) == 8);
	j->backing = temp_file(0);
	close(temp_named(name[1], 0, j->count_path));
}

static void start(struct job *j)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	char fault[512], times[16] = "always", uri[1024];
	void *base;

	/* A flush that fails loses data that are no longer in memory: see test_doubt.c. */
	j->budget = strcmp(j->op, "flush") == 0 ? 2 * SIZE : j->ahead ? SIZE / 2 : SIZE / 4;
	set_budget(j->budget);
	/* Writes may fail permanently, and the workload has to end. */
	set_env("UMMAP_OVER_BUDGET", "64M");
	set_env("UMMAP_READAHEAD", j->ahead ? "1M" : "0");
	make_files(j);
	if (strcmp(j->driver, "uring") == 0)
		set_env("UMMAP_DIRECT", "always"); /* reads from the page cache are not submitted */
	if (j->times)
		snprintf(times, sizeof(times), "%u", j->times);
	snprintf(fault, sizeof(fault),
		 "?error.op=%s&error.nth=%u&error.times=%s&error.errno=EIO&error.short=%zu"
		 "&error.count=%s",
		 j->op, j->nth, times, j->halfway, j->count_path);
	/* For the descriptor of the second file. */
	snprintf(uri, sizeof(uri), j->in_target ? "error+%s:%s" : "%s:", j->driver, fault);
	set_env("UMMAP_DRIVER", uri);
	snprintf(uri, sizeof(uri), "%s%s:%s%s", j->in_target ? "" : "error+", j->driver,
		 j->source_path, j->in_target ? "" : fault);
	attr.seg_size = SEG;
	attr.ptype = j->nth % (UMMAP_PTYPE_FIFO + 1);
	check(ummap_open(uri, SIZE, 0, READ_WRITE, &attr, &base) == 0, "%s", uri);
	j->base = base;
	catch_sigbus();
}

/* Checks a file after all calls have succeeded in the end. */
static void check_complete(const struct job *j, int fd)
{
	uint8_t *all = file_read(fd, 0, SIZE, __FILE__, __LINE__);

	check(file_size(fd) == SIZE);
	for (size_t slot = 0; slot < SLOTS; slot++) {
		check(*at_slot(all, slot) == word(slot, j->shadow[slot]), "slot %zu", slot);
		check_bytes(all + slot * STRIDE + 8, STRIDE - 8, slot * STRIDE + 8, OLD);
	}
	free(all);
}

/* Checks a file before that: each word has some version that was stored. */
static void check_plausible(const struct job *j, int fd)
{
	for (size_t slot = 0; slot < SLOTS; slot++) {
		uint64_t value;

		check(pread(fd, &value, 8, slot * STRIDE) == 8);
		check(value >> 32 == slot + 1 && (uint32_t)value <= j->shadow[slot], "%#" PRIx64,
		      value);
	}
	check(file_size(fd) == SIZE);
}

static unsigned fired(const struct job *j)
{
	char text[128] = "";
	unsigned n = 0;
	int fd = open(j->count_path, O_RDONLY);

	check(fd >= 0 && read(fd, text, sizeof(text) - 1) >= 0);
	close(fd);
	*seen = 0;
	check(text[0] == 0 || sscanf(text, "seen %u fired %u", seen, &n) == 2, "%s", text);
	return n;
}

/* With a permanent fault, umunmap fails, the mapping keeps its data, and it can be dropped. */
static void drop_mapping(struct job *j)
{
	check(j->times == 0);
	if (strcmp(j->op, "read") != 0)
		each_slot(j, load, SEGS);
	check(stat_of(j->base).resident_bytes <= SIZE);
	check(umunmap(j->base, 0) == 0);
}

/* A dropped mapping leaves nothing behind: another one can use all frames of the budget. */
static void check_frames(const struct job *j)
{
	struct umstat st = stat_of(NULL);
	uint64_t value;
	void *base;

	check(st.mappings == 0);
	check(st.resident_bytes + st.inactive_bytes + st.dirty_bytes + st.pinned_bytes == 0,
	      "%" PRIu64 " resident, %" PRIu64 " inactive, %" PRIu64 " dirty, %" PRIu64 " pinned",
	      st.resident_bytes, st.inactive_bytes, st.dirty_bytes, st.pinned_bytes);
	check(st.held_bytes <= j->budget, "%" PRIu64, st.held_bytes);
	check(ummap_open("null:1G", j->budget, 0, PROT_READ,
			 &(struct ummap_attr){ .struct_size = sizeof(struct ummap_attr),
					       .seg_size = SEG },
			 &base) == 0);
	check(umadvise(base, j->budget, UMMAP_ADV_RANDOM) == 0);
	for (size_t at = 0; at < j->budget; at += SEG)
		check(try_load((uint8_t *)base + at, &value) && value == 0);
	st = stat_of(base);
	check(st.resident_bytes + st.inactive_bytes == j->budget,
	      "%" PRIu64 " resident, %" PRIu64 " inactive", st.resident_bytes, st.inactive_bytes);
	check(umunmap(base, 0) == 0);
}

/*
 * Each failure was reported, and nothing else. Exceptions: a failure of readahead is not reported,
 * and the segments of a write that failed may be written one by one, or by the background thread.
 */
static void check_reports(const struct job *j)
{
	unsigned reports = j->buses + j->errors;
	bool may_be_silent =
		strcmp(j->op, "read") == 0 ?
			j->ahead :
			strcmp(j->op, "write") == 0 && (j->times == 1 || (j->times && j->ahead));

	check(reports >= 1 || may_be_silent);
	check(reports <= 1 || j->times != 1, "%u SIGBUS, %u errors", j->buses, j->errors);
}

static void workload(void *arg)
{
	struct job *j = arg;
	bool carried, complete;

	start(j);
	each_slot(j, store, SEGS);
	each_slot(j, load, SEGS);
	repeat_call(j, sync_all);
	each_slot(j, store, SEGS / 2);
	carried = repeat_call(j, migration);
	if (!carried) {  /* the sync to the first file failed: change without it */
		check(j->nth / 2 % 2);
		each_slot(j, load, SEGS);
		check(umremap(j->base, 0, j->backing, 0, 0, &(void *){ NULL }) == 0);
	}
	each_slot(j, store, SEGS / 4);
	each_slot(j, load, SEGS);
	repeat_call(j, sync_all);
	each_slot(j, store, SEGS / 8);
	complete = repeat_call(j, unmap_it);
	if (complete)
		check_complete(j, j->backing);
	else
		drop_mapping(j);
	check_frames(j);
	check_plausible(j, j->source);
	if (fired(j) == 0) {
		check(j->buses == 0 && j->errors == 0 && complete);
		_exit(NOTHING_FIRED);
	}
	/* A fault of the old file does not block the new one, unless data cannot be read. */
	check(complete || j->in_target || strcmp(j->op, "read") == 0);
	if (j->times)
		check(fired(j) >= 1 && fired(j) <= j->times && complete);
	check_reports(j);
}

/* ---- Runs ---- */

/* Whether a call of the run failed, as intended. */
static bool has_fired(const struct job *job, int status)
{
	if (WIFEXITED(status) && WEXITSTATUS(status) == NOTHING_FIRED)
		return false;
	check(WIFEXITED(status) && WEXITSTATUS(status) == 0,
	      "status %#x; to see it again: prog_faults %s %u %s %u %s %zu %s", status, job->op,
	      job->times, job->in_target ? "target" : "source", job->nth, job->driver, job->halfway,
	      job->ahead ? "ahead" : "");
	return true;
}

/* Starts n runs. Returns in how many of them a call failed. */
static unsigned run_lanes(struct job lanes[], unsigned n)
{
	pid_t child[LANES];
	unsigned failed = 0;

	for (unsigned i = 0; i < n; i++) {
		lanes[i].lane = i;
		child[i] = start_child(workload, &lanes[i]);
	}
	for (unsigned i = 0; i < n; i++)
		failed += has_fired(&lanes[i], wait_child(child[i]));
	return failed;
}

static void tell(const struct job *job, unsigned runs, double begin)
{
	printf("%s%s: %s of %s, %u times after %zu bytes: %u runs, %.1f s\n", job->driver,
	       job->ahead ? ", ahead" : "", job->op, job->in_target ? "target" : "source",
	       job->times, job->halfway, runs, now() - begin);
}

/* Runs the workload until no call fails: each call in turn, or each seventh if several fail. */
static void count_up(const struct job *job)
{
	unsigned step = job->times == 1 || strcmp(job->op, "flush") == 0 ? 1 : 7, nth = 1, some,
		 runs = 0;
	double begin = now();

	do {
		struct job lanes[LANES];

		for (unsigned i = 0; i < LANES; i++, nth += step) {
			lanes[i] = *job;
			lanes[i].nth = nth;
		}
		runs += some = run_lanes(lanes, LANES);
	} while (some > 0);
	tell(job, runs, begin);
	check(runs > 0, "something is there to fail");
}

/* Returns the number of calls of the kind in a run without failures. */
static unsigned calls_of(const struct job *job)
{
	struct job all_well = *job;

	all_well.nth = NEVER;
	*seen = 0;
	/* It depends on timing whether a segment of the target is evicted before its next use. */
	for (int tries = 0; tries < 20 && *seen == 0; tries++)
		check(run_lanes(&all_well, 1) == 0);
	check(*seen > 0, "something is there to fail");
	return *seen;
}

/* Runs the workload for some of the calls. */
static void sample(const struct job *job, unsigned calls, uint64_t *random)
{
	unsigned n = by_time(2, LANES), runs;
	struct job lanes[LANES];
	double begin = now();

	for (unsigned i = 0; i < n; i++) {
		lanes[i] = *job;
		lanes[i].nth = 1 + next_random(random) % calls;
	}
	runs = run_lanes(lanes, n);
	tell(job, runs, begin);
	sampled += n, sampled_failing += runs;
}

static void count_up_each(struct job *job, uint64_t *random)
{
	static const char *const ops[] = { "read", "write", "flush" };
	static const struct { unsigned times; size_t halfway; bool ahead;
	} ways[] = {
		{ 1, 0, false }, { 1, SEG / 2 + 24, false }, { 3, 0, false },
		{ 0, 0, false }, { 0, 24, false },           { 1, 0, true },
		{ 3, 24, true },
	};
	unsigned calls = 0;

	for (int op = 0; op < 3; op++) {
		for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++) {
			job->op = ops[op];
			job->times = ways[i].times;
			job->halfway = ways[i].halfway;
			job->ahead = ways[i].ahead;
			if (job->halfway > 0 && op == 2)
				continue; /* a flush transfers nothing */
			if (!random) {
				count_up(job);
				continue;
			}
			if (i == 0 || ways[i].ahead != ways[i - 1].ahead)
				calls = calls_of(job);
			sample(job, calls, random);
		}
	}
}

/* random NULL: all cases. */
static void run_matrix(uint64_t *random)
{
	static const char *const drivers[] = { "posix", "uring" };
	struct job job = { 0 };

	for (int d = 0; d < 2; d++) {
		job.driver = drivers[d];
		for (int backing = 0; backing <= 1 && (d == 0 || has_driver(job.driver));
		     backing++) {
			job.in_target = backing;
			count_up_each(&job, random);
		}
	}
}

int main(int argc, char **argv)
{
	uint64_t seed = argc == 3 ? strtoull(argv[2], NULL, 0) : (uint64_t)time(NULL);

	setvbuf(stdout, NULL, _IOLBF, 0);
	seen = mmap(NULL, sizeof(*seen), READ_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	check(seen != MAP_FAILED);
	if (argc >= 5) {
		struct job job = { .op = argv[1],
				   .times = atoi(argv[2]),
				   .in_target = strcmp(argv[3], "target") == 0,
				   .nth = atoi(argv[4]),
				   .driver = argc > 5 ? argv[5] : "posix",
				   .halfway = argc > 6 ? atoi(argv[6]) : 0,
				   .ahead = argc > 7 };

		return !has_fired(&job, run_child(workload, &job));
	}
	if (argc < 2 || strcmp(argv[1], "seed") == 0) {
		printf("a sample by seed %" PRIu64 "\n", seed);
		run_matrix(&seed);
		/* The number of calls depends slightly on the call that fails. */
		check(sampled_failing > sampled / 2, "%u of %u", sampled_failing, sampled);
	} else {
		run_matrix(NULL);
	}
	return 0;
}
