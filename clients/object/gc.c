/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Garbage. A version that can be claimed is held by nobody, and nobody names it; it stays claimed until it is gone, so that nobody begins to
 * hold it. Chunks stay as long as a version that is alive refers to them: each one that cannot be claimed is asked. A version that is made
 * from another one holds that, so what it will refer to is referred to all the time. Chunks come to be after their version, and go before
 * it.
 */
#include "object/gc.h"

#include "object/error.h"
#include "object/id.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A version that is garbage, and claimed. */
struct dead {
	struct umobject_id id;
	struct lease *claim;
};

struct collection {
	struct backend *b;
	struct dead *dead;
	size_t ndead;
	uint64_t gone;              /* versions that were removed as they were claimed */
	struct source *refers;      /* chunks that somebody needs: sorted when all are there */
	size_t nrefers;
	struct umobject_id *asked;  /* versions that are alive, and have said what they need; sorted too */
	size_t nasked;
	struct umobject_id *seen;   /* all that were looked at, sorted as far as `nsorted` */
	size_t nseen, nsorted;
	bool failed;                /* it could not be found out whether a version is there */
};

/* A version whose chunks are not known yet needs all of its id. */
#define ALL UINT64_MAX

/* All that is sorted here begins with an id. */
static int by_id(const void *a, const void *b)
{
	return memcmp(a, b, sizeof(struct umobject_id));
}

static void sort(void *list, size_t n, size_t size)
{
	if (n)
		qsort(list, n, size, by_id);
}

static bool is_in(const void *list, size_t n, size_t size, const struct umobject_id *id)
{
	return n && bsearch(id, list, n, size, by_id);
}

