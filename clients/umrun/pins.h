/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory of the library in system calls of the program: regions, and the heap. */
#ifndef UMRUN_PINS_H
#define UMRUN_PINS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/uio.h>

/* Bytes of such memory that one system call accesses: few, compared with any budget. A datagram is
 * never that large. */
#define MAX_HELD_BYTES ((size_t)512 << 10)
#define MAX_PINS 4

/* The pinned parts of a range. */
struct pins {
	struct iovec part[MAX_PINS];
	size_t count;
	bool is_refused;         /* a part is not pinned: the budget allows no more pins */
	void *copy;              /* memory in place of the range, or NULL */
};

/* Whether the range has memory of the library that the kernel cannot access by itself. */
bool is_held(const void *buf, size_t len);
bool has_held_part(const struct iovec *iov, size_t count);
/* Length of the part that a call may transfer, if the range is held. */
size_t limit_part(const void *buf, size_t len);
/* Pins the range until unpin, so that the kernel can access it, if is_held is true. */
void pin(struct pins *pins, const void *buf, size_t len, int prot);
void unpin(const struct pins *pins);
/* Pins the range even if the kernel's accesses are served. If other threads, which may wait for
 * long, have pinned all memory that can be pinned, the kernel uses a copy. Returns the memory that
 * the kernel uses. */
void *pin_or_copy(struct pins *pins, void *buf, size_t len, int prot);
/* Ends pin_or_copy. filled: bytes that the kernel has stored. */
void unpin_or_fill(const struct pins *pins, void *buf, size_t len, size_t filled);

#endif
