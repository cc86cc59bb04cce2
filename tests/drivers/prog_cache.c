/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * prog_cache - mappings of a store behind cache+. A kill -9 at any moment loses no acknowledged
 * sync, and dirty blocks reach the far store later. A near file that is damaged, that belongs to
 * another store, or whose store has changed is refused with a message. Only one process at a time
 * can use a near file. If the near file or the far store fails, the other one serves. Threads that
 * use more data than the near file holds find all that they wrote. The near file is filled ahead.
 * The same holds for near files on persistent memory.
 *
 *	prog_cache [ROUNDS [SEED]]
 */
#include <dirent.h>
#include <pthread.h>
#include <stdarg.h>

#include "beside.h"
#include "small_fs.h"
#include "ummap-driver.h"
#include "versions.h"

#define ROUNDS 20

static char store[320], cache[330];
static const char *driver = "posix";

static int try_map(const char *keys, int prot, void **addr)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	char uri[1200];

	attr.seg_size = SEG;
	snprintf(uri, sizeof(uri), "cache+%s:%s?cache.path=%s&cache.size=800K&cache.block=16K%s",
		 driver, store, cache, keys);
	return ummap_open(uri, SIZE, 0, prot, &attr, addr);
}

static uint64_t *map_store(const char *keys)
{
	void *addr;

	check(try_map(keys, READ_WRITE, &addr) == 0);
	return addr;
}

/* Checks the bytes of the far store, without cache+. */
static void check_far(uint64_t least, uint64_t most)
{
	uint64_t *words = malloc(SIZE);
	int fd = open(store, O_RDONLY | O_CLOEXEC);

	check(fd >= 0 && pread(fd, words, SIZE, 0) == (ssize_t)SIZE);
	check_version(words, least, most);
	close(fd);
	free(words);
}

static void make_store(void)
{
	uint64_t *words = malloc(SIZE);
	int fd = temp_named("store", 0, store);

	put_version(words, 0);
	check(write(fd, words, SIZE) == (ssize_t)SIZE);
	close(fd);
	free(words);
	snprintf(cache, sizeof(cache), "%s.cow", store);
	unlink(cache);
	snprintf(cache, sizeof(cache), "%s.cache", store);
	unlink(cache);
}

static int tool(const char *verb)
{
	char words[400];

	snprintf(words, sizeof(words), "%s '%s'", verb, store);
	return run_tool("cache", words);
}

/* ---- kill -9 ---- */

static const char *const modes[] = { "", "&cache.mode=through", "&cache.mode=read",
				     "&cache.flush=far", "&cache.dirty=10,0" };

struct round {
	uint64_t durable;
	const char *mode;
};

static void store_and_sync(void *arg)
{
	const struct round *r = arg;
	uint64_t *words;

	set_budget(SIZE / 8);
	words = map_store(r->mode);
	check_version(words, r->durable, r->durable + 1);
	sync_versions(words, r->durable + 1);
}

static void kill_once(uint64_t *random, struct round *r)
{
	r->mode = modes[next_random(random) % 5];
	kill_during_syncs(store_and_sync, r, random, &r->durable);
}

static void check_kills(uint64_t *random, unsigned rounds)
{
	static const char *const drivers[] = { "posix", "uring", "pmem" };
	struct round r = { 0, "" };

	make_store();
	for (unsigned i = 0; i < rounds; i++) {
		driver = drivers[i % 3];
		if (!has_driver(driver))
			driver = "posix";
		/* Every other near file is on persistent memory. */
		if (i % 2)
			set_env("PMEM2_FORCE_GRANULARITY", "cache_line");
		else
			unsetenv("PMEM2_FORCE_GRANULARITY");
		kill_once(random, &r);
	}
	unsetenv("PMEM2_FORCE_GRANULARITY");
	driver = "posix";
	check(tool("ls") == 0 && tool("flush") == 0);
	check_far(r.durable, r.durable + 1);
}

/* ---- Refusals ---- */

static void store_and_die(void *arg)
{
	uint64_t *words;

	(void)arg;
	set_budget(2 * SIZE);
	words = map_store("&cache.dirty=90,1000000");
	/* The stores stay below the limit of dirty blocks. */
	for (size_t i = 0; i < SIZE / 4 / 8; i++)
		words[i] = (uint64_t)1 << 32 | i;
	check(umsync(words, 0) == 0);
	kill(getpid(), SIGKILL);
}

struct refusal {
	int error;
	const char *word;
};

static void open_refused(void *arg)
{
	const struct refusal *r = arg;
	void *addr;

	set_group();
	check_fails(try_map("", READ_WRITE, &addr), r->error);
	check(strstr(umerrormsg(), r->word), "%s", umerrormsg());
}

static void check_refused(int error, const char *word)
{
	check_exits(run_child(open_refused, &(struct refusal){ error, word }), 0);
}

/* Either the acknowledged data is there, or the near file is refused with a message that names
 * it. */
static void open_damaged(void *arg)
{
	void *addr;

	(void)arg;
	set_budget(2 * SIZE);
	if (try_map("", PROT_READ, &addr) == 0) {
		for (size_t i = 0; i < SIZE / 8; i++)
			check(((uint64_t *)addr)[i] == ((uint64_t)(i < SIZE / 4 / 8) << 32 | i));
		_exit(0);
	}
	check(errno == EUCLEAN && strstr(umerrormsg(), cache), "%s", umerrormsg());
	_exit(3);
}

