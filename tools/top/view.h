/* SPDX-License-Identifier: BSD-3-Clause */
/* A view: the processes of a node's registry, their mappings, and their rates. */
#ifndef TOP_VIEW_H
#define TOP_VIEW_H

#include "node/registry.h"

enum column {
	PID,
	SHARE,
	BUDGET,
	HELD,
	OVER,
	LACKS,
	RESIDENT,
	INACTIVE,
	DIRTY,
	WAITING,
	PAGECACHE,
	FAULTS,
	READS,
	WRITES,
	INACTIVE_HITS,
	READAHEAD_HITS,
	COLUMNS
};

/* The unit of a column's values. */
enum unit { NUMBER, BYTES, PER_SECOND, MIB_PER_SECOND, PART };

struct column_info {
	const char *title; /* title on the screen */
	const char *key;   /* name in JSON and for --sort */
	enum unit unit;    /* unit of the values */
};

extern const struct column_info columns[COLUMNS];

/* Returns the column with a key, or COLUMNS if there is none. */
enum column column_of(const char *key);

/* A process or a mapping. */
struct row {
	double value[COLUMNS];     /* values; NAN: unknown */
	char name[REGISTRY_NAME_LEN]; /* name of the program or of the store */
	uint64_t base, size, seg_size; /* mappings only: address, bytes, bytes of a segment */
	uint64_t sharers;          /* mappings only: processes of its node copy; 0: no copy */
	uint64_t transfer_bytes;   /* mappings only: bytes that a fault loads at most */
	uint64_t commit_bytes;     /* mappings only: bytes that a commit has yet to write */
};

struct process {
	uint64_t owner;            /* registry_owner of the process */
	bool dynamic;              /* mode of the process */
	uint64_t limit;            /* bytes that it grants all processes together */
	struct row self;           /* values of the process */
	unsigned mappings;         /* number of mappings */
	unsigned shown;            /* number of rows in map */
	struct row map[REGISTRY_MAPS]; /* values of the mappings */
	struct registry_page page;    /* newest report, from which the values come */
	struct registry_page before;  /* report before it, for the rates */
};

struct view {
	char path[REGISTRY_PATH_LEN]; /* path of the registry */
	const char *group;         /* UMMAP_GROUP; NULL: none */
	struct process *process;   /* processes, allocated by malloc */
	unsigned count;            /* number of processes */
	double held, limit;        /* bytes that all processes hold, and their largest limit */
};

/* Updates the view from the registry at view->path. Before the first call, all but path and group
 * is zero. A missing registry has no processes. Returns 0, or -errno with a message. */
int view_take(struct view *view);
/* Whether each process has reported twice, so that its rates are known. */
bool view_is_fresh(const struct view *view);
/* Sorts processes, and the mappings of each. */
void view_sort(struct view *view, enum column by, bool ascending);
/* Whether a text is in the name of the process or of a mapping, or is the process ID. */
bool view_matches(const struct process *p, const char *text);

#endif
