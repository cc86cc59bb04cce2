/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Identities of stores. Two handles are interchangeable only if they have the same file at their
 * end and the same filters and keys on the way: a filter decides where bytes go, and a key decides
 * how. Keys are compared as text, so two spellings of one value count as different, which costs
 * time and no data. Takes no lock.
 */
#include "io/identity.h"

#include "base/log.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int compare_keys(const void *a, const void *b)
{
	return strcmp(((const struct ummap_key *)a)->name, ((const struct ummap_key *)b)->name);
}

/* Whether a key has a relative path, which names another file after chdir(2). */
static bool is_relative_path(const struct ummap_uri *layer, const struct ummap_key *key)
{
	return layer->next && (strcmp(key->name, "path") == 0 || strcmp(key->name, "file") == 0) &&
	       *key->value != '/';
}

/* Writes each value with its length, so that no value can look like a key. */
static void put_layer(FILE *f, const struct ummap_uri *layer)
{
	struct ummap_key keys[URI_KEYS];
	char folder[PATH_MAX];

	memcpy(keys, layer->keys, layer->nkeys * sizeof(*keys));
	qsort(keys, layer->nkeys, sizeof(*keys), compare_keys);
	fprintf(f, "%s(", layer->scheme);
	for (unsigned i = 0; i < layer->nkeys; i++) {
		bool relative = is_relative_path(layer, &keys[i]) && getcwd(folder, sizeof(folder));

		fprintf(f, "%s=%zu:%s%s%s;", keys[i].name, strlen(keys[i].value),
			relative ? folder : "", relative ? "/" : "", keys[i].value);
	}
	fputc(')', f);
}

/* The text of all layers from number `from` on; NULL: no memory. */
static char *make_text(const struct uri *u, unsigned from, const char *path)
{
	char *text = NULL;
	size_t len;
	FILE *f = open_memstream(&text, &len);

	if (!f)
		return NULL;
	for (unsigned i = from; i < u->layers; i++)
		put_layer(f, &u->layer[i]);
	fputs(path, f);
	if (fclose(f) == 0)
		return text;
	free(text);
	return NULL;
}

static void find_file(struct identity *id, const char *path, int fd)
{
	struct stat st;

	if ((fd < 0 ? stat(path, &st) : fstat(fd, &st)) < 0)
		return;
	if (S_ISREG(st.st_mode)) {
		id->file[0] = st.st_dev;
		id->file[1] = st.st_ino;
	} else if (S_ISBLK(st.st_mode) || S_ISCHR(st.st_mode)) {
		/* A device may have several names. */
		id->file[0] = st.st_rdev;
		id->file[1] = UINT64_MAX;
	}
}

int identity_make(struct identity *id, const struct uri *u, int fd)
{
	const struct ummap_uri *last = &u->layer[u->layers - 1];

	*id = (struct identity){ .way = make_text(u, 0, "") };
	id->end = make_text(u, u->layers - 1, last->path);
	find_file(id, last->path, fd);
	if (id->way && id->end)
		return 0;
	identity_free(id);
	return fail(ENOMEM, "cannot identify the store: no memory");
}

int identity_of_handle(struct identity *id, const char *scheme)
{
	/* No URI has these texts: layers end with a parenthesis. */
	*id = (struct identity){ .way = strdup(scheme), .end = strdup(scheme) };
	return id->way && id->end ? 0 : fail(ENOMEM, "cannot identify the store: no memory");
}

void identity_free(struct identity *id)
{
	free(id->way);
	free(id->end);
	*id = (struct identity){ .way = NULL };
}

static bool has_same_file(const struct identity *a, const struct identity *b)
{
	return a->file[1] && a->file[0] == b->file[0] && a->file[1] == b->file[1];
}

bool identity_equal(const struct identity *a, const struct identity *b)
{
	return has_same_file(a, b) && strcmp(a->way, b->way) == 0;
}

/* Stores that are not files are compared by their URI. */
bool identity_meets(const struct identity *a, const struct identity *b)
{
	return has_same_file(a, b) || (!a->file[1] && !b->file[1] && strcmp(a->end, b->end) == 0);
}
