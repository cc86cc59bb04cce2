/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * prog_s3_write - mappings that write new versions of objects of S3: parts that are sent and
 * copied, lengths, races of writers, killed writers, and errors of each request. The server is
 * s3-server, or that of the URL in the first argument, which has no faults on request and no log.
 */
#include "s3.h"

#include <pthread.h>
#include <stdatomic.h>

#define PART (5 * MIB)
#define UNIT "?part=5M"
#define LONG (4 * PART + 12345)

static uint8_t model[6 * PART];

/* ---- Objects and mappings ---- */

static void make_object(const char *name, size_t size)
{
	char path[100];

	snprintf(path, sizeof(path), "bucket/%s", name);
	write_object_of(path, size, SEED);
	fill(model, size, 0, SEED);
}

static const char *uri_of(const char *name, const char *keys)
{
	static char text[200];

	snprintf(text, sizeof(text), "s3:bucket/%s%s", name, keys);
	return text;
}

static uint8_t *map_with(const char *at, size_t size, int prot, unsigned flags)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	void *addr;

	attr.seg_size = SEG;
	attr.flags = flags;
	check(ummap_open(at, size, 0, prot, &attr, &addr) == 0, "%s", umerrormsg());
	return addr;
}

static uint8_t *map_object_to_write(const char *name, size_t size)
{
	return map_with(uri_of(name, UNIT), size, READ_WRITE, UMMAP_CREATE);
}

/* Whether a new mapping shows exactly the bytes of the model. */
static void check_object(const char *name, size_t size)
{
	struct ummap_driver driver = { .struct_size = sizeof(driver) };
	struct ummap_geom geom;
	uint8_t *bytes;
	void *h;

	check(ummap_driver_open(uri_of(name, ""), 0, &driver, &h, &geom) == 0, "%s", umerrormsg());
	check(geom.size == size, "%s has %" PRIu64 " bytes", name, geom.size);
	check(driver.close(h) == 0);
	if (size == 0)
		return;
	bytes = map_with(uri_of(name, ""), size, PROT_READ, 0);
	check(memcmp(bytes, model, size) == 0, "%s", name);
	check(umunmap(bytes, 0) == 0);
}

static void store(uint8_t *bytes, size_t at, size_t len, int value)
{
	memset(bytes + at, value, len);
	memset(model + at, value, len);
}

/* ---- Parts ---- */

/* One unit in the middle is sent, and the others are copied. */
static void check_parts(void)
{
	uint8_t *bytes;
	int sent, copies;

	make_object("parts", LONG);
	bytes = map_object_to_write("parts", LONG);
	store(bytes, 2 * PART + 7, 3, 1);
	sent = count_requests("PUT /bucket/parts?partNumber=");
	check(umsync(bytes, 0) == 0, "%s", umerrormsg());
	check(memcmp(bytes, model, LONG) == 0);
	check(other_server || count_requests("PUT /bucket/parts?partNumber=") - sent == 3);
	check_object("parts", LONG);
	/* Nothing has changed. */
	copies = count_requests("PUT");
	check(umsync(bytes, 0) == 0);
	check(count_requests("PUT") == copies);
	/* The last unit, which is short, and a block that the last version has. */
	store(bytes, LONG - 1, 1, 2);
	store(bytes, 2 * PART + 8, 1, 3);
	check(umsync(bytes, 0) == 0, "%s", umerrormsg());
	check_object("parts", LONG);
	store(bytes, 0, LONG, 4);
	check(umunmap(bytes, 1) == 0, "%s", umerrormsg());
	check_object("parts", LONG);
}

static void check_small(void)
{
	uint8_t *bytes;

	make_object("small", 1000);
	bytes = map_object_to_write("small", 1000);
	store(bytes, 999, 1, 7);
	check(umsync(bytes, 0) == 0, "%s", umerrormsg());
	check_object("small", 1000);
	check(count_requests("POST /bucket/small") == 0);
	check(umunmap(bytes, 0) == 0);
	/* Exactly one unit, and exactly two. */
	for (size_t units = 1; units <= 2; units++) {
		make_object("exact", units * PART);
		bytes = map_object_to_write("exact", units * PART);
		store(bytes, units * PART - 1, 1, 9);
		check(umunmap(bytes, 1) == 0, "%s", umerrormsg());
		check_object("exact", units * PART);
	}
}

