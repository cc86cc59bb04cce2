/* SPDX-License-Identifier: BSD-3-Clause */
/* Prints the counters; one table says which there are. */
#include "stats.h"

#include "log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define FIELD(name) { #name, offsetof(struct umstat, name) }

static const struct {
	const char *name;
	size_t offset;
} fields[] = {
	FIELD(read_faults), FIELD(write_faults), FIELD(upgrade_faults), FIELD(spurious_faults),
	FIELD(standby_hits), FIELD(ahead_hits), FIELD(ahead_waste), FIELD(ahead_loads), FIELD(evictions),
	FIELD(read_bytes), FIELD(read_requests), FIELD(write_bytes), FIELD(write_requests), FIELD(flushes),
	FIELD(read_errors), FIELD(write_errors), FIELD(resident_bytes), FIELD(standby_bytes),
	FIELD(dirty_bytes), FIELD(pinned_bytes), FIELD(budget_bytes), FIELD(held_bytes),
	FIELD(over_budget_peak), FIELD(mappings),
};

void stats_print(const char *where, const struct umstat *st)
{
	bool person = strcmp(where, "1") == 0;
	size_t n = sizeof(fields) / sizeof(*fields);
	FILE *f = person ? stderr : fopen(where, "we");

	if (!f) {
		log_line(LOG_ERROR, "stats", "UMMAP_STATS: %s cannot be written: %s", where, strerror(errno));
		return;
	}
	if (!person)
		fprintf(f, "{\n");
	for (size_t i = 0; i < n; i++) {
		uint64_t value;

		memcpy(&value, (const char *)st + fields[i].offset, sizeof(value));
		if (person)
			fprintf(f, "ummap: %-16s %" PRIu64 "\n", fields[i].name, value);
		else
			fprintf(f, "  \"%s\": %" PRIu64 "%s\n", fields[i].name, value, i + 1 < n ? "," : "");
	}
	if (!person) {
		fprintf(f, "}\n");
		fclose(f);
	}
}
