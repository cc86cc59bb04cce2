/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A cache is two windows: one of storage, in which each owner has its share of the file as a mapping over cache+ and filepart,
 * and one of words. The layer's windows do the rest: ranks of the same machine reach a share by copies, others by MPI. Both
 * are in an epoch of locks that all share, as long as they are there.
 *
 * A head is open from when all shares are, until the file has all or what it lacks is durable in the near file. It is written
 * before a share is made and after it has ended; a job that dies between finds the caches either whole or with nothing in them.
 */
#include "iocache/cached.h"

#include "common/random.h"
#include "iocache/guard.h"
#include "window/region.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <time.h>
#include <ummap.h>
#include <unistd.h>

#define BLOCK ((uint64_t)64 << 10)     /* of a cache; parts are of whole blocks */
#define SEGMENT "65536"
#define TURN ((uint64_t)1 << 20)       /* of what a file grows by, a node's at a time */
#define GROWTH ((uint64_t)64 << 30)    /* of all nodes together; what is behind it has no cache */
#define LEAST ((uint64_t)2 << 20)      /* of a near file */
#define MORE ((uint64_t)64 << 20)      /* than a share has, for what the file grows by */
#define MOST ((uint64_t)1 << 30)
#define MAX_CUT_BYTES ((int64_t)16 << 20) /* of a file that is cut while its shares stay: zeros are written in their place */
#define ENDS_PER_FLUSH 64              /* nodes whose ends are got together */
#define NAP 100000                     /* ns that a helper sleeps when nobody asks */

/* ---- Opening ---- */

static struct spread make_spread(const struct cached *c, uint64_t size)
{
	uint64_t n = (uint64_t)c->nodes.n;
	struct spread s = { .nodes = (uint32_t)n, .stripe = c->config.stripe ? c->config.stripe : TURN };

	if (!c->config.stripe)
		s.part = (size / n + (size % n != 0) + BLOCK - 1) / BLOCK * BLOCK;
	s.room = GROWTH / n + (c->config.stripe ? size / n : 0);
	s.room = s.part + (s.room + s.stripe - 1) / s.stripe * s.stripe;
	return s;
}

/* As much as the share has, and some more, as far as there is half of the folder's room; owners may have one folder together. */
static uint64_t near_size(const struct cached *c, uint64_t share)
{
	uint64_t size = share + share / 8 + MORE, room;
	struct statvfs fs;

	if (c->config.size)
		return c->config.size;
	size = size < MOST ? size : MOST;
	if (fstatvfs(c->folder, &fs) < 0)
		return size;
	room = fs.f_bavail * fs.f_frsize / 2 / (uint64_t)c->nodes.n;
	room = room > LEAST ? room : LEAST;
	return size < room ? size : room;
}

/* For tests: "filter+?keys". */
struct filters {
	int len;                 /* of the names */
	const char *names, *keys, *and;
};

static struct filters filters_of(const char *variable)
{
	const char *text = secure_getenv(variable), *keys = text ? strchr(text, '?') : NULL;

	return keys ? (struct filters){ (int)(keys - text), text, keys + 1, "&" } : (struct filters){ 0, "", "", "" };
}

/* The hints for the window of storage. */
static int make_info(const struct cached *c, uint64_t near, MPI_Info *info)
{
	char driver[512], file[128], head[160], text[16], size[40] = "";
	const struct config *f = &c->config;
	struct filters before = filters_of("UMMAP_IOCACHE_NEAR"), far = filters_of("UMMAP_IOCACHE_FAR");
	int code = PMPI_Info_create(info);

	if (code != MPI_SUCCESS)
		return code;
	former_name(file, sizeof(file), c, c->nodes.mine, "");
	if (near)
		snprintf(size, sizeof(size), "&cache.size=%llu", (unsigned long long)near);
	snprintf(driver, sizeof(driver), "%.*scache+%.*sfilepart:?%s%s%s%scache.path=/proc/self/fd/%d/%s.cache&cache.dirty=90,%d%s%s%s",
		 before.len, before.names, far.len, far.names, before.keys, before.and, far.keys, far.and, c->folder, file, f->flush,
		 f->populate ? "&cache.populate=background" : "", f->keep ? "&cache.close=keep" : "", size);
	snprintf(head, sizeof(head), "/proc/self/fd/%d/%s.head", c->folder, file);
	snprintf(text, sizeof(text), "%d", f->flush / 2 > 0 ? f->flush / 2 : 1);
	PMPI_Info_set(*info, "alloc_type", "storage");
	PMPI_Info_set(*info, "storage_alloc_driver", driver);
	PMPI_Info_set(*info, "storage_alloc_filename", head);
	PMPI_Info_set(*info, "storage_alloc_segsize", SEGMENT);
	PMPI_Info_set(*info, "storage_alloc_syncfreq", f->flush == CONFIG_AT_CLOSE ? "never" : text);
	/* All is durable before it ends, and Win_free is not to fail. */
	PMPI_Info_set(*info, "storage_alloc_discard", "true");
	return MPI_SUCCESS;
}

