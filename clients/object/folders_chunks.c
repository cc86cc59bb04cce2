/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Chunks as files on the devices of a container. A written file stays open until it is durable.
 * When too many are open, all of them are flushed.
 */
#include "object/folders.h"

#include "common/random.h"
#include "object/error.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#define CHUNK_TEXT 64 /* bytes of the name of a chunk's file */

/* Stores the name of a chunk's file. Returns the index of its device. */
static unsigned find_place(const struct folders *f, const struct umobject_id *id, uint64_t number,
			   char name[static CHUNK_TEXT])
{
	char text[ID_TEXT];

	id_text(id, text);
	snprintf(name, CHUNK_TEXT, "%s.%" PRIu64 ".h5", text, number);
	return (unsigned)(XXH3_64bits_withSeed(id->bytes, sizeof(id->bytes), number) % f->ndevices);
}

/* Does the same. Returns -1 if the device is missing. */
static int find_device(const struct folders *f, const struct umobject_id *id, uint64_t number,
		       char name[static CHUNK_TEXT])
{
	unsigned device = find_place(f, id, number, name);

	return f->device_fds[device] >= 0 ? (int)device :
		object_fail(ENODEV, "cannot use the device '%s' of '%s': it could not be opened "
			    "with the container. Try again when it is mounted", f->devices[device],
			    f->path);
}

static int fail_chunk(const struct folders *f, int device, const char *task, const char *name)
{
	return object_fail(errno, "cannot %s the chunk '%s' on the device '%s' of '%s': %m", task,
			   name, f->devices[device], f->path);
}

/* ---- Flushing ---- */

static bool belongs_to(const struct unsynced *u, const struct umobject_id *id)
{
	return !id || id_same(&u->id, id);
}

/* Flushes files of this id (NULL: all), and their devices, which have their names. */
static int flush_files(const struct folders *f, const struct umobject_id *id, const int *others,
		       unsigned n)
{
	int fds[MAX_UNSYNCED + DEVICES_MAX + MAX_OTHERS];
	bool used[DEVICES_MAX] = { false };

	if (n)
		memcpy(fds, others, n * sizeof(*fds));
	for (unsigned i = 0; i < f->nunsynced; i++) {
		const struct unsynced *u = &f->unsynced[i];

		if (!belongs_to(u, id) || u->fd < 0)
			continue;
		fds[n++] = u->fd;
		used[u->device] = true;
	}
	for (unsigned i = 0; i < f->ndevices; i++)
		if (used[i])
			fds[n++] = f->device_fds[i];
	return n ? durable_all(fds, n) : 0;
}

/* Whether one of the first n entries is the failed flush of an id. */
static bool has_failed(const struct folders *f, unsigned n, const struct umobject_id *id)
{
	while (n-- > 0)
		if (f->unsynced[n].fd < 0 && id_same(&f->unsynced[n].id, id))
			return true;
	return false;
}

/* An error belongs to the put that wrote the chunks. If the chunks of all puts are flushed because
 * there are too many, an entry keeps the error until the put asks for it. */
static int sync_locked(struct folders *f, const struct umobject_id *id, const int *others,
		       unsigned n)
{
	int error = flush_files(f, id, others, n), earlier = 0;
	unsigned left = 0;

	for (unsigned i = 0; i < f->nunsynced; i++) {
		struct unsynced u = f->unsynced[i];
		bool keep = !belongs_to(&u, id);

		if (!keep && u.fd >= 0) {
			close(u.fd);
			u.fd = -1;
			u.error = error;
		}
		if (!keep && u.error) {
			earlier = u.error;
			keep = !id && !has_failed(f, left, &u.id);
		}
		if (keep)
			f->unsynced[left++] = u;
	}
	f->nunsynced = left;
	error = earlier ? earlier : error;
	return error ? object_fail(error, "cannot make the written chunks durable in '%s': %m",
				   f->path) : 0;
}

