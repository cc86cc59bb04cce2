/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * prog_http - mappings of objects of a real web server: by HTTP/1.1, by TLS and by HTTP/2; of one
 * that changes; behind passwords, redirects and proxies; in forked children, and when the process
 * ends.
 */
#include "nginx.h"
#include "objects.h"
#include "plugins.h"

static char uri[500];

static const char *url(const char *scheme, int port, const char *path)
{
	snprintf(uri, sizeof(uri), "%s://localhost:%d/%s", scheme, port, path);
	return uri;
}

/* ---- Transfers ---- */

static void check_plain(void)
{
	nginx_forget();
	check_map(url("http", nginx_port, "object"));
	check(nginx_count("HTTP/1.1 206") > 10);
	check_map(url("http", nginx_port, "with%20blank%2525"));
	check_not_open(url("http", nginx_port, "missing"), ENOENT, "no such object");
	check_not_open(url("http", nginx_port, "object?unknown=1"), EINVAL, "unknown");
	check_not_open("http:/object", EINVAL, "not a URL");
	check_not_open("http://me:word@localhost/object", EINVAL, "netrc");
	check_not_open("http://localhost:1/object?retries=1", EIO, "attempts: 2");
}

static void check_write(void)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	uint8_t *bytes;
	char at[600];
	void *addr;

	url("http", nginx_port, "object");
	check(ummap_open(uri, SIZE, 0, READ_WRITE, &attr, &addr) == -1 && errno == EACCES);
	check(strstr(umerrormsg(), "cow+http"), "%s", umerrormsg());
	snprintf(at, sizeof(at), "cow+%s?cow.path=%s", uri, in_dir("changes"));
	attr.seg_size = SEG;
	check(ummap_open(at, SIZE, 0, READ_WRITE, &attr, &addr) == 0, "%s", umerrormsg());
	bytes = addr;
	check_bytes(bytes, SIZE, 0, SEED);
	memset(bytes + 5, 1, 10);
	check(umsync(bytes, 0) == 0 && umunmap(bytes, 0) == 0);
	check(ummap_open(at, SIZE, 0, PROT_READ, &attr, &addr) == 0, "%s", umerrormsg());
	bytes = addr;
	check(bytes[5] == 1 && bytes[14] == 1);
	check_bytes(bytes + 15, SIZE - 15, 15, SEED);
	check(umunmap(bytes, 0) == 0);
}

/* Segments of a list are asked for together, and accesses then need no requests. */
static void check_prefetch(void)
{
	struct iovec list[40];
	uint8_t *bytes = map_object(url("http", nginx_port, "object?requests=64"));
	uint64_t requests;

	check(umadvise(bytes, SIZE, UMMAP_ADV_RANDOM) == 0);
	for (size_t i = 0; i < 40; i++)
		list[i] = (struct iovec){ bytes + i * 37 % 90 * SEG, SEG };
	check(umprefetch(list, 40) == 0, "%s", umerrormsg());
	for (int i = 0; i < 1000 && stat_of(bytes).readahead_loads < 40; i++)
		pause_ms(10);
	requests = stat_of(bytes).read_requests;
	check(requests > 0);
	for (size_t i = 0; i < 40; i++)
		check_bytes(list[i].iov_base, SEG, i * 37 % 90 * SEG, SEED);
	check(stat_of(bytes).read_requests == requests);
	check(umunmap(bytes, 0) == 0);
}

static void check_tls(void)
{
	char file[400];

	check_not_open(url("https", nginx_tls_port, "object"), EIO, "certificate");
	snprintf(file, sizeof(file), "%s/ca.pem", nginx_folder);
	set_env("CURL_CA_BUNDLE", file);
	nginx_forget();
	check_map(url("https", nginx_tls_port, "object"));
	check(nginx_count("HTTP/1.1 206") > 10 && nginx_count("HTTP/2") == 0);
	nginx_forget();
	check_map(url("https", nginx_h2_port, "object"));
	check(nginx_count("HTTP/2.0 206") > 10 && nginx_count("HTTP/1") == 0);
	nginx_forget();
	check_map(url("https", nginx_h2_port, "object?version=1.1"));
	check(nginx_count("HTTP/1.1 206") > 10 && nginx_count("HTTP/2") == 0);
	check_not_open(url("https", nginx_tls_port, "insecure"), EIO, "http");
}

/* ---- The command cp ---- */

