/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory of another process that cannot be mapped here: the kernel copies to and from it. */
#ifndef REMOTE_H
#define REMOTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

/* Memory of a process, as it tells others: plain bytes. */
struct remote_offer {
	uint64_t at;             /* address in that process; 0: nothing is offered */
	uint64_t mark_at, mark;  /* address and value of a random number that identifies it */
	int32_t pid;             /* that process */
};

void remote_make(struct remote_offer *offer, const void *at);
/* Whether this process may copy there, and the process is still the one that made the offer. */
bool remote_find(const struct remote_offer *offer);

/* Copies in one direction that the kernel makes by one call. */
#define REMOTE_PIECES 64
struct remote_list {
	int pid;                 /* the other process */
	bool put;                /* the direction: from here to there */
	unsigned here_n, there_n; /* numbers of pieces */
	size_t bytes;            /* size of all copies; 0: the list is empty */
	struct iovec here[REMOTE_PIECES], there[REMOTE_PIECES]; /* the pieces */
};

static inline void remote_begin(struct remote_list *l, int pid)
{
	l->pid = pid;
	l->put = false;
	l->here_n = l->there_n = 0;
	l->bytes = 0;
}

/*
 * Adds a copy between bytes here and at an address there. A full list, and one of the other
 * direction, is copied before. false: that has failed, and errno says why.
 */
bool remote_copy(struct remote_list *l, bool put, void *here, uint64_t there, size_t len);
/* Makes the copies of the list, which becomes empty. */
bool remote_end(struct remote_list *l);

#endif
