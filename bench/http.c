/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * http - the driver http against curl(1) and mounted file systems, over a server on loopback that
 * delays each answer. The server is a process with a thread for each connection, which sends ranges
 * of a file by sendfile(2). It also answers the requests by which `rclone mount` and s3fs look for
 * the file. The figures: reading an object in order, against one curl with 16 ranges at a time; 64
 * KiB at random places, all named by umprefetch(3), or by madvise(2) in mounted file systems,
 * against faults one by one; and a second pass over the near file of cache+, against the near file
 * by itself.
 */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kit/common.h"
#include "ummap-driver.h"
#include "ummap.h"

#define CURL_RANGES 16
#define RANDOM_BYTES (64 * KIB)
#define RANDOM_COUNT 512

static const char help[] =
"usage: http [OPTION ...]\n"
"Times the driver http and curl over a server that delays its answers; CSV on stdout.\n"
"UMMAP_DRIVER_PATH must name one folder, that of the driver.\n"
"  --dir DIR        for the object (.)\n"
"  --size SIZE      of the object (1G)\n"
"  --seg SIZE       of segments, in order; or auto (2M)\n"
"  --delays LIST    in ms (0,20,50)\n"
"  --keys KEYS      of the URI (none)\n"
"  --mounts LIST    of rclone,s3fs (none)\n"
"  --reps N         turns (3)\n";

struct options {
	const char *dir, *keys, *mounts;
	size_t size, seg;
	size_t delays[8];
	unsigned ndelays, reps;
};

/* Shared with the server. */
struct shared {
	_Atomic unsigned delay_ms;
	_Atomic unsigned in_flight, most_in_flight, requests;
	int port;
};

static struct shared *shared;
static int object_fd;

/* ---- The server ---- */

static void wait_as_far_server(void)
{
	unsigned now = ++shared->in_flight, most = shared->most_in_flight;

	while (now > most && !atomic_compare_exchange_weak(&shared->most_in_flight, &most, now))
		;
	shared->requests++;
	usleep(shared->delay_ms * 1000);
	shared->in_flight--;
}

/* The names by which a mounted file system looks for the file: a list of HTML for rclone, and one
 * of S3 for s3fs. */
static bool answer_names(int fd, const char *request, uint64_t size)
{
	bool is_missing = strncmp(request, "HEAD", 4) == 0;
	char header[900], body[600];
	int len;

	if (strncmp(request, "GET /bucket", 11) == 0)
		snprintf(body, sizeof(body), "<?xml version=\"1.0\"?><ListBucketResult><Name>bucket"
			 "</Name><IsTruncated>false</IsTruncated><Contents><Key>object</Key>"
			 "<LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>\"1\"</ETag>"
			 "<Size>%llu</Size></Contents></ListBucketResult>",
			 (unsigned long long)size);
	else
		strcpy(body, "<html><body><a href=\"object\">object</a></body></html>");
	len = snprintf(header, sizeof(header), "HTTP/1.1 %s\r\nContent-Length: %zu\r\n"
		       "Content-Type: %s\r\n\r\n%s", is_missing ? "404 Not Found" : "200 OK",
		       is_missing ? 0 : strlen(body), *body == '<' && body[1] == '?' ?
		       "application/xml" : "text/html", is_missing ? "" : body);
	return send(fd, header, (size_t)len, MSG_NOSIGNAL) == len;
}

