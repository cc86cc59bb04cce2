/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * prog_object_s3 - the back end for S3, at the server s3-server. Runs the other programs of this
 * folder, stops a writer for longer than its lease, and makes requests fail. With the URL of
 * another server as its argument, runs what needs no faults.
 */
#include "leases.h"

static const char *url;            /* URL of the server */
static bool has_faults = true;     /* whether it is s3-server */

static void start_server(void)
{
	static char at[60];
	int pipes[2];
	char text[20] = "";

	check(pipe(pipes) == 0);
	if (fork() == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(pipes[1], 1);
		execl(OBJECT_TESTS "/../http/s3-server", "s3-server", temp_dir(), NULL);
		_exit(127);
	}
	close(pipes[1]);
	check(read(pipes[0], text, sizeof(text) - 1) > 0, "s3-server does not start");
	close(pipes[0]);
	snprintf(at, sizeof(at), "http://127.0.0.1:%d", atoi(text));
	url = at;
}

/* The store of the tests, with keys. */
static void use_store(const char *keys)
{
	char text[200];

	snprintf(text, sizeof(text), "s3:bucket/?endpoint=%s&%s", url, keys);
	set_env("OBJECT_STORE", text);
}

/* ---- Names of containers ---- */

static void test_names(void *unused)
{
	umobject_container *c;
	char at[200];

	(void)unused;
	refused(umobject_open("s3:bucket", NULL, &c), EINVAL, "s3:BUCKET/PREFIX");
	refused(umobject_open("s3:bucket/", NULL, &c), EINVAL, "s3:BUCKET/PREFIX");
	refused(umobject_open("s3:bucket/a?lease=soon", NULL, &c), EINVAL, "lease=");
	refused(umobject_open("s3:bucket/a?colour=red", NULL, &c), EINVAL, "cannot use the key");
	refused(umobject_open("s3:bucket/a?region", NULL, &c), EINVAL, "no value");
	refused(umobject_open("s3:bucket/a?region=a:b", NULL, &c), EINVAL, "region");
	refused(umobject_open(box(), NULL, &c), ENOENT, "no container");
	snprintf(at, sizeof(at), "s3:bucket/a?endpoint=%s&credentials=none", url);
	refused(umobject_open(at, NULL, &c), EACCES, "AccessDenied");
}

/* A container needs a server that minds conditions. */
static void test_conditions(void *unused)
{
	struct umobject_attr attr = UMOBJECT_ATTR_INIT;
	umobject_container *c;

	(void)unused;
	control_s3("conditions=no&x", "");
	attr.flags = UMOBJECT_CREATE;
	refused(umobject_open(box(), &attr, &c), EOPNOTSUPP, "ignores the condition");
	control_s3("conditions=yes&x", "");
}

/* A user who may only read holds nothing. */
static void test_reader(void *unused)
{
	umobject_container *c = new_box(1);

	(void)unused;
	good(put_number(c, "one", 5));
	umobject_close(c);
	control_s3("with=403&refuse=PUT%%20&x", "");
	c = open_box(box(), UMOBJECT_READ_ONLY, 0);
	check(get_number(c, "one") == 5);
	umobject_close(c);
	c = open_box(box(), 0, 0);
	refused(put_number(c, "one", 6), EACCES, "403");
	control_s3("refuse=&x", "");
	check(get_number(c, "one") == 5);
	umobject_close(c);
}

/* ---- Failing requests ---- */

/* A put fails while the server refuses a request, and the name keeps its version. */
static void test_refusals(void *unused)
{
	static const char *const requests[] = { "PUT%%20/bucket/", "/c/", "/v/", "/h/", "/n/" };
	umobject_container *c = new_box(1);

	(void)unused;
	good(put_number(c, "one", 1));
	for (uint64_t i = 0; i < sizeof(requests) / sizeof(*requests); i++) {
		char command[100];

		snprintf(command, sizeof(command), "with=400&refuse=%s&x", requests[i]);
		control_s3(command, "");
		check(put_number(c, "one", 2 + i) < 0, "%s", requests[i]);
		check(strstr(umobject_errormsg(), "400"), "%s", umobject_errormsg());
		control_s3("refuse=&x", "");
		check(get_number(c, "one") == 1 + i, "%s", requests[i]);
		good(put_number(c, "one", 2 + i));
		check(get_number(c, "one") == 2 + i);
	}
	umobject_close(c);
}

