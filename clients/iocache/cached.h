/* SPDX-License-Identifier: BSD-3-Clause */
/* A file that has a cache, from MPI_File_open to MPI_File_close. */
#ifndef FILE_CACHED_H
#define FILE_CACHED_H

#include "iocache/config.h"
#include "iocache/head.h"
#include "iocache/view.h"
#include "pmpi/error.h"
#include "pmpi/pmpi.h"

#include <mpi.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Words that the owner of a share has for all ranks. */
enum word {
	WORD_END,                /* the file reaches so far, as far as who wrote to this share knows; never less, until it is cut */
	WORD_SHARED,             /* of node 0: the shared pointer, in etypes */
	WORD_ASKED,              /* how often somebody has asked for what was written to be made durable ... */
	WORD_DURABLE,            /* ... and how many of these are done */
	WORD_FAILED,             /* an errno with which the last one has failed */
	WORDS
};

/* The nodes of a communicator. */
struct nodes {
	int n, mine;             /* how many, and which one an owner has */
	int *owner;              /* the rank that has each node's share */
	bool owns;               /* this one has */
	bool first;              /* ... and is the first of its machine */
};

/* The cache as it is open: its windows. */
struct share {
	struct spread spread;
	MPI_Win data, words;
	char *base;              /* of this rank's share; NULL: it has none */
	_Atomic int64_t *word;   /* the same of its words */
	_Atomic int64_t *end;    /* of each node: WORD_END is at least this, until the file is cut */
	_Atomic int64_t size;    /* of the file, at least */
	struct head_file *head;  /* an owner's */
	pthread_t helper;        /* an owner's: makes durable what others have written */
	bool has_helper;
	_Atomic bool stop;
};

/* A split collective call that has begun. */
enum split { SPLIT_NONE, SPLIT_READ_ALL, SPLIT_READ_ORDERED, SPLIT_READ_AT_ALL, SPLIT_WRITE_ALL, SPLIT_WRITE_ORDERED,
	     SPLIT_WRITE_AT_ALL };

/* Bytes of a cache's name, with the zero behind it. */
#define CACHED_NAME 80

struct cached {
	struct cached *next;
	MPI_File file;
	MPI_Comm comm;           /* ours */
	int rank, ranks, amode;
	struct config config;
	char *path;              /* of the file, for this process */
	_Atomic int fd;          /* the same; -1: it has not been opened yet */
	int folder;              /* where this node's caches are, at owners; else -1 */
	char name[CACHED_NAME];          /* what their names begin with */
	struct nodes nodes;
	struct share share;
	struct error broken;     /* there is no cache any more: what every call returns */
	bool left;               /* to MPI: it is to convert what is read and written */
	_Atomic bool wrote_far;  /* past the caches, since it was last made durable */
	pthread_mutex_t lock;    /* around the pointer, with what is moved there, and turns: other threads of this rank */
	struct view view;
	int64_t pointer;         /* the individual one, in etypes */
	bool atomic;
	MPI_Win turn;            /* in atomic mode: its lock is one for all writers; MPI_WIN_NULL: there was none yet */
	enum split split;
	int64_t split_bytes;     /* what it has come to */
};

/* NULL: it has no cache. */
struct cached *cached_find(MPI_File file);
/* Whether this process has a file open with a cache; path: from the root. */
bool cached_is_open(const char *path);
/* The beginning of the names of a cache's files, for the path of the file. */
void cached_name(char name[static CACHED_NAME], const char *path);
/* Collective, when MPI has opened the file. NULL with an error, at all ranks alike. */
struct cached *cached_open(MPI_Comm comm, const char *name, int amode, MPI_File file, const struct config *config,
			   struct error *e);
/* The file without MPI, opened when it is first wanted, by any thread; -1 with errno. */
int cached_fd(struct cached *c);
/* Collective. The cache is flushed, kept or dropped, and *c is no more, whatever the error. */
void cached_close(struct cached *c, struct error *e);
/* Collective: what was written is durable, at all ranks. */
void cached_sync(struct cached *c, struct error *e);
/* What this rank has written past the caches is durable. */
void cached_sync_far(struct cached *c, struct error *e);
/* Collective: the file has exactly so many bytes; or at least, with storage for all of them. */
void cached_resize(struct cached *c, int64_t size, bool allocate, struct error *e);
/* Collective: the file has all that is in the cache, and there is no cache any more; MPI has it. */
void cached_leave(struct cached *c, struct error *e);

/* ---- nodes.c ---- */

/* Collective. false: there is no memory. */
bool nodes_find(struct nodes *n, MPI_Comm comm);
void nodes_free(struct nodes *n);

/* ---- share.c ---- */

enum share_end { SHARE_FLUSH, SHARE_KEEP, SHARE_DROP };

/* Collective: opens the cache, with what an earlier job has left in it. */
void share_open(struct cached *c, struct error *e);
/* Collective. */
void share_close(struct cached *c, enum share_end how, struct error *e);
/* This rank's share is durable, if it has one. */
void share_sync(struct cached *c, struct error *e);
/* Notes that the file is going to be changed, and not by others, if this rank has a share. */
void share_mark(struct cached *c, struct error *e);
/* The size of the file, as all ranks know together. */
int64_t share_size(struct cached *c, struct error *e);
/* Whether the file, of `now` bytes, can become shorter while its shares stay open: little is cut off, and the shares have all. */
bool share_can_cut(const struct cached *c, int64_t now, int64_t size);
/* Collective, in this order, while no rank makes another call. No share writes to the file beyond its new size from now on. */
void share_begin_cut(struct cached *c, int64_t size, struct error *e);
/* The file could not be cut, and has `now` bytes. */
void share_undo_cut(struct cached *c, int64_t now);
/* The file has been cut: what the shares have beyond its size is zeros, durably. */
void share_end_cut(struct cached *c, int64_t now, int64_t size, struct error *e);
/* The file reaches so far, by something in a node's share. Returns an MPI code. */
int share_reach(struct cached *c, uint32_t node, int64_t end);
/* An atomic operation on a word; returns what it was. */
int64_t share_word(struct cached *c, int node, enum word word, int64_t value, MPI_Op op, struct error *e);
/* Collective: makes c->turn. */
void share_lock_window(struct cached *c, struct error *e);
/* What a call of MPI has come to. */
void share_explain(struct error *e, int code);
/* What was written to a node's share before is durable. */
void share_commit(struct cached *c, uint32_t node, struct error *e);

/* ---- former.c ---- */

/* Collective: looks for what earlier jobs have left, writes back what cannot be taken over, and fills `found` with the head to go
 * on with, at owners. Returns whether all have one. */
bool former_find(struct cached *c, const struct head_facts *facts, struct head *found, struct error *e);
/* Collective: writes back what they have left, and removes it. */
void former_flush(struct cached *c, struct error *e);
/* The file's facts, from one rank for all. Collective. */
void former_look(struct cached *c, struct head_facts *facts, struct error *e);
/* Removes all parts of a cache from a folder: those that the file lacks nothing of, and those of the file with this inode (0: none).
 * Parts that another process has are left. */
void former_remove(const char *name, int folder, uint64_t ino);
/* The names of a node's files, in its folder. */
void former_name(char *to, size_t room, const struct cached *c, int node, const char *suffix);

#endif
