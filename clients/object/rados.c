/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Containers in RADOS: rados:POOL/CONTAINER is a namespace of the pool, with these objects in it:
 *
 *	container       what it says of itself
 *	names.X         16 of them, by a hash of the name: in omap, n/NAME is the newest version's id and number, v/NAME\0NUMBER the id
 *	                of each that is kept
 *	version.UUID    in omap, `object` is a version's bytes and `name` the name that it has or is to have. Whoever holds it has a shared
 *	                lock on it (the class `lock`), which lasts for so many seconds and is renewed all the time
 *	chunk.UUID.N    a chunk, as an HDF5 file like those of containers in folders
 *
 * A commit is one operation on names.X, which compares the newest version with what was read before, so that nobody waits for locks.
 * Who collects has an exclusive lock on a version that nobody names, looks again whether somebody does, and only then marks it as
 * claimed, which every renewal and every commit of it checks: a writer who was away for too long is told, and breaks nothing.
 */
#include "object/rados.h"

#include "common/size.h"
#include "object/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

int rados_refuse(const struct cluster *c, int error, const char *format, ...)
{
	char what[700];
	va_list args;

	va_start(args, format);
	vsnprintf(what, sizeof(what), format, args);
	va_end(args);
	error = error < 0 ? -error : error;
	if (error == ETIMEDOUT)
		return object_fail(ETIMEDOUT, "%s: the cluster has not answered within %u s. Try "
				   "to start its monitors and OSDs, or a greater timeout=", what,
				   c->timeout);
	if (error == EOPNOTSUPP)
		return object_fail(EOPNOTSUPP, "%s: the pool has no omap. Try a replicated pool",
				   what);
	return object_fail(error, "%s: %s", what, strerror(error));
}

int rados_begin(const struct cluster *c, rados_write_op_t op, const char *oid, rados_completion_t *done)
{
	int result = rados_aio_create_completion2(NULL, NULL, done);

	if (result == 0) {
		result = rados_aio_write_op_operate(op, c->io, *done, oid, NULL, LIBRADOS_OPERATION_FULL_TRY);
		if (result < 0)
			rados_aio_release(*done);
	}
	if (result < 0)
		*done = NULL;
	rados_release_write_op(op);
	return result;
}

int rados_finish(rados_completion_t done)
{
	int result;

	rados_aio_wait_for_complete(done);
	result = rados_aio_get_return_value(done);
	rados_aio_release(done);
	return result < 0 ? result : 0;
}

int rados_do(const struct cluster *c, rados_write_op_t op, const char *oid)
{
	rados_completion_t done;
	int result = rados_begin(c, op, oid, &done);

	return result < 0 ? result : rados_finish(done);
}

