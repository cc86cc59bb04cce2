/* SPDX-License-Identifier: BSD-3-Clause */
#include "common/stamp.h"

#include <time.h>
#include <unistd.h>

/* Time stamps of files before Linux 6.13 change every 10 ms at most, with CONFIG_HZ=100. */
#define STAMP_NS 20000000
/* Some file systems store whole seconds: ext4 with inodes of 128 bytes, for example, and FAT, which
 * stores even ones. */
#define WHOLE_STAMP_NS 2000000000ll
#define NS_PER_S 1000000000ll

int64_t stamp_doubt(int64_t seconds, int64_t nanoseconds)
{
	int64_t period = nanoseconds ? STAMP_NS : WHOLE_STAMP_NS, elapsed;
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	elapsed = now.tv_sec - seconds;
	/* A file may have any time stamp. */
	if (elapsed > 2 * WHOLE_STAMP_NS / NS_PER_S)
		return 0;
	if (elapsed < 0)
		return period;
	elapsed = elapsed * NS_PER_S + now.tv_nsec - nanoseconds;
	return elapsed < 0 ? period : period - elapsed;
}

void stamp_await(int64_t seconds, int64_t nanoseconds)
{
	int64_t doubt = stamp_doubt(seconds, nanoseconds);

	if (doubt > 0)
		usleep((useconds_t)(doubt / 1000 + 1));
}
