/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The store of an HDF5 file: a mapping that grows with the file. Its size is a reservation of
 * addresses, which takes no memory and says nothing about the length of the file. Functions return
 * 0, or -1 after they have set errno and the message of umerrormsg(3). HDF5 serializes all calls.
 */
#ifndef HDF5_STORE_H
#define HDF5_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <unistd.h>

#include <ummap-driver.h>
#include <ummap.h>

/* Unit of the logs of filters, in bytes. */
#define HDF5_BLOCK_BYTES 4096

/* A regular file; zeros: no file. */
struct hdf5_file_id {
	dev_t device;
	ino_t inode;
};

/* A store. It is opened once in a process, even if HDF5 opens its file again: HDF5 then compares
 * the two handles, and closes one of them. */
struct hdf5_store {
	struct hdf5_store *next; /* next open store of the process */
	unsigned users;          /* number of handles */
	pid_t owner;             /* process that opened the store, and alone has its mapping */
	char *uri;               /* URI with which the store was opened */
	struct hdf5_file_id file; /* file of the URI at that time */
	bool writable;
	bool grows;              /* writes make the store longer */
	int failed;              /* errno of the first write that failed, or 0: there are no commits
				    from then on, because HDF5 may have lost what it wrote */
	struct ummap_driver driver; /* of the mapping, which closes the handle */
	void *handle;
	bool is_direct;          /* whether long writes may call the driver */
	bool reads_driver;       /* whether reads call the driver first */
	char rest[HDF5_BLOCK_BYTES]; /* end of the last long write, which did not fill a block */
	uint64_t rest_at;        /* place of `rest` in the store */
	size_t rest_bytes;       /* bytes in `rest`, which neither the store nor the mapping has */
	char *base;              /* address of the mapping */
	uint64_t reserved;       /* bytes of the mapping */
	uint64_t step;           /* unit of `reserved`, in bytes */
	uint64_t stored;         /* bytes of the store, at least */
	uint64_t top;            /* end of the farthest write */
	uint64_t eof;            /* end of the file as HDF5 sees it; bytes behind it are garbage */
};

/* How a store is opened. */
enum { HDF5_WRITE = 1, HDF5_CREATE = 2, HDF5_TRUNCATE = 4, HDF5_EXCLUSIVE = 8 };

/* A forked child has the stores of its parent without their mappings. All functions but
 * hdf5_store_close fail, until the process exits: HDF5 then closes all files, and may crash if it
 * cannot write what the parent has changed. Therefore writes and commits do nothing then. */
static inline bool hdf5_store_is_inherited(const struct hdf5_store *s)
{
	return s->owner != getpid();
}

/* Opens the store that a URI names, or returns the one that is open; NULL on failure. */
struct hdf5_store *hdf5_store_open(const char *uri, unsigned how, const struct ummap_attr *attr);
/* Ends a use of the store. The last use makes the file `size` bytes long, and either commits or
 * drops the changes since the last commit. */
int hdf5_store_close(struct hdf5_store *s, bool commits, uint64_t size);
/* Bytes that the store does not have read as zeros. */
int hdf5_store_read(struct hdf5_store *s, void *buf, size_t len, uint64_t off);
int hdf5_store_write(struct hdf5_store *s, const void *buf, size_t len, uint64_t off);
/* Makes all changes durable, in a file of at least `size` bytes. */
int hdf5_store_commit(struct hdf5_store *s, uint64_t size);

/* ---- name.c ---- */

/* Returns the URI, which the caller frees; or NULL with errno and the message of umerrormsg(3). */
char *hdf5_name(const char *uri, const char *name);
/* The file at the path of a URI. */
struct hdf5_file_id hdf5_find_file(const char *uri);
static inline bool hdf5_is_same_file(struct hdf5_file_id one, struct hdf5_file_id other)
{
	return one.device == other.device && one.inode == other.inode;
}
/* Whether two URIs have the same drivers and keys. */
bool hdf5_is_same_way(const char *uri, const char *other);

/* ---- superblock.c ---- */

/*
 * The superblock of an HDF5 file, version 3. In each commit it must be that of a closed file: HDF5
 * refuses a file whose superblock says that a program writes it, and reads no byte behind the end
 * that the superblock gives. Both would be wrong after a crash of a program that writes as a single
 * writer with multiple readers (SWMR).
 */

/* Whether the superblock at an address of a mapping says that a program writes the file as SWMR.
 * eof: end of the file, in bytes from the superblock on. */
bool hdf5_superblock_is_swmr(const char *at, uint64_t eof);
/* Clears the marks of writers, and raises the end of the file to `end` if `raises`. Other versions
 * and damaged superblocks stay unchanged. Returns 0, or -1 with errno set. */
int hdf5_superblock_settle(char *at, uint64_t eof, uint64_t end, bool raises);

#endif
