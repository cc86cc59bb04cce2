/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The back end `memory`: containers that live as long as the process, in as few lines as can be. It shows what one has to do, and that
 * nothing else is asked of it: locks of names, views and reading ahead are left out. One lock is around everything.
 */
#include "object/backend.h"
#include "object/error.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* A chunk or a version; `held`: by so many, -1: claimed. */
struct item {
	struct item *next;
	struct umobject_id id;
	uint64_t number;
	char *bytes;
	size_t size;
	int held;
};

/* A version of a name, from the newest on. */
struct named {
	struct named *next;
	char *name;
	uint64_t version;
	struct umobject_id id;
};

struct memory {
	struct backend b;
	struct memory *next;
	char *name;
	struct item description, *chunks, *versions;
	struct named *names;
};

struct lease {
	struct item *version;
};

static struct memory *all;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct memory *of(struct backend *b)
{
	return (struct memory *)b;
}

static struct item **find(struct item **at, const struct umobject_id *id, uint64_t number)
{
	while (*at && (memcmp(&(*at)->id, id, sizeof(*id)) != 0 || (*at)->number != number))
		at = &(*at)->next;
	return at;
}

static void drop(struct item **at)
{
	struct item *i = *at;

	*at = i->next;
	free(i->bytes);
	free(i);
}

/* All of it or nothing: what was there before stays if there is no memory. */
static int set(struct item *i, const struct iovec *iov, int n)
{
	size_t size = 0, at = 0;
	char *bytes;
	int k;

	for (k = 0; k < n; k++)
		size += iov[k].iov_len;
	bytes = malloc(size + 1);
	if (!bytes)
		return object_fail(ENOMEM, "no memory");
	for (k = 0; k < n; at += iov[k++].iov_len)
		memcpy(bytes + at, iov[k].iov_base, iov[k].iov_len);
	free(i->bytes);
	i->bytes = bytes;
	i->size = size;
	return 0;
}

static int put(struct item **list, const struct umobject_id *id, uint64_t number, const struct iovec *iov, int n)
{
	struct item **at = find(list, id, number);

	if (!*at) {
		*at = calloc(1, sizeof(**at));
		if (!*at)
			return object_fail(ENOMEM, "no memory");
		(*at)->id = *id;
		(*at)->number = number;
	}
	return set(*at, iov, n);
}

static int copy(const struct item *i, void **bytes, size_t *size)
{
	*size = i->size;
	*bytes = malloc(i->size + 1);
	if (!*bytes)
		return object_fail(ENOMEM, "no memory");
	memcpy(*bytes, i->bytes, i->size);
	return 0;
}

static int memory_open(const char *where, const void *wanted, size_t wanted_size, void **bytes, size_t *size, struct backend **b)
{
	struct memory *m;
	int result;

	pthread_mutex_lock(&lock);
	for (m = all; m && strcmp(m->name, where) != 0; m = m->next)
		;
	if (!m && wanted && (m = calloc(1, sizeof(*m)))) {
		m->b.ops = &umobject_backend;
		m->name = strdup(where);
		m->next = all;
		all = m;
		set(&m->description, &(struct iovec){ (void *)(uintptr_t)wanted, wanted_size }, 1);
	}
	result = m ? copy(&m->description, bytes, size) : object_fail(ENOENT, "cannot open 'memory:%s': there is no container", where);
	if (m)
		*b = &m->b;
	pthread_mutex_unlock(&lock);
	return result;
}

static void memory_close(struct backend *b)
{
	(void)b;
}

/* ---- Chunks ---- */

static int chunk_write(struct backend *b, const struct umobject_id *id, uint64_t number, const struct iovec *iov, int n)
{
	int result;

	pthread_mutex_lock(&lock);
	result = put(&of(b)->chunks, id, number, iov, n);
	pthread_mutex_unlock(&lock);
	return result;
}

static int chunk_sync(struct backend *b, const struct umobject_id *id)
{
	(void)b;
	(void)id;
	return 0;
}

struct open_chunk {
	struct stored s;
	struct memory *m;
	struct umobject_id id;
	uint64_t number;
};

static int stored_read(struct stored *s, void *to, size_t size, uint64_t at)
{
	struct open_chunk *o = (struct open_chunk *)s;
	const struct item *i;
	int result = 0;

	pthread_mutex_lock(&lock);
	i = *find(&o->m->chunks, &o->id, o->number);
	if (!i)
		result = object_fail(ENODATA, "chunk %llu is missing", (unsigned long long)o->number);
	else if (at + size > i->size)
		result = object_fail(EBADMSG, "chunk %llu is damaged: it is too short", (unsigned long long)o->number);
	else
		memcpy(to, i->bytes + at, size);
	pthread_mutex_unlock(&lock);
	return result;
}

static void stored_close(struct stored *s)
{
	free(s);
}

