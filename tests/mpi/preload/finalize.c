/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * finalize - preloaded into programs of MPICH among machines. MPI_Finalize of MPICH 4.0 closes its connections, which takes
 * both ends, and then waits for all processes in a read of the process manager's descriptor, where it lets UCX do nothing:
 * whoever closes last may wait for ever, with libummap or without. Here UCX goes on until there is something to read.
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
static _Thread_local bool within; /* what goes on may read, too */

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
