/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Versions as objects of S3, and who holds them. A holder writes h/UUID/P.N, and then looks at the
 * state of the version. A collector changes the state to CLAIMING, and then looks for holds, so at
 * least one of the two sees the other. Only if there are no holds does it change the state to
 * CLAIMED, which is final. A change of the state has the condition that the version is the one that
 * was read.
 *
 * A hold counts while the lease p/P of its process lasts. A thread renews the lease. The clock is
 * that of the server.
 */
#include "object/s3.h"

#include "common/random.h"
#include "object/error.h"

#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OPEN 'o'
#define CLAIMING '?'
#define CLAIMED 'x'
#define MARK_BYTES 17              /* state, and a random number that makes each state unique */
#define WAIT_US 20000              /* until a version is looked at again that is being claimed */

struct s3_lease {
	struct lease lease;
	struct umobject_id id;
	char etag[MAX_ETAG_BYTES];     /* of the version, when this process saw it last */
	char *name;                    /* name of the version, now or later */
	char hold[KEY_BYTES];          /* key of the hold; "": none */
};

/* A version as it is stored. */
struct stored_version {
	char state;
	char *name;
	struct bytes record, whole;    /* `record` is a part of `whole` */
	struct reply reply;
};

const struct umobject_id *id_of_lease(const struct lease *lease)
{
	return &((const struct s3_lease *)lease)->id;
}

static void version_key(const struct umobject_id *id, char key[static KEY_BYTES])
{
	char text[ID_TEXT];

	id_text(id, text);
	snprintf(key, KEY_BYTES, "v/%s", text);
}

/* ---- Objects of versions ---- */

static int read_version(struct bucket *c, const struct umobject_id *id, struct stored_version *v)
{
	char key[KEY_BYTES], *zero;
	int err;

	version_key(id, key);
	err = store_get(c, key, &v->whole, &v->reply);
	if (err)
		return err;
	zero = v->whole.size > MARK_BYTES ? memchr((char *)v->whole.data + MARK_BYTES, '\0',
						   v->whole.size - MARK_BYTES) : NULL;
	if (!zero) {
		free(v->whole.data);
		return -EBADMSG;
	}
	v->state = *(char *)v->whole.data;
	v->name = (char *)v->whole.data + MARK_BYTES;
	v->record.data = zero + 1;
	v->record.size = v->whole.size - (size_t)(zero + 1 - (char *)v->whole.data);
	return 0;
}

/* condition: as for store_put. */
static int write_version(struct bucket *c, const struct umobject_id *id, char state,
			 const char *name, const struct bytes *record, const char *condition,
			 struct reply *reply)
{
	size_t len = strlen(name) + 1;
	struct bytes whole = { malloc(MARK_BYTES + len + record->size + 1), MARK_BYTES + len +
			       record->size };
	char key[KEY_BYTES], *to = whole.data;
	int err;

	if (!to)
		return -ENOMEM;
	version_key(id, key);
	sprintf(to, "%c%016" PRIx64, state, random_id());
	memcpy(to + MARK_BYTES, name, len);
	memcpy(to + MARK_BYTES + len, record->data, record->size);
	err = store_put(c, key, &whole, condition, reply);
	free(to);
	return err;
}

static int set_state(struct bucket *c, const struct umobject_id *id, struct stored_version *v,
		     char state)
{
	char etag[MAX_ETAG_BYTES];

	strcpy(etag, v->reply.etag);
	return write_version(c, id, state, v->name, &v->record, etag, &v->reply);
}

static int copy_record(const struct stored_version *v, struct bytes *record)
{
	*record = (struct bytes){ malloc(v->record.size + 1), v->record.size };
	if (!record->data)
		return -ENOMEM;
	memcpy(record->data, v->record.data, v->record.size);
	return 0;
}

/* ---- The lease of the process ---- */

static int renew_lease(struct bucket *c, struct reply *reply)
{
	struct bytes body = { (char[]){ "lease" }, 5 };
	char key[KEY_BYTES];

	snprintf(key, sizeof(key), "p/%s", c->process);
	return store_put(c, key, &body, NULL, reply);
}

