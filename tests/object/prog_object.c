/* SPDX-License-Identifier: BSD-3-Clause */
/* prog_object - containers, puts, versions and the driver: their promises and their errors, in
 * folders, in the back end `memory`, and in the store that OBJECT_STORE names. */
#include "object.h"
#include "../small_fs.h"

#include <ummap.h>

static const struct umobject_shape shape = { .type = UMOBJECT_INT32, .rank = 2, .dims = { 70, 50 },
	.chunk = { 32, 32 } };
#define ELEMENTS (70 * 50)

static void fill_with(int32_t *data, int32_t first)
{
	for (int32_t i = 0; i < ELEMENTS; i++)
		data[i] = first + i;
}

static void expect(umobject_container *c, const char *name, int32_t first)
{
	int32_t got[ELEMENTS];

	good(umobject_get(c, name, NULL, NULL, got));
	for (int32_t i = 0; i < ELEMENTS; i++)
		check(got[i] == first + i, "%s[%d] is %d", name, i, got[i]);
}

static void put(umobject_container *c, const char *name, int32_t first)
{
	int32_t data[ELEMENTS];

	fill_with(data, first);
	good(umobject_put_array(c, name, &shape, data));
}

static void test_bad_calls(void *unused)
{
	struct umobject_attr attr = UMOBJECT_ATTR_INIT;
	struct umobject_shape bad = shape;
	int32_t data[ELEMENTS] = { 0 };
	umobject_container *c;
	umobject_version *v;
	umobject_put *p;
	char *name = malloc(UMOBJECT_NAME_MAX + 2);
	uint64_t start[2] = { 60, 0 }, count[2] = { 11, 1 };

	(void)unused;
	box_number += 100;
	refused(umobject_open(box(), NULL, &c), ENOENT, "no container");
	box_number -= 100;
	refused(umobject_open("", NULL, &c), EINVAL, "the name is empty");
	attr.flags = 8;
	refused(umobject_open(in_dir("none"), &attr, &c), EINVAL, "attr.flags");
	attr.struct_size = 4;
	refused(umobject_open(in_dir("none"), &attr, &c), EINVAL, "struct_size");
	c = new_box(1);
	refused(umobject_put_array(c, "", &shape, data), EINVAL, "empty");
	memset(name, 'x', UMOBJECT_NAME_MAX + 1);
	name[UMOBJECT_NAME_MAX + 1] = '\0';
	refused(umobject_put_array(c, name, &shape, data), ENAMETOOLONG, "4096");
	/* The longest name works. */
	name[UMOBJECT_NAME_MAX] = '\0';
	put(c, name, 5);
	expect(c, name, 5);
	free(name);
	bad.type = 99;
	refused(umobject_put_array(c, "a", &bad, data), EINVAL, "shape.type");
	bad = shape;
	bad.rank = 33;
	refused(umobject_put_array(c, "a", &bad, data), EINVAL, "shape.rank");
	bad = shape;
	bad.dims[1] = 0;
	refused(umobject_put_array(c, "a", &bad, data), EINVAL, "dims[1]");
	bad.dims[1] = UINT64_MAX / 8;
	refused(umobject_put_array(c, "a", &bad, data), EINVAL, "more bytes");
	put(c, "a", 1);
	refused(umobject_get(c, "a", start, count, data), EINVAL, "not within");
	refused(umobject_get(c, "a", start, NULL, data), EINVAL, "is NULL");
	refused(umobject_hold(c, "a", 7, &v), ENOENT, "version 7");
	refused(umobject_delete(c, "b"), ENOENT, "b");
	good(umobject_begin(c, "a", &shape, &p, NULL));
	refused(umobject_put_chunk(p, 6, data), EINVAL, "chunk 6");
	refused(umobject_put_attribute(p, "", "", 0), EINVAL, "attribute");
	good(umobject_put_chunk(p, 0, data));
	refused(umobject_commit(p, 0, NULL), ENODATA, "chunk 1 is missing");
	expect(c, "a", 1);
	umobject_close(c);
	c = open_box(box(), UMOBJECT_READ_ONLY, 0);
	refused(umobject_put_array(c, "a", &shape, data), EROFS, "READ_ONLY");
	refused(umobject_gc(c, NULL), EROFS, "READ_ONLY");
	umobject_close(c);
}

