/* SPDX-License-Identifier: BSD-3-Clause */
/* Lock: `turn` of a struct behind, a leaf, which is not taken if the driver works in parallel. */
#include "behind.h"

#include "common/futex.h"
#include "common/minmax.h"
#include "keys.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define ENCODED "%?&={}"               /* in paths and values of a URI */

static void take_turn(struct behind *b)
{
	if (!(b->caps & UMMAP_CAP_PARALLEL))
		futex_lock(&b->turn);
}

static void end_turn(struct behind *b)
{
	if (!(b->caps & UMMAP_CAP_PARALLEL))
		futex_unlock(&b->turn);
}

int behind_open(struct behind *b, const struct ummap_uri *uri, int fd, int oflags,
		struct ummap_geom *geom)
{
	int err = -EINVAL;

	memset(b, 0, sizeof(*b));
	memcpy(&b->driver, uri->next, min_size(uri->next->struct_size, sizeof(b->driver)));
	if (fd < 0)
		err = b->driver.open(uri->next_uri, oflags, &b->h, geom);
	else if (b->driver.open_fd)
		err = b->driver.open_fd(uri->next_uri, fd, oflags, &b->h, geom);
	else
		keys_refuse(geom, EINVAL, "cannot open a descriptor: the driver '%.140s' takes "
			    "none", b->driver.scheme);
	if (err)
		return err;
	if (!b->driver.write)
		geom->caps &= ~(UMMAP_CAP_WRITE | UMMAP_CAP_GROW);
	if (!b->driver.submit || !b->driver.reap)
		geom->caps &= ~UMMAP_CAP_ASYNC;
	b->caps = geom->caps;
	b->size = geom->size;
	b->pid = getpid();
	geom->caps &= ~(UMMAP_CAP_ASYNC | UMMAP_CAP_PAGECACHE);
	return 0;
}

int behind_close(struct behind *b)
{
	return b->driver.close(b->h);
}

/* Text that ends at `end`; what does not fit has no end. */
struct text {
	char *at, *end;
};

static void add(struct text *t, const char *s, const char *encoded)
{
	for (; *s && t->at + 4 < t->end; s++)
		t->at += sprintf(t->at, strchr(encoded, *s) ? "%%%02x" : "%c", (unsigned char)*s);
	if (*s)
		t->at = t->end;
}

/* From the folder of this process, if it does not begin with a slash. */
static void add_path(struct text *t, const char *path)
{
	char folder[PATH_MAX];

	if (*path != '/' && getcwd(folder, sizeof(folder))) {
		add(t, folder, ENCODED);
		add(t, "/", "");
	}
	add(t, path, ENCODED);
}

/* Of filters, the one that is a path names the file that they have. */
static void add_value(struct text *t, const struct ummap_uri *uri, const struct ummap_key *key)
{
	if (uri->next_uri && strcmp(key->name, "path") == 0)
		add_path(t, key->value);
	else
		add(t, key->value, ENCODED);
}

void behind_uri(const struct ummap_uri *uri, char *to, size_t size)
{
	struct text t = { to, to + size };
	const char *between = "?";
	bool is_bucket = false;

	for (const struct ummap_uri *u = uri->next_uri; u; u = u->next_uri) {
		add(&t, u->scheme, "");
		add(&t, u->next_uri ? "+" : ":", "");
		is_bucket = strcmp(u->scheme, "s3") == 0;
	}
	/* A bucket is in no folder. */
	if (is_bucket)
		add(&t, uri->path, ENCODED);
	else
		add_path(&t, uri->path);
	for (const struct ummap_uri *u = uri->next_uri; u; u = u->next_uri) {
		for (unsigned i = 0; i < u->nkeys; i++, between = "&") {
			add(&t, between, "");
			add(&t, u->next_uri ? u->scheme : "", "");
			add(&t, u->next_uri ? "." : "", "");
			add(&t, u->keys[i].name, "");
			add(&t, "=", "");
			add_value(&t, u, &u->keys[i]);
		}
	}
	if (t.at < t.end)
		*t.at = '\0';
	else
		*to = '\0';
}

static bool is_one_of(const char *scheme, const char *const *names)
{
	while (*names && strcmp(scheme, *names) != 0)
		names++;
	return *names;
}

