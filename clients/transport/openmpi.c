/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Open MPI 4.1 and 5, told apart at run time because their libraries have the same name. The MPI's
 * own components move the data of windows where libummap-mpi does not, and each of them limits the
 * memory that a window may have:
 *
 * osc/rdma lets the kernel copy between processes. If that copy fails with EFAULT, Open MPI 4.1
 * repeats it without end. Open MPI 4.1 has no other way within one machine, cannot make windows of
 * one process with it, and its operations are not atomic. Open MPI 5 does without the kernel if no
 * component of the framework smsc copies by it. Its logical and bitwise operations on integers of
 * 4 and 8 bytes give wrong results in any memory (transport_accumulates_right).
 *
 * osc/pt2pt, which only Open MPI 4.1 has, works with any memory, but refuses MPI_THREAD_MULTIPLE.
 *
 * osc/ucx is selected only if UCX has a network from a list of fast ones, or if that list is
 * replaced. It works with any memory if UCX has no transport that passes the window's memory to
 * the kernel. Its MPI_Win_unlock then does not wait for UCX's messages, so a flush comes before.
 * If UCX 1.13 has both of its transports for shared memory, posix and sysv, it takes keys of one
 * for keys of the other, and access to a window of MPI_Win_create_dynamic ends the program. In
 * Open MPI 5, a dynamic window has at most 48 blocks with it, and calls of several threads end the
 * program.
 *
 * btl/vader (btl/sm in Open MPI 5) falls back to its own copies after EFAULT, with a line on
 * stderr for each; UCX ends the program. Between machines every transport passes the memory of
 * windows to system calls.
 *
 * op/avx adds integers of 8 and 16 bits with saturation.
 */
#include "transport/engine.h"

#include "pmpi/pmpi.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OSC "OMPI_MCA_osc"
#define RANKS "OMPI_COMM_WORLD_SIZE"
#define RANKS_HERE "OMPI_COMM_WORLD_LOCAL_SIZE"
#define VADER_COPY "OMPI_MCA_btl_vader_single_copy_mechanism"
#define SMSC "OMPI_MCA_smsc"
#define UCX_TLS "UCX_TLS"
#define OLDEST_MAJOR 4

static pthread_once_t version_once = PTHREAD_ONCE_INIT;
static int major = OLDEST_MAJOR;

/* MPI_Get_library_version may be called before MPI_Init. */
static void read_version(void)
{
	char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
	int len, found;

	if (PMPI_Get_library_version(text, &len) == MPI_SUCCESS && sscanf(text, "Open MPI v%d", &found) == 1)
		major = found;
}

static bool has_pt2pt(void)
{
	pthread_once(&version_once, read_version);
	return major < 5;
}

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

/* mpirun sets both variables. */
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

/* Makes Open MPI 4.1 use osc/pt2pt, or osc/ucx if several threads are to call MPI. */
static void prepare_version_4(int threads)
{
	engine_default(OSC, threads == MPI_THREAD_MULTIPLE ? "^rdma" : "^rdma,ucx");
	if (threads != MPI_THREAD_MULTIPLE || !on_one_machine())
		return;
	engine_default(UCX_TLS, "posix,self");
	engine_default("OMPI_MCA_opal_common_ucx_tls", "any");
	engine_default("OMPI_MCA_opal_common_ucx_devices", "any");
	/* This priority keeps messages (pml) from UCX. */
	engine_default("OMPI_MCA_pml_ucx_priority", "1");
}

/* Makes Open MPI 5 use osc/rdma. Single windows may have the engine segv, so the kernel never copies on one machine. */
static void prepare_version_5(void)
{
	engine_default(OSC, "^ucx");
	if (on_one_machine())
		engine_default(SMSC, "^cma,knem,xpmem");
}

void transport_prepare(int threads)
{
	bool kernel_may_copy = engine_expects_uffd();

	engine_default("OMPI_MCA_op", "^avx");
	if (has_pt2pt())
		prepare_version_4(threads);
	else
		prepare_version_5();
	if (kernel_may_copy)
		return;
	if (has_pt2pt())
		engine_default(VADER_COPY, "none");
	/* UCX would install its own handlers for SIGSEGV and SIGBUS. */
	engine_default("UCX_HANDLE_ERRORS", "none");
	/* In Open MPI 5, osc/ucx is the user's choice. It must not pass windows to the kernel. */
	if (!has_pt2pt() && selects(getenv(OSC), "ucx") && on_one_machine())
		engine_default(UCX_TLS, "posix,self");
	engine_default(UCX_TLS, "^cma");
}

