/* SPDX-License-Identifier: BSD-3-Clause */
/* The name and size of the program's file are those of /proc/self/exe. The build ID is a note of
 * the loaded program. */
#include "coarray/job.h"

#include <elf.h>
#include <inttypes.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Digits of a build ID in a message. */
#define SHOWN_BUILD_DIGITS 12

/* The kernel marks the path of a file that was replaced or removed since the program started. */
static void find_name(char name[PROGRAM_NAME])
{
	static const char mark[] = " (deleted)";
	char path[1000];
	ssize_t len = readlink("/proc/self/exe", path, sizeof(path) - 1);
	char *last;

	path[len < 0 ? 0 : len] = '\0';
	if (len > (ssize_t)strlen(mark) && strcmp(path + len - strlen(mark), mark) == 0)
		path[len - (ssize_t)strlen(mark)] = '\0';
	last = strrchr(path, '/');
	snprintf(name, PROGRAM_NAME, "%.255s", last ? last + 1 : path);
}

static size_t padded(size_t len)
{
	return (len + 3) / 4 * 4;
}

static void read_notes(const char *at, size_t size, char build[PROGRAM_BUILD])
{
	while (size >= sizeof(ElfW(Nhdr))) {
		const ElfW(Nhdr) *note = (const void *)at;
		size_t len = sizeof(*note) + padded(note->n_namesz) + padded(note->n_descsz);
		const unsigned char *id =
			(const unsigned char *)at + sizeof(*note) + padded(note->n_namesz);

		if (len > size)
			return;
		if (note->n_type == NT_GNU_BUILD_ID && note->n_namesz == 4 &&
		    memcmp(at + sizeof(*note), "GNU", 4) == 0) {
			for (size_t i = 0; i < note->n_descsz && 2 * i + 2 < PROGRAM_BUILD; i++)
				sprintf(build + 2 * i, "%02x", id[i]);
			return;
		}
		at += len;
		size -= len;
	}
}

/* The linker lists the program before its libraries. */
static int find_build(struct dl_phdr_info *info, size_t size, void *build)
{
	(void)size;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		if (info->dlpi_phdr[i].p_type == PT_NOTE)
			read_notes((const char *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr),
				   info->dlpi_phdr[i].p_memsz, build);
	}
	return 1;
}

void program_find(struct program *p)
{
	struct stat st;

	*p = (struct program){ 0 };
	find_name(p->name);
	if (stat("/proc/self/exe", &st) == 0)
		p->size = (uint64_t)st.st_size;
	dl_iterate_phdr(find_build, p->build);
}

bool program_is_same(const struct program *a, const struct program *b)
{
	if (strcmp(a->name, b->name) != 0)
		return false;
	if (*a->build && *b->build)
		return strcmp(a->build, b->build) == 0;
	return !a->size || !b->size || a->size == b->size;
}

void program_describe(char text[PROGRAM_TEXT], const struct program *p)
{
	int len = snprintf(text, PROGRAM_TEXT, "\"%.30s\"", p->name);

	if (p->size)
		len += snprintf(text + len, PROGRAM_TEXT - (size_t)len, " (%" PRIu64 " bytes, ",
				p->size);
	if (p->size && *p->build)
		snprintf(text + len, PROGRAM_TEXT - (size_t)len, "build ID %.*s)",
			 SHOWN_BUILD_DIGITS, p->build);
	else if (p->size)
		snprintf(text + len, PROGRAM_TEXT - (size_t)len, "no build ID)");
}
