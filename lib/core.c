/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ties the rooms together. Everything is started by the first mapping and stays for the life of the process:
 * the library cannot be unloaded, because its handler cannot. Lock: `starting`, with signals blocked.
 */
#include "core.h"

#include "ahead.h"
#include "budget.h"
#include "config.h"
#include "engine.h"
#include "evict.h"
#include "group.h"
#include "inplace.h"
#include "load.h"
#include "log.h"
#include "map.h"
#include "refuse.h"
#include "seg.h"
#include "server.h"
#include "stats.h"
#include "worker.h"
#include "writeback.h"
#include "writer.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORKERS 4
/* Mappings of the kernel's that a frame takes in the worst ordinary case: its place in the view and the gap
 * beside it. A part of the process's share is left to the application. */
#define PLACES_PER_FRAME 2
#define PLACES_LEFT 16

static _Atomic uint32_t starting;
static _Atomic bool started;         /* handler, pool, fork hooks */
static _Atomic bool threads_started; /* not so in a forked child */
static void (*_Atomic on_error)(void *addr, int error);
static struct umstat ended;          /* counters of mappings that are no more; under `starting` */

void core_onerror(void (*fn)(void *addr, int error))
{
	on_error = fn;
}

static enum chain_answer serve(const struct chain_fault *fault)
{
	struct map *map = map_get(fault->addr);
	void (*tell)(void *, int) = on_error;
	struct set *set;
	size_t i;
	int err;

	if (!map)
		return CHAIN_FOREIGN;
	set = &map->set;
	if (fault->write && !set->writable) {
		set_put(set);
		return CHAIN_FOREIGN;
	}
	if (set->in_place) {
		err = inplace_fault(set, fault->addr);
		set_put(set);
		return err ? CHAIN_FOREIGN : CHAIN_SERVED;
	}
	i = (size_t)((char *)fault->addr - set->view) >> set->shift;
	err = refuse_taken(set, i);
	if (!err) {
		ahead_fault(set, i, config.readahead);
		ahead_behind(set, i);
		err = seg_fault(set, i, fault->write);
	}
	set_put(set);
	if (!err)
		return CHAIN_SERVED;
	if (tell)
		tell(fault->addr, -err);
	return CHAIN_FAILED;
}

static size_t count_places(void)
{
	FILE *f = fopen("/proc/self/maps", "re");
	size_t lines = 0;
	int c;

	while (f && (c = getc(f)) != EOF)
		lines += c == '\n';
	if (f)
		fclose(f);
	return lines;
}

/* How many frames the kernel's limit on mappings has room for. */
static uint32_t most_frames(void)
{
	FILE *f = fopen("/proc/sys/vm/max_map_count", "re");
	size_t limit = 65530, taken = count_places();

	if (f) {
		if (fscanf(f, "%zu", &limit) != 1)
			limit = 65530;
		fclose(f);
	}
	limit -= limit / PLACES_LEFT;
	limit = limit > taken ? (limit - taken) / PLACES_PER_FRAME : 0;
	limit = max_size(limit, 64);
	log_line(LOG_INFO, "core", "vm.max_map_count bounds the frames of this process to %zu", limit);
	return (uint32_t)min_size(limit, UINT32_MAX);
}

/* The child has none of the memory, and where that stood there may be something else by now; what it has of
 * descriptors is closed. */
static void forget_map(struct map *map)
{
	for (unsigned i = 0; i < SEG_TARGETS; i++) {
		if (map->set.targets[i].store)
			io_close(map->set.targets[i].store);
	}
}

static void fork_prepare(void)
{
	map_fork_prepare();
	chain_fork_prepare();
}

static void fork_child(void)
{
	map_fork_child(forget_map);
	group_forget();
	cache_forget();
	frame_forget();
	load_forget();
	engine_forget();
	worker_forget();
	writeback_forget();
	seg_fork();
	chain_fork_child();
	memset(&ended, 0, sizeof(ended));
	config.stats = NULL;
	threads_started = false;
	starting = 0;
}

/* Nothing is written to stores at exit, and nothing is waited for. */
static void at_exit(void)
{
	struct umstat st;

	if (!config.stats)
		return;
	core_stat_process(&st);
	stats_print(config.stats, &st);
}

static int start_process(void)
{
	char why[400];
	int err = config_load();

	if (!err && config.driver && io_check(config.driver, config.direct) < 0) {
		snprintf(why, sizeof(why), "%s", fail_message());
		err = fail(EINVAL, "UMMAP_DRIVER is \"%s\": %s", config.driver, why);
	}
	if (err)
		return err;
	budget_start(config.mem_limit, config.mem_share);
	frame_start(most_frames());
	err = engine_start(serve);
	if (err)
		return err;
	err = pthread_atfork(fork_prepare, map_fork_parent, fork_child);
	if (err)
		return fail(err, "no hook for fork can be set");
	if (config.stats)
		atexit(at_exit);
	started = true;
	return 0;
}

