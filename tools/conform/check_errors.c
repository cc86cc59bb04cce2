/* SPDX-License-Identifier: BSD-3-Clause */
/* Checks of calls that must fail, and of their error messages. */
#include "conform.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <ummap.h>
#include <unistd.h>

/* A value that is no number, no choice, and no path that can be opened. */
#define BAD_VALUE "/no-such-folder/no-such-value"

static void need_file(void)
{
	if (!facts->file)
		skip("the store is no file");
}

/* Checks that a failure has a message of several words. */
static int refused(const char *uri, int oflags, const char *what)
{
	struct handle h;
	int err;

	doing("opening %s", what);
	err = handle_try(uri, oflags, &h);
	expect(err < 0, "%s could be opened", what);
	expect(strlen(umerrormsg()) >= 10 && strchr(umerrormsg(), ' '),
	       "%s is refused without a sentence: \"%s\"", what, umerrormsg());
	return err;
}

void check_missing(void)
{
	char path[URI_MAX + 16], uri[URI_MAX];
	int err;

	need_file();
	snprintf(path, sizeof(path), "%s.missing", facts->path);
	uri_with_path(uri, path);
	err = refused(uri, facts->writable ? UMMAP_O_WRITE : 0, "a store that is not there");
	expect(err == -ENOENT, "a store that is not there gives %s, not ENOENT", error_name(err));
	expect(access(path, F_OK) < 0,
	       "opening a store that is not there, without UMMAP_O_CREATE, has made it");
	uri_with_path(uri, "/no-such-folder/no-such-store");
	err = refused(uri, facts->writable ? UMMAP_O_WRITE | UMMAP_O_CREATE : 0,
		      "a store in a folder that is not there");
	expect(err == -ENOENT, "a store in a folder that is not there gives %s, not ENOENT",
	       error_name(err));
}

void check_create(void)
{
	char path[URI_MAX + 8], uri[URI_MAX], text[] = "the first bytes", got[sizeof(text)];
	struct handle h;

	need_file();
	if (!facts->creates)
		skip("the driver makes no stores");
	snprintf(path, sizeof(path), "%s.other", facts->path);
	uri_with_path(uri, path);
	for (int i = 0; i < 2; i++) {
		expect(handle_try(uri, UMMAP_O_WRITE | UMMAP_O_CREATE, &h) == 0,
		       "UMMAP_O_CREATE of a store that %s: %s", i ? "is there" : "is not there",
		       umerrormsg());
		expect(i || handle_can(&h, UMMAP_CAP_GROW) || h.driver.resize || h.geom.size > 0,
		       "a store was made that is empty and can never grow");
		if (i) {
			handle_read(&h, got, sizeof(got), 0);
			expect(memcmp(got, text, sizeof(text)) == 0,
			       "UMMAP_O_CREATE has changed the contents of an existing store");
		} else if (handle_can(&h, UMMAP_CAP_GROW) || h.geom.size >= sizeof(text)) {
			handle_write(&h, text, sizeof(text), 0);
			handle_flush(&h);
			handle_read(&h, got, sizeof(got), 0);
			expect(memcmp(got, text, sizeof(text)) == 0,
			       "a read of a new store returns other bytes than were written to it");
		} else {
			skip("a new store has no room, and grows by resize only");
		}
		handle_close(&h);
	}
}

static void fill_name(char *path, size_t len)
{
	size_t start = strlen(path);

	memset(path + start, 'x', len);
	path[start + len] = '\0';
}

void check_paths(void)
{
	static char uri[URI_MAX], path[URI_MAX];
	int oflags = facts->writable ? UMMAP_O_WRITE | UMMAP_O_CREATE : 0;
	const char *slash = strrchr(facts->path, '/');
	struct stat st;

	need_file();
	snprintf(path, sizeof(path), "%.*s", slash ? (int)(slash - facts->path) : 0, facts->path);
	if (!slash || slash == facts->path)
		strcpy(path, slash ? "/" : ".");
	uri_with_path(uri, path);
	refused(uri, oflags, "a folder");
	expect(stat(path, &st) == 0 && S_ISDIR(st.st_mode), "%s is no folder any more", path);
	strcat(path, "/");
	fill_name(path, 300);
	uri_with_path(uri, path);
	refused(uri, oflags, "a name of 300 letters");
	while (strlen(path) < 5000) {
		strcat(path, "/");
		fill_name(path, 200);
	}
	uri_with_path(uri, path);
	refused(uri, oflags, "a path of 5000 letters");
}

/* Whether a key of the driver is listed in the option --free. */
static bool is_free(const char *key)
{
	const char *list = options.free_keys;
	size_t len = strlen(key);

	while (list && *list) {
		size_t n = strcspn(list, ",");

		if (n == len && memcmp(list, key, len) == 0)
			return true;
		list += n + (list[n] == ',');
	}
	return false;
}

static void check_key(const char *key, bool known)
{
	static char uri[URI_MAX];
	char what[128];
	int err;

	snprintf(what, sizeof(what), known ? "the key \"%s\" with a value that means nothing" :
		 "a URI with the unknown key \"%s\"", key);
	uri_with_key(uri, key, BAD_VALUE);
	err = refused(uri, facts->writable ? UMMAP_O_WRITE : 0, what);
	expect(err == -EINVAL, "%s gives %s, not EINVAL", what, error_name(err));
	expect(strstr(umerrormsg(), key), "%s gives a sentence that does not name the key: \"%s\"",
	       what, umerrormsg());
}

void check_keys(void)
{
	struct handle h;
	char keys[512], *next = NULL;

	handle_open(&h);
	snprintf(keys, sizeof(keys), "%s", h.driver.keys ? h.driver.keys : "");
	handle_close(&h);
	check_key("no-such-key", false);
	for (char *key = strtok_r(keys, " ", &next); key; key = strtok_r(NULL, " ", &next)) {
		if (!is_free(key))
			check_key(key, true);
	}
}

void check_read_only(void)
{
	struct handle h;
	unsigned char before[100], buf[100], after[100];
	struct iovec iov = { buf, sizeof(buf) };

	handle_fill(&h);
	handle_flush(&h);
	handle_close(&h);
	handle_open_readonly(&h);
	handle_read(&h, before, sizeof(before), 10);
	random_fill(buf, sizeof(buf));
	if (!h.driver.write)
		skip("write is NULL");
	doing("writing to a handle that was opened for reading");
	expect(h.driver.write(h.h, buf, sizeof(buf), 10) < 0,
	       "a handle that was opened for reading takes a write");
	expect(!h.driver.writev || h.driver.writev(h.h, &iov, 1, 10) < 0,
	       "a handle that was opened for reading takes a writev");
	handle_read(&h, after, sizeof(after), 10);
	expect(memcmp(before, after, sizeof(before)) == 0,
	       "a write that was refused has changed the store");
	expect(!handle_can(&h, UMMAP_CAP_WRITE | UMMAP_CAP_GROW),
	       "a handle that refuses to write has UMMAP_CAP_WRITE or UMMAP_CAP_GROW");
	handle_close(&h);
}
