/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The manifest of a folder of coarrays, or of a window's file: the program that made them, the
 * number of images (ranks), and their entries; and the trailers of mapped entries. Makes no MPI
 * calls: ummap-caf(1) reads manifests, too.
 */
#ifndef WINDOW_MANIFEST_H
#define WINDOW_MANIFEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MANIFEST_FOLDER 200

enum entry_state {
	ENTRY_LIVE,    /* part of the moment to which a restart returns */
	ENTRY_PARKED,  /* from an earlier run, and not allocated yet in this run */
	ENTRY_ENDED,   /* deallocated */
	ENTRY_DOOMED   /* removed by the next sync, which frees its place; not in the file */
};

/* The order of the pool, in which all images keep their small coarrays. */
#define ENTRY_POOL 0

struct entry {
	unsigned order;          /* number among the coarrays that existed together, from 1 on */
	unsigned id;             /* number of its file, which is never used again */
	enum entry_state state;
	bool taken;              /* this run has allocated the coarray; not in the file */
	bool small;              /* the coarray is in the pool */
	uint64_t size;           /* bytes at each image */
	uint64_t at;             /* offset in the pool, or in the image's file */
	uint64_t since;          /* number of the first moment that has it */
	char type[32];           /* type of the elements; "": unknown */
	char folder[MANIFEST_FOLDER]; /* folder of its files; "": that of the other entries */
};

#define ENTRY_TRAILER 64

/* The last bytes of an entry's mapping. */
struct trailer {
	char magic[8];
	uint64_t epoch;      /* number of the moment that the contents belong to */
	uint64_t size;       /* bytes of the entry */
	char rest[ENTRY_TRAILER - 24];
};

/* Bytes of an entry with its trailer. */
uint64_t entry_room(const struct entry *entry);
struct trailer *entry_trailer(char *base, const struct entry *entry);
/* Whether a sync has written the trailer. */
bool entry_is_whole(const struct entry *entry, const struct trailer *t);
void entry_stamp(char *base, const struct entry *entry, uint64_t epoch);

#define PROGRAM_NAME 256
#define PROGRAM_BUILD 65

/* The identity of the program that a manifest belongs to. */
struct program {
	char name[PROGRAM_NAME];     /* base name of the program's file */
	uint64_t size;               /* bytes of that file; 0: unknown */
	char build[PROGRAM_BUILD];   /* build ID in hexadecimal digits; "": none */
};

struct manifest {
	struct program program;
	uint64_t sync; /* number of the sync before which this manifest was written; orders copies
			  by age */
	int images;
	unsigned next_id;
	bool shared_file;
	struct entry *entries;
	size_t n;
};

/* The text of a manifest, which the caller frees; NULL: no memory. */
char *manifest_write(const struct manifest *m);
/* Reads a manifest. Returns an error message; NULL: success. */
const char *manifest_read(struct manifest *m, const char *text);
/* Returns the text of a file, for free(3), or NULL with errno, which is ENODATA if the file is
 * empty. */
char *manifest_read_text(const char *path);
/* Replaces the file as a whole: when it returns 0, the new text is durable. Returns a negative
 * errno on error. */
int manifest_replace(const char *path, const char *text);

/* The names of files. */
struct names {
	char folder[MANIFEST_FOLDER];
	char prefix[MANIFEST_FOLDER];   /* prefix of all names */
	bool shared;                    /* one file has all coarrays of an image */
	bool temporary;                 /* the run removes its files, whose names differ */
};

/* Paths have room for MANIFEST_PATH bytes. */
#define MANIFEST_PATH 600
void manifest_path(char *path, const struct names *names);
/* The copy of the manifest that an image keeps in its own folder. */
void manifest_copy(char *path, const struct names *names, int image);
void manifest_lock(char *path, const struct names *names, int image);
void manifest_file(char *path, const struct names *names, int image, const struct entry *entry);
void manifest_log(char *path, const struct names *names, int image, const struct entry *entry);

/* Whether two jobs, with these prefixes and numbers of images, have a file of the same name. */
bool manifest_clash(const struct names *names, int images, const struct names *other,
		    int other_images);

/* The entry of this order that is not doomed; NULL: none. */
struct entry *manifest_find(struct manifest *m, unsigned order);
/* Adds a copy, and invalidates pointers to entries. NULL: no memory. */
struct entry *manifest_add(struct manifest *m, const struct entry *entry);
/* Removes doomed entries, and calls `gone` for each before. */
void manifest_sweep(struct manifest *m, void (*gone)(const struct entry *entry));
/* The lowest free place for an entry that is a multiple of `align`. */
uint64_t manifest_place(const struct manifest *m, const struct entry *entry, uint64_t align);

#endif
