/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The filter ioranks+ and the I/O processes of `ummap ioranks`: which process writes; kills of
 * writers and of I/O processes at any moment, after which everything is in the file that was
 * reported as durable, and nothing older arrives later; full disks; several writers of one file;
 * an I/O process without free descriptors; operations of plug-ins; the timeline.
 *
 *	prog_ioranks [ROUNDS [SEED]]
 *	prog_ioranks commit URI
 */
#include "../../drivers/ioranks.h"

#include "common.h"
#include "small_fs.h"

#include <dlfcn.h>
#include <sys/prctl.h>
#include "versions.h"

#define ROUNDS 12
#define WRITERS 4

static char name[40];          /* of the I/O processes */
static unsigned starts;        /* number of times that they were started */
static pid_t holder;           /* program that keeps them running, a cat(1) */
static int to_holder, from_holder;
static char store[320], uri[500];
static rlim_t io_descriptors; /* limit of the I/O processes; 0: that of this process */

/* ---- I/O processes ---- */

static void exec_holder(void *pipes)
{
	const int *ends = pipes;
	char tool[400];
	ssize_t len = readlink("/proc/self/exe", tool, 320);

	check(len > 0 && len < 320);
	tool[len] = '\0';
	strcpy(strrchr(tool, '/'), "/../ummap");
	check(dup2(ends[0], 0) == 0 && dup2(ends[3], 1) == 1);
	if (io_descriptors)
		check(setrlimit(RLIMIT_NOFILE, &(struct rlimit){ io_descriptors,
								 io_descriptors }) == 0);
	execl(tool, "ummap", "ioranks", "--processes", "1", "--name", name, "cat", NULL);
	_exit(127);
}

/* Starts an I/O process, by which the stores of later children are written. */
static void start_io(void)
{
	char value[60], byte = 'x';
	int ends[4];

	snprintf(name, sizeof(name), "test-%d-%u", (int)getpid(), starts++);
	check(pipe2(ends, O_CLOEXEC) == 0 && pipe2(ends + 2, O_CLOEXEC) == 0);
	holder = start_child(exec_holder, ends);
	to_holder = ends[1];
	from_holder = ends[2];
	close(ends[0]);
	close(ends[3]);
	check(write(to_holder, &byte, 1) == 1 && read(from_holder, &byte, 1) == 1, "the program");
	snprintf(value, sizeof(value), "%s,1", name);
	set_env("UMMAP_IO_RANKS", value);
}

static int connect_to_io(void)
{
	struct sockaddr_un address;
	socklen_t len = ioranks_address(&address, geteuid(), name, sizeof(name), 0);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	check(fd >= 0);
	if (connect(fd, (struct sockaddr *)&address, len) == 0)
		return fd;
	close(fd);
	return -1;
}

static pid_t io_process(void)
{
	int fd = connect_to_io();
	socklen_t len = sizeof(struct ucred);
	struct ucred peer;

	check(fd >= 0 && getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0);
	close(fd);
	return peer.pid;
}

/* Ends the program that keeps the I/O process running, which ends after the last connection. */
static void stop_io(void)
{
	close(to_holder);
	close(from_holder);
	check_exits(wait_child(holder), 0);
	for (int fd; (fd = connect_to_io()) >= 0; pause_ms(1))
		close(fd);
	check(unsetenv("UMMAP_IO_RANKS") == 0);
}

static uint64_t bytes_written_by(pid_t pid)
{
	char path[40], text[500] = "";
	const char *at;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/io", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	check(fd >= 0 && read(fd, text, sizeof(text) - 1) > 0, "%s", path);
	close(fd);
	at = strstr(text, "wchar: ");
	check(at);
	return strtoull(at + 7, NULL, 10);
}

/* ---- Mappings ---- */

static uint64_t *map(const char *of, size_t size, int flags)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	void *addr;

	attr.seg_size = SEG;
	attr.flags = UMMAP_CREATE | flags;
	check(ummap_open(of, size, 0, READ_WRITE, &attr, &addr) == 0, "%s", of);
	return addr;
}

