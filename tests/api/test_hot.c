/* SPDX-License-Identifier: BSD-3-Clause */
/* What is used again stays, while what is used once passes through: the default policy. */
#include "common.h"

#include <criterion/criterion.h>

#define SEG (64 * KIB)
#define BUDGET 64
#define HOT 8
#define COLD 4096

/* Segments that were loaded from storage. */
static uint64_t loads(const uint8_t *m)
{
	struct umstat st = stat_of(m);

	return st.read_bytes / SEG;
}

static uint8_t *map(void)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	char path[320], uri[512];
	void *addr;
	int fd = temp_named("f", (HOT + COLD) * SEG, path);
	uint8_t byte = 1;

	/* No holes: these are not loaded. */
	for (size_t i = 0; i < HOT + COLD; i++)
		check(pwrite(fd, &byte, 1, (off_t)(i * SEG)) == 1);
	close(fd);
	set_budget(BUDGET * SEG);
	set_env("UMMAP_READAHEAD", "0");
	attr.seg_size = SEG;
	snprintf(uri, sizeof(uri), "posix:%s", path);
	check(ummap_open(uri, (HOT + COLD) * SEG, 0, PROT_READ, &attr, &addr) == 0);
	return addr;
}

/* As many cold ones as hot ones, in turns; every cold one once. Returns how often hot ones were loaded. */
static uint64_t hot_loads(const uint8_t *m)
{
	uint64_t before = loads(m);

	for (size_t cold = 0; cold < COLD; cold++) {
		check(m[(HOT + cold) * SEG] == 1);
		check(m[cold % HOT * SEG] == 1);
	}
	return loads(m) - before - COLD;
}

Test(hot, stays_by_default)
{
	/* With fifo it is 550 with sigbus, 96 with segv. */
	cr_expect_leq(hot_loads(map()), 4 * HOT);
}
