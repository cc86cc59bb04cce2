/* SPDX-License-Identifier: BSD-3-Clause */
/* Finds the newest moment that all ranks have. Takes no lock. */
#include "window/moment.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/mman.h>
#include <ummap.h>
#include <unistd.h>

char *moment_map(const char *uri, const struct entry *entry, int prot, struct error *e)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	void *base;

	/* Trailers and small coarrays are scattered bytes. */
	attr.seg_size = (size_t)sysconf(_SC_PAGESIZE);
	attr.flags = prot & PROT_WRITE ? UMMAP_CREATE : 0;
	if (ummap_open(uri, entry_room(entry), (off_t)entry->at, prot, &attr, &base) == 0)
		return base;
	error_errno(e, errno, "%s", umerrormsg());
	return NULL;
}

void moment_look(const char *uri, const struct entry *entry, bool logged, struct holding *h,
		 struct error *e)
{
	char *base = moment_map(uri, entry, PROT_READ, e);
	struct trailer t;

	*h = (struct holding){ .file = base };
	if (!base)
		return;
	t = *entry_trailer(base, entry);
	h->synced = entry_is_whole(entry, &t);
	h->epoch = h->synced ? t.epoch : 0;
	if (logged && umcommits(base, &h->oldest, &h->newest) < 0)
		error_errno(e, errno, "%s", umerrormsg());
	umunmap(base, 0);
}

void moment_agree(MPI_Comm comm, uint64_t mine, uint64_t newest, struct agreement *a)
{
	int rank, ranks;

	PMPI_Comm_rank(comm, &rank);
	PMPI_Comm_size(comm, &ranks);
	PMPI_Allreduce(&mine, &a->common, 1, MPI_UINT64_T, MPI_MIN, comm);
	PMPI_Allreduce(&newest, &a->newest, 1, MPI_UINT64_T, MPI_MAX, comm);
	a->behind = mine == a->common ? rank : ranks;
	PMPI_Allreduce(MPI_IN_PLACE, &a->behind, 1, MPI_INT, MPI_MIN, comm);
}

bool moment_key(const struct holding *h, uint64_t epoch, char key[MOMENT_KEY])
{
	uint64_t steps = h->epoch - epoch;

	snprintf(key, MOMENT_KEY, "wal.commit=%" PRIu64, h->newest - steps);
	return steps <= h->newest - h->oldest;
}
