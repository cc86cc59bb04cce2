/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The one place that chooses the engine. Where the ranks of a job are all on one machine, SIGSEGV: its memory is the only
 * one that the library pages and several processes can map, so ranks reach each other's without MPI, 40 times as fast as
 * the kernel would copy for them. Transports get EFAULT for what is absent then, if they have the kernel copy; so they must
 * not. Elsewhere userfaultfd, where it may see accesses by the kernel and can move pages (Linux 6.8), for then transports may
 * do as they like. The engine is guessed before MPI_Init, without starting the library, and known at the first window.
 */
#include "transport/engine.h"

#include "pmpi/pmpi.h"

#include <errno.h>
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

static bool user_wants(const char *engine)
{
	const char *env = secure_getenv("UMMAP_ENGINE");

	return env && strcmp(env, engine) == 0;
}

/* A descriptor of userfaultfd that reports accesses by the kernel; negative: there is none. */
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

	if (user_wants("segv") || user_wants("sigbus"))
		return false;
	if (!user_wants("uffd") && (!local || strcmp(local, "false") != 0) && transport_is_local())
		return false;
	fd = open_userfaultfd();
	if (fd < 0)
		return false;
	can = can_move_pages(fd);
	close(fd);
	return can;
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

/* What the user has set may keep transports from windows of segv. */
static bool suits_segv(void)
{
	struct error e = { 0 };

	transport_check(ENGINE_SEGV, &e);
	return e.class == MPI_SUCCESS;
}

static enum engine find_engine(bool reached)
{
	if (user_wants("segv"))
		return ENGINE_SEGV;
	if (user_wants("uffd"))
		return ENGINE_UFFD;
	if (user_wants("sigbus"))
		return ENGINE_SIGBUS;
	if (reached && transport_is_local() && suits_segv())
		return ENGINE_SEGV;
	pthread_once(&once, try_uffd);
	return uffd_works ? ENGINE_UFFD : ENGINE_SEGV;
}

enum engine engine_choose(enum engine wanted, bool reached, struct ummap_attr *attr)
{
	enum engine engine = wanted == ENGINE_AUTO ? find_engine(reached) : wanted;

	if (engine == ENGINE_UFFD)
		attr_uffd(attr);
	else
		attr->engine = engine == ENGINE_SIGBUS ? UMMAP_ENGINE_SIGBUS : UMMAP_ENGINE_SEGV;
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
