/* SPDX-License-Identifier: BSD-3-Clause */
/* The memory under test, of the kind that --alloc names, and the options of the library. */
#ifndef FIELD_ALLOC_H
#define FIELD_ALLOC_H

#include <getopt.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct memory;

/* A kind of memory. Each call ends the program on errors. Calls other than open and close may be
 * NULL. */
struct alloc_kind {
	const char *name;
	bool stored;                      /* whether the memory is over a file */
	bool paged;                       /* whether the kernel's page cache has the file */
	void (*open)(struct memory *);
	void (*sync)(struct memory *);    /* makes changes durable */
	void (*chill)(struct memory *);   /* also evicts all: later accesses read the file */
	void (*advise)(struct memory *, bool random);
	void (*expect)(struct memory *, size_t off, size_t len); /* reads in the background */
	void (*close)(struct memory *);   /* drops changes that are not durable */
};

/* The options of the command line. */
struct alloc {
	const struct alloc_kind *kind;
	size_t seg;         /* segment size of the library; 0: the default */
	size_t budget;      /* bytes for each process; 0: no limit */
	int ptype;          /* UMMAP_PTYPE_* */
	const char *policy; /* name of the policy; NULL: the default */
	const char *engine; /* name of the engine; NULL: the default */
	const char *factor; /* part of mpi-storage-window that is memory; NULL: none */
	bool advise;        /* whether the library or the kernel is told the order of accesses */
};

struct memory {
	const struct alloc *alloc;
	char *base;         /* address of the memory */
	size_t size;        /* bytes of the memory */
	int fd;             /* file under the memory; -1: none */
	bool write;         /* whether the memory is written */
	bool fresh;         /* whether the memory starts as zeros, whatever the file has */
	const char *dir;    /* folder of scratch files; NULL: the memory is not scratch */
	void *own;          /* data of the kind */
};

enum {
	ALLOC_KIND = 0x1000, ALLOC_SEG, ALLOC_BUDGET, ALLOC_POLICY, ALLOC_DRIVER, ALLOC_ENGINE,
	ALLOC_MODE, ALLOC_ADVISE, ALLOC_FACTOR,
};

#define ALLOC_KNOBS                                                                                \
	{ "seg", 1, 0, ALLOC_SEG }, { "budget", 1, 0, ALLOC_BUDGET },                              \
	{ "policy", 1, 0, ALLOC_POLICY }, { "driver", 1, 0, ALLOC_DRIVER },                        \
	{ "engine", 1, 0, ALLOC_ENGINE }, { "mode", 1, 0, ALLOC_MODE }
#define ALLOC_OPTIONS { "alloc", 1, 0, ALLOC_KIND }, ALLOC_KNOBS
/* For programs that call memory_advise. */
#define ALLOC_ADVICE { "advise", 0, 0, ALLOC_ADVISE }

/* For programs whose memory may be window memory. */
#define ALLOC_PART { "factor", 1, 0, ALLOC_FACTOR }
#define ALLOC_PART_HELP \
"  --factor F       of mpi-storage-window: the part that is in memory, from 0 to 1, or auto (0)\n"

#define ALLOC_KNOBS_HELP \
"  --budget SIZE    memory for each process: limit of the library, or a memory cgroup for kinds\n" \
"                   that use the page cache\n" \
"  --seg SIZE       of the library: segment (as UMMAP_SEG_SIZE)\n" \
"  --policy NAME    of the library: fifo, lifo, plru, prnd, wiro-f or wiro-l (fifo)\n" \
"  --driver URI     of the library: as UMMAP_DRIVER, 'posix' or 'uring:?depth=64'\n" \
"  --engine NAME    of the library: auto, segv or uffd, as UMMAP_ENGINE (auto); of\n" \
"                   mpi-storage-window: also kernel\n" \
"  --mode MODE      of the library: static or dynamic, as UMMAP_MEMCONFIG (dynamic)\n"
#define ALLOC_ADVICE_HELP \
"  --advise         tell the library (umadvise) or the kernel (madvise) whether accesses are\n" \
"                   random or sequential\n"

/* Sets an option of ALLOC_OPTIONS. Returns false for other options. */
bool alloc_option(struct alloc *a, int option, const char *value);
/* Ends the program if there is no such kind. */
const struct alloc_kind *alloc_find(const char *name);
/* Returns the names of all kinds, for a help text. */
const char *alloc_names(void);
/* Limits the library's memory; must be called before the first mapping. The processes share the
 * limit as the memory group of process `leader`. */
void alloc_limit(const struct alloc *a, unsigned processes, pid_t leader);
/* Lets the machine provide the memory that a measurement touches: `bytes`, or as much as --budget
 * allows. grouped: whether a memory cgroup limits the process to that. */
void alloc_warm(const struct alloc *a, bool grouped, size_t bytes);

/* Maps a file, which stays open. fd is -1 if the kind is not stored. */
struct memory *memory_open(const struct alloc *a, int fd, size_t size, bool write, bool fresh);
/* Maps a new file in `dir`, as long as the memory, which is removed when the process ends. */
struct memory *memory_scratch(const struct alloc *a, const char *dir, size_t size);
void memory_sync(struct memory *m);
void memory_chill(struct memory *m);
/* Advises the order of accesses if --advise asks for it. */
void memory_advise(struct memory *m, bool random);
/* Lets [off, off + len) be read in the background. */
void memory_expect(struct memory *m, size_t off, size_t len);
void memory_close(struct memory *m);
/* Copies the bytes that storage has to buf, or those of the memory without storage. */
void memory_stored(const struct memory *m, void *buf, size_t len, size_t off);

/* The kinds that need MPI, with a final NULL. The list is empty in programs without MPI. */
extern const struct alloc_kind *const alloc_mpi_kinds[];

/* Returns whether all mappings of the library are UMMAP_WRITERS, so that ranks may share
 * segments. */
bool alloc_writers(void);

#endif
