/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Decides which segment is evicted next. Within a group, its policy decides. Between groups of an
 * account, the group is chosen whose resident segments were faulted longest ago. This file does not
 * deal with frames, stores or mapped ranges. One leaf lock protects lists, policies and counters.
 * Under it, segments are only trylocked.
 */
#include "cache/cache.h"

#include "memory/frame.h"
#include "memory/tiers.h"

#include <assert.h>
#include <string.h>
#include <sys/mman.h>

/* The number of groups that are compared for one victim. */
#define SAMPLE_GROUPS 16
/* A group whose frames have another size is chosen only if it is this many times as cold. */
#define OTHER_SIZE_FACTOR 2

static _Atomic uint32_t lock;

/* A search for a segment to evict. */
struct search {
	struct account *account;         /* account to search */
	const struct member *wanted;     /* mapping that needs a frame */
	enum cache_kind kind;            /* kind of segments */
};

/* Under the lock: adds to a counter that other threads may read. Unsigned numbers wrap, so this
 * also subtracts. The lock excludes other writers, so no atomic addition is needed. */
static void add_to(_Atomic size_t *counter, size_t change)
{
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + change,
			      memory_order_relaxed);
}

static struct seg *seg_of(struct ummap_node *node)
{
	return container_of(node, struct seg, node);
}

static struct group *group_of(struct ummap_node *link)
{
	return container_of(link, struct group, link);
}

static struct member *member_of(struct ummap_node *link)
{
	return container_of(link, struct member, link);
}

/*
 * ---- The mapping of a segment header ----
 * A header has no room for its mapping, and the lists of a group contain headers of several
 * mappings. Therefore, a table of the arrays of headers is searched on the fault path. The table
 * changes only when mappings begin, end or grow.
 */

struct span {
	uintptr_t from, to;   /* addresses of the headers */
	struct member *owner; /* mapping of the headers */
};

static struct span *spans;  /* table, sorted by address */
static size_t span_count, span_capacity;

