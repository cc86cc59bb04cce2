/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * prog_wal - mappings of a store behind wal+. After kill -9 at any moment, the store has all
 * changes of the last umsync, or of the one in progress, although memory has an eighth of the
 * store's size and a thread writes in the background. Other processes are refused meanwhile, and
 * cannot bypass the log. A damaged byte of the log is detected. If the log is full, a sync fails
 * and loses nothing. Several logs of one store do not change each other's parts.
 *
 *	prog_wal [ROUNDS [SEED]]
 */
#include "../../drivers/overlay/format.h"
#include "beside.h"
#include "ummap-driver.h"
#include "versions.h"

#define GROUP_BYTES (2 * OVERLAY_TABLE_BYTES + OVERLAY_GROUP * 4 * KIB)

#define ROUNDS 20

static char store[320], log_path[330], uri[400];

static uint64_t *map_store(const char *keys, int interval)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	char text[500];
	void *addr;

	attr.seg_size = SEG;
	attr.flush_interval = interval;
	snprintf(text, sizeof(text), "%s%s", uri, keys);
	check(ummap_open(text, SIZE, 0, READ_WRITE, &attr, &addr) == 0, "%s", text);
	return addr;
}

static uint64_t version_of(const uint64_t *words)
{
	uint64_t version = words[0] >> 32;

	for (size_t i = 0; i < SIZE / 8; i++)
		check(words[i] == (version << 32 | i),
		      "word %zu is %#" PRIx64 ", the first one has version %" PRIu64, i, words[i],
		      version);
	return version;
}

static void make_store(const char *driver)
{
	uint64_t *words = malloc(SIZE);
	char changes[330];
	int fd = temp_named("store", 0, store);

	put_version(words, 0);
	check(write(fd, words, SIZE) == (ssize_t)SIZE);
	free(words);
	close(fd);
	snprintf(log_path, sizeof(log_path), "%s.wal", store);
	unlink(log_path);
	snprintf(changes, sizeof(changes), "%s.cow", store);
	unlink(changes);
	snprintf(uri, sizeof(uri), "wal+%s:%s", driver, store);
}

/* ---- kill -9 ---- */

static void store_and_sync(void *interval)
{
	uint64_t *words;

	set_budget(SIZE / 8);
	words = map_store("", *(int *)interval);
	sync_versions(words, version_of(words) + 1);
}

static void read_version(void *pipe)
{
	uint64_t *words, version;

	set_budget(2 * SIZE);
	words = map_store("", 0);
	version = version_of(words);
	check(umunmap(words, 0) == 0);
	check(write(*(int *)pipe, &version, sizeof(version)) == sizeof(version));
}

static uint64_t found_version(void)
{
	uint64_t version;
	int pipes[2];

	check(pipe2(pipes, O_CLOEXEC) == 0);
	check_exits(run_child(read_version, &pipes[1]), 0);
	check(read(pipes[0], &version, sizeof(version)) == sizeof(version));
	close(pipes[0]);
	close(pipes[1]);
	return version;
}

static void kill_once(uint64_t *random, int interval)
{
	uint64_t durable = 0, found;

	kill_during_syncs(store_and_sync, &interval, random, &durable);
	/* Every other time, the next child opens the store. */
	if (next_random(random) % 2)
		return;
	found = found_version();
	check(found == durable || found == durable + 1,
	      "version %" PRIu64 " was durable, %" PRIu64 " is there", durable, found);
	check(access(log_path, F_OK) < 0, "the log is gone at a clean end");
}

/* ---- Memory that changes while it is written ---- */

static _Atomic bool ends;

/* Stores as a device does, so the races are intended. */
__attribute__((no_sanitize("thread"))) static void *store_all_the_time(void *m)
{
	volatile uint64_t *words = m;

	for (uint64_t i = 0; !ends; i++)
		words[i % (SIZE / 8)] = i;
	return NULL;
}

/* Threads and devices store to pinned memory without a fault: each synced byte has the value of
 * some moment. */
