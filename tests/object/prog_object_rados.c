/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * prog_object_rados - the back end for RADOS on a real cluster of one monitor and one OSD, which
 * the script rados-cluster makes. Runs the other programs of this folder; kills, stops and fills
 * the OSD; and stops a writer for longer than its lease.
 */
#include "leases.h"

#include <signal.h>

static char folder[300];

static int use_cluster(const char *command, const char *argument)
{
	char text[900];

	snprintf(text, sizeof(text), "%s/rados-cluster %s '%s' %s", OBJECT_TESTS, command, folder,
		 argument);
	return system(text);
}

/* The store of the tests, with keys. */
static void use_store(const char *keys)
{
	char text[500];

	snprintf(text, sizeof(text), "rados:test/?conf=%s/ceph.conf&%s", folder, keys);
	set_env("OBJECT_STORE", text);
}

/* ---- The OSD dies and comes back ---- */

static void continue_writing(void *pipe)
{
	umobject_container *c = open_box(box(), 0, 0);

	for (uint64_t n = 1;; n++) {
		good(put_number(c, "one", n));
		check(write((int)(intptr_t)pipe, &n, sizeof(n)) == sizeof(n));
	}
}

static uint64_t newest_of(int from)
{
	uint64_t n;

	check(read(from, &n, sizeof(n)) == sizeof(n));
	return n;
}

/* Writes and reads wait until the OSD has restarted, without an error. */
static void test_failing_osd(void *unused)
{
	umobject_container *c = new_box(1);
	umobject_version *v;
	int ends[2];
	uint64_t n, got;
	pid_t pid;

	(void)unused;
	good(put_number(c, "one", 0));
	good(umobject_hold(c, "one", 0, &v));
	check(pipe(ends) == 0);
	/* librados has threads, which a forked child lacks. */
	pid = fork();
	check(pid >= 0);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		continue_writing((void *)(intptr_t)ends[1]);
	}
	for (unsigned i = 0; i < 2; i++) {
		newest_of(ends[0]);
		check(use_cluster("kill-osd", "") == 0);
		check(use_cluster("start-osd", "") == 0);
		n = newest_of(ends[0]);
		got = get_number(c, "one");
		check(got >= n, "%" PRIu64 " after %" PRIu64 " was committed", got, n);
	}
	/* The version that was held all the time can be read. */
	good(umobject_read(v, NULL, NULL, data));
	check(data[0] == 0 && data[SIDE * SIDE - 1] == 0);
	umobject_release(v);
	kill(pid, SIGKILL);
	check_killed(wait_child(pid), SIGKILL);
	for (unsigned i = 0; i < 60 && count_stored(VERSIONS) != 1; i++) {
		good(umobject_gc(c, NULL));
		pause_ms(500);
	}
	check(count_stored(VERSIONS) == 1 && count_stored(CHUNKS) == 16, "%u versions, %u chunks",
	      count_stored(VERSIONS), count_stored(CHUNKS));
	get_number(c, "one");
	umobject_close(c);
}

/* ---- The cluster does not answer ---- */

static void test_timeout(void *hangs)
{
	umobject_container *c = new_box(1), *d;
	umobject_put *p;

	good(put_number(c, "one", 1));
	good(umobject_begin(c, "one", &shape, &p, NULL));
	check(use_cluster(hangs ? "stop-osd" : "kill-osd", "") == 0);
	refused(umobject_get(c, "one", NULL, NULL, data), ETIMEDOUT, "not answered within 2 s");
	refused(put_number(c, "one", 2), ETIMEDOUT, "not answered within 2 s");
	good(umobject_put_chunk(p, 0, data));
	refused(umobject_put_sync(p), ETIMEDOUT, "cannot write chunk 0");
	refused(umobject_gc(c, NULL), ETIMEDOUT, "not answered");
	refused(umobject_open(box(), NULL, &d), ETIMEDOUT, "not answered");
	check(use_cluster(hangs ? "go-osd" : "start-osd", "") == 0);
	/* The monitor notices the restart some time later. */
	for (unsigned i = 0; i < 60 && umobject_get(c, "one", NULL, NULL, data) < 0; i++)
		check(errno == ETIMEDOUT, "%s", umobject_errormsg());
	check(get_number(c, "one") == 1);
	umobject_abandon(p);
	good(put_number(c, "one", 3));
	check(get_number(c, "one") == 3);
	umobject_close(c);
}

