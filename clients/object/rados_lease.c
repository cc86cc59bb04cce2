/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Leases: locks of the class `lock` on the objects of versions, which last for some seconds by the clock of their OSD. A thread renews those
 * that are kept; whoever dies renews none. Operations that take one are put together here byte by byte, because with librados' own calls
 * they could not be one with the conditions under which they are to happen.
 *
 * Lock: `lock`, around the list.
 */
#include "object/rados.h"

#include "object/error.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LOCK_NAME "held"
#define CLAIMED "claimed"

enum { EXCLUSIVE = 1, SHARED = 2 }; /* as cls_lock has them */

/* What a method of cls_lock is given: its fields, little endian, behind a head of 6 bytes. */
struct input {
	char bytes[160];
	size_t n;
};

static void add_number(struct input *in, uint32_t number, unsigned bytes)
{
	for (; bytes; bytes--, number >>= 8)
		in->bytes[in->n++] = (char)(number & 0xff);
}

static void add_text(struct input *in, const char *text)
{
	size_t len = strlen(text);

	add_number(in, (uint32_t)len, 4);
	memcpy(in->bytes + in->n, text, len);
	in->n += len;
}

static void add_head(struct input *in)
{
	uint32_t len = (uint32_t)in->n - 6;

	in->n = 0;
	add_number(in, 1, 1);   /* version, and the oldest one that understands it */
	add_number(in, 1, 1);
	add_number(in, len, 4);
	in->n += len;
}

void lease_take(rados_write_op_t op, const struct cluster *c, const struct lease *l)
{
	struct input in = { .n = 6 };

	add_text(&in, LOCK_NAME);
	add_number(&in, l->exclusive ? EXCLUSIVE : SHARED, 1);
	add_text(&in, l->cookie);
	add_text(&in, "");       /* tag */
	add_text(&in, "");       /* description */
	add_number(&in, c->lease, 4);
	add_number(&in, 0, 4);   /* nanoseconds */
	add_number(&in, LIBRADOS_LOCK_FLAG_MAY_RENEW, 1);
	add_head(&in);
	rados_write_op_exec(op, "lock", "lock", in.bytes, in.n, NULL);
}

static void add_unlock(rados_write_op_t op, const struct lease *l)
{
	struct input in = { .n = 6 };

	add_text(&in, LOCK_NAME);
	add_text(&in, l->cookie);
	add_head(&in);
	rados_write_op_exec(op, "lock", "unlock", in.bytes, in.n, NULL);
}

/* An attribute that is not there is as an empty one. */
void lease_alive(rados_write_op_t op)
{
	rados_write_op_assert_exists(op);
	rados_write_op_cmpxattr(op, CLAIMED, LIBRADOS_CMPXATTR_OP_EQ, "", 0);
}

struct lease *lease_make(struct cluster *c, const struct umobject_id *id, bool exclusive)
{
	struct lease *l = calloc(1, sizeof(*l));
	char text[37];

	if (!l) {
		object_fail(ENOMEM, "cannot hold a version in 'rados:%s': no memory", c->name);
		return NULL;
	}
	rados_id(id, text);
	l->id = *id;
	l->exclusive = exclusive;
	snprintf(l->oid, sizeof(l->oid), "version.%s", text);
	pthread_mutex_lock(&c->lock);
	snprintf(l->cookie, sizeof(l->cookie), "%llx", (unsigned long long)++c->cookies);
	pthread_mutex_unlock(&c->lock);
	return l;
}

void lease_keep(struct cluster *c, struct lease *l)
{
	pthread_mutex_lock(&c->lock);
	l->next = c->leases;
	c->leases = l;
	pthread_mutex_unlock(&c->lock);
}

static void take_out(struct cluster *c, const struct lease *l)
{
	struct lease **at;

	pthread_mutex_lock(&c->lock);
	for (at = &c->leases; *at && *at != l; at = &(*at)->next)
		;
	if (*at)
		*at = l->next;
	pthread_mutex_unlock(&c->lock);
}

void lease_forget(struct cluster *c, struct lease *l)
{
	take_out(c, l);
	free(l);
}

/* Nobody waits for it: the next operation on this version from here comes behind it. */
static void begin_unlock(const struct cluster *c, const struct lease *l)
{
	rados_write_op_t op = rados_create_write_op();
	rados_completion_t done;

	rados_write_op_assert_exists(op);
	add_unlock(op, l);
	if (rados_begin(c, op, l->oid, &done) == 0)
		rados_aio_release(done);
}

void lease_end(struct cluster *c, struct lease *l)
{
	take_out(c, l);
	begin_unlock(c, l);
	free(l);
}

/* ---- The thread ---- */

static void renew(const struct cluster *c, const struct lease *l, rados_completion_t *done)
{
	rados_write_op_t op = rados_create_write_op();

	/* One that is claimed is lost, of which its commit will be told. */
	if (l->exclusive)
		rados_write_op_assert_exists(op);
	else
		lease_alive(op);
	lease_take(op, c, l);
	rados_begin(c, op, l->oid, done);
}

/* Begun under the lock, so that none is renewed that has ended. */
static void renew_all(struct cluster *c)
{
	rados_completion_t *done;
	const struct lease *l;
	size_t n = 0, i = 0;

	for (l = c->leases; l; l = l->next)
		n++;
	done = calloc(n + 1, sizeof(*done));
	for (l = c->leases; l && done; l = l->next)
		renew(c, l, &done[i++]);
	pthread_mutex_unlock(&c->lock);
	for (i = 0; i < n && done; i++)
		if (done[i])
			rados_finish(done[i]);
	free(done);
	pthread_mutex_lock(&c->lock);
}

static void *keep(void *arg)
{
	struct cluster *c = arg;
	struct timespec until;
	int result;

	pthread_mutex_lock(&c->lock);
	while (!c->ending) {
		clock_gettime(CLOCK_MONOTONIC, &until);
		until.tv_sec += c->lease / 4;
		until.tv_nsec += (long)(c->lease % 4) * 250000000;
		until.tv_sec += until.tv_nsec / 1000000000;
		until.tv_nsec %= 1000000000;
		result = 0;
		while (!c->ending && result != ETIMEDOUT)
			result = pthread_cond_timedwait(&c->wake, &c->lock, &until);
		if (!c->ending)
			renew_all(c);
	}
	pthread_mutex_unlock(&c->lock);
	return NULL;
}

int lease_start(struct cluster *c)
{
	pthread_condattr_t monotonic;
	sigset_t all, before;
	int error;

	pthread_mutex_init(&c->lock, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&c->wake, &monotonic);
	pthread_condattr_destroy(&monotonic);
	/* Signals are the program's. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	error = pthread_create(&c->keeper, NULL, keep, c);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (!error)
		return 0;
	c->keeper = 0;
	return object_fail(error, "cannot start the thread that renews leases: %s",
			   strerror(error));
}

/* What is still kept was doubtful: nobody else will need it here. */
void lease_stop(struct cluster *c)
{
	struct lease *l;

	if (!c->keeper)
		return;
	pthread_mutex_lock(&c->lock);
	c->ending = true;
	pthread_cond_signal(&c->wake);
	pthread_mutex_unlock(&c->lock);
	pthread_join(c->keeper, NULL);
	while ((l = c->leases)) {
		c->leases = l->next;
		begin_unlock(c, l);
		free(l);
	}
	pthread_cond_destroy(&c->wake);
	pthread_mutex_destroy(&c->lock);
}
