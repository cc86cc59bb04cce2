/* SPDX-License-Identifier: BSD-3-Clause */
#include "umrun/next_calls.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>

/* Addresses of libummap, libumalloc and liburing, of this library, and of the C library. */
static struct range { uintptr_t first, end; } library[3], self, c_library;

void *_Atomic next_found[CALL_COUNT];

void *next_find(int number)
{
	static const char *const names[] = CALL_NAMES;
	void *found = dlsym(RTLD_NEXT, names[number]);

	if (!found) {
		fprintf(stderr, "umrun: cannot find the function %s in the C library\n",
			names[number]);
		abort();
	}
	next_found[number] = found;
	return found;
}

void *map_private(size_t len)
{
	return kernel_mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

/* The loaded object that contains a function, from its first to its last byte. */
struct object {
	uintptr_t call, first, end;
};

static int find_object(struct dl_phdr_info *info, size_t size, void *found)
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

	if (!object.call || !dl_iterate_phdr(find_object, &object))
		return (struct range){ 0 };
	return (struct range){ object.first, object.end };
}

void next_start(void)
{
	static const char *const calls[] = { "ummap_open", "umalloc_create",
					     "io_uring_queue_init_params" };

	for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++)
		library[i] = object_of(dlsym(RTLD_DEFAULT, calls[i]));
	self = object_of((const void *)(uintptr_t)next_start);
	c_library = object_of(dlsym(RTLD_DEFAULT, "gnu_get_libc_version"));
}

static bool is_in_range(const struct range *range, const void *address)
{
	return (uintptr_t)address - range->first < range->end - range->first;
}

bool next_is_library(const void *return_address)
{
	for (size_t i = 0; i < sizeof(library) / sizeof(*library); i++) {
		if (is_in_range(&library[i], return_address))
			return true;
	}
	return false;
}

bool next_is_own(const void *return_address)
{
	return is_in_range(&self, return_address) || next_is_library(return_address);
}

bool next_is_c(const void *return_address)
{
	return is_in_range(&c_library, return_address);
}