/* ---- New objects and lengths ---- */

static void check_create(void)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	uint8_t *bytes;
	void *addr;

	check(ummap_open(uri_of("new", ""), 100, 0, READ_WRITE, &attr, &addr) == -1 &&
	      errno == ENOENT);
	memset(model, 0, sizeof(model));
	bytes = map_object_to_write("new", 2 * PART + 100);
	check_not_open(uri_of("new", ""), ENOENT, "no such object");
	check_zeros(bytes, 2 * PART + 100);
	store(bytes, PART + 5, 10, 1);
	check(umsync(bytes, 0) == 0, "%s", umerrormsg());
	check_object("new", 2 * PART + 100);
	check(umunmap(bytes, 0) == 0);
	/* An existing object becomes longer. Its last unit was short. */
	bytes = map_object_to_write("new", 4 * PART + 1);
	store(bytes, 4 * PART, 1, 2);
	check(umunmap(bytes, 1) == 0, "%s", umerrormsg());
	check_object("new", 4 * PART + 1);
}

/* The driver by itself: parts of blocks, lengths, an empty object. */
static void check_handle(void)
{
	struct ummap_driver d = { .struct_size = sizeof(d) };
	struct ummap_geom geom;
	uint64_t size;
	void *h;

	make_object("handle", 0);
	check(ummap_driver_open(uri_of("handle", UNIT), UMMAP_O_WRITE, &d, &h, &geom) == 0, "%s",
	      umerrormsg());
	check(geom.size == 0 && d.flush(h, 0, UINT64_MAX) == 0);
	check(d.write(h, "abc", 3, 10) == 0 && d.size(h, &size) == 0 && size == 13);
	memset(model, 0, sizeof(model));
	memcpy(model + 10, "abc", 3);
	check(d.flush(h, 0, UINT64_MAX) == 0);
	check_object("handle", 13);
	check(d.resize(h, 11) == 0 && d.resize(h, 20) == 0);
	memset(model + 11, 0, 9);
	check(d.flush(h, 0, UINT64_MAX) == 0);
	check_object("handle", 20);
	check(d.close(h) == 0);
	/* Bytes behind a shorter length are zeros, also if the object had others. */
	make_object("handle", 2 * PART);
	check(ummap_driver_open(uri_of("handle", UNIT), UMMAP_O_WRITE, &d, &h, &geom) == 0);
	check(d.resize(h, PART + 5000) == 0 && d.resize(h, 3 * PART) == 0);
	memset(model + PART + 5000, 0, 3 * PART - PART - 5000);
	check(d.write(h, "xy", 2, PART + 4999) == 0 && d.write(h, "z", 1, 4095) == 0);
	memcpy(model + PART + 4999, "xy", 2);
	model[4095] = 'z';
	check(d.flush(h, 0, UINT64_MAX) == 0);
	check_object("handle", 3 * PART);
	check(d.resize(h, 0) == 0 && d.flush(h, 0, UINT64_MAX) == 0);
	check_object("handle", 0);
	check(d.close(h) == 0);
	check(ummap_driver_open(uri_of("handle", ""), UMMAP_O_WRITE | UMMAP_O_WRITERS, &d, &h,
				&geom) == -1 && errno == EINVAL);
}

/* The command ummap cp makes an empty object, and a new one from a longer one. */
static void check_copies(void)
{
	static const size_t sizes[] = { 0, LONG, 777, 0 };

	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		int fd = open(in_dir("copied"), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

		check(fd >= 0);
		file_fill(fd, 0, sizes[i], 0, SEED + i);
		close(fd);
		fill(model, sizes[i], 0, SEED + i);
		check(shell(HTTP_PLUGINS "/../ummap cp %s '%s' s3:bucket/copied",
			    i ? "--force" : "", in_dir("copied")) == 0);
		check_object("copied", sizes[i]);
	}
}

