/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * dht - a hash table over all ranks, by one-sided MPI only. Each rank has a volume of slots, a heap
 * for keys whose slots are taken, and a counter of the heap. To insert a key, a rank claims the
 * slot by MPI_Compare_and_swap. If that fails, it takes a place in the heap by MPI_Fetch_and_op,
 * fills it, and links it into the slot's chain by MPI_Compare_and_swap. No rank waits for the owner
 * of a volume. At the end, all keys are checked.
 */
#include <getopt.h>

#include "kit/common.h"
#include "job.h"
#include "report.h"

/* A key of 0 is none; next is 1 + the place in the heap of the next one, 0: the last. */
struct entry {
	uint64_t key, next;
};

/* The beginning of a volume; its slots follow, and its heap after them. */
struct volume {
	uint64_t used;                    /* places of the heap given away */
	uint64_t unused[7];
	struct entry entries[];
};

struct options {
	struct alloc alloc;
	const char *dir, *json;
	uint64_t slots, heap;             /* of a volume */
	unsigned fill;                    /* percent of the slots, to be inserted */
	unsigned keys;                    /* ... or so many; 0: none were named */
	unsigned lookups;
};

struct table {
	uint64_t slots, heap;
	struct memory *memory;
	const struct volume *volume;      /* our own */
	MPI_Win win;
};

static const char help[] =
"usage: mpirun dht [OPTION ...]\n"
"Fills a distributed hash table by one-sided MPI, and checks it.\n"
"  --alloc KIND     memory of its volumes: %s (memory)\n"
"  --dir DIR        for scratch files without names, one for each rank (.)\n"
"  --slots N        of each rank; 16 bytes each (1000000)\n"
"  --heap N         places of each rank for keys whose slots are taken, of 16 bytes each (half\n"
"                   the slots)\n"
"  --fill PERCENT   of all slots: how many keys are inserted (80)\n"
"  --keys N         the same as a number, of each rank\n"
"  --lookups N      of each rank, for keys of any rank, afterwards (1000)\n"
"  --json FILE      add a line to FILE\n"
ALLOC_KNOBS_HELP ALLOC_ADVICE_HELP ALLOC_PART_HELP
"  --help\n";

/* ---- Keys ---- */

/* Different keys for different numbers, in no order, and never 0. */
static uint64_t key_of(uint64_t number)
{
	uint64_t x = number + 1;

	x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9ull;
	x = (x ^ x >> 27) * 0x94D049BB133111EBull;
	return x ^ x >> 31;
}

/* Where a key belongs, among the slots of all ranks. */
static uint64_t home_of(const struct table *t, uint64_t key)
{
	return (uint64_t)(((unsigned __int128)(key * 0x9E3779B97F4A7C15ull) *
			   (t->slots * (uint64_t)job.ranks)) >>
			  64);
}

/* ---- One-sided steps; each ends when the owner's memory has it. ---- */

static MPI_Aint place(uint64_t entry, size_t field)
{
	return (MPI_Aint)(offsetof(struct volume, entries) + entry * sizeof(struct entry) + field);
}

static uint64_t swap(const struct table *t, int owner, MPI_Aint at, uint64_t old, uint64_t new)
{
	uint64_t found;

	MPI_Compare_and_swap(&new, &old, &found, MPI_UINT64_T, owner, at, t->win);
	MPI_Win_flush(owner, t->win);
	return found;
}

static uint64_t fetch(const struct table *t, int owner, MPI_Aint at, uint64_t add)
{
	uint64_t found;

	MPI_Fetch_and_op(&add, &found, MPI_UINT64_T, owner, at, add ? MPI_SUM : MPI_NO_OP, t->win);
	MPI_Win_flush(owner, t->win);
	return found;
}

static void put(const struct table *t, int owner, uint64_t entry, struct entry e)
{
	MPI_Put(&e, sizeof(e), MPI_BYTE, owner, place(entry, 0), sizeof(e), MPI_BYTE, t->win);
	MPI_Win_flush(owner, t->win);
}

static struct entry get(const struct table *t, int owner, uint64_t entry)
{
	struct entry e;

	MPI_Get(&e, sizeof(e), MPI_BYTE, owner, place(entry, 0), sizeof(e), MPI_BYTE, t->win);
	MPI_Win_flush(owner, t->win);
	return e;
}

