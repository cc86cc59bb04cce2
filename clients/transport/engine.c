/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The choice of the engine of window memory. If all ranks of a job are on one machine, it is segv:
 * the library can page its memory and several processes can map it, so ranks access each other's
 * memory without MPI, 40 times as fast as the kernel would copy it. MPI's transports must then not
 * let the kernel copy, because it would get EFAULT from absent segments. Elsewhere, the engine is
 * uffd if userfaultfd(2) detects the kernel's accesses and moves pages (Linux 6.8), because then
 * transports may do as they like. Before MPI_Init, the engine is guessed without starting the
 * library; at the first window, it is known.
 */
#include "transport/engine.h"

#include "pmpi/pmpi.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef USERFAULTFD_IOC_NEW /* Linux 6.1 */
#define USERFAULTFD_IOC_NEW _IO(0xAA, 0x00)
#endif
#ifndef UFFD_FEATURE_MOVE /* Linux 6.8 */
#define UFFD_FEATURE_MOVE (1 << 16)
#endif

static struct pmpi_feature beginnings;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool uffd_works;

static bool is_set_by_user(const char *engine)
{
	const char *env = secure_getenv("UMMAP_ENGINE");

	return env && strcmp(env, engine) == 0;
}

/* Opens a userfaultfd that detects accesses of the kernel; negative: it cannot be opened. */
static int open_userfaultfd(void)
{
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK), device;

	if (fd >= 0)
		return fd;
	device = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
	if (device < 0)
		return -1;
	fd = ioctl(device, USERFAULTFD_IOC_NEW, O_CLOEXEC | O_NONBLOCK);
	close(device);
	return fd;
}

/* Whether the library accepts this kernel for UMMAP_KERNEL. */
static bool can_move_pages(int fd)
{
	struct uffdio_api api = { .api = UFFD_API };

	return ioctl(fd, UFFDIO_API, &api) == 0 && (api.features & UFFD_FEATURE_MOVE);
}

bool engine_expects_uffd(void)
{
	const char *local = secure_getenv("UMMAP_MPI_LOCAL");
	bool can;
	int fd;

	if (is_set_by_user("segv") || is_set_by_user("sigbus"))
		return false;
	if (!is_set_by_user("uffd") && (!local || strcmp(local, "false") != 0) &&
	    transport_is_local())
		return false;
	fd = open_userfaultfd();
	if (fd < 0)
		return false;
	can = can_move_pages(fd);
	close(fd);
	return can;
}

static void set_uffd(struct ummap_attr *attr)
{
	attr->engine = UMMAP_ENGINE_UFFD;
	attr->flags |= UMMAP_KERNEL;
}

static void test_uffd(void)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	void *addr;

	set_uffd(&attr);
	uffd_works = ummap_open("null:4096", page, 0, PROT_READ | PROT_WRITE, &attr, &addr) == 0 &&
		     umunmap(addr, 0) == 0;
}

/* Whether the transports that the user has chosen access windows of segv. */
static bool can_use_segv(void)
{
	struct error e = { 0 };

	transport_check(ENGINE_SEGV, &e);
	return e.class == MPI_SUCCESS;
}

static enum engine find_engine(bool reached)
{
	if (is_set_by_user("segv"))
		return ENGINE_SEGV;
	if (is_set_by_user("uffd"))
		return ENGINE_UFFD;
	if (is_set_by_user("sigbus"))
		return ENGINE_SIGBUS;
	if (reached && transport_is_local() && can_use_segv())
		return ENGINE_SEGV;
	pthread_once(&once, test_uffd);
	return uffd_works ? ENGINE_UFFD : ENGINE_SEGV;
}

enum engine engine_choose(enum engine wanted, bool reached, struct ummap_attr *attr)
{
	enum engine engine = wanted == ENGINE_AUTO ? find_engine(reached) : wanted;

	if (engine == ENGINE_UFFD)
		set_uffd(attr);
	else
		attr->engine = engine == ENGINE_SIGBUS ? UMMAP_ENGINE_SIGBUS : UMMAP_ENGINE_SEGV;
	return engine;
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

static struct pmpi_feature beginnings = {
	.place = PMPI_LAST,
	.take = { .Init = init, .Init_thread = init_thread },
};
PMPI_FEATURE(beginnings)