static void store_into_pinned(void *arg)
{
	uint64_t *words;
	pthread_t thread;

	(void)arg;
	set_budget(2 * SIZE);
	words = map_store("", 0);
	check(umpin(words, SIZE, READ_WRITE) == 0);
	check(pthread_create(&thread, NULL, store_all_the_time, words) == 0);
	for (int i = 0; i < 20; i++)
		check(umsync(words, 0) == 0);
	ends = true;
	check(pthread_join(thread, NULL) == 0);
	umunpin(words, SIZE);
	put_version(words, 1);
	check(umsync(words, 0) == 0);
	kill(getpid(), SIGKILL);
}

/* ---- Others ---- */

/* The commits are in the log beside the store, and the driver is opened without it: directly, or
 * behind another log. */
static void open_past(void *driver)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	char text[400];
	void *addr;

	set_group();
	snprintf(text, sizeof(text), "%s:%s%s", (const char *)driver, store,
		 strstr(driver, "wal+") ? "?wal.path=/nowhere/log" : "");
	check_fails(ummap_open(text, SIZE, 0, PROT_READ, &attr, &addr), EUCLEAN);
	check(strstr(umerrormsg(), "ummap wal apply"), "%s", umerrormsg());
}

static void open_too(void *pid)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	char number[32];
	void *addr;

	set_group();
	snprintf(number, sizeof(number), "process %d", *(int *)pid);
	check_fails(ummap_open(uri, SIZE, 0, READ_WRITE, &attr, &addr), EBUSY);
	check(strstr(umerrormsg(), number), "%s", umerrormsg());
}

static void read_too(void *arg)
{
	void *addr;

	(void)arg;
	set_group();
	check(ummap_open(uri, SIZE, 0, PROT_READ, NULL, &addr) == 0);
	check(umunmap(addr, 0) == 0);
}

/* Readers exclude a writer, but not other readers, also if there is no log. */
static void read_without_log(void *arg)
{
	int self = getpid();
	void *addr;

	(void)arg;
	set_budget(2 * SIZE);
	check(ummap_open(uri, SIZE, 0, PROT_READ, NULL, &addr) == 0);
	check_exits(run_child(open_too, &self), 0);
	check_exits(run_child(read_too, NULL), 0);
	check(version_of(addr) == 0);
	check(umunmap(addr, 0) == 0 && access(log_path, F_OK) < 0);
	check(found_version() == 0);
}

static void commit_and_die(void *arg)
{
	uint64_t *words;
	struct stat st;
	int self = getpid();

	(void)arg;
	set_budget(2 * SIZE);
	check(chmod(store, 0664) == 0);
	umask(077);
	words = map_store("?wal.keep=3", 0);
	check(stat(log_path, &st) == 0 && (st.st_mode & 0777) == 0664, "%o", st.st_mode);
	if (!ADDRESS_SANITIZED)
		check_exits(run_child(open_too, &self), 0);
	for (uint64_t version = 1; version <= 4; version++) {
		uint64_t oldest, newest;

		put_version(words, version);
		check(umsync(words, 0) == 0);
		check(umcommits(words, &oldest, &newest) == 0);
		check(newest == version && oldest == (version < 3 ? 0 : version - 2),
		      "%" PRIu64 " to %" PRIu64, oldest, newest);
	}
	put_version(words, 5);
	kill(getpid(), SIGKILL);
}

static void open_at(void *epoch)
{
	uint64_t *words, oldest, newest, want = *(uint64_t *)epoch;
	char keys[64];

	set_budget(2 * SIZE);
	snprintf(keys, sizeof(keys), "?wal.keep=3&wal.commit=%" PRIu64, want);
	words = map_store(keys, 0);
	check(version_of(words) == want);
	check(umcommits(words, &oldest, &newest) == 0 && oldest == 2 && newest == want);
	check(umunmap(words, 0) == 0);
	check((access(log_path, F_OK) == 0) == (want > oldest),
	      "what can be gone back to stays if nothing was added");
}

