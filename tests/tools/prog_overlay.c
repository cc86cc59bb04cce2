/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * prog_overlay - the command `ummap overlay`, the description of overlays for file(1), and a reader
 * that was written from docs/overlay-format.md: even after a torn commit, the reader must find the
 * contents that the library finds.
 */
#include "drivers/beside.h"

#include <sys/wait.h>
#include <ummap-driver.h>

#define SEG ((size_t)4 * KIB)
#define SIZE ((size_t)1200 * KIB + 321)
#define COMMITS_AT 8192
#define ACK_AT 24576
#define GROUPS_AT 32768
#define TABLES 32768
#define GROUP (TABLES + 256 * 4096)

static char store[320], overlay[340];
static uint64_t seed = 1;

static uint8_t *map_store(const char *filter, int prot)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	char uri[400];
	void *m = NULL;

	attr.seg_size = SEG;
	/* With wal.keep, no commit is applied while the store is mapped. */
	snprintf(uri, sizeof(uri), "%sposix:%s%s", filter, store,
		 strcmp(filter, "wal+") == 0 ? "?wal.keep=16" : "");
	check(ummap_open(uri, SIZE, 0, prot, &attr, &m) == 0, "%s: %s", uri, umerrormsg());
	return m;
}

static void make_store(const char *suffix)
{
	int fd = temp_named("store", 0, store);
	uint8_t *bytes = malloc(SIZE);

	fill(bytes, SIZE, 0, 7);
	check(write(fd, bytes, SIZE) == (ssize_t)SIZE);
	free(bytes);
	close(fd);
	snprintf(overlay, sizeof(overlay), "%s%s", store, suffix);
}

/* In two commits, writes bytes around an offset, then ends the store there and makes it as long as
 * before. */
static void shorten(const char *filter, uint64_t size)
{
	struct ummap_driver driver = { .struct_size = sizeof(driver) };
	struct ummap_geom geom;
	char uri[400], bytes[50000];
	void *h;

	fill(bytes, sizeof(bytes), 0, size);
	snprintf(uri, sizeof(uri), "%sposix:%s", filter, store);
	check(ummap_driver_open(uri, UMMAP_O_WRITE, &driver, &h, &geom) == 0, "%s", umerrormsg());
	check(driver.write(h, bytes, sizeof(bytes), size - sizeof(bytes) / 2) == 0);
	check(driver.flush(h, 0, UINT64_MAX) == 0);
	check(driver.resize(h, size) == 0 && driver.resize(h, SIZE) == 0);
	check(driver.close(h) == 0);
}

/* Makes some commits of scattered changes, and ends without closing the store. */
static void change(void *filter)
{
	bool shortens = strcmp(filter, "cow+") == 0;
	uint8_t *m;

	for (unsigned i = 1; shortens && i < 4; i++)
		shorten(filter, SIZE / 4 * i);
	m = map_store(filter, READ_WRITE);
	for (unsigned commit = 0; commit < 5; commit++) {
		for (unsigned i = 0; i < 40; i++) {
			size_t off = next_random(&seed) % (SIZE - 9000);

			fill(m + off, next_random(&seed) % 9000, off, seed);
		}
		check(umsync(m, 0) == 0, "%s", umerrormsg());
	}
	m[77]++;
	_exit(0);
}

/* ---- The reader ---- */

/* Returns whether the reader can run. */
static bool reads_the_same(const char *filter)
{
	char command[1200];
	uint8_t *m = map_store(filter, PROT_READ), *bytes = malloc(SIZE + 1);
	size_t len;
	FILE *f;
	int status;

	snprintf(command, sizeof(command), "python3 tests/tools/overlay_reader.py '%s' '%s'",
		 overlay, store);
	f = popen(command, "re");
	check(f);
	len = fread(bytes, 1, SIZE + 1, f);
	status = pclose(f);
	check(WIFEXITED(status));
	if (WEXITSTATUS(status) == 77 || WEXITSTATUS(status) == 127)
		return false;
	check(WEXITSTATUS(status) == 0 && len == SIZE, "the reader returned %zu bytes", len);
	check(memcmp(bytes, m, SIZE) == 0, "the reader and the library differ");
	check(umunmap(m, 0) == 0);
	free(bytes);
	return true;
}

static uint64_t number_at(int fd, uint64_t off)
{
	uint64_t number;

	check(pread(fd, &number, sizeof(number), (off_t)off) == sizeof(number));
	return number;
}

static void damage(uint64_t off)
{
	int fd = open(overlay, O_RDWR | O_CLOEXEC);
	uint64_t number = ~number_at(fd, off);

	check(pwrite(fd, &number, sizeof(number), (off_t)off) == sizeof(number));
	close(fd);
}

/* The place of a block that a commit has written. */
static uint64_t find_block(uint64_t commit)
{
	int fd = open(overlay, O_RDONLY | O_CLOEXEC);
	uint64_t at = 0;

	for (uint64_t group = GROUPS_AT; !at && group < file_size(fd); group += GROUP)
		for (uint64_t i = 0; i < 512 && !at; i++)
			if (number_at(fd, group + i * 64 + 8) == commit)
				at = group + TABLES + i % 256 * 4096;
	close(fd);
	check(at);
	return at;
}

static uint64_t newest_commit(void)
{
	int fd = open(overlay, O_RDONLY | O_CLOEXEC);
	uint64_t newest = 0;

	for (unsigned i = 0; i < 32; i++)
		newest = number_at(fd, COMMITS_AT + i * 512 + 8) > newest ?
				 number_at(fd, COMMITS_AT + i * 512 + 8) : newest;
	close(fd);
	return newest;
}

/* ---- The command ---- */

