/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A cache has two windows. In the first, the window memory of each owner maps its part of the file
 * behind cache+. The second one has the words of enum word. Ranks of one machine copy from and to
 * parts directly, and other ranks use MPI. All ranks have locked both windows from the opening of
 * the cache to its end.
 *
 * A header has the state HEAD_OPEN from the time when all parts are open, until the file has all
 * data or the near file has them durably. The header is written before its part is made and after
 * the part has ended. If a job dies between these points, the parts are complete or have no data.
 */
#include "iocache/share.h"

#include "common/random.h"
#include "common/uri_encode.h"
#include "iocache/former.h"
#include "iocache/part.h"
#include "pmpi/pmpi.h"
#include "rma/shm.h"
#include "window/window.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <time.h>
#include <ummap.h>
#include <unistd.h>

#define PART_UNIT_BYTES ((uint64_t)64 << 10) /* contiguous parts are multiples of it */
#define SEGMENT_BYTES ((uint64_t)64 << 10)
#define GROWTH_STRIPE_BYTES ((uint64_t)1 << 20) /* stripe of the bytes by which a file grows */
#define MAX_GROWTH_BYTES ((uint64_t)64 << 30) /* of all nodes; bytes beyond it are not cached */
#define MIN_NEAR_BYTES ((uint64_t)2 << 20)
#define MAX_NEAR_BYTES ((uint64_t)1 << 30)    /* without pmem_size */
#define NEAR_RESERVE_BYTES ((uint64_t)64 << 20) /* room of a near file for growth */
#define MAX_CUT_BYTES ((int64_t)16 << 20) /* of a file that is cut while its parts stay open */
#define ENDS_PER_FLUSH 64              /* nodes whose WORD_END is read together */
#define POLL_SLEEP_NS 100000           /* the helper's sleep without requests */

/* ---- Opening ---- */

static struct spread make_spread(const struct cached *c, uint64_t size)
{
	uint64_t n = (uint64_t)c->nodes.n, stripe = c->config.stripe;
	struct spread s = { .nodes = (uint32_t)n, .stripe = stripe ? stripe : GROWTH_STRIPE_BYTES };

	if (!stripe)
		s.part = (size / n + (size % n != 0) + PART_UNIT_BYTES - 1) / PART_UNIT_BYTES *
			 PART_UNIT_BYTES;
	s.room = MAX_GROWTH_BYTES / n + (stripe ? size / n : 0);
	s.room = s.part + (s.room + s.stripe - 1) / s.stripe * s.stripe;
	return s;
}

/* The size of the near file: that of the part and a reserve, but at most half of the folder's free
 * space, which several owners may share. */
static uint64_t near_size(const struct cached *c, uint64_t part)
{
	uint64_t size = part + part / 8 + NEAR_RESERVE_BYTES, room;
	struct statvfs fs;

	if (c->config.size)
		return c->config.size;
	size = size < MAX_NEAR_BYTES ? size : MAX_NEAR_BYTES;
	if (!c->folder || statvfs(c->folder, &fs) < 0)
		return size;
	room = fs.f_bavail * fs.f_frsize / 2 / (uint64_t)c->nodes.n;
	room = room > MIN_NEAR_BYTES ? room : MIN_NEAR_BYTES;
	return size < room ? size : room;
}

/* Filters that tests put before and behind cache+: "filter+?keys". */
struct filters {
	int len;                 /* length of the names */
	const char *names, *keys, *mark;
};

static struct filters filters_of(const char *variable)
{
	const char *text = secure_getenv(variable), *keys = text ? strchr(text, '?') : NULL;

	return keys && keys > text ? (struct filters){ (int)(keys - text), text, keys + 1, "&" } :
				     (struct filters){ 0, "", "", "" };
}

