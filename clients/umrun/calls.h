/* SPDX-License-Identifier: BSD-3-Clause */
/* The functions that wrappers (umrun/wrappers) call for memory in regions or in the heap, and for
 * files with regions. */
#ifndef UMRUN_CALLS_H
#define UMRUN_CALLS_H

#include "umrun/next_calls.h"

/* The pinned parts of a range. */
#define MAX_PINS 4
struct pins {
	struct iovec part[MAX_PINS];
	size_t count;
	bool is_refused;         /* a part is not pinned: the budget allows no more pins */
};

/* Whether the range is memory of the library that the kernel cannot access by itself. */
bool is_held(const void *buf, size_t len);
/* Pins the range until unpin, so that the kernel can access it, if is_held is true. */
void pin(struct pins *pins, const void *buf, size_t len, int prot);
void unpin(const struct pins *pins);
/* Length of the part that a call may transfer, if the range is held. */
size_t limit_part(const void *buf, size_t len);
/* Returns memory of the kernel to use in place of buf, which could not be pinned. It has the
 * contents of buf unless the kernel is going to fill it (PROT_WRITE). NULL: no memory, or a part of
 * the range is not the library's. */
void *make_copy(const void *buf, size_t len, int prot);
void free_copy(void *copy, size_t len);

/* ---- Transfers between memory and a descriptor. Kinds up to TRANSFER_RECV fill memory. ---- */

enum transfer_kind {
	TRANSFER_READ, TRANSFER_PREAD, TRANSFER_RECV,
	TRANSFER_WRITE, TRANSFER_PWRITE, TRANSFER_SEND
};
ssize_t take_transfer(int fd, off_t off, int flags, enum transfer_kind kind, const void *buf,
		      size_t len);
/* Whether a part is held, or the file has regions. */
bool needs_care(int fd, const struct iovec *iov, int count);
/* Transfers one part after another. */
ssize_t transfer_parts(int fd, off_t off, enum transfer_kind kind, const struct iovec *iov,
		       int count);
ssize_t take_vector(int fd, const struct iovec *iov, int count, enum transfer_kind kind);
/* Calls next, readv or writev, for a descriptor that is not a file. Transfers less than the whole
 * if the held parts are large. */
typedef ssize_t (*vector_call)(int fd, const struct iovec *iov, int count);
ssize_t pinned_vector(vector_call next, int fd, const struct iovec *iov, int count, int prot);
bool has_held_part(const struct iovec *iov, size_t count);

/* ---- Streams ---- */

typedef size_t (*read_call)(void *to, size_t size, size_t count, FILE *file);
typedef size_t (*write_call)(const void *from, size_t size, size_t count, FILE *file);
size_t read_stream(read_call next, void *to, size_t size, size_t count, FILE *file);
size_t write_stream(write_call next, const void *from, size_t size, size_t count, FILE *file);
int write_text(write_call next, const char *text, FILE *file);

/* ---- Files ---- */

/* Called before a file gets the length len: hands the regions that reach beyond it to the kernel.
 * Return 0, or -1 with errno. */
int shorten_file(const struct stat *st, off_t len);
int shorten(int fd, off_t len);
int shorten_path(int folder, const char *path, off_t len);
typedef ssize_t (*copy_call)(int in, off_t *in_at, int out, off_t *out_at, size_t len,
			     unsigned flags);
ssize_t take_copy(copy_call next, int in, off_t *in_at, int out, off_t *out_at, size_t len,
		  unsigned flags);
/* sendfile(2) as a copy_call. */
ssize_t call_sendfile(int in, off_t *at, int out, off_t *unused, size_t len, unsigned flags);
/* Called before lseek(2), which may look for holes. */
void write_stored_for_seek(int fd, int whence);
/* Makes the stores of a file's regions durable. Returns 0, or -1 with errno. */
int sync_regions(int fd);

/* ---- Sizes of memory that calls read or fill ---- */

static inline bool has_mode(int flags)
{
	return flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE;
}

static inline size_t path_room(size_t len)
{
	return len < PATH_MAX ? len : PATH_MAX;
}

/* An extended attribute has at most this many bytes. */
#define MAX_VALUE_BYTES ((size_t)64 << 10)

static inline size_t value_room(size_t len)
{
	return len < MAX_VALUE_BYTES ? len : MAX_VALUE_BYTES;
}

static inline size_t events_size(int count)
{
	return count > 0 ? (size_t)count * sizeof(struct epoll_event) : 0;
}

/* The number of a request contains the size of its argument. Older numbers do not, and no argument
 * of theirs is larger than 128 bytes. */
static inline size_t ioctl_size(unsigned long request)
{
	return _IOC_SIZE(request) ? _IOC_SIZE(request) : 128;
}

/* ---- Programs that replace this one ---- */

typedef int (*exec_call)(const char *file, char *const *argv);
int exec_list(exec_call exec, const char *file, const char *first, va_list rest);

#endif