/* The cluster has no monitor, or no configuration. */
static void test_missing_cluster(void *unused)
{
	umobject_container *c;
	char text[400], command[900];

	(void)unused;
	snprintf(command, sizeof(command), "sed 's/^\\tmon host.*/mon host = v2:127.0.0.1:1/; "
		 "s/^mon host.*/mon host = v2:127.0.0.1:1/' '%s/ceph.conf' > '%s/nobody.conf'",
		 folder, folder);
	check(system(command) == 0);
	snprintf(text, sizeof(text), "rados:test/box?conf=%s/nobody.conf&timeout=1", folder);
	refused(umobject_open(text, NULL, &c), ETIMEDOUT, "cannot connect to the cluster");
	refused(umobject_open("rados:test/box?conf=/nowhere", NULL, &c), ENOENT, "/nowhere");
	refused(umobject_open("rados:test", NULL, &c), EINVAL, "rados:POOL/NAME");
	refused(umobject_open("rados:test/a/b", NULL, &c), EINVAL, "rados:POOL/NAME");
	refused(umobject_open("rados:test/a?timeout=soon", NULL, &c), EINVAL, "timeout=");
	refused(umobject_open("rados:test/a?colour=red", NULL, &c), EINVAL, "cannot use the key");
	snprintf(text, sizeof(text), "rados:nopool/box?conf=%s/ceph.conf", folder);
	refused(umobject_open(text, NULL, &c), ENOENT, "nopool");
	refused(umobject_open(box(), NULL, &c), ENOENT, "no container");
}

/* ---- No room ---- */

/* Other processes notice it some time later. */
static void test_full_cluster(void *unused)
{
	umobject_container *c = new_box(1);
	uint64_t last = 1;
	int result = 0;

	(void)unused;
	good(put_number(c, "one", 1));
	check(use_cluster("fill-osd", "") == 0);
	for (unsigned i = 0; i < 600 && result == 0; i++) {
		result = put_number(c, "one", last + 1);
		last += result == 0;
	}
	check(result < 0 && errno == ENOSPC, "errno %d, %s", errno, umobject_errormsg());
	check(get_number(c, "one") == last);
	good(umobject_gc(c, NULL));
	check(use_cluster("empty-osd", "") == 0);
	for (unsigned i = 0; i < 60 && (result = put_number(c, "one", 7)) < 0; i++) {
		check(errno == ENOSPC, "%s", umobject_errormsg());
		pause_ms(500);
	}
	check(result == 0 && get_number(c, "one") == 7);
	umobject_close(c);
}

/* ---- Records of names that are lost ---- */

static unsigned faults;

static void count_fault(void *words, const char *name, const char *sentence)
{
	check(strcmp(name, "one") == 0 && strstr(sentence, words), "%s: %s", name, sentence);
	faults++;
}

/* Removes a key from all shards. The key of a version contains a zero. */
static void remove_keys(const char *prefix)
{
	char text[1600];

	snprintf(text, sizeof(text), "for s in 0 1 2 3 4 5 6 7 8 9 a b c d e f; do %s listomapkeys "
		 "names.$s > '%s' 2> /dev/null; grep -aq '^%s' '%s' || continue; grep -a '^%s' "
		 "'%s' | tr -d '\n' > '%s.key'; %s rmomapkey names.$s --omap-key-file '%s.key' > "
		 "/dev/null || exit 1; done", rados_command(), in_dir("keys"), prefix,
		 in_dir("keys"), prefix, in_dir("keys"), in_dir("keys"), rados_command(),
		 in_dir("keys"));
	check(system(text) == 0, "%s", text);
}

