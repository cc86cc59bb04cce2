/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * libcaf's functions are found by their symbols: of the program's file, for Debian's `caf` links libcaf statically, and
 * otherwise of the shared libcaf. A call of MPI is known to come from one of them by its return address. Where libcaf is
 * shared, its register function passes here, which tells the coarray's type.
 */
#include "coarray/libcaf.h"

#include "common/memory_calls.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define FUNCTIONS 4

static const char *const names[FUNCTIONS] = { NULL, "_gfortran_caf_register", "_gfortran_caf_deregister",
					      "_gfortran_caf_sync_images" };
static struct {
	uintptr_t from, to;
} functions[FUNCTIONS];

/* ---- Symbols ---- */

/* An object file as it is on disk. */
struct image {
	const char *at;
	size_t size;
};

static bool has(const struct image *file, uint64_t at, uint64_t size)
{
	return at <= file->size && size <= file->size - at;
}

static void take_symbol(const char *name, const ElfW(Sym) *symbol, uintptr_t base)
{
	for (int i = 1; i < FUNCTIONS; i++) {
		if (strcmp(name, names[i]) == 0) {
			functions[i].from = base + symbol->st_value;
			functions[i].to = functions[i].from + symbol->st_size;
		}
	}
}

static void take_symbols(const struct image *file, const ElfW(Shdr) *table, const ElfW(Shdr) *strings, uintptr_t base)
{
	if (!has(file, table->sh_offset, table->sh_size) || !has(file, strings->sh_offset, strings->sh_size))
		return;
	for (size_t i = 0; i < table->sh_size / sizeof(ElfW(Sym)); i++) {
		const ElfW(Sym) *symbol = (const ElfW(Sym) *)(const void *)(file->at + table->sh_offset) + i;

		if (ELF64_ST_TYPE(symbol->st_info) == STT_FUNC && symbol->st_shndx != SHN_UNDEF &&
		    symbol->st_name < strings->sh_size)
			take_symbol(file->at + strings->sh_offset + symbol->st_name, symbol, base);
	}
}

/* Returns whether there are symbols of that kind at all. */
static bool read_symbols(const struct image *file, unsigned kind, uintptr_t base)
{
	const ElfW(Ehdr) *head = (const void *)file->at;
	const ElfW(Shdr) *sections;

	if (file->size < sizeof(*head) || memcmp(head->e_ident, ELFMAG, SELFMAG) != 0 ||
	    !has(file, head->e_shoff, (uint64_t)head->e_shnum * sizeof(*sections)))
		return false;
	sections = (const void *)(file->at + head->e_shoff);
	for (int i = 0; i < head->e_shnum; i++) {
		if (sections[i].sh_type == kind && sections[i].sh_link < head->e_shnum) {
			take_symbols(file, &sections[i], &sections[sections[i].sh_link], base);
			return true;
		}
	}
	return false;
}

static bool read_file(const char *path, unsigned kind, uintptr_t base)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct image file;
	struct stat st;
	bool found;

	if (fd < 0)
		return false;
	file.size = fstat(fd, &st) == 0 ? (size_t)st.st_size : 0;
	file.at = file.size ? mmap(NULL, file.size, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
	close(fd);
	if (file.at == MAP_FAILED)
		return false;
	found = read_symbols(&file, kind, base);
	raw_munmap((void *)(uintptr_t)file.at, file.size);
	return found;
}

/* The program's own is the first that the linker has. */
static int first_base(struct dl_phdr_info *info, size_t size, void *base)
{
	(void)size;
	*(uintptr_t *)base = info->dlpi_addr;
	return 1;
}

enum libcaf_found libcaf_find(void)
{
	uintptr_t base = 0;
	bool symbols;
	void *shared;
	Dl_info info;

	dl_iterate_phdr(first_base, &base);
	symbols = read_file("/proc/self/exe", SHT_SYMTAB, base);
	if (functions[LIBCAF_REGISTER].from)
		return LIBCAF_PRESENT;
	shared = dlsym(RTLD_NEXT, names[LIBCAF_REGISTER]);
	if (shared && dladdr(shared, &info))
		read_file(info.dli_fname, SHT_DYNSYM, (uintptr_t)info.dli_fbase);
	if (functions[LIBCAF_REGISTER].from)
		return LIBCAF_PRESENT;
	return symbols || !dlsym(RTLD_DEFAULT, "_gfortran_set_args") ? LIBCAF_ABSENT : LIBCAF_HIDDEN;
}

enum libcaf_function libcaf_function_at(const void *address)
{
	for (int i = 1; i < FUNCTIONS; i++) {
		if ((uintptr_t)address >= functions[i].from && (uintptr_t)address < functions[i].to)
			return (enum libcaf_function)i;
	}
	return LIBCAF_NONE;
}

/* ---- Types ---- */

/* How gfortran describes an array: as much of it as counts here. */
struct descriptor {
	void *base;
	size_t offset;
	struct {
		size_t size;
		int version;
		signed char rank, type;
		short attribute;
	} element;
};

static _Thread_local char type[32];

const char *libcaf_type(void)
{
	return type;
}

#pragma GCC visibility push(default)
void _gfortran_caf_register(size_t size, int kind, void **token, struct descriptor *d, int *stat, char *text, size_t len);
#pragma GCC visibility pop

void _gfortran_caf_register(size_t size, int kind, void **token, struct descriptor *d, int *stat, char *text, size_t len)
{
	static const char *const words[] = { "", "integer", "logical", "real", "complex", "derived", "character" };
	__typeof__(&_gfortran_caf_register) next = (__typeof__(next))(uintptr_t)dlsym(RTLD_NEXT, names[LIBCAF_REGISTER]);
	size_t number = d ? (size_t)d->element.type : 0;

	if (number > 0 && number < sizeof(words) / sizeof(*words))
		snprintf(type, sizeof(type), "%s %zu", words[number], d->element.size);
	next(size, kind, token, d, stat, text, len);
	*type = '\0';
}