static void run(const char *words, int status, const char *text)
{
	char line[800];

	snprintf(line, sizeof(line), words, overlay);
	check_tool("overlay", line, status, text);
}

static void show_changes(void)
{
	char copy[400], words[1200];

	run("show '%s'", 0, ": overlay of cow+, version 1\n  store    'store");
	run("show '%s'", 0, "the store has commit 0\n  commit   11, 20");
	run("--json show '%s'", 0, "\"filter\": \"cow\", \"version\": 1, ");
	run("check '%s'", 0, " void\n");
	run("--quiet check '%s' && echo \"<$(true)>\"", 0, "<>");
	snprintf(words, sizeof(words), "ls '%s'", temp_dir());
	check_tool("overlay", words, 0, ".cow: cow+ over 'store");
	run("ls '%s' --json", 0, "\"newest_commit\": 11");
	run("apply", 2, "too few or too many arguments");
	run("--store x drop '%s'", 2, "only apply takes it");
	snprintf(copy, sizeof(copy), "%s.copy", overlay);
	snprintf(words, sizeof(words), "cp '%s' '%s'", overlay, copy);
	check(system(words) == 0);
	damage(find_block(newest_commit()));
	run("check '%s'", 1, ": damaged at byte ");
	run("--json --quiet check '%s'", 1, "");
	check(rename(copy, overlay) == 0);
}

/* Returns whether file(1) is installed. */
static bool file_knows_overlays(void)
{
	char command[600], text[400] = "";
	size_t len;
	FILE *f;

	snprintf(command, sizeof(command), "file -m packaging/magic '%s' 2>&1", overlay);
	f = popen(command, "re");
	check(f);
	len = fread(text, 1, sizeof(text) - 1, f);
	text[len] = '\0';
	if (pclose(f) >> 8 == 127)
		return false;
	check(strstr(text, ": libummap overlay, version 1, changes of cow+, of the store 'store"),
	      "%s", text);
	return true;
}

static void refuse_others(void)
{
	int fd = open(overlay, O_RDWR | O_CLOEXEC);
	char text[8];

	check(pread(fd, text, 8, 0) == 8 && memcmp(text, "umovrly1", 8) == 0);
	for (unsigned copy = 0; copy < 2; copy++)
		check(pwrite(fd, "umovrly2", 8, copy * 4096) == 8);
	run("show '%s'", 2, "it has version '2' of the format");
	run("drop '%s'", 2, "it has version '2' of the format");
	for (unsigned copy = 0; copy < 2; copy++)
		check(pwrite(fd, "cowhead1", 8, copy * 4096) == 8);
	run("show '%s'", 2, "an earlier version of libummap");
	run("drop '%s'", 0, "");
	check(access(overlay, F_OK) < 0);
	close(fd);
}

/* Applies an overlay, and compares the store with the contents before. */
static void apply(const char *filter, const char *result)
{
	uint8_t *bytes = malloc(SIZE), *m = map_store(filter, PROT_READ);

	memcpy(bytes, m, SIZE);
	check(umunmap(m, 0) == 0);
	run("apply '%s'", 0, result);
	check(access(overlay, F_OK) < 0);
	m = map_store("", PROT_READ);
	check(memcmp(bytes, m, SIZE) == 0);
	check(umunmap(m, 0) == 0);
	free(bytes);
}

/* In a copied folder, the overlay names the store of the first folder, which must not change. */
static void apply_copy(void)
{
	const char *name = strrchr(store, '/') + 1;
	char words[2000];

	snprintf(words, sizeof(words), "cd '%s' && mkdir copied && cp '%s' '%s' copied && cp '%s' "
		 "before", temp_dir(), store, overlay, store);
	check(system(words) == 0);
	snprintf(words, sizeof(words), "apply '%s/copied/%s.wal'", temp_dir(), name);
	check_tool("overlay", words, 2, "is beside another file. Try --store");
	snprintf(words, sizeof(words), "cmp '%s' '%s/before' && test -e '%s/copied/%s.wal'", store,
		 temp_dir(), temp_dir(), name);
	check(system(words) == 0);
	snprintf(words, sizeof(words), "--store '%s/copied/%s' apply '%s/copied/%s.wal'",
		 temp_dir(), name, temp_dir(), name);
	check_tool("overlay", words, 0, "and the overlay is removed");
	snprintf(words, sizeof(words), "cmp '%s' '%s/before' && ! cmp -s '%s' '%s/copied/%s'",
		 store, temp_dir(), store, temp_dir(), name);
	check(system(words) == 0);
}

int main(void)
{
	bool has_reader, has_file;

	make_store(".cow");
	check_exits(run_child(change, "cow+"), 0);
	has_reader = reads_the_same("cow+");
	has_file = file_knows_overlays();
	show_changes();
	/* A commit that was not acknowledged, and whose block is torn, does not count. */
	damage(ACK_AT);
	damage(find_block(newest_commit()));
	has_reader = has_reader && reads_the_same("cow+");
	apply("cow+", "has commit 10, and the overlay is removed");
	check_exits(run_child(change, "cow+"), 0);
	refuse_others();
	make_store(".wal");
	check_exits(run_child(change, "wal+"), 0);
	run("--json check '%s'", 0, "\"filter\": \"wal\", \"version\": 1, ");
	has_reader = has_reader && reads_the_same("wal+");
	apply_copy();
	damage(ACK_AT);
	damage(find_block(newest_commit()));
	has_reader = has_reader && reads_the_same("wal+");
	apply("wal+", "has commit 4, and the overlay is removed");
	if (!has_reader || !has_file)
		printf("skipped in part: there is no %s\n",
		       has_reader ? "file(1)" : "python3 with libxxhash");
	return has_reader && has_file ? 0 : 77;
}