/* ---- Races ---- */

static void check_race(const char *name, size_t size, const char *conditions)
{
	uint8_t *bytes;

	if (!other_server)
		control("conditions=%s", conditions);
	make_object(name, size);
	bytes = map_object_to_write(name, size);
	store(bytes, size / 2, 9, 1);
	write_object(name[0] == 'l' ? "bucket/lost" : "bucket/race", SEED + 1);
	catch_sigbus();
	check(umsync(bytes, 0) == -1 && errno == ESTALE, "%s", strerror(errno));
	check(umsync(bytes, 0) == -1 && errno == ESTALE);
	check(umunmap(bytes, 0) == 0);
	fill(model, SIZE, 0, SEED + 1);
	check_object(name, SIZE);
	if (!other_server)
		control("conditions=yes");
}

/* The server compares the ETag of a condition without its quotes. */
static void check_bare_conditions(void)
{
	uint8_t *bytes;

	control("conditions=bare");
	make_object("bare", PART - 1);
	bytes = map_object_to_write("bare", PART - 1);
	for (unsigned i = 1; i <= 2; i++) {
		store(bytes, 5000, 9, i);
		check(umsync(bytes, 0) == 0, "%s", umerrormsg());
		check_object("bare", PART - 1);
	}
	check(umunmap(bytes, 0) == 0);
	control("conditions=yes");
}

/* Two handles create one object. */
static void check_creation_race(void)
{
	struct ummap_driver d = { .struct_size = sizeof(d) };
	struct ummap_geom geom;
	void *h[2];

	for (int i = 0; i < 2; i++)
		check(ummap_driver_open(uri_of("both", ""), UMMAP_O_WRITE | UMMAP_O_CREATE, &d,
					&h[i], &geom) == 0, "%s", umerrormsg());
	memset(model, 'a', 100);
	check(d.write(h[0], model, 100, 0) == 0 && d.flush(h[0], 0, UINT64_MAX) == 0);
	check(d.write(h[1], "b", 1, 0) == 0 && d.flush(h[1], 0, UINT64_MAX) == ESTALE);
	check(d.close(h[0]) == 0 && d.close(h[1]) == 0);
	check_object("both", 100);
}

static void check_removed(void)
{
	uint8_t *bytes;

	make_object("removed", LONG);
	bytes = map_object_to_write("removed", LONG);
	memset(bytes, 1, 1);
	remove_object("bucket/removed");
	check(umsync(bytes, 0) == -1 && errno == ESTALE, "%s", strerror(errno));
	check(umunmap(bytes, 0) == 0);
	check_not_open(uri_of("removed", ""), ENOENT, "no such object");
}

/* ---- Errors ---- */

/* A sync fails while the server refuses a request, and succeeds afterwards. */
static void check_refusals(void)
{
	static const char *const requests[] = { "POST%20/bucket/refused?uploads", "partNumber=1",
						"partNumber=3", "POST%20/bucket/refused?uploadId",
						"HEAD%20/bucket/refused", "GET%20/bucket/refused" };
	static const int statuses[] = { 500, 400, 403, 404, 416 };
	uint8_t *bytes;

	make_object("refused", LONG);
	bytes = map_with("s3:bucket/refused?part=5M&retries=0", LONG, READ_WRITE, UMMAP_CREATE);
	for (size_t i = 0; i < sizeof(requests) / sizeof(*requests); i++) {
		for (size_t k = 0; k < 5; k += 1 + i % 3) {
			/* The parts are 0, 1, and 2 to 4. */
			store(bytes, PART + i * 100 + k, 1, 1 + (int)i);
			store(bytes, 3 * PART + i * 100 + k, 1, 1 + (int)i);
			control("with=%d&refuse=%s", statuses[k], "");
			control("refuse=%s", requests[i]);
			check(umsync(bytes, 0) == -1, "%s %d", requests[i], statuses[k]);
			check(errno == EIO || errno == (statuses[k] == 403 ? EACCES : ESTALE),
			      "%s %d: %s", requests[i], statuses[k], strerror(errno));
			control("refuse=");
			check(umsync(bytes, 0) == 0, "%s %d: %s", requests[i], statuses[k],
			      umerrormsg());
		}
		check_object("refused", LONG);
	}
	/* An answer without an ETag does not mean that there is no object. */
	store(bytes, 0, 1, 7);
	control("fault=HEAD%%20/bucket/refused");
	check(umsync(bytes, 0) == -1 && errno == EIO && umsync(bytes, 0) == 0);
	check(umunmap(bytes, 0) == 0);
}