static void open_beyond(void *epoch)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	char text[500];
	void *addr;

	set_group();
	snprintf(text, sizeof(text), "%s?wal.commit=%" PRIu64, uri, *(uint64_t *)epoch);
	check_fails(ummap_open(text, SIZE, 0, READ_WRITE, &attr, &addr), EINVAL);
	check(strstr(umerrormsg(), "has the commits 2 to"), "%s", umerrormsg());
}

/* Without a log, a read-only mapping can open commit 0 alone, as umcommits reports. */
static void open_nothing(void *unused)
{
	uint64_t oldest = 1, newest = 1;
	char text[500];
	void *addr;

	(void)unused;
	set_group();
	check(ummap_open(uri, SIZE, 0, PROT_READ, NULL, &addr) == 0);
	check(umcommits(addr, &oldest, &newest) == 0 && oldest == 0 && newest == 0);
	check(umunmap(addr, 0) == 0);
	snprintf(text, sizeof(text), "%s?wal.commit=0", uri);
	check(ummap_open(text, SIZE, 0, PROT_READ, NULL, &addr) == 0);
	check(version_of(addr) == 0);
	snprintf(text, sizeof(text), "%s?wal.commit=1", uri);
	check_fails(ummap_open(text, SIZE, 0, PROT_READ, NULL, &addr), EINVAL);
	check_fails(ummap_open(text, SIZE, 0, READ_WRITE, NULL, &addr), EINVAL);
	check(access(log_path, F_OK) < 0, "no log is made for that");
}

/* A user that may read the store but not its log does not know which commits the store lacks. */
static void open_unread(void *unused)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	char uri_past[400];
	void *addr;

	(void)unused;
	set_group();
	check(chmod(log_path, 0) == 0);
	if (geteuid() == 0) {
		check(chmod(temp_dir(), 0755) == 0 && chmod(store, 0644) == 0);
		check(setresuid(65534, 65534, 65534) == 0);
	}
	snprintf(uri_past, sizeof(uri_past), "posix:%s", store);
	check_fails(ummap_open(uri_past, SIZE, 0, PROT_READ, &attr, &addr), EUCLEAN);
	check(strstr(umerrormsg(), "unapplied commits: Permission denied"), "%s", umerrormsg());
}

/* The log is beside the file itself, whichever link it is opened by. */
static void open_by_link(void *past)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	char link[330], by_link[400];
	void *addr;

	set_budget(2 * SIZE);
	snprintf(link, sizeof(link), "%s.link", store);
	check(symlink(strrchr(store, '/') + 1, link) == 0);
	snprintf(by_link, sizeof(by_link), "%s:%s", past ? "posix" : "wal+posix", link);
	if (past) {
		check_fails(ummap_open(by_link, SIZE, 0, PROT_READ, &attr, &addr), EUCLEAN);
	} else {
		check(ummap_open(by_link, SIZE, 0, PROT_READ, &attr, &addr) == 0, "%s",
		      umerrormsg());
		check(version_of(addr) == 4);
	}
	check(unlink(link) == 0);
}

static void check_others(void)
{
	uint64_t epochs[] = { 4, 3, 2, 1, 5 };

	check_exits(run_child(open_nothing, NULL), 0);
	check_exits(run_child(read_without_log, NULL), 0);
	check_killed(run_child(commit_and_die, NULL), SIGKILL);
	check_exits(run_child(open_by_link, NULL), 0);
	check_exits(run_child(open_by_link, "past"), 0);
	check_exits(run_child(open_unread, NULL), 0);
	check(chmod(log_path, 0600) == 0);
	check_exits(run_child(open_past, "posix"), 0);
	check_exits(run_child(open_past, "wal+posix"), 0);
	if (has_driver("uring"))
		check_exits(run_child(open_past, "uring"), 0);
	for (int i = 3; i < 5; i++)
		check_exits(run_child(open_beyond, &epochs[i]), 0);
	for (int i = 0; i < 3; i++)
		check_exits(run_child(open_at, &epochs[i]), 0);
	check(found_version() == 2);
}

