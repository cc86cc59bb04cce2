/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * With PCAF_ENABLED, the MPI windows that libcaf makes for coarrays are kept in files; other calls
 * of MPI are not affected. Some windows of libcaf must stay in memory. What libcaf does next tells
 * them: it sets locks, events and critical sections to zero by an MPI_Put of the image to itself,
 * and allocates tokens for types with allocatable components. A barrier on libcaf's communicator is
 * a `sync all`; `allocate`, `deallocate` and the end of the program contain one, too.
 *
 * Without PCAF_ENABLED, no call passes here.
 */
#include "coarray/job.h"
#include "coarray/libcaf.h"
#include "pmpi/pmpi.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static struct pmpi_feature coarrays;
static struct error config_error; /* error in the variables */
static bool is_active;            /* MPI is initialized, and coarrays are kept in files */
static struct coarray *newest;    /* the last one that was registered, if no `sync all` followed */
static bool owes_sync;            /* the last `sync all` did not reach storage */
static bool is_ending;            /* the program frees coarrays that it has not deallocated */

/* ---- Initialization ---- */

static void start_coarrays(void)
{
	enum libcaf_found found = libcaf_find();

	if (found == LIBCAF_ABSENT)
		return;
	if (found == LIBCAF_HIDDEN)
		error_set(&config_error, MPI_ERR_ARG,
			  "cannot find libcaf in this program, as PCAF_ENABLED=true requires: the "
			  "symbols were removed. Try the program without strip(1), or linked with "
			  "the shared libcaf");
	job_check(MPI_COMM_WORLD, &config_error);
	is_active = job.config.enabled;
}

static int init(int *argc, char ***argv)
{
	int code = coarrays.next.Init(argc, argv);

	if (code == MPI_SUCCESS)
		start_coarrays();
	return code;
}

static int init_thread(int *argc, char ***argv, int required, int *provided)
{
	int code = coarrays.next.Init_thread(argc, argv, required, provided);

	if (code == MPI_SUCCESS)
		start_coarrays();
	return code;
}

/* ---- Making coarrays ---- */

/* Returns the first free place in the order of coarrays. */
static unsigned find_order(void)
{
	unsigned order = 1;

	for (const struct coarray *c = job.coarrays; c;) {
		bool is_taken = c->order == order;

		order += is_taken;
		c = is_taken ? job.coarrays : c->next;
	}
	return order;
}

/* Sizes are multiples of ENTRY_TRAILER: MPICH places the parts of all ranks one after the other,
 * and loses puts to parts that do not begin at a word. */
static int allocate_small(struct coarray *c, MPI_Aint size, MPI_Aint unit, MPI_Info info,
			  void *base)
{
	MPI_Aint padded = (size + ENTRY_TRAILER - 1) / ENTRY_TRAILER * ENTRY_TRAILER;
	int code = coarrays.next.Win_allocate(padded, unit, info, job.comm, base, &c->win);

	c->is_whole = c->is_small && job.pool_epoch > 0;
	return code;
}

static int allocate_mapped(struct coarray *c, const struct entry *entry, MPI_Aint unit,
			   void *base)
{
	MPI_Info info;
	int code;

	PMPI_Info_create(&info);
	store_hints(&job.store, entry, info);
	code = coarrays.next.Win_allocate((MPI_Aint)entry_room(entry), unit, info, job.comm, base,
					  &c->win);
	PMPI_Info_free(&info);
	if (code == MPI_SUCCESS)
		c->is_whole = entry_is_whole(entry, entry_trailer(*(char **)base, entry));
	return code;
}

/* With PCAF_UNLINK, only large coarrays have files, which save memory. */
static bool should_keep(MPI_Aint size)
{
	MPI_Aint least = job.config.unlink ? MAX_SMALL_BYTES + 1 : 1;

	return size >= least && (uint64_t)size >= job.config.min;
}

static int allocate(MPI_Aint size, MPI_Aint unit, MPI_Info info, MPI_Comm comm, void *base,
		    MPI_Win *win)
{
	struct entry *entry = NULL;
	struct coarray *c;
	int code;

	if (!is_active || libcaf_function_at(pmpi_caller) != LIBCAF_REGISTER)
		return coarrays.next.Win_allocate(size, unit, info, comm, base, win);
	if (job.comm == MPI_COMM_NULL) {
		job_begin(comm);
		if (!job.config.unlink)
			restart_begin();
	}
	c = comm == job.comm ? calloc(1, sizeof(*c)) : NULL;
	if (!c)
		return coarrays.next.Win_allocate(size, unit, info, comm, base, win);
	c->order = find_order();
	c->size = (size_t)size;
	c->is_kept = should_keep(size);
	if (c->is_kept)
		entry = job_enter(c->order, c->size, &c->must_restore);
	c->is_small = entry && entry->small;
	code = entry && !c->is_small ? allocate_mapped(c, entry, unit, base)
				     : allocate_small(c, size, unit, info, base);
	job_check_code(code);
	c->base = *(char **)base;
	c->next = job.coarrays;
	newest = job.coarrays = c;
	*win = c->win;
	return MPI_SUCCESS;
}