void share_explain(struct error *e, int code)
{
	char text[MPI_MAX_ERROR_STRING];
	int len, class = MPI_ERR_OTHER;

	if (code == MPI_SUCCESS)
		return;
	pmpi_first.Error_string(code, text, &len);
	PMPI_Error_class(code, &class);
	error_set(e, class, "%s", text);
}

/* The folder by the name that it has on each node, not by a descriptor of who tells of it. */
static void name_folder(const struct cached *c, struct error *e)
{
	static const char descriptor[] = "/proc/self/fd/";
	char text[sizeof(e->text)];
	char *at = strstr(e->text, descriptor);

	if (!at)
		return;
	snprintf(text, sizeof(text), "%s", at + strlen(descriptor) + strspn(at + strlen(descriptor), "0123456789"));
	snprintf(at, sizeof(e->text) - (size_t)(at - e->text), "%.120s%s", c->config.path, text);
}

static void open_window(struct cached *c, MPI_Aint size, int unit, MPI_Info info, void *base, MPI_Win *win, struct error *e)
{
	int code;

	/* Who asks is neither Fortran nor a library of coarrays. */
	pmpi_caller = __builtin_return_address(0);
	code = pmpi_first.Win_allocate(size, unit, info, c->comm, base, win);
	share_explain(e, code);
	name_folder(c, e);
	if (code != MPI_SUCCESS) {
		*win = MPI_WIN_NULL;
		return;
	}
	PMPI_Win_set_errhandler(*win, MPI_ERRORS_RETURN);
	pmpi_first.Win_lock_all(MPI_MODE_NOCHECK, *win);
}

/* Hints for a window of words: memory, but one that the layer reaches as it does those of storage. No file is made of the name. */
static void words_info(MPI_Info *info)
{
	PMPI_Info_create(info);
	PMPI_Info_set(*info, "alloc_type", "storage");
	PMPI_Info_set(*info, "storage_alloc_filename", "words");
	PMPI_Info_set(*info, "storage_alloc_factor", "1");
	PMPI_Info_set(*info, "storage_alloc_discard", "true");
}

static void open_words(struct cached *c, int64_t size, struct error *e)
{
	struct share *s = &c->share;
	MPI_Info info;
	void *base = NULL;

	words_info(&info);
	open_window(c, c->nodes.owns ? WORDS * sizeof(int64_t) : 0, sizeof(int64_t), info, &base, &s->words, e);
	PMPI_Info_free(&info);
	if (s->words == MPI_WIN_NULL)
		return;
	s->word = c->nodes.owns ? base : NULL;
	for (int i = 0; s->word && i < WORDS; i++)
		atomic_store(&s->word[i], i == WORD_END ? size : 0);
	for (int i = 0; i < c->nodes.n; i++)
		atomic_store(&s->end[i], size);
	atomic_store(&s->size, size);
	pmpi_first.Win_sync(s->words);
}

