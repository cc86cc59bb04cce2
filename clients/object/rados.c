/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Containers in RADOS: rados:POOL/CONTAINER is a namespace of the pool, with these objects:
 *
 *	container     the description of the container
 *	names.X       16 objects, selected by the hash of a name. In omap, n/NAME is the id and the
 *	              number of the newest version, v/NAME\0NUMBER the id of each kept version
 *	version.UUID  in omap, `object` is the record of a version, `name` its name, now or later. A
 *	              holder has a shared lock (class `lock`), which expires unless it is renewed
 *	chunk.UUID.N  a chunk, as an HDF5 file like those of containers in folders
 *
 * A commit is one operation on names.X, which compares the newest version with that read before, so
 * no process waits for locks. A collector takes an exclusive lock on a version without a name,
 * looks for names again, and then marks the version as claimed. Every renewal and commit checks the
 * mark, so a writer whose lease expired gets an error, and does no harm.
 */
#include "object/rados.h"

#include "common/size.h"
#include "object/error.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* Bytes that a description has at most. */
#define DESCRIPTION_MAX 65536

int rados_check(const struct cluster *c, int error, const char *format, ...)
{
	char text[700];
	va_list args;

	if (error == 0)
		return 0;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	if (error == -ETIMEDOUT)
		return object_fail(ETIMEDOUT, "%s (rados:%s): the cluster has not answered within "
				   "%u s. Try to start its monitors and OSDs, or a greater "
				   "timeout=", text, c->name, c->timeout);
	if (error == -EOPNOTSUPP)
		return object_fail(EOPNOTSUPP, "%s (rados:%s): the pool has no omap. Try a "
				   "replicated pool", text, c->name);
	return object_fail(-error, "%s (rados:%s): %m", text, c->name);
}