/* ---- Damage ---- */

static int tool(const char *words)
{
	return run_tool("wal", words);
}

/* The log is refused with a message that names it, or the mapping has the committed contents. */
static void open_damaged(void *arg)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	void *addr;

	(void)arg;
	set_budget(2 * SIZE);
	attr.seg_size = SEG;
	if (ummap_open(uri, SIZE, 0, PROT_READ, &attr, &addr) == 0) {
		check(version_of(addr) == 4);
		_exit(0);
	}
	check(errno == EUCLEAN && strstr(umerrormsg(), store), "%s", umerrormsg());
	_exit(3);
}

/* A process that is killed while it makes the log leaves no header, or only the first one. */
static void unfinished_is_not_damaged(void)
{
	const uint8_t zeros[4096] = { 0 };
	uint8_t slot[4096];
	char words[400];
	int fd;

	check_killed(run_child(commit_and_die, NULL), SIGKILL);
	snprintf(words, sizeof(words), "check '%s'", store);
	fd = open(log_path, O_RDWR | O_CLOEXEC);
	check(fd >= 0);
	/* With commits, a log has two headers. */
	check(pread(fd, slot, sizeof(slot), 0) == sizeof(slot));
	check(pwrite(fd, zeros, sizeof(zeros), 0) == sizeof(zeros));
	check(tool(words) == 1);
	/* The second slot is written when the first header is durable, so a part is damage. Its
	 * last eight bytes are its sum; some of them may be zero, like the bytes beyond the end.
	 */
	check(pwrite(fd, slot, sizeof(slot), 0) == sizeof(slot));
	for (size_t left = 9; left < sizeof(slot); left += 93) {
		check(ftruncate(fd, (off_t)(sizeof(slot) - left)) == 0);
		check(tool(words) == 2);
		check_exits(run_child(open_damaged, NULL), 3);
	}
	check(ftruncate(fd, 0) == 0);
	check(tool(words) == 0);
	check(ftruncate(fd, 8192) == 0);
	check(tool(words) == 0);
	close(fd);
	check(unlink(log_path) == 0);
}

static void drop(void)
{
	char words[400];

	check_killed(run_child(commit_and_die, NULL), SIGKILL);
	check_drops_nothing_else("wal", "--log", log_path, store);
	snprintf(words, sizeof(words), "drop '%s'", store);
	check(tool(words) == 0 && access(log_path, F_OK) < 0);
}

/* ---- Before other filters ---- */

static void commit_version_1(void *arg)
{
	uint64_t *words;

	(void)arg;
	set_budget(2 * SIZE);
	words = map_store("", 0);
	put_version(words, 1);
	check(umsync(words, 0) == 0);
	kill(getpid(), SIGKILL);
}

static void open_without_cow(void *driver)
{
	char text[400];
	void *addr;

	set_group();
	snprintf(text, sizeof(text), "wal+%s:%s", (const char *)driver, store);
	check_fails(ummap_open(text, SIZE, 0, READ_WRITE, NULL, &addr), EINVAL);
	check(strstr(umerrormsg(), log_path) && strstr(umerrormsg(), "wal+cow+posix:"), "%s",
	      umerrormsg());
	check_fails(ummap_open(text, SIZE, 0, PROT_READ, NULL, &addr), EINVAL);
}

static uint64_t version_of_file(void)
{
	uint64_t *words = malloc(SIZE), version;
	int fd = open(store, O_RDONLY | O_CLOEXEC);

	check(fd >= 0 && pread(fd, words, SIZE, 0) == (ssize_t)SIZE);
	version = version_of(words);
	close(fd);
	free(words);
	return version;
}

