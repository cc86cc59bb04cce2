/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An attribute of the MPI window leads to its structure. A table has the windows that were looked
 * up last, because every operation looks one up; it also has windows that are not the library's.
 * Lock: `lock`, around the lists of ranges, because several threads may call MPI_Win_attach, and
 * around changes of the table.
 */
#include "window/shared.h"
#include "window/versioned.h"
#include "window/window.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <ummap.h>

/* Memory in storage that existed before the window. */
struct range {
	struct range *next;
	const void *base;
	size_t size;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int keyval = MPI_KEYVAL_INVALID;

struct recent window_recent[WINDOW_PLACES];

static void make_keyval(void)
{
	PMPI_Win_create_keyval(MPI_WIN_NULL_COPY_FN, MPI_WIN_NULL_DELETE_FN, &keyval, NULL);
}

static void learn(MPI_Win win, struct window *w)
{
	struct recent *r = window_place(win);

	pthread_mutex_lock(&lock);
	atomic_store(&r->key, 0);
	atomic_store(&r->w, w);
	atomic_store(&r->key, (uintptr_t)win);
	pthread_mutex_unlock(&lock);
}

void window_unlearn(MPI_Win win)
{
	struct recent *r = window_place(win);

	pthread_mutex_lock(&lock);
	if (r->key == (uintptr_t)win)
		atomic_store(&r->key, 0);
	pthread_mutex_unlock(&lock);
}

struct window *window_look_up(MPI_Win win)
{
	void *w;
	int found = 0;

	if (win == MPI_WIN_NULL || keyval == MPI_KEYVAL_INVALID)
		return NULL;
	if (PMPI_Win_get_attr(win, keyval, &w, &found) != MPI_SUCCESS)
		return NULL;
	learn(win, found ? w : NULL);
	return found ? w : NULL;
}

struct window *window_new(int flavor)
{
	struct window *w = calloc(1, sizeof(*w));

	if (w) {
		w->flavor = flavor;
		w->comm = MPI_COMM_NULL;
	}
	return w;
}

int window_remember(MPI_Win win, struct window *w)
{
	int code;

	pthread_once(&once, make_keyval);
	w->win = win;
	code = PMPI_Win_set_attr(win, keyval, w);
	window_unlearn(win);
	if (code != MPI_SUCCESS)
		window_forget(w);
	return code;
}

void window_forget(struct window *w)
{
	for (struct range *r = w->ranges, *next; r; r = next) {
		next = r->next;
		free(r);
	}
	if (w->region && !w->lent)
		region_close(w->region);
	if (w->shared)
		shared_close(w->shared);
	versioned_close(w->versioned);
	if (w->comm != MPI_COMM_NULL)
		PMPI_Comm_free(&w->comm);
	free(w);
}

void window_abandon(struct window *w)
{
	if (w->region && !w->lent)
		region_abandon(w->region);
	w->region = NULL;
	window_forget(w);
}

static void sync_range(const struct range *r, struct error *e)
{
	struct region *region = region_find(r->base);

	if (region)
		region_sync(region, r->base, r->size, e);
	else if (umsync_range((void *)(uintptr_t)r->base, r->size, 0) < 0)
		error_errno(e, errno, "cannot sync memory of a window: %s", umerrormsg());
}

const struct hints *window_hints(const struct window *w)
{
	return w->region ? &w->region->hints : w->shared ? &w->shared->hints : NULL;
}

bool window_has_storage(const struct window *w)
{
	bool ranges;

	pthread_mutex_lock(&lock);
	ranges = w->ranges;
	pthread_mutex_unlock(&lock);
	return w->region || w->shared || ranges;
}

void window_sync(struct window *w, struct error *e)
{
	if (w->region && w->region->hints.winsync == WINSYNC_ASYNC)
		region_begin_sync(w->region, e);
	else if (w->region)
		region_sync(w->region, w->region->base, w->region->size, e);
	if (w->shared)
		shared_sync(w->shared, e);
	pthread_mutex_lock(&lock);
	for (const struct range *r = w->ranges; r; r = r->next)
		sync_range(r, e);
	pthread_mutex_unlock(&lock);
}

/* Whether memory is in storage, because of a hint or because the program has mapped it. */
static bool is_in_storage(const void *base)
{
	struct umstat st = { .struct_size = sizeof(st) };

	return base && (region_find(base) || umstat(base, &st) == 0);
}

int window_add_range(struct window *w, const void *base, size_t size)
{
	struct range *r;

	if (!w || size == 0 || !is_in_storage(base))
		return MPI_SUCCESS;
	r = malloc(sizeof(*r));
	if (!r)
		return MPI_ERR_NO_MEM;
	*r = (struct range){ .base = base, .size = size };
	pthread_mutex_lock(&lock);
	r->next = w->ranges;
	w->ranges = r;
	pthread_mutex_unlock(&lock);
	return MPI_SUCCESS;
}

void window_remove_range(struct window *w, const void *base)
{
	struct range **at, *r;

	if (!w)
		return;
	pthread_mutex_lock(&lock);
	for (at = &w->ranges; *at && (*at)->base != base; at = &(*at)->next)
		;
	r = *at;
	if (r)
		*at = r->next;
	pthread_mutex_unlock(&lock);
	free(r);
}

/* Number of calls without MPI after which MPI makes progress. */
#define CALLS_PER_PROBE 64

void window_progress(const struct window *w)
{
	/* The model needs no function call to find the variable. */
	static _Thread_local unsigned calls __attribute__((tls_model("initial-exec")));
	int found;

	if (++calls % CALLS_PER_PROBE == 0 && w->comm != MPI_COMM_NULL)
		PMPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, w->comm, &found, MPI_STATUS_IGNORE);
}

/* MPI_Comm_dup would call the program's functions for its attributes. */
int window_own_comm(MPI_Comm comm, MPI_Comm *own)
{
	int rank, code;

	PMPI_Comm_rank(comm, &rank);
	code = PMPI_Comm_split(comm, 0, rank, own);
	if (code == MPI_SUCCESS)
		PMPI_Comm_set_errhandler(*own, MPI_ERRORS_RETURN);
	return code;
}
