/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The list of open files is searched by MPI's handles. All ranks open and close files together, and
 * the list is short. Lock: `lock`, around the list.
 */
#include "iocache/open_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct cached *all;

struct cached *open_file_find(MPI_File file)
{
	struct cached *c;

	/* Most programs have no such file, and take no lock. */
	if (!__atomic_load_n(&all, __ATOMIC_ACQUIRE))
		return NULL;
	pthread_mutex_lock(&lock);
	for (c = all; c && c->file != file; c = c->next)
		;
	pthread_mutex_unlock(&lock);
	return c;
}

bool open_file_is_open(const char *path)
{
	struct cached *c;

	pthread_mutex_lock(&lock);
	for (c = all; c && strcmp(c->path, path) != 0; c = c->next)
		;
	pthread_mutex_unlock(&lock);
	return c;
}

void open_file_add(struct cached *c)
{
	pthread_mutex_lock(&lock);
	c->next = all;
	__atomic_store_n(&all, c, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&lock);
}

void open_file_remove(struct cached *c)
{
	struct cached **at = &all;

	pthread_mutex_lock(&lock);
	while (*at && *at != c)
		at = &(*at)->next;
	if (*at)
		__atomic_store_n(at, c->next, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&lock);
}

/* Makes the name of a file's cache: "a_b.dat-0123456789abcdef" for "a b.dat". */
void open_file_name(char name[static CACHED_NAME], const char *path)
{
	static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				      "0123456789._-";
	const char *base = strrchr(path, '/');
	int len = snprintf(name, CACHED_NAME, "%.40s", base ? base + 1 : path);

	for (int i = 0; i < len; i++) {
		if (!strchr(allowed, name[i]))
			name[i] = '_';
	}
	snprintf(name + len, CACHED_NAME - (size_t)len, "-%016llx",
		 (unsigned long long)XXH3_64bits(path, strlen(path)));
}

int open_file_fd(struct cached *c)
{
	int fd = atomic_load(&c->fd), none = -1;

	if (fd >= 0)
		return fd;
	/* Writes are whole sectors, which may have to be read first; after a crash, a job that
	 * reads may have to write. */
	fd = open(c->path, O_RDWR | O_CLOEXEC);
	if (fd < 0 && c->amode & MPI_MODE_RDONLY)
		fd = open(c->path, O_RDONLY | O_CLOEXEC);
	/* Another thread of this rank may have opened the file in the meantime. */
	if (fd < 0 || atomic_compare_exchange_strong(&c->fd, &none, fd))
		return fd;
	close(fd);
	return none;
}