static void copy_file(const char *from, const char *to)
{
	char command[800];

	snprintf(command, sizeof(command), "cp '%s' '%s'", from, to);
	check(system(command) == 0);
}

/* Damages any byte of the header, of the commit records or of the tables. */
static void fuzz(uint64_t *random, unsigned rounds)
{
	char words[600];
	char saved[350];
	unsigned refused = 0;

	make_store();
	check_killed(run_child(store_and_die, NULL), SIGKILL);
	snprintf(saved, sizeof(saved), "%s.saved", cache);
	copy_file(cache, saved);
	for (unsigned i = 0; i < rounds; i++) {
		uint64_t at = next_random(random) % (64 * KIB);
		uint8_t byte;
		int fd, status;

		copy_file(saved, cache);
		fd = open(cache, O_RDWR | O_CLOEXEC);
		check(fd >= 0 && pread(fd, &byte, 1, at) == 1);
		byte ^= (uint8_t)(1 + next_random(random) % 255);
		check(pwrite(fd, &byte, 1, at) == 1);
		close(fd);
		status = run_child(open_damaged, NULL);
		check(WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 3),
		      "byte %" PRIu64, at);
		refused += WEXITSTATUS(status) == 3;
	}
	/* Damages a byte of all commit records, or of both slots of the header. */
	for (int both = 0; both < 2; both++) {
		int fd;

		copy_file(saved, cache);
		fd = open(cache, O_RDWR | O_CLOEXEC);
		for (uint64_t at = both ? 100 : 8192; at < (both ? 8192 : 16384);
		     at += both ? 4096 : 64) {
			uint8_t byte;

			check(pread(fd, &byte, 1, at) == 1);
			byte ^= 1;
			check(pwrite(fd, &byte, 1, at) == 1);
		}
		close(fd);
		check_refused(EUCLEAN, both ? "its header is damaged" : "damaged");
		check(tool("ls") == 2);
	}
	printf("%u of %u damaged caches refused\n", refused, rounds);
	copy_file(saved, cache);
	unlink(saved);
	snprintf(words, sizeof(words), "flush '%s'", store);
	check_tool("cache", words, 0, ", 0 blocks with 0 bytes are dirty");
	check_exits(run_child(open_damaged, NULL), 0);
	for (unsigned i = 0; i < 3; i++) {
		snprintf(words, sizeof(words), "%s '%s.none'",
			 (const char *const[]){ "ls", "flush", "drop" }[i], store);
		check_tool("cache", words, 2, ".none.cache'. Try --cache with the near file");
	}
}

static void hold(void *arg)
{
	struct refusal r = { EBUSY, NULL };
	char number[32];
	uint64_t *words;

	(void)arg;
	set_budget(2 * SIZE);
	snprintf(number, sizeof(number), "process %d", getpid());
	r.word = number;
	words = map_store("");
	check_exits(run_child(open_refused, &r), 0);
	check(tool("ls") == 0 && tool("drop") == 2);
	check(umunmap(words, 0) == 0);
}

static void check_others(void)
{
	struct timespec times[2] = { { 0, UTIME_OMIT }, { 1000, 0 } };

	make_store();
	check_exits(run_child(hold, NULL), 0);
	check(utimensat(AT_FDCWD, store, times, 0) == 0);
	check_refused(ESTALE, "ummap cache drop");
	check_drops_nothing_else("cache", "--cache", cache, store);
	check(tool("drop") == 0 && tool("ls") == 2);
	check_exits(run_child(hold, NULL), 0);
}

static void open_other(void *arg)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	char uri[1200], other[320];
	void *addr;
	int fd = temp_named("other", 0, other);

	(void)arg;
	set_group();
	check(write(fd, other, sizeof(other)) == sizeof(other));
	snprintf(uri, sizeof(uri), "cache+posix:%s?cache.path=%s", other, cache);
	check_fails(ummap_open(uri, 100, 0, PROT_READ, &attr, &addr), EINVAL);
	check(strstr(umerrormsg(), "the cache of another store"), "%s", umerrormsg());
	snprintf(uri, sizeof(uri), "cache+posix:%s?cache.path=%s.new", other, cache);
	check_fails(ummap_open(uri, 100, 0, PROT_READ, &attr, &addr), EINVAL);
	check(strstr(umerrormsg(), "the key cache.size"), "%s", umerrormsg());
	snprintf(uri, sizeof(uri), "cache+posix:%s?cache.path=%s", store, other);
	check_fails(ummap_open(uri, 100, 0, PROT_READ, &attr, &addr), EUCLEAN);
	close(fd);
}

/* ---- No descriptor ---- */

static _Atomic bool looks_fail;

/* Replaces the function of the C library, also for libummap: no descriptor is left for a call that
 * only examines a file. */
__attribute__((visibility("default"))) int open(const char *path, int flags, ...)
{
	va_list args;
	int mode = 0;

	va_start(args, flags);
	if (flags & O_CREAT)
		mode = va_arg(args, int);
	va_end(args);
	if (looks_fail && flags & O_PATH && !(flags & O_DIRECTORY)) {
		errno = ENFILE;
		return -1;
	}
	return openat(AT_FDCWD, path, flags, mode);
}

/* Without an examination of its store, a near file must not be made: all later mappings would take
 * it for the one of another store. */
