/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Names: links to versions in names/ and versions/. A commit or a removal of a name takes effect by
 * one rename in names/. What must follow it is repeated by the next commit, removal or collector,
 * if the process is killed.
 */
#include "object/folders.h"

#include "object/error.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

/* The beginning of the file names of a name's versions in versions/. */
static void version_stem(const char *name, char text[static NAME_TEXT])
{
	name_escape(name, text);
	if (strlen(text) > NAME_MAX - VERSION_SUFFIX)
		name_hash(name, text);
}

void version_name(const char *name, uint64_t version, char text[static VERSION_NAME_TEXT])
{
	version_stem(name, text);
	sprintf(text + strlen(text), ".%020" PRIu64, version);
}

void removed_name(const char *escaped, char text[static VERSION_NAME_TEXT])
{
	sprintf(text, REMOVED "%s", escaped);
}

char *read_name(const struct folders *f, int folder, const char *file)
{
	struct object *o = read_record(f, folder, file);
	char *name = NULL;

	if (o) {
		name = o->name;
		o->name = NULL;
		object_free(o);
	}
	return name;
}

/* The number of the version that a file in names/ leads to; 0 with errno. */
static uint64_t read_number(const struct folders *f, const char *file)
{
	struct object *o = read_record(f, NAMES, file);
	uint64_t number = o ? o->version : 0;

	object_free(o);
	return number;
}

static uint64_t first_kept(uint64_t version, unsigned keep)
{
	return version > keep ? version - keep + 1 : 1;
}

static int fail_delete(const char *name)
{
	return object_fail(errno, "cannot delete the object '%s': %m", name);
}

/* ---- Holding and locking ---- */

/* Holds the version of this number, unless the name is being removed. A version that is replaced
 * during the search gets its link in versions/ before it loses its link in names/. */
static struct lease *hold_number(const struct folders *f, const char *name, uint64_t version)
{
	char escaped[NAME_TEXT], text[VERSION_NAME_TEXT];
	struct lease *lease;
	struct object *o;
	uint64_t newest;

	name_escape(name, escaped);
	removed_name(escaped, text);
	if (faccessat(f->folder[NAMES], text, F_OK, 0) == 0) {
		errno = ENOENT;
		return NULL;
	}
	version_name(name, version, text);
	lease = hold_file(f, VERSIONS, text);
	if (lease || errno != ENOENT)
		return lease;
	lease = hold_file(f, NAMES, escaped);
	if (!lease)
		return NULL;
	o = object_unpack(&lease->record, escaped);
	newest = o ? o->version : 0;
	object_free(o);
	if (newest == version)
		return lease;
	folders_release(NULL, lease);
	if (newest > version)
		return hold_file(f, VERSIONS, text);
	if (newest)
		errno = ENOENT;
	return NULL;
}

static struct lease *hold_name(struct backend *b, const char *name, uint64_t version)
{
	char escaped[NAME_TEXT];

	name_escape(name, escaped);
	return version ? hold_number(of(b), name, version) : hold_file(of(b), NAMES, escaped);
}

static int open_lock(const struct folders *f, const char *file)
{
	int fd;

	/* EEXIST: another process has created the file in the meantime. */
	do {
		fd = open_to_lock(f, LOCKS, file);
		if (fd < 0 && errno == ENOENT)
			fd = create_shared_file(f->folder[LOCKS], file);
	} while (fd < 0 && errno == EEXIST);
	return fd;
}

int folders_lock(struct backend *b, const char *name, void **lock)
{
	const struct folders *f = of(b);
	int *fd = malloc(sizeof(*fd)), error;
	char file[8] = "collect";

	if (!fd)
		return fail_no_memory("lock a name");
	if (*name)
		sprintf(file, "%02x", (unsigned)(XXH3_64bits(name, strlen(name)) & 0x3f));
	*fd = open_lock(f, file);
	while (*fd >= 0 && flock(*fd, LOCK_EX) < 0 && errno == EINTR)
		;
	if (*fd < 0) {
		error = errno;
		free(fd);
		return object_fail(error, "cannot open '%s/locks/%s': %m", f->path, file);
	}
	*lock = fd;
	return 0;
}