double rados_clock(void)
{
	struct timespec t;

	clock_gettime(CLOCK_BOOTTIME, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

void rados_id(const struct umobject_id *id, char text[static 37])
{
	unsigned i;

	for (i = 0; i < sizeof(id->bytes); i++)
		text += sprintf(text, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", id->bytes[i]);
}

const char *rados_parse_id(const char *text, struct umobject_id *id)
{
	char again[37];
	unsigned i, at = 0;

	if (strnlen(text, 36) < 36)
		return NULL;
	for (i = 0; i < sizeof(id->bytes); i++) {
		unsigned byte;

		at += text[at] == '-';
		if (sscanf(text + at, "%2x", &byte) != 1)
			return NULL;
		id->bytes[i] = (uint8_t)byte;
		at += 2;
	}
	rados_id(id, again);
	return memcmp(again, text, 36) == 0 ? text + 36 : NULL;
}

/* ---- Opening ---- */

/* What is behind "rados:". */
struct place {
	char pool[128], container[256], conf[1024], user[128];
	unsigned timeout, lease;    /* timeout 0: not given */
};

static bool parse_seconds(const char *text, unsigned *seconds)
{
	uint64_t n;
	bool is_valid = size_parse_count(text, &n) == 0 && n >= 1 && n <= 86400;

	*seconds = is_valid ? (unsigned)n : 0;
	return is_valid;
}

static int parse_key(struct place *p, char *key)
{
	char *value = strchr(key, '=');

	if (value)
		*value++ = '\0';
	if (!value || !*value)
		return object_fail(EINVAL, "cannot use the key '%.60s' of the container: it has no "
				   "value", key);
	if (strcmp(key, "conf") == 0 && strlen(value) < sizeof(p->conf))
		strcpy(p->conf, value);
	else if (strcmp(key, "user") == 0 && strlen(value) + 8 < sizeof(p->user))
		sprintf(p->user, "%s%s", strncmp(value, "client.", 7) == 0 ? "" : "client.", value);
	else if (strcmp(key, "timeout") == 0 || strcmp(key, "lease") == 0)
		return parse_seconds(value, *key == 't' ? &p->timeout : &p->lease) ? 0 :
			object_fail(EINVAL, "cannot use %s='%.40s': it must be 1 to 86400, in "
				    "seconds", key, value);
	else
		return object_fail(EINVAL, "cannot use the key '%.60s' of a container in RADOS: "
				   "the keys are conf, user, timeout and lease, and a value may be "
				   "too long", key);
	return 0;
}

static int parse_place(const char *where, struct place *p)
{
	size_t len = strcspn(where, "?"), pool = strcspn(where, "/");
	char *keys, *rest, *key;
	int result = 0;

	*p = (struct place){ .user = "client.admin", .lease = 60 };
	if (pool == 0 || pool >= len || pool >= sizeof(p->pool) || len - pool < 2 || len - pool > sizeof(p->container) ||
	    memchr(where + pool + 1, '/', len - pool - 1))
		return object_fail(EINVAL, "cannot open 'rados:%.200s': a container has the form "
				   "rados:POOL/NAME", where);
	memcpy(p->pool, where, pool);
	memcpy(p->container, where + pool + 1, len - pool - 1);
	rest = keys = strdup(where[len] ? where + len + 1 : "");
	if (!keys)
		return object_fail(ENOMEM, "cannot open 'rados:%.200s': no memory", where);
	while (result == 0 && (key = strsep(&rest, "&")))
		if (*key)
			result = parse_key(p, key);
	free(keys);
	return result;
}

/* The time that the cluster has for an answer: as the URI says, or the configuration, or 30 s. */
static void set_timeouts(struct cluster *c, const struct place *p)
{
	static const char *const names[] = { "rados_osd_op_timeout", "rados_mon_op_timeout", "client_mount_timeout" };
	char text[32];
	size_t i;

	c->timeout = p->timeout;
	if (!c->timeout && rados_conf_get(c->rados, names[0], text, sizeof(text)) == 0)
		c->timeout = (unsigned)strtod(text, NULL);
	c->timeout = c->timeout ? c->timeout : 30;
	/* librados asks for a newer map of the cluster only when an operation is older than 10 s, which none would become. */
	if (c->timeout <= 20) {
		snprintf(text, sizeof(text), "%g", c->timeout / 4.0);
		rados_conf_set(c->rados, "objecter_timeout", text);
		rados_conf_set(c->rados, "objecter_tick_interval", text);
	}
	snprintf(text, sizeof(text), "%u", c->timeout);
	for (i = 0; i < sizeof(names) / sizeof(*names); i++)
		rados_conf_set(c->rados, names[i], text);
}

static int connect_cluster(struct cluster *c, const struct place *p)
{
	int result = rados_create2(&c->rados, "ceph", p->user, 0);

	if (result < 0) {
		c->rados = NULL;
		return rados_refuse(c, result, "cannot start librados as '%s'", p->user);
	}
	result = rados_conf_read_file(c->rados, *p->conf ? p->conf : NULL);
	if (result < 0)
		return rados_refuse(c, result, "cannot read the configuration of Ceph, '%s'",
				    *p->conf ? p->conf : "CEPH_CONF or /etc/ceph/ceph.conf");
	rados_conf_parse_env(c->rados, NULL);
	set_timeouts(c, p);
	result = rados_connect(c->rados);
	if (result < 0)
		return rados_refuse(c, result, "cannot connect to the cluster of 'rados:%s'",
				    c->name);
	result = rados_ioctx_create(c->rados, p->pool, &c->io);
	if (result < 0) {
		c->io = NULL;
		return rados_refuse(c, result, "cannot open the pool '%s'", p->pool);
	}
	rados_ioctx_set_namespace(c->io, p->container);
	return 0;
}

static int make_container(struct cluster *c, const void *wanted, size_t size)
{
	rados_write_op_t op;
	int result;

	if (rados_make_names(c) < 0)
		return -1;
	op = rados_create_write_op();
	rados_write_op_create(op, LIBRADOS_CREATE_EXCLUSIVE, NULL);
	rados_write_op_write_full(op, wanted, size);
	result = rados_do(c, op, "container");
	return result == 0 || result == -EEXIST ? 0 : rados_refuse(c, result, "cannot create the "
			"container 'rados:%s'", c->name);
}

static int read_description(const struct cluster *c, void **bytes, size_t *size)
{
	const size_t most = 65536;
	int result;

	*bytes = malloc(most);
	if (!*bytes)
		return object_fail(ENOMEM, "cannot open the container 'rados:%s': no memory",
				   c->name);
	result = rados_read(c->io, "container", *bytes, most, 0);
	if (result >= 0) {
		*size = (size_t)result;
		return 0;
	}
	free(*bytes);
	return result == -ENOENT ?
		object_fail(ENOENT, "cannot open 'rados:%s': there is no container. Try \"umobject "
			    "create\"", c->name) :
		rados_refuse(c, result, "cannot read the container 'rados:%s'", c->name);
}

static void rados_close(struct backend *b)
{
	struct cluster *c = of(b);

	if (c->io) {
		rados_end_chunks(c);
		lease_stop(c);
		rados_aio_flush(c->io);
		rados_ioctx_destroy(c->io);
	}
	if (c->rados)
		rados_shutdown(c->rados);
	pthread_mutex_destroy(&c->turn);
	free(c->name);
	free(c);
}

static int rados_open(const char *where, const void *wanted, size_t wanted_size, void **bytes, size_t *size, struct backend **b)
{
	struct cluster *c;
	struct place p;

	if (parse_place(where, &p) < 0)
		return -1;
	c = calloc(1, sizeof(*c));
	if (!c || asprintf(&c->name, "%s/%s", p.pool, p.container) < 0) {
		free(c);
		return object_fail(ENOMEM, "cannot open 'rados:%.200s': no memory", where);
	}
	c->lease = p.lease;
	pthread_mutex_init(&c->turn, NULL);
	if (connect_cluster(c, &p) < 0 || lease_start(c) < 0 || (wanted && make_container(c, wanted, wanted_size) < 0) ||
	    read_description(c, bytes, size) < 0) {
		int error = errno;

		rados_close(&c->b);
		errno = error;
		return -1;
	}
	c->b.ops = &umobject_backend;
	*b = &c->b;
	return 0;
}

__attribute__((visibility("default")))
const struct backend_ops umobject_backend = {
	.abi = BACKEND_ABI,
	.scheme = "rados",
	.open = rados_open,
	.close = rados_close,
	.chunk_write = rados_chunk_write,
	.chunk_sync = rados_chunk_sync,
	.chunk_open = rados_chunk_open,
	.chunk_there = rados_chunk_there,
	.chunks_remove = rados_chunks_remove,
	.chunk_ahead = rados_chunk_ahead,
	.version_new = rados_version_new,
	.version_hold = rados_version_hold,
	.name_hold = rados_name_hold,
	.release = rados_release,
	.publish = rados_publish,
	.name_remove = rados_name_remove,
	.names = rados_names,
	.lost_names = rados_lost_names,
	.name_restore = rados_name_restore,
	.versions = rados_versions,
	.all_versions = rados_all_versions,
	.version_there = rados_version_there,
	.version_claim = rados_version_claim,
	.version_remove = rados_version_remove,
	.sweep = rados_sweep,
};
