/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a page fault of the library cannot do without, each part timed by itself on memory like the library's: frames on
 * huge pages, moved to scattered places of a view and back; or on small ones, whose pages are copied and moved by
 * userfaultfd. For bench/fault.
 */
#ifndef BENCH_RAW_H
#define BENCH_RAW_H

#include <linux/userfaultfd.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "kit/data.h"

/* In brackets: what userfaultfd has in its place. */
enum part {
	SEGV,          /* from the load to a SIGSEGV handler that does nothing, and on (to a thread, and on) */
	POPULATE,      /* of a frame of at least a huge page: memory for it, zeroed by the kernel */
	ZERO,          /* memset of the frame */
	COPY,          /* pread of the frame from the warm file */
	PUBLISH_READ,  /* mprotect to read-only at home, mremap into the view (UFFDIO_COPY) */
	PUBLISH_WRITE, /* mremap into the view (UFFDIO_MOVE) */
	UPGRADE,       /* mprotect to writable in the view (UFFDIO_WRITEPROTECT) */
	RETRACT,       /* mremap home, mmap over the hole (UFFDIO_MOVE) */
	PARTS
};
extern const char *const part_names[PARTS];

void must(bool done, const char *what);

/* Loads a word by an instruction whose length step_over knows. */
void load_word(void *p);

void step_over(int sig, siginfo_t *info, void *context);

void *reserve(void *at, size_t len);

void move(char *from, char *to, size_t len);

void raw_take_back(char *place, char *home, size_t len);

/* What each part costs for n segments of seg bytes; fd: a file of at least n * seg bytes. A part that does not
 * come up for segments of that size has no samples. */
void raw_measure(struct figure parts[PARTS], size_t seg, size_t n, int fd, uint64_t seed, bool uffd);

#endif
