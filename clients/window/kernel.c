/* SPDX-License-Identifier: BSD-3-Clause */
/* Files that mmap(2) maps, for windows with the engine `kernel` and for shared windows. Takes no
 * lock. */
#include "window/kernel.h"

#include "common/memory_calls.h"
#include "common/process.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static uint64_t page(void)
{
	return (uint64_t)sysconf(_SC_PAGESIZE);
}

void kernel_check(const struct hints *h, struct error *e)
{
	const struct {
		const char *name;
		bool there;
	} others[] = {
		{ "factor", h->factor != 0 },
		{ "driver", *h->driver },
		{ "policy", *h->policy },
		{ "tiers", *h->tiers },
		{ "segsize", h->segsize },
		{ "syncfreq", h->syncfreq != SYNC_NEVER },
		{ "on_full", h->on_full != UMMAP_FULL_DEFAULT },
	};

	for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++) {
		if (others[i].there)
			error_set(e, MPI_ERR_INFO_VALUE,
				  "cannot use storage_alloc_%s for '%.80s': the kernel maps this "
				  "window. Try to leave the hint out",
				  others[i].name, h->filename);
	}
}

void kernel_make_room(int fd, const char *name, uint64_t end, struct error *e)
{
	struct stat st;
	int err;

	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return;
	err = posix_fallocate(fd, 0, (off_t)end);
	if (err == EOPNOTSUPP && (uint64_t)st.st_size < end)
		err = ftruncate(fd, (off_t)end) < 0 ? errno : 0;
	if (err)
		error_errno(e, err, "cannot make '%s' %llu bytes long: %m", name,
			    (unsigned long long)end);
}

char *kernel_map(int fd, const struct hints *h, size_t len, struct error *e)
{
	size_t head = h->offset % page();
	char *p = mmap(NULL, head + len, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
		       (off_t)(h->offset - head));

	if (p != MAP_FAILED)
		return p + head;
	error_errno(e, errno, "cannot map '%s': %m", h->filename);
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
		error_errno(e, errno, "cannot sync '%s': %m", h->filename);
}

/* ---- Ranges of bytes in files, whose identity is the same in all processes of a machine ---- */

void extent_file(struct extent *extent, int fd, uint64_t from, size_t size)
{
	struct stat st;

	if (fstat(fd, &st) < 0 || size == 0)
		return;
	extent->machine = process_machine();
	extent->dev = S_ISBLK(st.st_mode) ? st.st_rdev : st.st_dev;
	extent->ino = S_ISBLK(st.st_mode) ? 0 : st.st_ino;
	extent->from = from;
	extent->to = from + size;
}

bool extent_overlaps(const struct extent *a, const struct extent *b)
{
	return a->machine == b->machine && a->dev == b->dev && a->ino == b->ino &&
	       a->from < b->to && b->from < a->to;
}
