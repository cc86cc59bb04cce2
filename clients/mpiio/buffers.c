/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * MPI-IO from and to windows whose absent parts the kernel cannot reach (engine segv): they would get EFAULT, which not
 * every MPI reports. With the driver mpiio, MPI would wait for itself. So a buffer is pinned while it is transferred.
 * Transfers that may end later than they begin are done at once where nobody else takes part; where others do, pins last
 * until the call that ends them. Buffers in other memory pass by.
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

/* What is pinned; len 0: nothing. */
struct pin {
	void *addr;
	size_t len;
};

/* The bytes of a buffer, holes of its type included, as far as they are stored and out of the kernel's reach. */
static struct pin pin_of(const void *buf, MPI_Count count, MPI_Datatype type)
{
	MPI_Aint lb, len, unused, extent;
	const struct region *region;
	const char *from, *to;

	/* What is wrong with the arguments, MPI says, by the file's error handler. */
	if (count <= 0 || type == MPI_DATATYPE_NULL || PMPI_Type_get_true_extent(type, &lb, &len) != MPI_SUCCESS || len <= 0)
		return (struct pin){ 0 };
	PMPI_Type_get_extent(type, &unused, &extent);
	from = (const char *)buf + lb + (extent < 0 ? (count - 1) * extent : 0);
	to = from + (count - 1) * (extent < 0 ? -extent : extent) + len;
	region = region_find(from);
	if (!region || !region->stored_len || (!engine_hides_from_kernel(region->hints.engine) && !hints_by_mpiio(&region->hints)))
		return (struct pin){ 0 };
	if (from < region->stored)
		from = region->stored;
	if (to > region->stored + region->stored_len)
		to = region->stored + region->stored_len;
	return from < to ? (struct pin){ (void *)(uintptr_t)from, (size_t)(to - from) } : (struct pin){ 0 };
}

/* MPI_SUCCESS, or what the call is to return. `prot`: what the transfer does with the buffer. */
static int pin(MPI_File file, const void *buf, MPI_Count count, MPI_Datatype type, int prot, struct pin *p)
{
	struct error e = { 0 };

	*p = pin_of(buf, count, type);
	if (!p->len || umpin(p->addr, p->len, prot) == 0)
		return MPI_SUCCESS;
	error_errno(&e, errno,
		    "cannot pin %zu bytes of a window for a transfer. Try smaller transfers, a larger "
		    "UMMAP_MEM_LIMIT, or storage_alloc_engine=uffd. The reason: %s",
		    p->len, umerrormsg());
	p->len = 0;
	return error_tell_file(file, &e);
}

static void unpin(const struct pin *p)
{
	if (p->len)
		umunpin(p->addr, p->len);
}

/* ---- Pins that last ---- */

struct kept {
	struct kept *next;
	struct pin pin;
	MPI_File file;
	MPI_Request request;  /* until it is complete; MPI_REQUEST_NULL: until MPI_File_..._end */
	const MPI_Request *at; /* where its owner has it who waits for it just now */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct kept *_Atomic all;

static void drop(struct kept *k)
{
	if (k)
		unpin(&k->pin);
	free(k);
}

/* A split transfer of this file; or, without one, one of these requests, which was waited for. */
static bool is_over(struct kept *k, const MPI_File *file, int n, const MPI_Request *requests)
{
	bool over;

	if (file)
		return k->file == *file && k->request == MPI_REQUEST_NULL;
	if (!k->at || k->at < requests || k->at >= requests + n)
		return false;
	over = *k->at != k->request;
	k->at = NULL;
	return over;
}

/* Ends the pins of what is over. */
static void unkeep(const MPI_File *file, int n, const MPI_Request *requests)
{
	struct kept *k, *left = NULL, *next;

	pthread_mutex_lock(&lock);
	for (k = all; k; k = next) {
		next = k->next;
		if (is_over(k, file, n, requests)) {
			drop(k);
			continue;
		}
		k->next = left;
		left = k;
	}
	all = left;
	pthread_mutex_unlock(&lock);
}

/* NULL without a failure: there is nothing to keep. */
static struct kept *keep(MPI_File file, const void *buf, MPI_Count count, MPI_Datatype type, int prot, int *failed)
{
	struct kept *k = calloc(1, sizeof(*k));

