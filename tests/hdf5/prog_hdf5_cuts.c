/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * prog_hdf5_cuts - power is lost at every request of a program that writes HDF5 files over wal+.
 * Afterwards the file opens, and has the contents of the last flush, or of the one in progress.
 * UMMAP_TEST_CUTS is the number of cuts (300).
 */
#define POWER_CAP (6 * MIB)

#include <ummap-hdf5.h>

#include "model.h"
#include "../power.h"
#include "drivers/side.h"

#define STEPS 10
enum format { EARLIEST, LATEST, SWMR, FORMATS };
#define URI "wal+power:store?wal.path=log"

/* The requests of the disk when the flush of a change began, and when it returned. */
static size_t begun[STEPS + 2], acked[STEPS + 2];

static hid_t access_with(enum format format)
{
	hid_t fapl = H5Pcreate(H5P_FILE_ACCESS);

	check(H5Pset_fapl_ummap(fapl, URI, NULL) >= 0);
	if (format != EARLIEST)
		check(H5Pset_libver_bounds(fapl, H5F_LIBVER_LATEST, H5F_LIBVER_LATEST) >= 0);
	return fapl;
}

static void make_empty(const char *name)
{
	struct ummap_geom geom;
	void *file;

	check(power_open(&(struct ummap_uri){ .path = name }, UMMAP_O_CREATE, &file, &geom) == 0);
}

/* Some changes become durable because the file is closed, so the log comes and goes. */
static void write_file(struct model *m, struct power_record *r, hid_t fapl)
{
	hid_t file;

	power_erase();
	make_empty("store");
	make_empty("log");
	power_record_begin(r);
	file = model_create(m, "store", fapl);
	for (unsigned i = 1; i <= STEPS; i++) {
		model_step(m, file);
		begun[i] = power_requests();
		if (i % 4) {
			model_flush(m, file);
		} else {
			check(H5Fclose(file) >= 0);
			file = model_open(m, "store", fapl);
		}
		acked[i] = power_requests();
	}
	check(H5Fclose(file) >= 0);
	begun[STEPS + 1] = acked[STEPS + 1] = SIZE_MAX;
}

static unsigned acked_at(size_t k)
{
	unsigned i = 0;

	while (acked[i + 1] <= k)
		i++;
	return i;
}

/* The file after a cut at request k. Before the first flush there is none. */
static void check_cut(size_t k, uint64_t seed, enum format format, bool write)
{
	unsigned last = acked_at(k), step = 0;
	hid_t fapl = access_with(format), file = -1;
	bool whole;

	H5E_BEGIN_TRY {
		file = H5Fopen("store", write ? H5F_ACC_RDWR : H5F_ACC_RDONLY, fapl);
	} H5E_END_TRY;
	if (file < 0 && last == 0)
		return;
	check(file >= 0, "cut %zu, seed %" PRIu64 ", format %d", k, seed, format);
	whole = file_is_whole(file, seed, format == SWMR, &step);
	check((whole || last == 0) && (step == last || (step == last + 1 && begun[step] <= k)),
	      "cut %zu, seed %" PRIu64 ", format %d: change %u, flushed %u, whole %d", k, seed,
	      format, step, last, whole);
	check(H5Fclose(file) >= 0);
	H5Pclose(fapl);
}

static void run_cuts(uint64_t seed, unsigned cuts, enum format format)
{
	static struct power_record record;
	static struct model m;
	struct power_replay replay;
	uint64_t chance = seed;
	hid_t fapl = access_with(format);

	model_begin(&m, seed, format == SWMR);
	write_file(&m, &record, fapl);
	H5Pclose(fapl);
	power_replay_begin(&replay, &record);
	for (unsigned i = 0; i < cuts; i++) {
		size_t k = i * (record.n + 1) / cuts;

		power_cut(&replay, k, next_random(&chance));
		check_cut(k, seed, format, i % 2);
	}
	power_replay_end(&replay);
	power_record_free(&record);
}

int main(void)
{
	const char *text = getenv("UMMAP_TEST_CUTS");
	unsigned cuts = text ? (unsigned)strtoul(text, NULL, 10) : 300, round = 0;
	uint64_t seed = (uint64_t)time(NULL);

	set_group();
	check(ummap_driver_register(&power_driver) == 0);
	/* The log is on the same disk. */
	side_driver = &power_driver;
	printf("seed %" PRIu64 "\n", seed);
	for (; cuts > 0; round++) {
		unsigned some = cuts < 100 ? cuts : 100;

		run_cuts(seed + round, some, round % FORMATS);
		cuts -= some;
	}
	return 0;
}
