/* SPDX-License-Identifier: BSD-3-Clause */
/* Tells, without the library, whether this kernel supports the engine uffd. */
#ifndef TESTS_UFFD_H
#define TESTS_UFFD_H

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <stdbool.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define UFFD_USER_MODE 1 /* UFFD_USER_MODE_ONLY of Linux 5.11 */
#define UFFD_MOVES (1 << 16) /* UFFD_FEATURE_MOVE of Linux 6.8 */
#define NO_UFFD "the engine uffd needs UFFDIO_MOVE, which this kernel has not"

static inline bool has_uffd(void)
{
	struct uffdio_api api = { .api = UFFD_API };
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE);
	bool moves = fd >= 0 && ioctl(fd, UFFDIO_API, &api) == 0 && (api.features & UFFD_MOVES);

	if (fd >= 0)
		close(fd);
	return moves;
}

#endif
