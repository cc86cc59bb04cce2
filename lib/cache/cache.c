/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Decides which segment is evicted next: within a group its policy decides; between groups of an account, it is the
 * group whose mapped segments were faulted longest ago. Does not deal with frames, storage or mapped ranges. One leaf
 * lock around lists and policies; segments are only ever trylocked under it.
 */
#include "cache/cache.h"

#include <assert.h>
#include <string.h>
#include <sys/mman.h>

/* How many groups are compared for one victim. */
#define SAMPLE 16
/* Another group's frame is of the wrong size: take it only if it is this many times as cold. */
#define WRONG_SIZE 2

static _Atomic uint32_t lock;

/* What is looked for. */
struct search {
	struct account *account;             /* here */
	const struct member *wanted;     /* for this mapping */
	bool clean;                      /* clean ones only */
	struct seg *(*take)(const struct search *, struct group *, struct member **from);
};

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
 * ---- The reverse map: which mapping a segment header belongs to. ---- A header has no room to say so, and lists of a
 * group mix those of several mappings. A table of the arrays that headers lie in, searched on the way of a fault; it
 * changes only when mappings come, go and grow.
 */

struct span {
	uintptr_t from, to;
	struct member *owner;
};

static struct span *spans;  /* by address */
static size_t span_count, span_capacity;

/* The first span that ends behind p. */
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
	size_t more = span_capacity ? span_capacity * 2 : 256;
	struct span *bigger = sys_lazy(more * sizeof(*bigger));

	if (!bigger)
		return false;
	if (spans) {
		memcpy(bigger, spans, span_count * sizeof(*spans));
		raw_munmap(spans, span_capacity * sizeof(*spans));
	}
	spans = bigger;
	span_capacity = more;
	return true;
}

/* What lies in [from, from + len) is the owner's. false: no memory for it. */
static bool span_add(const void *from, size_t len, struct member *owner)
{
	size_t i;

	if (span_count == span_capacity && !grow_spans())
		return false;
	i = find_span((uintptr_t)from);
	memmove(&spans[i + 1], &spans[i], (span_count - i) * sizeof(*spans));
	spans[i] = (struct span){ (uintptr_t)from, (uintptr_t)from + len, owner };
	span_count++;
	return true;
}

/* Nothing is the owner's any more. */
static void span_drop(const struct member *owner)
{
	size_t kept = 0;

	for (size_t i = 0; i < span_count; i++) {
		if (spans[i].owner != owner)
			spans[kept++] = spans[i];
	}
	span_count = kept;
}

static struct member *owner_of(const struct seg *s)
{
	return spans[find_span((uintptr_t)s)].owner;
}

/*
 * ---- The grace list: the segments that came last. ----
 * An instruction may touch several, and they must not make room for each other.
 */

#define GRACE 8
/* Segments that one instruction may touch. */
#define INSTRUCTION 4

static uint64_t arrivals;  /* that there ever were: a clock */
static struct newcomer {
	const struct seg *seg;
	const struct account *account;
} grace[GRACE];

/* s, which is charged to account, was asked for just now. */
static void grace_add(const struct seg *s, const struct account *account)
{
	grace[arrivals++ % GRACE] = (struct newcomer){ s, account };
}

/* Whether s is one of the last of `there` segments, all in account unless that is NULL; the oldest of them never is. */
static bool grace_has(const struct seg *s, const struct account *account, size_t there)
{
	for (uint64_t i = 1; i <= GRACE && i <= arrivals && there > 1; i++) {
		const struct newcomer *r = &grace[(arrivals - i) % GRACE];

		if (account && r->account != account)
			continue;
		if (r->seg == s)
			return true;
		there--;
	}
	return false;
}

/* ---- Who is resident ---- */

static size_t resident_count;
static _Atomic size_t all_dirty;     /* bytes of memory for dirty segments of all mappings */

/* Under the lock: the mapping of the group that s belongs to. */
static struct member *owner(struct group *g, const struct seg *s)
{
	return g->member_count == 1 ? member_of(g->members.next) : owner_of(s);
}

struct cache_bytes cache_count(const struct member *m)
{
	struct cache_bytes b;

	futex_lock(&lock);
	b.resident = m->resident * m->len;
	b.inactive = (m->inactive + m->dirty_inactive + m->ahead) * m->len;
	b.dirty = (m->dirty + m->dirty_inactive) * m->len;
	futex_unlock(&lock);
	return b;
}