	*failed = k ? pin(file, buf, count, type, prot, &k->pin) : MPI_ERR_NO_MEM;
	if (*failed || !k->pin.len) {
		free(k);
		return NULL;
	}
	k->file = file;
	return k;
}

/* The transfer has begun: until this request is complete, or, without one, until MPI_File_..._end. k may be NULL. */
static void keep_until(struct kept *k, MPI_Request request)
{
	if (!k)
		return;
	k->request = request;
	pthread_mutex_lock(&lock);
	k->next = all;
	all = k;
	pthread_mutex_unlock(&lock);
}

/* ---- Transfers that end where they begin ---- */

#define INTO (PROT_READ | PROT_WRITE)
#define FROM PROT_READ

/* A call of MPI's: what is done with the buffer, and the arguments before it. Who could not pin transfers nothing, but
 * takes part, for others may wait for him. */
#define BLOCKING(name, constant, prot, params, ...)                                                            \
	static int file_##name(params, constant void *buf, MPI_Count count, MPI_Datatype type, MPI_Status *status) \
	{                                                                                                      \
		struct pin p;                                                                                  \
		int failed = pin(file, buf, count, type, prot, &p);                                            \
		int code = buffers.next.File_##name(__VA_ARGS__, buf, failed ? 0 : count, type, status);       \
                                                                                                               \
		unpin(&p);                                                                                     \
		return failed ? failed : code;                                                                 \
	}

#define HERE MPI_File file
#define AT MPI_File file, MPI_Offset at

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

/* ---- Those of one rank alone that may end later: they have ended when they return ---- */

#define AT_ONCE(name, blocking, constant, params, ...)                                                         \
	static int file_##name(params, constant void *buf, MPI_Count count, MPI_Datatype type, MPI_Request *request) \
	{                                                                                                      \
		struct pin p = pin_of(buf, count, type);                                                       \
		MPI_Status *done;                                                                              \
		int code;                                                                                      \
                                                                                                               \
		if (!p.len)                                                                                    \
			return buffers.next.File_##name(__VA_ARGS__, buf, count, type, request);               \
		done = calloc(1, sizeof(*done));                                                               \
		if (!done)                                                                                     \
			return MPI_ERR_NO_MEM;                                                                 \
		code = file_##blocking(__VA_ARGS__, buf, count, type, done);                                   \
		if (code == MPI_SUCCESS)                                                                       \
			return request_complete(done, request);                                                        \
		free(done);                                                                                    \
		return code;                                                                                   \
	}

AT_ONCE(iread, read, , HERE, file)
AT_ONCE(iread_shared, read_shared, , HERE, file)
AT_ONCE(iwrite, write, const, HERE, file)
AT_ONCE(iwrite_shared, write_shared, const, HERE, file)
AT_ONCE(iread_at, read_at, , AT, file, at)
AT_ONCE(iwrite_at, write_at, const, AT, file, at)

/* ---- Those of all ranks that may end later ---- */

#define SPLIT(name, constant, prot, params, ...)                                                               \
	static int file_##name##_begin(params, constant void *buf, MPI_Count count, MPI_Datatype type)         \
	{                                                                                                      \
		int failed;                                                                                    \
		struct kept *k = keep(file, buf, count, type, prot, &failed);                                  \
		int code = buffers.next.File_##name##_begin(__VA_ARGS__, buf, failed ? 0 : count, type);       \
                                                                                                               \
		if (code != MPI_SUCCESS)                                                                       \
			drop(k);                                                                               \
		else                                                                                           \
			keep_until(k, MPI_REQUEST_NULL);                                                       \
		return failed ? failed : code;                                                                 \
	}

SPLIT(read_all, , INTO, HERE, file)
SPLIT(read_ordered, , INTO, HERE, file)
SPLIT(write_all, const, FROM, HERE, file)
SPLIT(write_ordered, const, FROM, HERE, file)
SPLIT(read_at_all, , INTO, AT, file, at)
SPLIT(write_at_all, const, FROM, AT, file, at)

#define END(name, constant)                                                                                    \
	static int file_##name##_end(MPI_File file, constant void *buf, MPI_Status *status)                    \
	{                                                                                                      \
		int code = buffers.next.File_##name##_end(file, buf, status);                                  \
                                                                                                               \
		unkeep(&file, 0, NULL);                                                                        \
		return code;                                                                                   \
	}

END(read_all, )
END(read_ordered, )
END(write_all, const)
END(write_ordered, const)
END(read_at_all, )
END(write_at_all, const)

/* Who calls from Fortran waits by MPI's own calls, which nobody sees. */
#define LATER(name, constant, prot, params, ...)                                                               \
	static int file_##name(params, constant void *buf, MPI_Count count, MPI_Datatype type, MPI_Request *request) \
	{                                                                                                      \
		int failed = 0;                                                                                \
		struct kept *k = pmpi_caller ? keep(file, buf, count, type, prot, &failed) : NULL;             \
		int code = buffers.next.File_##name(__VA_ARGS__, buf, failed ? 0 : count, type, request);      \
                                                                                                               \
		if (code != MPI_SUCCESS)                                                                       \
			drop(k);                                                                               \
		else                                                                                           \
			keep_until(k, *request);                                                               \
		return failed ? failed : code;                                                                 \
	}

LATER(iread_all, , INTO, HERE, file)
LATER(iwrite_all, const, FROM, HERE, file)
LATER(iread_at_all, , INTO, AT, file, at)
LATER(iwrite_at_all, const, FROM, AT, file, at)

/* ---- Those that wait for these ---- */

/* Whoever has these requests is going to wait for them, or to look. */
static void before(int n, const MPI_Request *requests)
{
	if (!all)
		return;
	pthread_mutex_lock(&lock);
	for (struct kept *k = all; k; k = k->next) {
		for (int i = 0; i < n; i++) {
			if (requests[i] == k->request && requests[i] != MPI_REQUEST_NULL)
				k->at = &requests[i];
		}
	}
	pthread_mutex_unlock(&lock);
}

static int after(int n, const MPI_Request *requests, int code)
{
	if (all)
		unkeep(NULL, n, requests);
	return code;
}

#define LOOKS(n, requests, call) before(n, requests); return after(n, requests, call)

static int wait(MPI_Request *r, MPI_Status *s) { LOOKS(1, r, buffers.next.Wait(r, s)); }
static int test(MPI_Request *r, int *flag, MPI_Status *s) { LOOKS(1, r, buffers.next.Test(r, flag, s)); }
static int waitall(int n, MPI_Request r[], MPI_Status s[]) { LOOKS(n, r, buffers.next.Waitall(n, r, s)); }
static int testall(int n, MPI_Request r[], int *flag, MPI_Status s[])
{
	LOOKS(n, r, buffers.next.Testall(n, r, flag, s));
}
static int waitany(int n, MPI_Request r[], int *i, MPI_Status *s) { LOOKS(n, r, buffers.next.Waitany(n, r, i, s)); }
static int testany(int n, MPI_Request r[], int *i, int *flag, MPI_Status *s)
{
	LOOKS(n, r, buffers.next.Testany(n, r, i, flag, s));
}
static int waitsome(int n, MPI_Request r[], int *done, int i[], MPI_Status s[])
{
	LOOKS(n, r, buffers.next.Waitsome(n, r, done, i, s));
}
static int testsome(int n, MPI_Request r[], int *done, int i[], MPI_Status s[])
{
	LOOKS(n, r, buffers.next.Testsome(n, r, done, i, s));
}

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
		.Wait = wait, .Test = test, .Waitall = waitall, .Testall = testall,
		.Waitany = waitany, .Testany = testany, .Waitsome = waitsome, .Testsome = testsome,
	},
};
PMPI_FEATURE(buffers)