static void fail_to_look(void *arg)
{
	uint64_t *words;
	void *addr;

	(void)arg;
	set_budget(2 * SIZE);
	looks_fail = true;
	check_fails(try_map("&cache.close=keep", READ_WRITE, &addr), ENFILE);
	check(strstr(umerrormsg(), store), "%s", umerrormsg());
	check(access(cache, F_OK) < 0);
	looks_fail = false;
	words = map_store("&cache.close=keep");
	put_version(words, 1);
	check(umunmap(words, 1) == 0);
	words = map_store("");
	check_version(words, 1, 1);
	check(umunmap(words, 1) == 0);
}

/* ---- Before other filters ---- */

/* Leaves clean blocks and one dirty block in the near file. */
static void read_and_keep(void *arg)
{
	uint64_t *words;

	(void)arg;
	set_budget(SIZE);
	words = map_store("&cache.close=keep&cache.dirty=90,1000000");
	for (size_t i = 0; i < SIZE / 8 - SEG / 8; i++)
		check(words[i] == i);
	words[SIZE / 8 - 1] = (uint64_t)1 << 32 | (SIZE / 8 - 1);
	check(umunmap(words, 1) == 0);
}

/* Writes the store without cache+. The bytes are durable, and the mapping does not end. */
static void store_past_and_die(void *arg)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	char uri[400];
	void *addr;

	(void)arg;
	set_budget(2 * SIZE);
	attr.seg_size = SEG;
	snprintf(uri, sizeof(uri), "%s:%s", driver, store);
	check(ummap_open(uri, SIZE, 0, READ_WRITE, &attr, &addr) == 0);
	put_version(addr, 1);
	check(umsync(addr, 0) == 0);
	kill(getpid(), SIGKILL);
}

static void read_changed(void *arg)
{
	uint64_t *words;

	(void)arg;
	set_budget(2 * SIZE);
	words = map_store("");
	/* The dirty block is the newer one. */
	for (size_t i = 0; i < SIZE / 8 - SEG / 8; i++)
		check(words[i] == ((uint64_t)1 << 32 | i), "%s: word %zu is %#" PRIx64, driver, i,
		      words[i]);
	check(words[SIZE / 8 - 2] == SIZE / 8 - 2);
	check(umunmap(words, 1) == 0);
}

/* If a filter behind cache+ keeps data in another file, the time of the store's last change does
 * not show that the data has changed. */
static void check_changed_behind(void)
{
	static const char *const drivers[] = { "cow+posix", "wal+posix", NULL };
	const char *was = driver;

	for (const char *const *d = drivers; *d; d++) {
		driver = *d;
		make_store();
		check_exits(run_child(read_and_keep, NULL), 0);
		check_killed(run_child(store_past_and_die, NULL), SIGKILL);
		check_exits(run_child(read_changed, NULL), 0);
	}
	driver = was;
}

/* ---- A folder of caches ---- */

struct place {
	const char *folder, *driver, *keys;
};

/* Runs in the folder of the store: the URI has names without folders for the store and the log. */
static void store_in_folder(void *arg)
{
	const struct place *place = arg;
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	char uri[1200], *slash = strrchr(store, '/');
	void *addr;

	set_budget(2 * SIZE);
	attr.seg_size = SEG;
	*slash = '\0';
	check(chdir(store) == 0);
	snprintf(uri, sizeof(uri),
		 "cache+%s:%s?cache.path=%s&cache.size=2M&cache.dirty=90,1000000%s", place->driver,
		 slash + 1, place->folder, place->keys);
	check(ummap_open(uri, SIZE, 0, READ_WRITE, &attr, &addr) == 0);
	put_version(addr, 3);
	check(umsync(addr, 0) == 0);
	kill(getpid(), SIGKILL);
}

static unsigned count_names(const char *folder)
{
	DIR *dir = opendir(folder);
	struct dirent *entry;
	unsigned n = 0;

	check(dir);
	while ((entry = readdir(dir)))
		n += *entry->d_name != '.';
	closedir(dir);
	return n;
}

/* All near files of a folder are written back and removed. A file that is no near file stays. */
static void check_folder(void)
{
	char folder[] = "/tmp/ummap-caches-XXXXXX", other[64], words[100], stores[2][320], log[330];
	struct place places[] = { { folder, driver, "" },
				  { folder, "wal+posix", "&wal.path=its.log" } };
	int fd;

	check(mkdtemp(folder));
	snprintf(other, sizeof(other), "%s/b.cache", folder);
	fd = open(other, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	check(fd >= 0 && write(fd, "of value", 8) == 8);
	close(fd);
	for (int i = 0; i < 2; i++) {
		make_store();
		snprintf(stores[i], sizeof(stores[i]), "%.310s.%d", store, i);
		check(rename(store, stores[i]) == 0);
		strcpy(store, stores[i]);
		check_killed(run_child(store_in_folder, &places[i]), SIGKILL);
		check_far(0, 3); /* some blocks may have been written back */
	}
	snprintf(log, sizeof(log), "%.*sits.log", (int)(strrchr(store, '/') + 1 - store), store);
	check(access(log, F_OK) == 0);
	check(count_names(folder) == 3);
	for (const char *const *verb = (const char *const[]){ "ls", "flush", "drop", NULL }; *verb;
	     verb++) {
		snprintf(words, sizeof(words), "%s '%s'", *verb, folder);
		check(run_tool("cache", words) == 2, "of the file that is no cache");
		check(count_names(folder) == (**verb == 'd' ? 1 : 3));
		for (int i = 0; i < 2; i++) {
			strcpy(store, stores[i]);
			check_far(**verb == 'l' ? 0 : 3, 3);
		}
	}
	check(access(log, F_OK) < 0, "the log beside the store was used, and none elsewhere");
	check(unlink(other) == 0 && run_tool("cache", words) == 0);
	check(rmdir(folder) == 0 && unlink(stores[0]) == 0 && unlink(stores[1]) == 0);
}

static void keep_one_word(void *arg)
{
	uint64_t *words;

	(void)arg;
	set_budget(2 * SIZE);
	words = map_store("&cache.close=keep&cache.dirty=90,1000000");
	words[1] |= (uint64_t)1 << 32;
	check(umunmap(words, 1) == 0);
	check_far(0, 0);
}

/* The path of a store may have a colon, as URIs do. */
static void flush_with_colon(void)
{
	char own[320];
	uint64_t word = 0;
	int fd;

	make_store();
	strcpy(own, store);
	snprintf(store, sizeof(store), "%.310s:1", own);
	snprintf(cache, sizeof(cache), "%s.cache", store);
	check(rename(own, store) == 0);
	check_exits(run_child(keep_one_word, NULL), 0);
	check(tool("flush") == 0);
	fd = open(store, O_RDONLY | O_CLOEXEC);
	check(pread(fd, &word, sizeof(word), sizeof(word)) == sizeof(word) && word >> 32 == 1);
	close(fd);
	check(tool("drop") == 0 && unlink(store) == 0);
}

static uint64_t *map_grown(const char *keys)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	char uri[1200];
	void *addr;

	attr.seg_size = SEG;
	attr.flags = UMMAP_CREATE | UMMAP_GROWS;
	snprintf(uri, sizeof(uri), "cache+%s:%s?cache.path=%s&cache.size=800K&cache.block=16K%s",
		 driver, store, cache, keys);
	check(ummap_open(uri, SIZE, 0, READ_WRITE, &attr, &addr) == 0);
	return addr;
}

