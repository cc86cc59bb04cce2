/* SPDX-License-Identifier: BSD-3-Clause */
/* The beginning of a job, which continues the earlier run in its folder. */
#ifndef COARRAY_RESTART_H
#define COARRAY_RESTART_H

/* Fills in job.manifest, job.epoch and job.restart; collective over job.comm. An error ends the
 * program. */
void restart_begin(void);

#endif
