/* SPDX-License-Identifier: BSD-3-Clause */
#include "program.h"

#include "common/memory_calls.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

/* Maximum depth of interpreters that are scripts themselves, as in Linux. */
#define MAX_INTERPRETERS 5

/* The bytes of a program's file. */
struct image {
	const char *bytes;
	size_t size;
	struct stat st;
};

static bool map_image(const char *path, struct image *image)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	void *bytes = MAP_FAILED;

	if (fd >= 0 && fstat(fd, &image->st) == 0 && S_ISREG(image->st.st_mode) &&
	    image->st.st_size >= (off_t)sizeof(ElfW(Ehdr)))
		bytes = mmap(NULL, (size_t)image->st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (fd >= 0)
		close(fd);
	if (bytes == MAP_FAILED)
		return false;
	image->bytes = bytes;
	image->size = (size_t)image->st.st_size;
	return true;
}

static void warn(const char *path, const char *reason)
{
	fprintf(stderr,
		"%s: cannot load the library into '%s': %s. Its mappings stay with the kernel.\n",
		program_invocation_short_name, path, reason);
}

/* Whether a note of the given name is among the program's segments. */
static bool has_note(const struct image *image, const ElfW(Phdr) *part, const char *name)
{
	size_t at = part->p_offset, end = part->p_offset + part->p_filesz, len = strlen(name) + 1;

	while (end <= image->size && at + sizeof(ElfW(Nhdr)) + len <= end) {
		const ElfW(Nhdr) *note = (const void *)(image->bytes + at);

		if (note->n_namesz == len && memcmp(note + 1, name, len) == 0)
			return true;
		at += sizeof(*note) + (((size_t)note->n_namesz + 3) & ~(size_t)3) +
		      (((size_t)note->n_descsz + 3) & ~(size_t)3);
	}
	return false;
}

static void check_elf(const char *path, const struct image *image)
{
	const ElfW(Ehdr) *header = (const void *)image->bytes;
	const ElfW(Phdr) *parts = (const void *)(image->bytes + header->e_phoff);
	bool has_interpreter = false, is_go = false;

	if (header->e_ident[EI_CLASS] != (sizeof(void *) == 8 ? ELFCLASS64 : ELFCLASS32)) {
		warn(path, "it is for another kind of processor than the library");
		return;
	}
	if (header->e_phoff % sizeof(void *) || header->e_phoff > image->size ||
	    header->e_phnum > (image->size - header->e_phoff) / sizeof(*parts))
		return;
	for (unsigned i = 0; i < header->e_phnum; i++) {
		has_interpreter |= parts[i].p_type == PT_INTERP;
		is_go |= parts[i].p_type == PT_NOTE && has_note(image, &parts[i], "Go");
	}
	if (!has_interpreter)
		warn(path, "it is statically linked. Link it dynamically");
	else if (is_go)
		warn(path, "it is written in Go, whose runtime makes its system calls without the "
			   "C library");
}

/* The dynamic linker ignores LD_PRELOAD in programs that gain privileges. */
static bool gains_privileges(const char *path, const struct stat *st)
{
	bool has_capabilities = getxattr(path, "security.capability", NULL, 0) > 0;

	return (st->st_mode & S_ISUID && st->st_uid != getuid()) ||
	       ((st->st_mode & (S_ISGID | S_IXGRP)) == (S_ISGID | S_IXGRP) &&
		st->st_gid != getgid()) ||
	       (has_capabilities && getuid() != 0);
}

/* Finds the interpreter of a script; false: the file is not a script. */
static bool find_interpreter(const struct image *image, char interpreter[PATH_MAX])
{
	const char *at = image->bytes + 2,
		   *end = image->bytes + (image->size < PATH_MAX ? image->size : PATH_MAX);
	size_t len;

	if (memcmp(image->bytes, "#!", 2) != 0)
		return false;
	while (at < end && (*at == ' ' || *at == '\t'))
		at++;
	for (len = 0; at + len < end && !strchr(" \t\n", at[len]); len++)
		interpreter[len] = at[len];
	interpreter[len] = '\0';
	return len > 0;
}

static void check_file(const char *path, int depth)
{
	char interpreter[PATH_MAX];
	struct image image;

	if (!map_image(path, &image))
		return;
	if (memcmp(image.bytes, ELFMAG, SELFMAG) == 0) {
		if (gains_privileges(path, &image.st))
			warn(path, "it gains privileges when it starts (set-user-ID, set-group-ID "
				   "or capabilities)");
		else
			check_elf(path, &image);
	} else if (depth < MAX_INTERPRETERS && find_interpreter(&image, interpreter)) {
		check_file(interpreter, depth + 1);
	}
	raw_munmap((void *)(uintptr_t)image.bytes, image.size);
}

void program_check(const char *name)
{
	const char *folders = getenv("PATH"), *end;
	char path[PATH_MAX];

	if (strchr(name, '/')) {
		check_file(name, 0);
		return;
	}
	for (folders = folders ? folders : "/bin:/usr/bin"; folders;
	     folders = *end ? end + 1 : NULL) {
		end = strchrnul(folders, ':');
		snprintf(path, sizeof(path), "%.*s%s%s", (int)(end - folders), folders,
			 end > folders ? "/" : "", name);
		if (access(path, X_OK) == 0) {
			check_file(path, 0);
			return;
		}
	}
}