/* ---- Groups and members ---- */

/* What counts something is 0 already: so it was when another group ended here, and late looks see no other. */
void cache_open(struct group *g, const struct ummap_policy *policy, void *p, size_t budget, size_t len)
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
	list_init(&g->unasked);
	g->ahead_since = g->account->came;
	list_init(&g->members);
	list_init(&g->own.groups);
	g->own.ahead_less = 0;
	list_insert(&g->account->groups, &g->link);
	g->account->group_count++;
	futex_unlock(&lock);
	if (budget)
		account_open(&g->own);
}

void cache_close(struct group *g)
{
	futex_lock(&lock);
	assert(!g->member_count && !g->hidden && !g->resident && !g->dirty && !g->own.bytes && !g->own.pinned);
	list_remove(&g->link);
	g->account->group_count--;
	futex_unlock(&lock);
	if (g->budget)
		account_close(&g->own);
}

/* Under the lock: each mapping of the group has to get on. */
static void set_most(struct group *g)
{
	size_t most = g->budget;

	for (struct ummap_node *n = g->members.next; n != &g->members; n = n->next)
		most = max_size(most, member_of(n)->least);
	g->own.most = most;
}

void cache_join(struct member *m, struct group *g, size_t len)
{
	futex_lock(&lock);
	m->group = g;
	m->len = len;
	list_init(&m->dirty_list);
	list_insert(&g->members, &m->link);
	g->member_count++;
	set_most(g);
	futex_unlock(&lock);
}

void cache_leave(struct member *m)
{
	futex_lock(&lock);
	list_remove(&m->link);
	m->group->member_count--;
	set_most(m->group);
	futex_unlock(&lock);
}

bool cache_own(struct member *m, const struct seg *segs, size_t n)
{
	bool ok;

	futex_lock(&lock);
	ok = span_add(segs, n * sizeof(*segs), m);
	futex_unlock(&lock);
	return ok;
}

