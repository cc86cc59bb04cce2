/* SPDX-License-Identifier: BSD-3-Clause */
#include "coarray/earlier.h"

#include "common/uri_encode.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ummap.h>
#include <unistd.h>

#define MAX_URI 4000

__attribute__((format(printf, 2, 3))) static bool fail(struct earlier *x, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(x->wrong, sizeof(x->wrong), format, args);
	va_end(args);
	return false;
}

/* ---- The manifest ---- */

/* Without the manifest, the copy of image 1 is used. */
static bool read_manifest(struct earlier *x)
{
	char path[MANIFEST_PATH], *text;
	const char *wrong;

	manifest_path(path, &x->names);
	text = manifest_read_text(path);
	if (!text && errno == ENOENT) {
		manifest_copy(path, &x->names, 1);
		text = manifest_read_text(path);
		if (!text)
			manifest_path(path, &x->names);
	}
	if (!text)
		return fail(x, "cannot read the manifest '%s': %s", path,
			    errno == ENODATA ? "it is empty" : strerror(errno));
	wrong = manifest_read(&x->manifest, text);
	free(text);
	x->names.shared = x->manifest.shared_file;
	return wrong ? fail(x, "cannot use the manifest '%s': %s", path, wrong) : true;
}

/* ---- Stores ---- */

/* commit: the commit number to open; 0: the newest one. */
static bool open_commit(struct earlier *x, const struct entry *entry, int image, uint64_t commit,
			struct view *v)
{
	char uri[MAX_URI], path[MANIFEST_PATH], log[MANIFEST_PATH];
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	size_t len;
	void *base;

	*v = (struct view){ 0 };
	manifest_file(path, &x->names, image, entry);
	manifest_log(log, &x->names, image, entry);
	if (access(path, F_OK) < 0)
		return errno == ENOENT || fail(x, "cannot find '%s': %s", path, strerror(errno));
	len = (size_t)sprintf(uri, "wal+posix:");
	len += uri_encode(uri + len, sizeof(uri) - len, path);
	len += (size_t)sprintf(uri + len, "?wal.path=");
	len += uri_encode(uri + len, sizeof(uri) - len, log);
	if (commit)
		sprintf(uri + len, "&wal.commit=%" PRIu64, commit);
	attr.seg_size = x->seg_size;
	if (ummap_open(uri, entry_room(entry), (off_t)entry->at, PROT_READ, &attr, &base) < 0)
		return fail(x, "%s", umerrormsg());
	v->base = base;
	if (umcommits(base, &v->oldest, &v->newest) < 0) {
		earlier_close_view(v);
		return fail(x, "%s", umerrormsg());
	}
	v->whole = entry_is_whole(entry, entry_trailer(v->base, entry));
	v->epoch = v->whole ? entry_trailer(v->base, entry)->epoch : 0;
	return true;
}

bool earlier_view(struct earlier *x, const struct entry *entry, int image, struct view *v)
{
	return open_commit(x, entry, image, 0, v);
}

void earlier_close_view(const struct view *v)
{
	if (v->base)
		umunmap(v->base, 0);
}

static bool find_epoch(struct earlier *x)
{
	uint64_t common = UINT64_MAX;

	for (int image = 1; image <= x->manifest.images; image++) {
		for (size_t i = 0; i < x->manifest.n; i++) {
			const struct entry *entry = &x->manifest.entries[i];
			uint64_t before = entry->since ? entry->since - 1 : 0;
			struct view v;

			if (entry->small || entry->state != ENTRY_LIVE)
				continue;
			if (!earlier_view(x, entry, image, &v))
				return false;
			before = v.epoch > before ? v.epoch : before;
			common = before < common ? before : common;
			earlier_close_view(&v);
		}
	}
	x->epoch = common == UINT64_MAX ? 0 : common;
	return true;
}

bool earlier_open(struct earlier *x)
{
	return read_manifest(x) && find_epoch(x);
}

const char *earlier_contents(struct earlier *x, const struct entry *entry, int image,
			     struct view *v)
{
	const struct entry *mapped = entry->small ? manifest_find(&x->manifest, ENTRY_POOL) : entry;

	if (image < 1 || image > x->manifest.images) {
		fail(x, "cannot read image %d: the run had only images 1 to %d", image,
		     x->manifest.images);
		return NULL;
	}
	if (!earlier_view(x, mapped, image, v))
		return NULL;
	if (v->whole && mapped->state == ENTRY_LIVE && v->epoch > x->epoch) {
		uint64_t back = v->epoch - x->epoch, newest = v->newest;

		earlier_close_view(v);
		if (!open_commit(x, mapped, image, newest - back, v))
			return NULL;
	}
	if (v->whole && (!entry->small || entry->since <= v->epoch))
		return v->base + (entry->small ? entry->at : 0);
	earlier_close_view(v);
	fail(x, "cannot read coarray %u of image %d: no sync of all images includes it",
	     entry->order, image);
	return NULL;
}