/* Commits through wal+cow+ are applied through cow+, and never to the store itself. */
static void apply_before_cow(void)
{
	char words[800];

	make_store("cow+posix");
	check_killed(run_child(commit_version_1, NULL), SIGKILL);
	snprintf(words, sizeof(words), "apply '%s'", store);
	check(tool(words) == 2 && access(log_path, F_OK) == 0 && version_of_file() == 0,
	      "the store is not the file");
	check_exits(run_child(open_without_cow, "posix"), 0);
	if (has_driver("uring"))
		check_exits(run_child(open_without_cow, "uring"), 0);
	/* A filter that changes nothing makes no difference. */
	snprintf(words, sizeof(words), "--log '%s' apply 'cow+error+posix:%s?error.nth=1000000'",
		 log_path, store);
	check(tool(words) == 0 && access(log_path, F_OK) < 0 && version_of_file() == 0);
	check(found_version() == 1);
	snprintf(words, sizeof(words), "commit '%s'", store);
	check(run_tool("cow", words) == 0 && version_of_file() == 1);
}

static void store_uncommitted(void *arg)
{
	uint64_t *words;

	(void)arg;
	set_budget(2 * SIZE);
	words = map_store("", 0);
	put_version(words, 1);
	check(umsync_range(words, SIZE, UMMAP_NOFLUSH) == 0);
	kill(getpid(), SIGKILL);
}

/* A log without commits may be used for other filters. */
static void reuse_before_cow(void)
{
	make_store("posix");
	check_killed(run_child(store_uncommitted, NULL), SIGKILL);
	snprintf(uri, sizeof(uri), "wal+cow+posix:%s", store);
	check_killed(run_child(commit_version_1, NULL), SIGKILL);
	check_exits(run_child(open_without_cow, "posix"), 0);
	check(found_version() == 1 && version_of_file() == 0);
}

/* cache+ and cow+ keep blocks that are newer than an earlier commit. */
static void keeps_the_base(void *arg)
{
	static const char *const uris[] = {
		"cow+wal+posix:%s?wal.commit=1",
		"cache+wal+posix:%s?wal.commit=1&cache.size=8M&cache.path=%s.near"
	};
	char text[800];
	void *addr;

	(void)arg;
	for (size_t i = 0; i < sizeof(uris) / sizeof(*uris); i++) {
		snprintf(text, sizeof(text), uris[i], store, store);
		check_fails(ummap_open(text, SIZE, 0, READ_WRITE, NULL, &addr), EINVAL);
		check(strstr(umerrormsg(), "cannot go back to commit 1: the filter above wal+"),
		      "%s", umerrormsg());
	}
}

/* Changes of cow+wal+ are committed through wal+. */
static void commit_before_wal(void)
{
	char words[800];

	make_store("posix");
	snprintf(uri, sizeof(uri), "cow+wal+posix:%s", store);
	check_killed(run_child(commit_version_1, NULL), SIGKILL);
	snprintf(words, sizeof(words), "commit '%s'", store);
	check(run_tool("cow", words) == 2 && version_of_file() == 0, "the store is not the file");
	snprintf(words, sizeof(words), "commit 'wal+posix:%s'", store);
	check(run_tool("cow", words) == 0 && version_of_file() == 1);
	check(access(log_path, F_OK) < 0, "the log is gone at a clean end");
	check_exits(run_child(keeps_the_base, NULL), 0);
}

/*
 * Whether damage to a byte must be detected. Each version has a group of slots, and records in
 * table B. Commits 2 to 4 can be opened, but commit 2 may be in the store already. A record of
 * commit 1 counts, although the block is not needed.
 */
static bool is_needed(uint64_t at)
{
	uint64_t commit = OVERLAY_COMMITS_AT + 4 * OVERLAY_SECTOR, in_group, group;

	if (at < OVERLAY_GROUPS_AT)
		return at >= commit && at < commit + sizeof(struct overlay_commit);
	group = (at - OVERLAY_GROUPS_AT) / GROUP_BYTES;
	in_group = (at - OVERLAY_GROUPS_AT) % GROUP_BYTES;
	return in_group >= OVERLAY_TABLE_BYTES &&
	       (group >= 2 || in_group < 2 * OVERLAY_TABLE_BYTES);
}