static int chunk_open(struct backend *b, const struct umobject_id *id, uint64_t number, struct stored **stored)
{
	static const struct stored_ops ops = { stored_read, stored_close };
	struct open_chunk *o = malloc(sizeof(*o));

	if (!o)
		return object_fail(ENOMEM, "no memory");
	*o = (struct open_chunk){ { &ops }, of(b), *id, number };
	*stored = &o->s;
	return 0;
}

static int chunk_there(struct backend *b, const struct umobject_id *id, uint64_t number, bool *there)
{
	pthread_mutex_lock(&lock);
	*there = *find(&of(b)->chunks, id, number);
	pthread_mutex_unlock(&lock);
	return 0;
}

static int chunks_remove(struct backend *b, const struct umobject_id *id, uint64_t first, uint64_t count)
{
	pthread_mutex_lock(&lock);
	for (; count; count--, first++) {
		struct item **at = find(&of(b)->chunks, id, first);

		if (*at)
			drop(at);
	}
	pthread_mutex_unlock(&lock);
	return 0;
}

/* ---- Versions and names: each under the lock ---- */

static struct lease *lease_of(struct item *version)
{
	struct lease *l = malloc(sizeof(*l));

	if (l)
		l->version = version;
	else
		object_fail(ENOMEM, "no memory");
	return l;
}

static int version_new(struct backend *b, const struct umobject_id *id, const char *name, const void *bytes, size_t size,
		       struct lease **lease)
{
	struct item **at;
	int result;

	(void)name;
	pthread_mutex_lock(&lock);
	result = put(&of(b)->versions, id, 0, &(struct iovec){ (void *)(uintptr_t)bytes, size }, 1);
	at = find(&of(b)->versions, id, 0);
	*lease = result == 0 ? lease_of(*at) : NULL;
	if (*lease)
		(*at)->held = 1;
	pthread_mutex_unlock(&lock);
	return *lease ? 0 : -1;
}

static int hold(struct memory *m, const struct umobject_id *id, struct lease **lease, void **bytes, size_t *size)
{
	struct item *i = *find(&m->versions, id, 0);

	if (!i || i->held < 0)
		return object_fail(ENOENT, "cannot find a version of this UUID");
	*lease = lease_of(i);
	if (!*lease)
		return -1;
	if (copy(i, bytes, size) < 0) {
		free(*lease);
		return -1;
	}
	i->held++;
	return 0;
}

static int version_hold(struct backend *b, const struct umobject_id *id, struct lease **lease, void **bytes, size_t *size)
{
	int result;

	pthread_mutex_lock(&lock);
	result = hold(of(b), id, lease, bytes, size);
	pthread_mutex_unlock(&lock);
	return result;
}

static int name_hold(struct backend *b, const char *name, uint64_t version, struct lease **lease, void **bytes, size_t *size)
{
	const struct named *n;
	int result;

	pthread_mutex_lock(&lock);
	for (n = of(b)->names; n && (strcmp(n->name, name) != 0 || (version && n->version != version)); n = n->next)
		;
	if (n)
		result = hold(of(b), &n->id, lease, bytes, size);
	else
		result = version ? object_fail(ENOENT, "cannot find version %llu of '%s': it does not exist or is no longer kept", (unsigned long long)version, name) :
			object_fail(ENOENT, "cannot find the object '%s'", name);
	pthread_mutex_unlock(&lock);
	return result;
}

static void release(struct backend *b, struct lease *lease)
{
	(void)b;
	pthread_mutex_lock(&lock);
	lease->version->held = lease->version->held < 0 ? 0 : lease->version->held - 1;
	pthread_mutex_unlock(&lock);
	free(lease);
}

/* Takes the name from versions older than this one. */
static void forget(struct memory *m, const char *name, uint64_t end)
{
	struct named **at = &m->names;

	while (*at) {
		struct named *n = *at;

		if (strcmp(n->name, name) == 0 && n->version < end) {
			*at = n->next;
			free(n->name);
			free(n);
		} else {
			at = &n->next;
		}
	}
}

static uint64_t newest(const struct memory *m, const char *name)
{
	const struct named *n;

	for (n = m->names; n; n = n->next)
		if (strcmp(n->name, name) == 0)
			return n->version;
	return 0;
}

static int publish(struct backend *b, struct lease *lease, const char *name, uint64_t version, unsigned keep, const void *bytes, size_t size)
{
	struct memory *m = of(b);
	struct named *n = calloc(1, sizeof(*n));
	int result;

	pthread_mutex_lock(&lock);
	if (!n || !(n->name = strdup(name)))
		result = object_fail(ENOMEM, "no memory");
	else if (newest(m, name) != version - 1)
		result = object_fail(EAGAIN, "another version was committed in the meantime");
	else
		result = set(lease->version, &(struct iovec){ (void *)(uintptr_t)bytes, size }, 1);
	if (result == 0) {
		n->version = version;
		n->id = lease->version->id;
		n->next = m->names;
		m->names = n;
		if (version > keep)
			forget(m, name, version - keep + 1);
	}
	pthread_mutex_unlock(&lock);
	if (result < 0 && n) {
		free(n->name);
		free(n);
	}
	return result;
}