/* Bytes that make the store longer stay in the near file, and are found again. */
static void keep_growth(void *arg)
{
	struct stat st;
	uint64_t *words;

	(void)arg;
	set_budget(2 * SIZE);
	check(truncate(store, SIZE / 2) == 0);
	for (uint64_t version = 1; version < 3; version++) {
		words = map_grown("&cache.close=keep&cache.dirty=90,1000000");
		check(words[SIZE / 8 - 1] == version - 1);
		words[SIZE / 8 - 1] = version;
		check(umunmap(words, 1) == 0);
		check(stat(store, &st) == 0 && st.st_size == SIZE / 2);
	}
	check(tool("flush") == 0);
	check(stat(store, &st) == 0 && st.st_size == SIZE);
	words = map_grown("");
	check(words[SIZE / 8 - 1] == 2 && words[1] == 1);
	check(umunmap(words, 1) == 0);
}

/* A symbolic link leads to the same store and near file, whether the URI names the near file or its
 * folder. */
static void open_by_link(void *arg)
{
	char own[320], link[330], folder[] = "/tmp/ummap-caches-XXXXXX";
	const char *path = arg;
	uint64_t *words;

	set_budget(2 * SIZE);
	if (!path)
		strcpy(cache, mkdtemp(folder));
	keep_one_word(NULL);
	strcpy(own, store);
	snprintf(link, sizeof(link), "%s.link", own);
	check(symlink(own, link) == 0);
	strcpy(store, link);
	words = map_store("");
	check(words[1] >> 32 == 1, "what was dirty is not there");
	check(umunmap(words, 1) == 0 && unlink(link) == 0);
	strcpy(store, own);
	if (path)
		return;
	check(count_names(folder) == 1);
	snprintf(link, sizeof(link), "drop '%s'", folder);
	check(run_tool("cache", link) == 0 && rmdir(folder) == 0);
}

/* A slot without valid parts becomes free: `ummap cache` counts the other slots. */
static void overwrite_read(void *arg)
{
	uint64_t *words, sum = 0;

	(void)arg;
	set_budget(2 * SIZE);
	words = map_store("&cache.mode=read");
	for (size_t i = 0; i < SIZE / 8; i += SEG / 8)
		sum += words[i];
	put_version(words, sum ? 5 : 6);
	check(umunmap(words, 1) == 0);
}

static void check_sheds(void)
{
	char words[400], command[COMMAND_MAX], line[800] = "";
	FILE *out;

	make_store();
	check_exits(run_child(overwrite_read, NULL), 0);
	snprintf(words, sizeof(words), "ls '%s'", store);
	tool_command("cache", words, command);
	out = popen(command, "r");
	check(out && fgets(line, sizeof(line), out) && fgets(line, sizeof(line), out));
	check(strstr(line, ": 0 blocks with 0 bytes are clean"), "%s", line);
	pclose(out);
}

/* ---- Failures ---- */

/* The far store accepts no writes: changes stay in the near file, also when the mapping ends, and
 * are written back later. The log has one line about the failure. */
