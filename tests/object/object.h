/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * object.h - common parts of the tests of libummap-object. Containers are in folders of the test,
 * or in the store that OBJECT_STORE names: "rados:test/?conf=FILE", where the name goes before the
 * question mark, or "memory:test/".
 */
#ifndef TESTS_OBJECT_H
#define TESTS_OBJECT_H

#include "../common.h"

#include <dlfcn.h>
#include <ummap-object.h>

#define good(call) check((call) == 0, "%s", umobject_errormsg())
/* Checks that a call fails with this error, and with a message that contains these words. */
#define refused(call, error, words) do { \
	const char *msg_; \
	check((call) == -1 && errno == (error), "%s: errno %d, %s", #call, errno, \
	      umobject_errormsg()); \
	msg_ = umobject_errormsg(); \
	check(strstr(msg_, words), "%s: \"%s\" lacks \"%s\"", #call, msg_, words); \
} while (0)

static inline umobject_container *open_box(const char *path, unsigned flags, unsigned keep)
{
	struct umobject_attr attr = UMOBJECT_ATTR_INIT;
	umobject_container *c;

	attr.flags = flags;
	attr.keep = keep;
	good(umobject_open(path, &attr, &c));
	return c;
}

static inline bool test_folders(void)
{
	return !getenv("OBJECT_STORE");
}

static inline bool test_rados(void)
{
	return !test_folders() && strncmp(getenv("OBJECT_STORE"), "rados:", 6) == 0;
}

static inline bool test_s3(void)
{
	return !test_folders() && strncmp(getenv("OBJECT_STORE"), "s3:", 3) == 0;
}

/* Number of the container of this test. */
static unsigned box_number;

/* The name of the container behind the scheme and the pool, which no other test has. */
static inline const char *box_name(void)
{
	static char name[64];

	snprintf(name, sizeof(name), "%s.%u", strrchr(temp_dir(), '/') + 1, box_number);
	return name;
}

/* The container without its keys. *keys: "" or "?...". */
static inline const char *bare_box(const char **keys)
{
	static char text[128];
	const char *store = getenv("OBJECT_STORE");

	*keys = "";
	if (!store)
		return in_dir(box_name());
	*keys = store + strcspn(store, "?");
	snprintf(text, sizeof(text), "%.*s%s", (int)strcspn(store, "?"), store, box_name());
	return text;
}

static inline const char *box(void)
{
	static char text[512];
	const char *keys, *bare = bare_box(&keys);

	snprintf(text, sizeof(text), "%s%s", bare, keys);
	return text;
}

static inline umobject_container *new_box(unsigned keep)
{
	return open_box(box(), UMOBJECT_CREATE, keep);
}

static inline struct umobject_stat stat_held(const umobject_version *v)
{
	struct umobject_stat st = { .struct_size = sizeof(st) };

	good(umobject_stat(v, &st));
	return st;
}

/* ---- What is in a container ---- */

/* The first line of a command's output, or "". */
static inline const char *output_of(const char *format, const char *a, const char *b)
{
	static char line[600];
	char command[1200];
	FILE *p;

	snprintf(command, sizeof(command), format, a, b);
	p = popen(command, "r");
	check(p);
	if (!fgets(line, sizeof(line), p))
		*line = '\0';
	line[strcspn(line, "\n")] = '\0';
	pclose(p);
	return line;
}

/* Ceph's command for objects, in the namespace of the container. */
static inline const char *rados_command(void)
{
	static char text[400];
	const char *conf = strstr(getenv("OBJECT_STORE"), "conf=");

	check(conf);
	conf += 5;
	snprintf(text, sizeof(text), "rados -c '%.*s' -p test --namespace '%s'",
		 (int)strcspn(conf, "&"), conf, box_name());
	return text;
}

/* The URL of the server for S3. */
static inline const char *s3_url(void)
{
	static char url[100];
	const char *at = strstr(getenv("OBJECT_STORE"), "endpoint=");

	check(at);
	at += strlen("endpoint=");
	snprintf(url, sizeof(url), "%.*s", (int)strcspn(at, "&"), at);
	return url;
}

/* The answer of the server s3-server to a command for the container; see its head. */
static inline const char *control_s3(const char *command, const char *rest)
{
	const char *keys;
	char format[300];

	snprintf(format, sizeof(format), "curl -sg '%s/control?%s=%%s%%s'", s3_url(), command);
	return output_of(format, strcmp(command, "find") == 0 ? bare_box(&keys) + strlen("s3:") :
								"", rest);
}