/* ---- The table ---- */

static void insert(const struct table *t, uint64_t key)
{
	uint64_t home = home_of(t, key), slot = home % t->slots, spot, next, found;
	int owner = (int)(home / t->slots);

	if (!swap(t, owner, place(slot, offsetof(struct entry, key)), 0, key))
		return;
	spot = fetch(t, owner, offsetof(struct volume, used), 1);
	if (spot >= t->heap)
		die("the heap of rank %d is full; give it more places by --heap", owner);
	next = fetch(t, owner, place(slot, offsetof(struct entry, next)), 0);
	for (;;) {
		put(t, owner, t->slots + spot, (struct entry){ key, next });
		found = swap(t, owner, place(slot, offsetof(struct entry, next)), next, spot + 1);
		if (found == next)
			return;
		next = found;
	}
}

static bool contains(const struct table *t, uint64_t key)
{
	uint64_t home = home_of(t, key);
	int owner = (int)(home / t->slots);
	struct entry e = get(t, owner, home % t->slots);

	/* A broken chain may have no end. */
	for (uint64_t hops = 0; e.key != key && e.next && e.next <= t->heap && hops < t->heap;
	     hops++)
		e = get(t, owner, t->slots + e.next - 1);
	return e.key == key;
}

static void open_table(struct table *t, const struct options *o)
{
	size_t size = sizeof(struct volume) + (o->slots + o->heap) * sizeof(struct entry);

	t->slots = o->slots;
	t->heap = o->heap;
	t->memory = memory_scratch(&o->alloc, o->dir, size);
	t->volume = (const struct volume *)t->memory->base;
	memory_advise(t->memory, true);
	t->win = job_window(t->memory);
}

static void close_table(struct table *t)
{
	job_window_free(t->memory, t->win);
	memory_close(t->memory);
}

/* ---- What must be in it ---- */

struct found {
	uint64_t keys, sum;
};

static void read_entry(const struct table *t, struct found *f, uint64_t key, uint64_t slot)
{
	if (home_of(t, key) != (uint64_t)job.rank * t->slots + slot)
		die("key %016llx is in slot %llu of rank %d, where it does not belong",
		    (unsigned long long)key, (unsigned long long)slot, job.rank);
	f->keys++;
	f->sum += key;
}

/* All keys of our own volume, in the slots and in their chains. */
static struct found check_table(const struct table *t)
{
	struct found f = { 0, 0 };

	for (uint64_t slot = 0; slot < t->slots; slot++) {
		struct entry e = t->volume->entries[slot];

		if (e.key)
			read_entry(t, &f, e.key, slot);
		while (e.next) {
			if (e.next > t->heap || f.keys > t->slots + t->heap)
				die("the chain of slot %llu of rank %d is broken",
				    (unsigned long long)slot, job.rank);
			e = t->volume->entries[t->slots + e.next - 1];
			read_entry(t, &f, e.key, slot);
		}
	}
	return f;
}

/* Each key is there once, and where it belongs: also when all of it comes from storage. */
static void check_results(struct table *t, uint64_t mine)
{
	uint64_t wanted = 0, first = (uint64_t)job.rank * mine;
	struct found f;

	MPI_Win_sync(t->win);
	memory_chill(t->memory);
	f = check_table(t);
	for (uint64_t i = 0; i < mine; i++)
		wanted += key_of(first + i);
	if (job_total(f.keys) != mine * (uint64_t)job.ranks ||
	    job_total(f.sum) != job_total(wanted))
		die("keys are missing, or there twice: %llu found, %llu inserted",
		    (unsigned long long)job_total(f.keys),
		    (unsigned long long)mine * (unsigned long long)job.ranks);
}

