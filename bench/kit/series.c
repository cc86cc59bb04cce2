/* SPDX-License-Identifier: BSD-3-Clause */
#include "kit/series.h"

const char *const servers[SERVERS] = { "segv", "uffd", "mmap", "memory" };
const char *const kind_names[KINDS] = {
	"zero-read", "zero-write", "file-read", "file-write", "upgrade", "standby", "ahead",
};

/* Parts of each kind of fault. An eviction adds RETRACT. A frame that had no memory yet has
 * POPULATE instead of ZERO. */
static const unsigned kind_parts[KINDS] = {
	[ZERO_READ] = 1u << SEGV | 1u << ZERO | 1u << PUBLISH_READ,
	[ZERO_WRITE] = 1u << SEGV | 1u << ZERO | 1u << PUBLISH_WRITE,
	[FILE_READ] = 1u << SEGV | 1u << COPY | 1u << PUBLISH_READ,
	[FILE_WRITE] = 1u << SEGV | 1u << COPY | 1u << PUBLISH_WRITE,
	[UPGRADE_WRITE] = 1u << SEGV | 1u << UPGRADE,
	[STANDBY_READ] = 1u << SEGV | 1u << PUBLISH_WRITE, /* the frame has its rights already */
	[AHEAD_READ] = 1u << SEGV | 1u << PUBLISH_READ,
};

char data_path[PATH_MAX], scratch_path[PATH_MAX];

uint64_t kind_cost(const struct figure parts[PARTS], enum kind kind, bool evict, bool uffd)
{
	bool fresh = !evict && parts[POPULATE].n && kind <= FILE_WRITE;
	unsigned used = kind_parts[kind], part;
	uint64_t ns = 0;

	/* An inactive frame keeps its rights; with userfaultfd, pages have none. */
	if (uffd && kind == STANDBY_READ)
		used = 1u << SEGV | 1u << PUBLISH_READ;
	if (fresh)
		used = (used & ~(1u << ZERO)) | 1u << POPULATE;
	if (evict)
		used |= 1u << RETRACT;
	for (part = 0; part < PARTS; part++)
		if (used >> part & 1)
			ns += parts[part].median;
	return ns;
}
