/* SPDX-License-Identifier: BSD-3-Clause */
/* The functions that wrappers (umrun/wrappers) call, besides those that next_calls.h declares. */
#ifndef UMRUN_CALLS_H
#define UMRUN_CALLS_H

#include "umrun/file_set.h"
#include "umrun/next_calls.h"
#include "umrun/pins.h"

/* ---- Transfers between memory and a descriptor (transfer.c) ---- */

/* The kernel's access to memory that a call fills. */
#define KERNEL_STORES (PROT_READ | PROT_WRITE)

/* Transfers parts of memory, or one, with flags of preadv2(2). off -1: the descriptor's offset.
 * prot: PROT_READ for a call that writes, or KERNEL_STORES. */
ssize_t take_transfer(int fd, off_t off, int flags, int prot, const struct iovec *iov, int count);
ssize_t transfer_one(int fd, off_t off, int prot, const void *buf, size_t len);
/* Whether memory is held, or the file has regions. */
bool needs_care(int fd, const void *buf, size_t len);
bool needs_care_parts(int fd, const struct iovec *iov, int count);
/* Transfers one part as recv(2) or send(2) does. */
ssize_t transfer_to_socket(int fd, const void *buf, size_t len, int flags, int prot);

/* Does fread(3) or fwrite(3) on memory of the library, by a copy. One of the two calls is NULL. */
typedef size_t (*read_call)(void *to, size_t size, size_t count, FILE *file);
typedef size_t (*write_call)(const void *from, size_t size, size_t count, FILE *file);
size_t transfer_stream(read_call fill, write_call write_next, const void *memory, size_t size,
		       size_t count, FILE *file);
int write_text(write_call next, const char *text, FILE *file);

/* ---- Files (files.c) ---- */

/* Whether a descriptor is a file with regions. */
bool has_regions(int fd, struct file_id *file);
/* A range of a file that a call reads or changes. */
struct span {
	struct file_id file;
	off_t off;
	bool has_regions;        /* the other fields are valid */
};
/* Called before the call, which finds all stores. at: the offset, or NULL for that of the
 * descriptor. */
void begin_span(struct span *span, int fd, const off_t *at, size_t len, bool writes);
/* Called after the call has changed len bytes, so that the regions show them. */
void end_span(const struct span *span, ssize_t len);
/* Called before a file gets the length len: hands the regions that reach beyond it to the kernel.
 * Returns 0, or -1 with errno. */
int shorten_path(int folder, const char *path, off_t len);
typedef ssize_t (*copy_call)(int in, off_t *in_at, int out, off_t *out_at, size_t len,
			     unsigned flags);
ssize_t take_copy(copy_call next, int in, off_t *in_at, int out, off_t *out_at, size_t len,
		  unsigned flags);
/* sendfile(2) as a copy_call. */
ssize_t call_sendfile(int in, off_t *at, int out, off_t *unused, size_t len, unsigned flags);

/* ---- Sizes of memory that calls read or fill ---- */

static inline bool has_mode(int flags)
{
	return flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE;
}

/* Bytes of a path, or of the value of an extended attribute, that a call can fill. */
static inline size_t path_room(size_t len)
{
	return len < PATH_MAX ? len : PATH_MAX;
}

static inline size_t value_room(size_t len)
{
	return len < XATTR_SIZE_MAX ? len : XATTR_SIZE_MAX;
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

/* ---- Programs that replace this one (process.c) ---- */

typedef int (*exec_call)(const char *file, char *const *argv);
int exec_list(exec_call exec, const char *file, const char *first, va_list rest);

/* ---- Descriptions and contents that reach others without a call of this list (sharing.c) ---- */

/* Called before a message is sent, and after one is received, that may carry descriptors
 * (SCM_RIGHTS). Keeps errno. */
void share_message(const struct msghdr *msg);
/* Called before a call of fcntl(2) that may change the flags, the owner or the lease of a
 * description. */
void share_changed_description(int fd, int command);
/* Called before a file is opened. The memory of a process (/proc/PID/mem) does not show absent
 * segments with any engine, so all regions are handed to the kernel before a program opens it. */
void share_memory_file(const char *path);
/* Records that a file is open as a stream, and returns the stream, which may be NULL. */
FILE *note_stream(FILE *stream);

#endif
