/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * prog_faults - storage that fails: every read, write and flush of a workload in turn, until there is none
 * left to fail. A failed load is a SIGBUS, and works when tried again; a failed write-back is reported once;
 * no byte is lost. Once, some times and always; in the mapping's first file and in the one it is carried to.
 *
 *	prog_faults [read|write|flush TIMES(0: always) source|target NTH]
 */
#include "common.h"

#define SEG (16 * KIB)
#define SEGS ((size_t)32)
#define SIZE (SEGS * SEG)
#define BUDGET (SIZE / 4)
#define STRIDE (2 * KIB)  /* between the words that the workload uses; the bytes between them stay */
#define SLOTS (SIZE / STRIDE)
#define OLD 1
#define NOTHING_FIRED 10  /* exit status */

struct job {
	const char *op;
	unsigned times;         /* how many calls fail; 0: all from the nth on */
	bool in_target;         /* it is the second file that fails */
	unsigned nth;
	/* of the child: */
	uint8_t *base;
	int source, target;     /* descriptors that do not fail */
	uint64_t shadow[SLOTS]; /* version of each word that was stored */
	unsigned buses, errors; /* failures that were reported */
	char source_path[320], count_path[320];
};

static uint64_t word(size_t slot, uint64_t version)
{
	return (uint64_t)(slot + 1) << 32 | version;
}

static uint64_t *at_slot(uint8_t *base, size_t slot)
{
	return (uint64_t *)(base + slot * STRIDE);
}

/* ---- Loads and stores. With a fault that goes away they succeed in the end; false: it stays. ---- */

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
			check(value == word(slot, j->shadow[slot]), "slot %zu: %#" PRIx64 ", version %" PRIu64,
			      slot, value, j->shadow[slot]);
			return;
		}
		again = after_sigbus(j, slot);
	}
}

/* Each segment once, far from in order. */
static void each_slot(struct job *j, void (*act)(struct job *, size_t), size_t segs)
{
	for (size_t i = 0; i < segs; i++)
		for (size_t k = 0; k < SEG / STRIDE; k++)
			act(j, (i * 13 + 5) % SEGS * (SEG / STRIDE) + k);
}

/* ---- Calls, tried until they succeed; false: the fault stays. ---- */

static int sync_all(struct job *j)
{
	return umsync(j->base, j->nth % 2);
}

static int carry(struct job *j)
{
	void *base = NULL;

	return umremap(j->base, 0, j->target, 0, j->nth / 2 % 2 ? UMMAP_SYNC : 0, &base);
}

static int unmap(struct job *j)
{
	return umunmap(j->base, 1);
}

static bool insist(struct job *j, int (*call)(struct job *))
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

static void start(struct job *j)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	char fault[512], times[16] = "always", uri[1024];
	void *base;

	set_budget(BUDGET);
	set_env("UMMAP_READAHEAD", "0");
	j->source = temp_named("source", 0, j->source_path);
	file_fill(j->source, 0, SIZE, 0, OLD);
	for (size_t slot = 0; slot < SLOTS; slot++)
		check(pwrite(j->source, &(uint64_t){ word(slot, 0) }, 8, slot * STRIDE) == 8);
	j->target = temp_file(0);
	close(temp_named("count", 0, j->count_path));
	if (j->times)
		snprintf(times, sizeof(times), "%u", j->times);
	snprintf(fault, sizeof(fault), "?fault.op=%s&fault.nth=%u&fault.times=%s&fault.errno=EIO&fault.count=%s",
		 j->op, j->nth, times, j->count_path);
	if (j->in_target) {
		snprintf(uri, sizeof(uri), "fault+posix:%s", fault);
		set_env("UMMAP_DRIVER", uri);  /* for the descriptor that it is carried to */
	}
	snprintf(uri, sizeof(uri), "%s:%s%s", j->in_target ? "posix" : "fault+posix", j->source_path,
		 j->in_target ? "" : fault);
	attr.seg_size = SEG;
	attr.ptype = j->nth % 6;
	check(ummap_open(uri, SIZE, 0, READ_WRITE, &attr, &base) == 0, "%s", uri);
	j->base = base;
	catch_sigbus();
}

