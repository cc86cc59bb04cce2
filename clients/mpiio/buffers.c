/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Buffers of MPI-IO calls in window memory. With the engine segv, system calls on segments that are
 * not resident fail with EFAULT, which not every MPI reports. With the driver mpiio, a fault inside
 * a call of MPI-IO would wait for this call. So the library pins such buffers during transfers.
 *
 * Nonblocking transfers of one rank are complete when the call returns. Those of all ranks might
 * wait for each other, so their buffers are pinned until the call that completes them.
 */
#include "pmpi/pmpi.h"
#include "pmpi/request.h"
#include "window/region.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ummap.h>

static struct pmpi_feature buffers;

struct pin {
	struct pin *next;        /* next one of the list */
	void *addr;              /* pinned bytes */
	size_t len;              /* number of these bytes; 0: none */
	MPI_File file;           /* file of the transfer */
	MPI_Request request;     /* its request; MPI_REQUEST_NULL: MPI_File_..._end completes it */
	const MPI_Request *seen; /* the request in the array of a call that may complete it */
};

/* Finds the bytes of a buffer that must be pinned, including those between parts of its type. MPI
 * reports invalid arguments. */
static struct pin find_bytes(const void *buf, MPI_Count count, MPI_Datatype type)
{
	struct pin none = { .len = 0 };
	MPI_Aint lb, len, unused, extent;
	const struct region *region;
	const char *begin, *end;

	if (count <= 0 || type == MPI_DATATYPE_NULL ||
	    PMPI_Type_get_true_extent(type, &lb, &len) != MPI_SUCCESS || len <= 0)
		return none;
	PMPI_Type_get_extent(type, &unused, &extent);
	begin = (const char *)buf + lb + (extent < 0 ? (count - 1) * extent : 0);
	end = begin + (count - 1) * (extent < 0 ? -extent : extent) + len;
	region = region_find(begin);
	if (!region || !region->stored_len || (!engine_hides_from_kernel(region->hints.engine) &&
					       !hints_by_mpiio(&region->hints)))
		return none;
	if (begin < region->stored)
		begin = region->stored;
	if (end > region->stored + region->stored_len)
		end = region->stored + region->stored_len;
	return begin >= end ? none : (struct pin){ .addr = (void *)(uintptr_t)begin,
						   .len = (size_t)(end - begin) };
}

/* Returns MPI_SUCCESS or an MPI error code, with which *p is empty. */
static int pin_buffer(struct pin *p, MPI_File file, const void *buf, MPI_Count count,
		      MPI_Datatype type, int prot)
{
	struct error e = { 0 };

	*p = find_bytes(buf, count, type);
	p->file = file;
	if (!p->len || umpin(p->addr, p->len, prot) == 0)
		return MPI_SUCCESS;
	error_errno(&e, errno,
		    "cannot pin %zu bytes of a window for a transfer. Try smaller transfers, a "
		    "larger UMMAP_MEM_LIMIT, or storage_alloc_engine=uffd. The reason: %s",
		    p->len, umerrormsg());
	p->len = 0;
	return error_tell_file(file, &e);
}

static void unpin_buffer(const struct pin *p)
{
	if (p->len)
		umunpin(p->addr, p->len);
}

/* ---- Pins of transfers that other calls complete ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* protects the list */
static struct pin *_Atomic pins;

static void drop_pin(struct pin *p)
{
	if (p)
		unpin_buffer(p);
	free(p);
}

/* Returns NULL if no bytes need a pin, or with an error. */
static struct pin *new_pin(MPI_File file, const void *buf, MPI_Count count, MPI_Datatype type,
			   int prot, int *error)
{
	struct pin *p = calloc(1, sizeof(*p));

	*error = p ? pin_buffer(p, file, buf, count, type, prot) : MPI_ERR_NO_MEM;
	if (p && p->len)
		return p;
	free(p);
	return NULL;
}

/* Lists the pin, which may be NULL, if the transfer has begun. request: NULL for split calls. */
static int list_pin(struct pin *p, int error, int code, const MPI_Request *request)
{
	if (code != MPI_SUCCESS) {
		drop_pin(p);
	} else if (p) {
		p->request = request ? *request : MPI_REQUEST_NULL;
		pthread_mutex_lock(&lock);
		p->next = pins;
		pins = p;
		pthread_mutex_unlock(&lock);
	}
	return error ? error : code;
}

