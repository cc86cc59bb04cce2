/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The coarrays that a job has left in a folder, as a restart would find them: after a crash, as of
 * the last sync that all images have completed. Nothing in the folder changes. This module makes no
 * calls of MPI, because ummap-caf(1) uses it, too.
 */
#ifndef COARRAY_EARLIER_H
#define COARRAY_EARLIER_H

#include "window/manifest.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct earlier {
	struct names names;       /* names of the files */
	struct manifest manifest; /* the manifest */
	uint64_t epoch;           /* last sync that all images have completed; 0: none */
	size_t seg_size;          /* segment size of mappings; 0: the library's default */
	char wrong[1000];         /* error message of the last call that has failed */
};

/* A mapped coarray of one image. */
struct view {
	char *base;              /* mapping; NULL: there is no file */
	bool whole;              /* whether a sync has reached the file */
	uint64_t epoch;          /* number of the sync */
	uint64_t oldest, newest; /* commits that the log has */
};

/* Reads the manifest. The caller has set names and seg_size. */
bool earlier_open(struct earlier *x);
/* Maps a coarray of an image as of its newest sync. */
bool earlier_view(struct earlier *x, const struct entry *entry, int image, struct view *v);
void earlier_close_view(const struct view *v);
/* Returns the bytes of a coarray of an image as of x->epoch, which are valid until the view is
 * closed, or NULL after an error. */
const char *earlier_contents(struct earlier *x, const struct entry *entry, int image,
			     struct view *v);

#endif
