/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A mapped coarray has its room in a file of its own, or in the one file of its image, and behind it a trailer with the
 * number of the job's sync that it is of. Where a restart brings back one moment, the store is behind wal+: contents and
 * trailer change together, and the last two syncs can be opened. A log's own numbers begin anew with each log; the trailer
 * says which is which.
 */
#include "coarray/store.h"

#include "common/memory_calls.h"
#include "common/try_lock.h"
#include "transport/engine.h"

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

#define URI (8 * CONFIG_TEXT)
/* For how long images of a job that was killed may go on. */
#define LOCK_TRIES 100
#define LOCK_PAUSE 50000000

/* ---- Names ---- */

void store_path(const struct store *s, const struct entry *entry, char *path)
{
	manifest_file(path, &s->names, s->image, entry);
}

static void log_path(const struct store *s, const struct entry *entry, char *path)
{
	manifest_log(path, &s->names, s->image, entry);
}

/* As the hint storage_alloc_driver has it, "scheme:?keys". */
static void add_driver(const struct store *s, const struct entry *entry, char *driver)
{
	size_t scheme = strcspn(s->driver, ":");
	const char *keys = s->driver[scheme] ? s->driver + scheme + 1 : "";
	char log[MANIFEST_PATH];
	size_t len;

	if (!s->config->consistent) {
		strcpy(driver, s->driver);
		return;
	}
	len = (size_t)sprintf(driver, "wal+%.*s:?wal.keep=%d", (int)scheme, s->driver, s->keep);
	if (s->config->shared_file) {
		log_path(s, entry, log);
		len += (size_t)sprintf(driver + len, "&wal.path=");
		len += manifest_encode(driver + len, log);
	}
	if (*keys == '?')
		sprintf(driver + len, "&%s", keys + 1);
}

static void make_uri(const struct store *s, const struct entry *entry, const char *key, char *uri)
{
	char driver[URI], path[MANIFEST_PATH];
	const char *keys;
	size_t len;

	add_driver(s, entry, driver);
	store_path(s, entry, path);
	keys = strchr(driver, ':');
	len = (size_t)sprintf(uri, "%.*s:", (int)(keys ? (size_t)(keys - driver) : strlen(driver)), driver);
	len += manifest_encode(uri + len, path);
	sprintf(uri + len, "%s%s", keys ? keys + 1 : "", key);
}

static void add_hint(MPI_Info info, const char *name, const char *value)
{
	if (*value)
		PMPI_Info_set(info, name, value);
}

void store_hints(const struct store *s, const struct entry *entry, MPI_Info info)
{
	const struct config *c = s->config;
	char text[URI], path[MANIFEST_PATH];
	size_t len = 0;

	store_path(s, entry, path);
	for (const char *p = path; *p; p++)
		len += (size_t)sprintf(text + len, *p == '%' ? "%%%%" : "%c", *p);
	add_hint(info, "alloc_type", "storage");
	add_hint(info, "storage_alloc_filename", text);
	snprintf(text, sizeof(text), "%" PRIu64, entry->at);
	add_hint(info, "storage_alloc_offset", text);
	snprintf(text, sizeof(text), "%" PRIu64, c->segsize);
	add_hint(info, "storage_alloc_segsize", text);
	add_driver(s, entry, text);
	add_hint(info, "storage_alloc_driver", text);
	/* All is durable by then, and nothing newer is to be. */
	add_hint(info, "storage_alloc_discard", c->consistent || c->unlink ? "true" : "false");
	add_hint(info, "storage_alloc_unlink", c->unlink ? "true" : "false");
	add_hint(info, "striping_unit", c->stripe_size);
	add_hint(info, "striping_factor", c->stripe_count);
}

/* ---- Other jobs ---- */

static int take_lock(int fd)
{
	int err = -EBUSY;

	for (int i = 0; i < LOCK_TRIES; i++) {
		err = try_lock_bytes(fd, F_WRLCK, 0, 0);
		if (err != -EBUSY)
			break;
		nanosleep(&(struct timespec){ .tv_nsec = LOCK_PAUSE }, NULL);
	}
	return err;
}

static void lock(struct store *s, struct error *e)
{
	char path[MANIFEST_PATH], owner[40] = "";
	int err;

	manifest_lock(path, &s->names, s->image);
	s->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
	if (s->lock < 0) {
		error_errno(e, errno, "cannot open '%s' for reading and writing: %s", path,
			    strerror(errno));
	} else if ((err = take_lock(s->lock)) == 0) {
		snprintf(owner, sizeof(owner), "%d\n", (int)getpid());
		if (ftruncate(s->lock, 0) < 0 || pwrite(s->lock, owner, strlen(owner), 0) < 0)
			error_errno(e, errno, "cannot write '%s': %s", path, strerror(errno));
	} else if (err == -EBUSY) {
		if (pread(s->lock, owner, sizeof(owner) - 1, 0) < 0)
			*owner = '\0';
		error_set(e, MPI_ERR_IO,
			  "cannot use the coarrays in PCAF_PATH '%.100s': process %ld of another "
			  "job uses them. Try again when that job has ended, or another PCAF_PATH "
			  "or PCAF_PREFIX",
			  s->config->path, strtol(owner, NULL, 10));
	} else {
		error_errno(e, -err, "cannot lock '%s': %s", path, strerror(-err));
	}
}