/* The URI of the filters in front of a part. near: bytes of a new near file; 0: it exists. */
static void make_filters(const struct cached *c, uint64_t near, char uri[static PART_URI_BYTES])
{
	const struct config *f = &c->config;
	struct filters before = filters_of("UMMAP_TEST_IOCACHE_NEAR");
	struct filters far = filters_of("UMMAP_TEST_IOCACHE_FAR");
	char path[FORMER_PATH];
	size_t len;

	former_path(path, c, ".cache");
	/* The last filter's name has no '+' behind it. */
	len = (size_t)snprintf(uri, PART_URI_BYTES, "%.*scache%s%.*s:?%s%s%s%scache.path=",
			       before.len, before.names, far.len ? "+" : "",
			       far.len ? far.len - 1 : 0, far.names, before.keys, before.mark,
			       far.keys, far.mark);
	len += uri_encode(uri + len, PART_URI_BYTES - len, path);
	len += (size_t)snprintf(uri + len, PART_URI_BYTES - len, "&cache.dirty=90,%d%s%s", f->flush,
				f->populate ? "&cache.populate=background" : "",
				f->keep ? "&cache.close=keep" : "");
	if (near)
		snprintf(uri + len, PART_URI_BYTES - len, "&cache.size=%llu",
			 (unsigned long long)near);
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

/* Collective: makes a window of the memory that this rank has opened, or has failed to open. */
static void open_window(struct cached *c, int unit, struct share_window *w, struct error *e)
{
	struct window *made = window_over(w->memory, unit, c->comm, e);

	if (made) {
		w->win = made->win;
		share_explain(e, shm_open_window(made, unit));
		PMPI_Win_set_errhandler(w->win, MPI_ERRORS_RETURN);
	} else if (w->memory) {
		region_abandon(w->memory);
		w->memory = NULL;
	}
}

static void lock_window(struct share_window *w)
{
	pmpi_first.Win_lock_all(MPI_MODE_NOCHECK, w->win);
	w->is_locked = true;
}

/* Collective. Returns 0, or an errno value: see region_close. */
static int close_window(struct share_window *w)
{
	int err = 0;

	if (w->is_locked)
		pmpi_first.Win_unlock_all(w->win);
	if (w->win != MPI_WIN_NULL)
		pmpi_first.Win_free(&w->win);
	if (w->memory)
		err = region_close(w->memory);
	*w = (struct share_window){ .win = MPI_WIN_NULL };
	return err;
}

/* Collective: makes a window of `size` bytes of memory, which is reached as parts are. */
static void open_memory(struct cached *c, size_t size, struct share_window *w, struct error *e)
{
	struct hints h;

	hints_default(&h, c->comm);
	h.type = TYPE_STORAGE;
	h.factor = 1;
	h.discard = true;
	w->memory = region_open(size, &h, NULL, e);
	open_window(c, sizeof(int64_t), w, e);
}

static void open_words(struct cached *c, int64_t size, struct error *e)
{
	struct share *s = &c->share;

	open_memory(c, c->nodes.owns ? WORDS * sizeof(int64_t) : 0, &s->words, e);
	if (e->class != MPI_SUCCESS)
		return;
	lock_window(&s->words);
	s->word = (_Atomic int64_t *)(void *)s->words.memory->base;
	for (int i = 0; s->word && i < WORDS; i++)
		atomic_store(&s->word[i], i == WORD_END ? size : 0);
	for (int i = 0; i < c->nodes.n; i++)
		atomic_store(&s->end[i], size);
	atomic_store(&s->size, size);
	pmpi_first.Win_sync(s->words.win);
}

/* Opens an owner's part as window memory. */
static struct region *open_part(struct cached *c, const struct hints *h, uint64_t near,
				struct error *e)
{
	struct share *s = &c->share;
	struct region_store store = { .completes = true };
	char filters[PART_URI_BYTES];

	make_filters(c, near, filters);
	if (part_open_behind(filters, s->head, &store.driver, &store.handle, &store.geom) == 0)
		return region_open((size_t)s->spread.room, h, &store, e);
	error_errno(e, errno, "cannot open the cache of '%s': %s", c->path, umerrormsg());
	return NULL;
}

static void open_data(struct cached *c, uint64_t near, struct error *e)
{
	const struct config *f = &c->config;
	struct share *s = &c->share;
	struct hints h;

	hints_default(&h, c->comm);
	h.type = TYPE_STORAGE;
	h.segsize = SEGMENT_BYTES;
	h.syncfreq = f->flush == CONFIG_AT_CLOSE ? SYNC_NEVER : f->flush / 2 > 0 ? f->flush / 2 : 1;
	/* All data is durable before MPI_Win_free, which must not fail. */
	h.discard = true;
	snprintf(h.filename, sizeof(h.filename), "%s", c->path);
	s->data.memory = c->nodes.owns ? open_part(c, &h, near, e) : region_open(0, &h, NULL, e);
	open_window(c, 1, &s->data, e);
	if (e->class != MPI_SUCCESS)
		return;
	lock_window(&s->data);
	s->base = s->data.memory->base;
}

/* Opens an owner's header: that of an earlier job, or a new one without data. */
static void open_head(struct cached *c, const struct head *head, bool earlier, struct error *e)
{
	char path[FORMER_PATH], cache[FORMER_PATH];
	int err;

	former_path(path, c, ".head");
	former_path(cache, c, ".cache");
	/* A near file without a header is from a job that died while it removed both. */
	if (!earlier)
		unlink(cache);
	err = head_open(path, earlier ? NULL : head, &c->share.head);
	if (err)
		error_errno(e, -err, "cannot open the header '%s': %s", path,
			    err == -EBUSY ? "another process uses it, or this job has the file "
					    "open twice"
					  : strerror(-err));
}

static void set_head_error(const struct cached *c, int err, struct error *e)
{
	if (err)
		error_errno(e, -err, "cannot write the header of the cache of '%s': %m", c->path);
}

static void set_state(struct cached *c, enum head_state state, const struct head_facts *facts,
		      struct error *e)
{
	struct head_file *file = c->share.head;
	int err;

	pthread_mutex_lock(&file->lock);
	file->head.state = state;
	if (facts) {
		file->head.facts = *facts;
		file->head.wrote = 0;
	}
	err = head_write(file);
	pthread_mutex_unlock(&file->lock);
	set_head_error(c, err, e);
}

/* ---- The helper, which makes other ranks' writes durable ---- */

/* Takes no lock: requests and results are words. */
static void *serve_requests(void *arg)
{
	struct cached *c = arg;
	struct share *s = &c->share;
	struct timespec pause = { .tv_nsec = POLL_SLEEP_NS };

	while (!s->stop) {
		int64_t asked = atomic_load(&s->word[WORD_ASKED]);
		struct error e = { 0 };

		if (asked == atomic_load(&s->word[WORD_DURABLE])) {
			nanosleep(&pause, NULL);
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
	err = pthread_create(&s->helper, NULL, serve_requests, c);
	s->has_helper = !err;
	if (err)
		error_errno(e, err, "cannot start a thread for the cache of '%s': %m", c->path);
}

static void stop_helper(struct share *s)
{
	s->stop = true;
	if (s->has_helper)
		pthread_join(s->helper, NULL);
	s->has_helper = false;
}

/* ---- All of the cache ---- */

/* The same at all ranks: it marks the parts that belong together. */
static uint64_t new_job(struct cached *c)
{
	uint64_t job = c->rank == 0 ? random_id() : 0;

	PMPI_Bcast(&job, 1, MPI_UINT64_T, 0, c->comm);
	return job;
}

static void new_head(struct cached *c, struct head *head, const struct head_facts *facts)
{
	*head = (struct head){ .job = new_job(c), .end = facts->size, .facts = *facts,
			       .node = (uint32_t)c->nodes.mine, .state = HEAD_CLEAN,
			       .spread = make_spread(c, facts->size) };
	snprintf(head->path, sizeof(head->path), "%s", c->path);
}

/* All ranks get the layout of the headers, and their largest end. */
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
	uint64_t near;

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
	near = *earlier ? 0 : near_size(c, spread_size(&s->spread, 0, facts.size));
	if (e->class == MPI_SUCCESS)
		open_data(c, near, e);
	/* The error is the same at all ranks. */
	if (e->class != MPI_SUCCESS)
		return;
	start_helper(c, e);
	if (e->class == MPI_SUCCESS && s->head)
		set_state(c, HEAD_OPEN, NULL, e);
	error_agree(c->comm, e);
}

/*
 * Ends the windows, the data first: writing back the part needs the words for the end of the file.
 * Returns an errno value if the file lacks data that the near file has.
 */
static int close_all(struct cached *c)
{
	struct share *s = &c->share;
	int err;

	stop_helper(s);
	err = close_window(&s->data);
	if (s->head) {
		pthread_mutex_lock(&s->head->lock);
		if (s->word && (uint64_t)s->word[WORD_END] > s->head->head.end)
			s->head->head.end = (uint64_t)s->word[WORD_END];
		s->head->end = NULL;
		pthread_mutex_unlock(&s->head->lock);
	}
	close_window(&s->words);
	s->base = NULL;
	s->word = NULL;
	return err;
}

static void unlink_own(const struct cached *c)
{
	char path[FORMER_PATH];

	former_path(path, c, ".cache");
	unlink(path);
	former_path(path, c, ".head");
	unlink(path);
}

static void release(struct cached *c)
{
	if (c->share.head)
		head_close(c->share.head);
	c->share.head = NULL;
	free(c->share.end);
	c->share.end = NULL;
}

/* Collective: whether the file has the data of all parts, so that they may be removed. */
static bool all_clean(const struct cached *c)
{
	const struct head_file *head = c->share.head;
	int clean = !c->nodes.owns || (head && head_lacks_nothing(&head->head));

	PMPI_Allreduce(MPI_IN_PLACE, &clean, 1, MPI_INT, MPI_MIN, c->comm);
	return clean;
}

/* Returns whether opening failed because of parts of an earlier job, which have been removed. */
static bool open_once(struct cached *c, struct error *e)
{
	struct share *s = &c->share;
	bool earlier = false, clean;

	*s = (struct share){ .data.win = MPI_WIN_NULL, .words.win = MPI_WIN_NULL };
	s->end = calloc((size_t)c->nodes.n, sizeof(*s->end));
	if (!s->end)
		error_errno(e, ENOMEM, "cannot allocate the cache of '%s': %m", c->path);
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
	/* Damaged parts are no reason to fail if the file has their data. */
	if (open_once(c, e)) {
		*e = (struct error){ 0 };
		open_once(c, e);
	}
}

/* Writes the headers after the parts have ended. */
static void end_heads(struct cached *c, enum share_end how, struct error *e)
{
	struct head_facts facts;

	former_look(c, &facts, e);
	if (e->class == MPI_SUCCESS && c->share.head)
		set_state(c, how == SHARE_KEEP && facts.ino ? HEAD_KEPT : HEAD_CLEAN, &facts, e);
	/* A part that is dropped, or whose file has no name, has no further use. */
	if (e->class == MPI_SUCCESS && c->share.head && (how == SHARE_DROP || !facts.ino))
		unlink_own(c);
	error_agree(c->comm, e);
}

void share_close(struct cached *c, enum share_end how, struct error *e)
{
	struct share *s = &c->share;
	/* cache.close=keep does not write back; opening the parts once more does. */
	bool twice = how == SHARE_FLUSH && c->config.keep;
	int err;

	PMPI_Barrier(c->comm);
	if (how != SHARE_DROP)
		share_sync(c, e);
	error_agree(c->comm, e);
	if (s->head)
		s->head->failed = 0;
	err = close_all(c);
	if (s->head && s->head->failed)
		err = s->head->failed;
	if (err && how == SHARE_FLUSH && !twice)
		error_errno(e, err,
			    "cannot write back '%s': %s. The cache in '%s' keeps the changes. Try "
			    "'ummap iocache flush', or to open the file again",
			    c->path, strerror(err), c->config.path);
	error_agree(c->comm, e);
	if (e->class == MPI_SUCCESS || how == SHARE_DROP)
		end_heads(c, twice ? SHARE_KEEP : how, e);
	release(c);
	/* From now on, no part is locked. */
	PMPI_Barrier(c->comm);
	if (twice && e->class == MPI_SUCCESS)
		former_flush(c, e);
}

/* ---- While it is open ---- */

/* Notes in the header that the file is written. */
static int mark_locked(struct head_file *head)
{
	int err = 0;

	if (!head->head.wrote) {
		head->head.wrote = 1;
		err = head_write(head);
		head->head.wrote = !err;
	}
	return err;
}

static int set_end_locked(struct head_file *head, uint64_t end)
{
	uint64_t was = head->head.end;
	int err;

	head->head.end = end;
	err = head_write(head);
	head->head.end = err ? was : end;
	return err;
}

void share_mark(struct cached *c, struct error *e)
{
	struct head_file *head = c->share.head;
	int err;

	if (!head)
		return;
	pthread_mutex_lock(&head->lock);
	err = mark_locked(head);
	pthread_mutex_unlock(&head->lock);
	set_head_error(c, err, e);
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
	/* Ranks have written past the cache. */
	if (end > c->share.spread.room * c->share.spread.nodes)
		err = mark_locked(head);
	if (!err && end > head->head.end)
		err = set_end_locked(head, end);
	pthread_mutex_unlock(&head->lock);
	set_head_error(c, err, e);
}

static int word_op(struct cached *c, int node, enum word word, int64_t value, MPI_Op op,
		   int64_t *was)
{
	MPI_Win win = c->share.words.win;
	int rank = c->nodes.owner[node];
	struct pmpi_operation fetch = {
		.from = &value, .to = was, .type = MPI_INT64_T, .rank = rank,
		.disp = word, .op = op, .win = win,
	};
	int code = pmpi_first.Fetch_and_op(&fetch);

	return code == MPI_SUCCESS ? pmpi_first.Win_flush(rank, win) : code;
}

int64_t share_word(struct cached *c, int node, enum word word, int64_t value, MPI_Op op,
		   struct error *e)
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
	struct pmpi_operation get = {
		.to_n = 1, .to_type = MPI_INT64_T, .disp = WORD_END,
		.target_n = 1, .target_type = MPI_INT64_T, .win = s->words.win,
	};
	int code = MPI_SUCCESS;

	for (int i = 0; i < n && code == MPI_SUCCESS; i++) {
		get.to = &ends[i];
		get.rank = c->nodes.owner[begin + i];
		code = pmpi_first.Get(&get);
	}
	/* Operations that began before an error use this memory, too. */
	if (code == MPI_SUCCESS)
		code = pmpi_first.Win_flush_all(s->words.win);
	else
		pmpi_first.Win_flush_all(s->words.win);
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
		code = get_ends(c, i, c->nodes.n - i < ENDS_PER_FLUSH ? c->nodes.n - i
								      : ENDS_PER_FLUSH);
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
	set_head_error(c, err, e);
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

/* Writes zeros to the bytes [from, to) of the file that are in this rank's part. */
static void zero_own(struct cached *c, int64_t from, int64_t to, struct error *e)
{
	static const char zeros[64 << 10];
	uint64_t at, run;

	for (int64_t off = from; off < to; off += (int64_t)run) {
		uint32_t node = spread_find(&c->share.spread, (uint64_t)off, &at, &run);

		run = run < (uint64_t)(to - off) ? run : (uint64_t)(to - off);
		run = run < sizeof(zeros) ? run : sizeof(zeros);
		if (c->nodes.owner[node] == c->rank && umcopy(c->share.base + at, zeros, run) < 0) {
			error_errno(e, errno, "cannot cut '%s': %s", c->path, umerrormsg());
			return;
		}
	}
}

/* After zeros are durable, the header may say that the file ends before them. */
static void lower_head(struct cached *c, uint64_t size, struct error *e)
{
	struct head_file *head = c->share.head;
	int err = 0;

	pthread_mutex_lock(&head->lock);
	if (head->head.end > size)
		err = set_end_locked(head, size);
	pthread_mutex_unlock(&head->lock);
	set_head_error(c, err, e);
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
	struct timespec pause = { .tv_nsec = POLL_SLEEP_NS / 2 };
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
		nanosleep(&pause, NULL);
	}
	if (e->class == MPI_SUCCESS && share_word(c, (int)node, WORD_FAILED, 0, MPI_NO_OP, e))
		error_set(e, MPI_ERR_IO,
			  "cannot make a write to '%s' durable: rank %d could not sync its part of "
			  "the cache",
			  c->path, c->nodes.owner[node]);
}

/* The window has a word, because a lock may be delayed until the first operation. */
void share_open_turn(struct cached *c, struct error *e)
{
	open_memory(c, c->rank == 0 ? sizeof(int64_t) : 0, &c->turn, e);
}

void share_close_turn(struct cached *c)
{
	close_window(&c->turn);
}