static void check_copy(void)
{
	const char *command = HTTP_PLUGINS "/../ummap cp";
	char copy[320];
	int fd;

	snprintf(copy, sizeof(copy), "%s", in_dir("copy"));
	url("http", nginx_port, "object");
	check(shell("%s %s '%s'", command, uri, copy) == 0);
	fd = open(copy, O_RDWR | O_CLOEXEC);
	check(fd >= 0 && file_size(fd) == SIZE);
	check_file(fd, 0, SIZE, 0, SEED);
	/* A destination with data stays as it is; --force also makes it as short as the source. */
	check(shell("%s %s '%s' 2> /dev/null", command, uri, copy) == 2);
	check(ftruncate(fd, SIZE + 5000) == 0 && pwrite(fd, "x", 1, 0) == 1);
	/* On a terminal, the command shows its progress. */
	check(shell("script -qec \"%s --force %s '%s'\" '%s' > /dev/null < /dev/null && grep -q "
		    "'6.0 of 6.0 MiB, .* MiB/s' '%s'", command, uri, copy, in_dir("screen"),
		    in_dir("screen")) == 0);
	check(file_size(fd) == SIZE);
	check_file(fd, 0, SIZE, 0, SEED);
	close(fd);
	check(shell("%s '%s' '%s' 2> /dev/null", command, copy, copy) == 2);
	check(shell("%s %sx '%s-new' 2> /dev/null", command, uri, copy) == 2);
	unlink(copy);
}

/* The copy of a source that fails, or becomes shorter, fails. */
static void check_failed_copy(void)
{
	const char *command = HTTP_PLUGINS "/../ummap cp";
	int fd = open(in_dir("long"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	char from[320], to[320];

	check(fd >= 0);
	file_fill(fd, 0, SIZE, 0, SEED);
	close(fd);
	snprintf(from, sizeof(from), "error+posix:%s?error.op=read", in_dir("long"));
	snprintf(to, sizeof(to), "%s", in_dir("short"));
	check(shell("%s '%s&error.times=1000' '%s' 2>&1 | grep -q 'Input/output error.*--force'",
		    command, from, to) == 0);
	unlink(to);
	/* The first read takes a second. */
	check(shell("%s '%s&error.delay=1000000&error.nth=1000' '%s' 2> '%s' & "
		    "until [ -s '%s' ]; do sleep .01; done; truncate -s 1000 '%s'; wait $!",
		    command, from, to, in_dir("message"), to, in_dir("long")) == 2);
	check(shell("grep -q 'shorter, from %d to 1000 bytes' '%s'", (int)SIZE,
		    in_dir("message")) == 0);
	unlink(to);
}

/* ---- A near file ---- */

/* The second mapping asks the server for the first byte, and at most for the end, unless the object
 * has changed. */
/* Processes that map the same version of an object load it once together. */
static void read_shared(void *arg)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	void *addr;

	attr.seg_size = SEG;
	attr.flags = UMMAP_NODE;
	attr.engine = UMMAP_ENGINE_SIGBUS;
	check(ummap_open(uri, SIZE, 0, PROT_READ, &attr, &addr) == 0, "%s", umerrormsg());
	check_bytes(addr, SIZE, 0, *(uint64_t *)arg);
	check(umunmap(addr, 0) == 0);
}

static void check_node_copy(void)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	uint64_t seed = SEED + 2;
	void *addr;

	attr.seg_size = SEG;
	attr.flags = UMMAP_NODE;
	attr.engine = UMMAP_ENGINE_SIGBUS;
	nginx_write("shared", SIZE, seed);
	url("http", nginx_port, "shared");
	check(ummap_open(uri, SIZE, 0, PROT_READ, &attr, &addr) == 0, "%s", umerrormsg());
	check_bytes(addr, SIZE, 0, seed);
	nginx_forget();
	check_exits(run_child(read_shared, &seed), 0);
	check(nginx_count(" 206 ") <= 1, "%d", nginx_count(" 206 "));
	/* A later version is another copy. */
	pause_ms(1100);
	seed++;
	nginx_write("shared", SIZE, seed);
	check_exits(run_child(read_shared, &seed), 0);
	check(umunmap(addr, 0) == 0);
}