static bool are_zeros(const int *words, MPI_Count n)
{
	while (n > 0 && words[n - 1] == 0)
		n--;
	return n == 0;
}

/* Such a put is not an assignment: libcaf stores to an image's own part without MPI. */
static int put(const struct pmpi_operation *o)
{
	if (newest && o->win == newest->win && newest->is_kept && o->rank == job.image - 1 &&
	    o->type == MPI_INT && o->disp == 0 && (size_t)o->n * sizeof(int) == newest->size &&
	    are_zeros(o->from, o->n))
		job_drop(newest);
	return coarrays.next.Put(o);
}

/* libcaf allocates a token for each allocatable component. Its address, which becomes a part of the
 * coarray, is invalid in another run. */
static int alloc_mem(MPI_Aint size, MPI_Info info, void *base)
{
	if (newest && newest->is_kept && libcaf_function_at(pmpi_caller) == LIBCAF_REGISTER)
		job_drop(newest);
	return coarrays.next.Alloc_mem(size, info, base);
}

/* ---- Syncs ---- */

/* Makes a barrier. With PCAF_SYNCFREQ, image 1 decides whether the sync reaches storage. */
static int synchronize_images(bool *is_due)
{
	int due = job.image != 1 || job_is_due(), code;

	code = job.config.syncfreq
		       ? PMPI_Allreduce(MPI_IN_PLACE, &due, 1, MPI_INT, MPI_LAND, job.comm)
		       : coarrays.next.Barrier(job.comm);
	*is_due = due || !job.config.syncfreq;
	return code;
}

static bool any_kept(void)
{
	const struct coarray *c = job.coarrays;

	while (c && !c->is_kept)
		c = c->next;
	return c;
}

/* Does the rest of a `sync all`, after the barrier. wait: the changes
 * are durable at the end, also with PCAF_ASYNC. */
static void sync_all(bool is_due, bool wait)
{
	newest = NULL;
	job_restore_contents();
	owes_sync = !is_due;
	if (is_due && any_kept())
		job_sync(wait);
}

static int barrier(MPI_Comm comm)
{
	bool is_due;
	int code;

	if (!is_active || job.config.unlink || comm != job.comm)
		return coarrays.next.Barrier(comm);
	code = synchronize_images(&is_due);
	if (code == MPI_SUCCESS)
		sync_all(is_due, false);
	return code;
}

/* An image that waits for an event only makes this call in a loop. MPI must make progress in it,
 * because other images may wait for this one. */
static int sync_window(MPI_Win win)
{
	int code = coarrays.next.Win_sync(win), found;

	if (is_active)
		PMPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_SELF, &found, MPI_STATUS_IGNORE);
	return code;
}

static bool all_done(const MPI_Request *requests, int n)
{
	while (n > 0 && requests[n - 1] == MPI_REQUEST_NULL)
		n--;
	return n == 0;
}

/* `sync images` waits for one image after the other by this call. A restart could not go back to
 * it, because it does not involve all images. */
static int waitany(int n, MPI_Request requests[], int *i, MPI_Status *status)
{
	bool may_sync = is_active && !job.config.consistent && !job.config.unlink &&
			libcaf_function_at(pmpi_caller) == LIBCAF_SYNC_IMAGES;
	int code = coarrays.next.Waitany(n, requests, i, status);

	if (may_sync && code == MPI_SUCCESS && all_done(requests, n) && any_kept() && job_is_due())
		job_sync_alone();
	return code;
}

/* ---- Freeing coarrays ---- */

static int free_window(MPI_Win *win)
{
	bool is_deallocated = libcaf_function_at(pmpi_caller) == LIBCAF_DEREGISTER;
	struct coarray *c = is_active ? job_find(*win) : NULL;
	int code;

	if (c)
		job_end_sync();
	/* libcaf has made a barrier before, unless a single image ends. */
	if (c && !job.config.unlink && any_kept() &&
	    (owes_sync || (!is_deallocated && !is_ending && job.images == 1)))
		job_sync(true);
	owes_sync = owes_sync && !c;
	is_ending = is_ending || (c && !is_deallocated);
	code = coarrays.next.Win_free(win);
	if (!c)
		return code;
	job_check_code(code);
	job_leave(c, is_deallocated);
	return MPI_SUCCESS;
}

