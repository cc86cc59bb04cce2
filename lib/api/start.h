/* SPDX-License-Identifier: BSD-3-Clause */
/* Start of the library, and fork. */
#ifndef START_H
#define START_H

struct mapping;

/* Starts the library before the first mapping, also in a forked child: reads the environment,
 * installs the signal handler, and starts the threads. 0, or -errno with a message. */
int start_library(void);
/* Checks that the resources for segments of a new mapping are available. 0, or -errno with a
 * message. */
int start_prepare(const struct mapping *map);
/* Logs, once for each reason, if a new mapping has a smaller or larger budget than configured. */
void start_note_mapping(const struct mapping *map);

#endif
