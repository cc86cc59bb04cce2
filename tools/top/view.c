/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reads the registry by pread(2) and never maps it, because processes write it at the same time,
 * and another program could truncate it. Names are made printable. Numbers are shown only, never
 * used as sizes or offsets.
 */
#include "view.h"

#include "base/log.h"

#include <ctype.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Attempts to read a page while its process writes it. */
#define MAX_READ_TRIES 100
#define MIB 1048576.0

const struct column_info columns[COLUMNS] = {
	[PID] = { "PID", "pid", NUMBER },
	[SHARE] = { "SHARE", "share", BYTES },
	[BUDGET] = { "BUDGET", "budget", BYTES },
	[HELD] = { "HELD", "held", BYTES },
	[OVER] = { "OVER", "over", BYTES },
	[LACKS] = { "LACKS", "lacks", BYTES },
	[RESIDENT] = { "RES", "resident", BYTES },
	[INACTIVE] = { "INACT", "inactive", BYTES },
	[DIRTY] = { "DIRTY", "dirty", BYTES },
	[WAITING] = { "WAIT", "waiting", BYTES },
	[PAGECACHE] = { "PGCACHE", "pagecache", BYTES },
	[FAULTS] = { "FAULT/S", "faults_per_s", PER_SECOND },
	[READS] = { "RD M/S", "read_mib_per_s", MIB_PER_SECOND },
	[WRITES] = { "WR M/S", "write_mib_per_s", MIB_PER_SECOND },
	[INACTIVE_HITS] = { "INACT%", "inactive_hits", PART },
	[READAHEAD_HITS] = { "RAHEAD%", "readahead_hits", PART },
};

enum column column_of(const char *key)
{
	enum column c = PID;

	while (c < COLUMNS && strcmp(columns[c].key, key) != 0)
		c++;
	return c;
}

/* ---- Reading ---- */

static bool read_at(int fd, void *buf, size_t len, uint64_t at)
{
	return pread(fd, buf, len, (off_t)at) == (ssize_t)len;
}

/* Reads a consistent copy of a page; false: the process kept writing it. */
static bool read_page(int fd, unsigned slot, struct registry_page *page)
{
	uint64_t at = offsetof(struct registry, page) + slot * sizeof(*page);
	uint32_t after;

	for (int i = 0; i < MAX_READ_TRIES; i++) {
		if (!read_at(fd, page, sizeof(*page), at) ||
		    !read_at(fd, &after, sizeof(after), at))
			return false;
		if (page->sequence == after && !(after & 1))
			return true;
		sched_yield();
	}
	return false;
}

static void copy_name(char to[REGISTRY_NAME_LEN], const char *from)
{
	size_t i = 0;

	for (; i < REGISTRY_NAME_LEN - 1 && from[i]; i++)
		to[i] = isprint((unsigned char)from[i]) ? from[i] : '?';
	to[i] = '\0';
}

static void read_name(pid_t pid, char name[REGISTRY_NAME_LEN])
{
	char path[32], text[REGISTRY_NAME_LEN];
	size_t len = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
	f = fopen(path, "re");
	if (f) {
		len = fread(text, 1, sizeof(text) - 1, f);
		fclose(f);
	}
	/* Remove the newline at the end. The name itself may have newlines, too. */
	text[len > 0 ? len - 1 : 0] = '\0';
	copy_name(name, text);
}

/* ---- Numbers ---- */

static double change(uint64_t now, uint64_t before)
{
	return now > before ? (double)(now - before) : 0;
}

static double part(double hits, double of)
{
	return of > 0 ? fmin(hits / of, 1) : NAN;
}

/* Fills a row. seconds: time between the two reports; 0: there is no earlier report. */
static void fill_row(struct row *row, const struct umstat *st, const struct umstat *before,
		     double seconds)
{
	double *v = row->value, misses, faults;

	for (enum column c = PID; c < COLUMNS; c++)
		v[c] = NAN;
	v[BUDGET] = (double)st->budget_bytes;
	v[RESIDENT] = (double)st->resident_bytes;
	v[INACTIVE] = (double)st->inactive_bytes;
	v[DIRTY] = (double)st->dirty_bytes;
	v[WAITING] = (double)st->waiting_bytes;
	v[PAGECACHE] = (double)st->pagecache_bytes;
	if (!(seconds > 0))
		return;
	misses = change(st->read_faults, before->read_faults) +
		 change(st->write_faults, before->write_faults);
	faults = misses + change(st->upgrade_faults, before->upgrade_faults);
	v[FAULTS] = faults / seconds;
	v[READS] = change(st->read_bytes, before->read_bytes) / MIB / seconds;
	v[WRITES] = change(st->write_bytes, before->write_bytes) / MIB / seconds;
	v[INACTIVE_HITS] = part(change(st->inactive_hits, before->inactive_hits), misses);
	v[READAHEAD_HITS] = part(change(st->readahead_hits, before->readahead_hits), misses);
}

static const struct registry_map *find_map(const struct registry_page *page, uint64_t base)
{
	for (unsigned i = 0; i < page->count && i < REGISTRY_MAPS; i++) {
		if (page->map[i].base == base)
			return &page->map[i];
	}
	return NULL;
}

static struct umstat counters_of(const struct registry_map *map)
{
	struct umstat st = { 0 };

	memcpy(&st, map->st, sizeof(map->st));
	return st;
}

