/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * finalize - preloaded into MPICH programs on several machines. MPI_Finalize of MPICH 4.0 closes
 * its connections, for which both ends must make progress, and then waits for all processes in
 * read(2) of the descriptor of the process manager, without progress of UCX. Therefore, the last
 * process to close may wait forever, with and without libummap. This library lets UCX make progress
 * until the descriptor can be read.
 */
#include <dlfcn.h>
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <unistd.h>

void *ucp_disconnect_nb(void *ep);
unsigned ucp_worker_progress(void *worker);
void ucp_worker_destroy(void *worker);

static unsigned (*progress)(void *worker);
static void *in_use;
static bool closing;
static _Thread_local bool within; /* a read(2) by UCX itself, which must not recurse */

void *ucp_disconnect_nb(void *ep)
{
	void *(*disconnect)(void *) = (void *(*)(void *))dlsym(RTLD_NEXT, "ucp_disconnect_nb");

	closing = true;
	return disconnect(ep);
}

unsigned ucp_worker_progress(void *worker)
{
	if (!progress)
		progress = (unsigned (*)(void *))dlsym(RTLD_NEXT, "ucp_worker_progress");
	in_use = worker;
	return progress(worker);
}

void ucp_worker_destroy(void *worker)
{
	void (*destroy)(void *) = (void (*)(void *))dlsym(RTLD_NEXT, "ucp_worker_destroy");

	closing = false;
	destroy(worker);
}

ssize_t read(int fd, void *to, size_t size)
{
	static ssize_t (*real)(int, void *, size_t);
	struct pollfd p = { .fd = fd, .events = POLLIN };

	if (!real)
		real = (ssize_t (*)(int, void *, size_t))dlsym(RTLD_NEXT, "read");
	if (!closing || !in_use || within)
		return real(fd, to, size);
	within = true;
	while (poll(&p, 1, 0) == 0)
		progress(in_use);
	within = false;
	return real(fd, to, size);
}