/* A held version can be read, whatever happens to its name. */
static void test_held_versions(void *unused)
{
	umobject_container *c = new_box(2);
	umobject_version *old, *v;
	int32_t got[ELEMENTS];
	struct umobject_id id;

	(void)unused;
	put(c, "a", 1);
	good(umobject_hold(c, "a", 0, &old));
	id = stat_held(old).id;
	put(c, "a", 1000);
	put(c, "a", 2000);
	put(c, "a", 3000);
	good(umobject_hold(c, "a", 3, &v));
	good(umobject_read(v, NULL, NULL, got));
	check(got[0] == 2000);
	umobject_release(v);
	refused(umobject_hold(c, "a", 2, &v), ENOENT, "no longer kept");
	good(umobject_delete(c, "a"));
	good(umobject_gc(c, NULL));
	good(umobject_read(old, NULL, NULL, got));
	check(got[0] == 1 && got[ELEMENTS - 1] == ELEMENTS);
	good(umobject_hold_id(c, &id, &v));
	umobject_release(v);
	umobject_release(old);
	good(umobject_gc(c, NULL));
	refused(umobject_hold_id(c, &id, &v), ENOENT, "cannot find");
	check(count_stored(CHUNKS) == 0);
	umobject_close(c);
}

static int count_name(void *arg, const char *name)
{
	check(*name == 'n');
	*(size_t *)arg += strlen(name);
	return 0;
}

/* Names of all lengths have versions, even if the name of a version's file would be too long. */
static void test_long_names(void *unused)
{
	umobject_container *c = new_box(2);
	const struct umobject_shape one = { .type = UMOBJECT_INT32, .rank = 0 };
	umobject_version *v;
	size_t lengths = 0;
	char name[260];
	int32_t got;

	(void)unused;
	memset(name, 'n', sizeof(name));
	for (size_t len = 225; len < sizeof(name); len++) {
		name[len] = '\0';
		for (int32_t i = 1; i <= 4; i++)
			good(umobject_put_array(c, name, &one, &i));
		for (uint64_t version = 3; version <= 4; version++) {
			good(umobject_hold(c, name, version, &v));
			good(umobject_read(v, NULL, NULL, &got));
			check(got == (int32_t)version);
			umobject_release(v);
		}
		name[len] = 'n';
		lengths += len;
	}
	good(umobject_list(c, count_name, &lengths));
	check(lengths == 2 * (225 + 259) * 35 / 2, "%zu", lengths);
	for (size_t len = 225; len < sizeof(name); len++) {
		name[len] = '\0';
		good(umobject_delete(c, name));
		name[len] = 'n';
	}
	good(umobject_gc(c, NULL));
	check(count_stored(VERSIONS) == 0 && count_stored(CHUNKS) == 0);
	umobject_close(c);
}

/* A commit removes versions that are no longer kept and not held. */
static void test_replacement(void *unused)
{
	umobject_container *c = new_box(2);

	(void)unused;
	for (int i = 0; i < 6; i++)
		put(c, "a", i);
	check(count_stored(VERSIONS) == 2 && count_stored(CHUNKS) == 12, "%u versions, %u chunks",
	      count_stored(VERSIONS), count_stored(CHUNKS));
	umobject_close(c);
}

static void test_sparse_array(void *unused)
{
	struct umobject_shape huge = { .type = UMOBJECT_DOUBLE, .rank = 2, .dims = { 1 << 20,
		1 << 20 }, .chunk = { 1 << 17, 1 << 17 } };
	umobject_container *c = new_box(1);
	uint64_t start[2] = { 5, 7 }, count[2] = { 3, 4 };
	double got[12];
	umobject_put *p;
	umobject_version *v;

	(void)unused;
	memset(got, 1, sizeof(got));
	good(umobject_begin(c, "huge", &huge, &p, NULL));
	good(umobject_commit(p, UMOBJECT_SPARSE, NULL));
	good(umobject_get(c, "huge", start, count, got));
	check_zeros(got, sizeof(got));
	good(umobject_hold(c, "huge", 0, &v));
	check(stat_held(v).bytes == 1ull << 43 && stat_held(v).stored == 0 &&
	      stat_held(v).chunks == 64);
	umobject_release(v);
	umobject_close(c);
}