/* As the window layer does: by io_uring where the kernel has it. What it is is tried on a file that is there. */
static void choose_driver(struct store *s, struct error *e)
{
	const char *wanted = s->config->driver, *keys = strchr(wanted, ':');
	char uri[2 * URI], path[MANIFEST_PATH];
	void *probe;
	size_t len;

	manifest_lock(path, &s->names, s->image);
	strcpy(s->driver, *wanted ? wanted : "uring");
	len = (size_t)sprintf(uri, "%.*s:", (int)strcspn(s->driver, ":"), s->driver);
	len += manifest_encode(uri + len, path);
	strcpy(uri + len, keys ? keys + 1 : "");
	if (ummap_open(uri, (size_t)sysconf(_SC_PAGESIZE), 0, PROT_READ, NULL, &probe) == 0)
		umunmap(probe, 0);
	else if (*wanted)
		error_errno(e, errno, "PCAF_DRIVER is \"%.100s\": %s", wanted, umerrormsg());
	else if (errno == EOPNOTSUPP)
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
	lock(s, e);
	if (e->class == MPI_SUCCESS)
		choose_driver(s, e);
}

/* ---- Contents ---- */

static char *map(const struct store *s, const struct entry *entry, const char *key, int prot, struct error *e)
{
	char uri[2 * URI];

	make_uri(s, entry, key, uri);
	return moment_map(uri, entry, prot, e);
}

char *store_map(const struct store *s, const struct entry *entry, struct error *e)
{
	return map(s, entry, "", PROT_READ | PROT_WRITE, e);
}

void store_move(const struct store *s, const struct entry *entry, char *base, struct error *e)
{
	char uri[2 * URI];
	void *same = base;

	make_uri(s, entry, "", uri);
	if (umremap_open(base, uri, 0, (off_t)entry->at, 0, &same) < 0)
		error_errno(e, errno, "%s", umerrormsg());
}

void store_look(const struct store *s, const struct entry *entry, struct holding *h, struct error *e)
{
	char path[MANIFEST_PATH], log[MANIFEST_PATH], uri[2 * URI];

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
	make_uri(s, entry, "", uri);
	moment_look(uri, entry, s->config->consistent, h, e);
}

void store_go_back(const struct store *s, const struct entry *entry, const struct holding *h, uint64_t epoch, int behind,
		   struct error *e)
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
	base = map(s, entry, key, PROT_READ | PROT_WRITE, e);
	if (base)
		umunmap(base, 0);
}

void store_apply(const struct store *s, const struct entry *entry, struct error *e)
{
	struct store last = *s;
	char path[MANIFEST_PATH], *base;

	log_path(s, entry, path);
	if (entry->small || access(path, F_OK) < 0)
		return;
	last.keep = 1;
	base = map(&last, entry, "", PROT_READ | PROT_WRITE, e);
	if (base && umunmap(base, 0) < 0)
		error_errno(e, errno, "%s", umerrormsg());
}

void store_read_back(const struct store *s, const struct entry *entry, char *base, struct error *e)
{
	static char block[64 << 10];
	char path[MANIFEST_PATH];
	ssize_t n = 1;
	int fd;

	store_path(s, entry, path);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	for (uint64_t at = 0; fd >= 0 && n > 0 && at < entry->size; at += (uint64_t)n) {
		uint64_t rest = entry->size - at;

		n = pread(fd, block, rest < sizeof(block) ? rest : sizeof(block), (off_t)(entry->at + at));
		if (n > 0 && memcmp(base + at, block, (size_t)n) != 0)
			memcpy(base + at, block, (size_t)n);
	}
	if (fd < 0 || n < 0)
		error_errno(e, errno, "cannot read '%s': %s", path, strerror(errno));
	else if (n == 0)
		error_set(e, MPI_ERR_IO, "cannot read coarray %u: the file '%s' is too short",
			  entry->order, path);
	if (fd >= 0)
		close(fd);
}

/* A shared file keeps its length, and gives the room back where the file system can. */
static void clear_room(const char *path, const struct entry *entry)
{
	static const char zeros[ENTRY_TRAILER];
	off_t at = (off_t)entry->at, room = (off_t)entry_room(entry);
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	off_t size = fd < 0 ? 0 : lseek(fd, 0, SEEK_END);

	if (fd < 0)
		return;
	if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, room) < 0 && size > at + room - ENTRY_TRAILER)
		(void)!pwrite(fd, zeros, sizeof(zeros), at + room - ENTRY_TRAILER);
	close(fd);
}

void store_remove(const struct store *s, const struct entry *entry)
{
	char path[MANIFEST_PATH];

	log_path(s, entry, path);
	unlink(path);
	store_path(s, entry, path);
	if (s->config->shared_file)
		clear_room(path, entry);
	else
		unlink(path);
}

/* Whether the name is that of a file of this image, of a coarray with this ID or a later one. Where
 * an image has one file for all, a name with a number is only that of a log: "a1_2.win" may be the
 * file of the image 2 of coarrays with the prefix "a1_". */
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
		if (!is_own_file(s, file->d_name, 0) &&
		    !(s->config->shared_file && strcmp(file->d_name, shared) == 0))
			continue;
		strcpy(name, file->d_name);
		found = fstatat(dirfd(folder), name, &st, 0) == 0 && st.st_size > 0;
	}
	if (folder)
		closedir(folder);
	return found;
}

void store_clear(const struct store *s, unsigned id)
{
	DIR *folder = opendir(s->config->path);
	char path[MANIFEST_PATH];
	struct dirent *file;

	while (folder && (file = readdir(folder))) {
		if (!is_own_file(s, file->d_name, id))
			continue;
		snprintf(path, sizeof(path), "%s/%s", s->config->path, file->d_name);
		unlink(path);
	}
	if (folder)
		closedir(folder);
}
