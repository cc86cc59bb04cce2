/* SPDX-License-Identifier: BSD-3-Clause */
/* Checks of the table of calls, and of opening and closing. */
#include "conform.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ummap.h>
#include <unistd.h>

void check_calls(void)
{
	struct handle h;
	char scheme[64];
	const struct ummap_driver *d = &h.driver;

	uri_scheme(scheme, sizeof(scheme));
	handle_open(&h);
	expect(d->scheme && strcmp(d->scheme, scheme) == 0,
	       "scheme is \"%s\", but the URI calls it \"%s\"", d->scheme ? d->scheme : "NULL",
	       scheme);
	expect(!d->help || !strchr(d->help, '\n'),
	       "help has more than one line: it must be a description in one line, or NULL");
	expect(!handle_can(&h, UMMAP_CAP_WRITE) || d->write,
	       "UMMAP_CAP_WRITE is set, but write is NULL");
	expect(!handle_can(&h, UMMAP_CAP_GROW) || handle_can(&h, UMMAP_CAP_WRITE),
	       "UMMAP_CAP_GROW is set without UMMAP_CAP_WRITE");
	expect(!handle_can(&h, UMMAP_CAP_ASYNC) || (d->submit && d->reap),
	       "UMMAP_CAP_ASYNC is set, but submit or reap is NULL");
	expect(!d->submit == !d->reap, "submit and reap must both be there, or neither");
	expect(!d->writev || d->write, "writev is there, but write is NULL");
	expect(!handle_can(&h, UMMAP_CAP_PAGECACHE) || d->map_pagecache,
		"UMMAP_CAP_PAGECACHE is set, but map_pagecache is NULL");
	expect(!d->persist || d->map, "persist is there, but map is NULL");
	expect(!d->filter == !uri_is_filter(), d->filter ?
						       "filter is set in a driver that is none" :
						       "filter is not set in a filter's table");
	handle_close(&h);
}

void check_geometry(void)
{
	struct handle h;
	const struct ummap_geom *g = &h.geom;

	handle_fill(&h);
	if (facts->writable)
		handle_flush(&h);
	handle_close(&h);
	handle_open(&h);
	expect(g->align > 0 && (g->align & (g->align - 1)) == 0,
	       "align is %u: it must be a power of two", g->align);
	expect(g->optimal == 0 || g->optimal >= g->align,
	       "optimal is %u, less than align, which is %u", g->optimal, g->align);
	expect(g->size == handle_size(&h), "open says that the store has %ju bytes, size says %ju",
	       (uintmax_t)g->size, (uintmax_t)handle_size(&h));
	expect(options.forgets || options.swallows || g->size >= facts->size,
	       "open says that the store has %ju bytes, but %zu were written", (uintmax_t)g->size,
	       facts->size);
	expect(memchr(g->why, '\0', sizeof(g->why)), "why does not end");
	handle_close(&h);
}

static bool same_store(const struct handle *a, const struct handle *b)
{
	return a->geom.id[0] == b->geom.id[0] && a->geom.id[1] == b->geom.id[1];
}

void check_identity(void)
{
	struct handle a, b, readonly, other;
	char path[URI_MAX + 8], uri[URI_MAX];

	handle_need_two();
	handle_open(&a);
	if (a.geom.id[0] == 0)
		skip("id[0] is 0: the driver cannot tell stores apart");
	handle_open(&b);
	expect(options.forgets || same_store(&a, &b),
	       "two handles of one store have different ids");
	handle_open_readonly(&readonly);
	expect(options.forgets || same_store(&a, &readonly),
	       "a handle for reading has another id than one for writing");
	if (facts->file && facts->creates) {
		snprintf(path, sizeof(path), "%s.other", facts->path);
		uri_with_path(uri, path);
		expect(handle_try(uri, UMMAP_O_WRITE | UMMAP_O_CREATE, &other) == 0,
		       "%s cannot be opened: %s", uri, umerrormsg());
		expect(!same_store(&a, &other), "handles of different stores have the same id");
		handle_close(&other);
	}
	handle_close(&readonly);
	handle_close(&b);
	handle_close(&a);
}