/* A damaged byte is detected, or no commit needs it. The header has two copies. */
static void fuzz(uint64_t *random, unsigned rounds)
{
	uint64_t length;
	char words[400];
	int fd;

	check_killed(run_child(commit_and_die, NULL), SIGKILL);
	fd = open(log_path, O_RDWR | O_CLOEXEC);
	check(fd >= 0);
	length = file_size(fd);
	check(length >= OVERLAY_GROUPS_AT + 3 * GROUP_BYTES + 2 * OVERLAY_TABLE_BYTES + SIZE);
	snprintf(words, sizeof(words), "check '%s'", store);
	check(tool(words) == 0);
	for (unsigned i = 0; i < rounds; i++) {
		uint64_t at = next_random(random) % (i % 4 ? length : OVERLAY_COMMITS_AT);
		uint8_t byte, other;
		int status, found;

		check(pread(fd, &byte, 1, (off_t)at) == 1);
		other = byte ^ (uint8_t)(1 + next_random(random) % 255);
		check(pwrite(fd, &other, 1, (off_t)at) == 1);
		found = tool(words);
		check(found == 1 || (found == 0 && at >= OVERLAY_COMMITS_AT && !is_needed(at)),
		      "`ummap wal check` does not detect damage at byte %" PRIu64, at);
		status = run_child(open_damaged, NULL);
		check_exits(status, found == 1 && at >= OVERLAY_COMMITS_AT ? 3 : 0);
		check(pwrite(fd, &byte, 1, (off_t)at) == 1);
	}
	close(fd);
	check(found_version() == 4);
}

/* A record of the oldest commit counts in all commits. If it is damaged, none can be opened. */
static void damage_before_the_oldest(void)
{
	const off_t at = (off_t)(OVERLAY_GROUPS_AT + GROUP_BYTES + OVERLAY_TABLE_BYTES + 100);
	char words[400];
	uint8_t byte;
	int fd;

	check_killed(run_child(commit_and_die, NULL), SIGKILL);
	snprintf(words, sizeof(words), "back '%s' 4", store);
	check_tool("wal", words, 0, ": commits 2 to 4, the store has commit ");
	fd = open(log_path, O_RDWR | O_CLOEXEC);
	check(fd >= 0 && pread(fd, &byte, 1, at) == 1);
	byte ^= 1;
	check(pwrite(fd, &byte, 1, at) == 1);
	snprintf(words, sizeof(words), "check '%s'", store);
	check_tool("wal", words, 1, ": no commit can be opened, the store has commit ");
	snprintf(words, sizeof(words), "apply '%s'", store);
	check_tool("wal", words, 2, "is damaged at byte");
	byte ^= 1;
	check(pwrite(fd, &byte, 1, at) == 1);
	close(fd);
	check(found_version() == 4);
}

/* ---- Full ---- */

/* A sync that does not fit the log fails, and its changes stay; a smaller one succeeds later. */
static void fill_the_log(void *arg)
{
	int log = temp_file(0), was = dup(STDERR_FILENO);
	uint64_t *words;

	(void)arg;
	set_budget(2 * SIZE);
	check(dup2(log, STDERR_FILENO) >= 0);
	words = map_store("?wal.size=300K", 0);
	put_version(words, 1);
	check_fails(umsync(words, 0), ENOSPC);
	check_fails(umsync(words, 0), ENOSPC);
	check(version_of(words) == 1, "it is in memory still");
	check(umunmap(words, 0) == 0);
	check(dup2(was, STDERR_FILENO) >= 0);
	check(count_lines(log, "has reached wal.size=307200") == 1, "it is told, once");
	check(count_lines(log, "warn io") == 1);
	words = map_store("?wal.size=300K", 0);
	check(version_of(words) == 0, "nothing of it is in the store");
	/* Sync after sync fits, because what was committed makes way. */
	for (int i = 0; i < 20; i++) {
		for (size_t k = 0; k < 8; k++)
			words[(size_t)i % 7 * 8 * SEG / 8 + k * SEG / 8] += 1;
		check(umsync(words, 0) == 0, "sync %d", i);
	}
	check(umunmap(words, 1) == 0);
}