/* The first that has this id, or a greater one. */
static size_t first_of(const struct collection *c, const struct umobject_id *id)
{
	size_t low = 0, high = c->nrefers;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (memcmp(&c->refers[middle].id, id, sizeof(*id)) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static bool needed(const struct collection *c, const struct umobject_id *id, uint64_t number)
{
	size_t i;

	for (i = first_of(c, id); i < c->nrefers && id_same(&c->refers[i].id, id); i++)
		if (number - c->refers[i].first < c->refers[i].count)
			return true;
	return false;
}

/* One more at the end of a list, whose room doubles; false: no memory. */
static bool append(void *list, size_t *n, size_t size, const void *what)
{
	char *grown = *n & (*n - 1) ? *(char **)list : realloc(*(void **)list, (*n ? 2 * *n : 1) * size);

	if (!grown)
		return false;
	memcpy(grown + *n * size, what, size);
	*(void **)list = grown;
	++*n;
	return true;
}

static bool add_references(struct collection *c, const struct object *o)
{
	size_t i;

	for (i = 0; i < o->nsources; i++)
		if (!append(&c->refers, &c->nrefers, sizeof(*o->sources), &o->sources[i]))
			return false;
	/* A put that is under way has chunks of which only the back end knows. */
	return o->version || append(&c->refers, &c->nrefers, sizeof(struct source), &(struct source){ o->id, 0, ALL });
}

/* What a version that is alive refers to. One that is damaged may refer to anything; one that has nothing in it yet is only itself. */
static int ask(struct collection *c, const struct umobject_id *id, const void *bytes, size_t size)
{
	char name[ID_TEXT];
	struct object *o;
	bool asked;

	id_text(id, name);
	o = size ? object_unpack(bytes, size, name) : NULL;
	if (size && !o && errno == EBADMSG)
		return object_fail(EBADMSG, "cannot tell which chunks are in use, because version "
				   "'%s' is damaged. Nothing was removed", name);
	asked = o ? add_references(c, o) :
		!size && append(&c->refers, &c->nrefers, sizeof(struct source), &(struct source){ *id, 0, ALL });
	object_free(o);
	asked = asked && append(&c->asked, &c->nasked, sizeof(*id), id);
	return asked ? 0 : object_fail(ENOMEM, "cannot list the chunks in use: no memory");
}

static int look_at(void *arg, const struct umobject_id *id)
{
	struct collection *c = arg;
	struct lease *claim;
	void *bytes;
	size_t size;
	int result;

	if (is_in(c->seen, c->nsorted, sizeof(*c->seen), id))
		return 0;
	if (!append(&c->seen, &c->nseen, sizeof(*c->seen), id))
		return object_fail(ENOMEM, "cannot list the versions: no memory");
	if (c->b->ops->version_claim(c->b, id, &claim, &bytes, &size) == 0) {
		c->gone += !claim;
		if (!claim)
			return 0;
		if (append(&c->dead, &c->ndead, sizeof(struct dead), &(struct dead){ *id, claim }))
			return 0;
		c->b->ops->release(c->b, claim);
		return object_fail(ENOMEM, "cannot list the versions: no memory");
	}
	if (errno != EBUSY)
		return errno == ENOENT ? 0 : -1;
	result = ask(c, id, bytes, size);
	free(bytes);
	return result;
}

/* Of a version that began after the others were asked, nothing goes. */
static bool may_go(void *arg, const struct umobject_id *id, uint64_t number)
{
	struct collection *c = arg;
	bool there;

	if (needed(c, id, number))
		return false;
	if (is_in(c->dead, c->ndead, sizeof(*c->dead), id) || is_in(c->asked, c->nasked, sizeof(*c->asked), id))
		return true;
	if (c->b->ops->version_there(c->b, id, &there) < 0) {
		c->failed = true;
		return false;
	}
	return !there;
}

/* More than commits can follow each other while each is just under way. */
#define LOOKS 10

/* A list may leave out what comes in the place of something else meanwhile (readdir(3) of tmpfs does), as a version does that is
 * committed. That happens to it once, so the next list has it; and of what is made from others after that, these others are known. */
static int look_around(struct collection *c)
{
	unsigned looks = 0;
	size_t before;

	do {
		before = c->nseen;
		if (c->b->ops->all_versions(c->b, look_at, c) != 0)
			return -1;
		sort(c->seen, c->nseen, sizeof(*c->seen));
		c->nsorted = c->nseen;
	} while (c->nseen > before && ++looks < LOOKS);
	return 0;
}

static int collect(struct collection *c, struct umobject_garbage *removed)
{
	if (look_around(c) < 0)
		return -1;
	sort(c->refers, c->nrefers, sizeof(*c->refers));
	sort(c->asked, c->nasked, sizeof(*c->asked));
	sort(c->dead, c->ndead, sizeof(*c->dead));
	return c->b->ops->sweep(c->b, may_go, c, removed) < 0 || c->failed ? -1 : 0;
}

/* Its chunks may be needed though nobody needs the version: these are found by their own. */
static void end_claims(struct collection *c, bool remove, struct umobject_garbage *removed)
{
	size_t i;

	for (i = 0; i < c->ndead; i++) {
		if (remove) {
			c->b->ops->version_remove(c->b, c->dead[i].claim);
			removed->versions++;
		} else {
			c->b->ops->release(c->b, c->dead[i].claim);
		}
	}
}

int gc_all(struct backend *b, struct umobject_garbage *removed)
{
	struct collection c = { .b = b };
	void *lock = NULL;
	int result, error;

	/* Who collects keeps others from doing so. */
	if (b->ops->name_lock && b->ops->name_lock(b, "", &lock) < 0)
		return -1;
	result = collect(&c, removed);
	error = errno;
	end_claims(&c, result == 0, removed);
	removed->versions += c.gone;
	if (b->ops->name_unlock)
		b->ops->name_unlock(b, lock);
	free(c.dead);
	free(c.refers);
	free(c.asked);
	free(c.seen);
	errno = error;
	return result;
}

void gc_version(struct backend *b, const struct umobject_id *id, const struct source *own, size_t n)
{
	struct lease *claim;
	void *bytes;
	size_t size, i;

	if (b->ops->version_claim(b, id, &claim, &bytes, &size) < 0) {
		if (errno == EBUSY)
			free(bytes);
		return;
	}
	for (i = 0; i < n; i++) {
		if (b->ops->chunks_remove(b, id, own[i].first, own[i].count) < 0) {
			if (claim)
				b->ops->release(b, claim);
			return;
		}
	}
	if (claim)
		b->ops->version_remove(b, claim);
}