/* At the end, each image of libcaf sends a message to the others that it has stopped, which only
 * `sync images` receives. MPICH 4.2 aborts a program that frees a communicator with messages. */
static int free_comm(MPI_Comm *comm)
{
	int found = is_active && *comm == job.comm, word;
	MPI_Status status;

	while (found && PMPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, *comm, &found, &status) == 0 &&
	       found)
		PMPI_Recv(&word, 1, MPI_INT, status.MPI_SOURCE, status.MPI_TAG, *comm,
			  MPI_STATUS_IGNORE);
	return coarrays.next.Comm_free(comm);
}

/* ---- Stopping all images ---- */

/* The time in which all images must execute `stop`: an image may wait for one that has done so. */
#define MAX_STOP_WAIT_MS 5000

static bool wait_for_stop(void)
{
	const struct timespec millisecond = { .tv_nsec = 1000000 };
	MPI_Request all;
	int have_all = 0;

	PMPI_Ibarrier(job.stopped, &all);
	for (int ms = 0; ms < MAX_STOP_WAIT_MS && !have_all; ms++) {
		PMPI_Test(&all, &have_all, MPI_STATUS_IGNORE);
		if (!have_all)
			nanosleep(&millisecond, NULL);
	}
	return have_all;
}

/* Writes the exit status of an image that ends all images to a file. A launcher may lose MPI's
 * message, and its own exit status may be the same if a signal has killed an image. */
static void report_end(int code)
{
	char path[2 * CONFIG_TEXT + 16], line[20];
	int fd, len = snprintf(line, sizeof(line), "%d\n", code & 0xff);

	if (!job.config.report)
		return;
	snprintf(path, sizeof(path), "%s/%saborted", job.config.path, job.config.prefix);
	fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	if (fd < 0)
		return;
	/* On a full disk, the empty file still tells that an image has ended the job. */
	if (write(fd, line, (size_t)len) < 0)
		perror(path);
	close(fd);
}

/* libcaf makes this call for `stop`, with code 0, and for `error stop`. */
static int abort_all(MPI_Comm comm, int code)
{
	report_end(code);
	if (is_active && code == 0 && job.comm != MPI_COMM_NULL && !job.config.unlink &&
	    wait_for_stop())
		sync_all(true, true);
	return coarrays.next.Abort(comm, code);
}

/* ---- Calls of programs ---- */

bool coarray_is_active(void)
{
	return is_active;
}

void coarray_sync(void)
{
	PMPI_Barrier(job.comm == MPI_COMM_NULL ? MPI_COMM_WORLD : job.comm);
	if (is_active && !job.config.unlink)
		sync_all(true, true);
}

static struct pmpi_feature coarrays = {
	.place = PMPI_COARRAY,
	.take = {
		.Init = init,
		.Init_thread = init_thread,
		.Alloc_mem = alloc_mem,
		.Win_allocate = allocate,
		.Win_free = free_window,
		.Win_sync = sync_window,
		.Put = put,
		.Barrier = barrier,
		.Waitany = waitany,
		.Abort = abort_all,
		.Comm_free = free_comm,
	},
};

__attribute__((constructor)) static void register_coarrays(void)
{
	if (!config_is_wanted())
		return;
	config_read(&job.config, &config_error);
	pmpi_register(&coarrays);
}

/* ---- The start of the program ---- */

static int (*program_main)(int argc, char **argv, char **envp);

/* Constructors have registered static coarrays, and have set their initial values. */
static int main_with_coarrays(int argc, char **argv, char **envp)
{
	newest = NULL;
	if (is_active)
		job_restore_contents();
	return program_main(argc, argv, envp);
}

#pragma GCC visibility push(default)
int __libc_start_main(int (*main)(int, char **, char **), int argc, char **argv,
		      void (*start)(void), void (*stop)(void), void (*rtld_fini)(void),
		      void *stack_end);
#pragma GCC visibility pop

int __libc_start_main(int (*main)(int, char **, char **), int argc, char **argv,
		      void (*start)(void), void (*stop)(void), void (*rtld_fini)(void),
		      void *stack_end)
{
	__typeof__(&__libc_start_main) next =
		(__typeof__(next))(uintptr_t)dlsym(RTLD_NEXT, "__libc_start_main");

	program_main = main;
	return next(config_is_wanted() ? main_with_coarrays : main, argc, argv, start, stop,
		    rtld_fini, stack_end);
}
