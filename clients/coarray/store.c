/* SPDX-License-Identifier: BSD-3-Clause */
#include "coarray/store.h"

#include "common/minmax.h"
#include "common/try_lock.h"
#include "common/uri_encode.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <ummap.h>
#include <unistd.h>

#define MAX_URI (16 * CONFIG_TEXT)
/* Images of a job that was killed may take a moment to end. */
#define MAX_LOCK_RETRIES 100
#define RETRY_SLEEP_NS 50000000

/* ---- Names ---- */

void store_path(const struct store *s, const struct entry *entry, char *path)
{
	manifest_file(path, &s->names, s->image, entry);
}

static void log_path(const struct store *s, const struct entry *entry, char *path)
{
	manifest_log(path, &s->names, s->image, entry);
}

/* Makes the URI of a path, which is "" for the hint storage_alloc_driver. key: one more key, as
 * "&name=value", or "". */
static void make_uri(const struct store *s, const struct entry *entry, const char *path,
		     const char *key, char uri[MAX_URI])
{
	size_t scheme = strcspn(s->driver, ":"), len;
	const char *keys = strchr(s->driver, '?');
	char log[MANIFEST_PATH];

	len = (size_t)sprintf(uri, "%s%.*s:", s->config->consistent ? "wal+" : "", (int)scheme,
			      s->driver);
	len += uri_encode(uri + len, MAX_URI - len, path);
	if (s->config->consistent)
		len += (size_t)sprintf(uri + len, "?wal.keep=%d", s->keep);
	if (s->config->consistent && s->config->shared_file) {
		log_path(s, entry, log);
		len += (size_t)sprintf(uri + len, "&wal.path=");
		len += uri_encode(uri + len, MAX_URI - len, log);
	}
	if (keys)
		len += (size_t)sprintf(uri + len, "%c%s", s->config->consistent ? '&' : '?',
				       keys + 1);
	strcpy(uri + len, key);
}

static char *map_file(const struct store *s, const struct entry *entry, const char *key,
		      struct error *e)
{
	char uri[MAX_URI], path[MANIFEST_PATH];

	store_path(s, entry, path);
	make_uri(s, entry, path, key, uri);
	return moment_map(uri, entry, PROT_READ | PROT_WRITE, e);
}

void store_hints(const struct store *s, const struct entry *entry, MPI_Info info)
{
	const struct config *c = s->config;
	char text[MAX_URI], path[MANIFEST_PATH];
	size_t len = 0;

	store_path(s, entry, path);
	for (const char *p = path; *p; p++)
		len += (size_t)sprintf(text + len, *p == '%' ? "%%%%" : "%c", *p);
	PMPI_Info_set(info, "alloc_type", "storage");
	PMPI_Info_set(info, "storage_alloc_filename", text);
	snprintf(text, sizeof(text), "%" PRIu64, entry->at);
	PMPI_Info_set(info, "storage_alloc_offset", text);
	snprintf(text, sizeof(text), "%" PRIu64, c->segsize);
	PMPI_Info_set(info, "storage_alloc_segsize", text);
	make_uri(s, entry, "", "", text);
	PMPI_Info_set(info, "storage_alloc_driver", text);
	/* When a consistent window is freed, all syncs are done, and later changes do not count. */
	PMPI_Info_set(info, "storage_alloc_discard", c->consistent || c->unlink ? "true" : "false");
	PMPI_Info_set(info, "storage_alloc_unlink", c->unlink ? "true" : "false");
}

/* ---- Other jobs ---- */

static int wait_for_lock(int fd)
{
	const struct timespec pause = { .tv_nsec = RETRY_SLEEP_NS };
	int err;

	for (int i = 0; (err = try_lock_bytes(fd, F_WRLCK, 0, 0)) == -EBUSY; i++) {
		if (i == MAX_LOCK_RETRIES)
			break;
		nanosleep(&pause, NULL);
	}
	return err;
}

