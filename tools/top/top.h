/* SPDX-License-Identifier: BSD-3-Clause */
/* What the ways of showing a view share. */
#ifndef TOP_H
#define TOP_H

#include "view.h"

#include <stdio.h>

struct options {
	double delay;        /* seconds from one look to the next */
	enum column sort;
	bool ascending;
	bool maps;           /* mappings too */
	bool json;
	unsigned looks;      /* how many; 0: without end */
	char filter[64];     /* only processes that match */
};

#define LINE_MAX_LEN 256

/* Lines for people, without their ends. */
void line_summary(char line[LINE_MAX_LEN], const struct view *view);
void line_heads(char line[LINE_MAX_LEN]);
void line_process(char line[LINE_MAX_LEN], const struct process *p);
void line_map(char line[LINE_MAX_LEN], const struct row *map);

void print_text(FILE *f, const struct view *view, const struct options *o);
void print_json(FILE *f, const struct view *view, const struct options *o);

/* A screen that is kept up to date until the user has enough. 0; -ENOTSUP: umtop was built without; or -errno with a
 * sentence. */
int screen_run(struct view *view, struct options *o);

#endif
