/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The folder for storage is one job's: each rank holds a file `ummr.lock.RANK` there for as long as its job lives, in which
 * it stands who that is, for the error of the next one.
 */
#ifndef MAPREDUCE_LOCK_H
#define MAPREDUCE_LOCK_H

struct lock {
	char *path; /* NULL: none is held */
	int fd;
};

/* Waits for a short time: a job that was killed may take a moment to end. */
int lock_take(struct lock *l, const char *folder, int rank);
void lock_release(struct lock *l);

#endif