static void make_store(const char *filters)
{
	static unsigned number;
	char file[32];

	snprintf(file, sizeof(file), "store.%u", number++);
	snprintf(store, sizeof(store), "%s", in_dir(file));
	snprintf(uri, sizeof(uri), "%s:%s", filters, store);
}

static void check_store(uint64_t least, uint64_t most)
{
	uint64_t *words = malloc(SIZE);
	int fd = open(store, O_RDONLY | O_CLOEXEC);

	check(fd >= 0 && words && pread(fd, words, SIZE, 0) == (ssize_t)SIZE);
	check_version(words, least, most);
	close(fd);
	free(words);
}

/* ---- Who writes ---- */

static void sync_and_commit(void *unused)
{
	struct umsync_handle *h;
	uint64_t *words;

	(void)unused;
	set_budget(3 * SIZE);
	words = map(uri, SIZE, 0);
	put_version(words, 1);
	check(umsync(words, 0) == 0);
	check_store(1, 1);
	put_version(words, 2);
	check(umsync_begin(words, 0, &h) == 0);
	put_version(words, 3);
	check(umsync_wait(&h) == 0);
	check_store(2, 2);
	check(umunmap(words, 1) == 0);
	check_store(3, 3);
	/* The locks of the file have ended. */
	words = map(strstr(uri, "posix:"), SIZE, 0);
	check_version(words, 3, 3);
	check(umunmap(words, 0) == 0);
}

static void check_writer(void)
{
	pid_t io;

	start_io();
	io = io_process();
	make_store("ioranks+posix");
	check_exits(run_child(sync_and_commit, NULL), 0);
	check(bytes_written_by(io) >= 3 * SIZE, "%" PRIu64, bytes_written_by(io));
	stop_io();
	make_store("ioranks+posix");
	check_exits(run_child(sync_and_commit, NULL), 0);
	check(access(store, F_OK) == 0);
}

/* Files for which the I/O process has no descriptors. */
static void open_many(void *unused)
{
	uint64_t *words[20];

	(void)unused;
	set_budget(3 * SIZE);
	alarm(60);
	for (size_t i = 0; i < 20; i++) {
		make_store("ioranks+posix");
		words[i] = map(uri, SIZE, 0);
		put_version(words[i], i + 1);
		check(umsync(words[i], 0) == 0);
		check_store(i + 1, i + 1);
	}
	for (size_t i = 0; i < 20; i++)
		check(umunmap(words[i], 1) == 0);
}

static void check_descriptors(void)
{
	io_descriptors = 24;
	start_io();
	check_exits(run_child(open_many, NULL), 0);
	stop_io();
	io_descriptors = 0;
}

static void map_wrong(void *unused)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	void *addr;

	(void)unused;
	attr.flags = UMMAP_CREATE;
	check_fails(ummap_open("ioranks+mem:", SIZE, 0, READ_WRITE, &attr, &addr), EINVAL);
	check_fails(ummap_open("ioranks+posix:a?ioranks.name=b", SIZE, 0, READ_WRITE, &attr, &addr),
		    EINVAL);
}

/* ---- Operations ---- */

#define DOUBLES (SIZE / sizeof(double))

/* Makes the URI of a store with an operation of examples/ioranks. Returns false if it was not
 * built. */
static bool use_operation(const char *operation, const char *argument)
{
	char path[400];
	ssize_t len = readlink("/proc/self/exe", path, 320);

	check(len > 0 && len < 320);
	path[len] = '\0';
	snprintf(strrchr(path, '/'), 80, "/../examples/ioranks/%s.so", operation);
	make_store("ioranks+posix");
	snprintf(uri + strlen(uri), sizeof(uri) - strlen(uri), "?ioranks.operation=%s%s", path,
		 argument);
	return access(path, R_OK) == 0;
}