/* The answer to a request is lost, and the request is repeated. */
static void test_lost_answers(void *unused)
{
	static const char *const requests[] = { "/c/", "PUT%%20/bucket/", "/v/", "/h/", "/n/one" };
	umobject_container *c = new_box(1);

	(void)unused;
	for (uint64_t i = 0; i < sizeof(requests) / sizeof(*requests); i++) {
		char command[100];

		snprintf(command, sizeof(command), "lose=%s&x", requests[i]);
		control_s3(command, "");
		good(put_number(c, "one", i));
		check(get_number(c, "one") == i);
		/* The second request of this kind is the one that replaces. */
		snprintf(command, sizeof(command), "fail=2&x");
		control_s3(command, "");
		good(put_number(c, "one", 10 + i));
		check(get_number(c, "one") == 10 + i);
		/* A gateway repeats the request. */
		snprintf(command, sizeof(command), "double=%s&x", requests[i]);
		control_s3(command, "");
		good(put_number(c, "one", 20 + i));
		check(get_number(c, "one") == 20 + i);
	}
	good(umobject_gc(c, NULL));
	check(count_stored(VERSIONS) == 1 && count_stored(CHUNKS) == 16);
	umobject_close(c);
}

/* A chunk that is too long for one read, and more objects than one list has. */
static void test_long(void *unused)
{
	static const struct umobject_shape bytes = { .type = UMOBJECT_UINT8, .rank = 1,
		.dims = { 40 * MIB }, .chunk = { 40 * MIB } };
	static const struct umobject_shape many = { .type = UMOBJECT_UINT8, .rank = 1,
		.dims = { 1100 }, .chunk = { 1 } };
	umobject_container *c = new_box(1);
	uint8_t *there = malloc(40 * MIB), *back = malloc(40 * MIB);

	(void)unused;
	check(there && back);
	fill(there, 40 * MIB, 0, 1);
	good(umobject_put_array(c, "long", &bytes, there));
	good(umobject_get(c, "long", NULL, NULL, back));
	check(memcmp(there, back, 40 * MIB) == 0);
	good(umobject_put_array(c, "many", &many, there));
	good(umobject_get(c, "many", NULL, NULL, back));
	check(memcmp(there, back, 1100) == 0);
	check(count_stored(CHUNKS) == 1101);
	good(umobject_delete(c, "many"));
	good(umobject_gc(c, NULL));
	check(count_stored(CHUNKS) == 1 && count_stored(VERSIONS) == 1);
	free(there);
	free(back);
	umobject_close(c);
}

/* The command. */
static void test_command(void *unused)
{
	char text[2000];

	(void)unused;
	snprintf(text, sizeof(text), "set -e; cd '%s'; PATH='%s/..':$PATH; B='%s'; head -c 8000 "
		 "/dev/urandom > bytes; umobject create \"$B\"; umobject put \"$B\" a bytes --type "
		 "double --dims 10x100 --chunk 4x25; umobject put \"$B\" a bytes --type double "
		 "--dims 10x100; umobject ls \"$B\" | grep -q a; umobject get \"$B\" a back; cmp "
		 "bytes back; umobject check \"$B\"; umobject gc \"$B\"; umobject rm \"$B\" a; ! "
		 "umobject get \"$B\" a again", temp_dir(), OBJECT_PLUGINS, box());
	check(system(text) == 0, "%s", text);
}

static const struct part {
	void (*body)(void *);
	const char *keys;
	bool needs_faults;             /* whether only s3-server has what the test needs */
} parts[] = {
	{ test_names, "lease=60", false },
	{ test_conditions, "lease=60", true },
	{ test_reader, "lease=60", true },
	{ test_refusals, "lease=60&retries=0", true },
	{ test_lost_answers, "lease=60", true },
	{ test_long, "lease=60", false },
	{ test_command, "lease=60", false },
	{ test_put_and_get, "lease=4", false },
	{ test_lost_lease, "lease=2", false },
};

/* The other programs. Some tests of prog_object damage objects at the server. */
static void run_other_programs(void)
{
	use_store("lease=60");
	if (has_faults)
		run_program("prog_object", "");
	run_program("prog_object_model", has_faults ? "20" : "5");
	use_store("lease=5");
	run_program("prog_object_kill", has_faults ? "10" : "5");
}

int main(int argc, char **argv)
{
	if (access(OBJECT_PLUGINS "/ummap-object-s3.so", F_OK) < 0) {
		printf("the library was built without libcurl\n");
		return 77;
	}
	if (system("python3 -c 'import ctypes' && curl --version > /dev/null") != 0)
		return 77;
	set_env("UMMAP_DRIVER_PATH", OBJECT_PLUGINS ":" OBJECT_TEST_PLUGINS);
	set_env("HOME", "/nonexistent");
	set_env("AWS_ACCESS_KEY_ID", "TESTKEY");
	set_env("AWS_SECRET_ACCESS_KEY", "testsecret/+%");
	has_faults = argc < 2;
	if (has_faults)
		start_server();
	else
		url = argv[1];
	run_other_programs();
	for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++, box_number++) {
		if (parts[i].needs_faults && !has_faults)
			continue;
		use_store(parts[i].keys);
		check_exits(run_child(parts[i].body, NULL), 0);
	}
	return 0;
}
