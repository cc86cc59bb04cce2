/* SPDX-License-Identifier: BSD-3-Clause */
/* Segments of a rank's part that others need in memory: they ask its process, a thread of which pages them in. */
#ifndef PAGER_H
#define PAGER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pager;
struct pager_door;

/* What a process tells others, so that they can ask: plain bytes. */
struct pager_offer {
	uint64_t dev, ino;       /* of the pipe */
	uint64_t key;            /* what is paged */
	int32_t pid, fd;         /* fd -1: nobody can ask */
};

/* How a request has gone, in memory that both have mapped: for each that asks. */
struct pager_answer {
	_Atomic uint32_t count;  /* of answers; sleepers wait for it to change */
	_Atomic int32_t error;   /* errno of the last; 0: it is in memory */
};

/* The owner's side: [at, at + len) of a mapping. NULL: no thread can be had. */
struct pager *pager_open(char *at, size_t len, struct pager_offer *offer);
/* Answers go to answers[asker], from here on. */
void pager_answer(struct pager *p, struct pager_answer *answers, int askers);
/* Nobody asks any more. */
void pager_close(struct pager *p);

/* The side of those who ask: NULL: its process does not let this one ask. */
struct pager_door *pager_enter(const struct pager_offer *offer);
void pager_leave(struct pager_door *door);
/* Asks for the segment of an offset, to be loaded from or stored to; the answer comes later. false: nobody is there. */
bool pager_ask(const struct pager_door *door, uint64_t key, uint64_t offset, bool store, int asker);

#endif