static void check_line(unsigned number, const char *line)
{
	char path[400], text[100] = "";
	FILE *in;

	snprintf(path, sizeof(path), "%s.minmax", store);
	in = fopen(path, "re");
	check(in, "%s", path);
	for (unsigned i = 0; i < number; i++)
		check(fgets(text, sizeof(text), in));
	check(strcmp(text, line) == 0 && !fgets(text, sizeof(text), in), "%s", text);
	fclose(in);
}

/* The operation gets all data, also short writes. */
static void reduce(void *unused)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	struct umsync_handle *h;
	double *values;
	char line[60];
	void *addr;

	(void)unused;
	set_budget(3 * SIZE);
	attr.seg_size = 4096;
	attr.flags = UMMAP_CREATE;
	check(ummap_open(uri, SIZE, 0, READ_WRITE, &attr, &addr) == 0, "%s", uri);
	values = addr;
	for (size_t i = 0; i < DOUBLES; i++)
		values[i] = (double)i;
	check(umsync(values, 0) == 0);
	snprintf(line, sizeof(line), "0 %g %zu\n", (double)(DOUBLES - 1), DOUBLES);
	check_line(1, line);
	values[5] = -7.5;
	check(umsync_begin(values, 0, &h) == 0);
	values[6] = -1000;
	check(umsync_wait(&h) == 0);
	check_line(2, "-7.5 511 512\n");
	check(umunmap(values, 0) == 0);
}

/* Writes the records of FILE.z to memory. */
static void restore(uint8_t *bytes, const char *path)
{
	int (*uncompress)(uint8_t *, unsigned long *, const uint8_t *, unsigned long);
	void *zlib = dlopen("libz.so.1", RTLD_NOW);
	void *symbol = zlib ? dlsym(zlib, "uncompress") : NULL;
	FILE *in = fopen(path, "re");
	uint64_t head[3];

	check(symbol && in);
	memcpy(&uncompress, &symbol, sizeof(symbol));
	while (fread(head, sizeof(head), 1, in) == 1) {
		unsigned long len = head[1];
		uint8_t *packed = malloc(head[2]);

		check(head[0] + head[1] <= SIZE && packed && fread(packed, head[2], 1, in) == 1);
		check(uncompress(bytes + head[0], &len, packed, head[2]) == 0 && len == head[1]);
		free(packed);
	}
	fclose(in);
}

static void compress_versions(void *unused)
{
	uint8_t *copy = calloc(1, SIZE);
	char path[400];
	uint64_t *words;

	(void)unused;
	set_budget(SIZE / 4);
	words = map(uri, SIZE, 0);
	snprintf(path, sizeof(path), "%s.z", store);
	for (uint64_t v = 1; v < 4; v++) {
		put_version(words, v);
		check(umsync(words, 0) == 0);
		restore(copy, path);
		check(memcmp(copy, words, SIZE) == 0, "version %" PRIu64, v);
	}
	check(umunmap(words, 1) == 0);
	free(copy);
}

/* One sync returns the error, after the data have become durable. */
static void fail_operation(void *error)
{
	uint64_t *words;

	set_budget(3 * SIZE);
	words = map(uri, SIZE, 0);
	put_version(words, 1);
	if (!error) {
		check(umsync(words, 0) == 0);
		check(kill(io_process(), SIGKILL) == 0);
		put_version(words, 2);
	}
	check_fails(umsync(words, 0), error ? ENOSPC : EIO);
	check_store(error ? 1 : 2, error ? 1 : 2);
	put_version(words, 3);
	check(umsync(words, 0) == 0);
	check_store(3, 3);
	check(umunmap(words, 1) == 0);
}

static void open_with_other(void *unused)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	void *addr;

	(void)unused;
	check_fails(ummap_open(strcat(uri, ",other"), SIZE, 0, READ_WRITE, &attr, &addr), EBUSY);
}

static void keep_open(void *unused)
{
	uint64_t *words = map(uri, SIZE, 0);

	(void)unused;
	check_exits(run_child(open_with_other, NULL), 0);
	check(umunmap(words, 0) == 0);
}