/* Returns the index of the first span that ends after p. */
static size_t find_span(uintptr_t p)
{
	size_t low = 0, high = span_count;

	while (low < high) {
		size_t mid = (low + high) / 2;

		if (spans[mid].to <= p)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

static bool grow_spans(void)
{
	size_t capacity = span_capacity ? span_capacity * 2 : 256;
	struct span *bigger = sys_map_anonymous(capacity * sizeof(*bigger));

	if (!bigger)
		return false;
	if (spans) {
		memcpy(bigger, spans, span_count * sizeof(*spans));
		raw_munmap(spans, span_capacity * sizeof(*spans));
	}
	spans = bigger;
	span_capacity = capacity;
	return true;
}

/*
 * ---- The newest segments ----
 * One instruction may access several segments, which must not evict each other.
 */

#define NEWEST_SEGMENTS 8

static uint64_t arrivals;  /* accesses that made a segment resident: a clock */
static struct newcomer {
	const struct seg *seg;
	const struct account *account;
} newest[NEWEST_SEGMENTS];
static size_t resident_count; /* resident segments of all accounts */

/* Whether s is one of the newest of `count` segments, which are those of the account, or of all
 * accounts if that is NULL. The oldest of the segments is not one of the newest. */
static bool is_newest(const struct seg *s, const struct account *account, size_t count)
{
	for (uint64_t i = 1; i <= NEWEST_SEGMENTS && i <= arrivals && count > 1; i++) {
		const struct newcomer *n = &newest[(arrivals - i) % NEWEST_SEGMENTS];

		if (account && n->account != account)
			continue;
		if (n->seg == s)
			return true;
		count--;
	}
	return false;
}

/* ---- Groups and members ---- */

/* Under the lock: returns the mapping of segment s, which is in the group. */
static struct member *find_owner(struct group *g, const struct seg *s)
{
	return g->member_count == 1 ? member_of(g->members.next) :
				      spans[find_span((uintptr_t)s)].owner;
}

struct cache_bytes cache_count_bytes(const struct member *m)
{
	struct cache_bytes b;

	futex_lock(&lock);
	b.resident = m->resident * m->len;
	b.inactive = (m->inactive + m->dirty_inactive + m->ahead) * m->len;
	b.dirty = (m->dirty + m->dirty_inactive) * m->len;
	futex_unlock(&lock);
	return b;
}

/* All counters are 0 already, because they were 0 when the last group in this memory ended. A
 * thread that still reads them sees no other values. */
void cache_open(struct group *g, const struct ummap_policy *policy, void *p, size_t budget,
	size_t len)
{
	futex_lock(&lock);
	g->account = budget ? &g->own : account_common();
	g->budget = budget;
	g->policy = policy;
	g->p = p;
	g->len = len;
	g->mean = arrivals;
	list_init(&g->clean);
	list_init(&g->ahead);
	list_init(&g->ahead_old);
	g->ahead_since = g->account->arrivals;
	list_init(&g->members);
	list_init(&g->own.groups);
	list_init(&g->own.pagecache_runs);
	g->own.readahead_cut = 0;
	list_insert(&g->account->groups, &g->link);
	g->account->group_count++;
	futex_unlock(&lock);
	if (budget)
		account_open(&g->own);
}

void cache_close(struct group *g)
{
	futex_lock(&lock);
	assert(!g->member_count && !g->hidden && !g->resident && !g->dirty &&
	       !account_frames(&g->own) && !account_pinned(&g->own));
	list_remove(&g->link);
	g->account->group_count--;
	futex_unlock(&lock);
	if (g->budget)
		account_close(&g->own);
}

/* Under the lock: sets the limit of the group's account to the budget, or to the bytes that each of
 * its mappings needs at least. */
static void set_limit(struct group *g)
{
	size_t limit = g->budget;

	for (struct ummap_node *n = g->members.next; n != &g->members; n = n->next)
		limit = max_size(limit, member_of(n)->least);
	account_set_limit(&g->own, limit);
}

void cache_join(struct member *m, struct group *g, size_t len)
{
	futex_lock(&lock);
	m->group = g;
	m->len = len;
	list_init(&m->dirty_list);
	list_insert(&g->members, &m->link);
	g->member_count++;
	set_limit(g);
	futex_unlock(&lock);
}

void cache_leave(struct member *m)
{
	futex_lock(&lock);
	list_remove(&m->link);
	m->group->member_count--;
	set_limit(m->group);
	futex_unlock(&lock);
}

bool cache_add_headers(struct member *m, const struct seg *segs, size_t n)
{
	uintptr_t from = (uintptr_t)segs, to = (uintptr_t)(segs + n);
	bool has_room;
	size_t i;

	futex_lock(&lock);
	has_room = span_count < span_capacity || grow_spans();
	if (has_room) {
		i = find_span(from);
		memmove(&spans[i + 1], &spans[i], (span_count - i) * sizeof(*spans));
		spans[i] = (struct span){ from, to, m };
		span_count++;
	}
	futex_unlock(&lock);
	return has_room;
}

void cache_remove_headers(struct member *m)
{
	size_t kept = 0;

	futex_lock(&lock);
	for (size_t i = 0; i < span_count; i++) {
		if (spans[i].owner != m)
			spans[kept++] = spans[i];
	}
	span_count = kept;
	futex_unlock(&lock);
}

void cache_hide(struct member *m, bool hidden)
{
	futex_lock(&lock);
	m->group->hidden += hidden;
	m->group->hidden -= m->hidden;
	m->hidden = hidden;
	futex_unlock(&lock);
}

void cache_fork_child(void)
{
	lock = 0;
	span_count = 0;
	resident_count = 0;
	memset(newest, 0, sizeof(newest));
}

bool cache_lock_user(struct seg *s, struct member **from)
{
	const struct span *span;
	bool locked = false;

	futex_lock(&lock);
	span = &spans[find_span((uintptr_t)s)];
	if (span < spans + span_count && span->from <= (uintptr_t)s && !span->owner->hidden) {
		*from = span->owner;
		locked = seg_trylock(s);
	}
	futex_unlock(&lock);
	return locked;
}

/* ---- Changes of segments ---- */

/* Under the lock: counts one more dirty segment, which is resident or inactive, or one less. */
static void count_dirty(struct member *m, bool is_resident, int change)
{
	m->dirty += is_resident ? (size_t)change : 0;
	m->group->dirty += is_resident ? (size_t)change : 0;
	/* The bytes of a dirty segment, twin included, are a part of the bytes that its mapping
	 * needs at least. */
	add_to(&m->group->account->dirty, (size_t)change * (m->least / MIN_FRAMES));
}

/* Under the lock: counts one more resident segment, or one less. */
static void count_resident(struct member *m, const struct seg *s, int change)
{
	m->resident += (size_t)change;
	m->group->resident += (size_t)change;
	m->group->account->resident += (size_t)change;
	resident_count += (size_t)change;
	if (seg_has(s, SEG_DIRTY))
		count_dirty(m, true, change);
}

void cache_insert(struct member *m, struct seg *s, enum ummap_event why)
{
	struct group *g = m->group;

	futex_lock(&lock);
	g->policy->insert(g->p, &s->node, why);
	count_resident(m, s, 1);
	add_to(&g->account->arrivals, 1);
	if (why != UMMAP_EV_AHEAD)
		newest[arrivals++ % NEWEST_SEGMENTS] = (struct newcomer){ s, g->account };
	g->mean += (arrivals - g->mean) / g->resident;
	futex_unlock(&lock);
}

void cache_touch(struct member *m, struct seg *s, enum ummap_event why)
{
	struct group *g = m->group;

	futex_lock(&lock);
	if (why == UMMAP_EV_DIRTIED)
		count_dirty(m, true, 1);
	else if (why == UMMAP_EV_CLEANED)
		count_dirty(m, true, -1);
	if (g->policy->touch)
		g->policy->touch(g->p, &s->node, why);
	futex_unlock(&lock);
}

/* Under the lock. */
static void remove_resident(struct member *m, struct seg *s)
{
	struct group *g = m->group;

	if (g->policy->label)
		seg_set_label(s, g->policy->label(g->p, &s->node));
	g->policy->remove(g->p, &s->node);
	s->node = (struct ummap_node){ NULL, NULL };
	count_resident(m, s, -1);
}

/* Under the lock. */
static void remove_inactive(struct member *m, struct seg *s)
{
	struct account *account = m->group->account;

	list_remove(&s->node);
	if (seg_has(s, SEG_AHEAD)) {
		m->ahead--;
		add_to(&account->ahead, -m->len);
	} else if (seg_has(s, SEG_DIRTY)) {
		m->dirty_inactive--;
		add_to(&account->dirty_inactive, -m->len);
		count_dirty(m, false, -1);
	} else {
		m->inactive--;
		add_to(&account->clean, -m->len);
	}
}

void cache_remove(struct member *m, struct seg *s)
{
	futex_lock(&lock);
	if (seg_has(s, SEG_INACTIVE))
		remove_inactive(m, s);
	else
		remove_resident(m, s);
	futex_unlock(&lock);
}

unsigned cache_label(const struct member *m, struct seg *s)
{
	struct group *g = m->group;
	unsigned label = 0;

	if (!g->policy->label)
		return 0;
	futex_lock(&lock);
	label = g->policy->label(g->p, &s->node);
	futex_unlock(&lock);
	return label;
}

void cache_note_absent(struct member *m, struct seg *s, bool used)
{
	struct group *g = m->group;

	if (!used || !g->policy->gone)
		return;
	futex_lock(&lock);
	g->policy->gone(g->p, &s->node, seg_label(s));
	futex_unlock(&lock);
}

/* Under the lock. */
static void add_inactive(struct member *m, struct seg *s, enum inactive how)
{
	struct group *g = m->group;

	switch (how) {
	case INACTIVE_CLEAN:
	case INACTIVE_FIRST:
		list_insert(how == INACTIVE_CLEAN ? &g->clean : g->clean.next, &s->node);
		m->inactive++;
		add_to(&g->account->clean, m->len);
		break;
	case INACTIVE_DIRTY:
		list_insert(&m->dirty_list, &s->node);
		m->dirty_inactive++;
		add_to(&g->account->dirty_inactive, m->len);
		count_dirty(m, false, 1);
		break;
	case INACTIVE_AHEAD:
		list_insert(&g->ahead, &s->node);
		m->ahead++;
		add_to(&g->account->ahead, m->len);
		break;
	}
}

void cache_deactivate(struct member *m, struct seg *s, enum inactive how)
{
	cache_deactivate_all(m, &s, 1, how);
}

void cache_deactivate_all(struct member *m, struct seg **list, unsigned n, enum inactive how)
{
	futex_lock(&lock);
	for (unsigned k = 0; k < n; k++)
		add_inactive(m, list[k], how);
	futex_unlock(&lock);
}

/* ---- The next segment to evict ---- */

/* Returns the number of segments of an account that can be evicted: all resident segments without
 * the pinned ones, unless only as many remain as one instruction may access. */
static size_t count_evictable(const struct account *account, size_t len)
{
	size_t pinned = account_pinned(account) / len;

	return account->resident > pinned + MIN_FRAMES ? account->resident - pinned :
							 account->resident;
}

/* Whether s is too new to be evicted. If an account evicts for itself, at least one of its segments
 * is not. */
static bool is_recent(const struct search *search, const struct seg *s)
{
	const struct account *account = search->account;

	if (search->wanted->group->account != account)
		return is_newest(s, NULL, resident_count);
	return is_newest(s, account, count_evictable(account, search->wanted->len));
}

/* Takes the first unlocked segment out of an inactive list of a group, and locks it. */
static struct seg *lock_first(struct group *g, struct ummap_node *list, struct member **from)
{
	if (g->hidden == g->member_count)
		return NULL;
	for (struct ummap_node *n = list->next; n != list; n = n->next) {
		struct seg *s = seg_of(n);
		struct member *m = find_owner(g, s);

		if (!m->hidden && seg_trylock(s)) {
			remove_inactive(m, s);
			*from = m;
			return s;
		}
	}
	return NULL;
}

/* Takes a segment that was read ahead and not accessed while all segments of the account were
 * replaced. The program is not going to use it. */
static struct seg *take_stale(struct group *g, struct member **from)
{
	if (g->account->arrivals - g->ahead_since <= account_frames(g->account) / g->len)
		return NULL;
	if (list_empty(&g->ahead_old)) {
		list_move_all(&g->ahead_old, &g->ahead);
		g->ahead_since = g->account->arrivals;
		return NULL;
	}
	return lock_first(g, &g->ahead_old, from);
}

/* Whether a resident segment can be evicted. A check without the lock of the segment avoids taking
 * it needlessly. The check under the lock decides. */
static bool is_evictable(const struct search *search, const struct seg *s)
{
	return !seg_pins(s) && !is_recent(search, s) &&
	       (search->kind != CACHE_RESIDENT_CLEAN || !seg_has(s, SEG_DIRTY));
}

/* Whether no slower tier that the segment could move to has memory. The segment is not locked, so
 * the answer may be outdated. */
static bool is_in_last_tier(const struct member *m, const struct seg *s)
{
	uint32_t frame = __atomic_load_n(&s->frame, __ATOMIC_RELAXED);

	for (unsigned tier = frame_place(frame) + 1; tier < tier_count; tier++) {
		if (m->tiers >> tier & 1 && frame_held_at(tier))
			return false;
	}
	return true;
}

/* last: only segments of the last tier. */
static struct seg *pick_resident(const struct search *search, struct group *g,
	struct member **from, bool last)
{
	struct ummap_node *n = NULL;

	if (g->hidden == g->member_count || g->resident == 0 ||
	    (search->kind == CACHE_RESIDENT_CLEAN && g->dirty >= g->resident))
		return NULL;
	while ((n = g->policy->pick(g->p, n))) {
		struct seg *s = seg_of(n);

		if (!is_evictable(search, s) || find_owner(g, s)->hidden ||
		    (last && !is_in_last_tier(find_owner(g, s), s)) || !seg_trylock(s))
			continue;
		if (is_evictable(search, s)) {
			*from = find_owner(g, s);
			remove_resident(*from, s);
			return s;
		}
		seg_unlock(s);
	}
	return NULL;
}

/* A segment of another tier is taken only if the last tier has none, because it would be better
 * moved there (paging/residency/tiering.c). */
static struct seg *take_resident(const struct search *search, struct group *g,
	struct member **from)
{
	struct seg *s = tier_count ? pick_resident(search, g, from, true) : NULL;

	return s ? s : pick_resident(search, g, from, false);
}

/* Takes a segment out of a group. */
static struct seg *take_from_group(const struct search *search, struct group *g,
	struct member **from)
{
	struct seg *s;

	switch (search->kind) {
	case CACHE_CLEAN:
		s = take_stale(g, from);
		return s ? s : lock_first(g, &g->clean, from);
	case CACHE_AHEAD:
		s = lock_first(g, &g->ahead_old, from);
		return s ? s : lock_first(g, &g->ahead, from);
	default:
		return take_resident(search, g, from);
	}
}

/* Returns how long ago the group's segments became resident. A frame of another size is worth less
 * to `wanted`. */
static uint64_t get_coldness(const struct group *g, const struct member *wanted)
{
	return (arrivals - g->mean + 1) * (g->len == wanted->len ? OTHER_SIZE_FACTOR : 1);
}

/* Under the lock: takes a segment from the coldest group of a sample that has one. */
static struct seg *take_coldest(const struct search *search, struct member **from)
{
	struct ummap_node *ring = &search->account->groups, *at = ring->next;
	struct group *sample[SAMPLE_GROUPS];
	unsigned n = 0;

	for (; at != ring && n < SAMPLE_GROUPS; at = at->next)
		sample[n++] = group_of(at);
	if (at != ring) {
		list_remove(ring);
		list_insert(at, ring);
	}
	while (n > 0) {
		unsigned best = 0;
		struct seg *s;

		for (unsigned i = 1; i < n; i++) {
			if (get_coldness(sample[i], search->wanted) >
			    get_coldness(sample[best], search->wanted))
				best = i;
		}
		s = take_from_group(search, sample[best], from);
		if (s)
			return s;
		sample[best] = sample[--n];
	}
	return NULL;
}

/* Under the lock: takes samples until one has a segment, or all groups were in one. */
static struct seg *take_next(const struct search *search, struct member **from)
{
	struct seg *s = NULL;

	for (size_t seen = 0; !s && seen < search->account->group_count; seen += SAMPLE_GROUPS)
		s = take_coldest(search, from);
	return s;
}

struct seg *cache_take_segment(struct account *account, enum cache_kind kind,
	const struct member *wanted, struct member **from)
{
	struct search search = { account, wanted, kind };
	struct seg *s;

	/* A look without the lock. */
	if ((kind == CACHE_CLEAN && !account->clean && !account->ahead) ||
	    (kind == CACHE_AHEAD && !account->ahead))
		return NULL;
	futex_lock(&lock);
	s = take_next(&search, from);
	futex_unlock(&lock);
	return s;
}

/* Under the lock: takes the segment after s, if the policy proposes it and its frame follows that
 * of s on the same huge page. */
static struct seg *take_next_of_cluster(const struct search *search, struct seg *s,
	struct member *m)
{
	struct ummap_node *n = m->cluster > 1 ? m->group->policy->pick(m->group->p, NULL) : NULL;
	struct seg *next = s + 1;

	if (!n || seg_of(n) != next || find_owner(m->group, next) != m || !seg_trylock(next))
		return NULL;
	if (is_evictable(search, next) && seg_as_loaded(next) && next->frame == s->frame + 1 &&
	    next->frame % m->cluster) {
		remove_resident(m, next);
		return next;
	}
	seg_unlock(next);
	return NULL;
}

unsigned cache_take_victims(struct account *account, const struct member *wanted, size_t bytes,
	struct seg **list, struct member **from, unsigned n, unsigned most)
{
	struct search search = { account, wanted, CACHE_RESIDENT };
	size_t got = 0;
	unsigned k = 0;

	futex_lock(&lock);
	while (k < n && got < bytes && (list[k] = take_next(&search, &from[k])))
		got += from[k++]->len;
	for (; k > 0 && k < most; k++) {
		from[k] = from[k - 1];
		list[k] = take_next_of_cluster(&search, list[k - 1], from[k]);
		if (!list[k])
			break;
	}
	futex_unlock(&lock);
	return k;
}

/* Under the lock: locks segment s if it is resident and can be evicted. */
static bool lock_resident(const struct search *search, struct seg *s)
{
	if (!seg_has(s, SEG_VALID) || !seg_trylock(s))
		return false;
	if (seg_has(s, SEG_VALID) && !seg_has(s, SEG_INACTIVE) && is_evictable(search, s))
		return true;
	seg_unlock(s);
	return false;
}

bool cache_take_block(struct account *account, const struct member *wanted, struct member *from,
	struct seg *segs, size_t n, const struct seg *taken, enum cache_kind kind)
{
	struct search search = { account, wanted, kind };
	size_t locked = 0;

	futex_lock(&lock);
	while (locked < n && (segs + locked == taken || lock_resident(&search, segs + locked)))
		locked++;
	for (size_t k = 0; k < locked; k++) {
		if (segs + k == taken)
			continue;
		if (locked == n)
			remove_resident(from, segs + k);
		else
			seg_unlock(segs + k);
	}
	futex_unlock(&lock);
	return locked == n;
}

/* Under the lock. */
static struct seg *lock_dirty_inactive(struct member *m, uint64_t now)
{
	if (m->hidden || now < m->retry)
		return NULL;
	for (struct ummap_node *n = m->dirty_list.next; n != &m->dirty_list; n = n->next) {
		if (seg_trylock(seg_of(n)))
			return seg_of(n);
	}
	return NULL;
}

struct seg *cache_lock_dirty_inactive(struct account *account, struct member *m, uint64_t now,
	struct member **from)
{
	struct ummap_node *ring = &account->groups;
	struct seg *s = NULL;

	if (!account->dirty_inactive)
		return NULL;
	*from = m;
	futex_lock(&lock);
	if (m)
		s = lock_dirty_inactive(m, now);
	for (struct ummap_node *g = ring->next; !m && !s && g != ring; g = g->next) {
		struct ummap_node *members = &group_of(g)->members;

		for (struct ummap_node *n = members->next; !s && n != members; n = n->next) {
			*from = member_of(n);
			s = lock_dirty_inactive(*from, now);
		}
	}
	futex_unlock(&lock);
	return s;
}
