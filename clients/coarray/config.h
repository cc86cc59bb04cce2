/* SPDX-License-Identifier: BSD-3-Clause */
/* The variables PCAF_*: what the user wants of coarrays in storage. */
#ifndef COARRAY_CONFIG_H
#define COARRAY_CONFIG_H

#include "window/manifest.h"
#include "pmpi/error.h"

#include <stdbool.h>
#include <stdint.h>

#define CONFIG_TEXT MANIFEST_FOLDER

struct config {
	bool enabled;
	char path[CONFIG_TEXT];         /* a folder */
	char recover[CONFIG_TEXT];      /* that of an earlier run, for pcaf_open_image; "": none */
	char prefix[CONFIG_TEXT];       /* of the names of all files there */
	bool shared_file;               /* all coarrays of an image in one file */
	bool unlink;                    /* files only serve as memory, and go with the program */
	bool consistent;                /* a restart brings back one moment of all images */
	bool force;                     /* what does not match what is there begins anew */
	bool report;                    /* image 1 says what a run begins with */
	uint64_t syncfreq;              /* milliseconds between two syncs with storage, at least; 0: each */
	uint64_t min;                   /* smaller coarrays stay in memory */
	uint64_t segsize;
	char stripe_size[CONFIG_TEXT], stripe_count[CONFIG_TEXT];
	char driver[CONFIG_TEXT];
};

/* Whether the environment says anything but that coarrays are to stay in memory. */
bool config_wanted(void);
void config_read(struct config *c, struct error *e);
/* Whether it is a folder; its name, in full. */
bool config_folder(char name[CONFIG_TEXT], const char *value);

#endif
