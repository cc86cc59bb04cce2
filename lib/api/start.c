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
#include "paging/mapping/lookup.h"
#include "paging/mapping/shared_copy.h"
#include "paging/residency/pagecache.h"
#include "budget/share.h"
#include "node/node.h"
#include "memory/shared_pool.h"
#include "base/spare.h"
#include "paging/fault/stall.h"
#include "paging/mapping/stats.h"
#include "engine/trial.h"
#include "base/worker.h"
#include "paging/sync/writeback.h"
#include "paging/sync/flusher.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORKERS 4
/* VMAs of the kernel that a frame needs in the worst ordinary case: its mapped place and the gap
 * beside it. */
#define PLACES_PER_FRAME 2
/* Divisor of the kernel's limit: this fraction is left to the application. */
#define PLACES_LEFT 16

static _Atomic uint32_t starting;    /* lock */
static _Atomic bool started;         /* handler and pool are installed */
static _Atomic bool threads_started; /* threads run; false in a forked child */

/* Counts the VMAs of the process: lines of the file. Reads large blocks, because a program may have
 * many. */
static size_t count_places(void)
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

/* Returns how many frames the kernel's limit on VMAs has room for. */
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
	log_line(LOG_INFO, "start", "vm.max_map_count limits this process to %zu frames", limit);
	return (uint32_t)min_size(limit, UINT32_MAX);
}

/* In a forked child: closes the descriptors of a mapping. Its addresses are not touched, because
 * the child does not have the memory and may have mapped something else there. */
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
	frame_forget();
	io_forget();
	plugin_forget();
	engine_forget();
	worker_forget();
	writeback_forget();
	lock_forget();
	handover_fork_child();
	sigsegv_fork_child();
	spare_forget();
	stats_forget();
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

/* Prints the counters and leaves the node. Writes nothing to stores, and waits for nothing. */
static void at_exit(void)
{
	struct umstat st;

	if (config.stats) {
		stats_process(&st);
		stats_print(config.stats, &st);
	}
	node_leave();
}

/* Runs after the destructors of libraries that use this one, because these may still sync. */
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
	spare_keep();
	frame_start(most_frames());
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
	if (!err && !threads_started) {
		err = share_start();
		if (!err)
			err = worker_start(WORKERS);
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
		return sys_failure(&err) ?
		       engine_fail(map->engine, "prepare memory for frames", err) :
		       fail(ENOMEM, "cannot prepare frames of %zu bytes: no address space. Try "
			    "smaller segments, or a larger RLIMIT_AS (ulimit -v)", map->seg_size);
	return trial(map->engine);
}

void start_note_mapping(const struct mapping *map)
{
	static _Atomic bool has_told;
	size_t most = (size_t)frame_most() * map->seg_size;

	budget_warn(map->name, map->member.group->budget, map->member.least, map->seg_size);
	share_note_segment(map->seg_size);
	if (frames_are_whole(map->frames) && most < map->size && budget_can_exceed(most) &&
	    !atomic_exchange(&has_told, true))
		log_line(LOG_INFO, "start", "vm.max_map_count limits segments of %zu bytes to %zu "
			 "MiB in memory. Try larger segments, or a larger vm.max_map_count",
			 map->seg_size, most >> 20);
}
