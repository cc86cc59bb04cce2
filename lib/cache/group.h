/* SPDX-License-Identifier: BSD-3-Clause */
/* Which mappings share a policy and a budget. */
#ifndef GROUP_H
#define GROUP_H

#include "cache/cache.h"

#include <ummap.h>

/* Makes the mapping, with frames of len bytes, join the group that its attributes name, or a group
 * of its own. Returns 0, or -errno with a message. */
int group_join(struct member *m, const struct ummap_attr *attr, size_t len);
/* Makes it leave the group. The mapping has no valid segment. */
void group_leave(struct member *m);
/* In a forked child, in which there are no groups. */
void group_fork_child(void);

#endif
