/* SPDX-License-Identifier: BSD-3-Clause */
/* Addresses for mapped ranges. */
#ifndef RANGE_H
#define RANGE_H

#include "engine/table.h"

/* Address space in which every access faults, with whole reserved pages before and after it. 0, or -errno with a
 * sentence. */
int engine_attach(const struct engine *e, size_t len, size_t seg_size, size_t before, size_t after, char **range);
/* More of it right behind a range. false: something else is there. */
bool engine_extend(const struct engine *e, char *range, size_t len, size_t more);
/* Makes every access to a range fault again, in which something else was mapped. 0 or -errno. */
int engine_reset(const struct engine *e, char *range, size_t len);
/* Frees a range; a thread that waits for a segment there then faults at an address of no mapping. */
void engine_detach(const struct engine *e, char *range, size_t len);
/* As engine_detach; what is mapped at `with` moves there with no moment between. 0, or -errno: it has not moved. */
int engine_replace(const struct engine *e, char *range, size_t len, void *with);
/* Between these two no mapped range is made, or grown, into places that are empty for the moment. The caller must not
 * wait for such a call. */
void engine_hold_places(void);
void engine_release_places(void);
/* Which system call was refused (sys_failure), or only -errno; and what to do. `what`: the sentence's begin. Returns
 * -errno. */
int engine_fail(const struct engine *e, const char *what, int err);
/* In a forked child: no addresses are being searched. */
void engine_forget_places(void);

#endif
