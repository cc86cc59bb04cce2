/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Mappings of a store behind cow+. SIGKILL at any moment leaves the data of the last umsync, and
 * the store unchanged. Two processes have their own changes of one store, which no process can
 * write meanwhile. `ummap cow` lists, commits and discards changes. A commit that was killed is
 * completed by the next one. A store of 1 TiB opens at once.
 *
 *	prog_cow [ROUNDS [SEED]]
 */
#include "common.h"
#include "ummap-driver.h"
#include "versions.h"

#define BIG (64 * MIB)        /* size of a store whose commit takes a while */
#define ROUNDS 20

static char store[320], changes[330];
static int plain;             /* descriptor of the store */
static const char *driver;

static void *map(const char *uri, size_t size, size_t seg)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	void *addr;

	attr.seg_size = seg;
	check(ummap_open(uri, size, 0, READ_WRITE, &attr, &addr) == 0, "%s", uri);
	return addr;
}

static uint64_t *map_store(const char *path)
{
	char uri[1000];

	snprintf(uri, sizeof(uri), "cow+%s:%s?cow.path=%s", driver, store, path);
	return map(uri, SIZE, SEG);
}

/* Checks the contents of the store itself. */
static void check_plain(uint64_t version)
{
	uint64_t *words = malloc(SIZE);

	check(pread(plain, words, SIZE, 0) == (ssize_t)SIZE && file_size(plain) == SIZE);
	check_version(words, version, version);
	free(words);
}

static void make_store(void)
{
	uint64_t *words = malloc(SIZE);

	plain = temp_named("store", 0, store);
	put_version(words, 0);
	check(write(plain, words, SIZE) == (ssize_t)SIZE);
	free(words);
	snprintf(changes, sizeof(changes), "%s.cow", store);
	unlink(changes);
}

/* Executes the program ummap, which is in the folder above that of this program. */
static void exec_tool(const char *verb, const char *path)
{
	char tool[400];
	ssize_t len = readlink("/proc/self/exe", tool, 320);

	check(len > 0 && len < 320);
	tool[len] = '\0';
	strcpy(strrchr(tool, '/'), "/../ummap");
	execl(tool, "ummap", "cow", "--changes", path, verb, store, NULL);
	_exit(127);
}

struct words {
	const char *verb, *path, *output;
};

static void run_tool(void *arg)
{
	const struct words *w = arg;
	int fd = open(w->output, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	check(fd >= 0 && dup2(fd, 1) == 1 && dup2(fd, 2) == 2);
	exec_tool(w->verb, w->path);
}

/* Runs the tool. Returns its exit status. */
static int tool(const char *verb, const char *path, const char *output)
{
	struct words words = { verb, path, output ? output : "/dev/null" };
	int status = run_child(run_tool, &words);

	check(WIFEXITED(status) && WEXITSTATUS(status) < 127, "%s", verb);
	return WEXITSTATUS(status);
}

/* ---- Kills ---- */

static void store_and_sync(void *durable)
{
	uint64_t *words;

	set_budget(SIZE / 8);
	words = map_store(changes);
	check_version(words, *(uint64_t *)durable, *(uint64_t *)durable + 1);
	sync_versions(words, *(uint64_t *)durable + 1);
}

static void kill_once(uint64_t *random, uint64_t *durable)
{
	kill_during_syncs(store_and_sync, durable, random, durable);
	check_plain(0);
}

static void check_kills(uint64_t *random, unsigned rounds)
{
	uint64_t durable = 0;

	make_store();
	for (unsigned i = 0; i < rounds; i++)
		kill_once(random, &durable);
}

/* ---- Other processes ---- */

static void open_busy(const char *uri, int pid)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	char number[32];
	void *addr;

	snprintf(number, sizeof(number), "process %d", pid);
	check_fails(ummap_open(uri, SIZE, 0, READ_WRITE, &attr, &addr), EBUSY);
	check(strstr(umerrormsg(), number), "%s", umerrormsg());
}

