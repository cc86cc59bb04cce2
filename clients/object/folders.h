/* SPDX-License-Identifier: BSD-3-Clause */
/* Declarations for the files of the back end for folders, folders*.c. folders.c has its layout. */
#ifndef OBJECT_FOLDERS_H
#define OBJECT_FOLDERS_H

#include "object/backend.h"
#include "object/id.h"
#include "object/message.h"

#include <dirent.h>
#include <pthread.h>

enum { LIVE, NAMES, VERSIONS, VIEWS, H5, LOCKS, FOLDERS };

/* A written chunk that is not durable yet; without a descriptor, a failed flush of its id's
 * chunks. */
struct unsynced {
	struct umobject_id id;
	int fd;          /* -1: the flush has failed */
	unsigned device; /* index of the device that has the file */
	int error;       /* errno value of the failed flush */
};

#define MAX_UNSYNCED 128
/* Files and folders that are flushed together with chunks. */
#define MAX_OTHERS 5

struct folders {
	struct backend b;
	char *path;               /* path of the container */
	int folder[FOLDERS];
	char **devices;           /* paths of the devices, absolute or relative to the container */
	int device_fds[DEVICES_MAX]; /* -1: the device could not be opened */
	unsigned ndevices;
	unsigned keep;            /* number of versions of a name to keep */
	pthread_mutex_t lock;     /* protects the next three */
	struct unsynced unsynced[MAX_UNSYNCED];
	unsigned nunsynced;
	unsigned max_unsynced;    /* number of entries from which on all chunks are flushed */
};

/* A held version: its file, with a shared lock. */
struct folder_lease {
	struct lease lease;
	struct umobject_id id;
	int fd;
};

/* Room for the names of files: of a link in h5/, of a view, and of a version in versions/. */
#define LINK_TEXT (NAME_TEXT + 8)
#define VIEW_TEXT (ID_TEXT + 3)
#define VERSION_NAME_TEXT (NAME_TEXT + 24)
/* Bytes behind the stem in the file name of a version: a dot and 20 digits. */
#define VERSION_SUFFIX 21
/* The beginning of the file name in names/ of a name that is being removed. */
#define REMOVED ".removed."

static inline struct folders *of(struct backend *b)
{
	return (struct folders *)b;
}

/* ---- folders.c ---- */

extern const char *const folder_names[FOLDERS];
/* Creates or opens a file that users of the container may share, in an open folder. */
int share_file(int folder, const char *name, int flags);
/* Creates a shared file that is complete before it has its name. EEXIST. */
int create_shared_file(int folder, const char *name);
/* Opens a file to lock it. A user who may not write can lock it on most file systems. */
int open_to_lock(const struct folders *f, int folder, const char *file);
/* Opens a file of the container to read it; -1 with errno. */
int open_to_read(const struct folders *f, int folder, const char *file);
DIR *list_folder(const struct folders *f, int folder);
bool file_exists(const struct folders *f, int folder, const char *file);
/* Lets a name in a folder be a link to the file `from`, in one step. `id`, a version that the
 * caller holds, makes the temporary name unique. Returns 0 or an errno value. */
int replace_link(const struct folders *f, int from_folder, const char *from, int folder,
		 const char *name, const char *id);

/* ---- folders_chunks.c ---- */

extern const struct chunk_ops folders_chunks;
name_file_fn folders_name_chunk;
/* Flushes the chunks of an id (NULL: all), their devices, and n other files. */
int sync_chunks(struct folders *f, const struct umobject_id *id, const int *others, unsigned n);

/* ---- folders_versions.c ---- */

extern const struct version_ops folders_versions;
/* Keeps errno. */
void folders_release(struct backend *b, struct lease *lease);
/* Holds the version that a file leads to. ENOENT. */
struct lease *hold_file(const struct folders *f, int folder, const char *file);
/* Reads the object in the record of a version's file; NULL with errno. */
struct object *read_record(const struct folders *f, int folder, const char *file);
/* Replaces the file of a held version. Returns 0 or an errno value. */
int rewrite_version(const struct folders *f, struct folder_lease *lease,
		    const struct bytes *record);

/* ---- folders_views.c ---- */

extern const struct view_ops folders_views;
/* The file name of a view, and that of a link in h5/. */
void view_name(const char *id, char text[static VIEW_TEXT]);
void link_name(const char *escaped, char text[static LINK_TEXT]);
/* Makes the link of a name in h5/ lead to the view of the version `id`, unless it does. Users open
 * the link. A crash may lose it. */
void show_view(const struct folders *f, const char *escaped, const char *id);
/* Whether a link in h5/ leads to the view of a version in live/. Stores the id of that version. */
bool find_shown_version(const struct folders *f, const char *link, char id[static ID_TEXT]);

/* ---- folders_names.c ---- */

extern const struct name_ops folders_names;
int folders_lock(struct backend *b, const char *name, void **lock);
void folders_unlock(struct backend *b, void *lock);
/* The file name of a version in versions/, and that of a name in names/ while it is being
 * removed. */
void version_name(const char *name, uint64_t version, char text[static VERSION_NAME_TEXT]);
void removed_name(const char *escaped, char text[static VERSION_NAME_TEXT]);
/* The name in a version's record, for the caller to free; NULL with errno. */
char *read_name(const struct folders *f, int folder, const char *file);
/* Removes the other records of a name whose removal has begun. The caller holds the name's lock. */
int finish_removal(const struct folders *f, const char *name, const char *escaped);

/* ---- folders_lost.c ---- */

int folders_end_removals(struct backend *b);
int folders_list_lost(struct backend *b, visit_name_fn *each, void *arg);
int folders_restore(struct backend *b, const char *name, const struct umobject_id *id,
		    uint64_t version, bool is_newest);

/* ---- durable.c: transfers and flushes, which return 0 or an errno value ---- */

/* Flushes n files or folders, as fsync(2) does. Waits for all of them together if the system
 * can. */
int durable_all(const int *fds, size_t n);
/* Writes all bytes of n pieces of memory. */
int durable_write(int fd, const struct iovec *iov, int n);
static inline int durable_write_bytes(int fd, const struct bytes *bytes)
{
	return durable_write(fd, &(struct iovec){ bytes->data, bytes->size }, 1);
}

/* Reads `size` bytes. EBADMSG: the file is shorter. */
int durable_read(int fd, void *to, size_t size, uint64_t at);
/* Reads a whole file, for the caller to free. data is NULL on an error. */
int durable_contents(int fd, struct bytes *bytes);

#endif
