/* SPDX-License-Identifier: BSD-3-Clause */
#include "umrun/next.h"

#include <dlfcn.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <ummap.h>

static uintptr_t library, library_end;

void *kernel_mmap(void *addr, size_t len, int prot, int flags, int fd, off_t off)
{
	return (void *)syscall(SYS_mmap, addr, len, prot, flags, fd, off);
}

int kernel_munmap(void *addr, size_t len)
{
	return (int)syscall(SYS_munmap, addr, len);
}

void *next_call(void **cache, const char *name)
{
	void *call = __atomic_load_n(cache, __ATOMIC_RELAXED);

	if (call)
		return call;
	call = dlsym(RTLD_NEXT, name);
	if (!call) {
		fprintf(stderr, "umrun: the C library has no %s\n", name);
		abort();
	}
	__atomic_store_n(cache, call, __ATOMIC_RELAXED);
	return call;
}

/* The object that has the library's calls, from its first to its last byte. */
static int look_at(struct dl_phdr_info *info, size_t size, void *call)
{
	uintptr_t first = UINTPTR_MAX, end = 0;

	(void)size;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *part = &info->dlpi_phdr[i];
		uintptr_t at = info->dlpi_addr + part->p_vaddr;

		if (part->p_type != PT_LOAD)
			continue;
		first = at < first ? at : first;
		end = at + part->p_memsz > end ? at + part->p_memsz : end;
	}
	if ((uintptr_t)call < first || (uintptr_t)call >= end)
		return 0;
	library = first;
	library_end = end;
	return 1;
}

void next_start(void)
{
	dl_iterate_phdr(look_at, dlsym(RTLD_DEFAULT, "ummap_open"));
}

bool next_is_library(const void *return_address)
{
	return (uintptr_t)return_address - library < library_end - library;
}