void folders_unlock(struct backend *b, void *lock)
{
	int *fd = lock;

	(void)b;
	/* A child that another thread has forked meanwhile has the file open as well. */
	flock(*fd, LOCK_UN);
	close(*fd);
	free(fd);
}

/* ---- Committing. The caller holds the name's lock. ---- */

/* Returns whether the version had a link. */
static bool drop_version(const struct folders *f, const char *name, uint64_t version)
{
	char text[VERSION_NAME_TEXT];

	version_name(name, version, text);
	return unlinkat(f->folder[VERSIONS], text, 0) == 0;
}

/* Drops the links of versions before `first`. Links that a killed commit has left come right before
 * those that the next commit drops. */
static void drop_versions(const struct folders *f, const char *name, uint64_t first)
{
	while (first > 1 && drop_version(f, name, --first))
		;
}

/* A first version under a name that is missing would make garbage of the versions that it had. */
static int refuse_lost(const struct folders *f, const char *name, const char *escaped)
{
	char link[LINK_TEXT], id[ID_TEXT];

	link_name(escaped, link);
	if (!find_shown_version(f, link, id))
		return 0;
	return object_fail(EBADMSG, "cannot commit '%s': its name is missing, but its version '%s' "
			   "exists. Try \"umobject check --repair\" to restore it, or \"umobject "
			   "rm\" to delete it", name, id);
}

/* Makes everything durable that the name will refer to: chunks, view, record, and their folders. */
static int sync_version(struct folders *f, const struct folder_lease *lease, const char *id)
{
	int others[MAX_OTHERS] = { lease->fd, f->folder[LIVE], f->folder[VIEWS] };
	char name[VIEW_TEXT];
	int view, result;
	unsigned n = 3;

	view_name(id, name);
	view = open_to_read(f, VIEWS, name);
	if (view >= 0)
		others[n++] = view;
	if (f->keep > 1)
		others[n++] = f->folder[VERSIONS];
	result = sync_chunks(f, &lease->id, others, n);
	if (view >= 0)
		close(view);
	return result;
}

/*
 * ORDER: the record is written; the replaced version gets its link in versions/; everything becomes
 * durable; the name refers to the version, durably; only then the view is shown, and links of
 * versions that are too old are dropped.
 */
static int publish_version(struct backend *b, struct lease *held, const char *name,
			   uint64_t version, unsigned keep, const struct bytes *record)
{
	struct folder_lease *lease = (struct folder_lease *)held;
	struct folders *f = of(b);
	char escaped[NAME_TEXT], id[ID_TEXT], old[VERSION_NAME_TEXT];
	int error;

	name_escape(name, escaped);
	id_text(&lease->id, id);
	/* Older versions of this name belong to another object, whose removal was interrupted. */
	if (version == 1 && (finish_removal(f, name, escaped) < 0 ||
			     refuse_lost(f, name, escaped) < 0))
		return -1;
	error = rewrite_version(f, lease, record);
	if (!error && f->keep > 1 && version > 1) {
		version_name(name, version - 1, old);
		error = replace_link(f, NAMES, escaped, VERSIONS, old, id);
	}
	if (!error && sync_version(f, lease, id) < 0)
		return -1;
	if (!error)
		error = replace_link(f, LIVE, id, NAMES, escaped, id);
	if (!error && fsync(f->folder[NAMES]) < 0)
		error = errno;
	if (error)
		return object_fail(error, "cannot commit version %" PRIu64 " of '%s': %m", version,
				   name);
	show_view(f, escaped, id);
	drop_versions(f, name, first_kept(version, keep));
	return 0;
}

/* In a copy of a container, a file of a name may be no link: then its version in live/ looks like
 * garbage. */