/* Uses its own changes of the store besides those of `parent`. */
static void open_beside(void *parent)
{
	char uri[1000], path[340];
	uint64_t *words;

	set_budget(2 * SIZE);
	snprintf(path, sizeof(path), "%s.other", store);
	words = map_store(path);
	check_version(words, 0, 0);
	put_version(words, 9);
	check(umunmap(words, 1) == 0);
	snprintf(uri, sizeof(uri), "cow+%s:%s", driver, store);
	open_busy(uri, *(int *)parent);
	snprintf(uri, sizeof(uri), "%s:%s", driver, store);
	open_busy(uri, *(int *)parent);
	check(tool("commit", changes, NULL) == 2 && tool("discard", changes, NULL) == 2,
	      "the file is in use");
	check(tool("commit", path, NULL) == 2, "the store is in use");
}

static void change(void *arg)
{
	uint64_t *words;
	int self = getpid();

	(void)arg;
	set_budget(2 * SIZE);
	words = map_store(changes);
	put_version(words, 5);
	check(umsync(words, 0) == 0);
	check_exits(run_child(open_beside, &self), 0);
	check_version(words, 5, 5);
	/* Changes that were not synced are kept at the end, like those that were written. */
	check(umunmap(words, 0) == 0);
}

static void reread(void *version)
{
	uint64_t *words, want = *(uint64_t *)version;
	char path[340];

	set_budget(2 * SIZE);
	snprintf(path, sizeof(path), "%s%s", store, want == 9 ? ".other" : ".cow");
	words = map_store(path);
	check_version(words, want, want);
	check(umunmap(words, 0) == 0);
}

static void check_list(const char *path, const char *want)
{
	char output[340], text[400] = "";
	int fd;

	snprintf(output, sizeof(output), "%s.output", store);
	check(tool("ls", path, output) == 0);
	fd = open(output, O_RDONLY | O_CLOEXEC);
	check(fd >= 0 && read(fd, text, sizeof(text) - 1) > 0);
	close(fd);
	check(strstr(text, want), "%s", text);
}

static void check_others(void)
{
	uint64_t versions[] = { 5, 9 };
	char other[340], all[60];

	make_store();
	snprintf(other, sizeof(other), "%s.other", store);
	check_exits(run_child(change, NULL), 0);
	for (int i = 0; i < 2; i++)
		check_exits(run_child(reread, &versions[i]), 0);
	check_plain(0);
	snprintf(all, sizeof(all), "\n0 %zu\n", SIZE);
	check_list(changes, all);
	check(tool("commit", changes, NULL) == 0);
	check_plain(5);
	check(access(changes, F_OK) < 0);
	/* The other changes were made for the old contents of the store. */
	check_list(other, "was written since");
	check(tool("commit", other, NULL) == 2);
	check_plain(5);
	check(tool("discard", other, NULL) == 0 && access(other, F_OK) < 0);
	check(tool("discard", other, NULL) == 2, "there are no changes");
}

/* ---- Commits that are killed ---- */

static void change_much(void *arg)
{
	char uri[400];
	uint8_t *bytes;

	(void)arg;
	set_budget(2 * BIG);
	snprintf(uri, sizeof(uri), "cow+posix:%s", store);
	bytes = map(uri, BIG, 64 * KIB);
	fill(bytes, BIG - SEG, 0, 2);
	check(umunmap(bytes, 1) == 0);
}

static void commit(void *arg)
{
	(void)arg;
	exec_tool("commit", changes);
}

/* The next commit would overwrite newer contents of the store. */
static void check_refused(const char *scheme)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	char uri[400];
	void *addr;

	snprintf(uri, sizeof(uri), "%s:%s", scheme, store);
	check_fails(ummap_open(uri, BIG, 0, PROT_READ | PROT_WRITE, &attr, &addr), EUCLEAN);
	check(strstr(umerrormsg(), "ummap cow commit"), "%s", umerrormsg());
}

static void open_in_between(void *arg)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	char uri[400];
	void *addr;

	(void)arg;
	set_group();
	snprintf(uri, sizeof(uri), "cow+posix:%s", store);
	if (ummap_open(uri, BIG, 0, PROT_READ, &attr, &addr) == 0) {
		check_bytes(addr, BIG - SEG, 0, 2);
		_exit(0);
	}
	check(errno == EUCLEAN && strstr(umerrormsg(), "commit"), "%s", umerrormsg());
	check_refused("posix");
	check_refused("wal+posix");
	check(tool("discard", changes, NULL) == 2, "the store has a part of it");
	_exit(0);
}