/* A server that asks for a repetition after a long time does not delay a sync. */
static void check_late_repetition(void)
{
	uint8_t *bytes;
	double begin;

	make_object("late", LONG);
	bytes = map_with("s3:bucket/late?part=5M&timeout=3", LONG, READ_WRITE, UMMAP_CREATE);
	store(bytes, 0, 1, 1);
	control("with=503&later=50000&refuse=partNumber=1");
	begin = now();
	check(umsync(bytes, 0) == -1 && errno == EIO && now() - begin < 3);
	control("later=&refuse=");
	check(umunmap(bytes, 1) == 0, "%s", umerrormsg());
	check_object("late", LONG);
}

/* Requests that are repeated. */
static void check_repetitions(void)
{
	static const char *const requests[] = { "POST%20/bucket/again?uploads", "partNumber=1",
						"partNumber=2", "POST%20/bucket/again?uploadId" };
	uint8_t *bytes;

	make_object("again", LONG);
	bytes = map_object_to_write("again", LONG);
	for (size_t i = 0; i < sizeof(requests) / sizeof(*requests); i++) {
		store(bytes, PART + 1, 1, 1 + (int)i);
		control("lose=%s", requests[i]);
		check(umsync(bytes, 0) == 0, "%s: %s", requests[i], umerrormsg());
		if (i == 3)
			check_object("again", LONG);
		store(bytes, PART + 1, 1, 11 + (int)i);
		control("tear=%s", i < 3 ? requests[i] : "HEAD%20/bucket/again");
		check(umsync(bytes, 0) == 0, "%s: %s", requests[i], umerrormsg());
		store(bytes, PART + 1, 1, 21 + (int)i);
		control("fault=%s", requests[i]);
		check(umsync(bytes, 0) == 0, "%s: %s", requests[i], umerrormsg());
		check_object("again", LONG);
	}
	store(bytes, PART + 1, 1, 31);
	control("fail=3");
	check(umunmap(bytes, 1) == 0, "%s", umerrormsg());
	check_object("again", LONG);
	make_object("one", 100);
	bytes = map_object_to_write("one", 100);
	store(bytes, 0, 1, 1);
	control("lose=PUT%%20/bucket/one");
	check(umunmap(bytes, 1) == 0, "%s", umerrormsg());
	check_object("one", 100);
}

/* A request that has replaced the object counts, although its answer is incomplete or a gateway's
 * error. */
static void check_lost_success(void)
{
	static const char *const controls[] = { "cut", "gateway" };
	uint8_t *bytes;

	for (int i = 0; i < 4; i++) {
		size_t size = i & 1 ? LONG : 1000;

		make_object("success", size);
		bytes = map_with("s3:bucket/success?part=5M&retries=0", size, READ_WRITE,
				 UMMAP_CREATE);
		for (int k = 0; k < 2; k++) {
			store(bytes, 9, 1, 1 + k);
			control("%s=%s%%20/bucket/success%s", controls[i / 2],
				i & 1 ? "POST" : "PUT", i & 1 ? "?uploadId" : "");
			check(umsync(bytes, 0) == 0, "%d: %s", i, umerrormsg());
			check_object("success", size);
		}
		check(umunmap(bytes, 0) == 0);
	}
}