static void fill_maps(struct process *p, double seconds)
{
	p->mappings = p->page.count;
	p->shown = p->mappings < REGISTRY_MAPS ? p->mappings : REGISTRY_MAPS;
	for (unsigned i = 0; i < p->shown; i++) {
		const struct registry_map *map = &p->page.map[i],
					  *before = find_map(&p->before, map->base);
		struct umstat st = counters_of(map), old = counters_of(before ? before : map);

		fill_row(&p->map[i], &st, &old, before ? seconds : 0);
		copy_name(p->map[i].name, map->name);
		p->map[i].base = map->base;
		p->map[i].size = map->size;
		p->map[i].seg_size = map->seg_size;
		p->map[i].sharers = map->sharers;
		p->map[i].transfer_bytes = st.transfer_bytes;
		p->map[i].commit_bytes = st.commit_bytes;
	}
}

static void fill_process(struct process *p, const struct registry_slot *slot, unsigned live)
{
	uint64_t share = slot->limit / live;
	double seconds = p->before.updated ? change(p->page.updated, p->before.updated) / 1000 : 0;

	p->dynamic = slot->dynamic;
	p->limit = slot->limit;
	fill_row(&p->self, &p->page.st, &p->before.st, seconds);
	fill_maps(p, seconds);
	read_name(registry_pid(p->owner), p->self.name);
	p->self.value[PID] = registry_pid(p->owner);
	p->self.value[SHARE] = (double)share;
	p->self.value[BUDGET] = (double)slot->budget;
	p->self.value[HELD] = (double)slot->held;
	p->self.value[OVER] = change(slot->held, slot->budget);
	p->self.value[LACKS] = (double)slot->lacks;
}

/* ---- The view ---- */

static struct process *find_process(struct process *all, unsigned count, uint64_t owner)
{
	for (unsigned i = 0; i < count; i++) {
		if (all[i].owner == owner)
			return &all[i];
	}
	return NULL;
}

/* Copies the old state of a process, if there is one, and reads a newer report. */
static void take_process(struct process *p, struct process *old, int fd, unsigned slot)
{
	struct registry_page page;

	if (old)
		*p = *old;
	if (!read_page(fd, slot, &page) || page.updated == p->page.updated)
		return;
	p->before = p->page;
	p->page = page;
}

/* Returns zeros for n structures, which free(3) frees, or NULL. The structures have parts that must
 * lie at multiples of a larger number than malloc(3) guarantees. */
static void *alloc_zeros(size_t align, size_t size, size_t n)
{
	void *p = aligned_alloc(align, n * size);

	return p ? memset(p, 0, n * size) : NULL;
}

static int take_slots(struct view *view, int fd, const struct registry_slot *slots)
{
	unsigned live = 0, n = 0;
	struct process *all;

	for (unsigned i = 0; i < REGISTRY_SLOTS; i++)
		live += slots[i].owner && registry_alive(slots[i].owner, slots[i].thread);
	all = alloc_zeros(_Alignof(struct process), sizeof(*all), live ? live : 1);
	if (!all)
		return fail(ENOMEM, "cannot list %u processes: no memory", live);
	view->held = view->limit = 0;
	for (unsigned i = 0; i < REGISTRY_SLOTS && n < live; i++) {
		struct process *p = &all[n];

		if (!slots[i].owner || !registry_alive(slots[i].owner, slots[i].thread))
			continue;
		p->owner = slots[i].owner;
		take_process(p, find_process(view->process, view->count, p->owner), fd, i);
		fill_process(p, &slots[i], live);
		view->held += p->self.value[HELD];
		view->limit = fmax(view->limit, (double)p->limit);
		n++;
	}
	free(view->process);
	view->process = all;
	view->count = n;
	return 0;
}

int view_take(struct view *view)
{
	struct registry_slot *slots = alloc_zeros(_Alignof(struct registry_slot), sizeof(*slots),
						  REGISTRY_SLOTS);
	int fd = registry_open(view->path), err = 0;

	if (!slots)
		err = fail(ENOMEM, "cannot read the registry: no memory");
	else if (fd == -ENOENT)
		err = take_slots(view, -1, slots);
	else if (fd < 0)
		err = fd;
	else if (read_at(fd, slots, REGISTRY_SLOTS * sizeof(*slots),
			 offsetof(struct registry, slot)))
		err = take_slots(view, fd, slots);
	else
		err = fail(EIO, "cannot read '%s'", view->path);
	if (fd >= 0)
		close(fd);
	free(slots);
	return err;
}

bool view_is_fresh(const struct view *view)
{
	for (unsigned i = 0; i < view->count; i++) {
		if (!view->process[i].before.updated)
			return false;
	}
	return true;
}

/* ---- Sorting and filtering ---- */

static enum column sort_by;
static bool sort_up;

static int compare_rows(const struct row *a, const struct row *b)
{
	double x = a->value[sort_by], y = b->value[sort_by];

	/* Unknown values come last in both orders. */
	if (isnan(x) || isnan(y))
		return isnan(x) - isnan(y);
	return sort_up ? (x > y) - (x < y) : (x < y) - (x > y);
}

static int compare_maps(const void *a, const void *b)
{
	return compare_rows(a, b);
}

static int compare_processes(const void *a, const void *b)
{
	const struct process *p = a, *q = b;
	int order = compare_rows(&p->self, &q->self);

	return order ? order : (p->owner > q->owner) - (p->owner < q->owner);
}

void view_sort(struct view *view, enum column by, bool ascending)
{
	sort_by = by;
	sort_up = ascending;
	qsort(view->process, view->count, sizeof(*view->process), compare_processes);
	for (unsigned i = 0; i < view->count; i++)
		qsort(view->process[i].map, view->process[i].shown, sizeof(struct row),
		      compare_maps);
}

bool view_matches(const struct process *p, const char *text)
{
	char pid[16];
	bool found;

	snprintf(pid, sizeof(pid), "%d", (int)registry_pid(p->owner));
	found = !*text || strcmp(pid, text) == 0 || strstr(p->self.name, text);
	for (unsigned i = 0; i < p->shown && !found; i++)
		found = strstr(p->map[i].name, text);
	return found;
}
