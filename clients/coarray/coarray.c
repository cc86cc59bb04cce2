/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The windows of MPI that libcaf makes are coarrays: with PCAF_ENABLED they are named files, whatever else the program does
 * with MPI. What cannot be told from the caller is told by what libcaf does next: locks, events and critical sections get
 * zeros by an MPI_Put of the image to itself before anything else, and types with allocatable components get memory for
 * tokens; both stay in memory. A barrier on libcaf's communicator
 * is a `sync all`, also that which `allocate` and `deallocate` contain, and that at the end of the program.
 *
 * Without PCAF_ENABLED, none of this is in the way of any call.
 */
#include "coarray/coarray.h"
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
static struct error bad;          /* variables of the user's */
static bool active;               /* MPI has begun, and there is a libcaf */
static struct coarray *newest;    /* registered, with no `sync all` since */
static bool owed;                 /* the last `sync all` did not reach storage */
static bool ending;               /* the program has begun to free what it has not deallocated */

/* ---- The beginning ---- */

static void begin(void)
{
	enum libcaf_found found = libcaf_find();

	if (found == LIBCAF_ABSENT)
		return;
	if (found == LIBCAF_HIDDEN)
		error_set(&bad, MPI_ERR_ARG,
			  "cannot find libcaf in this program, as PCAF_ENABLED=true requires: the "
			  "symbols were removed. Try the program without strip(1), or linked with "
			  "the shared libcaf");
	job_check(MPI_COMM_WORLD, &bad);
	active = job.config.enabled;
}

static int init(int *argc, char ***argv)
{
	int code = coarrays.next.Init(argc, argv);

	if (code == MPI_SUCCESS)
		begin();
	return code;
}

static int init_thread(int *argc, char ***argv, int required, int *provided)
{
	int code = coarrays.next.Init_thread(argc, argv, required, provided);

	if (code == MPI_SUCCESS)
		begin();
	return code;
}

/* ---- Coarrays come ---- */

static unsigned free_order(void)
{
	unsigned order = 1;

	for (const struct coarray *c = job.coarrays; c;) {
		bool taken = c->order == order;

		order += taken;
		c = taken ? job.coarrays : c->next;
	}
	return order;
}

/* In whole lines: MPICH puts the parts of all ranks one behind the other, and loses puts to those that begin between words. */
static int allocate_small(struct coarray *c, MPI_Aint size, MPI_Aint unit, MPI_Info info, void *base)
{
	MPI_Aint lines = (size + ENTRY_TRAILER - 1) / ENTRY_TRAILER * ENTRY_TRAILER;
	int code = coarrays.next.Win_allocate(lines, unit, info, job.comm, base, &c->win);

	c->whole = c->small && job.pool_epoch > 0;
	return code;
}

static int allocate_mapped(struct coarray *c, const struct entry *entry, MPI_Aint unit, void *base)
{
	MPI_Info info;
	int code;

	PMPI_Info_create(&info);
	store_hints(&job.store, entry, info);
	code = coarrays.next.Win_allocate((MPI_Aint)entry_room(entry), unit, info, job.comm, base, &c->win);
	PMPI_Info_free(&info);
	if (code == MPI_SUCCESS)
		c->whole = entry_is_whole(entry, entry_trailer(*(char **)base, entry));
	return code;
}

static bool is_to_be_kept(MPI_Aint size)
{
	/* What is thrown away is only worth a file if it takes memory. */
	MPI_Aint least = job.config.unlink ? JOB_SMALL + 1 : 1;

	return size >= least && (uint64_t)size >= job.config.min;
}

