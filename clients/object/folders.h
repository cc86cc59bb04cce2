/* SPDX-License-Identifier: BSD-3-Clause */
/* Declarations for the files of the back end for folders: folders.c, folders_gc.c and folders_lost.c. */
#ifndef OBJECT_FOLDERS_H
#define OBJECT_FOLDERS_H

#include "object/backend.h"
#include "object/id.h"
#include "object/message.h"

#include <dirent.h>
#include <pthread.h>

enum { LIVE, NAMES, VERSIONS, VIEWS, H5, LOCKS, FOLDERS };

/* A chunk that was written and is not durable yet; or, without a descriptor, that chunks of this id could not be made durable. */
struct unsynced {
	struct umobject_id id;
	int fd;
	unsigned device;
	int error;
};

/* So many are open at most. */
#define UNSYNCED 128

struct folders {
	struct backend b;
	char *path;
	int folder[FOLDERS];
	char **device_paths;    /* as seen from here */
	char **device_names;    /* as a view in views/ calls them */
	int *devices;           /* negative: it is not there */
	unsigned ndevices;
	pthread_mutex_t lock;
	struct unsynced unsynced[UNSYNCED];
	unsigned nunsynced, most; /* most: so many of them may be open */
	unsigned keep;          /* versions of a name */
};

struct lease {
	int fd;
	struct umobject_id id;
};

static inline struct folders *of(struct backend *b)
{
	return (struct folders *)b;
}

/* NULL: no memory. */
struct lease *folders_lease(const struct umobject_id *id, int fd);
/* To be read with readdir, and closed; NULL with a sentence. */
DIR *folders_read(const struct folders *f, int folder);
/* To be locked: that of somebody else can be by who may only read it, but for some file systems of networks. -1 with errno. */
/* Whether an open file still has a name. If not, it was removed or replaced after it was opened. */
bool has_links(int fd);
int folders_open_to_lock(const struct folders *f, int folder, const char *file);

int folders_hold(const struct folders *f, int folder, const char *name, struct lease **lease, void **bytes, size_t *size);
/* The name that a version's file has in it, for the caller to free; NULL with errno. */
char *folders_name_in_file(struct folders *f, int folder, const char *file);
/* Links a version to a name in a folder, in place of another version. Returns 0 or an errno value. */
int folders_point_name(const struct folders *f, int folder, const char *name, const char *id);
/* Makes h5/NAME.h5 lead to the view of a version; both are file names. */
void folders_point_view(const struct folders *f, const char *name, const char *id);
bool folders_has_view(const struct folders *f, const char *name, const char *id);
/* Characters behind the stem in a file name of versions/: a dot and 20 digits. */
#define VERSION_TEXT 21
/* The stem that the file names of a name's versions have. */
void folders_version_stem(const char *name, char text[static NAME_TEXT]);
/* The file name of a version in versions/. */
void folders_version_name(const char *name, uint64_t version, char text[static NAME_TEXT + 24]);

/* The file in names/ of a name that is being removed begins with it. */
#define REMOVED ".removed."
void folders_removed_name(const char *escaped, char text[static NAME_TEXT + 16]);
/* Ends the removal of a name, if it was interrupted. */
int folders_finish_removal(const struct folders *f, const char *escaped);

/* folders_lost.c */
/* Whether a link in h5/ leads to the view of a version that is in live/; id: that version. */
bool folders_leads_to_version(const struct folders *f, const char *link, char id[static ID_TEXT]);
int folders_end_removals(struct backend *b);
int folders_lost_names(struct backend *b, int (*each)(void *arg, const char *name), void *arg);
int folders_name_restore(struct backend *b, const char *name, const struct umobject_id *id, uint64_t version, bool is_newest);

/* folders_gc.c */
int folders_all_versions(struct backend *b, int (*each)(void *arg, const struct umobject_id *id), void *arg);
int folders_version_there(struct backend *b, const struct umobject_id *id, bool *there);
int folders_version_claim(struct backend *b, const struct umobject_id *id, struct lease **claim, void **bytes, size_t *size);
int folders_sweep(struct backend *b, bool (*garbage)(void *arg, const struct umobject_id *id, uint64_t number), void *arg,
		  struct umobject_garbage *removed);

#endif
