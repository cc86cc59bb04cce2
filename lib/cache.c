/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Decides who goes next: within a mapping its policy does, between mappings the one whose resident segments
 * came longest ago gives first. Knows no frames, no storage, no view. One leaf lock around lists and
 * policies; segments are only ever trylocked under it.
 */
#include "cache.h"

/* How many mappings are compared for one victim. */
#define SAMPLE 16
/* An instruction may touch several segments at once; those that just came must not make room for each other. */
#define RECENT 8
/* Another mapping's frame is of the wrong size: take it only if it is this many times as cold. */
#define WRONG_SIZE 2

static struct member *members;        /* the ring; the pointer goes round */
static size_t member_count;
static _Atomic uint32_t lock;
static uint64_t inserts;               /* the clock: faults that brought a segment in */
static struct seg *recent[RECENT];
static size_t resident_count;
static _Atomic size_t clean_bytes, unwritten_bytes, ahead_bytes;

static struct seg *seg_of(struct ummap_node *node)
{
	return container_of(node, struct seg, node);
}

size_t cache_clean_bytes(void)
{
	return atomic_load_explicit(&clean_bytes, memory_order_relaxed);
}

size_t cache_unwritten_bytes(void)
{
	return atomic_load_explicit(&unwritten_bytes, memory_order_relaxed);
}

size_t cache_ahead_bytes(void)
{
	return atomic_load_explicit(&ahead_bytes, memory_order_relaxed);
}

struct cache_bytes cache_count(const struct member *m)
{
	struct cache_bytes b;

	futex_lock(&lock);
	b.resident = m->resident * m->len;
	b.standby = (m->standby + m->unwritten + m->prefetched) * m->len;
	b.dirty = (m->changed + m->unwritten) * m->len;
	futex_unlock(&lock);
	return b;
}

void cache_join(struct member *m, const struct ummap_policy *policy, void *p, size_t len)
{
	m->policy = policy;
	m->p = p;
	m->len = len;
	list_init(&m->clean);
	list_init(&m->dirty);
	list_init(&m->ahead);
	futex_lock(&lock);
	m->mean = inserts;
	member_count++;
	if (members) {
		m->next = members;
		m->prev = members->prev;
		m->prev->next = m;
		m->next->prev = m;
	} else {
		m->next = m->prev = members = m;
	}
	futex_unlock(&lock);
}

void cache_leave(struct member *m)
{
	futex_lock(&lock);
	member_count--;
	if (m->next == m) {
		members = NULL;
	} else {
		m->next->prev = m->prev;
		m->prev->next = m->next;
		if (members == m)
			members = m->next;
	}
	futex_unlock(&lock);
}

void cache_hide(struct member *m, bool hidden)
{
	futex_lock(&lock);
	m->hidden = hidden;
	futex_unlock(&lock);
}

void cache_forget(void)
{
	members = NULL;
	member_count = 0;
	lock = 0;
	resident_count = 0;
	clean_bytes = unwritten_bytes = ahead_bytes = 0;
	for (unsigned i = 0; i < RECENT; i++)
		recent[i] = NULL;
}

void cache_insert(struct member *m, struct seg *s, enum ummap_event why)
{
	futex_lock(&lock);
	m->policy->insert(m->p, &s->node, why);
	m->resident++;
	resident_count++;
	if (seg_has(s, SEG_DIRTY))
		m->changed++;
	recent[inserts++ % RECENT] = s;
	m->mean += (inserts - m->mean) / m->resident;
	futex_unlock(&lock);
}

void cache_touch(struct member *m, struct seg *s, enum ummap_event why)
{
	futex_lock(&lock);
	if (why == UMMAP_EV_DIRTIED)
		m->changed++;
	else if (why == UMMAP_EV_CLEANED)
		m->changed--;
	if (m->policy->touch)
		m->policy->touch(m->p, &s->node, why);
	futex_unlock(&lock);
}

/* Under the lock. */
static void remove_resident(struct member *m, struct seg *s)
{
	m->policy->remove(m->p, &s->node);
	m->resident--;
	resident_count--;
	if (seg_has(s, SEG_DIRTY))
		m->changed--;
}

/* Under the lock. */
static void remove_standby(struct member *m, struct seg *s)
{
	list_remove(&s->node);
	if (seg_has(s, SEG_AHEAD)) {
		m->prefetched--;
		ahead_bytes -= m->len;
	} else if (seg_has(s, SEG_DIRTY)) {
		m->unwritten--;
		unwritten_bytes -= m->len;
	} else {
		m->standby--;
		clean_bytes -= m->len;
	}
}

void cache_remove(struct member *m, struct seg *s)
{
	futex_lock(&lock);
	if (seg_has(s, SEG_STANDBY))
		remove_standby(m, s);
	else
		remove_resident(m, s);
	futex_unlock(&lock);
}

