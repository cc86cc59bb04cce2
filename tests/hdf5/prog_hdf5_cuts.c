/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * prog_hdf5_cuts - power is lost at every request of a program that writes HDF5 files over wal+.
 * Afterwards the file opens, and has the contents of the last flush, or of the one in progress.
 * UMMAP_TEST_CUTS is the number of cuts (200).
 */
#define POWER_CAP (6 * MIB)

#include <ummap-hdf5.h>

#include "model.h"
#include "../power.h"
#include "drivers/side.h"

#define STEPS 10
#define URI "wal+power:store?wal.path=log"

/* The requests of the disk when the flush of a change began, and when it returned. */
static size_t begun[STEPS + 2], acked[STEPS + 2];

static hid_t access_with(bool latest)
{
	hid_t fapl = H5Pcreate(H5P_FILE_ACCESS);

	check(H5Pset_fapl_ummap(fapl, URI, NULL) >= 0);
	if (latest)
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
static void write_file(struct model *m, struct power_record *r, bool latest)
{
	hid_t fapl = access_with(latest), file;

	power_erase();
	make_empty("store");
	make_empty("log");
	power_record_begin(r);
	file = H5Fcreate("store", H5F_ACC_TRUNC, H5P_DEFAULT, fapl);
	check(file >= 0);
	for (unsigned i = 1; i <= STEPS; i++) {
		model_step(m, file);
		begun[i] = power_requests();
		if (i % 4) {
			check(H5Fflush(file, H5F_SCOPE_GLOBAL) >= 0);
		} else {
			check(H5Fclose(file) >= 0);
			file = H5Fopen("store", H5F_ACC_RDWR, fapl);
			check(file >= 0);
		}
		acked[i] = power_requests();
	}
	check(H5Fclose(file) >= 0);
	begun[STEPS + 1] = acked[STEPS + 1] = SIZE_MAX;
	H5Pclose(fapl);
}

static unsigned acked_at(size_t k)
{
	unsigned i = 0;

	while (acked[i + 1] <= k)
		i++;
	return i;
}

/* The file after a cut at request k. Before the first flush there is none. */
static void check_cut(size_t k, uint64_t seed, bool latest, bool write)
{
	unsigned last = acked_at(k), step = 0;
	hid_t fapl = access_with(latest), file = -1;
	bool whole;

	H5E_BEGIN_TRY {
		file = H5Fopen("store", write ? H5F_ACC_RDWR : H5F_ACC_RDONLY, fapl);
	} H5E_END_TRY;
	if (file < 0 && last == 0)
		return;
	check(file >= 0, "cut %zu, seed %" PRIu64 ", latest %d", k, seed, latest);
	whole = file_is_whole(file, seed, &step);
	check((whole || last == 0) && (step == last || (step == last + 1 && begun[step] <= k)),
	      "cut %zu, seed %" PRIu64 ", latest %d: change %u, flushed %u, whole %d", k, seed,
	      latest, step, last, whole);
	check(H5Fclose(file) >= 0);
	H5Pclose(fapl);
}

static void run_cuts(uint64_t seed, unsigned cuts, bool latest)
{
	static struct power_record record;
	static struct model m;
	struct power_replay replay;
	uint64_t chance = seed;

	model_begin(&m, seed);
	write_file(&m, &record, latest);
	power_replay_begin(&replay, &record);
	for (unsigned i = 0; i < cuts; i++) {
		size_t k = i * (record.n + 1) / cuts;

		power_cut(&replay, k, next_random(&chance));
		check_cut(k, seed, latest, i % 2);
	}
	power_replay_end(&replay);
	power_record_free(&record);
}

int main(void)
{
	const char *text = getenv("UMMAP_TEST_CUTS");
	unsigned cuts = text ? (unsigned)strtoul(text, NULL, 10) : 200, round = 0;
	uint64_t seed = (uint64_t)time(NULL);

	set_group();
	check(ummap_driver_register(&power_driver) == 0);
	/* The log is on the same disk. */
	side_driver = &power_driver;
	printf("seed %" PRIu64 "\n", seed);
	for (; cuts > 0; round++) {
		unsigned some = cuts < 200 ? cuts : 200;

		run_cuts(seed + round, some, round % 2);
		cuts -= some;
	}
	return 0;
}
