/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * MPI-IO from and to windows whose absent parts the kernel cannot reach (engine segv): they would get EFAULT, which not
 * every MPI reports. With the driver mpiio, MPI would wait for itself. So a buffer is pinned while it is transferred.
 * Transfers that may end later than they begin are done at once where nobody else takes part; where others do, pins last
 * until the call that ends them. Buffers in other memory pass by.
 */
#include "window/buffers.h"

#include "window/region.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <ummap.h>

/* The calls themselves. */
#define COUNT int
#define CALL(name) MPI_File_##name
#define PCALL(name) PMPI_File_##name
#include "window/buffers_calls.h"

struct pin fileio_reach(const void *buf, MPI_Count count, MPI_Datatype type)
{
	MPI_Aint lb, len, unused, extent;
	const struct area *area;
	const char *from, *to;

	if (count <= 0 || PMPI_Type_get_true_extent(type, &lb, &len) != MPI_SUCCESS || len <= 0)
		return (struct pin){ 0 };
	PMPI_Type_get_extent(type, &unused, &extent);
	from = (const char *)buf + lb + (extent < 0 ? (count - 1) * extent : 0);
	to = from + (count - 1) * (extent < 0 ? -extent : extent) + len;
	area = area_find(from);
	if (!area || !area->stored_len || (area->hints.engine != HINT_SEGV && !hints_by_mpiio(&area->hints)))
		return (struct pin){ 0 };
	if (from < area->stored)
		from = area->stored;
	if (to > area->stored + area->stored_len)
		to = area->stored + area->stored_len;
	return from < to ? (struct pin){ (void *)(uintptr_t)from, (size_t)(to - from) } : (struct pin){ 0 };
}

int fileio_pin(MPI_File file, const void *buf, MPI_Count count, MPI_Datatype type, int prot, struct pin *p)
{
	struct trouble t = { 0 };

	*p = fileio_reach(buf, count, type);
	if (!p->len || umpin(p->addr, p->len, prot) == 0)
		return MPI_SUCCESS;
	trouble_errno(&t, errno, "a buffer in storage cannot be held in memory for a transfer: %s; smaller transfers, more "
		      "memory (UMMAP_MEM_LIMIT) or storage_alloc_engine uffd would do", umerrormsg());
	p->len = 0;
	return trouble_tell_file(file, &t);
}

void fileio_unpin(const struct pin *p)
{
	if (p->len)
		umunpin(p->addr, p->len);
}

/* ---- Requests of what has ended ---- */

/* The status of what has been done, for whoever completes the request. */
static int query(void *done, MPI_Status *status)
{
	*status = *(MPI_Status *)done;
	return MPI_SUCCESS;
}

static int release(void *done)
{
	free(done);
	return MPI_SUCCESS;
}

static int cancel(void *done, int complete)
{
	(void)done;
	(void)complete;
	return MPI_SUCCESS;
}

int fileio_complete(MPI_Status *done, MPI_Request *request)
{
	int code = PMPI_Grequest_start(query, release, cancel, done, request);

	return code == MPI_SUCCESS ? PMPI_Grequest_complete(*request) : code;
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

void fileio_drop(struct kept *k)
{
	if (k)
		fileio_unpin(&k->pin);
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
			fileio_drop(k);
			continue;
		}
		k->next = left;
		left = k;
	}
	all = left;
	pthread_mutex_unlock(&lock);
}

void fileio_split_ended(MPI_File file)
{
	unkeep(&file, 0, NULL);
}

struct kept *fileio_keep(MPI_File file, const void *buf, MPI_Count count, MPI_Datatype type, int prot, int *failed)
{
	struct kept *k = calloc(1, sizeof(*k));

	*failed = k ? fileio_pin(file, buf, count, type, prot, &k->pin) : MPI_ERR_NO_MEM;
	if (*failed || !k->pin.len) {
		free(k);
		return NULL;
	}
	k->file = file;
	return k;
}

void fileio_keep_until(struct kept *k, MPI_Request request)
{
	if (!k)
		return;
	k->request = request;
	pthread_mutex_lock(&lock);
	k->next = all;
	all = k;
	pthread_mutex_unlock(&lock);
}

#define END(name, constant)                                                                    \
	int MPI_File_##name##_end(MPI_File file, constant void *buf, MPI_Status *status)       \
	{                                                                                      \
		int code = PMPI_File_##name##_end(file, buf, status);                          \
                                                                                               \
		fileio_split_ended(file);                                                      \
		return code;                                                                   \
	}

END(read_all, )
END(read_ordered, )
END(write_all, const)
END(write_ordered, const)
END(read_at_all, )
END(write_at_all, const)

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

int MPI_Wait(MPI_Request *r, MPI_Status *s) { LOOKS(1, r, PMPI_Wait(r, s)); }
int MPI_Test(MPI_Request *r, int *flag, MPI_Status *s) { LOOKS(1, r, PMPI_Test(r, flag, s)); }
int MPI_Waitall(int n, MPI_Request r[], MPI_Status s[]) { LOOKS(n, r, PMPI_Waitall(n, r, s)); }
int MPI_Testall(int n, MPI_Request r[], int *flag, MPI_Status s[]) { LOOKS(n, r, PMPI_Testall(n, r, flag, s)); }
int MPI_Waitany(int n, MPI_Request r[], int *i, MPI_Status *s) { LOOKS(n, r, PMPI_Waitany(n, r, i, s)); }
int MPI_Testany(int n, MPI_Request r[], int *i, int *flag, MPI_Status *s)
{
	LOOKS(n, r, PMPI_Testany(n, r, i, flag, s));
}
int MPI_Waitsome(int n, MPI_Request r[], int *done, int i[], MPI_Status s[])
{
	LOOKS(n, r, PMPI_Waitsome(n, r, done, i, s));
}
int MPI_Testsome(int n, MPI_Request r[], int *done, int i[], MPI_Status s[])
{
	LOOKS(n, r, PMPI_Testsome(n, r, done, i, s));
}