void cache_stand(struct member *m, struct seg *s, enum standby how)
{
	futex_lock(&lock);
	switch (how) {
	case STANDBY_CLEAN:
	case STANDBY_FIRST:
		list_insert(how == STANDBY_CLEAN ? &m->clean : m->clean.next, &s->node);
		m->standby++;
		clean_bytes += m->len;
		break;
	case STANDBY_DIRTY:
		list_insert(&m->dirty, &s->node);
		m->unwritten++;
		unwritten_bytes += m->len;
		break;
	case STANDBY_AHEAD:
		list_insert(&m->ahead, &s->node);
		m->prefetched++;
		ahead_bytes += m->len;
		break;
	}
	futex_unlock(&lock);
}

static bool is_recent(const struct seg *s)
{
	uint64_t n = resident_count > RECENT ? RECENT : resident_count ? resident_count - 1 : 0;

	for (uint64_t i = 1; i <= n && i <= inserts; i++) {
		if (recent[(inserts - i) % RECENT] == s)
			return true;
	}
	return false;
}

/* The first of a standby list that nobody has locked. */
static struct seg *lock_first(struct ummap_node *list)
{
	for (struct ummap_node *n = list->next; n != list; n = n->next) {
		if (seg_trylock(seg_of(n)))
			return seg_of(n);
	}
	return NULL;
}

/* Everything on the clean list is clean, whether that matters or not. */
static struct seg *take_clean(struct member *m, bool clean __attribute__((unused)))
{
	struct seg *s = m->standby && !m->hidden ? lock_first(&m->clean) : NULL;

	if (s)
		remove_standby(m, s);
	return s;
}

/* A first look without the segment's lock saves taking it; the look that counts is the one under it. */
static bool may_go(const struct seg *s, bool clean)
{
	return !seg_pins(s) && !is_recent(s) && !(clean && seg_has(s, SEG_DIRTY));
}

static struct seg *take_victim(struct member *m, bool clean)
{
	struct ummap_node *n = NULL;

	if (m->hidden || m->resident == 0 || (clean && m->changed >= m->resident))
		return NULL;
	while ((n = m->policy->pick(m->p, n))) {
		struct seg *s = seg_of(n);

		if (!may_go(s, clean) || !seg_trylock(s))
			continue;
		if (may_go(s, clean)) {
			remove_resident(m, s);
			return s;
		}
		seg_unlock(s);
	}
	return NULL;
}

/* How long ago its segments came; a frame of another size is worth less to `wanted`. */
static uint64_t coldness(const struct member *m, const struct member *wanted)
{
	uint64_t age = inserts - m->mean + 1;

	return m->len == wanted->len ? age * WRONG_SIZE : age;
}

/* Under the lock: tries members from the coldest on until one gives. */
static struct seg *take_coldest(const struct member *wanted, bool clean,
				struct seg *(*take)(struct member *, bool), struct member **from)
{
	struct member *sample[SAMPLE], *m = members;
	unsigned n = 0;

	do {
		sample[n++] = m;
		m = m->next;
	} while (m != members && n < SAMPLE);
	members = m;
	while (n > 0) {
		unsigned best = 0;
		struct seg *s;

		for (unsigned i = 1; i < n; i++) {
			if (coldness(sample[i], wanted) > coldness(sample[best], wanted))
				best = i;
		}
		s = take(sample[best], clean);
		if (s) {
			*from = sample[best];
			return s;
		}
		sample[best] = sample[--n];
	}
	return NULL;
}

/* One sample may hold nothing where another does: go on until the ring has gone round. */
static struct seg *take_any(struct member *wanted, bool only, bool clean,
			    struct seg *(*take)(struct member *, bool), struct member **from)
{
	struct seg *s = NULL;

	futex_lock(&lock);
	if (only) {
		s = take(wanted, clean);
		*from = wanted;
	}
	for (size_t seen = 0; !only && !s && seen < member_count; seen += SAMPLE)
		s = take_coldest(wanted, clean, take, from);
	futex_unlock(&lock);
	return s;
}

struct seg *cache_reclaim(struct member *wanted, bool only, struct member **from)
{
	if (cache_clean_bytes() == 0)
		return NULL;
	return take_any(wanted, only, false, take_clean, from);
}

struct seg *cache_victim(struct member *wanted, bool only, bool clean, struct member **from)
{
	return take_any(wanted, only, clean, take_victim, from);
}

struct seg *cache_reclaim_ahead(struct member **from)
{
	struct seg *s = NULL;
	struct member *m;

	if (cache_ahead_bytes() == 0)
		return NULL;
	futex_lock(&lock);
	m = members;
	do {
		if (m->prefetched && !m->hidden)
			s = lock_first(&m->ahead);
		if (s) {
			remove_standby(m, s);
			*from = m;
		}
		m = m->next;
	} while (!s && m != members);
	futex_unlock(&lock);
	return s;
}

struct seg *cache_unwritten(struct member *one, uint64_t now, struct member **from)
{
	struct seg *s = NULL;
	struct member *m;

	if (cache_unwritten_bytes() == 0)
		return NULL;
	futex_lock(&lock);
	m = one ? one : members;
	do {
		if (m->unwritten && !m->hidden && now >= m->retry)
			s = lock_first(&m->dirty);
		*from = m;
		m = m->next;
	} while (!s && !one && m != members);
	futex_unlock(&lock);
	return s;
}
