/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Detects that the program uses another MPI than this library is for. Handles and constants differ,
 * so the program would crash in its first call. It ends with a message instead, before main.
 */
#include "pmpi/other.h"

#include <link.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int find_other(struct dl_phdr_info *object, size_t size, void *unused)
{
	const char *slash = strrchr(object->dlpi_name, '/');
	const char *name = slash ? slash + 1 : object->dlpi_name;

	(void)size, (void)unused;
	return strncmp(name, other_library, strlen(other_library)) == 0;
}

__attribute__((constructor)) static void refuse_other(void)
{
	if (!dl_iterate_phdr(find_other, NULL))
		return;
	fprintf(stderr, "libummap-mpi: cannot run with '%s': this library is for %s, and the "
		"program uses %s. Try %s.\n",
		other_library, own_mpi, other_mpi, other_remedy);
	_exit(1);
}