static void lock_files(struct store *s, struct error *e)
{
	char path[MANIFEST_PATH], owner[40] = "";
	int err;

	manifest_lock(path, &s->names, s->image);
	s->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
	if (s->lock < 0) {
		error_errno(e, errno, "cannot open '%s' for reading and writing: %m", path);
	} else if ((err = wait_for_lock(s->lock)) == 0) {
		snprintf(owner, sizeof(owner), "%d\n", (int)getpid());
		if (ftruncate(s->lock, 0) < 0 || pwrite(s->lock, owner, strlen(owner), 0) < 0)
			error_errno(e, errno, "cannot write '%s': %m", path);
	} else if (err == -EBUSY) {
		if (pread(s->lock, owner, sizeof(owner) - 1, 0) < 0)
			*owner = '\0';
		error_set(e, MPI_ERR_IO,
			  "cannot use the coarrays in PCAF_PATH '%.100s': process %ld of another "
			  "job uses them. Try again when that job has ended, or another PCAF_PATH "
			  "or PCAF_PREFIX",
			  s->config->path, strtol(owner, NULL, 10));
	} else {
		error_errno(e, -err, "cannot lock '%s': %m", path);
	}
}

/* Chooses the driver as windows do: that of UMMAP_DRIVER, or uring if the kernel has it. The lock
 * file is mapped to find out whether the driver works. */
static void choose_driver(struct store *s, struct error *e)
{
	const struct config plain = { .consistent = false };
	struct store probe = { .config = &plain };
	char uri[MAX_URI], path[MANIFEST_PATH];
	void *base;

	strcpy(s->driver, *s->config->driver ? s->config->driver : "uring");
	strcpy(probe.driver, s->driver);
	manifest_lock(path, &s->names, s->image);
	make_uri(&probe, NULL, path, "", uri);
	if (ummap_open(uri, (size_t)sysconf(_SC_PAGESIZE), 0, PROT_READ, NULL, &base) == 0)
		umunmap(base, 0);
	else if (!*s->config->driver && errno == EOPNOTSUPP)
		strcpy(s->driver, "posix");
	else
		error_errno(e, errno, "%s", umerrormsg());
}

void store_open(struct store *s, const struct config *config, int image, struct error *e)
{
	*s = (struct store){ .config = config, .image = image, .keep = MOMENT_KEEP, .lock = -1 };
	s->names.shared = config->shared_file;
	s->names.temporary = config->unlink;
	strcpy(s->names.folder, config->path);
	strcpy(s->names.prefix, config->prefix);
	lock_files(s, e);
	if (e->class == MPI_SUCCESS)
		choose_driver(s, e);
}

/* ---- Contents ---- */

char *store_map(const struct store *s, const struct entry *entry, struct error *e)
{
	return map_file(s, entry, "", e);
}

void store_move(const struct store *s, const struct entry *entry, char *base, struct error *e)
{
	char uri[MAX_URI], path[MANIFEST_PATH];
	void *same = base;

	store_path(s, entry, path);
	make_uri(s, entry, path, "", uri);
	if (umremap_open(base, uri, 0, (off_t)entry->at, 0, &same) < 0)
		error_errno(e, errno, "%s", umerrormsg());
}

void store_look(const struct store *s, const struct entry *entry, struct holding *h,
		struct error *e)
{
	char path[MANIFEST_PATH], log[MANIFEST_PATH], uri[MAX_URI];

	*h = (struct holding){ 0 };
	store_path(s, entry, path);
	log_path(s, entry, log);
	if (access(path, F_OK) < 0 && errno == ENOENT)
		return;
	if (!s->config->consistent && access(log, F_OK) == 0) {
		error_set(e, MPI_ERR_IO,
			  "cannot open the coarrays in PCAF_PATH: the log '%.100s' remains from a "
			  "run with PCAF_CONSISTENT=true. Try that value again",
			  log);
		return;
	}
	make_uri(s, entry, path, "", uri);
	moment_look(uri, entry, s->config->consistent, h, e);
}

void store_go_back(const struct store *s, const struct entry *entry, const struct holding *h,
		   uint64_t epoch, int behind, struct error *e)
{
	char key[MOMENT_KEY + 1] = "&", path[MANIFEST_PATH], *base;

	if (!moment_key(h, epoch, key + 1)) {
		store_path(s, entry, path);
		error_set(e, MPI_ERR_IO,
			  "cannot go back to sync %" PRIu64 ", the newest one of image %d: '%.70s' "
			  "keeps only syncs %" PRIu64 " to %" PRIu64 ". Try to restore the files "
			  "of image %d, or another PCAF_PATH",
			  epoch, behind, path, h->epoch - (h->newest - h->oldest), h->epoch,
			  behind);
		return;
	}
	base = map_file(s, entry, key, e);
	if (base)
		umunmap(base, 0);
}