static int restore_link(const struct folders *f, int folder, const char *file, const char *id)
{
	struct stat named, live;
	int error;

	if (fstatat(f->folder[folder], file, &named, 0) == 0 &&
	    fstatat(f->folder[LIVE], id, &live, 0) == 0 && named.st_ino == live.st_ino &&
	    named.st_dev == live.st_dev)
		return 0;
	error = replace_link(f, folder, file, LIVE, id, id);
	return error ? object_fail(error, "cannot make '%s/%s/%s' a link to its version in live/: "
				   "%m", f->path, folder_names[folder], file) : 0;
}

static int complete_publish(struct backend *b, const char *name, const struct umobject_id *newest,
			    uint64_t version)
{
	const struct folders *f = of(b);
	uint64_t number = first_kept(version, f->keep);
	char escaped[NAME_TEXT], text[VERSION_NAME_TEXT], id[ID_TEXT];
	int result = 0;

	name_escape(name, escaped);
	id_text(newest, id);
	show_view(f, escaped, id);
	drop_versions(f, name, number);
	for (; number < version && result == 0; number++) {
		struct object *o;
		char old[ID_TEXT];

		version_name(name, number, text);
		o = read_record(f, VERSIONS, text);
		if (!o) {
			result = errno == ENOENT ? 0 : -1;
			continue;
		}
		id_text(&o->id, old);
		object_free(o);
		result = restore_link(f, VERSIONS, text, old);
	}
	return result < 0 ? -1 : restore_link(f, NAMES, escaped, id);
}

/* ---- Removing. The caller holds the name's lock. ---- */

/* Removes all files of a name in versions/, whatever their numbers. Returns how many, or -1. */
static int drop_all(const struct folders *f, const char *name)
{
	DIR *d = list_folder(f, VERSIONS);
	char stem[NAME_TEXT];
	const struct dirent *e;
	int dropped = 0;
	size_t len;

	if (!d)
		return -1;
	version_stem(name, stem);
	len = strlen(stem);
	while ((e = readdir(d)))
		if (strncmp(e->d_name, stem, len) == 0 && e->d_name[len] == '.' &&
		    strlen(e->d_name + len) == VERSION_SUFFIX)
			dropped += unlinkat(f->folder[VERSIONS], e->d_name, 0) == 0;
	closedir(d);
	return dropped;
}

/* Removes all records of a name that has no file in names/. ENOENT. */
static int remove_lost(const struct folders *f, const char *name, const char *escaped)
{
	char link[LINK_TEXT];
	int dropped = drop_all(f, name);

	if (dropped < 0)
		return -1;
	link_name(escaped, link);
	dropped += unlinkat(f->folder[H5], link, 0) == 0;
	if (!dropped)
		return object_fail(ENOENT, "cannot find the object '%s'", name);
	return fsync(f->folder[VERSIONS]) < 0 || fsync(f->folder[H5]) < 0 ? fail_delete(name) : 0;
}

int finish_removal(const struct folders *f, const char *name, const char *escaped)
{
	char removed[VERSION_NAME_TEXT], link[LINK_TEXT];
	uint64_t version, first;

	removed_name(escaped, removed);
	version = read_number(f, removed);
	if (!version && errno != EBADMSG)
		return errno == ENOENT ? 0 : -1;
	/* A damaged record does not tell how many versions there are. */
	if (!version && drop_all(f, name) < 0)
		return -1;
	first = first_kept(version, f->keep);
	drop_versions(f, name, first);
	/* A commit that was killed may have kept the newest version as well. */
	for (; first <= version; first++)
		drop_version(f, name, first);
	link_name(escaped, link);
	unlinkat(f->folder[H5], link, 0);
	return (f->keep > 1 && fsync(f->folder[VERSIONS]) < 0) || fsync(f->folder[H5]) < 0 ||
		unlinkat(f->folder[NAMES], removed, 0) < 0 ? fail_delete(name) : 0;
}

/* ORDER: the file in names/ is renamed, durably, before any other record is removed. So a name
 * whose file is missing altogether is damaged. */
