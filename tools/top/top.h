/* SPDX-License-Identifier: BSD-3-Clause */
/* The ways to show a view: text, JSON, and a screen. */
#ifndef TOP_H
#define TOP_H

#include "view.h"

#include <stdio.h>

struct options {
	double delay;        /* seconds between two updates */
	enum column sort;    /* column to sort by */
	bool ascending;      /* whether the smallest value comes first */
	bool maps;           /* whether mappings are shown */
	bool json;           /* whether the output is JSON */
	unsigned looks;      /* number of updates; 0: no limit */
	char filter[64];     /* text that shown processes must have; "": all are shown */
};

#define LINE_MAX_LEN 256

/* Formats a line of text, without its end. */
void line_summary(char line[LINE_MAX_LEN], const struct view *view);
void line_titles(char line[LINE_MAX_LEN]);
void line_process(char line[LINE_MAX_LEN], const struct process *p);
void line_map(char line[LINE_MAX_LEN], const struct row *map);
/* Describes a tier of a process. Returns the line. */
const char *line_tier(char line[LINE_MAX_LEN], const struct umstat *st, unsigned tier);
/* Says how many mappings of a process are not shown. Returns the line. */
const char *line_more(char line[LINE_MAX_LEN], const struct process *p);

void print_text(FILE *f, const struct view *view, const struct options *o);
void print_json(FILE *f, const struct view *view, const struct options *o);

/*
 * Keeps a screen up to date until the user ends it. Returns 0; -ENOTSUP if the command was built
 * without ncurses; or another -errno with a message.
 */
int screen_run(struct view *view, struct options *o);

#endif
