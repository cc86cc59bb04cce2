/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Leases: locks of the class `lock` on the objects of versions, which expire by the clock of their
 * OSD. A thread renews them; a process that dies renews none. Operations that take a lease are
 * encoded here, because the calls of librados for locks cannot be combined with conditions in one
 * operation.
 *
 * Lock: lease_lock, around the list of leases. Renewals begin under it, so no lease is renewed
 * after its end.
 */
#include "object/rados.h"

#include "object/error.h"

#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LOCK_NAME "held"
#define CLAIMED "claimed"
#define HEADER_BYTES 6

enum { EXCLUSIVE = 1, SHARED = 2 }; /* values of cls_lock */

/* The input of a method of cls_lock: a header, and fields in little endian. */
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

static void add_header(struct input *in)
{
	uint32_t len = (uint32_t)in->n - HEADER_BYTES;

	in->n = 0;
	add_number(in, 1, 1);   /* version, and the oldest version that understands it */
	add_number(in, 1, 1);
	add_number(in, len, 4);
	in->n += len;
}

void lease_take(rados_write_op_t op, const struct cluster *c, const struct rados_lease *l)
{
	struct input in = { .n = HEADER_BYTES };

	add_text(&in, LOCK_NAME);
	add_number(&in, l->is_exclusive ? EXCLUSIVE : SHARED, 1);
	add_text(&in, l->cookie);
	add_text(&in, "");       /* tag */
	add_text(&in, "");       /* description */
	add_number(&in, c->lease, 4);
	add_number(&in, 0, 4);   /* nanoseconds */
	add_number(&in, LIBRADOS_LOCK_FLAG_MAY_RENEW, 1);
	add_header(&in);
	rados_write_op_exec(op, "lock", "lock", in.bytes, in.n, NULL);
}

static void add_unlock(rados_write_op_t op, const struct rados_lease *l)
{
	struct input in = { .n = HEADER_BYTES };

	add_text(&in, LOCK_NAME);
	add_text(&in, l->cookie);
	add_header(&in);
	rados_write_op_exec(op, "lock", "unlock", in.bytes, in.n, NULL);
}

/* A missing attribute equals an empty one. */
void lease_require_unclaimed(rados_write_op_t op)
{
	rados_write_op_assert_exists(op);
	rados_write_op_cmpxattr(op, CLAIMED, LIBRADOS_CMPXATTR_OP_EQ, "", 0);
}

struct rados_lease *lease_make(struct cluster *c, const struct umobject_id *id, bool exclusive)
{
	struct rados_lease *l = calloc(1, sizeof(*l));
	char text[ID_TEXT];

	if (!l) {
		fail_no_memory("hold a version");
		return NULL;
	}
	id_text(id, text);
	l->id = *id;
	l->is_exclusive = exclusive;
	snprintf(l->oid, sizeof(l->oid), "version.%s", text);
	pthread_mutex_lock(&c->lease_lock);
	snprintf(l->cookie, sizeof(l->cookie), "%" PRIx64, ++c->cookies);
	pthread_mutex_unlock(&c->lease_lock);
	return l;
}

void lease_keep(struct cluster *c, struct rados_lease *l)
{
	pthread_mutex_lock(&c->lease_lock);
	l->next = c->leases;
	c->leases = l;
	pthread_mutex_unlock(&c->lease_lock);
}

static void remove_lease(struct cluster *c, const struct rados_lease *l)
{
	struct rados_lease **at;

	pthread_mutex_lock(&c->lease_lock);
	for (at = &c->leases; *at && *at != l; at = &(*at)->next)
		;
	if (*at)
		*at = l->next;
	pthread_mutex_unlock(&c->lease_lock);
}

static void free_lease(struct rados_lease *l)
{
	free(l->lease.record.data);
	free(l);
}

void lease_forget(struct cluster *c, struct rados_lease *l)
{
	remove_lease(c, l);
	free_lease(l);
}

/* No caller waits for the unlock: the next operation of this process on the version follows it. */
static void begin_unlock(const struct cluster *c, const struct rados_lease *l)
{
	rados_write_op_t op = rados_create_write_op();
	rados_completion_t done;

	rados_write_op_assert_exists(op);
	add_unlock(op, l);
	if (rados_begin(c, op, l->oid, &done) == 0)
		rados_aio_release(done);
}

void lease_end(struct cluster *c, struct rados_lease *l)
{
	remove_lease(c, l);
	begin_unlock(c, l);
	free_lease(l);
}

/* ---- The thread ---- */

static void begin_renewal(const struct cluster *c, const struct rados_lease *l,
			  rados_completion_t *done)
{
	rados_write_op_t op = rados_create_write_op();

	/* A claimed version is lost. Its commit reports that. */
	if (l->is_exclusive)
		rados_write_op_assert_exists(op);
	else
		lease_require_unclaimed(op);
	lease_take(op, c, l);
	rados_begin(c, op, l->oid, done);
}

/* Unlocks the list while it waits for the cluster. */
static void renew_all_locked(struct cluster *c)
{
	const struct rados_lease *l;
	rados_completion_t *done;
	size_t n = 0, i = 0;

	for (l = c->leases; l; l = l->next)
		n++;
	done = calloc(n + 1, sizeof(*done));
	for (l = c->leases; l && done; l = l->next)
		begin_renewal(c, l, &done[i++]);
	pthread_mutex_unlock(&c->lease_lock);
	for (i = 0; i < n && done; i++)
		if (done[i])
			rados_finish(done[i]);
	free(done);
	pthread_mutex_lock(&c->lease_lock);
}

static void *run_renewer(void *arg)
{
	struct cluster *c = arg;
	struct timespec until;
	int result;

	pthread_mutex_lock(&c->lease_lock);
	while (!c->is_ending) {
		clock_gettime(CLOCK_MONOTONIC, &until);
		until.tv_sec += c->lease / 4;
		until.tv_nsec += (long)(c->lease % 4) * 250000000;
		until.tv_sec += until.tv_nsec / 1000000000;
		until.tv_nsec %= 1000000000;
		result = 0;
		while (!c->is_ending && result != ETIMEDOUT)
			result = pthread_cond_timedwait(&c->wake, &c->lease_lock, &until);
		if (!c->is_ending)
			renew_all_locked(c);
	}
	pthread_mutex_unlock(&c->lease_lock);
	return NULL;
}

int lease_start(struct cluster *c)
{
	pthread_condattr_t monotonic;
	sigset_t all, before;
	int error;

	pthread_mutex_init(&c->lease_lock, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&c->wake, &monotonic);
	pthread_condattr_destroy(&monotonic);
	/* The thread takes no signals of the program. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	error = pthread_create(&c->renewer, NULL, run_renewer, c);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (!error)
		return 0;
	c->renewer = 0;
	return object_fail(error, "cannot start the thread that renews leases: %m");
}

/* The leases that are left are doubtful. */
void lease_stop(struct cluster *c)
{
	struct rados_lease *l;

	if (!c->renewer)
		return;
	pthread_mutex_lock(&c->lease_lock);
	c->is_ending = true;
	pthread_cond_signal(&c->wake);
	pthread_mutex_unlock(&c->lease_lock);
	pthread_join(c->renewer, NULL);
	while ((l = c->leases)) {
		c->leases = l->next;
		begin_unlock(c, l);
		free_lease(l);
	}
	pthread_cond_destroy(&c->wake);
	pthread_mutex_destroy(&c->lease_lock);
}