static void *run_renewer(void *arg)
{
	struct bucket *c = arg;
	struct timespec until;
	struct reply reply;

	pthread_mutex_lock(&c->beat_lock);
	while (!c->is_ending) {
		int result = 0;

		clock_gettime(CLOCK_MONOTONIC, &until);
		until.tv_sec += c->lease / 4;
		until.tv_nsec += (long)(c->lease % 4) * 250000000;
		until.tv_sec += until.tv_nsec / 1000000000;
		until.tv_nsec %= 1000000000;
		while (!c->is_ending && result != ETIMEDOUT)
			result = pthread_cond_timedwait(&c->wake, &c->beat_lock, &until);
		pthread_mutex_unlock(&c->beat_lock);
		if (result == ETIMEDOUT)
			renew_lease(c, &reply);
		pthread_mutex_lock(&c->beat_lock);
	}
	pthread_mutex_unlock(&c->beat_lock);
	return NULL;
}

static int start_thread(struct bucket *c)
{
	sigset_t all, before;
	int error;

	/* The thread takes no signals of the program. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	error = pthread_create(&c->thread, NULL, run_renewer, c);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	c->has_thread = !error;
	return error ? object_fail(error, "cannot start the thread that renews leases: %m") : 0;
}

int start_lease(struct bucket *c)
{
	struct umobject_id id;
	struct reply reply;
	char text[ID_TEXT];
	int err;

	if (id_make(&id) < 0)
		return -1;
	id_text(&id, text);
	snprintf(c->process, sizeof(c->process), "%s.%u", text, c->lease);
	err = renew_lease(c, &reply);
	c->holds_nothing = err == -EACCES;
	if (c->holds_nothing)
		return 0;
	return err ? store_check(c, err, &reply, "cannot hold versions") : start_thread(c);
}

void stop_lease(struct bucket *c)
{
	struct reply reply;
	char key[KEY_BYTES];

	if (!c->has_thread)
		return;
	pthread_mutex_lock(&c->beat_lock);
	c->is_ending = true;
	pthread_cond_signal(&c->wake);
	pthread_mutex_unlock(&c->beat_lock);
	pthread_join(c->thread, NULL);
	snprintf(key, sizeof(key), "p/%s", c->process);
	store_delete(c, key, &reply);
}

/* ---- Holding ---- */

static void free_lease(struct s3_lease *l)
{
	free(l->lease.record.data);
	free(l->name);
	free(l);
}

static void end_hold(struct bucket *c, struct s3_lease *l)
{
	struct reply reply;

	if (*l->hold)
		store_delete(c, l->hold, &reply);
	free_lease(l);
}

/* Writes the hold of a new lease. */
static int begin_hold(struct bucket *c, const struct umobject_id *id, struct s3_lease **lease,
		      struct reply *reply)
{
	struct s3_lease *l = calloc(1, sizeof(*l));
	struct bytes body = { (char[]){ "hold" }, 4 };
	char text[ID_TEXT];
	int err = 0;

	if (!l)
		return -ENOMEM;
	l->id = *id;
	id_text(id, text);
	if (!c->holds_nothing) {
		snprintf(l->hold, sizeof(l->hold), "h/%s/%s.%u", text, c->process, ++c->holds);
		err = store_put(c, l->hold, &body, NULL, reply);
	}
	if (err)
		free_lease(l);
	else
		*lease = l;
	return err;
}

/* A collector that died has left this state, if it is older than a lease. */
static bool is_abandoned(const struct bucket *c, const struct stored_version *v)
{
	return v->reply.now - v->reply.modified > (time_t)c->lease;
}

/* Reads a version, waits while it is being claimed, and opens it if its collector has died.
 * -ENOENT: it is claimed or gone. */
static int read_open_version(struct bucket *c, const struct umobject_id *id,
			     struct stored_version *v)
{
	for (;;) {
		int err = read_version(c, id, v);

		if (err)
			return err;
		if (v->state == OPEN)
			return 0;
		if (v->state == CLAIMING && is_abandoned(c, v))
			set_state(c, id, v, OPEN);
		else if (v->state == CLAIMING)
			usleep(WAIT_US);
		free(v->whole.data);
		if (v->state == CLAIMED)
			return -ENOENT;
	}
}

int hold_id(struct bucket *c, const struct umobject_id *id, struct lease **lease,
	    struct reply *reply)
{
	struct stored_version v;
	struct s3_lease *l;
	int err = begin_hold(c, id, &l, reply);

	if (err)
		return err;
	err = read_open_version(c, id, &v);
	*reply = v.reply;
	if (!err) {
		strcpy(l->etag, v.reply.etag);
		l->name = strdup(v.name);
		err = l->name ? copy_record(&v, &l->lease.record) : -ENOMEM;
		free(v.whole.data);
	}
	if (err)
		end_hold(c, l);
	else
		*lease = &l->lease;
	return err;
}

static struct lease *create_version(struct backend *b, const struct umobject_id *id,
				    const char *name, const struct bytes *record)
{
	struct bucket *c = bucket_of(b);
	struct reply reply = { .now = 0 };
	struct s3_lease *l = NULL;
	int err = begin_hold(c, id, &l, &reply);

	if (!err) {
		l->name = strdup(name);
		err = l->name ? write_version(c, id, OPEN, name, record, "", &reply) : -ENOMEM;
		strcpy(l->etag, reply.etag);
		if (err)
			end_hold(c, l);
	}
	if (store_check(c, err, &reply, "cannot create a version") < 0)
		return NULL;
	return &l->lease;
}

static struct lease *hold_version(struct backend *b, const struct umobject_id *id)
{
	struct reply reply = { .now = 0 };
	struct lease *lease = NULL;
	char text[ID_TEXT];
	int err = hold_id(bucket_of(b), id, &lease, &reply);

	id_text(id, text);
	store_check(bucket_of(b), err, &reply, "cannot read version '%s'", text);
	return lease;
}

static void release_lease(struct backend *b, struct lease *lease)
{
	end_hold(bucket_of(b), (struct s3_lease *)lease);
}

int write_record(struct bucket *c, struct lease *lease, const struct bytes *record,
		 struct reply *reply)
{
	struct s3_lease *l = (struct s3_lease *)lease;
	struct stored_version v;
	int err = renew_lease(c, reply);

	if (!err)
		err = write_version(c, &l->id, OPEN, l->name, record, l->etag, reply);
	/* A collector may have looked at the version in the meantime. */
	while (err == -ESTALE) {
		err = read_open_version(c, &l->id, &v);
		if (err)
			return err == -ENOENT ? -ESTALE : err;
		free(v.whole.data);
		err = write_version(c, &l->id, OPEN, l->name, record, v.reply.etag, reply);
	}
	if (!err)
		strcpy(l->etag, reply->etag);
	return err;
}

/* ---- For the collector ---- */

/* A list of versions. */
struct version_visit {
	visit_id_fn *each;
	void *arg;
	int returned;
};

static int visit_version(void *arg, const char *key, uint64_t size, time_t modified)
{
	struct version_visit *l = arg;
	struct umobject_id id;
	const char *end = id_parse(key + 2, &id);

	(void)size;
	(void)modified;
	return end && !*end ? (l->returned = l->each(l->arg, &id)) != 0 : 0;
}

static int list_versions(struct backend *b, visit_id_fn *each, void *arg)
{
	struct version_visit l = { each, arg, 0 };
	struct reply reply;
	int err = store_list(bucket_of(b), "v/", visit_version, &l, &reply);

	return err < 0 ? store_check(bucket_of(b), err, &reply, "cannot list the versions") :
			 l.returned;
}

static int version_exists(struct backend *b, const struct umobject_id *id, bool *exists)
{
	struct stored_version v;
	int err = read_version(bucket_of(b), id, &v);

	*exists = !err;
	if (!err)
		free(v.whole.data);
	return store_check(bucket_of(b), err == -ENOENT ? 0 : err, &v.reply,
			   "cannot look for a version");
}

/* A search for a process whose lease lasts. */
struct life {
	const char *process;           /* beginning of the rest of its keys */
	time_t now;                    /* time of the server */
};

static int visit_process(void *arg, const char *key, uint64_t size, time_t modified)
{
	const struct life *l = arg;
	const char *process = key + 2, *lease = strrchr(key, '.');
	size_t len = strlen(process);

	(void)size;
	/* Times of the server are in seconds. */
	return strncmp(l->process, process, len) == 0 && l->process[len] == '.' && lease &&
	       l->now - modified <= (time_t)strtoul(lease + 1, NULL, 10) + 1;
}

struct holders {
	struct bucket *c;
	size_t prefix_len;
	struct reply reply;            /* of the list of processes */
};

/* Returns 1 if the holder lives, or a negative errno value. */
static int visit_hold(void *arg, const char *key, uint64_t size, time_t modified)
{
	struct holders *h = arg;
	struct life life = { key + h->prefix_len, 0 };
	char prefix[2 + ID_TEXT];
	struct bytes none;

	(void)size;
	(void)modified;
	/* The first answer tells the time of the server. */
	store_get(h->c, "container", &none, &h->reply);
	free(none.data);
	life.now = h->reply.now;
	snprintf(prefix, sizeof(prefix), "p/%.36s", life.process);
	return store_list(h->c, prefix, visit_process, &life, &h->reply);
}

/* 1: the version has a name or a holder; 0, or a negative errno value. */
static int is_used(struct bucket *c, const struct umobject_id *id, const char *name,
		   struct reply *reply)
{
	struct holders h = { .c = c };
	char text[ID_TEXT], prefix[KEY_BYTES];
	int result = is_named_s3(c, name, id, reply);

	if (result != 0)
		return result;
	id_text(id, text);
	h.prefix_len = (size_t)snprintf(prefix, sizeof(prefix), "h/%s/", text);
	return store_list(c, prefix, visit_hold, &h, reply);
}

/* Removes the object of a version, and its holds. */
static int visit_dead_hold(void *arg, const char *key, uint64_t size, time_t modified)
{
	struct reply reply;

	(void)size;
	(void)modified;
	store_delete(arg, key, &reply);
	return 0;
}

static int try_claim(struct bucket *c, const struct umobject_id *id, struct stored_version *v)
{
	struct reply reply = { .now = 0 };
	int result;

	if (v->state == CLAIMED)
		return 0;
	if (v->state == CLAIMING && !is_abandoned(c, v))
		return -EBUSY;
	result = is_used(c, id, v->name, &reply);
	if (result == 0)
		result = set_state(c, id, v, CLAIMING);
	if (result != 0)
		return result > 0 || result == -ESTALE ? -EBUSY : result;
	result = is_used(c, id, v->name, &reply);
	if (result != 0) {
		set_state(c, id, v, OPEN);
		return result > 0 ? -EBUSY : result;
	}
	result = set_state(c, id, v, CLAIMED);
	return result == -ESTALE ? -EBUSY : result;
}

static int claim_version(struct backend *b, const struct umobject_id *id, struct lease **claim,
			 struct bytes *record)
{
	struct bucket *c = bucket_of(b);
	struct s3_lease *l = calloc(1, sizeof(*l));
	struct stored_version v;
	int err = l ? read_version(c, id, &v) : -ENOMEM;

	if (!err) {
		err = try_claim(c, id, &v);
		if (err == -EBUSY && copy_record(&v, record) < 0)
			err = -ENOMEM;
		free(v.whole.data);
	}
	if (!err) {
		l->id = *id;
		*claim = &l->lease;
		return 0;
	}
	free(l);
	return store_check(c, err, &v.reply, "cannot remove a version");
}

static void remove_version(struct backend *b, struct lease *claim)
{
	struct s3_lease *l = (struct s3_lease *)claim;
	char text[ID_TEXT], key[KEY_BYTES];
	struct reply reply;

	id_text(&l->id, text);
	snprintf(key, sizeof(key), "h/%s/", text);
	store_list(bucket_of(b), key, visit_dead_hold, b, &reply);
	version_key(&l->id, key);
	store_delete(bucket_of(b), key, &reply);
	free_lease(l);
}

const struct version_ops s3_versions = {
	.create = create_version,
	.hold = hold_version,
	.release = release_lease,
	.list = list_versions,
	.exists = version_exists,
	.claim = claim_version,
	.remove = remove_version,
};