static void open_data(struct cached *c, uint64_t near, struct error *e)
{
	struct share *s = &c->share;
	void *base = NULL;
	MPI_Info info;
	int code = make_info(c, near, &info);

	share_explain(e, code);
	if (code != MPI_SUCCESS)
		return;
	open_window(c, c->nodes.owns ? (MPI_Aint)s->spread.room : 0, 1, info, &base, &s->data, e);
	PMPI_Info_free(&info);
	s->base = c->nodes.owns && s->data != MPI_WIN_NULL ? base : NULL;
}

/* An owner's head: that of an earlier job, or one with nothing behind it yet. */
static void open_head(struct cached *c, const struct head *head, bool earlier, struct error *e)
{
	char name[128], path[160], cache[160];
	int err;

	former_name(name, sizeof(name), c, c->nodes.mine, "");
	snprintf(path, sizeof(path), "/proc/self/fd/%d/%s.head", c->folder, name);
	snprintf(cache, sizeof(cache), "/proc/self/fd/%d/%s.cache", c->folder, name);
	/* A cache without a head is of a job that died while it dropped both. */
	if (!earlier)
		unlink(cache);
	err = head_open(path, earlier ? NULL : head, &c->share.head);
	if (err)
		error_errno(e, -err, "cannot open the header '%s/%s.head': %s", c->config.path,
			    name,
			    err == -EBUSY ? "another process uses it, or this job has the file "
					    "open twice"
					  : strerror(-err));
}

static void set_state(struct head_file *file, enum head_state state, const struct head_facts *facts, struct error *e)
{
	int err;

	pthread_mutex_lock(&file->lock);
	file->head.state = state;
	if (facts) {
		file->head.facts = *facts;
		file->head.wrote = 0;
	}
	err = head_write(file);
	pthread_mutex_unlock(&file->lock);
	if (err)
		error_errno(e, -err, "cannot write the header of the cache of '%s': %s",
			    file->head.path, strerror(-err));
}

/* ---- What others have written becomes durable ---- */

/* Lock: none. Only words are shared with who asks. */
static void *help(void *arg)
{
	struct cached *c = arg;
	struct share *s = &c->share;
	struct timespec nap = { .tv_nsec = NAP };

	while (!s->stop) {
		int64_t asked = atomic_load(&s->word[WORD_ASKED]);
		struct error e = { 0 };

		if (asked == atomic_load(&s->word[WORD_DURABLE])) {
			nanosleep(&nap, NULL);
			continue;
		}
		share_sync(c, &e);
		atomic_store(&s->word[WORD_FAILED], e.class);
		atomic_store(&s->word[WORD_DURABLE], asked);
	}
	return NULL;
}

static void start_helper(struct cached *c, struct error *e)
{
	struct share *s = &c->share;
	int err;

	if (!c->config.durable_write || !s->word || c->ranks == 1)
		return;
	s->stop = false;
	err = pthread_create(&s->helper, NULL, help, c);
	s->has_helper = !err;
	if (err)
		error_errno(e, err, "cannot start a thread for the cache of '%s': %s", c->path,
			    strerror(err));
}

static void stop_helper(struct share *s)
{
	s->stop = true;
	if (s->has_helper)
		pthread_join(s->helper, NULL);
	s->has_helper = false;
}

/* ---- All of it ---- */

/* The same for all caches that belong together. */
static uint64_t new_job(struct cached *c)
{
	uint64_t job = c->rank == 0 ? random_id() : 0;

	PMPI_Bcast(&job, 1, MPI_UINT64_T, 0, c->comm);
	return job;
}

static void new_head(struct cached *c, struct head *head, const struct head_facts *facts)
{
	*head = (struct head){ .job = new_job(c), .end = facts->size, .facts = *facts, .node = (uint32_t)c->nodes.mine,
			       .state = HEAD_CLEAN, .spread = make_spread(c, facts->size) };
	snprintf(head->path, sizeof(head->path), "%s", c->path);
}

/* What all have in common of the heads that they have. */
static void agree_on_head(struct cached *c, struct head *head)
{
	uint64_t end = c->nodes.owns ? head->end : 0;

	PMPI_Bcast(&head->spread, sizeof(head->spread), MPI_BYTE, c->nodes.owner[0], c->comm);
	PMPI_Allreduce(MPI_IN_PLACE, &end, 1, MPI_UINT64_T, MPI_MAX, c->comm);
	head->end = end;
	c->share.spread = head->spread;
}