static inline unsigned count_s3(const char *prefix)
{
	const char *keys;
	char name[200];

	snprintf(name, sizeof(name), "%s%s", bare_box(&keys) + strlen("s3:"), prefix);
	return (unsigned)atoi(output_of("'" OBJECT_TESTS "/../http/s3-request' count '%s' '%s'",
					s3_url(), name));
}

#define VERSIONS "live"
#define CHUNKS "data"
#define VIEWS "views"

static inline unsigned count_in_memory(const char *what)
{
	bool chunks = strcmp(what, CHUNKS) == 0;
	void *object = dlopen(OBJECT_TEST_PLUGINS "/ummap-object-memory.so",
			      RTLD_NOW | RTLD_NOLOAD);
	unsigned (*count)(const char *);
	char name[80];

	check(object, "%s", dlerror());
	if (!chunks && strcmp(what, VERSIONS) != 0)
		return 0;
	count = (unsigned (*)(const char *))dlsym(object, chunks ? "memory_chunks" :
						  "memory_versions");
	snprintf(name, sizeof(name), "test/%s", box_name());
	return count(name);
}

static inline unsigned count_stored(const char *what)
{
	if (test_folders())
		return (unsigned)atoi(output_of("find '%s/%s' -type f | wc -l", box(), what));
	if (test_rados())
		return (unsigned)atoi(output_of("%s ls | grep -c '^%s'", rados_command(),
						strcmp(what, CHUNKS) == 0 ? "chunk" :
						strcmp(what, VERSIONS) == 0 ? "version" : "view"));
	if (test_s3())
		return count_s3(strcmp(what, CHUNKS) == 0 ? "/c/" :
				strcmp(what, VERSIONS) == 0 ? "/v/" : "/w/");
	return count_in_memory(what);
}

/* A chunk or the record of a version: a file of the container, or a copy in a file. */
struct stored_thing {
	char oid[128], path[600];
	bool version;
};

static inline void run_rados(const struct stored_thing *t, const char *command)
{
	char text[1400];

	snprintf(text, sizeof(text), "%s %s %s%s %s '%s'", rados_command(), command, t->oid,
		 t->version ? " object" : "", strncmp(command, "set", 3) == 0 ? "<" : "", t->path);
	check(system(text) == 0, "%s", text);
}

static inline void run_s3(const struct stored_thing *t, const char *command, const char *file)
{
	char rest[800];

	snprintf(rest, sizeof(rest), "%s&%s=%s", t->oid, file, t->path);
	control_s3(command, rest);
}

/* Finds the first version, or the first chunk of this number. */
static inline void take_thing(struct stored_thing *t, int chunk)
{
	char pattern[64];

	t->version = chunk < 0;
	if (test_folders()) {
		snprintf(pattern, sizeof(pattern), chunk < 0 ? "live/*" : "data/*.%d.h5", chunk);
		strcpy(t->path, output_of("ls '%s'/%s | head -n 1", box(), pattern));
		check(*t->path);
		return;
	}
	strcpy(t->path, in_dir("thing"));
	if (test_s3()) {
		snprintf(pattern, sizeof(pattern), chunk < 0 ? "/v/" : "/c/.*[.]%d$", chunk);
		snprintf(t->oid, sizeof(t->oid), "%.120s", control_s3("find", pattern));
		check(*t->oid);
		run_s3(t, "take", "to");
		return;
	}
	snprintf(pattern, sizeof(pattern), chunk < 0 ? "^version" : "^chunk.*\\.%d$", chunk);
	snprintf(t->oid, sizeof(t->oid), "%.120s", output_of("%s ls | grep '%s' | head -n 1",
							     rados_command(), pattern));
	check(*t->oid);
	run_rados(t, t->version ? "getomapval" : "get");
}

/* Stores the contents of the file in the container. */
static inline void put_thing(const struct stored_thing *t)
{
	if (test_s3())
		run_s3(t, "give", "from");
	else if (!test_folders())
		run_rados(t, t->version ? "setomapval" : "put");
}

static inline void remove_thing(const struct stored_thing *t)
{
	if (test_folders()) {
		check(unlink(t->path) == 0);
	} else if (test_s3()) {
		control_s3("remove", t->oid);
	} else {
		char text[700];

		snprintf(text, sizeof(text), "%s rm %s", rados_command(), t->oid);
		check(system(text) == 0);
	}
}

#endif