static double find_entry(const struct table *t, uint64_t mine, unsigned lookups)
{
	uint64_t state = (uint64_t)job.rank + 1, start = job_start();

	for (unsigned i = 0; i < lookups; i++) {
		uint64_t key = key_of(next_random(&state) % (mine * (uint64_t)job.ranks));

		if (!contains(t, key))
			die("key %016llx is not found", (unsigned long long)key);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	return job_seconds(start);
}

/* ---- Running ---- */

static void print_results(const struct options *o, const struct table *t, uint64_t mine,
			  double insert_s, double sync_s, double lookup_s)
{
	double keys = (double)mine * job.ranks,
	       overflow = (double)job_total(t->volume->used) / keys;
	struct report r;

	if (job.rank)
		return;
	printf("%s, %d ranks, %.1f MiB each, %.0f keys, %.1f %% of them in heaps\n",
	       o->alloc.kind->name, job.ranks, (double)t->memory->size / (double)MIB, keys,
	       100 * overflow);
	printf("inserts %10.3f s %12.0f a second\n", insert_s, keys / insert_s);
	printf("sync    %10.3f s\n", sync_s);
	printf("lookups %10.3f s %12.0f a second\n", lookup_s,
	       o->lookups * (double)job.ranks / lookup_s);
	puts("all keys are where they belong");
	r = report_begin(o->json, "dht");
	report_text(&r, "alloc", o->alloc.kind->name);
	report_number(&r, "tasks", job.ranks);
	report_number(&r, "slots", (double)o->slots);
	report_number(&r, "keys", keys);
	report_number(&r, "volume", (double)t->memory->size);
	report_number(&r, "seg", (double)o->alloc.seg);
	report_number(&r, "budget", (double)o->alloc.budget);
	report_number(&r, "insert_s", insert_s);
	report_number(&r, "sync_s", sync_s);
	report_number(&r, "lookup_s", lookup_s);
	report_end(&r);
}

static void run_inserts(const struct options *o)
{
	uint64_t mine = o->keys ? o->keys : o->slots * o->fill / 100, start, i;
	double insert_s, sync_s, lookup_s;
	struct table t;

	open_table(&t, o);
	start = job_start();
	for (i = 0; i < mine; i++)
		insert(&t, key_of((uint64_t)job.rank * mine + i));
	/* Others may still insert into our volume. */
	MPI_Barrier(MPI_COMM_WORLD);
	insert_s = job_seconds(start);
	start = job_start();
	memory_sync(t.memory);
	sync_s = job_seconds(start);
	lookup_s = find_entry(&t, mine, o->lookups);
	check_results(&t, mine);
	print_results(o, &t, mine, insert_s, sync_s, lookup_s);
	close_table(&t);
}

static void parse_options(struct options *o, int argc, char **argv)
{
	static const struct option known[] = {
		ALLOC_OPTIONS, ALLOC_ADVICE, ALLOC_PART,
		{ "dir", 1, 0, 'd' }, { "slots", 1, 0, 's' }, { "heap", 1, 0, 'p' },
		{ "fill", 1, 0, 'f' }, { "keys", 1, 0, 'k' }, { "lookups", 1, 0, 'l' },
		{ "json", 1, 0, 'j' }, { "help", 0, 0, 'h' }, { 0, 0, 0, 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, "", known, NULL)) != -1) {
		switch (c) {
		case 'd': o->dir = optarg; break;
		case 's': o->slots = parse_count("slots", optarg, UINT32_MAX); break;
		case 'p': o->heap = parse_count("heap", optarg, UINT32_MAX); break;
		case 'f': o->fill = parse_count("fill", optarg, 200); break;
		case 'k': o->keys = parse_count("keys", optarg, UINT32_MAX); break;
		case 'l': o->lookups = parse_count("lookups", optarg, UINT32_MAX); break;
		case 'j': o->json = optarg; break;
		case 'h': printf(help, alloc_names()); exit(0);
		default:
			if (!alloc_option(&o->alloc, c, optarg))
				die("see --help");
		}
	}
	if (optind < argc)
		die("'%s' is no option; see --help", argv[optind]);
	if (!o->heap)
		o->heap = o->slots / 2 + 1;
}

int main(int argc, char **argv)
{
	struct options o = {
		.alloc = { .kind = alloc_find("memory") }, .dir = ".",
		.slots = 1000000, .fill = 80, .lookups = 1000,
	};

	parse_options(&o, argc, argv);
	job_reach_windows();
	job_begin(&o.alloc);
	if (o.alloc.kind->paged)
		job_limit(&o.alloc);
	run_inserts(&o);
	job_end();
	return 0;
}
