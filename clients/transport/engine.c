/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The one place that chooses the engine: userfaultfd where it may see accesses by the kernel, for then transports may do
 * as they like. Otherwise SIGSEGV, with which they get EFAULT for what is absent if they have the kernel copy; so they
 * must not. Which it will be is guessed before MPI_Init, without starting the library, and known at the first window.
 */
#include "transport/engine.h"

#include "pmpi/pmpi.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct pmpi_feature beginnings;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool uffd_works;

static bool user_wants(const char *engine)
{
	const char *env = secure_getenv("UMMAP_ENGINE");

	return env && strcmp(env, engine) == 0;
}

bool engine_expects_uffd(void)
{
	int fd;

	if (user_wants("segv"))
		return false;
	fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		fd = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return false;
	close(fd);
	return true;
}

static void attr_uffd(struct ummap_attr *attr)
{
	attr->engine = UMMAP_ENGINE_UFFD;
	attr->flags |= UMMAP_KERNEL;
}

static void try_uffd(void)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	void *addr;

	attr_uffd(&attr);
	uffd_works = ummap_open("null:4096", page, 0, PROT_READ | PROT_WRITE, &attr, &addr) == 0 && umunmap(addr, 0) == 0;
}

enum engine engine_choose(enum engine wanted, struct ummap_attr *attr)
{
	enum engine engine = wanted;

	if (engine == ENGINE_AUTO && user_wants("segv"))
		engine = ENGINE_SEGV;
	if (engine == ENGINE_AUTO && user_wants("uffd"))
		engine = ENGINE_UFFD;
	if (engine == ENGINE_AUTO) {
		pthread_once(&once, try_uffd);
		engine = uffd_works ? ENGINE_UFFD : ENGINE_SEGV;
	}
	if (engine == ENGINE_UFFD)
		attr_uffd(attr);
	else
		attr->engine = UMMAP_ENGINE_SEGV;
	return engine;
}

void engine_default(const char *name, const char *value)
{
	setenv(name, value, 0);
}

/* ---- The calls ---- */

static int init(int *argc, char ***argv)
{
	transport_prepare(MPI_THREAD_SINGLE);
	return beginnings.next.Init(argc, argv);
}

static int init_thread(int *argc, char ***argv, int required, int *provided)
{
	transport_prepare(required);
	return beginnings.next.Init_thread(argc, argv, required, provided);
}

static struct pmpi_feature beginnings = { .place = PMPI_LAST, .take = { .Init = init, .Init_thread = init_thread } };
PMPI_FEATURE(beginnings)
