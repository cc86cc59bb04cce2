/* SPDX-License-Identifier: BSD-3-Clause */
/* A series of faults, of which there are kinds, and what one of each kind cannot do without. */
#ifndef BENCH_SERIES_H
#define BENCH_SERIES_H

#include <limits.h>

#include "kit/raw.h"

/* Who serves the faults: an engine of the library; or the kernel, for a mapped file or for memory. */
enum server { SEGV_ENGINE, UFFD_ENGINE, MMAP, MEMORY, SERVERS };
extern const char *const servers[SERVERS];

enum kind { ZERO_READ, ZERO_WRITE, FILE_READ, FILE_WRITE, UPGRADE_WRITE, STANDBY_READ, AHEAD_READ, KINDS };
extern const char *const kind_names[KINDS];

struct bucket {
	size_t n;
	uint64_t *ns;
};

/* The segments of one size, and what was found about them. */
struct series {
	size_t seg, n;                    /* n of them fill the budget */
	enum server server;
	uint64_t seed;
	uint32_t *order;                  /* 2 n places */
	struct figure parts[PARTS];
	struct bucket found[KINDS][2];    /* without and with eviction */
};

/* Both have room for the segments twice: words of data.h, and zeros. */
extern char data_path[PATH_MAX], scratch_path[PATH_MAX];

/* What a fault cannot do without, in ns; uffd: its access is reported, and answered, by userfaultfd. */
uint64_t kind_cost(const struct figure parts[PARTS], enum kind kind, bool evict, bool uffd);

#endif
