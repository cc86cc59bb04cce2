/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory of another process that cannot be mapped here: the kernel copies to and from it. */
#ifndef REMOTE_H
#define REMOTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

/* What a process tells others, so that they can find it: plain bytes. */
struct remote_offer {
	uint64_t at;             /* where it begins in that process; 0: nothing is offered */
	uint64_t mark_at, mark;  /* by which that process is told from others */
	int32_t pid;
};

void remote_make(struct remote_offer *offer, const void *at);
/* Whether this process may copy there, and it is that process. */
bool remote_find(const struct remote_offer *offer);

/* Copies that are made together: one call for many. */
#define REMOTE_PIECES 64
struct remote {
	int pid;
	bool put;
	unsigned here_n, there_n;
	size_t bytes;
	struct iovec here[REMOTE_PIECES], there[REMOTE_PIECES];
};

static inline void remote_begin(struct remote *r, int pid, bool put)
{
	r->pid = pid;
	r->put = put;
	r->here_n = r->there_n = 0;
	r->bytes = 0;
}

/* Between bytes here, and those at an address there. false: they, or others before, cannot be copied, and errno says why. */
bool remote_copy(struct remote *r, void *here, uint64_t there, size_t len);
/* Makes those that are left. */
bool remote_end(struct remote *r);

#endif