/* ---- Versions that are made from another one ---- */

static umobject_put *begin_from(umobject_version *base, struct umobject_id *id)
{
	umobject_put *p;

	good(umobject_begin_from(base, &p, id));
	return p;
}

/* The process that began a put ends before the process that joined it commits. The chunks of the
 * base stay in the meantime, although no other version needs them. */
static void test_end_of_creator(void *unused)
{
	umobject_container *c = new_box(1);
	umobject_version *base;
	struct umobject_id id;
	umobject_put *began, *joined;
	int32_t data[ELEMENTS], got[ELEMENTS];

	(void)unused;
	put(c, "a", 1);
	good(umobject_hold(c, "a", 0, &base));
	began = begin_from(base, &id);
	umobject_release(base);
	good(umobject_join(c, &id, &joined));
	good(umobject_put_end(began));
	put(c, "a", 1000);
	good(umobject_gc(c, NULL));
	/* Chunk 0 is 32 times 32. */
	fill_with(data, -5000);
	good(umobject_put_chunk(joined, 0, data));
	good(umobject_commit(joined, 0, NULL));
	good(umobject_get(c, "a", NULL, NULL, got));
	check(got[0] == -5000 && got[31] == -5000 + 31 && got[32] == 33 &&
	      got[ELEMENTS - 1] == ELEMENTS);
	good(umobject_hold(c, "a", 0, &base));
	check(umobject_check(base, NULL, NULL) == 0);
	umobject_release(base);
	/* The container is empty. */
	put(c, "a", 7);
	good(umobject_gc(c, NULL));
	check(count_stored(CHUNKS) == 6, "%u chunks", count_stored(CHUNKS));
	umobject_close(c);
}

/* Chunks that are zeros in the base are zeros in the new version, whichever process commits it. */
static void test_zeros(void *unused)
{
	umobject_container *c = new_box(1);
	int32_t data[ELEMENTS], got[ELEMENTS];
	umobject_put *began, *joined;
	umobject_version *base;
	struct umobject_id id;

	(void)unused;
	good(umobject_begin(c, "a", &shape, &began, NULL));
	good(umobject_commit(began, UMOBJECT_SPARSE, NULL));
	good(umobject_hold(c, "a", 0, &base));
	began = begin_from(base, &id);
	good(umobject_join(c, &id, &joined));
	umobject_release(base);
	fill_with(data, 1);
	good(umobject_put_chunk(began, 0, data));
	good(umobject_put_end(began));
	good(umobject_commit(joined, 0, NULL));
	good(umobject_get(c, "a", NULL, NULL, got));
	check(got[0] == 1 && got[31] == 32 && got[32] == 0 && got[ELEMENTS - 1] == 0);
	umobject_close(c);
}

/* ---- Damage ---- */

static unsigned complaints;

static void complain(void *arg, const char *sentence)
{
	(void)arg;
	check(strstr(sentence, "chunk"), "%s", sentence);
	complaints++;
}

static void flip(const struct stored_thing *t, off_t at)
{
	int fd = open(t->path, O_RDWR);
	uint8_t byte;

	check(fd >= 0 && pread(fd, &byte, 1, at) == 1);
	byte ^= 0x40;
	check(pwrite(fd, &byte, 1, at) == 1 && close(fd) == 0);
	put_thing(t);
}

/* Every damaged byte is found, or is not needed. Only some are tried if each one costs a
 * command. */
