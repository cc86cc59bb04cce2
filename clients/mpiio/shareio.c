/* SPDX-License-Identifier: BSD-3-Clause */
/* From a share to calls of MPI-IO, each for bytes that are in a row in the file, and from its words for errors to errno. */
#include "mpiio/shareio.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PIECES_MAX 64

int shareio_errno(int code)
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
	/* Often it says no more than that it failed; the system call that did has left the reason. */
	return error == ENOSPC || error == EDQUOT || error == EFBIG || error == EACCES || error == EISDIR ? -error : -EIO;
}

bool shareio_runs(void)
{
	int begun = 0, over = 1;

	PMPI_Initialized(&begun);
	PMPI_Finalized(&over);
	return begun && !over;
}

/* Memory for consecutive bytes of the file. */
struct run {
	struct iovec part[PIECES_MAX];
	int parts;
	size_t len;
	uint64_t at;
};

static int write_bytes(MPI_File file, const void *buf, size_t len, uint64_t at)
{
	MPI_Status status;
	int code, moved;

	errno = 0;
	code = PMPI_File_write_at(file, (MPI_Offset)at, buf, (int)len, MPI_BYTE, &status);
	if (code != MPI_SUCCESS)
		return shareio_errno(code);
	PMPI_Get_count(&status, MPI_BYTE, &moved);
	return (size_t)moved == len ? 0 : -EIO;
}

/* One large request, for which the parts are brought together: a type of MPI's for memory that is in no order is more than
 * older ROMIOs can do. Without memory for that, part by part. */
static int write_run(MPI_File file, const struct run *r)
{
	char *all = r->parts > 1 ? malloc(r->len) : NULL;
	uint64_t at = r->at;
	size_t len = 0;
	int err = 0;

	for (int i = 0; i < r->parts && all; len += r->part[i++].iov_len)
		memcpy(all + len, r->part[i].iov_base, r->part[i].iov_len);
	if (all)
		err = write_bytes(file, all, len, at);
	for (int i = 0; i < r->parts && !all && !err; at += r->part[i++].iov_len)
		err = write_bytes(file, r->part[i].iov_base, r->part[i].iov_len, at);
	free(all);
	return err;
}

/* One part after the other, because ROMIO says of a read into several that it was whole, even at the end of the file.
 * OpenMPI reports some errors as nothing read: zeros are only what lies behind the end, as it was before. */
static int read_part(MPI_File file, const struct iovec *part, uint64_t at)
{
	MPI_Offset size = 0;
	MPI_Status status;
	size_t done = 0;
	int code = MPI_SUCCESS, moved;

	while (done < part->iov_len) {
		errno = 0;
		code = PMPI_File_read_at(file, (MPI_Offset)at + (MPI_Offset)done, (char *)part->iov_base + done,
					 (int)(part->iov_len - done), MPI_BYTE, &status);
		if (code != MPI_SUCCESS)
			return shareio_errno(code);
		PMPI_Get_elements(&status, MPI_BYTE, &moved);
		done += (size_t)moved;
		if (moved > 0)
			continue;
		if (at + done < (uint64_t)size)
			return -EIO;
		code = PMPI_File_get_size(file, &size);
		if (code != MPI_SUCCESS)
			return shareio_errno(code);
		if (at + done >= (uint64_t)size)
			break;
	}
	memset((char *)part->iov_base + done, 0, part->iov_len - done);
	return 0;
}

static int move_run(MPI_File file, const struct run *r, bool writing)
{
	uint64_t at = r->at;
	int err = 0;

	if (writing)
		return write_run(file, r);
	for (int i = 0; i < r->parts && !err; at += r->part[i++].iov_len)
		err = read_part(file, &r->part[i], at);
	return err;
}

int shareio(MPI_File file, const struct layout *l, const struct iovec *iov, int n, uint64_t off, bool writing)
{
	struct run r = { .parts = 0 };
	uint64_t row = 0;
	int err = shareio_runs() ? 0 : -EIO;

	for (int i = 0; i < n && !err; i++) {
		for (size_t done = 0, len; done < iov[i].iov_len && !err; done += len, off += len, row -= len) {
			if (r.parts == PIECES_MAX || row == 0) {
				err = r.parts ? move_run(file, &r, writing) : 0;
				r = (struct run){ .at = layout_place(l, off, &row) };
				row = row < SHAREIO_MAX ? row : SHAREIO_MAX;
			}
			len = iov[i].iov_len - done < row ? iov[i].iov_len - done : row;
			r.part[r.parts++] = (struct iovec){ (char *)iov[i].iov_base + done, len };
			r.len += len;
		}
	}
	return err || !r.parts ? err : move_run(file, &r, writing);
}
