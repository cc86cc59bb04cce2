/* SPDX-License-Identifier: BSD-3-Clause */
/* An open file that has a cache, and the list of these files. */
#ifndef IOCACHE_OPEN_FILE_H
#define IOCACHE_OPEN_FILE_H

#include "iocache/config.h"
#include "iocache/head.h"
#include "iocache/view.h"
#include "pmpi/error.h"

#include <mpi.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct region;

/* The nodes of a communicator. Each has one owner, the rank that has the node's part. */
struct nodes {
	int n;                   /* number of nodes */
	int mine;                /* at an owner: number of its node */
	int *owner;              /* rank of each node's owner */
	bool owns;               /* whether this rank is an owner */
	bool first;              /* whether this rank is the first one of its machine */
};

/* Collective. false: no memory. */
bool nodes_find(struct nodes *n, MPI_Comm comm);
void nodes_free(struct nodes *n);

/* Words of memory that the owner of a part has for all ranks. */
enum word {
	WORD_END,                /* end of the file, as far as ranks that wrote to this part know;
				    it only grows until the file is cut */
	WORD_SHARED,             /* at node 0: shared file pointer, in etypes */
	WORD_ASKED,              /* number of requests to make earlier writes durable */
	WORD_DURABLE,            /* number of these requests that are done */
	WORD_FAILED,             /* class of the error of the last request; 0: success */
	WORDS
};

/* A window of the cache, and this rank's memory in it. */
struct share_window {
	MPI_Win win;             /* MPI_WIN_NULL: none */
	struct region *memory;   /* window memory; NULL: none */
	bool is_locked;          /* in an epoch of MPI_Win_lock_all */
};

/* The parts of an open cache. */
struct share {
	struct spread spread;    /* layout of the file's bytes */
	struct share_window data, words;
	char *base;              /* address of this rank's part; NULL: it has none */
	_Atomic int64_t *word;   /* words of this rank's part; NULL: it has none */
	_Atomic int64_t *end;    /* a lower bound of each node's WORD_END, until a cut */
	_Atomic int64_t size;    /* lower bound of the file's size */
	struct head_file *head;  /* at an owner: header of its part */
	pthread_t helper;        /* at an owner: thread that makes other ranks' writes durable */
	bool has_helper;         /* whether the thread runs */
	_Atomic bool stop;       /* tells the thread to end */
};

/* A split collective call that has begun. */
enum split { SPLIT_NONE, SPLIT_READ_ALL, SPLIT_READ_ORDERED, SPLIT_READ_AT_ALL, SPLIT_WRITE_ALL,
	     SPLIT_WRITE_ORDERED, SPLIT_WRITE_AT_ALL };

/* Bytes of a cache's name, including the final zero. */
#define CACHED_NAME 80

struct cached {
	struct cached *next;
	MPI_File file;           /* handle of MPI */
	MPI_Comm comm;           /* communicator of the library */
	int rank, ranks, amode;
	struct config config;
	char *path;              /* absolute path of the file */
	_Atomic int fd;          /* descriptor of the file; -1: not opened yet */
	char *folder;            /* at owners: absolute path of the cache's folder; else NULL */
	char name[CACHED_NAME];  /* first part of the names of the cache's files */
	struct nodes nodes;
	struct share share;
	struct error broken;     /* error of every call, because the cache has been lost */
	bool left;               /* the file is left to MPI, which converts data */
	_Atomic bool wrote_far;  /* this rank has written past the cache since the last sync */
	pthread_mutex_t lock;    /* lock around transfers at the individual pointer and in atomic
				    mode */
	struct view view;
	int64_t pointer;         /* individual file pointer, in etypes */
	bool atomic;             /* atomic mode */
	struct share_window turn; /* in atomic mode: its lock admits one writer; made when needed */
	enum split split;
	int64_t split_bytes;     /* result of the split call */
};

/* The file of a handle; NULL: it has no cache. */
struct cached *open_file_find(MPI_File file);
/* Whether this process has a file open with a cache; path: absolute. */
bool open_file_is_open(const char *path);
void open_file_add(struct cached *c);
void open_file_remove(struct cached *c);
/* The first part of the names of a cache's files, for the path of the file. */
void open_file_name(char name[static CACHED_NAME], const char *path);
/* A descriptor of the file without MPI, opened when any thread first needs it; -1 with errno. */
int open_file_fd(struct cached *c);

#endif
