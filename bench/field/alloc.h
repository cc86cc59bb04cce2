/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory for the benchmarks of the field, of the kind that --alloc names, and the library's knobs as options. */
#ifndef FIELD_ALLOC_H
#define FIELD_ALLOC_H

#include <getopt.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct memory;

/* One way of having memory. Each call ends the program where it fails; those but open and close may be NULL. */
struct alloc_kind {
	const char *name;
	bool stored;                      /* there is a file of ours under it */
	bool paged;                       /* the kernel has it in its page cache */
	void (*open)(struct memory *);
	void (*sync)(struct memory *);    /* makes changes durable */
	void (*chill)(struct memory *);   /* and lets go of all, so that what follows comes from storage */
	void (*advise)(struct memory *, bool random);
	void (*expect)(struct memory *, size_t off, size_t len); /* will be loaded soon */
	void (*close)(struct memory *);   /* drops what is not durable */
};

/* What the command line asks for. */
struct alloc {
	const struct alloc_kind *kind;
	size_t seg;                       /* of the library; 0: its default */
	size_t budget;                    /* bytes for each process; 0: no limit of ours */
	int ptype;                        /* UMMAP_PTYPE_* */
	const char *policy;               /* its name; NULL: the default */
	const char *engine;               /* NULL: the default */
	const char *factor;               /* of mpi-storage-window: the part in memory; NULL: none */
	bool advise;                      /* tell the library, or the kernel, what is random */
};

/* One piece of it. */
struct memory {
	const struct alloc *alloc;
	char *base;
	size_t size;
	int fd;                           /* the file under it; -1: none */
	bool write;                       /* may be stored to */
	bool fresh;                       /* starts as zeros: what the file has is not wanted */
	const char *dir;                  /* of scratch files; NULL: this is none */
	void *own;                        /* the kind's */
};

enum {
	ALLOC_KIND = 0x1000, ALLOC_SEG, ALLOC_BUDGET, ALLOC_POLICY, ALLOC_DRIVER, ALLOC_ENGINE, ALLOC_MODE, ALLOC_ADVISE,
	ALLOC_FACTOR,
};

#define ALLOC_KNOBS \
	{ "seg", 1, 0, ALLOC_SEG }, { "budget", 1, 0, ALLOC_BUDGET }, { "policy", 1, 0, ALLOC_POLICY }, \
	{ "driver", 1, 0, ALLOC_DRIVER }, { "engine", 1, 0, ALLOC_ENGINE }, { "mode", 1, 0, ALLOC_MODE }
#define ALLOC_OPTIONS { "alloc", 1, 0, ALLOC_KIND }, ALLOC_KNOBS
/* For programs that call memory_advise. */
#define ALLOC_ADVICE { "advise", 0, 0, ALLOC_ADVISE }

/* For programs whose memory may be that of windows. */
#define ALLOC_PART { "factor", 1, 0, ALLOC_FACTOR }
#define ALLOC_PART_HELP \
"  --factor F       of mpi-storage-window: the part that is in memory, from 0 to 1, or auto (0)\n"

#define ALLOC_KNOBS_HELP \
"  --budget SIZE    memory for each process: the library's limit, or a memory cgroup for who uses the page cache\n" \
"  --seg SIZE       of the library: segment (as UMMAP_SEG_SIZE)\n" \
"  --policy NAME    of the library: fifo, lifo, plru, prnd, wiro-f or wiro-l (fifo)\n" \
"  --driver URI     of the library: as UMMAP_DRIVER, 'posix' or 'uring:?depth=64'\n" \
"  --engine NAME    of the library: auto, segv or uffd, as UMMAP_ENGINE (auto); of mpi-storage-window: or kernel\n" \
"  --mode MODE      of the library: static or dynamic, as UMMAP_MEMCONFIG (dynamic)\n"
#define ALLOC_ADVICE_HELP \
"  --advise         tell the library by umadvise, or the kernel by madvise, whether access is random or sequential\n"

/* Takes an option of the list above; false if it is none of them. */
bool alloc_option(struct alloc *a, int option, const char *value);
/* Ends the program if there is no such kind. */
const struct alloc_kind *alloc_find(const char *name);
/* The names of all kinds, for a help text. */
const char *alloc_names(void);
/* Before the first mapping: the library's limit for so many processes here, which share it under the name of
 * `leader`, one of them, and with nobody else. */
void alloc_limit(const struct alloc *a, unsigned processes, pid_t leader);
/* Before a time is taken: has the machine provide what will be touched, `bytes` or as much as --budget allows. `grouped`:
 * a memory cgroup holds the process to that, all of it. */
void alloc_warm(const struct alloc *a, bool grouped, size_t bytes);

/* Memory over a file, which stays open; fd -1 where the kind is not stored. */
struct memory *memory_open(const struct alloc *a, int fd, size_t size, bool write, bool fresh);
/* The same over a file of its own in `dir`, as long as the memory, which goes with the process. */
struct memory *memory_scratch(const struct alloc *a, const char *dir, size_t size);
void memory_sync(struct memory *m);
void memory_chill(struct memory *m);
/* Where --advise asks for it. */
void memory_advise(struct memory *m, bool random);
/* [off, off + len) will be loaded soon, and may be read in the background. */
void memory_expect(struct memory *m, size_t off, size_t len);
void memory_close(struct memory *m);
/* Copies to buf what storage holds, past the memory; from the memory where there is none. */
void memory_stored(const struct memory *m, void *buf, size_t len, size_t off);

/* Kinds that need MPI, with a NULL at the end. Programs without MPI have an empty list. */
extern const struct alloc_kind *const alloc_mpi_kinds[];

/* Whether all that the library maps is UMMAP_WRITERS: ranks may share segments. */
bool alloc_writers(void);

#endif
