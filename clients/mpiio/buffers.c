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
					       !hints_by(&region->hints, "mpiio")))
		return none;
	if (begin < region->stored)
		begin = region->stored;
	if (end > region->stored + region->stored_len)
		end = region->stored + region->stored_len;
	return begin >= end ? none : (struct pin){ .addr = (void *)(uintptr_t)begin,
						   .len = (size_t)(end - begin) };
}

/* Returns MPI_SUCCESS or an MPI error code, with which *p is empty. */
static int pin_buffer(struct pin *p, const struct pmpi_transfer *t)
{
	int prot = t->writes ? PROT_READ : PROT_READ | PROT_WRITE;
	struct error e = { 0 };

	*p = find_bytes(t->buf, t->n, t->type);
	p->file = t->file;
	if (!p->len || umpin(p->addr, p->len, prot) == 0)
		return MPI_SUCCESS;
	error_errno(&e, errno,
		    "cannot pin %zu bytes of a window for a transfer. Try smaller transfers, a "
		    "larger UMMAP_MEM_LIMIT, or storage_alloc_engine=uffd. The reason: %s",
		    p->len, umerrormsg());
	p->len = 0;
	return error_tell_file(t->file, &e);
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
static struct pin *new_pin(const struct pmpi_transfer *t, int *error)
{
	struct pin *p = calloc(1, sizeof(*p));

	*error = p ? pin_buffer(p, t) : MPI_ERR_NO_MEM;
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

/* ---- The calls ---- */

/* After an error, the rank transfers nothing, but takes part, because others may wait for it. */
static int pass_on(const struct pmpi_transfer *t, int error)
{
	struct pmpi_transfer passed = *t;

	passed.n = error ? 0 : t->n;
	return buffers.next.File_transfer(&passed);
}

static int transfer_blocking(const struct pmpi_transfer *t)
{
	struct pin p;
	int error = pin_buffer(&p, t), code = pass_on(t, error);

	unpin_buffer(&p);
	return error ? error : code;
}

/* A nonblocking call of one rank. */
static int transfer_at_once(const struct pmpi_transfer *t)
{
	struct pmpi_transfer blocking = *t;
	int code = MPI_ERR_NO_MEM;

	if (!find_bytes(t->buf, t->n, t->type).len)
		return buffers.next.File_transfer(t);
	blocking.form = PMPI_BLOCKING;
	blocking.status = calloc(1, sizeof(*blocking.status));
	if (blocking.status)
		code = transfer_blocking(&blocking);
	if (code == MPI_SUCCESS)
		return request_complete(blocking.status, t->request);
	free(blocking.status);
	return code;
}

/* A call that another one completes. For Fortran, calls that complete requests do not pass here. */
static int transfer_later(const struct pmpi_transfer *t)
{
	bool completes_here = t->form == PMPI_BEGIN || pmpi_caller;
	int error = 0;
	struct pin *p = completes_here ? new_pin(t, &error) : NULL;

	return list_pin(p, error, pass_on(t, error), t->request);
}

static int transfer(const struct pmpi_transfer *t)
{
	switch (t->form) {
	case PMPI_BLOCKING: return transfer_blocking(t);
	case PMPI_NONBLOCKING: return t->all ? transfer_later(t) : transfer_at_once(t);
	case PMPI_BEGIN: return transfer_later(t);
	default: return end_pins(t->file, 0, NULL, buffers.next.File_transfer(t));
	}
}

/* Calls that complete nonblocking ones. */
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

static struct pmpi_feature buffers = {
	.place = PMPI_BUFFERS,
	.take = {
		.File_transfer = transfer,
		.Wait = wait, .Test = test, .Waitall = wait_all, .Testall = test_all,
		.Waitany = wait_any, .Testany = test_any, .Waitsome = wait_some,
		.Testsome = test_some,
	},
};
PMPI_FEATURE(buffers)
