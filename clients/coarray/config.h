/* SPDX-License-Identifier: BSD-3-Clause */
/* The variables PCAF_*: settings of coarrays that are kept in files. */
#ifndef COARRAY_CONFIG_H
#define COARRAY_CONFIG_H

#include "window/manifest.h"
#include "pmpi/error.h"

#include <stdbool.h>
#include <stdint.h>

#define CONFIG_TEXT MANIFEST_FOLDER

struct config {
	bool enabled;              /* coarrays are kept in files */
	char path[CONFIG_TEXT];    /* folder of the files */
	char recover[CONFIG_TEXT]; /* folder of an earlier run, for pcaf_open_image; "": none */
	char prefix[CONFIG_TEXT];  /* beginning of the names of all files */
	bool shared_file;          /* each image has one file for all its coarrays */
	bool unlink;               /* files only serve as memory, and are removed at the end */
	bool consistent;           /* a restart brings all images back to the same sync */
	bool async;                /* a sync is durable at the end of the next one */
	bool force;                /* coarrays that do not match the manifest begin anew */
	bool report;               /* image 1 prints the sync that a run begins with */
	uint64_t syncfreq;         /* minimum milliseconds between two syncs to storage */
	uint64_t min;              /* bytes; smaller coarrays stay in memory */
	uint64_t segsize;          /* bytes of a segment */
	char driver[CONFIG_TEXT];  /* driver of the files, from UMMAP_DRIVER; "": the default */
};

/* Returns whether PCAF_ENABLED has a value other than false. */
bool config_is_wanted(void);
/* Reads all variables. An invalid value is an error. */
void config_read(struct config *c, struct error *e);
/* Stores the full name of a folder in a field of CONFIG_TEXT bytes. Returns false if there is no
 * such folder, or if its name is too long or has several lines. */
bool config_take_folder(void *field, const char *value);

#endif
