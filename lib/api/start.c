/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Starts all parts of the library with the first mapping. They stay started until the process ends,
 * because the signal handler cannot be unloaded. Lock: `starting`, with signals blocked.
 */
#include "api/start.h"

#include "budget/budget.h"
#include "base/config.h"
#include "engine/engine.h"
#include "engine/sigsegv.h"
#include "paging/fault/fault.h"
#include "common/fork.h"
#include "cache/group.h"
#include "paging/mapping/handover.h"
#include "paging/mapping/inplace.h"
#include "io/io.h"
#include "io/plugin.h"
#include "paging/mapping/lock.h"
#include "base/log.h"
#include "base/place.h"
#include "base/scratch.h"
#include "paging/mapping/lookup.h"
#include "paging/mapping/shared_copy.h"
#include "paging/residency/pagecache.h"
#include "paging/residency/huge_blocks.h"
#include "paging/residency/tiering.h"
#include "budget/share.h"
#include "node/node.h"
#include "memory/shared_pool.h"
#include "memory/tiers.h"
#include "base/spare.h"
#include "paging/fault/stall.h"
#include "paging/mapping/stats.h"
#include "engine/trial.h"
#include "base/worker.h"
#include "paging/sync/commit.h"
#include "paging/sync/writeback.h"
#include "paging/sync/flusher.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORKER_THREADS 4
/* VMAs that a frame takes: the one that it is mapped in, and the gap next to it. */
#define VMAS_PER_FRAME 2
/* The application keeps 1/APPLICATION_VMA_PART of the kernel's limit on VMAs. */
#define APPLICATION_VMA_PART 16
#define MIN_FRAME_LIMIT 64
#define DEFAULT_MAX_MAP_COUNT 65530

static _Atomic uint32_t starting;    /* lock */
static _Atomic bool started;         /* the handler and the pool are installed */
static _Atomic bool threads_started; /* the threads run; false in a forked child */

/* Counts the VMAs of the process, which are the lines of the file. Reads large blocks, because a
 * program may have many VMAs. */
static size_t count_vmas(void)
{
	FILE *f = fopen("/proc/self/maps", "re");
	char text[16384];
	size_t lines = 0, n;

	while (f && (n = fread(text, 1, sizeof(text), f)) > 0) {
		for (const char *p = text; (p = memchr(p, '\n', n - (size_t)(p - text))); p++)
			lines++;
	}
	if (f)
		fclose(f);
	return lines;
}

/* Returns the number of frames for which the kernel's limit on VMAs has room. */
static uint32_t max_frames(void)
{
	FILE *f = fopen("/proc/sys/vm/max_map_count", "re");
	size_t vmas = DEFAULT_MAX_MAP_COUNT, used = count_vmas(), frames;

	if (f) {
		if (fscanf(f, "%zu", &vmas) != 1)
			vmas = DEFAULT_MAX_MAP_COUNT;
		fclose(f);
	}
	vmas -= vmas / APPLICATION_VMA_PART;
	frames = max_size(vmas > used ? (vmas - used) / VMAS_PER_FRAME : 0, MIN_FRAME_LIMIT);
	log_line(LOG_INFO, "start", "vm.max_map_count limits this process to %zu frames", frames);
	return (uint32_t)min_size(frames, UINT32_MAX);
}

/* In a forked child: closes the descriptors of a mapping. Does not touch its addresses, because the
 * child does not have the memory and may have mapped other memory there. */
static void forget_map(struct mapping *map)
{
	export_forget(&map->export);
	copy_forget(map);
	for (unsigned i = 0; i < SEG_BACKINGS; i++) {
		if (map->backings[i].store)
			io_close(map->backings[i].store);
	}
}

static void forget_in_child(void)
{
	starting = 0;
	if (!started)
		return;
	map_fork_child(forget_map);
	pagecache_forget_all();
	group_fork_child();
	cache_fork_child();
	huge_blocks_forget();
	scratch_forget();
	frame_forget();
	io_forget();
	plugin_forget();
	engine_forget();
	worker_forget();
	writeback_forget();
	commit_forget();
	lock_forget();
	handover_fork_child();
	sigsegv_fork_child();
	spare_forget();
	stats_forget();
	tiering_forget();
	tiers_forget();
	share_fork_child();
	budget_fork_child();
	sys_forget();
	config.stats = NULL;
	threads_started = false;
}

static int fork_error;

__attribute__((constructor))
static void register_fork_handler(void)
{
	fork_error = fork_register(FORK_LIBRARY, NULL, sigsegv_fork_prepare, forget_in_child);
}

/* Prints the counters and leaves the node. Does not write to stores, and does not wait. */
static void at_exit(void)
{
	struct umstat st;

	if (config.stats) {
		stats_process(&st);
		stats_print(config.stats, &st);
	}
	node_leave();
}

/* Runs after the destructors of libraries that use this one, because those may still sync. */
__attribute__((destructor))
static void report_lost(void)
{
	if (started && threads_started)
		stall_report_lost();
}

static int check_driver(void)
{
	if (!config.driver || io_check(config.driver) == 0)
		return 0;
	return fail(EINVAL, "cannot use UMMAP_DRIVER='%s': %s", config.driver, fail_message());
}

/* Makes the places and the tiers. A forked child makes its own. */
static int start_places(void)
{
	int err;

	place_start();
	err = tiers_start(config.tiers);
	return err ? err : tiering_start(config.tiers_policy);
}

static int start_process(void)
{
	int err = config_load();

	if (!err)
		err = check_driver();
	if (err)
		return err;
	err = budget_start();
	if (err)
		return err;
	spare_refill();
	err = start_places();
	if (err)
		return err;
	frame_start(max_frames());
	err = engine_start(fault_by_signal, fault_by_message);
	if (err)
		return err;
	if (fork_error)
		return fail(fork_error, "cannot start the library: pthread_atfork(3): %s",
			    strerror(fork_error));
	atexit(at_exit);
	started = true;
	return 0;
}

int start_library(void)
{
	int err = 0;

	if (started && threads_started)
		return 0;
	futex_lock(&starting);
	if (!started)
		err = start_process();
	else if (!threads_started)
		err = start_places();
	if (!err && !threads_started) {
		err = share_start();
		if (!err)
			err = worker_start(WORKER_THREADS);
		if (!err)
			err = flusher_start();
		threads_started = !err;
	}
	futex_unlock(&starting);
	return err;
}

int start_prepare(const struct mapping *map)
{
	int err = map->shared ? shared_pool_open() : 0;

	if (err)
		return err;
	sys_forget_failure();
	if (!frame_prepare(map->frames))
		return sys_first_failure(&err) ?
		       engine_fail(map->engine, "prepare memory for frames", err) :
		       fail(ENOMEM, "cannot prepare frames of %zu bytes: no address space. Try "
			    "smaller segments, or a larger RLIMIT_AS (ulimit -v)", map->seg_size);
	return trial(map->engine);
}

void start_note_mapping(const struct mapping *map)
{
	static _Atomic bool has_logged;
	size_t max = (size_t)frame_most() * map->seg_size; /* bytes */

	budget_warn(map->name, map->member.group->budget, map->member.least, map->seg_size);
	share_note_segment(map->seg_size);
	if (frames_are_whole(map->frames) && max < map->size && budget_can_exceed(max) &&
	    !atomic_exchange(&has_logged, true))
		log_line(LOG_INFO, "start", "vm.max_map_count limits segments of %zu bytes to %zu "
			 "MiB in memory. Try larger segments, or a larger vm.max_map_count",
			 map->seg_size, max >> 20);
}
