/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The filter error, for tests: chosen calls of the next driver fail, are delayed, or stop halfway.
 *
 * The nth call (counted from 1) of the kinds that the key `op` names fails with `errno`, and so do
 * the next calls until `times` calls have failed. A transfer that fails first moves the number of
 * bytes that `short` gives. A vectored call counts as one call, as does each request to an
 * asynchronous driver (error_async.c). Each handle counts its own calls. `count` names a file that
 * always contains the counts. The filter has no call `map`, because a store that is mapped in place
 * has no transfers that could fail.
 *
 * The filter takes only the lock of behind.h, and calls only functions that a fault-safe driver may
 * call.
 */
#include "error.h"

#include "keys.h"
#include "transparent.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

extern const struct ummap_driver ummap_driver_error;

static const struct { const char *name; int err; } errors[] = {
	{ "EACCES", EACCES },     { "EAGAIN", EAGAIN },       { "EBADF", EBADF },
	{ "EBUSY", EBUSY },       { "EDQUOT", EDQUOT },       { "EFBIG", EFBIG },
	{ "EINTR", EINTR },       { "EINVAL", EINVAL },       { "EIO", EIO },
	{ "ENODEV", ENODEV },     { "ENOENT", ENOENT },       { "ENOMEM", ENOMEM },
	{ "ENOSPC", ENOSPC },     { "ENOTCONN", ENOTCONN },   { "ENXIO", ENXIO },
	{ "EPERM", EPERM },       { "EREMOTEIO", EREMOTEIO }, { "EROFS", EROFS },
	{ "ESTALE", ESTALE },     { "ETIMEDOUT", ETIMEDOUT },
};

#define MAX_ERRNO 4095 /* the kernel's highest error number */

/* ---- Calls ---- */

/*
 * Writes the counts to the file. Calls may overtake each other between counting and writing. A
 * thread that finds the counts changed writes again, so the file always ends with the last counts.
 */
static void write_counts(struct error *f)
{
	char line[64], *end;
	uint64_t seen, fired;

	if (f->count_fd < 0)
		return;
	do {
		seen = f->seen;
		fired = f->fired;
		end = put_number(stpcpy(line, "seen "), seen, ' ');
		end = put_number(stpcpy(end, "fired "), fired, '\n');
		syscall(SYS_pwrite64, f->count_fd, line, (size_t)(end - line), 0L);
	} while (seen != f->seen || fired != f->fired);
}

static void wait_us(uint64_t us)
{
	struct timespec left = { (time_t)(us / 1000000), (long)(us % 1000000) * 1000 };

	while (syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &left, &left) < 0 && errno == EINTR)
		;
}

bool error_fires(struct error *f, unsigned op)
{
	uint64_t number;
	bool fires;

	if (!(f->ops & op))
		return false;
	if (f->delay)
		wait_us(f->delay);
	number = ++f->seen;
	fires = number >= f->nth && number - f->nth < f->times;
	if (fires)
		f->fired++;
	write_counts(f);
	return fires;
}

int error_move(struct error *f, unsigned op, const struct iovec *iov, int n, uint64_t off,
	       uint64_t limit)
{
	int err = 0;

	for (int i = 0; i < n && limit > 0 && !err; i++) {
		size_t len = iov[i].iov_len < limit ? iov[i].iov_len : limit;

		if (op == OP_READ)
			err = behind_read(&f->next, iov[i].iov_base, len, off);
		else
			err = behind_write(&f->next, iov[i].iov_base, len, off);
		off += len;
		limit -= len;
	}
	return err;
}

static int transfer(struct error *f, unsigned op, const struct iovec *iov, int n, uint64_t off)
{
	if (error_fires(f, op)) {
		if (f->halfway)
			error_move(f, op, iov, n, off, f->short_len);
		return -f->err;
	}
	return op == OP_READ ? behind_readv(&f->next, iov, n, off) :
			       behind_writev(&f->next, iov, n, off);
}

static int error_readv(void *h, const struct iovec *iov, int n, uint64_t off)
{
	return transfer(h, OP_READ, iov, n, off);
}

static int error_writev(void *h, const struct iovec *iov, int n, uint64_t off)
{
	return transfer(h, OP_WRITE, iov, n, off);
}

static int error_read(void *h, void *buf, size_t len, uint64_t off)
{
	struct iovec iov = { buf, len };

	return transfer(h, OP_READ, &iov, 1, off);
}

static int error_write(void *h, const void *buf, size_t len, uint64_t off)
{
	struct iovec iov = { (void *)(uintptr_t)buf, len };

	return transfer(h, OP_WRITE, &iov, 1, off);
}

static int error_flush(void *h, uint64_t off, uint64_t len)
{
	struct error *f = h;

	return error_fires(f, OP_FLUSH) ? -f->err : behind_flush(&f->next, off, len);
}

static int error_resize(void *h, uint64_t size)
{
	struct error *f = h;

	return behind_resize(&f->next, size);
}

static int error_size(void *h, uint64_t *size)
{
	struct error *f = h;

	return behind_size(&f->next, size);
}

static int error_push(void *h)
{
	struct error *f = h;

	return behind_push(&f->next);
}