static int name_remove(struct backend *b, const char *name)
{
	bool there;

	pthread_mutex_lock(&lock);
	there = newest(of(b), name);
	forget(of(b), name, UINT64_MAX);
	pthread_mutex_unlock(&lock);
	return there ? 0 : object_fail(ENOENT, "cannot find the object '%s'", name);
}

static int names(struct backend *b, int (*each)(void *arg, const char *name), void *arg)
{
	const struct named *n;
	int result = 0;

	for (n = of(b)->names; n && result == 0; n = n->next)
		if (newest(of(b), n->name) == n->version)
			result = each(arg, n->name);
	return result;
}

static int versions(struct backend *b, const char *name, int (*each)(void *arg, uint64_t version), void *arg)
{
	uint64_t version, last = newest(of(b), name);
	const struct named *n;
	int result = 0;

	for (version = 1; version <= last && result == 0; version++)
		for (n = of(b)->names; n && result == 0; n = n->next)
			if (n->version == version && strcmp(n->name, name) == 0)
				result = each(arg, version);
	return result;
}

/* ---- For the collector ---- */

static int all_versions(struct backend *b, int (*each)(void *arg, const struct umobject_id *id), void *arg)
{
	const struct item *i;
	int result = 0;

	for (i = of(b)->versions; i && result == 0; i = i->next)
		result = each(arg, &i->id);
	return result;
}

static int version_there(struct backend *b, const struct umobject_id *id, bool *there)
{
	pthread_mutex_lock(&lock);
	*there = *find(&of(b)->versions, id, 0);
	pthread_mutex_unlock(&lock);
	return 0;
}

static bool is_named(const struct memory *m, const struct umobject_id *id)
{
	const struct named *n;

	for (n = m->names; n && memcmp(&n->id, id, sizeof(*id)) != 0; n = n->next)
		;
	return n;
}

static int version_claim(struct backend *b, const struct umobject_id *id, struct lease **claim, void **bytes, size_t *size)
{
	struct item *i;
	int result = 0;

	pthread_mutex_lock(&lock);
	i = *find(&of(b)->versions, id, 0);
	if (!i)
		result = object_fail(ENOENT, "cannot find a version of this UUID");
	else if (i->held != 0 || is_named(of(b), id))
		result = copy(i, bytes, size) < 0 ? -1 : object_fail(EBUSY, "the version is in use");
	else if (!(*claim = lease_of(i)))
		result = -1;
	else
		i->held = -1;
	pthread_mutex_unlock(&lock);
	return result;
}

static void version_remove(struct backend *b, struct lease *claim)
{
	pthread_mutex_lock(&lock);
	drop(find(&of(b)->versions, &claim->version->id, 0));
	pthread_mutex_unlock(&lock);
	free(claim);
}

static int sweep(struct backend *b, bool (*garbage)(void *arg, const struct umobject_id *id, uint64_t number), void *arg,
		 struct umobject_garbage *removed)
{
	struct item **at = &of(b)->chunks;

	while (*at) {
		if (garbage(arg, &(*at)->id, (*at)->number)) {
			removed->chunks++;
			removed->bytes += (*at)->size;
			drop(at);
		} else {
			at = &(*at)->next;
		}
	}
	return 0;
}

/* ---- For the tests ---- */

static unsigned count(const struct item *i)
{
	unsigned n = 0;

	for (; i; i = i->next)
		n++;
	return n;
}

__attribute__((visibility("default")))
unsigned memory_versions(const char *name);
__attribute__((visibility("default")))
unsigned memory_chunks(const char *name);

static const struct memory *of_name(const char *name)
{
	const struct memory *m;

	for (m = all; m && strcmp(m->name, name) != 0; m = m->next)
		;
	return m;
}

unsigned memory_versions(const char *name)
{
	return count(of_name(name)->versions);
}

unsigned memory_chunks(const char *name)
{
	return count(of_name(name)->chunks);
}

__attribute__((visibility("default")))
const struct backend_ops umobject_backend = {
	.abi = BACKEND_ABI,
	.scheme = "memory",
	.open = memory_open,
	.close = memory_close,
	.chunk_write = chunk_write,
	.chunk_sync = chunk_sync,
	.chunk_open = chunk_open,
	.chunk_there = chunk_there,
	.chunks_remove = chunks_remove,
	.version_new = version_new,
	.version_hold = version_hold,
	.name_hold = name_hold,
	.release = release,
	.publish = publish,
	.name_remove = name_remove,
	.names = names,
	.versions = versions,
	.all_versions = all_versions,
	.version_there = version_there,
	.version_claim = version_claim,
	.version_remove = version_remove,
	.sweep = sweep,
};
