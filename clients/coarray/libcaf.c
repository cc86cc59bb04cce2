/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * libcaf's functions are found by their symbols: in the program's file, because Debian's `caf`
 * links libcaf statically, and otherwise in the shared libcaf. The return address of a call of MPI
 * tells which of them has made it. Calls of the register function of a shared libcaf pass here, so
 * the type of the coarray is known.
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

#define FUNCTIONS 4 /* enum libcaf_function */

static const char *const names[FUNCTIONS] = {
	NULL, "_gfortran_caf_register", "_gfortran_caf_deregister", "_gfortran_caf_sync_images",
};
static struct {
	uintptr_t begin, end;
} functions[FUNCTIONS];

/* ---- Symbols ---- */

/* An ELF file in memory. */
struct elf_file {
	const char *at;
	size_t size;
};

static bool has_range(const struct elf_file *file, uint64_t at, uint64_t size)
{
	return at <= file->size && size <= file->size - at;
}

static void add_symbol(const char *name, const ElfW(Sym) *symbol, uintptr_t base)
{
	for (int i = 1; i < FUNCTIONS; i++) {
		if (strcmp(name, names[i]) == 0) {
			functions[i].begin = base + symbol->st_value;
			functions[i].end = functions[i].begin + symbol->st_size;
		}
	}
}

static void add_symbols(const struct elf_file *file, const ElfW(Shdr) *table,
			const ElfW(Shdr) *strings, uintptr_t base)
{
	const ElfW(Sym) *symbol = (const void *)(file->at + table->sh_offset);

	if (!has_range(file, table->sh_offset, table->sh_size) ||
	    !has_range(file, strings->sh_offset, strings->sh_size))
		return;
	for (size_t i = 0; i < table->sh_size / sizeof(*symbol); i++, symbol++) {
		if (ELF64_ST_TYPE(symbol->st_info) == STT_FUNC && symbol->st_shndx != SHN_UNDEF &&
		    symbol->st_name < strings->sh_size)
			add_symbol(file->at + strings->sh_offset + symbol->st_name, symbol, base);
	}
}

/* Returns whether the file has a section of this kind. */
static bool read_symbols(const struct elf_file *file, unsigned kind, uintptr_t base)
{
	const ElfW(Ehdr) *head = (const void *)file->at;
	const ElfW(Shdr) *sections;

	if (file->size < sizeof(*head) || memcmp(head->e_ident, ELFMAG, SELFMAG) != 0 ||
	    !has_range(file, head->e_shoff, (uint64_t)head->e_shnum * sizeof(*sections)))
		return false;
	sections = (const void *)(file->at + head->e_shoff);
	for (int i = 0; i < head->e_shnum; i++) {
		if (sections[i].sh_type == kind && sections[i].sh_link < head->e_shnum) {
			add_symbols(file, &sections[i], &sections[sections[i].sh_link], base);
			return true;
		}
	}
	return false;
}

static bool read_file(const char *path, unsigned kind, uintptr_t base)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct elf_file file;
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

/* The dynamic linker lists the program first. */
static int get_first_base(struct dl_phdr_info *info, size_t size, void *base)
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

	dl_iterate_phdr(get_first_base, &base);
	symbols = read_file("/proc/self/exe", SHT_SYMTAB, base);
	if (functions[LIBCAF_REGISTER].begin)
		return LIBCAF_PRESENT;
	shared = dlsym(RTLD_NEXT, names[LIBCAF_REGISTER]);
	if (shared && dladdr(shared, &info))
		read_file(info.dli_fname, SHT_DYNSYM, (uintptr_t)info.dli_fbase);
	if (functions[LIBCAF_REGISTER].begin)
		return LIBCAF_PRESENT;
	return symbols || !dlsym(RTLD_DEFAULT, "_gfortran_set_args") ? LIBCAF_ABSENT
								     : LIBCAF_HIDDEN;
}

enum libcaf_function libcaf_function_at(const void *address)
{
	for (int i = 1; i < FUNCTIONS; i++) {
		if ((uintptr_t)address >= functions[i].begin &&
		    (uintptr_t)address < functions[i].end)
			return (enum libcaf_function)i;
	}
	return LIBCAF_NONE;
}

/* ---- Types ---- */

/* The beginning of gfortran's descriptor of an array. */
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
void _gfortran_caf_register(size_t size, int kind, void **token, struct descriptor *d, int *stat,
			    char *text, size_t len);
#pragma GCC visibility pop

void _gfortran_caf_register(size_t size, int kind, void **token, struct descriptor *d, int *stat,
			    char *text, size_t len)
{
	static const char *const words[] = { "",	"integer", "logical",  "real",
					     "complex", "derived", "character" };
	__typeof__(&_gfortran_caf_register) next =
		(__typeof__(next))(uintptr_t)dlsym(RTLD_NEXT, names[LIBCAF_REGISTER]);
	size_t number = d ? (size_t)d->element.type : 0;

	if (number > 0 && number < sizeof(words) / sizeof(*words))
		snprintf(type, sizeof(type), "%s %zu", words[number], d->element.size);
	next(size, kind, token, d, stat, text, len);
	*type = '\0';
}