static void test_repair(void *unused)
{
	umobject_container *c = new_box(3);

	(void)unused;
	good(put_number(c, "one", 1));
	good(put_number(c, "one", 2));
	check(umobject_check_container(c, NULL, 0, count_fault, "") == 0);
	/* Remove the record of the newest version. */
	remove_keys("n/one");
	refused(umobject_get(c, "one", NULL, NULL, data), ENOENT, "cannot find the object 'one'");
	check(umobject_check_container(c, NULL, 0, count_fault, "the name is missing") == 1 &&
	      faults == 1);
	refused(umobject_gc(c, NULL), EBADMSG, "Nothing was removed");
	refused(put_number(c, "one", 3), EBADMSG, "its name is missing");
	check(umobject_check_container(c, NULL, UMOBJECT_REPAIR, count_fault, "version 2 exists: "
				       "restored") == 0 && faults == 2);
	check(umobject_check_container(c, NULL, 0, count_fault, "") == 0 &&
	      get_number(c, "one") == 2);
	/* Remove the records of all versions, which makes them garbage. */
	remove_keys("v/one.00000000000000000001");
	refused(umobject_gc(c, NULL), EBADMSG, "the record of version");
	remove_keys("v/one.00000000000000000002");
	refused(umobject_gc(c, NULL), EBADMSG, "the record of version");
	check(umobject_check_container(c, "one", UMOBJECT_REPAIR, count_fault, "is missing: "
				       "restored") == 0 && faults == 4);
	check(umobject_check_container(c, NULL, 0, count_fault, "") == 0 &&
	      get_number(c, "one") == 2);
	good(umobject_gc(c, NULL));
	check(count_stored(VERSIONS) == 2 && count_stored(CHUNKS) == 32);
	/* A lost name is removed. */
	remove_keys("n/one");
	good(umobject_delete(c, "one"));
	good(umobject_gc(c, NULL));
	check(count_stored(VERSIONS) == 0 && count_stored(CHUNKS) == 0);
	refused(umobject_delete(c, "one"), ENOENT, "cannot find the object 'one'");
	umobject_close(c);
}

/* The tests with the cluster, in this order. Argument: the only one to run. */
static const struct part {
	const char *name;
	void (*body)(void *);
	void *arg;
	const char *keys;
} parts[] = {
	{ "nobody", test_missing_cluster, NULL, "timeout=60" },
	{ "lost", test_repair, NULL, "timeout=60" },
	{ "live", test_put_and_get, NULL, "timeout=60&lease=4" },
	{ "lease", test_lost_lease, NULL, "timeout=60&lease=2" },
	{ "osd", test_failing_osd, NULL, "timeout=60&lease=4" },
	{ "full", test_full_cluster, NULL, "timeout=60" },
	{ "down", test_timeout, NULL, "timeout=2&lease=60" },
	{ "slow", test_timeout, "it hangs", "timeout=2&lease=60" },
};

static void run_other_programs(void)
{
	use_store("timeout=60");
	run_program("prog_object", "");
	run_program("prog_object_model", "20");
	use_store("timeout=60&lease=5");
	run_program("prog_object_kill", "15");
}

int main(int argc, char **argv)
{
	const char *only = argc > 1 ? argv[1] : NULL;
	char pid[32];
	int status;

	if (access(OBJECT_PLUGINS "/ummap-object-rados.so", F_OK) < 0) {
		printf("the library was built without librados\n");
		return 77;
	}
	snprintf(folder, sizeof(folder), "%s", in_dir("cluster"));
	snprintf(pid, sizeof(pid), "%d", (int)getpid());
	set_env("UMMAP_DRIVER_PATH", OBJECT_PLUGINS ":" OBJECT_TEST_PLUGINS);
	status = use_cluster("up", pid);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
		return 77;
	check(status == 0, "there is no cluster");
	if (!only)
		run_other_programs();
	for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++, box_number++) {
		if (only && strcmp(only, parts[i].name) != 0)
			continue;
		use_store(parts[i].keys);
		check_exits(run_child(parts[i].body, parts[i].arg), 0);
	}
	check(use_cluster("down", "") == 0);
	return 0;
}
