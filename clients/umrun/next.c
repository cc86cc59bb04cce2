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

/* The library, what heaps are made of, and what both use. */
static struct range { uintptr_t first, end; } library[3], self, c;

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
		fprintf(stderr, "umrun: cannot find the function %s in the C library\n", name);
		abort();
	}
	__atomic_store_n(cache, call, __ATOMIC_RELAXED);
	return call;
}

/* The object that has the call, from its first to its last byte. */
struct object {
	uintptr_t call, first, end;
};

static int look_at(struct dl_phdr_info *info, size_t size, void *found)
{
	struct object *object = found, here = { object->call, UINTPTR_MAX, 0 };

	(void)size;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *part = &info->dlpi_phdr[i];
		uintptr_t at = info->dlpi_addr + part->p_vaddr;

		if (part->p_type != PT_LOAD)
			continue;
		here.first = at < here.first ? at : here.first;
		here.end = at + part->p_memsz > here.end ? at + part->p_memsz : here.end;
	}
	if (here.call < here.first || here.call >= here.end)
		return 0;
	*object = here;
	return 1;
}

static struct range object_of(const void *call)
{
	struct object object = { .call = (uintptr_t)call };

	return object.call && dl_iterate_phdr(look_at, &object) ? (struct range){ object.first, object.end } : (struct range){ 0 };
}

void next_start(void)
{
	static const char *const calls[] = { "ummap_open", "umalloc_create", "io_uring_queue_init_params" };

	for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++)
		library[i] = object_of(dlsym(RTLD_DEFAULT, calls[i]));
	self = object_of((const void *)(uintptr_t)next_start);
	c = object_of(dlsym(RTLD_DEFAULT, "gnu_get_libc_version"));
}

static bool is_in(const struct range *range, const void *address)
{
	return (uintptr_t)address - range->first < range->end - range->first;
}

bool next_is_library(const void *return_address)
{
	for (size_t i = 0; i < sizeof(library) / sizeof(*library); i++) {
		if (is_in(&library[i], return_address))
			return true;
	}
	return false;
}

bool next_is_own(const void *return_address)
{
	return is_in(&self, return_address) || next_is_library(return_address);
}

bool next_is_c(const void *return_address)
{
	return is_in(&c, return_address);
}