/* What a file holds when all went well in the end. */
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

/* ... and while it could not: each word as it was at some time. */
static void check_credible(const struct job *j, int fd)
{
	for (size_t slot = 0; slot < SLOTS; slot++) {
		uint64_t value;

		check(pread(fd, &value, 8, slot * STRIDE) == 8);
		check(value >> 32 == slot + 1 && (uint32_t)value <= j->shadow[slot], "%#" PRIx64, value);
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
	check(text[0] == 0 || sscanf(text, "seen %*u fired %u", &n) == 1, "%s", text);
	return n;
}

/* A fault that stays: umunmap fails, the mapping stands with all that was stored, and can be given up. */
static void give_up(struct job *j)
{
	check(j->times == 0);
	if (strcmp(j->op, "read") != 0)
		each_slot(j, load, SEGS);
	check(stat_of(j->base).resident_bytes <= SIZE);
	check(umunmap(j->base, 0) == 0);
}

static void workload(void *arg)
{
	struct job *j = arg;
	bool carried, complete;

	start(j);
	each_slot(j, store, SEGS);
	each_slot(j, load, SEGS);
	insist(j, sync_all);
	each_slot(j, store, SEGS / 2);
	carried = insist(j, carry);
	if (!carried) {  /* not after a failed sync to the old one; but without it */
		check(j->nth / 2 % 2);
		each_slot(j, load, SEGS);
		check(umremap(j->base, 0, j->target, 0, 0, &(void *){ NULL }) == 0);
	}
	each_slot(j, store, SEGS / 4);
	each_slot(j, load, SEGS);
	insist(j, sync_all);
	each_slot(j, store, SEGS / 8);
	complete = insist(j, unmap);
	if (complete)
		check_complete(j, j->target);
	else
		give_up(j);
	check_credible(j, j->source);
	if (fired(j) == 0) {
		check(j->buses == 0 && j->errors == 0 && complete);
		_exit(NOTHING_FIRED);
	}
	/* a fault of the old file does not hold up the new one for ever, unless it cannot be read */
	check(complete || j->in_target || strcmp(j->op, "read") == 0);
	if (j->times)
		check(fired(j) >= 1 && fired(j) <= j->times && complete);
	if (j->times == 1)
		check(j->buses + j->errors == 1, "%u SIGBUS, %u errors", j->buses, j->errors);
	else
		check(j->buses + j->errors >= 1);
}

/* ---- Counting up ---- */

static unsigned run_one(const char *op, unsigned times, bool in_target, unsigned nth)
{
	static struct job job;
	int status;

	job = (struct job){ .op = op, .times = times, .in_target = in_target, .nth = nth };
	status = run_child(workload, &job);
	if (WIFEXITED(status) && WEXITSTATUS(status) == NOTHING_FIRED)
		return 0;
	check(WIFEXITED(status) && WEXITSTATUS(status) == 0,
	      "status %#x; to see it again: prog_faults %s %u %s %u", status, op, times,
	      in_target ? "target" : "source", nth);
	return 1;
}

static void count_up(const char *op, unsigned times, bool in_target)
{
	/* once: each of them; else, and with so many more failures in each run, some of them */
	unsigned step = times == 1 || strcmp(op, "flush") == 0 ? 1 : 7, nth = 1;
	double begin = now();

	while (run_one(op, times, in_target, nth))
		nth += step;
	printf("%s, %u times, %s: %u calls, %.1f s\n", op, times, in_target ? "target" : "source", nth - 1,
	       now() - begin);
	check(nth > 1, "something is there to fail");
}

int main(int argc, char **argv)
{
	static const char *const ops[] = { "read", "write", "flush" };
	static const unsigned times[] = { 1, 3, 0 };

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc == 5)
		return !run_one(argv[1], atoi(argv[2]), strcmp(argv[3], "target") == 0, atoi(argv[4]));
	for (int target = 0; target <= 1; target++)
		for (int op = 0; op < 3; op++)
			for (int i = 0; i < 3; i++)
				count_up(ops[op], times[i], target);
	return 0;
}