static int allocate(MPI_Aint size, MPI_Aint unit, MPI_Info info, MPI_Comm comm, void *base, MPI_Win *win)
{
	struct entry *entry = NULL;
	struct coarray *c;
	int code;

	if (!active || libcaf_function_at(pmpi_caller) != LIBCAF_REGISTER)
		return coarrays.next.Win_allocate(size, unit, info, comm, base, win);
	if (job.comm == MPI_COMM_NULL)
		job_begin(comm);
	c = comm == job.comm ? calloc(1, sizeof(*c)) : NULL;
	if (!c)
		return coarrays.next.Win_allocate(size, unit, info, comm, base, win);
	c->order = free_order();
	c->size = (size_t)size;
	c->kept = is_to_be_kept(size);
	if (c->kept)
		entry = job_enter(c->order, c->size, &c->pending);
	c->small = entry && entry->small;
	code = entry && !c->small ? allocate_mapped(c, entry, unit, base) : allocate_small(c, size, unit, info, base);
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

/* No program does this by coarrays: libcaf stores to an image's own part by instructions. */
static int put(const void *from, MPI_Count n, MPI_Datatype type, int rank, MPI_Aint disp, MPI_Count target_n,
	       MPI_Datatype target_type, MPI_Win win)
{
	if (newest && win == newest->win && newest->kept && rank == job.image - 1 && type == MPI_INT && disp == 0 &&
	    (size_t)n * sizeof(int) == newest->size && are_zeros(from, n))
		job_drop(newest);
	return coarrays.next.Put(from, n, type, rank, disp, target_n, target_type, win);
}

/* libcaf has a token for each component that is allocatable, whose address becomes part of the coarray as soon as that is
 * there. In another run it means nothing. */
static int alloc_mem(MPI_Aint size, MPI_Info info, void *base)
{
	if (newest && newest->kept && libcaf_function_at(pmpi_caller) == LIBCAF_REGISTER)
		job_drop(newest);
	return coarrays.next.Alloc_mem(size, info, base);
}

/* Between the constructors, where static coarrays are registered and get their initial values, and the program. */
static void begin_main(void)
{
	newest = NULL;
	if (active)
		job_bring_back();
}

/* ---- Syncs ---- */

/* A barrier, by which all learn what image 1 says. */
static int meet(bool *due)
{
	int word = job.image == 1 && job_is_due();
	int code = job.config.syncfreq ? PMPI_Allreduce(MPI_IN_PLACE, &word, 1, MPI_INT, MPI_MAX, job.comm)
				       : coarrays.next.Barrier(job.comm);

	*due = word || !job.config.syncfreq;
	return code;
}

static bool any_kept(void)
{
	const struct coarray *c = job.coarrays;

	while (c && !c->kept)
		c = c->next;
	return c;
}

/* All images are in a barrier, or have left it and done nothing else. */
static void sync_all(bool due)
{
	newest = NULL;
	job_bring_back();
	owed = !due;
	if (due && any_kept())
		job_sync();
}

static int barrier(MPI_Comm comm)
{
	bool due;
	int code;

	if (!active || job.config.unlink || comm != job.comm)
		return coarrays.next.Barrier(comm);
	code = meet(&due);
	if (code == MPI_SUCCESS)
		sync_all(due);
	return code;
}

/* An image that waits for an event calls nothing else in a loop, while others may need its MPI to go on. */
static int sync_window(MPI_Win win)
{
	int code = coarrays.next.Win_sync(win), found;

	if (active)
		PMPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_SELF, &found, MPI_STATUS_IGNORE);
	return code;
}

static bool all_done(const MPI_Request *requests, int n)
{
	while (n > 0 && requests[n - 1] == MPI_REQUEST_NULL)
		n--;
	return n == 0;
}

/* `sync images` waits for one image after the other. It is no moment of all images, which a restart could bring back. */
static int waitany(int n, MPI_Request requests[], int *i, MPI_Status *status)
{
	bool sync = active && !job.config.consistent && !job.config.unlink && libcaf_function_at(pmpi_caller) == LIBCAF_SYNC_IMAGES;
	int code = coarrays.next.Waitany(n, requests, i, status);

	if (sync && code == MPI_SUCCESS && all_done(requests, n) && any_kept() && job_is_due())
		job_sync_alone();
	return code;
}