static void test_damage(void *unused)
{
	umobject_container *c = new_box(1);
	int32_t got[ELEMENTS];
	struct stored_thing t;
	struct stat st;
	unsigned found = 0, harmless = 0, slow = test_folders() ? 1 : 17;

	(void)unused;
	put(c, "a", 1);
	take_thing(&t, 0);
	check(stat(t.path, &st) == 0);
	for (off_t at = 0; at < st.st_size; at += (at < 600 ? 1 : 37) * slow) {
		flip(&t, at);
		if (umobject_get(c, "a", NULL, NULL, got) < 0) {
			check(errno == EBADMSG && strstr(umobject_errormsg(), "damaged"), "byte "
			      "%ld: %s", (long)at, umobject_errormsg());
			found++;
		} else {
			/* HDF5's own header is for other programs. */
			for (int32_t i = 0; i < ELEMENTS; i++)
				check(got[i] == 1 + i, "byte %ld", (long)at);
			harmless++;
		}
		flip(&t, at);
	}
	check(found > 50 / slow && harmless > 0, "%u, %u", found, harmless);
	take_thing(&t, -1);
	check(stat(t.path, &st) == 0);
	for (off_t at = 0; at < st.st_size; at += slow) {
		flip(&t, at);
		refused(umobject_get(c, "a", NULL, NULL, got), EBADMSG, "damaged");
		refused(umobject_gc(c, NULL), EBADMSG, "Nothing was removed");
		flip(&t, at);
	}
	expect(c, "a", 1);
	umobject_close(c);
	if (!test_folders())
		return;
	snprintf(t.path, sizeof(t.path), "%s/container", box());
	flip(&t, 3);
	refused(umobject_open(box(), NULL, &c), EBADMSG, "damaged");
}

static void test_names_of_missing_chunks(void *unused)
{
	umobject_container *c = new_box(1);
	int32_t got[ELEMENTS];
	struct stored_thing t;
	umobject_version *v;

	(void)unused;
	put(c, "a", 1);
	take_thing(&t, 4);
	remove_thing(&t);
	refused(umobject_get(c, "a", NULL, NULL, got), ENODATA, "chunk 4 is missing");
	take_thing(&t, 1);
	check(truncate(t.path, 900) == 0);
	put_thing(&t);
	good(umobject_hold(c, "a", 0, &v));
	check(umobject_check(v, complain, NULL) == 2 && complaints == 2);
	umobject_release(v);
	umobject_close(c);
}

static void complain_of_name(void *words, const char *name, const char *sentence)
{
	check((strcmp(name, "a") == 0 || strncmp(name, "a version ", 10) == 0) &&
	      strstr(sentence, words), "%s: %s", name, sentence);
	complaints++;
}

/* A check of a container reads only those chunks of older versions that newer ones do not have. */
static void test_check_of_kept_versions(void *unused)
{
	umobject_container *c = new_box(2);
	struct stored_thing t;
	umobject_version *v;
	umobject_put *p;

	(void)unused;
	check(umobject_check_container(c, NULL, 0, complain_of_name, "") == 0);
	put(c, "a", 1);
	good(umobject_hold(c, "a", 0, &v));
	good(umobject_begin_from(v, &p, NULL));
	good(umobject_commit(p, 0, NULL));
	umobject_release(v);
	complaints = 0;
	check(umobject_check_container(c, NULL, UMOBJECT_REPAIR, complain_of_name, "") == 0);
	/* The test cannot damage chunks of the back end `memory`. */
	if (test_folders() || test_rados() || test_s3()) {
		take_thing(&t, 1);
		check(truncate(t.path, 900) == 0);
		put_thing(&t);
		check(umobject_check_container(c, NULL, 0, complain_of_name, "damaged") == 1 &&
		      complaints == 1);
		put(c, "a", 1);
		check(umobject_check_container(c, "a", UMOBJECT_REPAIR, complain_of_name,
					       "damaged") == 1 && complaints == 2);
		put(c, "a", 1);
	}
	check(umobject_check_container(c, "a", 0, complain_of_name, "") == 0);
	refused(umobject_check_container(c, "b", 0, complain_of_name, ""), ENOENT, "cannot find "
		"the object 'b'");
	refused(umobject_check_container(c, "b", 2, complain_of_name, ""), EINVAL,
		"UMOBJECT_REPAIR");
	good(umobject_gc(c, NULL));
	umobject_close(c);
	c = open_box(box(), UMOBJECT_READ_ONLY, 0);
	refused(umobject_check_container(c, NULL, UMOBJECT_REPAIR, complain_of_name, ""), EROFS,
		"READ_ONLY");
	check(umobject_check_container(c, NULL, 0, complain_of_name, "") == 0);
	umobject_close(c);
}

/* ---- Devices ---- */

