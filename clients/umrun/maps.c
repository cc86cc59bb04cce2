/* SPDX-License-Identifier: BSD-3-Clause */
#include "umrun/maps.h"

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* Bytes of a line that are kept: all but the end of a long name. */
#define MAX_LINE_BYTES 256

static bool next_line(FILE *maps, char *line)
{
	int c;

	if (!fgets(line, MAX_LINE_BYTES, maps))
		return false;
	if (!strchr(line, '\n')) {
		while ((c = getc_unlocked(maps)) != '\n' && c != EOF)
			;
	}
	return true;
}

int maps_each_file(const void *addr, size_t len, found_file found, void *arg)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	uintptr_t first, end;
	char line[MAX_LINE_BYTES], way;
	unsigned long ino;
	int result = 0;

	if (!maps)
		return -1;
	while (result == 0 && next_line(maps, line)) {
		if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %*c%*c%*c%c %*s %*s %lu", &first, &end,
			   &way, &ino) != 4 || !ino)
			continue;
		if (first < (uintptr_t)addr + len && (uintptr_t)addr < end)
			result = found((ino_t)ino, way == 's', arg);
	}
	fclose(maps);
	return result;
}
