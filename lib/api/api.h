/* SPDX-License-Identifier: BSD-3-Clause */
/* Functions that begin and end every public call. */
#ifndef API_H
#define API_H

#include "base/sys.h"

/* Begins a call: blocks signals, because the thread may take locks of segments, and clears the
 * message. */
void api_enter(struct guard *g);
/* Ends a call. err: 0 or -errno. Returns 0; or -1, with errno and a message set. */
int api_leave(struct guard *g, int err);
/*
 * Writes changes in parts, before a call that must write all of them. Between two parts the thread
 * holds no lock and no use of the mapping, so signal handlers may run, use the mapping, and leave
 * by siglongjmp. Writes the range [addr, addr + len); len 0: the whole mapping that begins at addr.
 */
void api_write_changes(struct guard *g, const void *addr, size_t len);
/* Returns -EINVAL and sets the message that no mapping begins at addr. */
int api_fail_no_mapping(const void *addr);

#endif
