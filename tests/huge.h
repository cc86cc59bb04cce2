/* SPDX-License-Identifier: BSD-3-Clause */
/* Tells how much memory of the process is in huge pages. */
#ifndef TESTS_HUGE_H
#define TESTS_HUGE_H

#include "common.h"

/* Returns the bytes of [addr, addr + len) that are mapped as huge pages. */
static inline size_t huge_bytes(const uint8_t *addr, size_t len)
{
	FILE *f = fopen("/proc/self/smaps", "re");
	unsigned long from, to, kib;
	size_t sum = 0;
	bool inside = false;
	char line[256];

	check(f);
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
			inside = from >= (uintptr_t)addr && to <= (uintptr_t)addr + len;
		else if (inside && sscanf(line, "AnonHugePages: %lu kB", &kib) == 1)
			sum += kib * KIB;
	}
	fclose(f);
	return sum;
}

static inline bool has_huge_pages(void)
{
	FILE *f = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "re");
	char line[64] = "";
	bool has;

	if (!f)
		return false;
	has = fgets(line, sizeof(line), f) && !strstr(line, "[never]");
	fclose(f);
	return has;
}

#endif
