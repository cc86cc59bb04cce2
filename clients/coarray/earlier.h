/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a job has left in a folder, as a restart would find it: after a crash, the moment to which that would go back. Nothing
 * in the folder changes. Knows nothing of MPI: ummap-caf(1) reads the same.
 */
#ifndef COARRAY_EARLIER_H
#define COARRAY_EARLIER_H

#include "window/manifest.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct earlier {
	struct names names;
	struct manifest manifest;
	uint64_t epoch;          /* the last sync that all images have completed; 0: none */
	size_t seg_size;         /* in which files are read; 0: the library's */
	char wrong[1000];        /* what the last call that failed has to say */
};

/* What is there of a mapped coarray of an image. */
struct view {
	char *base;                  /* NULL: no file */
	bool whole;                  /* a sync has reached it */
	uint64_t epoch;              /* of the job */
	uint64_t oldest, newest;     /* of the log */
};

/* For names and seg_size that are set. */
bool earlier_open(struct earlier *x);
bool earlier_look(struct earlier *x, const struct entry *entry, int image, struct view *v);
void earlier_leave(const struct view *v);
/* The bytes of a coarray of an image, for as long as the view is not left. NULL: see `wrong`. */
const char *earlier_contents(struct earlier *x, const struct entry *entry, int image, struct view *v);

#endif