static void open_all(struct cached *c, bool *earlier, struct error *e)
{
	struct share *s = &c->share;
	struct head_facts facts;
	struct head head = { 0 };

	former_look(c, &facts, e);
	if (e->class == MPI_SUCCESS)
		*earlier = former_find(c, &facts, &head, e);
	if (e->class == MPI_SUCCESS && !*earlier) {
		former_look(c, &facts, e);
		new_head(c, &head, &facts);
	}
	if (e->class != MPI_SUCCESS)
		return;
	agree_on_head(c, &head);
	if (c->nodes.owns)
		open_head(c, &head, *earlier, e);
	error_agree(c->comm, e);
	if (e->class == MPI_SUCCESS)
		open_words(c, (int64_t)(head.end > facts.size ? head.end : facts.size), e);
	if (e->class == MPI_SUCCESS && s->head)
		s->head->end = &s->word[WORD_END];
	if (e->class == MPI_SUCCESS)
		open_data(c, *earlier ? 0 : near_size(c, spread_size(&s->spread, 0, facts.size)), e);
	/* That is the same at all ranks. */
	if (e->class != MPI_SUCCESS)
		return;
	start_helper(c, e);
	if (e->class == MPI_SUCCESS && s->head)
		set_state(s->head, HEAD_OPEN, NULL, e);
	error_agree(c->comm, e);
}

static void free_window(MPI_Win *win)
{
	if (*win == MPI_WIN_NULL)
		return;
	pmpi_first.Win_unlock_all(*win);
	pmpi_first.Win_free(win);
	*win = MPI_WIN_NULL;
}

/* The windows, and what there was for them. The data first: what is written back asks where the file ends. */
static void close_all(struct cached *c)
{
	struct share *s = &c->share;

	stop_helper(s);
	free_window(&s->data);
	if (s->head) {
		pthread_mutex_lock(&s->head->lock);
		if (s->word && (uint64_t)s->word[WORD_END] > s->head->head.end)
			s->head->head.end = (uint64_t)s->word[WORD_END];
		s->head->end = NULL;
		pthread_mutex_unlock(&s->head->lock);
	}
	free_window(&s->words);
	s->base = NULL;
	s->word = NULL;
}

static void unlink_own(const struct cached *c)
{
	char name[128];

	former_name(name, sizeof(name), c, c->nodes.mine, ".cache");
	unlinkat(c->folder, name, 0);
	former_name(name, sizeof(name), c, c->nodes.mine, ".head");
	unlinkat(c->folder, name, 0);
}

static void release(struct cached *c)
{
	if (c->share.head)
		head_close(c->share.head);
	c->share.head = NULL;
	free(c->share.end);
	c->share.end = NULL;
}

/* Collective: whether no share has anything that the file lacks, so that all of them may go. */
static bool all_clean(const struct cached *c)
{
	const struct head_file *head = c->share.head;
	int clean = !c->nodes.owns || (head && head_lacks_nothing(&head->head));

	PMPI_Allreduce(MPI_IN_PLACE, &clean, 1, MPI_INT, MPI_MIN, c->comm);
	return clean;
}

/* Returns whether caches of an earlier job were in the way, and went. */
static bool open_once(struct cached *c, struct error *e)
{
	struct share *s = &c->share;
	bool earlier = false, clean;

	*s = (struct share){ .data = MPI_WIN_NULL, .words = MPI_WIN_NULL };
	s->end = calloc((size_t)c->nodes.n, sizeof(*s->end));
	if (!s->end)
		error_errno(e, ENOMEM, "cannot allocate the cache of '%s': %s", c->path,
			    strerror(ENOMEM));
	error_agree(c->comm, e);
	if (e->class == MPI_SUCCESS)
		open_all(c, &earlier, e);
	if (e->class == MPI_SUCCESS)
		return false;
	close_all(c);
	clean = all_clean(c);
	if (clean && s->head)
		unlink_own(c);
	release(c);
	PMPI_Barrier(c->comm);
	return clean && earlier;
}

