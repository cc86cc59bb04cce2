/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Frames move by mremap: one system call, atomic for every other thread, no copy. The order of the calls is
 * what keeps stores from being lost: a frame gets its final rights at home, before it can be seen; and a
 * place in the view loses its rights before its frame leaves it. Takes no lock; callers hold the segment's.
 */
#include "engine.h"

#include "log.h"
#include "sys.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PLACE (MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE)
#define MOVE (MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP)

/* Not mmap(3): a race detector that watches it takes this for a write to what the application sees there. */
static bool place(char *view, size_t len)
{
	return syscall(SYS_mmap, view, len, PROT_NONE, PLACE | MAP_FIXED, -1, 0) != -1;
}

static int rights(bool writable)
{
	return writable ? PROT_READ | PROT_WRITE : PROT_READ;
}

int engine_start(enum chain_answer (*fn)(const struct chain_fault *fault))
{
	return chain_start(fn);
}

char *engine_attach(size_t len, size_t seg_size)
{
	return sys_reserve(round_up(len, sys_page()), max_size(HUGE_PAGE, min_size(seg_size, 512 * HUGE_PAGE)));
}

bool engine_extend(char *view, size_t len, size_t more)
{
	char *end = view + round_up(len, sys_page());
	char *want = view + round_up(len + more, sys_page());

	if (want == end)
		return true;
	return mmap(end, (size_t)(want - end), PROT_NONE, PLACE | MAP_FIXED_NOREPLACE, -1, 0) == end;
}

void engine_detach(char *view, size_t len)
{
	if (len)
		munmap(view, round_up(len, sys_page()));
}

int engine_publish(char *view, char *home, size_t len, bool writable)
{
	if (!writable && mprotect(home, len, PROT_READ) < 0)
		return -errno;
	if (mremap(home, len, len, MOVE, view) == MAP_FAILED) {
		int err = -errno;

		if (!writable)
			mprotect(home, len, PROT_READ | PROT_WRITE);
		return err;
	}
	return 0;
}

int engine_protect(char *view, size_t len, bool writable)
{
	return mprotect(view, len, rights(writable)) < 0 ? -errno : 0;
}

int engine_retract(char *view, char *home, size_t len, bool writable)
{
	if (mprotect(view, len, PROT_NONE) < 0)
		return -errno;
	if (mremap(view, len, len, MOVE, home) == MAP_FAILED) {
		int err = -errno;

		mprotect(view, len, rights(writable));
		return err;
	}
	/* A fresh mapping merges with the empty places around it; what mremap left behind never would. */
	place(view, len);
	mprotect(home, len, PROT_READ | PROT_WRITE);
	return 0;
}

int engine_discard(char *view, size_t len)
{
	return place(view, len) ? 0 : -errno;
}