static uint64_t count_writes(const char *path)
{
	uint64_t seen = 0;
	FILE *f = fopen(path, "re");

	check(f && fscanf(f, "seen %" SCNu64, &seen) == 1);
	fclose(f);
	return seen;
}

/* The store has no space for the commits, so the log has none for changes. The thread tries to
 * apply the commits now and then, and not for each write that fails. */
static void fill_the_store(void *arg)
{
	char keys[500], count[340];
	double start;
	uint64_t *words;

	(void)arg;
	set_budget(2 * SIZE);
	snprintf(count, sizeof(count), "%s.count", store);
	snprintf(keys, sizeof(keys),
		 "?wal.size=300K&error.op=write&error.times=always&error.errno=ENOSPC&error.count=%"
		 "s",
		 count);
	words = map_store(keys, 0);
	words[0] = (uint64_t)1 << 32;
	check(umsync(words, 0) == 0);
	put_version(words, 1);
	start = now();
	check_fails(umsync(words, 0), ENOSPC);
	check_fails(umsync(words, 0), ENOSPC);
	check(count_writes(count) <= 4 * (now() - start + 2), "%" PRIu64 " writes",
	      count_writes(count));
	check(umunmap(words, 0) == 0);
	unlink(count);
}

/* A mapping ends while the store has no space: the message names a command that completes the
 * store. */
static void end_with_full_store(void *arg)
{
	char says[800], apply[800];
	uint64_t *words;

	(void)arg;
	set_budget(2 * SIZE);
	words = map_store("?error.op=write&error.times=always&error.errno=ENOSPC", 0);
	put_version(words, 1);
	check_fails(umunmap(words, 1), EUCLEAN);
	snprintf(says, sizeof(says),
		 "No space left on device. Nothing is lost. Try to repair the storage, then `ummap "
		 "wal --log %s apply %s`",
		 log_path, store);
	check(strstr(umerrormsg(), "the mapping has ended") && strstr(umerrormsg(), says), "%s",
	      umerrormsg());
	check_fails(umunmap(words, 0), EINVAL);
	snprintf(apply, sizeof(apply), "--log '%s' apply '%s.other'", log_path, store);
	check_tool("wal", apply, 2, "Try --log with the log of this store");
	snprintf(apply, sizeof(apply), "apply '%s'", store);
	check_tool("wal", apply, 0, "' has commit 1, and the log is removed\n");
	check(access(log_path, F_OK) < 0);
	snprintf(uri, sizeof(uri), "wal+posix:%s", store);
	words = map_store("", 0);
	check(version_of(words) == 1);
	check(umunmap(words, 1) == 0);
}

/* The message names a store that is not a file by its URI. */
static void end_before_full_cow(void *arg)
{
	char says[1200], apply[800];
	uint64_t *words;

	(void)arg;
	set_budget(2 * SIZE);
	words = map_store("?error.op=write&error.times=always", 0);
	put_version(words, 1);
	check_fails(umunmap(words, 1), EUCLEAN);
	snprintf(says, sizeof(says),
		 "`ummap wal --log %s apply 'error+cow+posix:%s?error.op=write&error.times=always",
		 log_path, store);
	check(strstr(umerrormsg(), says), "%s", umerrormsg());
	snprintf(apply, sizeof(apply), "apply 'cow+posix:%s'", store);
	check(tool(apply) == 0 && version_of_file() == 0);
	snprintf(uri, sizeof(uri), "cow+posix:%s", store);
	words = map_store("", 0);
	check(version_of(words) == 1);
	check(umunmap(words, 1) == 0);
}

