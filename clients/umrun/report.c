/* SPDX-License-Identifier: BSD-3-Clause */
/* The counters change under the lock of the list of regions. */
#include "umrun/report.h"

#include "common/fd_path.h"
#include "umrun/config.h"
#include "umrun/list.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#include <ummap.h>

static const char *const reasons[] = {
#define LEFT(name, text) text,
	LEFT_REASONS
#undef LEFT
};

static struct {
	unsigned long taken, handed_back, yielded;
	unsigned long left[LEFT_REASON_COUNT];
	unsigned long long bytes;
} counts;

/* Prints the path of the file behind a descriptor, and the reason for its mapping by the kernel. */
static void report_file(int fd, const char *when, const char *reason, const char *detail)
{
	char link[FD_PATH_BYTES], path[PATH_MAX];
	ssize_t len;

	if (!config.verbose)
		return;
	fd_path(link, fd);
	len = readlink(link, path, sizeof(path));
	if (len < 0)
		len = snprintf(path, sizeof(path), "descriptor %d", fd);
	fprintf(stderr, "umrun: the kernel maps '%.*s'%s: %s%s%s\n", (int)len, path, when, reason,
		detail ? ": " : "", detail ? detail : "");
}

bool report_left(int fd, enum left_reason why, const char *detail)
{
	counts.left[why]++;
	report_file(fd, "", reasons[why], detail);
	return false;
}

void report_taken(size_t bytes)
{
	counts.taken++;
	counts.bytes += bytes;
}

void report_handed_back(int fd, const char *reason, bool is_reopened)
{
	counts.handed_back++;
	counts.yielded += is_reopened;
	report_file(fd, " from now on", reason, NULL);
}

static unsigned long count_left(enum left_reason first)
{
	unsigned long sum = 0;

	for (int i = first; i < LEFT_REASON_COUNT; i++)
		sum += counts.left[i];
	return sum;
}

/* Whether --exclusive would have left a mapping with the library. */
static bool would_exclusive_help(void)
{
	return !config.exclusive && counts.yielded + counts.left[LEFT_OPEN] +
	       counts.left[LEFT_DESCRIPTION] + counts.left[LEFT_OWNER] +
	       counts.left[LEFT_NO_LEASES];
}

/* Reports only the reasons that concern coherence with other calls and processes. The user knows
 * the reasons that the command line gives. */
static void report_coherence(void)
{
	unsigned long sum = count_left(LEFT_OPEN) + counts.yielded;
	const char *separator = "";

	if (!sum)
		return;
	fprintf(stderr, "umrun: %s: %lu file mapping%s stayed with the kernel or returned to it: ",
		program_invocation_short_name, sum, sum == 1 ? "" : "s");
	for (int i = LEFT_OPEN; i < LEFT_REASON_COUNT; i++) {
		if (counts.left[i]) {
			fprintf(stderr, "%s%lu because %s", separator, counts.left[i], reasons[i]);
			separator = ", ";
		}
	}
	if (counts.yielded)
		fprintf(stderr, "%s%lu because the file was opened again", separator,
			counts.yielded);
	fprintf(stderr, ".%s\n", would_exclusive_help() ?
		" If no other process uses these files, try --exclusive." : "");
}

static void report_stats(void)
{
	struct umstat st = { .struct_size = sizeof(st) };

	if (counts.taken + count_left(0) == 0) {
		fprintf(stderr, "umrun: %s: the program mapped no file\n",
			program_invocation_short_name);
		return;
	}
	if (umstat(NULL, &st) < 0)
		return;
	fprintf(stderr, "umrun: %s: %lu mappings of %llu bytes taken over, %lu left to the kernel, "
		"%lu returned to it; system calls %s\n", program_invocation_short_name,
		counts.taken, counts.bytes, count_left(0), counts.handed_back,
		region_kernel_can_access ? "need no pins" : "pin the memory");
	fprintf(stderr, "umrun: %s: %llu bytes read in %llu requests, %llu written in %llu; %llu "
		"faults, %llu evictions\n", program_invocation_short_name,
		(unsigned long long)st.read_bytes, (unsigned long long)st.read_requests,
		(unsigned long long)st.write_bytes, (unsigned long long)st.write_requests,
		(unsigned long long)(st.read_faults + st.write_faults + st.upgrade_faults),
		(unsigned long long)st.evictions);
}

void report_end(void)
{
	if (!config.quiet)
		report_coherence();
	if (config.stats)
		report_stats();
}
