/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Garbage of containers in folders. A version that can be locked for oneself is held by nobody, and if it has one link, nobody names it.
 * It stays locked until it is gone, so that nobody begins to hold it. Its chunks stay as long as another version refers to them: each
 * version that is named or held is asked. A version that is made from another one holds that, so what it will refer to is referred to
 * all the time. Chunks come to be after their version, and go before it.
 *
 * Leaves of a folder that no live version owns are of a system that lost power: they go as well.
 */
#include "object/folders.h"

#include "object/durable.h"
#include "object/error.h"
#include "object/id.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* A version that is garbage, and locked. */
struct dead {
	struct umobject_id id;
	int fd;
};

struct collection {
	struct folders *f;
	struct dead *dead;
	size_t ndead;
	struct source *refers;      /* chunks that somebody needs: sorted when all are there */
	size_t nrefers;
	struct umobject_id *asked;  /* versions that are alive, and have said what they need */
	size_t nasked;
	struct umobject_garbage *removed;
};

/* A version whose chunks are not known yet needs all of its id. */
#define ALL UINT64_MAX

static int by_id(const void *a, const void *b)
{
	return memcmp(&((const struct source *)a)->id, &((const struct source *)b)->id, sizeof(struct umobject_id));
}

/* The first that has this id, or a greater one. */
static size_t first_of(const struct collection *c, const struct umobject_id *id)
{
	size_t low = 0, high = c->nrefers;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (memcmp(&c->refers[middle].id, id, sizeof(*id)) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static bool needed(const struct collection *c, const struct umobject_id *id, uint64_t number)
{
	size_t i;

	for (i = first_of(c, id); i < c->nrefers && id_same(&c->refers[i].id, id); i++)
		if (number - c->refers[i].first < c->refers[i].count)
			return true;
	return false;
}

/* One more at the end of a list; false: no memory. */
static bool append(void *list, size_t *n, size_t size, const void *what)
{
	char *grown = realloc(*(void **)list, (*n + 1) * size);

	if (!grown)
		return false;
	memcpy(grown + *n * size, what, size);
	*(void **)list = grown;
	++*n;
	return true;
}

static bool add_references(struct collection *c, const struct object *o)
{
	size_t i;

	for (i = 0; i < o->nsources; i++)
		if (!append(&c->refers, &c->nrefers, sizeof(*o->sources), &o->sources[i]))
			return false;
	/* A put that is under way has chunks of which only the file system knows. */
	return o->version || append(&c->refers, &c->nrefers, sizeof(struct source), &(struct source){ o->id, 0, ALL });
}

/* What a version that is alive refers to. One that is damaged may refer to anything; one that has nothing in it yet is only itself. */
static int ask(struct collection *c, int fd, const struct umobject_id *id, const char *name)
{
	size_t size;
	void *bytes = durable_contents(fd, &size);
	struct object *o = bytes && size ? object_unpack(bytes, size, name) : NULL;
	bool asked = o ? add_references(c, o) : bytes && !size && append(&c->refers, &c->nrefers, sizeof(struct source), &(struct source){ *id, 0, ALL });

	free(bytes);
	object_free(o);
	asked = asked && append(&c->asked, &c->nasked, sizeof(*id), id);
	return asked ? 0 : object_fail(EBADMSG, "the version %s cannot be read, so nobody knows which chunks are in use: nothing was removed", name);
}

/* Its descriptor, locked, if nobody names or holds it; -1: it is alive, and *fd is open to be asked; -2: it is not there. */
static int lock_dead(const struct folders *f, const char *name, int *fd)
{
	struct stat st;

	*fd = openat(f->folder[LIVE], name, O_RDWR | O_CLOEXEC);
	if (*fd < 0)
		return -2;
	return flock(*fd, LOCK_EX | LOCK_NB) == 0 && fstat(*fd, &st) == 0 && st.st_nlink == 1 ? *fd : -1;
}

/* What a crash has left between a link and its renaming. */
static void drop_temporary(const struct folders *f, const char *id)
{
	static const int where[] = { LIVE, NAMES, VERSIONS, H5 };
	char name[ID_TEXT + 2];
	size_t i;

	snprintf(name, sizeof(name), ".%.36s", id);
	for (i = 0; i < sizeof(where) / sizeof(*where); i++)
		unlinkat(f->folder[where[i]], name, 0);
}

static int look_at(struct collection *c, const char *name)
{
	struct umobject_id id;
	int fd, state, result = 0;

	if (!id_parse(name, &id))
		return 0;
	state = lock_dead(c->f, name, &fd);
	if (state == -1 && flock(fd, LOCK_EX | LOCK_NB) == 0) {
		/* Nobody holds it, so a link without a name is of nobody who is still at work. */
		drop_temporary(c->f, name);
		flock(fd, LOCK_UN);
		close(fd);
		state = lock_dead(c->f, name, &fd);
	}
	if (state >= 0) {
		if (!append(&c->dead, &c->ndead, sizeof(struct dead), &(struct dead){ id, fd })) {
			close(fd);
			result = object_fail(ENOMEM, "no memory for a list of versions");
		}
	} else if (state == -1) {
		result = ask(c, fd, &id, name);
		close(fd);
	}
	return result;
}

static int find_dead(struct collection *c)
{
	DIR *d = folders_read(c->f, LIVE);
	const struct dirent *e;
	int result = 0;

	if (!d)
		return -1;
	while (result == 0 && (e = readdir(d)))
		result = look_at(c, e->d_name);
	closedir(d);
	if (c->nrefers)
		qsort(c->refers, c->nrefers, sizeof(*c->refers), by_id);
	return result;
}

/* The id and the number of a file in a device: of a chunk, or of one that was being written. */
static bool parse_file(const char *name, struct umobject_id *id, uint64_t *number)
{
	char text[ID_TEXT], *end;

	if (strlen(name) < ID_TEXT || name[ID_TEXT - 1] != '.')
		return false;
	memcpy(text, name, ID_TEXT - 1);
	text[ID_TEXT - 1] = '\0';
	*number = strtoull(name + ID_TEXT, &end, 10);
	return id_parse(text, id) && strncmp(end, ".h5", 3) == 0;
}

/* Of a version that began after the others were asked, nothing goes. */
static bool may_go(const struct collection *c, const struct umobject_id *id)
{
	char name[ID_TEXT];
	size_t i;

	for (i = 0; i < c->ndead; i++)
		if (id_same(&c->dead[i].id, id))
			return true;
	for (i = 0; i < c->nasked; i++)
		if (id_same(&c->asked[i], id))
			return true;
	id_text(id, name);
	return faccessat(c->f->folder[LIVE], name, F_OK, 0) < 0 && errno == ENOENT;
}

static int sweep(struct collection *c, unsigned device)
{
	int fd = openat(c->f->devices[device], ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *e;

	if (!d)
		return object_fail(errno, "%s cannot be read: %s", c->f->device_paths[device], strerror(errno));
	while ((e = readdir(d))) {
		struct umobject_id id;
		uint64_t number;
		struct stat st;

		if (!parse_file(e->d_name, &id, &number) || needed(c, &id, number) || !may_go(c, &id))
			continue;
		if (fstatat(c->f->devices[device], e->d_name, &st, 0) == 0 && unlinkat(c->f->devices[device], e->d_name, 0) == 0) {
			c->removed->chunks++;
			c->removed->bytes += (uint64_t)st.st_size;
		}
	}
	closedir(d);
	return 0;
}

static void remove_version(const struct folders *f, const struct umobject_id *id)
{
	char name[ID_TEXT + 3];

	id_text(id, name);
	drop_temporary(f, name);
	unlinkat(f->folder[LIVE], name, 0);
	strcat(name, ".h5");
	unlinkat(f->folder[VIEWS], name, 0);
}

/* Who collects keeps others from doing so. */
static int lock_collection(const struct folders *f)
{
	int fd = openat(f->folder[LOCKS], "collect", O_RDWR | O_CREAT | O_CLOEXEC, 0666);

	if (fd < 0)
		return object_fail(errno, "%s/locks/collect cannot be opened: %s", f->path, strerror(errno));
	while (flock(fd, LOCK_EX) < 0 && errno == EINTR)
		;
	return fd;
}

int folders_collect(struct backend *b, struct umobject_garbage *removed)
{
	struct collection c = { .f = of(b), .removed = removed };
	int lock = lock_collection(c.f), result;
	unsigned device;
	size_t i;

	if (lock < 0)
		return -1;
	result = find_dead(&c);
	for (device = 0; device < c.f->ndevices && result == 0; device++)
		result = c.f->devices[device] < 0 ?
			object_fail(ENODEV, "the device %s is not there: nothing is removed from it", c.f->device_paths[device]) : sweep(&c, device);
	for (i = 0; i < c.ndead; i++) {
		/* Its chunks may be needed though nobody needs the version: these are found by their own. */
		if (result == 0) {
			remove_version(c.f, &c.dead[i].id);
			removed->versions++;
		}
		close(c.dead[i].fd);
	}
	close(lock);
	free(c.dead);
	free(c.refers);
	free(c.asked);
	return result;
}

int folders_version_remove(struct backend *b, const struct umobject_id *id, const struct source *own, size_t n)
{
	struct folders *f = of(b);
	char name[ID_TEXT];
	uint64_t number;
	size_t i;
	int fd;

	id_text(id, name);
	if (lock_dead(f, name, &fd) >= 0) {
		for (i = 0; i < n; i++)
			for (number = own[i].first; number < own[i].first + own[i].count; number++)
				b->ops->chunk_remove(b, id, number);
		remove_version(f, id);
	}
	if (fd >= 0)
		close(fd);
	return 0;
}
