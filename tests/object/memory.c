/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The back end `memory`: containers that live as long as the process, in few lines. It shows what a
 * back end must do. Locks of names, views and prefetching are optional, and left out. One lock
 * protects everything.
 */
#include "object/backend.h"
#include "object/error.h"
#include "object/id.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>

/* A chunk or a version. */
struct item {
	struct item *next;
	struct umobject_id id;
	uint64_t number;
	struct bytes bytes;
	int holders;         /* number of leases; -1: claimed */
};

/* A version of a name. */
struct named {
	struct named *next;  /* older */
	char *name;
	uint64_t version;
	struct umobject_id id;
};

struct memory {
	struct backend b;
	struct memory *next;
	char *name;
	struct item description, *chunks, *versions;
	struct named *names; /* the newest first */
};

struct memory_lease {
	struct lease lease;
	struct item *version;
};

static struct memory *all;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct memory *of(struct backend *b)
{
	return (struct memory *)b;
}

static struct item **find_item(struct item **at, const struct umobject_id *id, uint64_t number)
{
	while (*at && (!id_same(&(*at)->id, id) || (*at)->number != number))
		at = &(*at)->next;
	return at;
}

static void remove_item(struct item **at)
{
	struct item *i = *at;

	*at = i->next;
	free(i->bytes.data);
	free(i);
}

/* Replaces the bytes of an item, or leaves them as they are if there is no memory. */
static int set_bytes(struct item *i, const struct iovec *iov, int n)
{
	size_t size = 0, at = 0;
	char *bytes;

	for (int k = 0; k < n; k++)
		size += iov[k].iov_len;
	bytes = malloc(size + 1);
	if (!bytes)
		return fail_no_memory("write a chunk or a version");
	for (int k = 0; k < n; at += iov[k++].iov_len)
		memcpy(bytes + at, iov[k].iov_base, iov[k].iov_len);
	free(i->bytes.data);
	i->bytes = (struct bytes){ bytes, size };
	return 0;
}

static int set_record(struct item *i, const struct bytes *record)
{
	return set_bytes(i, &(struct iovec){ record->data, record->size }, 1);
}

/* Finds an item, or appends it to the list. */
static struct item *make_item(struct item **list, const struct umobject_id *id, uint64_t number)
{
	struct item **at = find_item(list, id, number);

	if (!*at && (*at = calloc(1, sizeof(**at)))) {
		(*at)->id = *id;
		(*at)->number = number;
	}
	if (!*at)
		fail_no_memory("write a chunk or a version");
	return *at;
}

static int copy_bytes(const struct item *i, struct bytes *copy)
{
	*copy = (struct bytes){ malloc(i->bytes.size + 1), i->bytes.size };
	if (!copy->data)
		return fail_no_memory("read a version");
	memcpy(copy->data, i->bytes.data, i->bytes.size);
	return 0;
}

static int open_memory(const char *where, const struct bytes *wanted, struct bytes *description,
		       struct backend **b)
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
		set_record(&m->description, wanted);
	}
	result = m ? copy_bytes(&m->description, description) :
		object_fail(ENOENT, "cannot open 'memory:%s': there is no container", where);
	if (m)
		*b = &m->b;
	pthread_mutex_unlock(&lock);
	return result;
}

static void close_memory(struct backend *b)
{
	(void)b;
}

/* ---- Chunks ---- */

static int write_chunk(struct backend *b, const struct umobject_id *id, uint64_t number,
		       const struct iovec *iov, int n)
{
	struct item *i;
	int result;

	pthread_mutex_lock(&lock);
	i = make_item(&of(b)->chunks, id, number);
	result = i ? set_bytes(i, iov, n) : -1;
	pthread_mutex_unlock(&lock);
	return result;
}

static int sync_chunks(struct backend *b, const struct umobject_id *id)
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
	i = *find_item(&o->m->chunks, &o->id, o->number);
	if (!i)
		result = object_fail(ENODATA, "chunk %" PRIu64 " is missing", o->number);
	else if (at + size > i->bytes.size)
		result = object_fail(EBADMSG, "chunk %" PRIu64 " is damaged: it is too short",
				     o->number);
	else
		memcpy(to, (char *)i->bytes.data + at, size);
	pthread_mutex_unlock(&lock);
	return result;
}

static void stored_close(struct stored *s)
{
	free(s);
}

static struct stored *open_chunk(struct backend *b, const struct umobject_id *id, uint64_t number)
{
	static const struct stored_ops ops = { stored_read, stored_close };
	struct open_chunk *o = malloc(sizeof(*o));