static bool answer(int fd, const char *request, uint64_t size)
{
	const char *range = strcasestr(request, "\nrange: bytes="), *end = strchr(request, ' ') + 1;
	unsigned long long first = 0, last = size - 1;
	bool is_head = strncmp(request, "HEAD", 4) == 0;
	char header[400];
	off_t at;
	int len;

	end += strcspn(end, " ");
	wait_as_far_server();
	if (end - request < 7 || strncmp(end - 7, "/object", 7) != 0)
		return answer_names(fd, request, size);
	if (!range || sscanf(range + 14, "%llu-%llu", &first, &last) < 1) {
		len = snprintf(header, sizeof(header), "HTTP/1.1 200 OK\r\nETag: \"1\"\r\n"
			       "Accept-Ranges: bytes\r\nContent-Length: %llu\r\nLast-Modified: "
			       "Thu, 01 Jan 2026 00:00:00 GMT\r\n\r\n", (unsigned long long)size);
		if (send(fd, header, (size_t)len, MSG_NOSIGNAL) != len || is_head)
			return is_head;
		for (at = 0; at < (off_t)size;)
			if (sendfile(fd, object_fd, &at, size - (size_t)at) <= 0)
				return false;
		return true;
	}
	last = last < size ? last : size - 1;
	len = snprintf(header, sizeof(header), "HTTP/1.1 206 Partial Content\r\nETag: \"1\"\r\n"
		       "Content-Length: %llu\r\nContent-Range: bytes %llu-%llu/%llu\r\n\r\n",
		       last - first + 1, first, last, (unsigned long long)size);
	if (send(fd, header, (size_t)len, MSG_NOSIGNAL | MSG_MORE) != len)
		return false;
	for (at = (off_t)first; at <= (off_t)last;)
		if (sendfile(fd, object_fd, &at, last + 1 - (size_t)at) <= 0)
			return false;
	return true;
}

static void *serve(void *arg)
{
	int fd = (int)(intptr_t)arg, one = 1;
	uint64_t size = (uint64_t)lseek(object_fd, 0, SEEK_END);
	char request[4096];
	size_t len = 0;
	ssize_t n;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	while ((n = recv(fd, request + len, sizeof(request) - 1 - len, 0)) > 0) {
		len += (size_t)n;
		request[len] = '\0';
		if (!strstr(request, "\r\n\r\n"))
			continue;
		len = 0;
		if (!answer(fd, request, size))
			break;
	}
	close(fd);
	return NULL;
}

static void start_server(void)
{
	struct sockaddr_in at = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(at);
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), fd;
	pthread_t thread;

	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		      -1, 0);
	if (shared == MAP_FAILED || bind(listener, (struct sockaddr *)&at, sizeof(at)) ||
	    listen(listener, 256) || getsockname(listener, (struct sockaddr *)&at, &len))
		die("cannot start the server: %s", strerror(errno));
	shared->port = ntohs(at.sin_port);
	if (fork() != 0) {
		close(listener);
		return;
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	signal(SIGPIPE, SIG_IGN);
	while ((fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
		pthread_create(&thread, NULL, serve, (void *)(intptr_t)fd);
		pthread_detach(thread);
	}
	_exit(1);
}

/* ---- Figures: seconds ---- */

/* An installed driver would come before that of the variable. */
static void use_driver(void)
{
	const char *folder = getenv("UMMAP_DRIVER_PATH");
	const struct ummap_driver *driver;
	char path[PATH_MAX];
	void *library;

	snprintf(path, sizeof(path), "%s/ummap-driver-http.so", folder ? folder : ".");
	library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	driver = library ? dlsym(library, "ummap_driver") : NULL;
	if (!driver)
		die("cannot load the driver: %s", dlerror());
	if (ummap_driver_register(driver))
		die("%s", umerrormsg());
}

static void *map_object(const struct options *o, size_t seg)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	char uri[400];
	void *addr;

	attr.seg_size = seg;
	snprintf(uri, sizeof(uri), "http://127.0.0.1:%d/object%s%s", shared->port,
		 *o->keys ? "?" : "", o->keys);
	if (ummap_open(uri, o->size, 0, PROT_READ, &attr, &addr))
		die("%s", umerrormsg());
	return addr;
}

static volatile uint64_t sum;

static void touch(const char *bytes, size_t len)
{
	for (size_t i = 0; i < len; i += 4096)
		sum += (uint64_t)bytes[i];
}