static void test_devices(void *unused)
{
	const char *devices[] = { strdup(in_dir("one")), strdup(in_dir("two")), "inside" };
	struct umobject_attr attr = UMOBJECT_ATTR_INIT;
	umobject_container *c;
	int32_t got[ELEMENTS];
	unsigned inside, refusals = 0;
	char away[300];

	(void)unused;
	attr.flags = UMOBJECT_CREATE;
	attr.devices = devices;
	attr.ndevices = 3;
	good(umobject_open(box(), &attr, &c));
	for (int i = 0; i < 8; i++)
		put(c, (char[]){ (char)('a' + i), 0 }, i);
	inside = count_stored("inside");
	check(inside < 48 && count_stored("../one") + count_stored("../two") + inside == 48);
	umobject_close(c);
	snprintf(away, sizeof(away), "%s.away", devices[0]);
	check(rename(devices[0], away) == 0);
	c = open_box(box(), 0, 0);
	/* The ids decide which devices have chunks. */
	for (int i = 0; i < 8; i++) {
		if (umobject_get(c, (char[]){ (char)('a' + i), 0 }, NULL, NULL, got) == 0)
			continue;
		check(errno == ENODEV && strstr(umobject_errormsg(), devices[0]), "%s",
		      umobject_errormsg());
		refusals++;
	}
	check(refusals > 0);
	refused(umobject_gc(c, NULL), ENODEV, devices[0]);
	umobject_close(c);
	check(rename(away, devices[0]) == 0);
	c = open_box(box(), 0, 0);
	expect(c, "a", 0);
	umobject_close(c);
}

/* ---- No room ---- */

/* A copy of a container may have files instead of links. Their versions are no garbage. */
static void test_collection_in_copies(void *unused)
{
	umobject_container *c = new_box(3);
	umobject_version *v;
	umobject_put *p;
	int32_t got[ELEMENTS];
	struct umobject_id id;
	char copy[500];

	(void)unused;
	put(c, "a", 0);
	put(c, "a", 1);
	good(umobject_hold(c, "a", 0, &v));
	p = begin_from(v, &id);
	good(umobject_commit(p, 0, NULL));
	umobject_release(v);
	put(c, "a", 3);
	put(c, "b", 4);
	umobject_close(c);
	snprintf(copy, sizeof(copy), "%s.copy", box());
	check(*output_of("cp -r '%s' '%s' && echo copied", box(), copy));
	c = open_box(copy, 0, 0);
	for (int round = 0; round < 2; round++) {
		struct umobject_garbage removed = { .struct_size = sizeof(removed) };

		good(umobject_gc(c, &removed));
		check(removed.versions == 0 && removed.chunks == 0, "%d", (int)removed.chunks);
		for (uint64_t version = 2; version <= 4; version++) {
			good(umobject_hold(c, "a", version, &v));
			good(umobject_read(v, NULL, NULL, got));
			check(got[0] == (version == 4 ? 3 : 1));
			umobject_release(v);
		}
		expect(c, "b", 4);
	}
	good(umobject_delete(c, "a"));
	put(c, "b", 5);
	good(umobject_delete(c, "b"));
	good(umobject_gc(c, NULL));
	check(!*output_of("find '%s'/live '%s'/data -type f", copy, copy));
	umobject_close(c);
}

static void test_full_disk(void *unused)
{
	struct umobject_shape large = { .type = UMOBJECT_UINT8, .rank = 1, .dims = { MIB },
		.chunk = { 128 * KIB } };
	uint8_t *data = malloc(MIB), *got = malloc(MIB);
	int root = small_file_system();
	char path[64];
	umobject_container *c;
	unsigned puts = 0;

	(void)unused;
	if (root < 0)
		return;
	snprintf(path, sizeof(path), "/proc/self/fd/%d/box", root);
	c = open_box(path, UMOBJECT_CREATE, 100);
	for (;; puts++) {
		fill(data, MIB, 0, puts);
		if (umobject_put_array(c, "a", &large, data) < 0)
			break;
	}
	check(errno == ENOSPC && puts > 1, "after %u: %s", puts, umobject_errormsg());
	good(umobject_get(c, "a", NULL, NULL, got));
	check_bytes(got, MIB, 0, puts - 1);
	good(umobject_gc(c, NULL));
	good(umobject_delete(c, "a"));
	good(umobject_gc(c, NULL));
	good(umobject_put_array(c, "a", &large, data));
	umobject_close(c);
	close(root);
}

