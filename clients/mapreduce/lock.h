/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The locks of the storage folder, which only one job may use. Each rank holds a lock on the file
 * `ummr.lock.RANK` for the lifetime of its job. The file names the process, for the error message
 * of another job.
 */
#ifndef MAPREDUCE_LOCK_H
#define MAPREDUCE_LOCK_H

struct lock {
	char *path; /* name of the file; NULL: no lock is held */
	int fd;     /* descriptor of the file, or -1 */
};

/* Waits for up to 5 seconds, because a killed process may take a moment to end. */
int lock_take(struct lock *l, const char *folder, int rank);
void lock_release(struct lock *l);

#endif
