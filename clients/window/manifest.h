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
	ENTRY_LIVE,    /* of the moment that a restart goes back to */
	ENTRY_PARKED,  /* of an earlier run, and not asked for yet in this one */
	ENTRY_ENDED,   /* deallocated */
	ENTRY_DOOMED   /* its place is free after the next sync; not in the file */
};

/* The order of the pool, in which all images keep their small coarrays. */
#define ENTRY_POOL 0

struct entry {
	unsigned order;          /* which of the coarrays that there were at a time, from 1 on */
	unsigned id;             /* of its file; never used again */
	enum entry_state state;
	bool taken;              /* by a coarray of this run, now or before; not in the file */
	bool small;              /* kept in the pool */
	uint64_t size;           /* bytes of an image */
	uint64_t at;             /* where it begins in the pool, or in the image's file */
	uint64_t since;          /* the first epoch that has it */
	char type[32];           /* "" where nobody knows */
	char folder[MANIFEST_FOLDER]; /* of its files; "": as for all others */
};

#define ENTRY_TRAILER 64

/* The last bytes of a mapped coarray's room: of which sync of the job its contents are. */
struct trailer {
	char magic[8];
	uint64_t epoch;
	uint64_t size;       /* of the coarray, in bytes */
	char rest[ENTRY_TRAILER - 24];
};

/* Bytes that it takes, with its trailer. */
uint64_t entry_room(const struct entry *entry);
struct trailer *entry_trailer(char *base, const struct entry *entry);
/* Whether a sync has reached it. */
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

/* As text, to be freed; NULL: there is no memory. */
char *manifest_write(const struct manifest *m);
/* What is wrong with it; NULL: nothing. */
const char *manifest_read(struct manifest *m, const char *text);
/* Replaces the file as a whole: when it returns 0, the new text is durable. Returns a negative
 * errno on error. */
int manifest_replace(const char *path, const char *text);

/* Where files are. */
struct names {
	char folder[MANIFEST_FOLDER];
	char prefix[MANIFEST_FOLDER];   /* of all their names */
	bool shared;                    /* all coarrays of an image in one file */
	bool temporary;                 /* files that a run removes again have names of their own */
};

/* Paths have room for MANIFEST_PATH bytes. */
#define MANIFEST_PATH 600
void manifest_path(char *path, const struct names *names);
/* The copy of the manifest that an image keeps in its own folder. */
void manifest_copy(char *path, const struct names *names, int image);
void manifest_lock(char *path, const struct names *names, int image);
void manifest_file(char *path, const struct names *names, int image, const struct entry *entry);
void manifest_log(char *path, const struct names *names, int image, const struct entry *entry);
/* For URIs: what has a meaning there is encoded. Returns how long that is. */
size_t manifest_encode(char *to, const char *path);

/* Whether so many images have a file of the same name as one of those with another prefix. */
bool manifest_clash(const struct names *names, int images, const struct names *other, int other_images);

/* NULL: there is none of that order. Those that are doomed are not found. */
struct entry *manifest_find(struct manifest *m, unsigned order);
/* Pointers to entries are no longer valid. NULL: there is no memory. */
struct entry *manifest_add(struct manifest *m, const struct entry *entry);
/* Those that are doomed: calls `gone` for each before it goes. */
void manifest_sweep(struct manifest *m, void (*gone)(const struct entry *entry));
/* The lowest place, a multiple of `align`, for an entry, where there is no other of its kind. */
uint64_t manifest_place(const struct manifest *m, const struct entry *entry, uint64_t align);

#endif