/* ---- The driver ---- */

static void *map_object(const char *rest, size_t size, int prot, int flags)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	const char *keys, *bare = bare_box(&keys);
	char uri[600];
	void *base;

	snprintf(uri, sizeof(uri), "object:%s/%s%s%s", bare, rest, *keys ? strchr(rest, '?') ?
		 "&" : "?" : "", *keys ? keys + 1 : "");
	attr.flags = flags;
	attr.seg_size = 64 * KIB;
	if (ummap_open(uri, size, 0, prot, &attr, &base) == 0)
		return base;
	return NULL;
}

static void test_mapping(void *unused)
{
	umobject_container *c = new_box(5);
	struct umobject_shape wide = { .type = UMOBJECT_INT32, .rank = 2, .dims = { 1000, 700 },
		.chunk = { 100, 128 } };
	size_t bytes = 1000 * 700 * sizeof(int32_t);
	int32_t *data = malloc(bytes), *m, *n;
	umobject_version *v;
	struct umobject_stat st;

	(void)unused;
	set_budget(16 * MIB);
	for (int i = 0; i < 700000; i++)
		data[i] = i;
	good(umobject_put_array(c, "sim/a", &wide, data));
	m = map_object("sim/a", bytes, PROT_READ, 0);
	check(m && memcmp(m, data, bytes) == 0, "%s", umerrormsg());
	n = map_object("sim/a", bytes, PROT_READ | PROT_WRITE, 0);
	check(n, "%s", umerrormsg());
	/* The array is one chunk. */
	n[3] = data[3] = -1;
	n[700 * 50 + 5] = data[700 * 50 + 5] = -2;
	check(umsync(n, 0) == 0, "%s", umerrormsg());
	check(m[3] == 3, "a version does not change");
	good(umobject_hold(c, "sim/a", 0, &v));
	st = stat_held(v);
	check(st.version == 2 && st.chunks == 60);
	umobject_release(v);
	check(count_stored(CHUNKS) == 61, "only the chunk that changed was put: %u",
	      count_stored(CHUNKS));
	for (int i = 0; i < 700000; i += 1000)
		n[i] = data[i] = 7;
	check(umunmap(n, 1) == 0, "%s", umerrormsg());
	n = map_object("sim/a?version=3", bytes, PROT_READ, 0);
	check(n && memcmp(n, data, bytes) == 0);
	check(umunmap(n, 0) == 0 && umunmap(m, 0) == 0);
	check(!map_object("sim/a?version=2", bytes, PROT_READ | PROT_WRITE, 0) &&
	      strstr(umerrormsg(), "do not change"), "%s", umerrormsg());
	check(!map_object("sim/none", bytes, PROT_READ, 0) && strstr(umerrormsg(), "cannot find"),
	      "%s", umerrormsg());
	check(!map_object("sim/a?version=x", bytes, PROT_READ, 0) &&
	      strstr(umerrormsg(), "number"), "%s", umerrormsg());
	/* A new object is sparse, except for the chunks that were stored. */
	n = map_object("new?type=double&dims=1000x1000&chunk=100x1000", 8000000,
		       PROT_READ | PROT_WRITE, UMMAP_CREATE);
	check(n, "%s", umerrormsg());
	((double *)n)[999999] = 1.5;
	check(umunmap(n, 1) == 0, "%s", umerrormsg());
	good(umobject_hold(c, "new", 0, &v));
	st = stat_held(v);
	check(st.stored == 1 && st.chunks == 10 && st.shape.type == UMOBJECT_DOUBLE);
	umobject_release(v);
	umobject_close(c);
	free(data);
}

