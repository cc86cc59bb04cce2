/* SPDX-License-Identifier: BSD-3-Clause */
/* Requests to load segments, which a thread of the owner of a mapping serves. */
#ifndef PAGER_H
#define PAGER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A descriptor of a process, as plain bytes, which the process may send to others. */
struct descriptor {
	uint64_t device, inode;  /* the file */
	int32_t pid, fd;         /* the number in the process; fd -1: none */
};

/* Describes a descriptor of this process; false: it is not open. */
bool descriptor_describe(struct descriptor *d, int fd);
/* Opens the file to be read and written; -1: it cannot be opened, or is another file by now. */
int descriptor_open(const struct descriptor *d);

struct pager;
struct pager_pipe;

/* The answer to one rank's requests, in memory that both processes map. */
struct pager_answer {
	_Atomic uint32_t count;  /* number of answers; the rank waits for it to change */
	_Atomic int32_t error;   /* errno value of the last one; 0: the segment is in memory */
};

/*
 * Accepts requests for the mapping [at, at + len). Stores the pipe and the key to which others send
 * requests. NULL: the thread cannot be started.
 */
struct pager *pager_open(char *at, size_t len, struct descriptor *pipe, uint64_t *key);
/* From here on, requests of each of the ranks are answered in answers[rank]. */
void pager_answer(struct pager *p, struct pager_answer *answers, int ranks);
/* Ends it, once no process sends requests any more. */
void pager_close(struct pager *p);

/* Opens the pipe of an owner; NULL: its process does not permit that. */
struct pager_pipe *pager_connect(const struct descriptor *d);
void pager_disconnect(struct pager_pipe *pipe);
/*
 * Asks for the segment of an offset, to be loaded from or stored to. The answer comes later. false:
 * the request cannot be sent.
 */
bool pager_ask(const struct pager_pipe *pipe, uint64_t key, uint64_t offset, bool store, int rank);

#endif