static void fail_far(void *arg)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	int log = temp_file(0), was = dup(STDERR_FILENO);
	char uri[1200];
	uint64_t *words;
	void *addr;

	(void)arg;
	set_budget(2 * SIZE);
	attr.seg_size = SEG;
	snprintf(uri, sizeof(uri),
		 "cache+error+posix:%s?cache.path=%s&cache.size=2M&cache.block=16K&cache.dirty=10"
		 "&error.op=write&error.times=always",
		 store, cache);
	check(dup2(log, STDERR_FILENO) >= 0);
	check(ummap_open(uri, SIZE, 0, READ_WRITE, &attr, &addr) == 0);
	words = addr;
	put_version(words, 7);
	check(umsync(words, 0) == 0, "a sync does not need the far store");
	check_fails(umunmap(words, 1), EUCLEAN);
	snprintf(uri, sizeof(uri), "`ummap cache --cache %s flush %s`", cache, store);
	check(strstr(umerrormsg(), "the mapping has ended") && strstr(umerrormsg(), uri), "%s",
	      umerrormsg());
	check(dup2(was, STDERR_FILENO) >= 0);
	check(count_lines(log, uri) == 1);
	check(count_lines(log, "warn io: cache+: the far store of") == 1, "%u lines",
	      count_lines(log, "cache+"));
	check_far(0, 0);
	snprintf(uri, sizeof(uri), "cache+posix:%s?cache.path=%s", store, cache);
	check(ummap_open(uri, SIZE, 0, READ_WRITE, &attr, &addr) == 0);
	check_version(addr, 7, 7);
	check(umunmap(addr, 0) == 0);
	check_far(7, 7);
}

/* Reads of the far store fail, and reads of the near file succeed. */
static void fail_reads(void *arg)
{
	struct ummap_driver d = { .struct_size = sizeof(d) };
	struct ummap_geom geom;
	char uri[1200], bytes[4096];
	void *h;

	(void)arg;
	set_group();
	snprintf(uri, sizeof(uri),
		 "cache+error+posix:%s?cache.path=%s&cache.size=2M&cache.block=16K&"
		 "error.op=read&error.nth=2&error.times=always",
		 store, cache);
	check(ummap_driver_open(uri, UMMAP_O_WRITE, &d, &h, &geom) == 0);
	check(d.read(h, bytes, sizeof(bytes), 0) == 0);
	check(d.read(h, bytes, sizeof(bytes), SEG) == -EIO);
	check(d.read(h, bytes, sizeof(bytes), 0) == 0 && memcmp(bytes, &(uint64_t){ 0 }, 8) == 0);
	memset(bytes, 'x', sizeof(bytes));
	check(d.write(h, bytes, 512, SEG + 512) == -EIO, "the rest of the part cannot be read");
	check(d.write(h, bytes, sizeof(bytes), SEG + 4096) == 0);
	memset(bytes, 0, sizeof(bytes));
	check(d.read(h, bytes, 512, SEG + 4608) == 0 && bytes[0] == 'x' && bytes[511] == 'x');
	check(d.close(h) == 0);
}

/* ---- Above cow+, whose file is not the store ---- */

static void *map_changes(int prot)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	char uri[1200];
	void *addr;

	attr.seg_size = SEG;
	set_budget(2 * SIZE);
	snprintf(uri, sizeof(uri),
		 "cache+cow+posix:%s?cache.path=%s&cache.size=4M&cache.block=16K&"
		 "cache.dirty=90,1000",
		 store, cache);
	check(ummap_open(uri, SIZE, 0, prot, &attr, &addr) == 0, "%s", umerrormsg());
	return addr;
}

static void change_and_die(void *arg)
{
	void *addr = map_changes(READ_WRITE);

	(void)arg;
	put_version(addr, 1);
	check(umsync(addr, 0) == 0);
	kill(getpid(), SIGKILL);
}

static void read_changes(void *prot)
{
	void *addr = map_changes((int)(uintptr_t)prot);

	check_version(addr, 1, 1);
	check(umunmap(addr, 0) == 0);
}

/* Dirty blocks stay if the store is opened for reading, which cannot write them back. */
static void check_changes(void)
{
	make_store();
	check_killed(run_child(change_and_die, NULL), SIGKILL);
	for (int i = 0; i < 2; i++)
		check_exits(run_child(read_changes, (void *)(uintptr_t)PROT_READ), 0);
	check_exits(run_child(read_changes, (void *)(uintptr_t)READ_WRITE), 0);
	unlink(cache);
	check_exits(run_child(read_changes, (void *)(uintptr_t)PROT_READ), 0);
	unlink(cache);
	check_far(0, 0);
}

/* A near file gets all of its space when it is made; otherwise it is not made. */
static void open_full(void *arg)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	int root = small_file_system();
	char uri[1200];
	void *addr;

	(void)arg;
	if (root < 0)
		_exit(77);
	set_group();
	snprintf(uri, sizeof(uri), "cache+posix:%s?cache.path=/proc/self/fd/%d/near&cache.size=%zu",
		 store, root, 2 * IMAGE);
	check_fails(ummap_open(uri, SIZE, 0, PROT_READ, &attr, &addr), ENOSPC);
	check(strstr(umerrormsg(), "bytes long"), "%s", umerrormsg());
	check(faccessat(root, "near", F_OK, 0) < 0 && errno == ENOENT);
}

static void check_full(void)
{
	int status = run_child(open_full, NULL);

	if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
		puts("no small file system here");
	else
		check_exits(status, 0);
}

/* ---- A near tier that is a block device ---- */

static void *map_device(void)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	char uri[1200];
	void *addr;

	attr.seg_size = SEG;
	set_budget(2 * SIZE);
	snprintf(uri, sizeof(uri), "cache+posix:%s?cache.path=%s&cache.dirty=90,1000", store,
		 cache);
	check(ummap_open(uri, SIZE, 0, READ_WRITE, &attr, &addr) == 0, "%s", umerrormsg());
	return addr;
}

static void store_on_device_and_die(void *arg)
{
	void *addr = map_device();

	(void)arg;
	put_version(addr, 5);
	check(umsync(addr, 0) == 0);
	kill(getpid(), SIGKILL);
}