/* Names that are too long for files, and shapes of objects that do not exist yet. */
static void test_mapping_of_new_names(void *unused)
{
	umobject_container *c = new_box(1), *same;
	const char *keys, *bare = bare_box(&keys), *found;
	struct umobject_shape bytes = { .type = UMOBJECT_UINT8, .rank = 1, .dims = { 64 * KIB },
		.chunk = { 64 * KIB } };
	char name[600], path[1200], uri[700];
	umobject_version *v;
	uint8_t *m;

	(void)unused;
	memset(name, 'n', sizeof(name));
	name[300] = '/';
	name[sizeof(name) - 1] = '\0';
	m = calloc(1, 64 * KIB);
	good(umobject_put_array(c, name, &bytes, m));
	free(m);
	snprintf(path, sizeof(path), "%s/%s", bare, name);
	good(umobject_open_path(path, keys, NULL, &same, &found));
	check(strcmp(found, name) == 0);
	umobject_close(same);
	name[290] = '\0';
	snprintf(uri, sizeof(uri), "%s?chunk=20000", name);
	m = map_object(uri, 64 * KIB, PROT_READ | PROT_WRITE, UMMAP_CREATE);
	check(m, "%s", umerrormsg());
	m[50000] = 1;
	check(umunmap(m, 1) == 0, "%s", umerrormsg());
	good(umobject_hold(c, name, 0, &v));
	check(stat_held(v).chunks == 4 && stat_held(v).shape.chunk[0] == 20000);
	umobject_release(v);
	check(!map_object("none?type=double", 64 * KIB, PROT_READ | PROT_WRITE, UMMAP_CREATE));
	check(strstr(umerrormsg(), "dims"), "%s", umerrormsg());
	check(!map_object("none?chunk=10x20", 64 * KIB, PROT_READ | PROT_WRITE, UMMAP_CREATE));
	check(strstr(umerrormsg(), "dims"), "%s", umerrormsg());
	umobject_close(c);
}

static int32_t element_of(umobject_draft *d, uint64_t i)
{
	int32_t got;

	good(umobject_draft_read(d, &got, sizeof(got), i * sizeof(got)));
	return got;
}

static void set_element(umobject_draft *d, uint64_t i, int32_t to)
{
	good(umobject_draft_write(d, &to, sizeof(to), i * sizeof(to)));
}

/* Blocks of an abandoned put are put again. Blocks that are written after a put stay in the
 * draft. */
static void test_drafts(void *unused)
{
	umobject_container *c = new_box(1);
	umobject_version *base, *made;
	umobject_put *p;
	umobject_draft *d;
	struct umobject_shape whole;
	struct umobject_id id;
	int32_t got[ELEMENTS];

	(void)unused;
	put(c, "a", 1);
	good(umobject_hold(c, "a", 0, &base));
	whole = stat_held(base).shape;
	good(umobject_draft_begin(base, &whole, &d));
	check(!umobject_draft_is_written(d) && element_of(d, 7) == 8);
	set_element(d, 7, -7);
	set_element(d, ELEMENTS - 1, -9);
	check(umobject_draft_is_written(d) && element_of(d, 7) == -7 && element_of(d, 8) == 9);
	refused(umobject_draft_write(d, got, sizeof(got), sizeof(got[0])), EFBIG, "behind the end");
	p = begin_from(base, &id);
	good(umobject_draft_put(d, p, 0, UINT64_MAX));
	umobject_abandon(p);
	p = begin_from(base, &id);
	good(umobject_draft_put(d, p, 0, UINT64_MAX));
	set_element(d, 8, -8);
	good(umobject_commit(p, 0, NULL));
	good(umobject_hold_id(c, &id, &made));
	umobject_draft_rebase(d, made);
	umobject_release(base);
	check(umobject_draft_is_written(d) && element_of(d, 8) == -8 && element_of(d, 7) == -7 &&
	      element_of(d, 9) == 10);
	good(umobject_read(made, NULL, NULL, got));
	check(got[7] == -7 && got[8] == 9 && got[ELEMENTS - 1] == -9);
	p = begin_from(made, &id);
	good(umobject_draft_put(d, p, 0, UINT64_MAX));
	good(umobject_commit(p, 0, NULL));
	good(umobject_hold_id(c, &id, &base));
	umobject_draft_rebase(d, base);
	umobject_release(made);
	check(!umobject_draft_is_written(d));
	good(umobject_read(base, NULL, NULL, got));
	check(got[7] == -7 && got[8] == -8 && got[9] == 10 && got[ELEMENTS - 1] == -9);
	umobject_draft_end(d);
	umobject_release(base);
	umobject_close(c);
}

/* A chunk that is put with one value, and again by the same put with the old value, has the old
 * value. */