static void free_filter(struct error *f)
{
	if (f->count_fd >= 0)
		syscall(SYS_close, f->count_fd);
	free(f);
}

static int error_close(void *h)
{
	struct error *f = h;
	int err = behind_close(&f->next);

	free_filter(f);
	return err;
}

/* ---- Opening ---- */

static bool parse_op(const char *text, unsigned *ops)
{
	static const struct { const char *name; unsigned ops; } names[] = {
		{ "read", OP_READ }, { "write", OP_WRITE },
		{ "flush", OP_FLUSH }, { "any", OP_ANY },
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		if (strcmp(text, names[i].name) == 0) {
			*ops = names[i].ops;
			return true;
		}
	}
	return false;
}

static bool parse_times(const char *text, uint64_t *times)
{
	if (strcmp(text, "always") != 0)
		return keys_number(text, 1, UINT64_MAX, times);
	*times = UINT64_MAX;
	return true;
}

static bool parse_errno(const char *text, int *err)
{
	uint64_t value;

	for (size_t i = 0; i < sizeof(errors) / sizeof(*errors); i++) {
		if (strcmp(text, errors[i].name) == 0) {
			*err = errors[i].err;
			return true;
		}
	}
	if (!keys_number(text, 1, MAX_ERRNO, &value))
		return false;
	*err = (int)value;
	return true;
}

static int open_count(struct error *f, const char *path, struct ummap_geom *geom)
{
	if (getauxval(AT_SECURE))
		return keys_refuse(geom, EPERM, "error.count is not allowed in a program with more "
				   "rights than its user, because it names a file to write");
	f->count_fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	if (f->count_fd < 0)
		return keys_refuse(geom, EINVAL, "error.count: cannot write '%.140s': %s", path,
				   strerror(errno));
	return 0;
}

static const struct key_type types[] = { ERROR_KEYS(KEY_TYPE) KEY_TYPES_END };

static int parse_key(struct error *f, const struct ummap_key *key, struct ummap_geom *geom)
{
	const char *value = key->value;
	bool ok;

	if (strcmp(key->name, "count") == 0)
		return open_count(f, value, geom);
	if (strcmp(key->name, "nth") == 0)
		ok = keys_number(value, 1, UINT64_MAX, &f->nth);
	else if (strcmp(key->name, "op") == 0)
		ok = parse_op(value, &f->ops);
	else if (strcmp(key->name, "errno") == 0)
		ok = parse_errno(value, &f->err);
	else if (strcmp(key->name, "times") == 0)
		ok = parse_times(value, &f->times);
	else if (strcmp(key->name, "short") == 0)
		ok = f->halfway = keys_number(value, 0, UINT64_MAX, &f->short_len);
	else
		ok = keys_number(value, 0, UINT64_MAX, &f->delay);
	return ok ? 0 : keys_refuse_value(geom, "error.", key, types);
}

static int make_filter(const struct ummap_uri *uri, struct error **made, struct ummap_geom *geom)
{
	struct error *f;
	int err = 0;

	if (!uri->next)
		return keys_refuse(geom, EINVAL, "cannot use the filter error alone. Try "
				   "error+driver:path");
	f = calloc(1, sizeof(*f));
	if (!f)
		return -ENOMEM;
	f->ops = OP_ANY;
	f->nth = f->times = 1;
	f->err = EIO;
	f->count_fd = -1;
	for (unsigned i = 0; i < uri->nkeys && !err; i++)
		err = parse_key(f, &uri->keys[i], geom);
	if (err) {
		free_filter(f);
		return err;
	}
	write_counts(f);
	*made = f;
	return 0;
}

/* If fd is -1, the next driver opens the path of the URI. */
static int open_handle(const struct ummap_uri *uri, int fd, int oflags, void **h,
		       struct ummap_geom *geom)
{
	struct error *f = NULL;
	int err = make_filter(uri, &f, geom);

	if (err)
		return err;
	err = behind_open(&f->next, uri, fd, oflags, geom);
	if (err) {
		free_filter(f);
		return err;
	}
	geom->caps |= f->next.caps & UMMAP_CAP_ASYNC;
	*h = f;
	return 0;
}

static int error_open(const struct ummap_uri *uri, int oflags, void **h, struct ummap_geom *geom)
{
	return open_handle(uri, -1, oflags, h, geom);
}

static int error_open_fd(const struct ummap_uri *uri, int fd, int oflags, void **h,
			 struct ummap_geom *geom)
{
	return open_handle(uri, fd, oflags, h, geom);
}

const struct ummap_driver ummap_driver_error = {
	.struct_size = sizeof(struct ummap_driver),
	.abi = UMMAP_DRIVER_ABI,
	.scheme = "error",
	.keys = ERROR_KEYS(KEY_NAME),
	.help = "a filter for tests, which makes the nth read, write or flush fail",
	.filter = 1,
	.open = error_open,
	.open_fd = error_open_fd,
	.close = error_close,
	.read = error_read,
	.write = error_write,
	.flush = error_flush,
	.resize = error_resize,
	.submit = error_submit,
	.reap = error_reap,
	.readv = error_readv,
	.writev = error_writev,
	.size = error_size,
	.push = error_push,
	PASSED_CALLS
};
