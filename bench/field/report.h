/* SPDX-License-Identifier: BSD-3-Clause */
/* Results for programs: each is a JSON object in a line, appended to the file of --json. */
#ifndef FIELD_REPORT_H
#define FIELD_REPORT_H

#include <stdio.h>

struct report {
	FILE *out; /* NULL: nobody asked for it */
};

/* Begins an object; path NULL: it and its members go nowhere. */
struct report report_begin(const char *path, const char *program);
void report_text(struct report *r, const char *key, const char *value);
void report_number(struct report *r, const char *key, double value);
/* Ends the program if the object could not be written. */
void report_end(struct report *r);

#endif
