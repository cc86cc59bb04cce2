/* SPDX-License-Identifier: BSD-3-Clause */
/* What calls do with memory that is in regions or in the heap, and with files that have regions. */
#ifndef UMRUN_CALLS_H
#define UMRUN_CALLS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>
#include <sys/uio.h>

/* What of a range is in regions, or in the heap. */
#define PINS 4
struct pins {
	struct iovec part[PINS];
	size_t count;
	bool over;     /* a part is not pinned: more is pinned already than memory allows */
};

/* Whether the kernel cannot be given it as it is. */
bool is_held(const void *buf, size_t len);
/* Makes sure that the kernel can, until unpin. */
void pin(struct pins *pins, const void *buf, size_t len, int prot);
void unpin(const struct pins *pins);
/* Memory of the kernel's to be given to it in place of buf, which could not be pinned; with what is there, unless it is to be
 * filled. NULL: there is none, or the range is not memory of the library as a whole. */
void *stand_in(const void *buf, size_t len, int prot);
void stand_in_end(void *copy, size_t len);
/* Of a program that was built to be checked (_FORTIFY_SOURCE): ends it where a buffer has less room. */
void check_room(size_t len, size_t room);
/* readv and writev of what is no file, where is_held says so of a part: one call, and a short one if that is much. */
ssize_t pinned_vector(ssize_t (*next)(int, const struct iovec *, int), int fd, const struct iovec *iov, int count, int prot);
/* The file is going to have `len` bytes only: what of it is mapped behind is the kernel's before. -1 with errno. */
int shorten_file(const struct stat *st, off_t len);
/* The same for the file of a path. */
int shorten_path(int folder, const char *path, off_t len);

#endif