void behind_way(const struct ummap_uri *uri, char way[BEHIND_WAY])
{
	static const char *const transparent[] = { TRANSPARENT_FILTERS, NULL };
	static const char *const of_files[] = { FILE_DRIVERS, NULL };
	struct text t = { way, way + BEHIND_WAY };

	for (const struct ummap_uri *u = uri->next_uri; u; u = u->next_uri) {
		if (u->next_uri && is_one_of(u->scheme, transparent))
			continue;
		add(&t, is_one_of(u->scheme, of_files) ? FILE_WAY : u->scheme, "");
		add(&t, u->next_uri ? "+" : "", "");
	}
	way[t.at < t.end ? t.at - way : BEHIND_WAY - 1] = '\0';
}

bool behind_inherited(const struct behind *b)
{
	return b->pid != getpid();
}

int behind_readv(struct behind *b, const struct iovec *iov, int n, uint64_t off)
{
	int err = 0;

	take_turn(b);
	if (b->driver.readv && n > 1) {
		err = b->driver.readv(b->h, iov, n, off);
		n = 0;
	}
	for (int i = 0; i < n && !err; off += iov[i++].iov_len)
		err = b->driver.read(b->h, iov[i].iov_base, iov[i].iov_len, off);
	end_turn(b);
	return err;
}

/* Where the store ends is written down for drivers that do not say. */
static void has_written(struct behind *b, uint64_t end)
{
	uint64_t size = b->size;

	while (size < end && !atomic_compare_exchange_weak(&b->size, &size, end))
		;
}

int behind_writev(struct behind *b, const struct iovec *iov, int n, uint64_t off)
{
	int err = 0;

	if (!b->driver.write)
		return -EBADF;
	take_turn(b);
	if (b->driver.writev && n > 1) {
		err = b->driver.writev(b->h, iov, n, off);
		while (n > 0)
			off += iov[--n].iov_len;
	}
	for (int i = 0; i < n && !err; off += iov[i++].iov_len)
		err = b->driver.write(b->h, iov[i].iov_base, iov[i].iov_len, off);
	end_turn(b);
	if (!err)
		has_written(b, off);
	return err;
}

int behind_read(struct behind *b, void *buf, size_t len, uint64_t off)
{
	return behind_readv(b, &(struct iovec){ buf, len }, 1, off);
}

int behind_write(struct behind *b, const void *buf, size_t len, uint64_t off)
{
	return behind_writev(b, &(struct iovec){ (void *)(uintptr_t)buf, len }, 1, off);
}

bool behind_is_async(const struct behind *b)
{
	uint32_t caps = UMMAP_CAP_ASYNC | UMMAP_CAP_PARALLEL;

	return (b->caps & caps) == caps;
}

int behind_submit(struct behind *b, struct ummap_io *io)
{
	return b->driver.submit(b->h, &io, 1);
}

int behind_reap(struct behind *b, struct ummap_io **done, unsigned max, unsigned min)
{
	int got = b->driver.reap(b->h, done, max, min);

	for (int i = 0; i < got; i++) {
		if (done[i]->op == UMMAP_IO_WRITE && !done[i]->res)
			has_written(b, done[i]->off + done[i]->len);
	}
	return got;
}

int behind_flush(struct behind *b, uint64_t off, uint64_t len)
{
	int err;

	if (!b->driver.flush)
		return 0;
	take_turn(b);
	err = b->driver.flush(b->h, off, len);
	end_turn(b);
	return err;
}

int behind_resize(struct behind *b, uint64_t size)
{
	int err;

	if (!b->driver.resize)
		return -EOPNOTSUPP;
	take_turn(b);
	err = b->driver.resize(b->h, size);
	end_turn(b);
	if (!err)
		b->size = size;
	return err;
}

int behind_size(struct behind *b, uint64_t *size)
{
	if (b->driver.size)
		return b->driver.size(b->h, size);
	*size = b->size;
	return 0;
}

int behind_identity(struct behind *b, uint64_t id[2])
{
	return b->driver.identity ? b->driver.identity(b->h, id) : -EOPNOTSUPP;
}

int behind_lock(struct behind *b, uint64_t off, uint64_t len, int how, char why[160])
{
	return b->driver.lock ? b->driver.lock(b->h, off, len, how, why) : 0;
}

int behind_hand_over(struct behind *b, struct ummap_handover *to)
{
	return b->driver.hand_over ? b->driver.hand_over(b->h, to) : 0;
}

int behind_commits(struct behind *b, uint64_t *oldest, uint64_t *newest)
{
	return b->driver.commits ? b->driver.commits(b->h, oldest, newest) : -EOPNOTSUPP;
}

int behind_push(struct behind *b)
{
	return b->driver.push ? b->driver.push(b->h) : -EOPNOTSUPP;
}

void behind_set_notice(struct behind *b, ummap_notice *notice, void *arg)
{
	if (b->driver.set_notice)
		b->driver.set_notice(b->h, notice, arg);
}
