/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A library to preload that makes the kernel look older than Linux 6.8: userfaultfd does not offer
 * UFFDIO_MOVE, and refuses it. It replaces ioctl(3) of the C library, which it calls.
 */
#include <dlfcn.h>
#include <errno.h>
#include <linux/userfaultfd.h>
#include <stdarg.h>
#include <sys/ioctl.h>

#define FEATURE_MOVE (1 << 16) /* UFFD_FEATURE_MOVE of Linux 6.8 */
#define REQUEST_MOVE 0xc028aa05 /* UFFDIO_MOVE */

static int (*next_ioctl)(int, unsigned long, ...);

__attribute__((constructor)) static void find_next(void)
{
	next_ioctl = (int (*)(int, unsigned long, ...))dlsym(RTLD_NEXT, "ioctl");
}

static int call_next(int fd, unsigned long request, void *arg)
{
	if (!next_ioctl)
		find_next();
	return next_ioctl(fd, request, arg);
}

static int ask_api(int fd, struct uffdio_api *api)
{
	int result;

	if (api->features & FEATURE_MOVE) {
		errno = EINVAL;
		return -1;
	}
	result = call_next(fd, UFFDIO_API, api);
	if (result == 0)
		api->features &= ~(__u64)FEATURE_MOVE;
	return result;
}

#ifdef __GLIBC__
typedef unsigned long request_type;
#else
typedef int request_type;
#endif

int ioctl(int fd, request_type request, ...)
{
	va_list args;
	void *arg;

	va_start(args, request);
	arg = va_arg(args, void *);
	va_end(args);
	if ((unsigned int)request == UFFDIO_API)
		return ask_api(fd, arg);
	if ((unsigned int)request == REQUEST_MOVE) {
		errno = EINVAL;
		return -1;
	}
	return call_next(fd, (unsigned long)request, arg);
}
