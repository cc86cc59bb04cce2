/* SPDX-License-Identifier: BSD-3-Clause */
/* What there is to see: the processes of a node's table, their mappings, and what they have done lately. */
#ifndef UMTOP_VIEW_H
#define UMTOP_VIEW_H

#include "node/registry.h"

enum column {
	PID, SHARE, BUDGET, HELD, OVER, LACKS, RESIDENT, STANDBY, DIRTY, WAITING, PAGECACHE, FAULTS,
	READS, WRITES, STANDBY_HITS, AHEAD_HITS,
	COLUMNS
};

/* How a column's numbers are shown. */
enum unit { NUMBER, BYTES, PER_SECOND, MIB_PER_SECOND, PART };

struct column_info {
	const char *head;  /* on the screen */
	const char *key;   /* in JSON and for --sort */
	enum unit unit;
};

extern const struct column_info columns[COLUMNS];

/* The column of that key, or COLUMNS. */
enum column column_of(const char *key);

/* A process or a mapping. */
struct row {
	double value[COLUMNS];     /* NAN: there is none */
	char name[REGISTRY_NAME_LEN]; /* of the program, or of the store */
	uint64_t base, size, seg_size;
};

struct process {
	uint64_t owner;            /* as in the table */
	bool dynamic;
	uint64_t limit;
	struct row self;
	unsigned mappings;         /* how many it has; rows there are for `shown` of them */
	unsigned shown;
	struct row map[REGISTRY_MAPS];
	struct registry_page page;    /* what the rows come from, ... */
	struct registry_page before;  /* ... and the one before: what has happened between them */
};

struct view {
	char path[REGISTRY_PATH_LEN];
	const char *group;         /* UMMAP_GROUP; NULL: none */
	struct process *process;
	unsigned count;
	double held, limit;        /* bytes in sum, and the largest limit */
};

/* Looks at the table at view->path; the view begins as zeros. A table that is not there has no processes. 0, or -errno
 * with a sentence. */
int view_take(struct view *view);
/* Whether all processes that there were a while ago have said something since. */
bool view_is_fresh(const struct view *view);
/* Sorts processes, and the mappings of each. */
void view_sort(struct view *view, enum column by, bool ascending);
/* Whether text is in the name, in that of a mapping, or is the number of the process. */
bool view_matches(const struct process *p, const char *text);

#endif
