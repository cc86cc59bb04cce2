/* SPDX-License-Identifier: BSD-3-Clause */
/* Where a job goes on: the coarrays of the earlier run in its folder. */
#ifndef COARRAY_RESTART_H
#define COARRAY_RESTART_H

#include "pmpi/error.h"

/* Fills in job.manifest, job.epoch and job.restart. Collective over job.comm; an error ends the
 * program. */
void restart_begin(struct error *e);

#endif