/* ---- Coarrays go ---- */

static int free_window(MPI_Win *win)
{
	bool deallocated = libcaf_function_at(pmpi_caller) == LIBCAF_DEREGISTER;
	struct coarray *c = active ? job_find(*win) : NULL;
	int code;

	/* libcaf has a barrier before this, with one image only where it deallocates. */
	if (c && !job.config.unlink && any_kept() && (owed || (!deallocated && !ending && job.images == 1)))
		job_sync();
	owed = owed && !c;
	ending = ending || (c && !deallocated);
	code = coarrays.next.Win_free(win);
	if (!c)
		return code;
	job_check_code(code);
	job_leave(c, deallocated);
	return MPI_SUCCESS;
}

/*
 * At the end, each image of libcaf sends a message to the others that it has stopped, which only
 * `sync images` receives. MPICH 4.2 aborts a program that frees a communicator with such messages.
 */
static int free_comm(MPI_Comm *comm)
{
	int found = active && *comm == job.comm, word;
	MPI_Status status;

	while (found && PMPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, *comm, &found, &status) == MPI_SUCCESS && found)
		PMPI_Recv(&word, 1, MPI_INT, status.MPI_SOURCE, status.MPI_TAG, *comm, MPI_STATUS_IGNORE);
	return coarrays.next.Comm_free(comm);
}

/* ---- The program ends itself ---- */

/* How long an image waits for others to come to their `stop`, in milliseconds: one of them may wait for what it has not done. */
#define STOP_WAIT 5000

static bool all_stop(void)
{
	MPI_Request all;
	int there = 0;

	PMPI_Ibarrier(job.stopped, &all);
	for (int ms = 0; ms < STOP_WAIT && !there; ms++) {
		PMPI_Test(&all, &there, MPI_STATUS_IGNORE);
		if (!there)
			nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	}
	return there;
}

/*
 * A launcher may lose what MPI says of it, and has the same exit status where a signal ends an image: so there is a file, with
 * the exit statuses of images that have ended themselves.
 */
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
	/* On a full disk, the file alone says less. */
	if (write(fd, line, (size_t)len) < 0)
		perror(path);
	close(fd);
}

/* For libcaf, a `stop` ends all images as an error does, but with 0: before that, they get what the end of a program has. */
static int abort_all(MPI_Comm comm, int code)
{
	report_end(code);
	if (active && code == 0 && job.comm != MPI_COMM_NULL && !job.config.unlink && all_stop())
		sync_all(true);
	return coarrays.next.Abort(comm, code);
}

/* ---- For calls of programs ---- */

bool coarray_active(void)
{
	return active;
}

void coarray_sync(void)
{
	PMPI_Barrier(job.comm == MPI_COMM_NULL ? MPI_COMM_WORLD : job.comm);
	if (active && !job.config.unlink)
		sync_all(true);
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
	if (!config_wanted())
		return;
	config_read(&job.config, &bad);
	pmpi_register(&coarrays);
}

/* ---- The way into the program ---- */

static int (*program_main)(int argc, char **argv, char **envp);

static int main_after_us(int argc, char **argv, char **envp)
{
	begin_main();
	return program_main(argc, argv, envp);
}

#pragma GCC visibility push(default)
int __libc_start_main(int (*main)(int, char **, char **), int argc, char **argv, void (*start)(void), void (*stop)(void),
		      void (*rtld_fini)(void), void *stack_end);
#pragma GCC visibility pop

int __libc_start_main(int (*main)(int, char **, char **), int argc, char **argv, void (*start)(void), void (*stop)(void),
		      void (*rtld_fini)(void), void *stack_end)
{
	__typeof__(&__libc_start_main) next = (__typeof__(next))(uintptr_t)dlsym(RTLD_NEXT, "__libc_start_main");

	program_main = main;
	return next(config_wanted() ? main_after_us : main, argc, argv, start, stop, rtld_fini, stack_end);
}
