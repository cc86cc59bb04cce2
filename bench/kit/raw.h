/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The operations that a page fault of the library needs, each measured separately with memory like
 * the library's: frames in huge pages that are moved to scattered segments and back; or frames in
 * small pages that userfaultfd copies and moves. For bench/fault.
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

/* Parts of a fault; the operation with userfaultfd is in parentheses. */
enum part {
	SEGV,          /* fault, empty SIGSEGV handler, and return (a thread, and return) */
	POPULATE,      /* memory of a frame of at least a huge page, zeroed by the kernel */
	ZERO,          /* memset of the frame */
	COPY,          /* pread of the frame from the cached file */
	PUBLISH_READ,  /* mprotect of the frame to read-only, mremap to the segment (UFFDIO_COPY) */
	PUBLISH_WRITE, /* mremap to the segment (UFFDIO_MOVE) */
	UPGRADE,       /* mprotect of the segment to writable (UFFDIO_WRITEPROTECT) */
	RETRACT,       /* mremap to the pool, mmap of the hole (UFFDIO_MOVE) */
	PARTS
};
extern const char *const part_names[PARTS];

void must(bool done, const char *what);

/* Loads a word with an instruction whose length step_over knows. */
void load_word(void *p);

void step_over(int sig, siginfo_t *info, void *context);

void *reserve(void *at, size_t len);

void move(char *from, char *to, size_t len);

void raw_take_back(char *place, char *home, size_t len);

/* Returns the cost of each part for n segments of seg bytes. fd: a file of at least n * seg bytes.
 * A part that does not occur for this segment size has no samples. */
void raw_measure(struct figure parts[PARTS], size_t seg, size_t n, int fd, uint64_t seed,
		 bool uffd);

#endif