static void refuse_operation(void *unused)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	void *addr;

	(void)unused;
	attr.flags = UMMAP_CREATE;
	check_fails(ummap_open(uri, SIZE, 0, READ_WRITE, &attr, &addr), EINVAL);
	check(strstr(umerrormsg(), "operation"), "%s", umerrormsg());
}

static void check_operations(void)
{
	start_io();
	check(use_operation("minmax", ""), "%s", uri);
	check_exits(run_child(reduce, NULL), 0);
	use_operation("minmax", "");
	check_exits(run_child(keep_open, NULL), 0);
	if (use_operation("deflate", "")) {
		check_exits(run_child(compress_versions, NULL), 0);
		use_operation("deflate", ",/dev/full");
		check_exits(run_child(fail_operation, uri), 0);
	}
	use_operation("absent", "");
	check_exits(run_child(refuse_operation, NULL), 0);
	use_operation("minmax", "");
	check_exits(run_child(fail_operation, NULL), 0);
	stop_io();
}

/* ---- Joined writes ---- */

#define SENDERS 70
#define PIECE (20 * KIB + 8)

static void send_request(int fd, const struct ioranks_request *request)
{
	size_t len = IORANKS_REQUEST_BYTES(request->pieces);

	check(send(fd, request, len, MSG_NOSIGNAL) == (ssize_t)len);
}

static void check_reply(int fd)
{
	struct ioranks_reply reply = { .error = 1 };

	check(recv(fd, &reply, sizeof(reply), 0) > 0 && reply.error == 0, "%d", reply.error);
}

/* Connects to the I/O process, and passes it the file. */
static int open_at_io(int file)
{
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int))];
	} control = { .head = { .cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET,
				.cmsg_type = SCM_RIGHTS } };
	struct ioranks_request request = { .op = IORANKS_OPEN };
	struct iovec iov = { &request, IORANKS_REQUEST_BYTES(0) };
	struct msghdr message = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control,
				  .msg_controllen = sizeof(control) };
	int fd = connect_to_io();

	memcpy(CMSG_DATA(&control.head), &file, sizeof(file));
	check(fd >= 0 && sendmsg(fd, &message, MSG_NOSIGNAL) == (ssize_t)iov.iov_len);
	check_reply(fd);
	return fd;
}

/* Returns how many bytes the writes in the timeline have, and their number. */
static size_t bytes_in_timeline(const char *path, unsigned *writes)
{
	FILE *in = fopen(path, "re");
	size_t bytes = 0, n;
	char line[300];

	check(in, "%s", path);
	while (fgets(line, sizeof(line), in)) {
		if (sscanf(line, "%*[^,],%*[^,],%*[^,],write,%zu", &n) != 1)
			continue;
		bytes += n;
		(*writes)++;
	}
	fclose(in);
	return bytes;
}

/* Writes that wait while the I/O process works are one write if they are adjacent, whatever their
 * order. */