/* Counts descriptors. Each one that is new since `before` must be closed by an exec. */
static unsigned count_descriptors(unsigned char *open_before, bool check_new)
{
	DIR *dir = opendir("/proc/self/fd");
	struct dirent *entry;
	unsigned n = 0;

	expect(dir != NULL, "/proc/self/fd cannot be read");
	while ((entry = readdir(dir))) {
		int fd = atoi(entry->d_name);

		if (entry->d_name[0] == '.' || fd == dirfd(dir) || fd >= 1024)
			continue;
		n++;
		expect(!check_new || open_before[fd] || fcntl(fd, F_GETFD) & FD_CLOEXEC,
		       "descriptor %d is open in programs that the process starts: it needs "
		       "O_CLOEXEC",
		       fd);
		if (!check_new)
			open_before[fd] = 1;
	}
	closedir(dir);
	return n;
}

void check_descriptors(void)
{
	static unsigned char open_before[1024];
	struct handle h;
	char uri[URI_MAX];
	unsigned before, after;

	/* The first handle creates the descriptors that the driver shares among its handles. */
	handle_open(&h);
	handle_close(&h);
	before = count_descriptors(open_before, false);
	for (int i = 0; i < 20; i++) {
		handle_open(&h);
		count_descriptors(open_before, true);
		handle_close(&h);
	}
	after = count_descriptors(open_before, false);
	expect(after <= before,
	       "20 handles that were opened and closed leave %u descriptors behind",
	       after - before);
	uri_with_path(uri, "/no-such-folder/no-such-store");
	for (int i = 0; i < 20 && facts->file; i++)
		expect(handle_try(uri, 0, &h) < 0, "%s could be opened", uri);
	after = count_descriptors(open_before, false);
	expect(after <= before, "20 failures to open leave %u descriptors behind", after - before);
}

static int try_fd(const struct handle *model, int fd, int oflags, struct handle *h)
{
	struct ummap_key direct = { "direct", "auto" };
	struct ummap_uri uri = { .scheme = model->driver.scheme, .path = "", .keys = &direct };
	const char *keys = model->driver.keys;

	/* The library passes this key to every driver that lists it. */
	uri.nkeys = keys && strstr(keys, "direct") != NULL;
	*h = *model;
	pthread_mutex_init(&h->turn, NULL);
	memset(&h->geom, 0, sizeof(h->geom));
	return h->driver.open_fd(&uri, fd, oflags, &h->h, &h->geom);
}

static void check_refused_fd(const struct handle *model, int fd, const char *what)
{
	struct handle h;

	doing("open_fd of %s", what);
	expect(try_fd(model, fd, UMMAP_O_WRITE, &h) < 0, "open_fd takes %s", what);
}

void check_open_fd(void)
{
	struct handle model, h;
	int fd, err, pipes[2];

	handle_fill_writable(&model);
	if (!model.driver.open_fd)
		skip("open_fd is NULL");
	if (uri_is_filter() || !facts->file)
		skip("%s", facts->file ? "the checker cannot build a chain of its own" :
					 "the store is no file");
	handle_flush(&model);
	fd = open(facts->path, O_RDWR | O_CLOEXEC);
	expect(fd >= 0, "%s: %m", facts->path);
	doing("open_fd of %s", facts->path);
	err = try_fd(&model, fd, UMMAP_O_WRITE, &h);
	expect(err == 0, "open_fd: %s%s%s", error_name(err), h.geom.why[0] ? ": " : "", h.geom.why);
	expect(fcntl(fd, F_GETFD) >= 0, "open_fd has closed the caller's descriptor");
	close(fd);
	shadow_compare_all(&h, "through open_fd, with the caller's descriptor closed");
	random_fill(shadow, 1000);
	handle_write(&h, shadow, 1000, 0);
	shadow_compare_all(&h, "after a write through open_fd");
	handle_close(&h);

	expect(pipe2(pipes, O_CLOEXEC) == 0, "pipe: %m");
	check_refused_fd(&model, pipes[0], "a pipe");
	fd = open(facts->path, O_RDONLY | O_CLOEXEC);
	check_refused_fd(&model, fd, "a descriptor for reading only, for a mapping to write");
	close(fd);
	check_refused_fd(&model, fd, "a descriptor that is closed");
	handle_close(&model);
}