/* Sets an error if settings of Open MPI 4.1 do not allow windows of this engine. */
static void check_version_4(const char *name, struct error *e)
{
	const char *osc = getenv(OSC), *copy = getenv(VADER_COPY), *pml = getenv("OMPI_MCA_pml");
	bool emulated = copy && strcmp(copy, "emulated") == 0, by_ucx = pml && selects(pml, "ucx");

	if (selects(osc, "rdma") && !emulated)
		error_set(e, MPI_ERR_INFO_VALUE,
			  "cannot use windows of the engine %s: Open MPI's osc/rdma cannot access "
			  "them. Try without the MCA parameter osc, or osc=^rdma,ucx, or "
			  "btl_vader_single_copy_mechanism=emulated",
			  name);
	if (by_ucx && selects(osc, "pt2pt"))
		error_set(e, MPI_ERR_INFO_VALUE,
			  "cannot use windows of the engine %s: Open MPI's osc/pt2pt cannot access "
			  "them by pml/ucx. Try without the MCA parameter pml, or osc=ucx",
			  name);
}

static bool is_any_selected(const char *list, const char *const *names)
{
	while (*names && !selects(list, *names))
		names++;
	return *names;
}

/* Sets an error if settings of Open MPI 5 do not allow windows of this engine. */
static void check_version_5(const char *name, struct error *e)
{
	const char *const kernel_copies[] = { "cma", "knem", "xpmem", NULL };
	const char *const kernel_transports[] = { "all", "cma", "knem", "xpmem", "tcp", "shm", "sm", NULL };
	const char *osc = getenv(OSC);

	if (selects(osc, "rdma") && is_any_selected(getenv(SMSC), kernel_copies))
		error_set(e, MPI_ERR_INFO_VALUE,
			  "cannot use windows of the engine %s: Open MPI's smsc cannot copy from "
			  "them in the kernel. Try without the MCA parameter smsc, or "
			  "smsc=^cma,knem,xpmem",
			  name);
	if (selects(osc, "ucx") && is_any_selected(getenv(UCX_TLS), kernel_transports))
		error_set(e, MPI_ERR_INFO_VALUE,
			  "cannot use windows of the engine %s: transports of UCX cannot access "
			  "them in the kernel. Try UCX_TLS=posix,self, or without the MCA parameter "
			  "osc",
			  name);
}

void transport_check(enum engine engine, struct error *e)
{
	const char *btl = getenv("OMPI_MCA_btl"), *name = engine == ENGINE_SIGBUS ? "sigbus" : "segv";

	if (!engine_hides_from_kernel(engine))
		return;
	if (!on_one_machine())
		error_set(e, MPI_ERR_INFO_VALUE,
			  "cannot use windows of the engine %s: Open MPI cannot access them from "
			  "other machines. Try storage_alloc_engine=uffd, which needs Linux 6.8",
			  name);
	if (has_pt2pt())
		check_version_4(name, e);
	else
		check_version_5(name, e);
	/* Open MPI 5 knows btl/sm by its former name, too. */
	if (!selects(btl, "vader") && (has_pt2pt() || !selects(btl, "sm")))
		error_set(e, MPI_ERR_INFO_VALUE,
			  "cannot use windows of the engine %s: Open MPI cannot access them "
			  "without btl/%s. Try without the MCA parameter btl, or to add %s to it",
			  name, has_pt2pt() ? "vader" : "sm", has_pt2pt() ? "vader" : "sm");
}

bool transport_accumulates_right(void)
{
	return has_pt2pt() || !selects(getenv(OSC), "rdma");
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
		error_set(e, MPI_ERR_BASE,
			  "cannot use a mapping of libummap as window memory: Open MPI cannot "
			  "access it from other machines. Try to open the mapping with "
			  "UMMAP_KERNEL");
	if (comm != MPI_COMM_NULL)
		error_agree(comm, e);
}

/* OMPIO leaves the other ranks waiting for ever, and takes a write that was cut short for a whole one. ROMIO, which is
 * there as well, does neither. */
bool transport_writes_together(void)
{
	return !selects(getenv("OMPI_MCA_io"), "ompio");
}

/* ---- The calls ---- */

static struct pmpi_feature unlocks;

/* Whether osc/ucx moves the data of windows by messages, whose arrival MPI_Win_unlock does not
 * wait for. */
static bool needs_flush(void)
{
	const char *tls = getenv(UCX_TLS);

	return tls && !selects(tls, "cma") && selects(getenv(OSC), "ucx");
}

static int unlock(int rank, MPI_Win win)
{
	int code = needs_flush() ? PMPI_Win_flush(rank, win) : MPI_SUCCESS;

	return code == MPI_SUCCESS ? unlocks.next.Win_unlock(rank, win) : code;
}

static int unlock_all(MPI_Win win)
{
	int code = needs_flush() ? PMPI_Win_flush_all(win) : MPI_SUCCESS;

	return code == MPI_SUCCESS ? unlocks.next.Win_unlock_all(win) : code;
}

static struct pmpi_feature unlocks = { .place = PMPI_LAST, .take = { .Win_unlock = unlock, .Win_unlock_all = unlock_all } };
PMPI_FEATURE(unlocks)