int rados_begin(const struct cluster *c, rados_write_op_t op, const char *oid,
		rados_completion_t *done)
{
	int result = rados_aio_create_completion2(NULL, NULL, done);

	if (result == 0) {
		result = rados_aio_write_op_operate(op, c->io, *done, oid, NULL,
						    LIBRADOS_OPERATION_FULL_TRY);
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

int rados_find(const struct cluster *c, const char *oid, bool *exists)
{
	uint64_t size;
	time_t changed;
	int result = rados_stat(c->io, oid, &size, &changed);

	*exists = result == 0;
	return rados_check(c, result == -ENOENT ? 0 : result, "cannot look for '%s'", oid);
}

/* ---- Opening ---- */

/* The parts of POOL/CONTAINER?KEYS. */
struct place {
	char pool[128], container[256], conf[1024], user[128];
	unsigned timeout, lease; /* seconds; timeout 0: not given */
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
	if (strcmp(key, "timeout") == 0 || strcmp(key, "lease") == 0)
		return parse_seconds(value, *key == 't' ? &p->timeout : &p->lease) ? 0 :
			object_fail(EINVAL, "cannot use %s='%.40s': it must be 1 to 86400, in "
				    "seconds", key, value);
	if (strcmp(key, "conf") == 0 && strlen(value) < sizeof(p->conf))
		strcpy(p->conf, value);
	else if (strcmp(key, "user") == 0 && strlen(value) + 8 < sizeof(p->user))
		sprintf(p->user, "%s%s", strncmp(value, "client.", 7) == 0 ? "" : "client.", value);
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
	if (pool == 0 || pool >= len || pool >= sizeof(p->pool) || len - pool < 2 ||
	    len - pool > sizeof(p->container) || memchr(where + pool + 1, '/', len - pool - 1))
		return object_fail(EINVAL, "cannot open 'rados:%.200s': a container has the form "
				   "rados:POOL/NAME", where);
	memcpy(p->pool, where, pool);
	memcpy(p->container, where + pool + 1, len - pool - 1);
	rest = keys = strdup(where[len] ? where + len + 1 : "");
	if (!keys)
		return fail_no_memory("open the container");
	while (result == 0 && (key = strsep(&rest, "&")))
		if (*key)
			result = parse_key(p, key);
	free(keys);
	return result;
}

/* Sets the time that the cluster has to answer: that of the URI or the configuration, or 30 s. */
static void set_timeouts(struct cluster *c, const struct place *p)
{
	static const char *const names[] = { "rados_osd_op_timeout", "rados_mon_op_timeout",
					     "client_mount_timeout" };
	char text[32];

	c->timeout = p->timeout;
	if (!c->timeout && rados_conf_get(c->rados, names[0], text, sizeof(text)) == 0)
		c->timeout = (unsigned)strtod(text, NULL);
	c->timeout = c->timeout ? c->timeout : 30;
	/* librados asks for a newer map of the cluster only when an operation is older than 10
	 * s. */
	if (c->timeout <= 20) {
		snprintf(text, sizeof(text), "%g", c->timeout / 4.0);
		rados_conf_set(c->rados, "objecter_timeout", text);
		rados_conf_set(c->rados, "objecter_tick_interval", text);
	}
	snprintf(text, sizeof(text), "%u", c->timeout);
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		rados_conf_set(c->rados, names[i], text);
}

static int connect_cluster(struct cluster *c, const struct place *p)
{
	int result = rados_create2(&c->rados, "ceph", p->user, 0);

	if (result < 0) {
		c->rados = NULL;
		return rados_check(c, result, "cannot start librados as '%s'", p->user);
	}
	result = rados_conf_read_file(c->rados, *p->conf ? p->conf : NULL);
	if (result < 0)
		return rados_check(c, result, "cannot read the configuration of Ceph, '%s'",
				    *p->conf ? p->conf : "CEPH_CONF or /etc/ceph/ceph.conf");
	rados_conf_parse_env(c->rados, NULL);
	set_timeouts(c, p);
	result = rados_connect(c->rados);
	if (result < 0)
		return rados_check(c, result, "cannot connect to the cluster");
	result = rados_ioctx_create(c->rados, p->pool, &c->io);
	if (result < 0) {
		c->io = NULL;
		return rados_check(c, result, "cannot open the pool '%s'", p->pool);
	}
	rados_ioctx_set_namespace(c->io, p->container);
	return 0;
}

static int create_container(struct cluster *c, const struct bytes *wanted)
{
	rados_write_op_t op;
	int result;

	if (create_names(c) < 0)
		return -1;
	op = rados_create_write_op();
	rados_write_op_create(op, LIBRADOS_CREATE_EXCLUSIVE, NULL);
	rados_write_op_write_full(op, wanted->data, wanted->size);
	result = rados_do(c, op, "container");
	return rados_check(c, result == -EEXIST ? 0 : result, "cannot create the container");
}

static int read_description(const struct cluster *c, struct bytes *description)
{
	int result;

	description->data = malloc(DESCRIPTION_MAX);
	if (!description->data)
		return fail_no_memory("open the container");
	result = rados_read(c->io, "container", description->data, DESCRIPTION_MAX, 0);
	if (result >= 0) {
		description->size = (size_t)result;
		return 0;
	}
	free(description->data);
	return result == -ENOENT ?
		object_fail(ENOENT, "cannot open 'rados:%s': there is no container. Try \"umobject "
			    "create\"", c->name) :
		rados_check(c, result, "cannot read the container");
}

static void rados_close(struct backend *b)
{
	struct cluster *c = of(b);

	if (c->io) {
		end_chunks(c);
		lease_stop(c);
		rados_aio_flush(c->io);
		rados_ioctx_destroy(c->io);
	}
	if (c->rados)
		rados_shutdown(c->rados);
	pthread_mutex_destroy(&c->chunk_lock);
	free(c->name);
	free(c);
}

static int rados_open(const char *where, const struct bytes *wanted, struct bytes *description,
		      struct backend **b)
{
	struct cluster *c;
	struct place p;

	if (parse_place(where, &p) < 0)
		return -1;
	c = calloc(1, sizeof(*c));
	if (!c || asprintf(&c->name, "%s/%s", p.pool, p.container) < 0) {
		free(c);
		return fail_no_memory("open the container");
	}
	c->lease = p.lease;
	c->last_flight = &c->flights;
	pthread_mutex_init(&c->chunk_lock, NULL);
	if (connect_cluster(c, &p) < 0 || lease_start(c) < 0 ||
	    (wanted && create_container(c, wanted) < 0) || read_description(c, description) < 0) {
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
	.chunks = &rados_chunks,
	.versions = &rados_versions,
	.names = &rados_names,
};