void share_open(struct cached *c, struct error *e)
{
	/* Damaged ones of which the file has all are no reason to fail. */
	if (open_once(c, e)) {
		*e = (struct error){ 0 };
		open_once(c, e);
	}
}

/* The file has all that the caches had; or what it lacks is known. */
static void end_heads(struct cached *c, enum share_end how, struct error *e)
{
	struct head_facts facts;

	former_look(c, &facts, e);
	if (e->class == MPI_SUCCESS && c->share.head)
		set_state(c->share.head, how == SHARE_KEEP && facts.ino ? HEAD_KEPT : HEAD_CLEAN, &facts, e);
	/* Nobody misses what is in a cache that goes. */
	if (e->class == MPI_SUCCESS && c->share.head && (how == SHARE_DROP || !facts.ino))
		unlink_own(c);
	error_agree(c->comm, e);
}

void share_close(struct cached *c, enum share_end how, struct error *e)
{
	struct share *s = &c->share;
	/* What is closed to be kept is written back by opening it once more. */
	bool twice = how == SHARE_FLUSH && c->config.keep;
	int err = 0;

	PMPI_Barrier(c->comm);
	if (how != SHARE_DROP)
		share_sync(c, e);
	error_agree(c->comm, e);
	if (s->head)
		s->head->failed = 0;
	close_all(c);
	if (s->head)
		err = s->head->failed ? s->head->failed : region_ended_with();
	if (err && how == SHARE_FLUSH && !twice)
		error_errno(e, err,
			    "cannot write back '%s': %s. The cache in '%s' keeps the changes. Try "
			    "'ummap iocache flush', or to open the file again",
			    c->path, strerror(err), c->config.path);
	error_agree(c->comm, e);
	if (e->class == MPI_SUCCESS || how == SHARE_DROP)
		end_heads(c, twice ? SHARE_KEEP : how, e);
	release(c);
	/* Who opens them next finds none of them locked. */
	PMPI_Barrier(c->comm);
	if (twice && e->class == MPI_SUCCESS)
		former_flush(c, e);
}

/* ---- While it is open ---- */

/* Under the lock of the head. */
static int mark(struct head_file *head)
{
	int err = 0;

	if (!head->head.wrote) {
		head->head.wrote = 1;
		err = head_write(head);
		head->head.wrote = !err;
	}
	return err;
}

void share_mark(struct cached *c, struct error *e)
{
	struct head_file *head = c->share.head;
	int err;

	if (!head)
		return;
	pthread_mutex_lock(&head->lock);
	err = mark(head);
	pthread_mutex_unlock(&head->lock);
	if (err)
		error_errno(e, -err, "cannot write the header of the cache of '%s': %s", c->path,
			    strerror(-err));
}

void share_sync(struct cached *c, struct error *e)
{
	struct head_file *head = c->share.head;
	uint64_t end;
	int err = 0;

	if (!c->share.base)
		return;
	end = (uint64_t)atomic_load(&c->share.word[WORD_END]);
	if (umsync(c->share.base, 0) < 0) {
		error_errno(e, errno, "cannot sync the cache of '%s': %s", c->path, umerrormsg());
		return;
	}
	pthread_mutex_lock(&head->lock);
	/* Some of it was written past the caches. */
	if (end > c->share.spread.room * c->share.spread.nodes)
		err = mark(head);
	if (!err && end > head->head.end) {
		uint64_t was = head->head.end;

		head->head.end = end;
		err = head_write(head);
		head->head.end = err ? was : end;
	}
	pthread_mutex_unlock(&head->lock);
	if (err)
		error_errno(e, -err, "cannot write the header of the cache of '%s': %s", c->path,
			    strerror(-err));
}

static int word_op(struct cached *c, int node, enum word word, int64_t value, MPI_Op op, int64_t *was)
{
	MPI_Win win = c->share.words;
	int rank = c->nodes.owner[node];
	struct pmpi_operation fetch = { .from = &value, .to = was, .type = MPI_INT64_T, .rank = rank,
					.disp = word, .op = op, .win = win };
	int code = pmpi_first.Fetch_and_op(&fetch);

	return code == MPI_SUCCESS ? pmpi_first.Win_flush(rank, win) : code;
}