static int remove_name(struct backend *b, const char *name)
{
	const struct folders *f = of(b);
	char escaped[NAME_TEXT], removed[VERSION_NAME_TEXT];

	name_escape(name, escaped);
	removed_name(escaped, removed);
	if (finish_removal(f, name, escaped) < 0)
		return -1;
	if (renameat(f->folder[NAMES], escaped, f->folder[NAMES], removed) < 0)
		return errno == ENOENT ? remove_lost(f, name, escaped) : fail_delete(name);
	return fsync(f->folder[NAMES]) < 0 ? fail_delete(name) : finish_removal(f, name, escaped);
}

/* ---- Listing ---- */

/* The files that were listed. */
struct listed {
	char **files;
	size_t n;
	size_t nsorted;        /* number of files from the beginning that are sorted */
	struct failure failed; /* a record without a readable name */
};

static int compare_texts(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool is_listed(const struct listed *l, const char *file)
{
	return l->nsorted && bsearch(&file, l->files, l->nsorted, sizeof(file), compare_texts);
}

static int visit_file(const struct folders *f, struct listed *l, const char *file,
		      visit_name_fn *each, void *arg)
{
	char **grown = realloc(l->files, (l->n + 1) * sizeof(*grown)), *name;
	int result;

	if (grown)
		l->files = grown;
	if (!grown || !(grown[l->n] = strdup(file)))
		return fail_no_memory("list the names");
	l->n++;
	name = name_unescape(file);
	if (!name)
		name = read_name(f, NAMES, file);
	/* A damaged name does not hide the others. ENOENT: it has been deleted meanwhile. */
	if (!name && errno != ENOENT)
		failure_keep(&l->failed);
	result = name ? each(arg, name) : 0;
	free(name);
	return result;
}

/* Visits the names that are not listed yet. */
static int list_names(const struct folders *f, struct listed *l, visit_name_fn *each, void *arg)
{
	DIR *d = list_folder(f, NAMES);
	const struct dirent *e;
	int result = 0;

	if (!d)
		return -1;
	while (result == 0 && (e = readdir(d))) {
		const char *file = e->d_name;

		if (*file != '.' && !is_listed(l, file))
			result = visit_file(f, l, file, each, arg);
	}
	closedir(d);
	return result;
}

static struct timespec read_change_time(const struct folders *f)
{
	struct stat st = { 0 };

	fstat(f->folder[NAMES], &st);
	return st.st_mtim;
}

#define MAX_PASSES 10

/* While names get new versions, a list may lack them (readdir(3) of tmpfs), so it is repeated. */
static int list_all(struct backend *b, visit_name_fn *each, void *arg)
{
	const struct folders *f = of(b);
	struct timespec before, now;
	struct listed l = { 0 };
	unsigned passes = 0;
	int result;

	do {
		before = read_change_time(f);
		result = list_names(f, &l, each, arg);
		now = read_change_time(f);
		if (l.n)
			qsort(l.files, l.n, sizeof(*l.files), compare_texts);
		l.nsorted = l.n;
	} while (result == 0 && ++passes < MAX_PASSES && memcmp(&before, &now, sizeof(now)) != 0);
	while (l.n)
		free(l.files[--l.n]);
	free(l.files);
	return result || !l.failed.error ? result : failure_restore(&l.failed);
}

static int list_numbers(struct backend *b, const char *name, visit_number_fn *each, void *arg)
{
	const struct folders *f = of(b);
	char escaped[NAME_TEXT], text[VERSION_NAME_TEXT];
	uint64_t newest, number;
	int result = 0;

	name_escape(name, escaped);
	newest = read_number(f, escaped);
	if (!newest)
		return errno == ENOENT ? 0 : -1;
	number = first_kept(newest, f->keep);
	for (; number < newest && result == 0; number++) {
		version_name(name, number, text);
		if (faccessat(f->folder[VERSIONS], text, F_OK, 0) == 0)
			result = each(arg, number);
	}
	return result ? result : each(arg, newest);
}

const struct name_ops folders_names = {
	.hold = hold_name,
	.lock = folders_lock,
	.unlock = folders_unlock,
	.publish = publish_version,
	.remove = remove_name,
	.list = list_all,
	.list_versions = list_numbers,
	.settle = complete_publish,
	.end_removals = folders_end_removals,
	.list_lost = folders_list_lost,
	.restore = folders_restore,
};
