/* SPDX-License-Identifier: BSD-3-Clause */
#include "umrun/next_calls.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>

/* Addresses of libummap, libumalloc and liburing, of this library, and of the C library, each found
 * by a function. */
enum { SELF = 3, C_LIBRARY, OBJECTS };
static struct object { uintptr_t call, first, end; } objects[OBJECTS];

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

/* Records the addresses of a loaded object that has one of the calls. */
static int note_object(struct dl_phdr_info *info, size_t size, void *unused)
{
	uintptr_t first = UINTPTR_MAX, end = 0;

	(void)size, (void)unused;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *part = &info->dlpi_phdr[i];
		uintptr_t at = info->dlpi_addr + part->p_vaddr;

		if (part->p_type != PT_LOAD)
			continue;
		first = at < first ? at : first;
		end = at + part->p_memsz > end ? at + part->p_memsz : end;
	}
	for (int i = 0; i < OBJECTS; i++) {
		if (objects[i].call >= first && objects[i].call < end)
			objects[i] = (struct object){ objects[i].call, first, end };
	}
	return 0;
}

void next_start(void)
{
	static const char *const calls[OBJECTS] = { "ummap_open", "umalloc_create",
						    "io_uring_queue_init_params",
						    [C_LIBRARY] = "gnu_get_libc_version" };

	for (int i = 0; i < OBJECTS; i++)
		objects[i].call = i == SELF ? (uintptr_t)next_start :
				  (uintptr_t)dlsym(RTLD_DEFAULT, calls[i]);
	dl_iterate_phdr(note_object, NULL);
}

static bool is_in_object(int i, const void *address)
{
	return (uintptr_t)address - objects[i].first < objects[i].end - objects[i].first;
}

bool next_is_library(const void *return_address)
{
	return is_in_object(0, return_address) || is_in_object(1, return_address) ||
	       is_in_object(2, return_address);
}

bool next_is_own(const void *return_address)
{
	return is_in_object(SELF, return_address) || next_is_library(return_address);
}

bool next_is_c(const void *return_address)
{
	return is_in_object(C_LIBRARY, return_address);
}