static void find_on_device(void *arg)
{
	void *addr = map_device();

	(void)arg;
	check_version(addr, 5, 5);
	check(umunmap(addr, 0) == 0);
}

/* The filters wal+ and cow+ refuse devices: their files grow. */
static void open_beside(void *filter)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	char uri[1200];
	void *addr;

	set_group();
	snprintf(uri, sizeof(uri), "%s+posix:%s?%s.path=%s", (char *)filter, store, (char *)filter,
		 cache);
	check_fails(ummap_open(uri, SIZE, 0, READ_WRITE, &attr, &addr), EINVAL);
	check(strstr(umerrormsg(), "it is a block device"), "%s", umerrormsg());
}

/* A store that begins with zeros could be taken for a new file of the filter. The filter must
 * neither write nor read it. */
static void open_itself(void *filter)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	char uri[1200];
	void *addr;

	set_group();
	snprintf(uri, sizeof(uri), "%s+posix:%s?%s.path=%s", (char *)filter, cache, (char *)filter,
		 cache);
	for (int prot = PROT_READ; prot <= READ_WRITE; prot += READ_WRITE - PROT_READ) {
		check_fails(ummap_open(uri, SIZE, 0, prot, &attr, &addr), EINVAL);
		check(strstr(umerrormsg(), "the store itself"), "%s", umerrormsg());
	}
}

static void check_itself(int device)
{
	static const char *const filters[] = { "wal", "cow", "cache" };
	static char head[MIB];
	static const char zeros[MIB];

	for (size_t i = 0; i < sizeof(filters) / sizeof(*filters); i++)
		check_exits(run_child(open_itself, (void *)(uintptr_t)filters[i]), 0);
	check(pread(device, head, MIB, 0) == (ssize_t)MIB && memcmp(head, zeros, MIB) == 0);
}

static void check_device(void)
{
	char image[320], verb[400], byte = 1;
	int file = temp_named("device", 8 * MIB, image),
	    device = geteuid() == 0 ? loop_attach(file) : -1;

	if (device < 0) {
		puts("no loop devices here");
		return;
	}
	make_store();
	check(loop_name(device, cache, sizeof(cache)));
	check_itself(device);
	check_exits(run_child(open_beside, (void *)(uintptr_t)"wal"), 0);
	check_exits(run_child(open_beside, (void *)(uintptr_t)"cow"), 0);
	check_killed(run_child(store_on_device_and_die, NULL), SIGKILL);
	check_far(0, 0);
	check_exits(run_child(find_on_device, NULL), 0);
	check_far(5, 5);
	snprintf(verb, sizeof(verb), "--cache %s ls", cache);
	check(tool(verb) == 0);
	/* `ummap cache drop` erases the header. A device without a header is neither erased nor
	 * used. */
	snprintf(verb, sizeof(verb), "--cache %s drop", cache);
	check(tool(verb) == 0 && access(cache, F_OK) == 0);
	check(tool(verb) == 2);
	check(pwrite(device, &byte, 1, 64 * KIB) == 1);
	check_refused(EUCLEAN, "zeros in its first MiB");
	byte = 0;
	check(pwrite(device, &byte, 1, 64 * KIB) == 1);
	check_exits(run_child(find_on_device, NULL), 0);
	close(device);
	close(file);
	/* The next near files are regular files, which are removed. */
	make_store();
}

/* ---- A far store in memory, which counts what is read from it ---- */

static char far_bytes[SIZE];
static _Atomic size_t far_read_bytes;
static uint32_t far_caps = UMMAP_CAP_PARALLEL;
static _Atomic unsigned far_writers, far_most_writers;
static bool far_meets; /* whether a write waits for a concurrent one until two have met */

static int far_open(const struct ummap_uri *uri, int oflags, void **h, struct ummap_geom *geom)
{
	(void)uri;
	*h = far_bytes;
	geom->size = SIZE;
	geom->align = 1;
	geom->caps = far_caps | (oflags & UMMAP_O_WRITE ? UMMAP_CAP_WRITE : 0);
	return 0;
}

static int far_close(void *h)
{
	(void)h;
	return 0;
}

/* Bytes behind the end are zeros. */
static int far_read(void *h, void *buf, size_t len, uint64_t off)
{
	size_t there = off < SIZE ? SIZE - off : 0;

	there = there < len ? there : len;
	memcpy(buf, (char *)h + off, there);
	memset((char *)buf + there, 0, len - there);
	far_read_bytes += len;
	return 0;
}

static int far_write(void *h, const void *buf, size_t len, uint64_t off)
{
	unsigned writers = ++far_writers, most = far_most_writers;

	while (most < writers && !atomic_compare_exchange_weak(&far_most_writers, &most, writers))
		;
	for (int ms = 0; far_meets && far_most_writers < 2 && ms < 60000; ms++)
		pause_ms(1);
	/* The second write may be the last one. */
	if (far_meets && writers > 1)
		pause_ms(20);
	memcpy((char *)h + off, buf, len);
	far_writers--;
	return 0;
}

/* All requests of a flight end before the flush that follows it. */
static int far_flush(void *h, uint64_t off, uint64_t len)
{
	(void)h, (void)off, (void)len;
	check(!far_meets || far_writers == 0, "%u writes are under way", far_writers);
	return 0;
}

static const struct ummap_driver far_driver = {
	.struct_size = sizeof(far_driver),
	.abi = UMMAP_DRIVER_ABI,
	.scheme = "far",
	.help = "far:NAME  memory, for a test",
	.open = far_open,
	.close = far_close,
	.read = far_read,
	.write = far_write,
	.flush = far_flush,
};