static void check_joined(void)
{
	const size_t first = 100, bytes = SENDERS * PIECE;
	uint8_t *data = malloc(bytes), *stored = malloc(bytes);
	int sockets[SENDERS], file;
	unsigned writes = 0;
	char path[400];
	pid_t io;

	snprintf(path, sizeof(path), "%s", in_dir("joined.csv"));
	set_env("UMMAP_TIMELINE", path);
	start_io();
	io = io_process();
	prctl(PR_SET_PTRACER, io, 0, 0, 0);
	make_store("");
	file = open(store, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	check(file >= 0 && data && stored);
	fill(data, bytes, first, 1);
	for (size_t i = 0; i < SENDERS; i++)
		sockets[i] = open_at_io(file);
	check(kill(io, SIGSTOP) == 0);
	for (size_t i = SENDERS; i-- > 0;) {
		struct ioranks_request request = { .op = IORANKS_WRITE, .pieces = 1,
						   .off = first + i * PIECE };

		request.piece[0] = (struct iovec){ data + i * PIECE, PIECE };
		send_request(sockets[i], &request);
	}
	check(kill(io, SIGCONT) == 0);
	for (size_t i = 0; i < SENDERS; i++) {
		check_reply(sockets[i]);
		close(sockets[i]);
	}
	check(pread(file, stored, bytes, (off_t)first) == (ssize_t)bytes);
	check(memcmp(stored, data, bytes) == 0);
	close(file);
	stop_io();
	unsetenv("UMMAP_TIMELINE");
	check(bytes_in_timeline(path, &writes) == bytes);
	check(writes == 1, "%u writes", writes);
	free(data);
	free(stored);
}

/* ---- The timeline ---- */

/* A program reads the variable when it starts. */
static void exec_commit(void *unused)
{
	(void)unused;
	execl("/proc/self/exe", "prog_ioranks", "commit", uri, NULL);
	_exit(127);
}

static void check_timeline(void)
{
	static const char *const events[] = { "commit,", "write,", "flush," };
	char path[400], text[4000] = "";
	int fd;

	snprintf(path, sizeof(path), "%s", in_dir("timeline.csv"));
	set_env("UMMAP_TIMELINE", path);
	start_io();
	make_store("ioranks+posix");
	check_exits(run_child(exec_commit, NULL), 0);
	stop_io();
	unsetenv("UMMAP_TIMELINE");
	fd = open(path, O_RDONLY | O_CLOEXEC);
	check(fd >= 0 && read(fd, text, sizeof(text) - 1) > 0, "%s", path);
	close(fd);
	for (size_t i = 0; i < 3; i++)
		check(strstr(text, events[i]), "%s: %s", events[i], text);
}

/* ---- Kills ---- */

static void sync_until_killed(void *durable)
{
	uint64_t *words;

	set_budget(SIZE / 4);
	words = map(uri, SIZE, 0);
	check_version(words, *(uint64_t *)durable, *(uint64_t *)durable + 1);
	sync_versions(words, *(uint64_t *)durable + 1);
}

/* Kills a writer. The next one finds what was durable, and the I/O process adds nothing older. */
static void kill_writers(const char *filters, uint64_t *random, unsigned rounds)
{
	uint64_t durable = 0;
	int fd;

	start_io();
	make_store(filters);
	fd = open(store, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	for (size_t i = 0; i < SIZE / 8; i++)
		check(pwrite(fd, &i, 8, (off_t)i * 8) == 8);
	close(fd);
	for (unsigned i = 0; i < rounds; i++)
		kill_during_syncs(sync_until_killed, &durable, random, &durable);
	printf("%s: %" PRIu64 " syncs before %u kills\n", filters, durable, rounds);
	stop_io();
}

static int progress;           /* end of a pipe on which a writer reports durable versions */

/* Syncs and commits version after version, until all of the I/O process's work is its own. */
static void sync_many(void *versions)
{
	struct umsync_handle *h;
	uint64_t *words;

	set_budget(2 * SIZE);
	words = map(uri, SIZE, 0);
	for (uint64_t v = 1; v <= (uintptr_t)versions; v++) {
		put_version(words, v);
		if (v % 2) {
			check(umsync(words, 0) == 0);
		} else {
			check(umsync_begin(words, 0, &h) == 0);
			check(umsync_wait(&h) == 0);
		}
		check_store(v, v);
		check(write(progress, &v, sizeof(v)) == sizeof(v));
	}
	check(umunmap(words, 1) == 0);
}

/* Kills an I/O process at a random moment. Its client goes on without an error. */
static void kill_io(uint64_t *random)
{
	uintptr_t versions = 12;
	uint64_t version = 0, kill_at = next_random(random) % versions;
	int ends[2];
	pid_t writer;

	start_io();
	make_store("ioranks+posix");
	check(pipe2(ends, O_CLOEXEC) == 0);
	progress = ends[1];
	writer = start_child(sync_many, (void *)versions);
	close(ends[1]);
	while (version < kill_at)
		check(read(ends[0], &version, sizeof(version)) == sizeof(version));
	pause_ms(next_random(random) % 8);
	check(kill(io_process(), SIGKILL) == 0);
	check_exits(wait_child(writer), 0);
	close(ends[0]);
	check_store(versions, versions);
	stop_io();
}

/* ---- Several writers of one file ---- */

static void write_part(void *number)
{
	size_t part = (size_t)(uintptr_t)number;
	uint8_t *bytes;

	set_budget(2 * SIZE);
	bytes = (uint8_t *)map(uri, WRITERS * SIZE, UMMAP_WRITERS);
	for (uint64_t round = 1; round < 6; round++) {
		struct umsync_handle *h;

		/* The segments of the writers take turns, so their writes are adjacent. */
		for (size_t s = part; s < WRITERS * SIZE / SEG; s += WRITERS)
			fill(bytes + s * SEG, SEG, s * SEG, round);
		check(umsync_begin(bytes, 0, &h) == 0 && umsync_wait(&h) == 0);
	}
	check(umunmap(bytes, 0) == 0);
}

static void check_writers(void)
{
	uint8_t *bytes = malloc(WRITERS * SIZE);
	pid_t writers[WRITERS];
	int fd;

	start_io();
	make_store("ioranks+posix");
	for (size_t i = 0; i < WRITERS; i++)
		writers[i] = start_child(write_part, (void *)i);
	for (size_t i = 0; i < WRITERS; i++)
		check_exits(wait_child(writers[i]), 0);
	fd = open(store, O_RDONLY | O_CLOEXEC);
	check(fd >= 0 && bytes && pread(fd, bytes, WRITERS * SIZE, 0) == WRITERS * SIZE);
	check_bytes(bytes, WRITERS * SIZE, 0, 5);
	close(fd);
	free(bytes);
	stop_io();
}

/* ---- Full disks ---- */

static int root;               /* root of a small file system */

static void fill_disk(void *unused)
{
	uint64_t *words;

	(void)unused;
	set_budget(2 * SIZE);
	fill_up(root, space(root) - SIZE / 2);
	words = map(uri, SIZE, 0);
	put_version(words, 1);
	check_fails(umsync(words, 0), ENOSPC);
	make_space(root);
	check(umsync(words, 0) == 0);
	check(umunmap(words, 1) == 0);
	check_store(1, 1);
}

static void check_full_disk(void)
{
	root = small_file_system();
	if (root < 0)
		return;
	start_io();
	snprintf(store, sizeof(store), "/proc/%d/fd/%d/store", (int)getpid(), root);
	snprintf(uri, sizeof(uri), "ioranks+posix:%s", store);
	check_exits(run_child(fill_disk, NULL), 0);
	stop_io();
	close(root);
}

int main(int argc, char **argv)
{
	unsigned rounds = argc > 1 ? (unsigned)atoi(argv[1]) : by_time(ROUNDS, 20 * ROUNDS);
	uint64_t random = argc > 2 ? strtoull(argv[2], NULL, 10) : (uint64_t)getpid();

	if (argc == 3 && strcmp(argv[1], "commit") == 0) {
		snprintf(uri, sizeof(uri), "%s", argv[2]);
		snprintf(store, sizeof(store), "%s", strchr(uri, ':') + 1);
		sync_and_commit(NULL);
		return 0;
	}
	printf("seed %" PRIu64 "\n", random);
	check_writer();
	check_exits(run_child(map_wrong, NULL), 0);
	check_writers();
	check_descriptors();
	check_operations();
	check_timeline();
	check_joined();
	check_full_disk();
	kill_writers("ioranks+posix", &random, rounds);
	kill_writers("wal+ioranks+posix", &random, rounds);
	for (unsigned i = 0; i < rounds; i++)
		kill_io(&random);
	return 0;
}