int64_t share_word(struct cached *c, int node, enum word word, int64_t value, MPI_Op op, struct error *e)
{
	int64_t was = 0;

	share_explain(e, word_op(c, node, word, value, op, &was));
	return was;
}

/* Threads of a rank may read the same end in any order, so the greatest value is kept. */
static void raise_to(_Atomic int64_t *known, int64_t value)
{
	int64_t was = atomic_load(known);

	while (was < value && !atomic_compare_exchange_weak(known, &was, value))
		;
}

/* Gets the ends of n nodes from node `begin` on. MPI writes to memory of this call alone, because
 * other threads read the known ends. */
static int get_ends(struct cached *c, int begin, int n)
{
	struct share *s = &c->share;
	int64_t ends[ENDS_PER_FLUSH] = { 0 };
	struct pmpi_operation get = { .to_n = 1, .to_type = MPI_INT64_T, .disp = WORD_END,
				      .target_n = 1, .target_type = MPI_INT64_T, .win = s->words };
	int code = MPI_SUCCESS;

	for (int i = 0; i < n && code == MPI_SUCCESS; i++) {
		get.to = &ends[i];
		get.rank = c->nodes.owner[begin + i];
		code = pmpi_first.Get(&get);
	}
	/* Also what was begun before an error is in this memory. */
	if (code == MPI_SUCCESS)
		code = pmpi_first.Win_flush_all(s->words);
	else
		pmpi_first.Win_flush_all(s->words);
	for (int i = 0; i < n && code == MPI_SUCCESS; i++) {
		raise_to(&s->end[begin + i], ends[i]);
		raise_to(&s->size, ends[i]);
	}
	return code;
}

int64_t share_size(struct cached *c, struct error *e)
{
	int code = MPI_SUCCESS;

	for (int i = 0; i < c->nodes.n && code == MPI_SUCCESS; i += ENDS_PER_FLUSH)
		code = get_ends(c, i, c->nodes.n - i < ENDS_PER_FLUSH ? c->nodes.n - i : ENDS_PER_FLUSH);
	share_explain(e, code);
	return atomic_load(&c->share.size);
}

/* ---- A file that becomes shorter ---- */

bool share_can_cut(const struct cached *c, int64_t now, int64_t size)
{
	const struct spread *s = &c->share.spread;

	return now - size <= MAX_CUT_BYTES && (uint64_t)now <= s->room * s->nodes;
}

/* Notes in the header that this job may make the file shorter, in case the job dies meanwhile. */
static int note_cut(struct head_file *head, uint64_t size)
{
	struct head was = head->head;
	int err;

	if (was.wrote && was.facts.size <= size)
		return 0;
	head->head.wrote = 1;
	head->head.facts.size = was.facts.size < size ? was.facts.size : size;
	err = head_write(head);
	if (err) {
		head->head.wrote = was.wrote;
		head->head.facts.size = was.facts.size;
	}
	return err;
}

void share_begin_cut(struct cached *c, int64_t size, struct error *e)
{
	struct head_file *head = c->share.head;
	int err = 0;

	if (head) {
		pthread_mutex_lock(&head->lock);
		err = note_cut(head, (uint64_t)size);
		pthread_mutex_unlock(&head->lock);
	}
	if (err)
		error_errno(e, -err, "cannot write the header of the cache of '%s': %s", c->path, strerror(-err));
	error_agree(c->comm, e);
	if (head && e->class == MPI_SUCCESS) {
		pthread_mutex_lock(&head->lock);
		atomic_store(&c->share.word[WORD_END], size);
		while (head->writing)
			pthread_cond_wait(&head->idle, &head->lock);
		pthread_mutex_unlock(&head->lock);
	}
	PMPI_Barrier(c->comm);
}

void share_undo_cut(struct cached *c, int64_t now)
{
	if (c->share.word)
		atomic_store(&c->share.word[WORD_END], now);
	PMPI_Barrier(c->comm);
}

