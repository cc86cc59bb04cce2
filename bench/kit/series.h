/* SPDX-License-Identifier: BSD-3-Clause */
/* A series of faults of several kinds, and the operations that each kind needs. */
#ifndef BENCH_SERIES_H
#define BENCH_SERIES_H

#include <limits.h>

#include "kit/raw.h"

/* Servers of faults: an engine of the library, or the kernel, for a mapped file or for memory. */
enum server { SEGV_ENGINE, UFFD_ENGINE, MMAP, MEMORY, SERVERS };
extern const char *const servers[SERVERS];

enum kind {
	ZERO_READ,
	ZERO_WRITE,
	FILE_READ,
	FILE_WRITE,
	UPGRADE_WRITE,
	STANDBY_READ,
	AHEAD_READ,
	KINDS
};
extern const char *const kind_names[KINDS];

struct bucket {
	size_t n;
	uint64_t *ns;
};

/* Segments of one size, and measurements of their faults. */
struct series {
	size_t seg, n;                    /* segment size in bytes; n segments fill the budget */
	enum server server;
	uint64_t seed;
	uint32_t *order;                  /* 2 n segments in random order */
	struct figure parts[PARTS];
	struct bucket found[KINDS][2];    /* faults without and with eviction */
};

/* Files of twice the budget: one has the words of data.h, the other one has zeros. */
extern char data_path[PATH_MAX], scratch_path[PATH_MAX];

/* Returns the cost of the needed operations in ns. uffd: userfaultfd reports and ends the access.
 * */
uint64_t kind_cost(const struct figure parts[PARTS], enum kind kind, bool evict, bool uffd);

#endif
