/* SPDX-License-Identifier: BSD-3-Clause */
#include "mpiio/stripes.h"

#include "common/cursor.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Pieces of memory that one write copies together. */
#define MAX_PIECES 64

uint64_t stripes_locate(const struct stripes *s, uint64_t off, uint64_t *run)
{
	uint64_t within;

	if (!s->stripe) {
		*run = UINT64_MAX - off;
		return s->offset + off;
	}
	within = off % s->stripe;
	*run = s->stripe - within;
	return s->offset + (off / s->stripe * s->ranks + s->rank) * s->stripe + within;
}

uint64_t stripes_store_size(const struct stripes *s, uint64_t file_size)
{
	uint64_t size = file_size > s->offset ? file_size - s->offset : 0, rest, before;

	if (!s->stripe)
		return size;
	/* The last turn of all ranks may be incomplete: lower ranks come first in it. */
	rest = size % (s->stripe * s->ranks);
	before = s->stripe * s->rank;
	rest = rest > before ? rest - before : 0;
	return size / (s->stripe * s->ranks) * s->stripe + min_u64(rest, s->stripe);
}

int mpiio_errno(int code)
{
	int error = errno, class = MPI_ERR_OTHER;

	if (code == MPI_SUCCESS)
		return 0;
	PMPI_Error_class(code, &class);
	switch (class) {
	case MPI_ERR_NO_SPACE:
		return -ENOSPC;
	case MPI_ERR_QUOTA:
		return -EDQUOT;
	case MPI_ERR_NO_SUCH_FILE:
		return -ENOENT;
	case MPI_ERR_ACCESS:
		return -EACCES;
	case MPI_ERR_READ_ONLY:
		return -EROFS;
	case MPI_ERR_BAD_FILE:
		return -EINVAL;
	case MPI_ERR_NO_MEM:
		return -ENOMEM;
	}
	/* MPIs often report a general error. The system call that failed has left the reason. */
	return error == ENOSPC || error == EDQUOT || error == EFBIG || error == EACCES ||
	       error == EISDIR ? -error : -EIO;
}

bool is_mpi_running(void)
{
	int initialized = 0, finalized = 1;

	PMPI_Initialized(&initialized);
	PMPI_Finalized(&finalized);
	return initialized && !finalized;
}

/* ---- Reading ---- */

/* Open MPI reports some errors as a read of 0 bytes. Zeros are right only behind the end. */
static int read_by_mpi(MPI_File file, char *to, size_t len, uint64_t at)
{
	MPI_Offset size = 0;
	MPI_Status status;
	int code = MPI_SUCCESS, moved;

	for (; len > 0; to += moved, len -= (size_t)moved, at += (uint64_t)moved) {
		errno = 0;
		code = PMPI_File_read_at(file, (MPI_Offset)at, to, (int)len, MPI_BYTE, &status);
		if (code != MPI_SUCCESS)
			return mpiio_errno(code);
		PMPI_Get_elements(&status, MPI_BYTE, &moved);
		if (moved > 0)
			continue;
		if (at < (uint64_t)size)
			return -EIO;
		code = PMPI_File_get_size(file, &size);
		if (code != MPI_SUCCESS)
			return mpiio_errno(code);
		if (at >= (uint64_t)size)
			break;
	}
	memset(to, 0, len);
	return 0;
}

static int read_by_descriptor(int fd, char *to, size_t len, uint64_t at)
{
	while (len > 0) {
		ssize_t got = pread(fd, to, len, (off_t)at);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return -errno;
		if (got == 0)
			break;
		to += got;
		len -= (size_t)got;
		at += (uint64_t)got;
	}
	memset(to, 0, len);
	return 0;
}

/* ROMIO reports a read into several pieces as complete even at the end of the file, so each piece
 * is read by itself. */
int stripes_read(const struct stripes *s, MPI_File file, int fd, const struct iovec *iov, int n,
		 uint64_t off)
{
	struct cursor c = cursor_begin(iov, n, off);
	int err = is_mpi_running() ? 0 : -EIO;

	while (c.off < c.end && !err) {
		struct iovec piece = { 0 };
		uint64_t run, at = stripes_locate(s, c.off, &run);
		size_t len = cursor_slice(&c, min_u64(run, MAX_CALL_BYTES), &piece, 1, &n);

		err = fd >= 0 ? read_by_descriptor(fd, piece.iov_base, len, at)
			      : read_by_mpi(file, piece.iov_base, len, at);
		cursor_advance(&c, len);
	}
	return err;
}

/* ---- Writing ---- */

static int write_bytes(MPI_File file, const void *from, size_t len, uint64_t at)
{
	MPI_Status status;
	int code, moved;

	errno = 0;
	code = PMPI_File_write_at(file, (MPI_Offset)at, from, (int)len, MPI_BYTE, &status);
	if (code != MPI_SUCCESS)
		return mpiio_errno(code);
	PMPI_Get_count(&status, MPI_BYTE, &moved);
	return (size_t)moved == len ? 0 : -EIO;
}

/* Copies pieces into new memory. Returns NULL without memory. */
static char *join_pieces(const struct iovec *pieces, int n, size_t len)
{
	char *joined = malloc(len), *to = joined;

	for (int i = 0; i < n && joined; to += pieces[i++].iov_len)
		memcpy(to, pieces[i].iov_base, pieces[i].iov_len);
	return joined;
}

/* Pieces that follow each other in the file become one request. They are copied together, because
 * older ROMIOs cannot use a datatype for memory in no order. Without memory for the copy, each
 * piece is a request. */
int stripes_write(const struct stripes *s, MPI_File file, const struct iovec *iov, int n,
		  uint64_t off)
{
	struct cursor c = cursor_begin(iov, n, off);
	int err = is_mpi_running() ? 0 : -EIO;

	while (c.off < c.end && !err) {
		struct iovec pieces[MAX_PIECES];
		uint64_t run, at = stripes_locate(s, c.off, &run);
		size_t max = min_u64(run, MAX_CALL_BYTES);
		size_t len = cursor_slice(&c, max, pieces, MAX_PIECES, &n);
		char *joined = n > 1 ? join_pieces(pieces, n, len) : NULL;

		if (!joined)
			len = pieces[0].iov_len;
		err = write_bytes(file, joined ? joined : pieces[0].iov_base, len, at);
		free(joined);
		cursor_advance(&c, len);
	}
	return err;
}