static double read_in_order(const struct options *o)
{
	uint64_t begin = now_ns();
	void *addr = map_object(o, o->seg);

	umadvise(addr, o->size, UMMAP_ADV_SEQUENTIAL);
	touch(addr, o->size);
	umunmap(addr, 0);
	return (double)(now_ns() - begin) * 1e-9;
}

static double read_by_curl(const struct options *o)
{
	char *command = malloc(CURL_RANGES * 200), *to = command;
	size_t part = o->size / CURL_RANGES;
	uint64_t begin;

	to += sprintf(to, "curl -sS -Z --no-progress-meter --parallel-immediate --parallel-max %d",
		      CURL_RANGES);
	for (size_t i = 0; i < CURL_RANGES; i++)
		to += sprintf(to, "%s -s -f -o /dev/null -r %zu-%zu http://127.0.0.1:%d/object",
			      i ? " --next" : "", i * part, (i + 1) * part - 1, shared->port);
	begin = now_ns();
	if (system(command) != 0)
		die("cannot run curl");
	free(command);
	return (double)(now_ns() - begin) * 1e-9;
}

static double read_at_random(const struct options *o, bool named)
{
	static struct iovec list[RANDOM_COUNT];
	char *addr = map_object(o, RANDOM_BYTES);
	uint64_t state = 1, begin;
	double seconds;

	umadvise(addr, o->size, UMMAP_ADV_RANDOM);
	for (size_t i = 0; i < RANDOM_COUNT; i++)
		list[i] = (struct iovec){ addr + next_random(&state) % (o->size / RANDOM_BYTES) *
						 RANDOM_BYTES, RANDOM_BYTES };
	begin = now_ns();
	if (named && umprefetch(list, RANDOM_COUNT))
		die("%s", umerrormsg());
	for (size_t i = 0; i < RANDOM_COUNT; i++)
		touch(list[i].iov_base, RANDOM_BYTES);
	seconds = (double)(now_ns() - begin) * 1e-9;
	umunmap(addr, 0);
	return seconds;
}

/* ---- A second pass over the near file ---- */

static void *map_uri(const char *uri, size_t len, size_t seg)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	void *addr;

	attr.seg_size = seg;
	if (ummap_open(uri, len, 0, PROT_READ, &attr, &addr))
		die("%s", umerrormsg());
	umadvise(addr, len, UMMAP_ADV_SEQUENTIAL);
	return addr;
}

static double read_uri(const char *uri, const struct options *o)
{
	uint64_t begin = now_ns();
	void *addr = map_uri(uri, o->size, o->seg);

	touch(addr, o->size);
	umunmap(addr, 0);
	return (double)(now_ns() - begin) * 1e-9;
}

/* Removes a file from the page cache, so that it is read from the disk. */
static void forget_cached(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0 || fsync(fd) || posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED))
		die("cannot write '%s'", path);
	close(fd);
}

static void path_of(char path[PATH_MAX], const struct options *o, const char *name)
{
	char folder[PATH_MAX - 20];

	if (!realpath(o->dir, folder))
		die("cannot find '%s': %s", o->dir, strerror(errno));
	snprintf(path, PATH_MAX, "%.4000s/%s", folder, name);
}

/* ---- Mounted file systems ---- */

static pid_t mount_object(const struct options *o, const char *program, const char *folder)
{
	char url[100], text[200];
	struct stat st;
	char path[PATH_MAX];
	pid_t pid;

	snprintf(url, sizeof(url), "http://127.0.0.1:%d", shared->port);
	mkdir(folder, 0755);
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGTERM);
		if (!freopen("/dev/null", "w", stderr) || dup2(2, 1) < 0)
			_exit(127);
		snprintf(text, sizeof(text), "url=%s,use_path_request_style,public_bucket=1,ro",
			 url);
		if (strcmp(program, "s3fs") == 0)
			execlp("s3fs", "s3fs", "bucket", folder, "-f", "-o", text, (char *)NULL);
		else
			execlp("rclone", "rclone", "-q", "mount", ":http:", folder, "--read-only",
			       "--http-url", url, (char *)NULL);
		_exit(127);
	}
	snprintf(path, sizeof(path), "%.4000s/object", folder);
	for (int i = 0; i < 200; i++) {
		if (stat(path, &st) == 0 && (size_t)st.st_size == o->size)
			return pid;
		usleep(50000);
	}
	die("cannot mount the object by %s", program);
}

