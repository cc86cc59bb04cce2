/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef OBJECT_ERROR_H
#define OBJECT_ERROR_H

/* Keeps the sentence for umobject_errormsg, sets errno, and returns -1. Back ends that are loaded call it too, by a name that is the
 * library's own. */
__attribute__((format(printf, 2, 3), visibility("default")))
int object_fail(int error, const char *format, ...) __asm__("umobject_fail");

/* A failure, kept while what has failed is cleaned up, which may fail as well. */
struct failure {
	int error;
	char text[1024];
};

void failure_keep(struct failure *f);
void failure_restore(const struct failure *f);

#endif