/* A flush replaces the object, but gets no answer to this request and to later ones, and fails. The
 * next flush finds out that the version is that of the handle. */
static void check_unknown_success(void)
{
	struct ummap_driver d = { .struct_size = sizeof(d) };
	struct ummap_geom geom;
	uint8_t byte;
	void *h;

	for (int i = 0; i < 2; i++) {
		size_t size = i ? LONG : 1000;

		make_object("unknown", size);
		check(ummap_driver_open(uri_of("unknown", UNIT "&retries=0"), UMMAP_O_WRITE, &d, &h,
					&geom) == 0, "%s", umerrormsg());
		for (uint8_t k = 1; k < 4; k++) {
			model[k] = k;
			check(d.write(h, &model[k], 1, k) == 0 && d.resize(h, size + k) == 0);
			model[size + k - 1] = 0;
			control("sever=%s%%20/bucket/unknown%s", i ? "POST" : "PUT",
				i ? "?uploadId" : "");
			check(d.flush(h, 0, UINT64_MAX) == EIO);
			control("sever=");
			check(d.read(h, &byte, 1, size - 1) == (i ? -EIO : 0));
			check(k == 3 || d.flush(h, 0, UINT64_MAX) == 0);
			check(k == 3 || d.read(h, &byte, 1, size - 1) == 0);
		}
		check_object("unknown", size + 3);
		write_object("bucket/unknown", SEED + 1);
		check(d.flush(h, 0, UINT64_MAX) == ESTALE && d.close(h) == 0);
	}
}

/* A server that answers before it has the bytes has not stored them. */
static void check_early_answers(void)
{
	uint8_t *bytes;

	make_object("early", LONG);
	bytes = map_object_to_write("early", LONG);
	store(bytes, PART, 1, 1);
	control("early=partNumber=2");
	check(umsync(bytes, 0) == 0, "%s", umerrormsg());
	check(umunmap(bytes, 0) == 0);
	check_object("early", LONG);
	make_object("early", PART - 1);
	bytes = map_object_to_write("early", PART - 1);
	store(bytes, PART - 2, 1, 1);
	control("early=PUT%%20/bucket/early");
	check(umsync(bytes, 0) == 0, "%s", umerrormsg());
	check(umunmap(bytes, 0) == 0);
	check_object("early", PART - 1);
}

/* A sync fails soon after the time of the key timeout if no request gets an answer from some
 * request on. */
static void check_silence(void)
{
	static const char *const requests[] = { "/bucket/silent",
						"POST%20/bucket/silent?uploadId" };
	double begin;

	for (int i = 0; i < 2; i++) {
		uint8_t *bytes;

		make_object("silent", LONG);
		bytes = map_with("s3:bucket/silent?part=5M&timeout=8", LONG, READ_WRITE,
				 UMMAP_CREATE);
		store(bytes, 0, PART, 1);
		control("hush=%s", requests[i]);
		begin = now();
		check(umsync(bytes, 0) == -1 && errno == EIO);
		check(now() - begin < 15, "%d: %g s", i, now() - begin);
		control("hush=");
		check(umunmap(bytes, 1) == 0, "%s", umerrormsg());
		check_object("silent", LONG);
	}
}

/* A writer that is killed while it sends parts, or waits for the end of the upload. */
static void write_until_killed(void *text)
{
	uint8_t *bytes = map_object_to_write("killed", LONG);

	(void)text;
	memset(bytes, 1, LONG);
	umsync(bytes, 0);
}

static void check_kill(void)
{
	static const char *const requests[] = { "partNumber=3", "POST%20/bucket/killed?uploadId" };

	for (size_t i = 0; i < 2; i++) {
		int before;
		pid_t pid;

		make_object("killed", LONG);
		control("stop=%s", requests[i]);
		before = count_requests("partNumber=");
		pid = start_child(write_until_killed, NULL);
		while (count_requests("partNumber=") < before + (i ? 5 : 2))
			pause_ms(10);
		kill(pid, SIGKILL);
		check_killed(wait_child(pid), SIGKILL);
		control("stop=");
		check_object("killed", LONG);
	}
}