static void *open_far(struct ummap_driver *d, const char *keys)
{
	struct ummap_geom geom;
	char uri[1200];
	void *h;

	d->struct_size = sizeof(*d);
	snprintf(uri, sizeof(uri), "cache+far:x?cache.path=%s&cache.block=4K&%s", cache, keys);
	check(ummap_driver_open(uri, UMMAP_O_WRITE, d, &h, &geom) == 0, "%s", umerrormsg());
	return h;
}

static void populate(void *arg)
{
	struct ummap_driver d;
	char bytes[4096];
	size_t before;
	void *h;

	(void)arg;
	set_group();
	check(ummap_driver_register(&far_driver) == 0);
	for (size_t off = 0; off < SIZE; off += sizeof(off))
		memcpy(far_bytes + off, &off, sizeof(off));
	h = open_far(&d, "cache.size=2M&cache.populate=background");
	while (far_read_bytes < SIZE)
		pause_ms(1);
	/* The thread keeps the bytes that it has read before it ends. */
	check(d.close(h) == 0);
	before = far_read_bytes;
	h = open_far(&d, "cache.mode=back");
	for (size_t off = 0; off < SIZE; off += sizeof(bytes)) {
		check(d.read(h, bytes, sizeof(bytes), off) == 0);
		check(memcmp(bytes, far_bytes + off, sizeof(bytes)) == 0, "at %zu", off);
	}
	check(far_read_bytes == before, "%zu bytes were read from the far store again",
	      far_read_bytes - before);
	check(d.close(h) == 0);
}

/* With close=keep, dirty blocks stay in the near file. The next handle writes them back. */
static void keep(void *arg)
{
	struct ummap_driver d;
	char bytes[4096], found[sizeof(bytes)];
	void *h;

	(void)arg;
	set_group();
	check(ummap_driver_register(&far_driver) == 0);
	memset(far_bytes, 'f', SIZE);
	memset(bytes, 'n', sizeof(bytes));
	h = open_far(&d, "cache.size=2M&cache.close=keep&cache.dirty=90,1000000");
	check(d.write(h, bytes, sizeof(bytes), 8192) == 0);
	check(d.close(h) == 0);
	check(far_bytes[8192] == 'f', "it was written back");
	h = open_far(&d, "cache.close=keep&cache.dirty=90,1000000");
	check(d.read(h, found, sizeof(found), 8192) == 0 &&
	      memcmp(found, bytes, sizeof(bytes)) == 0);
	check(d.close(h) == 0);
	check(far_bytes[8192] == 'f', "it was written back");
	h = open_far(&d, "cache.close=flush");
	check(d.close(h) == 0);
	check(memcmp(far_bytes + 8192, bytes, sizeof(bytes)) == 0, "it was not written back");
}

/* Blocks that are not neighbors are sent by several concurrent requests, if the far store supports
 * it, when the handle is closed or flushed to the far store. */
static void send_together(void *arg)
{
	static const char *const keys[] = { "cache.dirty=90,1000000",
					    "cache.flush=far&cache.dirty=90,1000000",
					    "cache.dirty=90,1000000" };
	struct ummap_driver d;
	char bytes[4096];
	void *h;

	(void)arg;
	set_group();
	check(ummap_driver_register(&far_driver) == 0);
	for (int i = 0; i < 3; i++) {
		far_caps = i < 2 ? UMMAP_CAP_PARALLEL : 0;
		far_meets = i < 2;
		far_most_writers = 0;
		memset(far_bytes, 'f', SIZE);
		h = open_far(&d, keys[i]);
		for (size_t off = 0; off < SIZE / 2; off += 2 * sizeof(bytes)) {
			memset(bytes, 'a' + (int)(off / 8192 % 26), sizeof(bytes));
			check(d.write(h, bytes, sizeof(bytes), off) == 0);
		}
		check(i == 1 ? d.flush(h, 0, UINT64_MAX) == 0 : d.close(h) == 0);
		check(i == 2 ? far_most_writers == 1 : far_most_writers >= 2,
		      "%u requests at a time", far_most_writers);
		for (size_t at = 0; at < SIZE; at++)
			check(far_bytes[at] == (at < SIZE / 2 && at / 4096 % 2 == 0
							? 'a' + (int)(at / 8192 % 26)
							: 'f'),
			      "at %zu", at);
		check(i != 1 || d.close(h) == 0);
	}
}

/* The number of bytes of the near file that this process has mapped. */
static size_t bytes_in_place(void)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[800];
	size_t bytes = 0;

	check(maps);
	while (fgets(line, sizeof(line), maps)) {
		size_t begin, end;

		if (strstr(line, "rw-s") && strstr(line, cache)) {
			check(sscanf(line, "%zx-%zx", &begin, &end) == 2);
			bytes += end - begin;
		}
	}
	fclose(maps);
	return bytes;
}

/* On persistent memory, the near file is mapped, and a file that was cut meanwhile is an error. On
 * a disk, it is not mapped. */