static void kill_commit(uint64_t *random)
{
	pid_t child;

	make_store();
	file_fill(plain, 0, BIG, 0, 1);
	check_exits(run_child(change_much, NULL), 0);
	for (int i = 0; i < 3 && access(changes, F_OK) == 0; i++) {
		child = start_child(commit, NULL);
		pause_ms(next_random(random) % 30);
		kill(child, SIGKILL);
		wait_child(child);
		if (access(changes, F_OK) == 0)
			check_exits(run_child(open_in_between, NULL), 0);
	}
	if (access(changes, F_OK) == 0)
		check(tool("commit", changes, NULL) == 0);
	check_file(plain, 0, BIG - SEG, 0, 2);
	check_file(plain, BIG - SEG, SEG, BIG - SEG, 1);
}

/* ---- A store of 1 TiB, or less with TSan, which limits the address space ---- */

#ifdef __SANITIZE_THREAD__
#define MUCH (256 * GIB)
#else
#define MUCH (1024 * GIB)
#endif

static void map_tebibyte(void *arg)
{
	const size_t size = MUCH;
	char uri[400];
	uint64_t *words;
	struct stat st;

	(void)arg;
	set_budget(2 * SIZE);
	snprintf(uri, sizeof(uri), "cow+null:1T?cow.path=%s", changes);
	for (uint64_t round = 0; round < 2; round++) {
		words = map(uri, size, 64 * KIB);
		for (size_t at = 0; at < size / 8; at += size / 8 / 16) {
			check(words[at] == (round ? at + 1 : 0));
			words[at] = at + 1;
		}
		check(words[size / 8 - 1] == (round ? 7 : 0));
		words[size / 8 - 1] = 7;
		check(umunmap(words, 1) == 0);
		check(stat(changes, &st) == 0 && (uint64_t)st.st_blocks * 512 < 3 * MIB);
	}
}

/* umremap_open() from cow+ to the store fails after a part of the changes was written: each second
 * block has changed, and the second write fails. The mapping keeps the changes, which cannot be
 * discarded or left. */
static void give_up_commit(void *unused)
{
	uint64_t *words, *moved = NULL;
	char uri[1000];

	(void)unused;
	words = map_store(changes);
	for (size_t i = 0; i < SIZE / 8; i++) {
		if (i * 8 / SEG % 2)
			words[i] = (uint64_t)1 << 32 | i;
	}
	check(umsync(words, 0) == 0, "%s", umerrormsg());
	snprintf(uri, sizeof(uri),
		 "error+posix:%s?error.op=write&error.nth=2&error.times=7&error.errno=EIO", store);
	check_fails(umremap_open(words, uri, 0, -1, 0, (void **)&moved), EIO);
	snprintf(uri, sizeof(uri), "posix:%s", store);
	check_fails(umremap_open(words, uri, 0, -1, UMMAP_SWITCH, (void **)&moved), EUCLEAN);
	check(strstr(umerrormsg(), "the store has a part of them"), "%s", umerrormsg());
	check_version(words, 0, 1);
	check(words[SEG / 8] >> 32 == 1);
	check(umunmap(words, 1) == 0, "%s", umerrormsg());
	check(tool("discard", changes, NULL) == 2);
	words = map_store(changes);
	check_version(words, 0, 1);
	check(words[SEG / 8] >> 32 == 1 && words[0] == 0);
	check(umunmap(words, 1) == 0, "%s", umerrormsg());
	check(tool("commit", changes, NULL) == 0);
	words = map(uri, SIZE, SEG);
	check_version(words, 0, 1);
	check(words[SEG / 8] >> 32 == 1 && access(changes, F_OK) < 0);
}

int main(int argc, char **argv)
{
	unsigned rounds = argc > 1 ? (unsigned)atoi(argv[1]) : by_time(ROUNDS, 200);
	uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 0) : (uint64_t)time(NULL);
	bool uring = has_driver("uring");

	printf("seed %" PRIu64 "\n", seed);
	fflush(stdout);
	for (int i = 0; i <= uring; i++) {
		driver = i ? "uring" : "posix";
		check_kills(&seed, rounds / (1 + uring));
		check_others();
	}
	for (unsigned i = 0; i < by_time(3, 20); i++)
		kill_commit(&seed);
	driver = "posix";
	make_store();
	check_exits(run_child(give_up_commit, NULL), 0);
	make_store();
	check_exits(run_child(map_tebibyte, NULL), 0);
	return 0;
}