void cache_disown(struct member *m)
{
	futex_lock(&lock);
	span_drop(m);
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

void cache_forget(void)
{
	lock = 0;
	account_forget();
	span_count = 0;
	resident_count = 0;
	all_dirty = 0;
	memset(grace, 0, sizeof(grace));
}

/* ---- Segments come and go ---- */

/* Under the lock: one more dirty segment, or one less. */
static void count_dirty(struct member *m, bool more)
{
	/* The least that a mapping needs is in proportion to what a dirty segment takes, its twin included. */
	size_t hold = m->least / FRAMES_MIN, change = more ? hold : -hold;

	m->group->account->dirty += change;
	all_dirty += change;
}

size_t cache_dirty(void)
{
	return all_dirty;
}

void cache_insert(struct member *m, struct seg *s, enum ummap_event why)
{
	struct group *g = m->group;

	futex_lock(&lock);
	g->policy->insert(g->p, &s->node, why);
	m->resident++;
	g->resident++;
	g->account->resident++;
	g->account->came++;
	resident_count++;
	if (seg_has(s, SEG_DIRTY)) {
		m->dirty++;
		g->dirty++;
		count_dirty(m, true);
	}
	if (why != UMMAP_EV_AHEAD)
		grace_add(s, g->account);
	g->mean += (arrivals - g->mean) / g->resident;
	futex_unlock(&lock);
}

void cache_touch(struct member *m, struct seg *s, enum ummap_event why)
{
	struct group *g = m->group;

	futex_lock(&lock);
	if (why == UMMAP_EV_DIRTIED) {
		m->dirty++;
		g->dirty++;
		count_dirty(m, true);
	} else if (why == UMMAP_EV_CLEANED) {
		m->dirty--;
		g->dirty--;
		count_dirty(m, false);
	}
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
	m->resident--;
	g->resident--;
	g->account->resident--;
	resident_count--;
	if (seg_has(s, SEG_DIRTY)) {
		m->dirty--;
		g->dirty--;
		count_dirty(m, false);
	}
}

/* Under the lock. */
static void remove_inactive(struct member *m, struct seg *s)
{
	struct account *account = m->group->account;

	list_remove(&s->node);
	if (seg_has(s, SEG_AHEAD)) {
		m->ahead--;
		account->ahead -= m->len;
	} else if (seg_has(s, SEG_DIRTY)) {
		m->dirty_inactive--;
		account->dirty_inactive -= m->len;
		count_dirty(m, false);
	} else {
		m->inactive--;
		account->clean -= m->len;
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

void cache_gone(struct member *m, struct seg *s)
{
	struct group *g = m->group;

	if (!g->policy->gone)
		return;
	futex_lock(&lock);
	g->policy->gone(g->p, &s->node, seg_label(s));
	futex_unlock(&lock);
}

/* Under the lock. */
static void stand(struct member *m, struct seg *s, enum inactive how)
{
	struct group *g = m->group;

	switch (how) {
	case INACTIVE_CLEAN:
	case INACTIVE_FIRST:
		list_insert(how == INACTIVE_CLEAN ? &g->clean : g->clean.next, &s->node);
		m->inactive++;
		g->account->clean += m->len;
		break;
	case INACTIVE_DIRTY:
		list_insert(&m->dirty_list, &s->node);
		m->dirty_inactive++;
		g->account->dirty_inactive += m->len;
		count_dirty(m, true);
		break;
	case INACTIVE_AHEAD:
		list_insert(&g->ahead, &s->node);
		m->ahead++;
		g->account->ahead += m->len;
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
		stand(m, list[k], how);
	futex_unlock(&lock);
}

/* ---- Who goes next ---- */

/* Of how many segments of an account the last ones are recent: not of those that are pinned, because they may be the only ones
 * left then; but what one instruction touches never makes room for itself. */
static size_t not_pinned(const struct account *own, size_t len)
{
	size_t pinned = own->pinned / len;

	return own->resident > pinned + INSTRUCTION ? own->resident - pinned : own->resident;
}

/* An account that makes room for itself always has something that may go. */
static bool is_recent(const struct search *search, const struct seg *s)
{
	const struct account *own = search->wanted->group->account == search->account ? search->account : NULL;

	return grace_has(s, own, own ? not_pinned(own, search->wanted->len) : resident_count);
}

/* The first unlocked segment of a group's inactive list. */
static struct seg *lock_first(struct group *g, struct ummap_node *list, struct member **from)
{
	if (g->hidden == g->member_count)
		return NULL;
	for (struct ummap_node *n = list->next; n != list; n = n->next) {
		struct seg *s = seg_of(n);
		struct member *m = owner(g, s);

		if (!m->hidden && seg_trylock(s)) {
			remove_inactive(m, s);
			*from = m;
			return s;
		}
	}
	return NULL;
}

/* A segment that was read ahead, and not accessed while all of memory was replaced: it is not going to be used. */
static struct seg *take_stale(struct group *g, struct member **from)
{
	if (g->account->came - g->ahead_since <= g->account->bytes / g->len)
		return NULL;
	if (list_empty(&g->unasked)) {
		list_move_all(&g->unasked, &g->ahead);
		g->ahead_since = g->account->came;
		return NULL;
	}
	return lock_first(g, &g->unasked, from);
}

static struct seg *take_clean(const struct search *search, struct group *g, struct member **from)
{
	struct seg *s = take_stale(g, from);

	(void)search;
	return s ? s : lock_first(g, &g->clean, from);
}

static struct seg *take_ahead(const struct search *search, struct group *g, struct member **from)
{
	struct seg *s = lock_first(g, &g->unasked, from);

	(void)search;
	return s ? s : lock_first(g, &g->ahead, from);
}

/* A first look without the segment's lock saves taking it; the look that counts is the one under it. */
static bool may_go(const struct search *search, const struct seg *s)
{
	return !seg_pins(s) && !is_recent(search, s) && !(search->clean && seg_has(s, SEG_DIRTY));
}

static struct seg *take_victim(const struct search *search, struct group *g, struct member **from)
{
	struct ummap_node *n = NULL;

	if (g->hidden == g->member_count || g->resident == 0 || (search->clean && g->dirty >= g->resident))
		return NULL;
	while ((n = g->policy->pick(g->p, n))) {
		struct seg *s = seg_of(n);

		if (!may_go(search, s) || owner(g, s)->hidden || !seg_trylock(s))
			continue;
		if (may_go(search, s)) {
			*from = owner(g, s);
			remove_resident(*from, s);
			return s;
		}
		seg_unlock(s);
	}
	return NULL;
}

/* How long ago its segments came; a frame of another size is worth less to `wanted`. */
static uint64_t coldness(const struct group *g, const struct member *wanted)
{
	return (arrivals - g->mean + 1) * (g->len == wanted->len ? WRONG_SIZE : 1);
}

/* Under the lock: tries groups from the coldest on until one gives. */
static struct seg *take_coldest(const struct search *search, struct member **from)
{
	struct ummap_node *ring = &search->account->groups, *at = ring->next;
	struct group *sample[SAMPLE];
	unsigned n = 0;

	for (; at != ring && n < SAMPLE; at = at->next)
		sample[n++] = group_of(at);
	if (at != ring) {
		list_remove(ring);
		list_insert(at, ring);
	}
	while (n > 0) {
		unsigned best = 0;
		struct seg *s;

		for (unsigned i = 1; i < n; i++) {
			if (coldness(sample[i], search->wanted) > coldness(sample[best], search->wanted))
				best = i;
		}
		s = search->take(search, sample[best], from);
		if (s)
			return s;
		sample[best] = sample[--n];
	}
	return NULL;
}

/* Under the lock. One sample may hold nothing where another does: go on until the ring has gone round. */
static struct seg *take_next(const struct search *search, struct member **from)
{
	struct seg *s = NULL;

	for (size_t seen = 0; !s && seen < search->account->group_count; seen += SAMPLE)
		s = take_coldest(search, from);
	return s;
}

static struct seg *take_any(const struct search *search, struct member **from)
{
	struct seg *s;

	futex_lock(&lock);
	s = take_next(search, from);
	futex_unlock(&lock);
	return s;
}

struct seg *cache_reclaim(struct account *account, const struct member *wanted, struct member **from)
{
	struct search search = { .account = account, .wanted = wanted, .take = take_clean };

	return account->clean || account->ahead ? take_any(&search, from) : NULL;
}

struct seg *cache_victim(struct account *account, const struct member *wanted, bool clean, struct member **from)
{
	struct search search = { .account = account, .wanted = wanted, .clean = clean, .take = take_victim };

	return take_any(&search, from);
}

/* Under the lock: the one behind s, mapped and in the pool, if it is what goes next. */
static struct seg *take_along(const struct search *search, struct seg *s, struct member *m)
{
	struct ummap_node *n = m->cluster > 1 ? m->group->policy->pick(m->group->p, NULL) : NULL;
	struct seg *next = s + 1;

	if (!n || seg_of(n) != next || owner(m->group, next) != m || !seg_trylock(next))
		return NULL;
	if (may_go(search, next) && seg_as_loaded(next) && next->frame == s->frame + 1 && next->frame % m->cluster) {
		remove_resident(m, next);
		return next;
	}
	seg_unlock(next);
	return NULL;
}

unsigned cache_victims(struct account *account, const struct member *wanted, size_t bytes, struct seg **list,
		       struct member **from, unsigned n, unsigned most)
{
	struct search search = { .account = account, .wanted = wanted, .take = take_victim };
	size_t got = 0;
	unsigned k = 0;

	futex_lock(&lock);
	while (k < n && got < bytes && (list[k] = take_next(&search, &from[k])))
		got += from[k++]->len;
	for (; k > 0 && k < most && (list[k] = take_along(&search, list[k - 1], from[k - 1])); k++)
		from[k] = from[k - 1];
	futex_unlock(&lock);
	return k;
}

struct seg *cache_reclaim_ahead(struct account *account, const struct member *wanted, struct member **from)
{
	struct search search = { .account = account, .wanted = wanted, .take = take_ahead };

	return account->ahead ? take_any(&search, from) : NULL;
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

struct seg *cache_dirty_inactive(struct member *m, uint64_t now)
{
	struct seg *s;

	futex_lock(&lock);
	s = lock_dirty_inactive(m, now);
	futex_unlock(&lock);
	return s;
}

struct seg *cache_dirty_inactive_any(struct account *account, uint64_t now, struct member **from)
{
	struct seg *s = NULL;

	if (!account->dirty_inactive)
		return NULL;
	futex_lock(&lock);
	for (struct ummap_node *g = account->groups.next; !s && g != &account->groups; g = g->next) {
		struct ummap_node *members = &group_of(g)->members;

		for (struct ummap_node *m = members->next; !s && m != members; m = m->next) {
			*from = member_of(m);
			s = lock_dirty_inactive(*from, now);
		}
	}
	futex_unlock(&lock);
	return s;
}