/* A log that keeps one commit is removed when the mapping ends. */
void store_apply(const struct store *s, const struct entry *entry, struct error *e)
{
	struct store last = *s;
	char path[MANIFEST_PATH], *base;

	log_path(s, entry, path);
	if (entry->small || access(path, F_OK) < 0)
		return;
	last.keep = 1;
	base = map_file(&last, entry, "", e);
	if (base && umunmap(base, 0) < 0)
		error_errno(e, errno, "%s", umerrormsg());
}

/* Equal bytes are not written, so that segments stay clean. */
void store_read_back(const struct store *s, const struct entry *entry, char *base,
		     struct error *e)
{
	static char block[64 << 10];
	char path[MANIFEST_PATH];
	ssize_t n = 1;
	int fd;

	store_path(s, entry, path);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	for (uint64_t at = 0; fd >= 0 && n > 0 && at < entry->size; at += (uint64_t)n) {
		n = pread(fd, block, min_u64(entry->size - at, sizeof(block)),
			  (off_t)(entry->at + at));
		if (n > 0 && memcmp(base + at, block, (size_t)n) != 0)
			memcpy(base + at, block, (size_t)n);
	}
	if (fd < 0 || n < 0)
		error_errno(e, errno, "cannot read '%s': %m", path);
	else if (n == 0)
		error_set(e, MPI_ERR_IO, "cannot read coarray %u: the file '%s' is too short",
			  entry->order, path);
	if (fd >= 0)
		close(fd);
}

/* ---- Removing files ---- */

/* Clears the range of an entry in the file of its image. If the file system cannot make holes, the
 * trailer is cleared, so that the range counts as empty. */
static void clear_range(const char *path, const struct entry *entry)
{
	static const char zeros[ENTRY_TRAILER];
	off_t at = (off_t)entry->at, room = (off_t)entry_room(entry);
	off_t trailer = at + room - ENTRY_TRAILER;
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return;
	if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, room) < 0 &&
	    lseek(fd, 0, SEEK_END) > trailer)
		(void)!pwrite(fd, zeros, sizeof(zeros), trailer);
	close(fd);
}

void store_remove(const struct store *s, const struct entry *entry)
{
	char path[MANIFEST_PATH];

	log_path(s, entry, path);
	unlink(path);
	store_path(s, entry, path);
	if (s->config->shared_file)
		clear_range(path, entry);
	else
		unlink(path);
}

/* Returns whether the name is that of a file of this image with this ID or a larger one. If each
 * image has one file, a name with a number is only that of a log: "a1_2.win" may be the file of
 * image 2 of coarrays with the prefix "a1_". */
static bool is_own_file(const struct store *s, const char *name, unsigned id)
{
	char first[CONFIG_TEXT + 20], *end;

	snprintf(first, sizeof(first), "%s%d_", s->config->prefix, s->image);
	return strncmp(name, first, strlen(first)) == 0 &&
	       strtoul(name + strlen(first), &end, 10) >= id &&
	       ((!s->config->shared_file && strcmp(end, ".win") == 0) ||
		strcmp(end, ".win.wal") == 0);
}

bool store_has_files(const struct store *s, char name[NAME_MAX + 1])
{
	DIR *folder = opendir(s->config->path);
	char shared[CONFIG_TEXT + 20];
	struct dirent *file;
	struct stat st;
	bool found = false;

	snprintf(shared, sizeof(shared), "%s%d.win", s->config->prefix, s->image);
	while (folder && !found && (file = readdir(folder))) {
		strcpy(name, file->d_name);
		found = (is_own_file(s, name, 0) ||
			 (s->config->shared_file && strcmp(name, shared) == 0)) &&
			fstatat(dirfd(folder), name, &st, 0) == 0 && st.st_size > 0;
	}
	if (folder)
		closedir(folder);
	return found;
}

void store_clear(const struct store *s, unsigned id)
{
	DIR *folder = opendir(s->config->path);
	struct dirent *file;

	while (folder && (file = readdir(folder)))
		if (is_own_file(s, file->d_name, id))
			unlinkat(dirfd(folder), file->d_name, 0);
	if (folder)
		closedir(folder);
}