	if (!o) {
		fail_no_memory("open a chunk");
		return NULL;
	}
	*o = (struct open_chunk){ { &ops }, of(b), *id, number };
	return &o->s;
}

static int chunk_exists(struct backend *b, const struct umobject_id *id, uint64_t number,
			bool *exists)
{
	pthread_mutex_lock(&lock);
	*exists = *find_item(&of(b)->chunks, id, number);
	pthread_mutex_unlock(&lock);
	return 0;
}

static int remove_chunks(struct backend *b, const struct umobject_id *id, uint64_t first,
			 uint64_t count)
{
	pthread_mutex_lock(&lock);
	for (; count; count--, first++) {
		struct item **at = find_item(&of(b)->chunks, id, first);

		if (*at)
			remove_item(at);
	}
	pthread_mutex_unlock(&lock);
	return 0;
}

/* ---- Versions and names ---- */

static struct lease *make_lease_locked(struct item *version)
{
	struct memory_lease *l = calloc(1, sizeof(*l));

	if (!l) {
		fail_no_memory("hold a version");
		return NULL;
	}
	l->version = version;
	return &l->lease;
}

static struct lease *create_version(struct backend *b, const struct umobject_id *id,
				    const char *name, const struct bytes *record)
{
	struct lease *lease = NULL;
	struct item *i;

	(void)name;
	pthread_mutex_lock(&lock);
	i = make_item(&of(b)->versions, id, 0);
	if (i && set_record(i, record) == 0)
		lease = make_lease_locked(i);
	if (lease)
		i->holders = 1;
	pthread_mutex_unlock(&lock);
	return lease;
}

static struct lease *hold_locked(struct memory *m, const struct umobject_id *id)
{
	struct item *i = *find_item(&m->versions, id, 0);
	struct lease *lease;

	if (!i || i->holders < 0) {
		errno = ENOENT;
		return NULL;
	}
	lease = make_lease_locked(i);
	if (!lease)
		return NULL;
	if (copy_bytes(i, &lease->record) < 0) {
		free(lease);
		return NULL;
	}
	i->holders++;
	return lease;
}

static struct lease *hold_version(struct backend *b, const struct umobject_id *id)
{
	struct lease *lease;

	pthread_mutex_lock(&lock);
	lease = hold_locked(of(b), id);
	pthread_mutex_unlock(&lock);
	return lease;
}

static struct lease *hold_name(struct backend *b, const char *name, uint64_t version)
{
	struct lease *lease = NULL;
	const struct named *n;

	pthread_mutex_lock(&lock);
	for (n = of(b)->names; n; n = n->next)
		if (strcmp(n->name, name) == 0 && (!version || n->version == version))
			break;
	if (n)
		lease = hold_locked(of(b), &n->id);
	else
		errno = ENOENT;
	pthread_mutex_unlock(&lock);
	return lease;
}

static void release_lease(struct backend *b, struct lease *lease)
{
	struct item *i = ((struct memory_lease *)lease)->version;

	(void)b;
	pthread_mutex_lock(&lock);
	i->holders = i->holders < 0 ? 0 : i->holders - 1;
	pthread_mutex_unlock(&lock);
	free(lease->record.data);
	free(lease);
}

/* Takes the name from versions older than `end`. */
static void drop_versions(struct memory *m, const char *name, uint64_t end)
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

static uint64_t newest_number(const struct memory *m, const char *name)
{
	const struct named *n;

	for (n = m->names; n; n = n->next)
		if (strcmp(n->name, name) == 0)
			return n->version;
	return 0;
}

static int publish_version(struct backend *b, struct lease *lease, const char *name,
			   uint64_t version, unsigned keep, const struct bytes *record)
{
	struct item *i = ((struct memory_lease *)lease)->version;
	struct memory *m = of(b);
	struct named *n = calloc(1, sizeof(*n));
	int result;

	pthread_mutex_lock(&lock);
	if (!n || !(n->name = strdup(name)))
		result = fail_no_memory("commit");
	else if (newest_number(m, name) != version - 1)
		result = object_fail(EAGAIN, "another version was committed in the meantime");
	else
		result = set_record(i, record);
	if (result == 0) {
		n->version = version;
		n->id = i->id;
		n->next = m->names;
		m->names = n;
		if (version > keep)
			drop_versions(m, name, version - keep + 1);
	}
	pthread_mutex_unlock(&lock);
	if (result < 0 && n) {
		free(n->name);
		free(n);
	}
	return result;
}