/* A writer that is killed at any time leaves a whole version, and none that it has acknowledged is
 * lost. */
static void write_versions(void *pipe)
{
	uint8_t *bytes = map_object_to_write("versions", LONG);

	for (uint8_t n = (uint8_t)(bytes[0] + 1);; n++) {
		memset(bytes, n, LONG);
		check(umsync(bytes, 0) == 0, "%s", umerrormsg());
		check(write((int)(intptr_t)pipe, &n, 1) == 1);
	}
}

/* Reads the object into the model. The server may still replace it for a killed writer, which makes
 * a read fail. */
static void read_version(void)
{
	struct ummap_driver d = { .struct_size = sizeof(d) };
	struct ummap_geom geom;
	int err = 0;
	void *h;

	do {
		check(ummap_driver_open(uri_of("versions", ""), 0, &d, &h, &geom) == 0, "%s",
		      umerrormsg());
		check(geom.size == LONG);
		err = d.read(h, model, LONG, 0);
		check(d.close(h) == 0);
	} while (err);
}

static void check_kills(unsigned kills)
{
	uint64_t seed = 5;
	uint8_t last = 0, n;

	write_object_of("bucket/versions", 0, SEED);
	for (unsigned k = 0; k < kills; k++) {
		int ends[2];
		pid_t pid;

		check(pipe(ends) == 0);
		pid = start_child(write_versions, (void *)(intptr_t)ends[1]);
		close(ends[1]);
		check(read(ends[0], &last, 1) == 1);
		pause_ms((unsigned)(next_random(&seed) % 300));
		kill(pid, SIGKILL);
		check_killed(wait_child(pid), SIGKILL);
		while (read(ends[0], &n, 1) == 1)
			last = n;
		close(ends[0]);
		read_version();
		n = model[0];
		check(n == last || n == (uint8_t)(last + 1), "%d after %d", n, last);
		for (size_t i = 1; i < LONG; i++)
			check(model[i] == n, "%d and %d", n, model[i]);
	}
}

/* A thread reads while another one replaces the object. */
static atomic_bool ends;

static void *read_all(void *bytes)
{
	while (!ends) {
		for (size_t at = PART; at < 4 * PART && !ends; at += 64 * KIB)
			check(((volatile uint8_t *)bytes)[at] == pattern(at, SEED));
	}
	return NULL;
}

static void check_readers(void)
{
	pthread_t reader;
	uint8_t *bytes;

	make_object("read", LONG);
	bytes = map_object_to_write("read", LONG);
	check(pthread_create(&reader, NULL, read_all, bytes) == 0);
	for (int i = 0; i < 4; i++) {
		store(bytes, (size_t)i * 1000, 1, i);
		check(umsync(bytes, 0) == 0, "%s", umerrormsg());
	}
	ends = true;
	check(pthread_join(reader, NULL) == 0);
	check_object("read", LONG);
	check(umunmap(bytes, 0) == 0);
}

/* ---- Near files ---- */

static char cached[400];

static uint8_t *map_cached(void)
{
	return map_with(cached, LONG, READ_WRITE, UMMAP_CREATE);
}

static void sync_and_die(void *unused)
{
	uint8_t *bytes = map_cached();

	(void)unused;
	memset(bytes + PART, 8, 100);
	if (umsync(bytes, 0) == 0)
		raise(SIGKILL);
}