static void lie_in_memory(void *granularity)
{
	struct ummap_driver d;
	char bytes[4096], found[sizeof(bytes)];
	struct stat st;
	void *h;

	set_group();
	if (granularity)
		set_env("PMEM2_FORCE_GRANULARITY", granularity);
	check(ummap_driver_register(&far_driver) == 0);
	memset(far_bytes, 'f', SIZE);
	memset(bytes, 'n', sizeof(bytes));
	h = open_far(&d, "cache.size=2M&cache.dirty=90,1000000");
	check(stat(cache, &st) == 0);
	check(bytes_in_place() == (granularity && has_driver("pmem") ? (size_t)st.st_size : 0),
	      "%zu bytes", bytes_in_place());
	for (size_t off = 0; off < SIZE / 4; off += 2 * sizeof(bytes))
		check(d.write(h, bytes, sizeof(bytes), off) == 0);
	check(d.flush(h, 0, UINT64_MAX) == 0);
	for (size_t off = 0; off < SIZE / 4; off += sizeof(bytes)) {
		check(d.read(h, found, sizeof(found), off) == 0);
		check(found[7] == (off % (2 * sizeof(bytes)) ? 'f' : 'n'), "at %zu", off);
	}
	if (granularity) {
		/* The read fails, or the far store has the bytes, too. */
		check(truncate(cache, 8192) == 0);
		check(d.read(h, found, sizeof(found), 0) < 0);
		check(d.read(h, found, sizeof(found), sizeof(bytes)) == 0 && found[7] == 'f');
		_exit(0);
	}
	check(d.close(h) == 0);
	check(memcmp(far_bytes, bytes, sizeof(bytes)) == 0 && far_bytes[sizeof(bytes)] == 'f');
}

static void check_in_memory(void)
{
	static const char *const granularities[] = { NULL, "cache_line", "byte" };

	for (int i = 0; i < 3; i++) {
		unlink(cache);
		check_exits(run_child(lie_in_memory, (void *)(uintptr_t)granularities[i]), 0);
	}
	unlink(cache);
}

/* Pieces that share parts and blocks. Each piece belongs to one thread. */
#define PIECE 1000
#define THREADS 4
#define STEPS 3000

static struct crowd {
	struct ummap_driver driver;
	void *h;
} crowd;

static uint32_t written[SIZE / PIECE];

static void check_piece(const char *bytes, size_t piece)
{
	for (size_t i = 0; i < PIECE; i += 4)
		check(memcmp(bytes + i, &written[piece], 4) == 0, "piece %zu at %zu", piece, i);
}

static void *read_and_write(void *arg)
{
	size_t self = (size_t)(uintptr_t)arg;
	uint64_t random = self + 1;
	char bytes[PIECE];

	for (uint32_t step = 1; step <= STEPS; step++) {
		size_t piece = next_random(&random) % (SIZE / PIECE / THREADS) * THREADS + self;

		check(crowd.driver.read(crowd.h, bytes, PIECE, piece * PIECE) == 0);
		check_piece(bytes, piece);
		if (step % 2)
			continue;
		written[piece] = step;
		for (size_t i = 0; i < PIECE; i += 4)
			memcpy(bytes + i, &step, 4);
		check(crowd.driver.write(crowd.h, bytes, PIECE, piece * PIECE) == 0);
		if (step % 500 == 0)
			check(crowd.driver.flush(crowd.h, 0, UINT64_MAX) == 0);
	}
	return NULL;
}

/* The threads use more data than the near file holds, in each mode. In the end, the far store has
 * all data. */
static void crowd_in(void *arg)
{
	pthread_t threads[THREADS];
	char keys[100];

	set_group();
	check(ummap_driver_register(&far_driver) == 0);
	snprintf(keys, sizeof(keys), "cache.size=200K&cache.dirty=30,0&cache.mode=%s",
		 (const char *)arg);
	crowd.h = open_far(&crowd.driver, keys);
	for (size_t i = 0; i < THREADS; i++)
		check(pthread_create(&threads[i], NULL, read_and_write, (void *)i) == 0);
	for (size_t i = 0; i < THREADS; i++)
		check(pthread_join(threads[i], NULL) == 0);
	check(crowd.driver.close(crowd.h) == 0);
	for (size_t piece = 0; piece < SIZE / PIECE; piece++)
		check_piece(far_bytes + piece * PIECE, piece);
}

static void check_threads(void)
{
	static const char *const kinds[] = { "back", "through", "read" };

	for (int i = 0; i < 3; i++) {
		unlink(cache);
		check_exits(run_child(crowd_in, (void *)(uintptr_t)kinds[i]), 0);
	}
	unlink(cache);
}

int main(int argc, char **argv)
{
	unsigned rounds = argc > 1 ? (unsigned)atoi(argv[1]) : ROUNDS;
	uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 0) : (uint64_t)time(NULL);

	printf("seed %" PRIu64 "\n", seed);
	fflush(stdout);
	check_kills(&seed, rounds);
	fuzz(&seed, rounds);
	check_others();
	check_exits(run_child(open_other, NULL), 0);
	make_store();
	check_exits(run_child(fail_to_look, NULL), 0);
	check_changed_behind();
	check_folder();
	flush_with_colon();
	make_store();
	check_exits(run_child(keep_growth, NULL), 0);
	for (int named = 0; named < 2; named++) {
		make_store();
		check_exits(run_child(open_by_link, named ? cache : NULL), 0);
	}
	check_sheds();
	make_store();
	check_exits(run_child(fail_far, NULL), 0);
	make_store();
	check_exits(run_child(fail_reads, NULL), 0);
	check_changes();
	check_device();
	check_full();
	unlink(cache);
	check_exits(run_child(populate, NULL), 0);
	check_exits(run_child(send_together, NULL), 0);
	unlink(cache);
	check_exits(run_child(keep, NULL), 0);
	check_in_memory();
	check_threads();
	return 0;
}