static void unmount(pid_t pid, const char *folder)
{
	char command[2 * PATH_MAX + 60];

	snprintf(command, sizeof(command), "fusermount3 -u '%s' || fusermount -u '%s'", folder,
		 folder);
	if (system(command) != 0)
		die("cannot unmount '%s'", folder);
	waitpid(pid, NULL, 0);
	rmdir(folder);
}

enum order { IN_ORDER, BY_NAMES };

static double read_mounted(const struct options *o, const char *program, enum order order)
{
	char folder[PATH_MAX], path[PATH_MAX];
	uint64_t state = 1, begin;
	size_t offsets[RANDOM_COUNT];
	double seconds;
	char *addr;
	pid_t pid;
	int fd;

	path_of(folder, o, "http-mount");
	pid = mount_object(o, program, folder);
	snprintf(path, sizeof(path), "%.4000s/object", folder);
	shared->requests = shared->most_in_flight = 0;
	begin = now_ns();
	fd = open(path, O_RDONLY | O_CLOEXEC);
	addr = mmap(NULL, o->size, PROT_READ, MAP_SHARED, fd, 0);
	if (fd < 0 || addr == MAP_FAILED)
		die("cannot map '%s': %s", path, strerror(errno));
	madvise(addr, o->size, order == IN_ORDER ? MADV_SEQUENTIAL : MADV_RANDOM);
	for (size_t i = 0; i < RANDOM_COUNT; i++) {
		offsets[i] = next_random(&state) % (o->size / RANDOM_BYTES) * RANDOM_BYTES;
		if (order == BY_NAMES)
			madvise(addr + offsets[i], RANDOM_BYTES, MADV_WILLNEED);
	}
	for (size_t i = 0; order != IN_ORDER && i < RANDOM_COUNT; i++)
		touch(addr + offsets[i], RANDOM_BYTES);
	if (order == IN_ORDER)
		touch(addr, o->size);
	seconds = (double)(now_ns() - begin) * 1e-9;
	munmap(addr, o->size);
	close(fd);
	unmount(pid, folder);
	return seconds;
}

static void print(const char *figure, const char *method, unsigned rep, size_t bytes,
		  double seconds)
{
	printf("%s,%s,%u,%u,%.4f,%.1f,%u,%u\n", figure, method, shared->delay_ms, rep, seconds,
	       (double)bytes / MIB / seconds, shared->requests, shared->most_in_flight);
	fflush(stdout);
	shared->requests = shared->most_in_flight = 0;
}

/* The first pass fills the near file. */
static void run_cached(const struct options *o, unsigned rep)
{
	char near[PATH_MAX], uri[2 * PATH_MAX];

	path_of(near, o, "http-near");
	snprintf(uri, sizeof(uri), "cache+http://127.0.0.1:%d/object?%s%scache.path=%s&cache.size="
		 "%zu", shared->port, o->keys, *o->keys ? "&" : "", near, o->size / 8 * 9);
	print("cached", "first", rep, o->size, read_uri(uri, o));
	forget_cached(near);
	print("cached", "second", rep, o->size, read_uri(uri, o));
	forget_cached(near);
	snprintf(uri, sizeof(uri), "posix:%s", near);
	print("cached", "near_alone", rep, o->size, read_uri(uri, o));
	forget_cached(near);
	strcat(uri, "?cached=copy");
	print("cached", "near_copied", rep, o->size, read_uri(uri, o));
	unlink(near);
}