int core_start(void)
{
	int err = 0;

	if (started && threads_started)
		return 0;
	futex_lock(&starting);
	if (!started)
		err = start_process();
	if (!err && !threads_started) {
		err = worker_start(WORKERS);
		if (!err)
			err = writer_start();
		threads_started = !err;
	}
	futex_unlock(&starting);
	return err;
}

static int try_uffd(bool kernel)
{
	static _Atomic bool told;
	int err = engine_start_uffd(config.fault_threads, server_run);

	if (err || engine_sees_kernel())
		return err;
	if (kernel)
		return fail(EPERM, "UMMAP_KERNEL cannot be had: userfaultfd sees accesses by the kernel only for root, with "
			    "CAP_SYS_PTRACE, vm.unprivileged_userfaultfd=1 or access to /dev/userfaultfd");
	if (!atomic_exchange(&told, true))
		log_line(LOG_WARN, "core", "userfaultfd may not see accesses by the kernel: system calls on what is absent "
			 "get EFAULT, as with segv (root, CAP_SYS_PTRACE, vm.unprivileged_userfaultfd=1 or access "
			 "to /dev/userfaultfd would change that)");
	return 0;
}

int core_engine(int wanted, bool kernel, bool small, bool writable, enum engine *engine)
{
	int which = wanted == UMMAP_ENGINE_DEFAULT ? config.engine : wanted, err;

	*engine = ENGINE_SEGV;
	if (which == UMMAP_ENGINE_SEGV && kernel)
		return fail(EINVAL, "UMMAP_KERNEL needs userfaultfd, but %s segv", wanted == which ?
			    "attr->engine says" : "UMMAP_ENGINE is");
	if (which == UMMAP_ENGINE_SEGV || (which == UMMAP_ENGINE_AUTO && !kernel && !small))
		return 0;
	err = try_uffd(kernel);
	if (err && which == UMMAP_ENGINE_AUTO && !kernel) {
		log_line(LOG_INFO, "core", "%s; the engine is segv", fail_message());
		fail_clear();
		return 0;
	}
	if (!err)
		*engine = writable ? ENGINE_UFFD : ENGINE_UFFD_READ;
	return err;
}

size_t core_budget(const struct set *set)
{
	return evict_limit(set);
}

void core_note_mapping(const struct set *set)
{
	static _Atomic bool told_small, told_places;
	size_t most = (size_t)frame_most() * set->seg_size;

	if (evict_limit(set) > budget_bytes() && !atomic_exchange(&told_small, true))
		log_line(LOG_WARN, "core", "a budget of %zu bytes is less than %d segments of %zu; %zu are used",
			 budget_bytes(), FRAMES_MIN, set->seg_size, evict_limit(set));
	if (set->engine == ENGINE_SEGV && most < budget_bytes() && most < set->size && !atomic_exchange(&told_places, true))
		log_line(LOG_WARN, "core", "vm.max_map_count bounds segments of %zu bytes to %zu MiB in memory; "
			 "larger segments, or a larger vm.max_map_count, have more", set->seg_size, most >> 20);
}

/* Adds what one mapping counts. */
static void count(const struct map *map, struct umstat *st)
{
	const struct set *set = &map->set;
	const struct set_stat *s = &set->stat;
	struct cache_bytes b = cache_count(&set->member);

	st->read_faults += s->read_faults;
	st->write_faults += s->write_faults;
	st->upgrade_faults += s->upgrade_faults;
	st->spurious_faults += s->spurious_faults;
	st->standby_hits += s->standby_hits;
	st->ahead_hits += s->ahead_hits;
	st->ahead_waste += s->ahead_waste;
	st->ahead_loads += s->ahead_loads;
	st->evictions += s->evictions;
	st->read_bytes += s->io.read_bytes;
	st->read_requests += s->io.read_requests;
	st->write_bytes += s->io.write_bytes;
	st->write_requests += s->io.write_requests;
	st->flushes += s->io.flushes;
	st->read_errors += s->io.read_errors;
	st->write_errors += s->io.write_errors;
	st->resident_bytes += b.resident;
	st->standby_bytes += b.standby;
	st->dirty_bytes += b.dirty;
	st->pinned_bytes += set->pinned;
}

void core_stat_map(const struct map *map, struct umstat *st)
{
	size_t budget = map->set.member.group->budget;

	count(map, st);
	st->budget_bytes = budget ? budget : budget_bytes();
}

void core_stat_ending(const struct map *map)
{
	futex_lock(&starting);
	count(map, &ended);
	ended.resident_bytes = ended.standby_bytes = ended.dirty_bytes = ended.pinned_bytes = 0;
	futex_unlock(&starting);
}

void core_stat_process(struct umstat *st)
{
	struct map *map;
	size_t peak = frame_peak();

	futex_lock(&starting);
	*st = ended;
	futex_unlock(&starting);
	for (size_t n = 0; (map = map_get_nth(n)); n++) {
		count(map, st);
		set_put(&map->set);
		st->mappings++;
	}
	st->budget_bytes = budget_bytes();
	st->held_bytes = frame_held();
	st->over_budget_peak = peak > budget_bytes() ? peak - budget_bytes() : 0;
}
