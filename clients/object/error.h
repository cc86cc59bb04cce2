/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef OBJECT_ERROR_H
#define OBJECT_ERROR_H

#include <ummap.h>

#define object_fail umseterror

/* A failure, kept while what has failed is cleaned up, which may fail as well. */
struct failure {
	int error;
	char text[512];
};

void failure_keep(struct failure *f);
void failure_restore(const struct failure *f);

#endif