static void run_mounts(const struct options *o, unsigned rep)
{
	static const char *const programs[] = { "rclone", "s3fs" };
	size_t random = RANDOM_COUNT * RANDOM_BYTES;

	for (unsigned i = 0; i < 2; i++) {
		const char *program = programs[i];

		if (!strstr(o->mounts, program))
			continue;
		print("order", program, rep, o->size, read_mounted(o, program, IN_ORDER));
		/* One after the other, rclone needs minutes. */
		if (i > 0 || rep == 0)
			print("random", i ? "s3fs_named" : "rclone_named", rep, random,
			      read_mounted(o, program, BY_NAMES));
	}
}

static void run(const struct options *o)
{
	size_t random = RANDOM_COUNT * RANDOM_BYTES;

	printf("figure,method,delay_ms,rep,seconds,mib_per_s,requests,most_in_flight\n");
	for (unsigned d = 0; d < o->ndelays; d++) {
		shared->delay_ms = (unsigned)o->delays[d];
		for (unsigned rep = 0; rep < o->reps; rep++) {
			print("order", "curl16", rep, o->size, read_by_curl(o));
			print("order", "ummap", rep, o->size, read_in_order(o));
			print("random", "prefetch", rep, random, read_at_random(o, true));
			if (rep == 0)
				print("random", "faults", rep, random, read_at_random(o, false));
			run_cached(o, rep);
			run_mounts(o, rep);
		}
	}
}

/* Makes the object, and keeps it in the page cache. */
static void make_object(const struct options *o)
{
	char path[PATH_MAX], *block = malloc(MIB);
	uint64_t state = 7;

	snprintf(path, sizeof(path), "%s/http-object", o->dir);
	object_fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	if (object_fd < 0)
		die("cannot create '%s': %s", path, strerror(errno));
	unlink(path);
	for (size_t i = 0; i < MIB / 8; i++)
		((uint64_t *)block)[i] = next_random(&state);
	for (size_t at = 0; at < o->size; at += MIB)
		if (pwrite(object_fd, block, MIB, (off_t)at) != (ssize_t)MIB)
			die("cannot write '%s': %s", path, strerror(errno));
	free(block);
}

int main(int argc, char *argv[])
{
	static const struct option options[] = {
		{ "dir", 1, NULL, 'd' }, { "size", 1, NULL, 's' }, { "seg", 1, NULL, 'g' },
		{ "delays", 1, NULL, 'l' }, { "keys", 1, NULL, 'k' }, { "reps", 1, NULL, 'r' },
		{ "mounts", 1, NULL, 'm' },
		{ "help", 0, NULL, 'h' }, { 0 },
	};
	struct options o = { .dir = ".", .keys = "", .mounts = "", .size = GIB, .seg = 2 * MIB,
			     .delays = { 0, 20, 50 }, .ndelays = 3, .reps = 3 };
	char *text;
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (c) {
		case 'd': o.dir = optarg; break;
		case 's': o.size = parse_size("--size", optarg); break;
		case 'g':
			o.seg = strcmp(optarg, "auto") ? parse_size("--seg", optarg) :
				UMMAP_SEG_AUTO;
			break;
		case 'k': o.keys = optarg; break;
		case 'm': o.mounts = optarg; break;
		case 'r': o.reps = parse_count("--reps", optarg, 100); break;
		case 'l':
			o.ndelays = 0;
			for (text = strtok(optarg, ","); text && o.ndelays < 8;
			     text = strtok(NULL, ","))
				o.delays[o.ndelays++] = (size_t)atoi(text);
			break;
		default: fputs(help, c == 'h' ? stdout : stderr); return c == 'h' ? 0 : 2;
		}
	}
	use_driver();
	make_object(&o);
	start_server();
	run(&o);
	return 0;
}