/* Notes where requests are, before a call that may complete some of them. */
static void note_requests(int n, const MPI_Request *requests)
{
	if (!pins)
		return;
	pthread_mutex_lock(&lock);
	for (struct pin *p = pins; p; p = p->next)
		for (int i = 0; i < n; i++)
			if (requests[i] == p->request && requests[i] != MPI_REQUEST_NULL)
				p->seen = &requests[i];
	pthread_mutex_unlock(&lock);
}

/* A call has completed a request if it has changed the element of its array. */
static bool has_ended(struct pin *p, MPI_File file, int n, const MPI_Request *requests)
{
	const MPI_Request *seen = p->seen;

	if (p->request == MPI_REQUEST_NULL)
		return p->file == file;
	if (!seen || seen < requests || seen >= requests + n)
		return false;
	p->seen = NULL;
	return *seen != p->request;
}

/* Drops the pins of the split call of a file, or of requests. Returns code. */
static int end_pins(MPI_File file, int n, const MPI_Request *requests, int code)
{
	struct pin *p, *next, *left = NULL;

	if (!pins)
		return code;
	pthread_mutex_lock(&lock);
	for (p = pins; p; p = next) {
		next = p->next;
		if (has_ended(p, file, n, requests)) {
			drop_pin(p);
			continue;
		}
		p->next = left;
		left = p;
	}
	pins = left;
	pthread_mutex_unlock(&lock);
	return code;
}

/*
 * ---- The calls ----
 *
 * prot: the access that the transfer needs to the buffer. params: the parameters before the buffer,
 * whose names are the last arguments of each macro. If the buffer cannot be pinned, the rank
 * transfers nothing, but takes part, because others may wait for it.
 */

#define INTO (PROT_READ | PROT_WRITE)
#define FROM PROT_READ
#define HERE MPI_File file
#define AT MPI_File file, MPI_Offset at
#define BUFFER(constant) constant void *buf, MPI_Count count, MPI_Datatype type

#define BLOCKING(name, constant, prot, params, ...)                                                \
	static int file_##name(params, BUFFER(constant), MPI_Status *status)                       \
	{                                                                                          \
		struct pin p;                                                                      \
		int error = pin_buffer(&p, file, buf, count, type, prot);                          \
		int code = buffers.next.File_##name(__VA_ARGS__, buf, error ? 0 : count, type,     \
						    status);                                       \
                                                                                                   \
		unpin_buffer(&p);                                                                  \
		return error ? error : code;                                                       \
	}

BLOCKING(read, , INTO, HERE, file)
BLOCKING(read_all, , INTO, HERE, file)
BLOCKING(read_shared, , INTO, HERE, file)
BLOCKING(read_ordered, , INTO, HERE, file)
BLOCKING(write, const, FROM, HERE, file)
BLOCKING(write_all, const, FROM, HERE, file)
BLOCKING(write_shared, const, FROM, HERE, file)
BLOCKING(write_ordered, const, FROM, HERE, file)
BLOCKING(read_at, , INTO, AT, file, at)
BLOCKING(read_at_all, , INTO, AT, file, at)
BLOCKING(write_at, const, FROM, AT, file, at)
BLOCKING(write_at_all, const, FROM, AT, file, at)

/* Nonblocking calls of one rank. */
#define AT_ONCE(name, blocking, constant, params, ...)                                             \
	static int file_##name(params, BUFFER(constant), MPI_Request *request)                     \
	{                                                                                          \
		MPI_Status *done = NULL;                                                           \
		int code = MPI_ERR_NO_MEM;                                                         \
                                                                                                   \
		if (!find_bytes(buf, count, type).len)                                             \
			return buffers.next.File_##name(__VA_ARGS__, buf, count, type, request);   \
		done = calloc(1, sizeof(*done));                                                   \
		if (done)                                                                          \
			code = file_##blocking(__VA_ARGS__, buf, count, type, done);               \
		if (code == MPI_SUCCESS)                                                           \
			return request_complete(done, request);                                    \
		free(done);                                                                        \
		return code;                                                                       \
	}

AT_ONCE(iread, read, , HERE, file)
AT_ONCE(iread_shared, read_shared, , HERE, file)
AT_ONCE(iwrite, write, const, HERE, file)
AT_ONCE(iwrite_shared, write_shared, const, HERE, file)
AT_ONCE(iread_at, read_at, , AT, file, at)
AT_ONCE(iwrite_at, write_at, const, AT, file, at)