int sync_chunks(struct folders *f, const struct umobject_id *id, const int *others, unsigned n)
{
	int result;

	pthread_mutex_lock(&f->lock);
	result = sync_locked(f, id, others, n);
	pthread_mutex_unlock(&f->lock);
	return result;
}

static int sync_id(struct backend *b, const struct umobject_id *id)
{
	return sync_chunks(of(b), id, NULL, 0);
}

/* ---- Writing ---- */

static int note_unsynced(struct folders *f, const struct umobject_id *id, int fd, unsigned device)
{
	int result = 0;

	pthread_mutex_lock(&f->lock);
	if (f->nunsynced >= f->max_unsynced)
		result = sync_locked(f, NULL, NULL, 0);
	if (f->nunsynced < MAX_UNSYNCED) {
		f->unsynced[f->nunsynced++] = (struct unsynced){ *id, fd, device, 0 };
		result = 0;
	} else {
		close(fd);
	}
	pthread_mutex_unlock(&f->lock);
	return result;
}

/* If the process has no descriptor left, those of unsynced chunks are closed. */
static int open_temporary(struct folders *f, int device, const char *temporary)
{
	int fd = share_file(f->device_fds[device], temporary, O_WRONLY | O_TRUNC);

	if (fd >= 0 || errno != EMFILE)
		return fd;
	sync_chunks(f, NULL, NULL, 0);
	return share_file(f->device_fds[device], temporary, O_WRONLY | O_TRUNC);
}

/* Writes a temporary file and renames it, so that a replaced chunk is whole at any time. Another
 * machine may write the same chunk, so the temporary name is random. */
static int write_chunk(struct backend *b, const struct umobject_id *id, uint64_t number,
		       const struct iovec *iov, int n)
{
	struct folders *f = of(b);
	char name[CHUNK_TEXT], temporary[CHUNK_TEXT + 32];
	int device = find_device(f, id, number, name), fd, error;

	if (device < 0)
		return -1;
	snprintf(temporary, sizeof(temporary), "%s.%016" PRIx64, name, random_id());
	fd = open_temporary(f, device, temporary);
	if (fd < 0)
		return fail_chunk(f, device, "create", name);
	error = durable_write(fd, iov, n);
	if (!error && renameat(f->device_fds[device], temporary, f->device_fds[device], name) < 0)
		error = errno;
	if (error) {
		unlinkat(f->device_fds[device], temporary, 0);
		close(fd);
		errno = error;
		return fail_chunk(f, device, "write", name);
	}
	/* Begin to write back now, so that the flush takes less time. */
	sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE);
	return note_unsynced(f, id, fd, (unsigned)device);
}

/* ---- Reading ---- */

struct stored_file {
	struct stored s;
	int fd;
};

static int stored_read(struct stored *s, void *to, size_t size, uint64_t at)
{
	int error = durable_read(((struct stored_file *)s)->fd, to, size, at);

	if (error == EBADMSG)
		return object_fail(EBADMSG, "a chunk is damaged: its file is too short");
	return error ? object_fail(error, "cannot read a chunk: %m") : 0;
}

static void stored_close(struct stored *s)
{
	close(((struct stored_file *)s)->fd);
	free(s);
}

static const struct stored_ops stored_ops = { stored_read, stored_close };

static struct stored *open_chunk(struct backend *b, const struct umobject_id *id, uint64_t number)
{
	const struct folders *f = of(b);
	struct stored_file *s = malloc(sizeof(*s));
	char name[CHUNK_TEXT];
	int device = find_device(f, id, number, name);

	if (!s)
		fail_no_memory("open a chunk");
	if (!s || device < 0)
		goto failed;
	*s = (struct stored_file){ { &stored_ops },
				   openat(f->device_fds[device], name,
					  O_RDONLY | O_NONBLOCK | O_CLOEXEC) };
	if (s->fd >= 0)
		return &s->s;
	if (errno == ENOENT)
		object_fail(ENODATA, "chunk %" PRIu64 " is missing: there is no file '%s' on the "
			    "device '%s' of '%s'", number, name, f->devices[device], f->path);
	else
		fail_chunk(f, device, "open", name);
failed:
	free(s);
	return NULL;
}

