/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Liveness: whether a process of this machine and PID namespace still runs. A process ID alone does
 * not tell, because the kernel reuses it, so a process is identified by its ID and its start time.
 * Where processes share a file, the lock of common/try_lock.h is the better check. The functions
 * take no lock, and may be called in a signal handler.
 */
#ifndef COMMON_PROCESS_H
#define COMMON_PROCESS_H

#include <stdbool.h>
#include <stdint.h>

/* Plain bytes that processes may hand to each other, for example in shared memory. */
struct process_id {
	int32_t pid;         /* process ID */
	uint32_t start_time; /* low 32 bits of its start time in clock ticks; 0: unknown */
};

/* Identifies a process. The start time is 0 if /proc does not show the process. */
struct process_id process_identify(int32_t pid);

/*
 * Whether the process is alive: it exists, has not ended, and started at this time. A zombie is not
 * alive. If the start time is unknown, here or now, the process ID decides.
 */
bool is_alive(struct process_id process);

/*
 * Whether the process is alive, and its thread, too. A zombie counts as alive while the thread
 * runs, because the first thread of a process may end before the others.
 */
bool is_thread_alive(struct process_id process, int32_t thread);

/* Whether the process is gone, or its first thread has begun to end. The process may have
 * descriptors and locks for a while then, but other processes cannot open its descriptors. */
bool is_process_ending(int32_t pid);

/* Identifies the PID namespace; 0: /proc does not show it. In another one, for example in another
 * container that shares files with this one, this process has another ID or none. */
uint64_t process_namespace(void);
/* Identifies the machine since it was started; 0: /proc does not show it. */
uint64_t process_machine(void);

#endif
