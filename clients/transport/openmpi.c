/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * OpenMPI 4.1. Its first choice for windows, osc/rdma, has the kernel copy between processes (CMA): where that gets EFAULT
 * it tries for ever. With any engine and with plain memory, it finds no way to windows of a single process, and its
 * operations are not atomic. osc/pt2pt has none of this, but does not do THREAD_MULTIPLE; there, osc/ucx, which later
 * versions leave out where UCX has only transports that are not in a list of fast networks'. btl/vader tries CMA as well
 * and falls back to its own copies, not without a line on stderr each time; UCX ends the program. Between machines every
 * transport writes from windows by system calls.
 */
#include "transport/engine.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define OSC "OMPI_MCA_osc"
#define RANKS "OMPI_COMM_WORLD_SIZE"
#define RANKS_HERE "OMPI_COMM_WORLD_LOCAL_SIZE"
#define COPY "OMPI_MCA_btl_vader_single_copy_mechanism"

/* Whether a list of components, "a,b" or "^a,b", leaves name in. */
static bool selects(const char *list, const char *name)
{
	bool all_but = list && *list == '^', named = false;

	if (!list || !*list)
		return true;
	for (const char *s = list + all_but; *s;) {
		size_t len = strcspn(s, ",");

		named = named || (len == strlen(name) && strncmp(s, name, len) == 0);
		s += len + (s[len] == ',');
	}
	return named != all_but;
}

/* mpirun says how many there are, and how many of them are here. */
static bool on_one_machine(void)
{
	const char *all = getenv(RANKS), *here = getenv(RANKS_HERE);

	return !all || !here || strcmp(all, here) == 0;
}

bool transport_is_local(void)
{
	const char *all = getenv(RANKS);

	return all && getenv(RANKS_HERE) && strcmp(all, "1") != 0 && on_one_machine();
}

void transport_prepare(int threads)
{
	if (threads == MPI_THREAD_MULTIPLE) {
		engine_default(OSC, "^rdma");
		if (on_one_machine()) {
			engine_default("OMPI_MCA_opal_common_ucx_tls", "any");
			engine_default("OMPI_MCA_opal_common_ucx_devices", "any");
			/* Messages stay where they were. */
			engine_default("OMPI_MCA_pml_ucx_priority", "1");
		}
	} else {
		engine_default(OSC, "^rdma,ucx");
	}
	if (engine_expects_uffd())
		return;
	engine_default(COPY, "none");
	/* UCX would take SIGSEGV and SIGBUS away. */
	engine_default("UCX_HANDLE_ERRORS", "none");
	engine_default("UCX_TLS", "^cma");
}

void transport_check(enum engine engine, struct error *e)
{
	const char *osc = getenv(OSC), *copy = getenv(COPY), *pml = getenv("OMPI_MCA_pml"), *btl = getenv("OMPI_MCA_btl");
	const char *name = engine == ENGINE_SIGBUS ? "sigbus" : "segv";
	bool emulated = copy && strcmp(copy, "emulated") == 0, by_ucx = pml && selects(pml, "ucx");

	if (!engine_hides_from_kernel(engine))
		return;
	if (!on_one_machine())
		error_set(e, MPI_ERR_INFO_VALUE, "on several machines OpenMPI cannot reach windows of the engine %s: "
			  "storage_alloc_engine must be \"uffd\", which needs Linux 6.8", name);
	if (selects(osc, "rdma") && !emulated)
		error_set(e, MPI_ERR_INFO_VALUE, "OpenMPI's osc/rdma cannot reach windows of the engine %s: leave "
			  "the MCA parameter osc alone, or set it to \"^rdma,ucx\", or "
			  "btl_vader_single_copy_mechanism to \"emulated\"", name);
	if (by_ucx && selects(osc, "pt2pt"))
		error_set(e, MPI_ERR_INFO_VALUE, "OpenMPI's pml/ucx cannot reach windows of the engine %s through "
			  "osc/pt2pt: leave the MCA parameter pml alone, or set osc to \"ucx\"", name);
	if (!selects(btl, "vader"))
		error_set(e, MPI_ERR_INFO_VALUE, "without btl/vader, OpenMPI cannot reach windows of the engine %s: "
			  "leave the MCA parameter btl alone, or add \"vader\" to it", name);
}

void transport_check_base(const void *base, struct error *e)
{
	(void)base, (void)e;
}

void transport_check_mapped(const void *base, MPI_Comm comm, struct error *e)
{
	struct umstat st = { .struct_size = sizeof(st) };

	if (on_one_machine())
		return;
	if (base && umstat(base, &st) == 0 && !st.kernel)
		error_set(e, MPI_ERR_BASE, "on several machines OpenMPI does not reach memory that is a mapping of libummap's and was opened "
			  "without UMMAP_KERNEL");
	if (comm != MPI_COMM_NULL)
		error_agree(comm, e);
}

/* OMPIO leaves the other ranks waiting for ever, and takes a write that was cut short for a whole one. ROMIO, which is
 * there as well, does neither. */
bool transport_writes_together(void)
{
	return !selects(getenv("OMPI_MCA_io"), "ompio");
}