/* If umunmap is called without `sync`, only the log of messages has the warning. */
static void drop_with_full_store(void *arg)
{
	int log = temp_file(0), was = dup(STDERR_FILENO);
	char says[400];
	uint64_t *words;

	(void)arg;
	set_budget(2 * SIZE);
	check(dup2(log, STDERR_FILENO) >= 0);
	words = map_store("?error.op=write&error.times=always&error.errno=ENOSPC", 0);
	put_version(words, 1);
	check(umsync(words, 0) == 0);
	check(umunmap(words, 0) == 0);
	check(dup2(was, STDERR_FILENO) >= 0);
	snprintf(says, sizeof(says), "`ummap wal --log %s apply", log_path);
	check(count_lines(log, says) == 1);
}

/* ---- Several logs of one store ---- */

#define PART_BYTES (256 * KIB)

/* Opens the log of a part of the store. */
static void *open_part(char name, struct ummap_driver *driver)
{
	struct ummap_geom geom;
	char text[800];
	void *h;

	driver->struct_size = sizeof(*driver);
	snprintf(text, sizeof(text), "wal+posix:%s?wal.path=%s.%c", store, store, name);
	check(ummap_driver_open(text, UMMAP_O_WRITE, driver, &h, &geom) == 0);
	return h;
}

static void fill_part(char part[PART_BYTES], char name)
{
	memset(part, name, PART_BYTES);
}

/* Commits a long write of each log behind the end of the store. */
static void commit_parts(void *unused)
{
	static char part[PART_BYTES];
	struct ummap_driver driver;

	(void)unused;
	for (char name = 'a'; name <= 'c'; name++) {
		void *h = open_part(name, &driver);

		fill_part(part, name);
		check(driver.write(h, part, PART_BYTES, (uint64_t)(name - 'a') * PART_BYTES) == 0);
		check(driver.flush(h, 0, UINT64_MAX) == 0);
	}
	raise(SIGKILL);
}

/* After a crash, the end of the store at a commit of one log is not the end of the other parts. */
static void recover_parts(void)
{
	static char part[PART_BYTES], found[PART_BYTES];
	struct ummap_driver driver;

	check(truncate(store, 0) == 0);
	check_killed(run_child(commit_parts, NULL), SIGKILL);
	for (int round = 0; round < 2; round++) {
		for (char name = 'a'; name <= 'c'; name++) {
			void *h = open_part(name, &driver);
			uint64_t off = (uint64_t)(name - 'a') * PART_BYTES;

			fill_part(part, name);
			check(driver.read(h, found, PART_BYTES, off) == 0);
			check(memcmp(part, found, PART_BYTES) == 0, "part %c, round %d", name,
			      round);
			check(driver.close(h) == 0);
		}
	}
}

int main(int argc, char **argv)
{
	unsigned rounds = argc > 1 ? (unsigned)atoi(argv[1]) : ROUNDS;
	uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 0) : (uint64_t)time(NULL);
	bool uring = has_driver("uring");

	printf("seed %" PRIu64 "\n", seed);
	fflush(stdout);
	make_store(uring ? "uring" : "posix");
	for (unsigned i = 0; i < rounds; i++) {
		snprintf(uri, sizeof(uri), "wal+%s:%s", uring && i % 2 ? "uring" : "posix", store);
		kill_once(&seed, (int)(i % 4 / 2));
	}
	make_store("posix");
	check_killed(run_child(store_into_pinned, NULL), SIGKILL);
	check(found_version() == 1);
	make_store("posix");
	check_others();
	make_store("posix");
	fuzz(&seed, rounds);
	damage_before_the_oldest();
	make_store("posix");
	unfinished_is_not_damaged();
	drop();
	apply_before_cow();
	reuse_before_cow();
	commit_before_wal();
	make_store("posix");
	check_exits(run_child(fill_the_log, NULL), 0);
	make_store("error+posix");
	check_exits(run_child(fill_the_store, NULL), 0);
	make_store("error+posix");
	check_exits(run_child(end_with_full_store, NULL), 0);
	make_store("error+cow+posix");
	check_exits(run_child(end_before_full_cow, NULL), 0);
	make_store("error+posix");
	check_exits(run_child(drop_with_full_store, NULL), 0);
	make_store("posix");
	recover_parts();
	return 0;
}
