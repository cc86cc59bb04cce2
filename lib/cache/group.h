/* SPDX-License-Identifier: BSD-3-Clause */
/* Which mappings share a policy and a budget. */
#ifndef GROUP_H
#define GROUP_H

#include "cache/cache.h"

#include <ummap.h>

/* The mapping, with frames of len bytes, joins the group that its attributes name, or an own one that they describe;
 * and leaves it, when it has no valid segment. 0 or -errno with a sentence. */
int group_join(struct member *m, const struct ummap_attr *attr, size_t len);
void group_leave(struct member *m);
/* In a forked child: there are none. */
void group_forget(void);

#endif