/* The two halves of split collective calls. */
#define SPLIT(name, constant, prot, params, ...)                                                   \
	static int file_##name##_begin(params, BUFFER(constant))                                   \
	{                                                                                          \
		int error;                                                                         \
		struct pin *p = new_pin(file, buf, count, type, prot, &error);                     \
		int code = buffers.next.File_##name##_begin(__VA_ARGS__, buf, error ? 0 : count,   \
							    type);                                 \
                                                                                                   \
		return list_pin(p, error, code, NULL);                                             \
	}                                                                                          \
	static int file_##name##_end(MPI_File file, constant void *buf, MPI_Status *status)        \
	{                                                                                          \
		return end_pins(file, 0, NULL, buffers.next.File_##name##_end(file, buf, status)); \
	}

SPLIT(read_all, , INTO, HERE, file)
SPLIT(read_ordered, , INTO, HERE, file)
SPLIT(write_all, const, FROM, HERE, file)
SPLIT(write_ordered, const, FROM, HERE, file)
SPLIT(read_at_all, , INTO, AT, file, at)
SPLIT(write_at_all, const, FROM, AT, file, at)

/* Nonblocking collective calls. Fortran completes them by calls that do not pass here. */
#define LATER(name, constant, prot, params, ...)                                                   \
	static int file_##name(params, BUFFER(constant), MPI_Request *request)                     \
	{                                                                                          \
		int error = 0;                                                                     \
		struct pin *p =                                                                    \
			pmpi_caller ? new_pin(file, buf, count, type, prot, &error) : NULL;        \
		int code = buffers.next.File_##name(__VA_ARGS__, buf, error ? 0 : count, type,     \
						    request);                                      \
                                                                                                   \
		return list_pin(p, error, code, request);                                          \
	}

LATER(iread_all, , INTO, HERE, file)
LATER(iwrite_all, const, FROM, HERE, file)
LATER(iread_at_all, , INTO, AT, file, at)
LATER(iwrite_at_all, const, FROM, AT, file, at)

/* Calls that complete them. */
#define COMPLETING(name, function, n, params, ...)                                                 \
	static int function params                                                                 \
	{                                                                                          \
		note_requests(n, r);                                                               \
		return end_pins(MPI_FILE_NULL, n, r, buffers.next.name(__VA_ARGS__));              \
	}

COMPLETING(Wait, wait, 1, (MPI_Request *r, MPI_Status *s), r, s)
COMPLETING(Test, test, 1, (MPI_Request *r, int *flag, MPI_Status *s), r, flag, s)
COMPLETING(Waitall, wait_all, n, (int n, MPI_Request r[], MPI_Status s[]), n, r, s)
COMPLETING(Testall, test_all, n, (int n, MPI_Request r[], int *flag, MPI_Status s[]), n, r, flag,
	   s)
COMPLETING(Waitany, wait_any, n, (int n, MPI_Request r[], int *i, MPI_Status *s), n, r, i, s)
COMPLETING(Testany, test_any, n, (int n, MPI_Request r[], int *i, int *flag, MPI_Status *s), n, r,
	   i, flag, s)
COMPLETING(Waitsome, wait_some, n, (int n, MPI_Request r[], int *done, int i[], MPI_Status s[]), n,
	   r, done, i, s)
COMPLETING(Testsome, test_some, n, (int n, MPI_Request r[], int *done, int i[], MPI_Status s[]), n,
	   r, done, i, s)

#define TAKE(name) .File_##name = file_##name

static struct pmpi_feature buffers = {
	.place = PMPI_BUFFERS,
	.take = {
		TAKE(read), TAKE(read_all), TAKE(read_shared), TAKE(read_ordered), TAKE(write),
		TAKE(write_all), TAKE(write_shared), TAKE(write_ordered), TAKE(read_at),
		TAKE(read_at_all), TAKE(write_at), TAKE(write_at_all), TAKE(iread),
		TAKE(iread_shared), TAKE(iwrite), TAKE(iwrite_shared), TAKE(iread_at),
		TAKE(iwrite_at), TAKE(iread_all), TAKE(iwrite_all), TAKE(iread_at_all),
		TAKE(iwrite_at_all), TAKE(read_all_begin), TAKE(read_ordered_begin),
		TAKE(write_all_begin), TAKE(write_ordered_begin), TAKE(read_at_all_begin),
		TAKE(write_at_all_begin), TAKE(read_all_end), TAKE(read_ordered_end),
		TAKE(write_all_end), TAKE(write_ordered_end), TAKE(read_at_all_end),
		TAKE(write_at_all_end),
		.Wait = wait, .Test = test, .Waitall = wait_all, .Testall = test_all,
		.Waitany = wait_any, .Testany = test_any, .Waitsome = wait_some,
		.Testsome = test_some,
	},
};
PMPI_FEATURE(buffers)
