/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Leases (fcntl(2), F_SETLEASE) of the files that have regions.
 *
 * While the process holds a read lease, no file description of the file is open for writing in any
 * process; while it holds a write lease, the description of the program is the only one. An open(2)
 * or truncate(2) that would change this waits in the kernel until the lease is released, for at
 * most /proc/sys/fs/lease-break-time seconds. Meanwhile the regions of the file are handed to the
 * kernel, so the opener finds all stores in the file, and the program sees what the opener writes.
 *
 * A process that shares a description (by fork, exec, or a message) needs no open(2). A shared
 * description is therefore never given a write lease.
 *
 * The caller of any of these functions must hold the lock of the list of regions for change.
 */
#ifndef UMRUN_LEASE_H
#define UMRUN_LEASE_H

#include "umrun/file_set.h"
#include "umrun/report.h"

struct lease {
	struct file_id file;
	int fd;               /* a descriptor of the description that has the lease */
	int type;             /* F_RDLCK or F_WRLCK */
	unsigned users;       /* number of regions that need the lease */
	struct lease *next;
};

/* Called at the start. `yield` hands the regions whose leases are broken to the kernel. It returns
 * false if one could not be handed over, and is then called again. It takes the lock. */
void lease_begin(bool (*yield)(void));
/* Takes a lease that a region of the file needs, or shares the one that another region has: a write
 * lease if the description allows writes. NULL with a reason. */
struct lease *lease_take(int fd, struct file_id file, enum left_reason *why);
/* Ends a region's use of a lease. The last one releases it. */
void lease_drop(struct lease *lease);
/* Whether an open(2) or truncate(2) of the file waits for the lease, or has already continued
 * without it. */
bool lease_is_broken(const struct lease *lease);
/* In a forked child: closes the descriptors. The leases of the parent do not end. */
void lease_forget_all(void);

/* Record that other processes may share the descriptions of this process that are open for
 * writing: all of them, or one. */
void lease_note_shared_descriptions(void);
void lease_note_shared_description(int fd);

/* Called before exec, which would close descriptors of the library and so drop record locks of the
 * program: makes exec leave them open. */
void lease_keep_locks_over_exec(void);
/* Closes a descriptor of a file of the program, unless this would drop record locks (F_SETLK)
 * that the program may hold. */
void close_unless_locked(int fd);

#endif
