/* SPDX-License-Identifier: BSD-3-Clause */
/* What is left to the kernel's mmap: windows of the engine `kernel`, and shared ones. Takes no lock. */
#include "window/kernel.h"

#include "base/memory_calls.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static uint64_t page(void)
{
	return (uint64_t)sysconf(_SC_PAGESIZE);
}

void kernel_check(const struct hints *h, struct error *e)
{
	if (h->factor != 0 || *h->driver || *h->policy || h->segsize || h->syncfreq != SYNC_NEVER ||
	    h->on_full != UMMAP_FULL_DEFAULT)
		error_set(e, MPI_ERR_INFO_VALUE, "storage_alloc_factor, _driver, _policy, _segsize, _syncfreq and _on_full "
			  "have no meaning for a window that the kernel maps: leave them out");
}

void kernel_make_room(int fd, uint64_t end, struct error *e)
{
	struct stat st;
	int err;

	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return;
	err = posix_fallocate(fd, 0, (off_t)end);
	if (err == EOPNOTSUPP && (uint64_t)st.st_size < end)
		err = ftruncate(fd, (off_t)end) < 0 ? errno : 0;
	if (err)
		error_errno(e, err, "there is no room for %llu bytes of the window in its file: %s",
			    (unsigned long long)end, strerror(err));
}

char *kernel_map(int fd, const struct hints *h, size_t len, struct error *e)
{
	size_t head = h->offset % page();
	char *p = mmap(NULL, head + len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)(h->offset - head));

	if (p != MAP_FAILED)
		return p + head;
	error_errno(e, errno, "%s cannot be mapped: %s", h->filename, strerror(errno));
	return NULL;
}

void kernel_unmap(char *at, size_t len, const struct hints *h)
{
	size_t head = h->offset % page();

	hooked_munmap(at - head, head + len);
}

void kernel_sync(char *at, size_t len, const struct hints *h, struct error *e)
{
	size_t head = (uintptr_t)at % page();

	if (len && msync(at - head, head + len, MS_SYNC) < 0)
		error_errno(e, errno, "%s cannot be written: %s", h->filename, strerror(errno));
}