static void test_reverted_drafts(void *unused)
{
	umobject_container *c = new_box(1);
	umobject_version *base, *newer;
	struct umobject_shape whole;
	int32_t got[ELEMENTS];
	struct umobject_id id;
	umobject_draft *d;
	umobject_put *p;

	(void)unused;
	put(c, "a", 1);
	good(umobject_hold(c, "a", 0, &base));
	whole = stat_held(base).shape;
	good(umobject_draft_begin(base, &whole, &d));
	p = begin_from(base, &id);
	set_element(d, 7, -7);
	set_element(d, ELEMENTS - 1, -9);
	good(umobject_draft_put(d, p, 0, UINT64_MAX));
	set_element(d, 7, 8);
	good(umobject_draft_put(d, p, 0, UINT64_MAX));
	good(umobject_commit(p, 0, NULL));
	good(umobject_get(c, "a", NULL, NULL, got));
	check(got[7] == 8 && got[8] == 9 && got[ELEMENTS - 1] == -9, "%d, %d, %d", got[7], got[8],
	      got[ELEMENTS - 1]);
	/* A chunk that equals the draft's base is put if the new version is made from another
	 * base. */
	put(c, "a", 1000);
	good(umobject_hold(c, "a", 0, &newer));
	p = begin_from(newer, &id);
	good(umobject_draft_put(d, p, 0, UINT64_MAX));
	good(umobject_commit(p, 0, NULL));
	good(umobject_get(c, "a", NULL, NULL, got));
	check(got[7] == 8 && got[8] == 9 && got[ELEMENTS - 1] == -9, "%d, %d, %d", got[7], got[8],
	      got[ELEMENTS - 1]);
	/* The shape differs. */
	whole.type = UMOBJECT_INT8;
	refused(umobject_draft_begin(base, &whole, &(umobject_draft *){ NULL }), EINVAL, "of the "
		"version");
	good(umobject_begin(c, "a", &whole, &p, NULL));
	refused(umobject_draft_put(d, p, 0, UINT64_MAX), EINVAL, "of the put");
	umobject_abandon(p);
	umobject_draft_end(d);
	umobject_release(newer);
	umobject_release(base);
	umobject_close(c);
}

static void test_bad_schemes(void *unused)
{
	struct umobject_attr attr = UMOBJECT_ATTR_INIT;
	umobject_container *c;

	(void)unused;
	refused(umobject_open("nobody:a/b", NULL, &c), EPROTONOSUPPORT, "ummap-object-nobody.so");
	attr.devices = (const char *[]){ "x" };
	attr.ndevices = 1;
	refused(umobject_open("memory:a", &attr, &c), EINVAL, "attr.devices");
}

static void run_all(void)
{
	static const struct {
		void (*run)(void *);
		bool folders, bytes;   /* it is about folders; it looks at what is stored */
	} all[] = {
		{ test_bad_calls, false, false },
		{ test_held_versions, false, false },
		{ test_long_names, false, false },
		{ test_replacement, false, false },
		{ test_sparse_array, false, false },
		{ test_mapping, false, false },
		{ test_mapping_of_new_names, false, false },
		{ test_drafts, false, false },
		{ test_reverted_drafts, false, false },
		{ test_end_of_creator, false, false },
		{ test_zeros, false, false },
		{ test_damage, false, true },
		{ test_names_of_missing_chunks, false, true },
		{ test_check_of_kept_versions, false, false },
		{ test_devices, true, false },
		{ test_collection_in_copies, true, false },
		{ test_full_disk, true, false },
		{ test_bad_schemes, true, false },
	};
	size_t i;

	for (i = 0; i < sizeof(all) / sizeof(*all); i++, box_number++)
		if (test_folders() || (!all[i].folders && (test_rados() || test_s3() ||
							   !all[i].bytes)))
			check_exits(run_child(all[i].run, NULL), 0);
}

int main(void)
{
	/* The driver is beside the library that was built. */
	if (!getenv("UMMAP_DRIVER_PATH"))
		set_env("UMMAP_DRIVER_PATH", OBJECT_PLUGINS ":" OBJECT_TEST_PLUGINS);
	run_all();
	if (test_folders()) {
		set_env("OBJECT_STORE", "memory:test/");
		run_all();
	}
	return 0;
}