static int chunk_exists(struct backend *b, const struct umobject_id *id, uint64_t number,
			bool *exists)
{
	const struct folders *f = of(b);
	char name[CHUNK_TEXT];
	int device = find_device(f, id, number, name);

	if (device < 0)
		return -1;
	*exists = faccessat(f->device_fds[device], name, F_OK, 0) == 0;
	return *exists || errno == ENOENT ? 0 : fail_chunk(f, device, "look for", name);
}

void folders_name_chunk(void *b, const struct umobject_id *id, uint64_t number, char *text,
			size_t size)
{
	const struct folders *f = b;
	char name[CHUNK_TEXT];
	const char *device = f->devices[find_place(f, id, number, name)];

	snprintf(text, size, "%s%s/%s", *device == '/' ? "" : "../", device, name);
}

/* ---- Removing ---- */

static int remove_chunks(struct backend *b, const struct umobject_id *id, uint64_t first,
			 uint64_t count)
{
	const struct folders *f = of(b);
	char name[CHUNK_TEXT];

	for (uint64_t number = first; number < first + count; number++) {
		int device = find_device(f, id, number, name);

		if (device < 0)
			return -1;
		if (unlinkat(f->device_fds[device], name, 0) < 0 && errno != ENOENT)
			return fail_chunk(f, device, "remove", name);
	}
	return 0;
}

/* Parses the name of a chunk's file, or of its temporary file. */
static bool parse_file(const char *name, struct umobject_id *id, uint64_t *number)
{
	const char *rest = id_parse(name, id);
	char *end;

	if (!rest || *rest != '.')
		return false;
	*number = strtoull(rest + 1, &end, 10);
	return strncmp(end, ".h5", 3) == 0;
}

static int sweep_device(const struct folders *f, unsigned device, garbage_fn *garbage, void *arg,
			struct umobject_garbage *removed)
{
	int fd = openat(f->device_fds[device], ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), error = 0;
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *e;

	if (!d)
		return object_fail(errno, "cannot read the device '%s' of '%s': %m",
				   f->devices[device], f->path);
	while ((e = readdir(d))) {
		struct umobject_id id;
		uint64_t number;
		struct stat st;

		if (!parse_file(e->d_name, &id, &number) || !garbage(arg, &id, number))
			continue;
		if (fstatat(fd, e->d_name, &st, 0) == 0 && unlinkat(fd, e->d_name, 0) == 0) {
			removed->chunks++;
			removed->bytes += (uint64_t)st.st_size;
		} else if (errno != ENOENT) {
			error = errno;
		}
	}
	closedir(d);
	return error ? object_fail(error, "cannot remove chunks from the device '%s' of '%s': %m",
				   f->devices[device], f->path) : 0;
}

/* Removes chunks from all devices, also after a device has failed. */
static int sweep_devices(struct backend *b, garbage_fn *garbage, void *arg,
			 struct umobject_garbage *removed)
{
	const struct folders *f = of(b);
	int error = 0;

	for (unsigned device = 0; device < f->ndevices; device++) {
		if (f->device_fds[device] < 0)
			object_fail(ENODEV, "cannot remove garbage from the device '%s' of '%s': "
				    "it could not be opened with the container. Try again when it "
				    "is mounted", f->devices[device], f->path);
		else if (sweep_device(f, device, garbage, arg, removed) == 0)
			continue;
		error = errno;
	}
	errno = error;
	return error ? -1 : 0;
}

const struct chunk_ops folders_chunks = {
	.write = write_chunk,
	.sync = sync_id,
	.open = open_chunk,
	.exists = chunk_exists,
	.remove = remove_chunks,
	.sweep = sweep_devices,
};