/* Writes zeros to those bytes of [from, to) of the file that are in this rank's share. */
static void zero_own(struct cached *c, int64_t from, int64_t to, struct error *e)
{
	static const char zeros[64 << 10];
	uint64_t at, run;

	for (int64_t off = from; off < to; off += (int64_t)run) {
		uint32_t node = spread_find(&c->share.spread, (uint64_t)off, &at, &run);
		char *here = c->share.base + at;

		run = run < (uint64_t)(to - off) ? run : (uint64_t)(to - off);
		run = run < sizeof(zeros) ? run : sizeof(zeros);
		if (c->nodes.owner[node] != c->rank || guard_copy(here, zeros, here, run))
			continue;
		/* The pin says why it could not be written. */
		if (umpin(here, run, PROT_READ | PROT_WRITE) < 0) {
			error_errno(e, errno, "cannot cut '%s': %s", c->path, umerrormsg());
			return;
		}
		memset(here, 0, run);
		umunpin(here, run);
	}
}

/* After zeros are durable, the header may say that the file ends before them. */
static void lower_head(struct cached *c, uint64_t size, struct error *e)
{
	struct head_file *head = c->share.head;
	uint64_t was;
	int err = 0;

	pthread_mutex_lock(&head->lock);
	was = head->head.end;
	if (was > size) {
		head->head.end = size;
		err = head_write(head);
		head->head.end = err ? was : size;
	}
	pthread_mutex_unlock(&head->lock);
	if (err)
		error_errno(e, -err, "cannot write the header of the cache of '%s': %s", c->path, strerror(-err));
}

void share_end_cut(struct cached *c, int64_t now, int64_t size, struct error *e)
{
	struct share *s = &c->share;

	if (s->base) {
		zero_own(c, size, now, e);
		if (e->class == MPI_SUCCESS)
			share_sync(c, e);
		if (e->class == MPI_SUCCESS)
			lower_head(c, (uint64_t)size, e);
	}
	for (int i = 0; i < c->nodes.n; i++)
		atomic_store(&s->end[i], size);
	atomic_store(&s->size, size);
	error_agree(c->comm, e);
}

int share_reach(struct cached *c, uint32_t node, int64_t end)
{
	struct share *s = &c->share;
	int64_t was = 0;
	int code;

	if (end <= atomic_load(&s->end[node]))
		return MPI_SUCCESS;
	code = word_op(c, (int)node, WORD_END, end, MPI_MAX, &was);
	if (code != MPI_SUCCESS)
		return code;
	raise_to(&s->end[node], was > end ? was : end);
	raise_to(&s->size, was > end ? was : end);
	return MPI_SUCCESS;
}

void share_commit(struct cached *c, uint32_t node, struct error *e)
{
	struct timespec nap = { .tv_nsec = NAP / 2 };
	int64_t asked, done;

	if (c->rank == c->nodes.owner[node]) {
		share_sync(c, e);
		return;
	}
	asked = share_word(c, (int)node, WORD_ASKED, 1, MPI_SUM, e) + 1;
	for (done = 0; e->class == MPI_SUCCESS;) {
		done = share_word(c, (int)node, WORD_DURABLE, 0, MPI_NO_OP, e);
		if (done >= asked)
			break;
		nanosleep(&nap, NULL);
	}
	if (e->class == MPI_SUCCESS && share_word(c, (int)node, WORD_FAILED, 0, MPI_NO_OP, e))
		error_set(e, MPI_ERR_IO,
			  "cannot make a write to '%s' durable: rank %d could not sync its part of "
			  "the cache",
			  c->path, c->nodes.owner[node]);
}

/* It has a word, for a lock may be taken no sooner than something is done with it. */
void share_lock_window(struct cached *c, struct error *e)
{
	MPI_Info info;
	void *base;

	words_info(&info);
	pmpi_caller = __builtin_return_address(0);
	share_explain(e, pmpi_first.Win_allocate(c->rank == 0 ? sizeof(int64_t) : 0, sizeof(int64_t), info, c->comm, &base, &c->turn));
	PMPI_Info_free(&info);
	if (e->class == MPI_SUCCESS)
		PMPI_Win_set_errhandler(c->turn, MPI_ERRORS_RETURN);
}