static void check_cache(void)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	char at[900], near[320];
	uint8_t *bytes;
	void *addr;

	nginx_write("kept", SIZE, SEED);
	url("http", nginx_port, "kept");
	snprintf(near, sizeof(near), "%s", in_dir("near"));
	snprintf(at, sizeof(at), "cache+%s?cache.path=%s&cache.size=12M", uri, near);
	attr.seg_size = SEG;
	for (int i = 0; i < 2; i++) {
		nginx_forget();
		check(ummap_open(at, SIZE, 0, PROT_READ, &attr, &addr) == 0, "%s", umerrormsg());
		bytes = addr;
		check_bytes(bytes, SIZE, 0, SEED);
		check(umunmap(bytes, 0) == 0, "%s", umerrormsg());
		check(i == 0 ? nginx_count(" 206 ") > 5 : nginx_count(" 206 ") <= 2, "%d",
		      nginx_count(" 206 "));
	}
	pause_ms(1100);
	nginx_write("kept", SIZE, SEED + 1);
	check(ummap_open(at, SIZE, 0, PROT_READ, &attr, &addr) == -1 && errno == ESTALE);
	check(strstr(umerrormsg(), "changed"), "%s", umerrormsg());
	unlink(near);
}

/* ---- A changed object ---- */

static void check_change(void)
{
	uint8_t *bytes;
	uint64_t value;

	nginx_write("changing", SIZE, SEED);
	bytes = map_object(url("http", nginx_port, "changing"));
	check_bytes(bytes, SEG, 0, SEED);
	/* nginx derives the ETag from the time in seconds and the length. */
	pause_ms(1100);
	nginx_write("changing", SIZE, SEED + 1);
	catch_sigbus();
	check(!try_load((uint64_t *)(bytes + 80 * SEG), &value));
	check_bytes(bytes, SEG, 0, SEED);
	check(umunmap(bytes, 0) == 0);
	bytes = map_object(uri);
	check_bytes(bytes, SIZE, 0, SEED + 1);
	check(umunmap(bytes, 0) == 0);
}

/* ---- Passwords, redirects, proxies ---- */

static void check_ways(void)
{
	char path[400];
	FILE *f;

	check_not_open(url("http", nginx_port, "secret/object"), EACCES, "netrc");
	snprintf(path, sizeof(path), "%s/.netrc", nginx_folder);
	f = fopen(path, "w");
	check(f);
	fprintf(f, "machine localhost login user password word\n");
	fclose(f);
	set_env("HOME", nginx_folder);
	check_map(url("http", nginx_port, "secret/object"));
	nginx_forget();
	check_map(url("http", nginx_port, "moved"));
	check(nginx_count(" 302 ") == 1, "%d", nginx_count(" 302 "));
	snprintf(path, sizeof(path), "http://localhost:%d", nginx_port);
	set_env("http_proxy", path);
	check_map("http://proxied.test/any");
	unsetenv("http_proxy");
}

/* ---- Processes ---- */

static void use_in_child(void *unused)
{
	(void)unused;
	check_map(url("http", nginx_port, "object"));
}

static void check_fork(void)
{
	uint8_t *bytes = map_object(url("http", nginx_port, "object"));
	int fds;

	check_bytes(bytes, SEG, 0, SEED);
	check_exits(run_child(use_in_child, NULL), 0);
	check_bytes(bytes, SIZE, 0, SEED);
	check(umunmap(bytes, 0) == 0);
	/* Connections end with the last mapping. */
	check_map(uri);
	pause_ms(200);
	fds = count_fds();
	check_map(uri);
	for (int i = 0; i < 500 && count_fds() > fds; i++)
		pause_ms(10);
	check(count_fds() <= fds, "%d, before: %d", count_fds(), fds);
}

static void *read_for_ever(void *bytes)
{
	for (size_t i = 0;; i = (i + 7919 * SEG) % SIZE) {
		check_bytes((uint8_t *)bytes + i, 1, i, SEED);
		umadvise(bytes, SIZE, UMMAP_ADV_DONTNEED);
	}
	return NULL;
}

/* A process that ends during loads ends as it wants to. */
static void exit_in_child(void *unused)
{
	uint8_t *bytes = map_object(url("https", nginx_tls_port, "object"));
	pthread_t thread;

	(void)unused;
	for (int i = 0; i < 3; i++)
		check(pthread_create(&thread, NULL, read_for_ever, bytes) == 0);
	pause_ms(300);
	exit(9);
}

static void check_exit(void)
{
	for (int i = 0; i < 5; i++)
		check_exits(run_child(exit_in_child, NULL), 9);
}

int main(void)
{
	set_group();
	use_plugins();
	nginx_start();
	nginx_write("object", SIZE, SEED);
	nginx_write("secret/object", SIZE, SEED);
	nginx_write("with blank%", SIZE, SEED);
	check_plain();
	check_write();
	check_prefetch();
	check_tls();
	check_copy();
	check_failed_copy();
	check_cache();
	check_node_copy();
	check_change();
	check_ways();
	check_fork();
	check_exit();
	return 0;
}