/* A sync is durable in the near file, and the object gets a new version later. */
static void check_cache(void)
{
	uint8_t *bytes;
	int gets;

	make_object("cached", LONG);
	snprintf(cached, sizeof(cached), "cache+s3:bucket/cached?part=5M&cache.path=%s"
		 "&cache.size=32M&cache.dirty=90,1000000", in_dir("near"));
	bytes = map_cached();
	check(memcmp(bytes, model, LONG) == 0);
	/* A near file with changes is not shared. */
	check_not_open(cached, EBUSY, "in use by process");
	store(bytes, 9, 1, 7);
	check(umunmap(bytes, 1) == 0, "%s", umerrormsg());
	check_object("cached", LONG);
	/* The near file is that of the new version. */
	gets = other_server ? 0 : count_requests("GET /bucket/cached 206");
	bytes = map_cached();
	check(memcmp(bytes, model, LONG) == 0);
	check(other_server || count_requests("GET /bucket/cached 206") - gets <= 2);
	check(umunmap(bytes, 0) == 0);
	check_killed(run_child(sync_and_die, NULL), SIGKILL);
	check_object("cached", LONG);
	bytes = map_cached();
	memset(model + PART, 8, 100);
	check(memcmp(bytes, model, LONG) == 0);
	check(umunmap(bytes, 0) == 0);
	check_object("cached", LONG);
	/* Other programs' changes are detected. */
	make_object("cached", LONG);
	check_not_open(cached, ESTALE, "changed");
	snprintf(cached, sizeof(cached), "cache+s3:bucket/fresh?cache.path=%s&cache.size=32M",
		 in_dir("fresh"));
	for (int i = 0; i < 2; i++) {
		memset(model, 0, LONG);
		bytes = map_cached();
		store(bytes, LONG - 1, 1, 7);
		check(umunmap(bytes, 1) == 0, "%s", umerrormsg());
		check_object("fresh", LONG);
	}
}

/* If the object cannot be replaced when the mapping ends, the command that the message names does
 * it later, and so does the command for the folder of the near file. */
static void check_cache_commands(void)
{
	check(mkdir(in_dir("near-files"), 0755) == 0);
	snprintf(cached, sizeof(cached), "cache+s3:bucket/left?retries=0&cache.path=%s"
		 "&cache.size=32M", in_dir("near-files/left.cache"));
	for (int i = 0; i < 2; i++) {
		const char *command;
		uint8_t *bytes;
		int status;

		make_object("left", LONG);
		unlink(in_dir("near-files/left.cache"));
		bytes = map_cached();
		store(bytes, PART, 1, 7);
		control("with=400&refuse=PUT%%20/bucket/left");
		check(umunmap(bytes, 1) == -1 && errno == EUCLEAN, "%s", strerror(errno));
		control("refuse=");
		command = strstr(umerrormsg(), "`ummap cache ");
		check(command, "%s", umerrormsg());
		command++;
		if (i == 0)
			status = shell("cd / && " HTTP_PLUGINS "/../%.*s",
				       (int)strcspn(command, "`"), command);
		else
			status = shell(HTTP_PLUGINS "/../ummap cache flush '%s'",
				       in_dir("near-files"));
		check(status == 0, "%s", umerrormsg());
		check_object("left", LONG);
	}
}

/* Tests that need s3-server. */
static void check_faults(void)
{
	check_race("race", SIZE, "no");
	check_race("lost", PART - 1, "bare");
	check_bare_conditions();
	check_refusals();
	check_late_repetition();
	check_repetitions();
	check_lost_success();
	check_unknown_success();
	check_early_answers();
	check_silence();
	check_kill();
	check_cache_commands();
}

int main(int argc, char **argv)
{
	other_server = argc > 1 ? argv[1] : NULL;
	if (!set_up_s3())
		return 77;
	/* Segments are written and loaded again before a sync. */
	set_budget(8 * MIB);
	check_small();
	check_parts();
	check_create();
	check_handle();
	check_copies();
	check_race("race", SIZE, "yes");
	check_race("lost", PART - 1, "yes");
	check_creation_race();
	check_removed();
	if (!other_server)
		check_faults();
	check_kills(other_server ? by_time(5, 50) : 3);
	check_readers();
	check_cache();
	/* A handle shows the object as it was, even if another handle has changed it. */
	check(shell(HTTP_PLUGINS "/../ummap conform --alone --free profile "
		    "s3:bucket/conform?part=5M > %s", in_dir("conform")) == 0);
	return 0;
}
