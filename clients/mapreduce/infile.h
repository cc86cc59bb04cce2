/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One file of the input at a time, read in the way that the config asks for (UMMR_INPUT_*). What is read lies in memory of
 * the caller's; what is read ahead is the way's own affair, but for those that have it in a buffer: they hand that over.
 */
#ifndef MAPREDUCE_INFILE_H
#define MAPREDUCE_INFILE_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ummap-mapreduce.h>

/* Bytes of the input in memory of malloc's. */
struct piece {
	char *data;
	size_t size, room;
	uint64_t from; /* in the file */
};

struct file;
struct infile;

struct infile_way {
	int (*open)(struct infile *s, const struct ummr_config *config);
	int (*read)(struct infile *s, char *to, size_t size, uint64_t from);
	/* That is likely to be wanted next. It cannot fail: reading it will. */
	void (*expect)(struct infile *s, uint64_t from, size_t size);
	/* NULL: there never is any. */
	bool (*take)(struct infile *s, uint64_t from, struct piece *piece);
	void (*close)(struct infile *s);
	bool stays; /* open, see kept.h */
};

struct infile {
	const struct infile_way *way; /* NULL: nothing is open */
	const char *path;
	uint64_t number, size;        /* of the file */
	int fd;
	MPI_File file;
	MPI_Request request;          /* of what is being read ahead */
	struct piece ahead;
	char *mapping;
};

/* Fails if the file has been changed. */
int infile_open(struct infile *s, const struct ummr_config *config, const struct file *file, uint64_t number);
/* What was read of it before was of the job's file if it has not been changed now. */
int infile_check(const struct file *file);
void infile_close(struct infile *s);

/* All of it, or an error. */
int infile_read(struct infile *s, char *to, size_t size, uint64_t from);
void infile_expect(struct infile *s, uint64_t from, size_t size);
/* What was read ahead from exactly there on changes places with *piece. false: nothing was. */
bool infile_take(struct infile *s, uint64_t from, struct piece *piece);

/* Room for so many bytes. Those that are there stay. */
int piece_make_room(struct piece *piece, size_t size, const char *path);

/* By MPI-IO, with the hints that the config has for it; collective. The name is a file's, whatever is in it. */
int infile_open_mpiio(MPI_Comm comm, const char *path, int mode, const struct ummr_config *config, MPI_File *file);

extern const struct infile_way infile_posix, infile_mpiio, infile_mpiio_ahead, infile_ummap;

#endif