static int remove_name(struct backend *b, const char *name)
{
	bool exists;

	pthread_mutex_lock(&lock);
	exists = newest_number(of(b), name);
	drop_versions(of(b), name, UINT64_MAX);
	pthread_mutex_unlock(&lock);
	return exists ? 0 : object_fail(ENOENT, "there is no such name");
}

static int list_names(struct backend *b, visit_name_fn *each, void *arg)
{
	const struct named *n;
	int result = 0;

	for (n = of(b)->names; n && result == 0; n = n->next)
		if (newest_number(of(b), n->name) == n->version)
			result = each(arg, n->name);
	return result;
}

static int list_numbers(struct backend *b, const char *name, visit_number_fn *each, void *arg)
{
	uint64_t version, last = newest_number(of(b), name);
	const struct named *n;
	int result = 0;

	for (version = 1; version <= last && result == 0; version++)
		for (n = of(b)->names; n && result == 0; n = n->next)
			if (n->version == version && strcmp(n->name, name) == 0)
				result = each(arg, version);
	return result;
}

/* ---- For the collector ---- */

static int list_versions(struct backend *b, visit_id_fn *each, void *arg)
{
	const struct item *i;
	int result = 0;

	for (i = of(b)->versions; i && result == 0; i = i->next)
		result = each(arg, &i->id);
	return result;
}

static int version_exists(struct backend *b, const struct umobject_id *id, bool *exists)
{
	pthread_mutex_lock(&lock);
	*exists = *find_item(&of(b)->versions, id, 0);
	pthread_mutex_unlock(&lock);
	return 0;
}

static bool is_named(const struct memory *m, const struct umobject_id *id)
{
	const struct named *n;

	for (n = m->names; n && !id_same(&n->id, id); n = n->next)
		;
	return n;
}

static int claim_version(struct backend *b, const struct umobject_id *id, struct lease **claim,
			 struct bytes *record)
{
	struct item *i;
	int result = 0;

	pthread_mutex_lock(&lock);
	i = *find_item(&of(b)->versions, id, 0);
	if (!i)
		result = object_fail(ENOENT, "there is no such version");
	else if (i->holders != 0 || is_named(of(b), id))
		result = copy_bytes(i, record) < 0 ? -1 :
			object_fail(EBUSY, "the version is in use");
	else if (!(*claim = make_lease_locked(i)))
		result = -1;
	else
		i->holders = -1;
	pthread_mutex_unlock(&lock);
	return result;
}

static void remove_version(struct backend *b, struct lease *claim)
{
	pthread_mutex_lock(&lock);
	remove_item(find_item(&of(b)->versions, &((struct memory_lease *)claim)->version->id, 0));
	pthread_mutex_unlock(&lock);
	free(claim);
}

static int sweep_chunks(struct backend *b, garbage_fn *garbage, void *arg,
			struct umobject_garbage *removed)
{
	struct item **at = &of(b)->chunks;

	while (*at) {
		if (garbage(arg, &(*at)->id, (*at)->number)) {
			removed->chunks++;
			removed->bytes += (*at)->bytes.size;
			remove_item(at);
		} else {
			at = &(*at)->next;
		}
	}
	return 0;
}

/* ---- For the tests ---- */

static unsigned count_items(const struct item *i)
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

static const struct memory *find_memory(const char *name)
{
	const struct memory *m;

	for (m = all; m && strcmp(m->name, name) != 0; m = m->next)
		;
	return m;
}

unsigned memory_versions(const char *name)
{
	return count_items(find_memory(name)->versions);
}

unsigned memory_chunks(const char *name)
{
	return count_items(find_memory(name)->chunks);
}

static const struct chunk_ops chunk_ops = {
	.write = write_chunk,
	.sync = sync_chunks,
	.open = open_chunk,
	.exists = chunk_exists,
	.remove = remove_chunks,
	.sweep = sweep_chunks,
};

static const struct version_ops version_ops = {
	.create = create_version,
	.hold = hold_version,
	.release = release_lease,
	.list = list_versions,
	.exists = version_exists,
	.claim = claim_version,
	.remove = remove_version,
};

static const struct name_ops name_ops = {
	.hold = hold_name,
	.publish = publish_version,
	.remove = remove_name,
	.list = list_names,
	.list_versions = list_numbers,
};

__attribute__((visibility("default")))
const struct backend_ops umobject_backend = {
	.abi = BACKEND_ABI,
	.scheme = "memory",
	.open = open_memory,
	.close = close_memory,
	.chunks = &chunk_ops,
	.versions = &version_ops,
	.names = &name_ops,
};
