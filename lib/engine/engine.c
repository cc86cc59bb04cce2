/* SPDX-License-Identifier: BSD-3-Clause */
/* The choice of the engine for a mapping. Takes no lock. */
#include "engine/engine.h"

#include "base/config.h"
#include "base/log.h"
#include "base/sys.h"
#include "engine/paged.h"
#include "engine/sigsegv.h"
#include "engine/trial.h"

#include <stdio.h>
#include <string.h>
#include <ummap.h>

enum fault_answer (*engine_serve_fault)(struct fault *fault);
void *(*engine_serve_messages)(void *);

static int default_number;       /* value of UMMAP_ENGINE */
static _Atomic unsigned usable;  /* bit i: a trial of engines[i] has succeeded */

/* ---- Searches in the table ---- */

static const struct engine *find_number(int number)
{
	for (size_t i = 0; engines[i]; i++) {
		if (engines[i]->number == number)
			return engines[i];
	}
	return NULL;
}

/* Finds an engine that shares frames, or one that sees accesses of the kernel. */
static const struct engine *find_capable(bool shares)
{
	size_t i = 0;

	while (shares ? !engines[i]->shares : !engines[i]->sees_kernel)
		i++;
	return engines[i];
}

/* Returns whether `a` suits segments of this size better than `b`. */
static bool is_better(const struct engine *a, const struct engine *b, size_t seg_size)
{
	bool a_fits = seg_size <= a->best_up_to, b_fits = seg_size <= b->best_up_to;

	return a_fits != b_fits ? a_fits : a_fits == (a->best_up_to < b->best_up_to);
}

/* Finds the best automatic engine except `other`; NULL: none. */
static const struct engine *find_best(size_t seg_size, const struct engine *other)
{
	const struct engine *best = NULL;

	for (size_t i = 0; engines[i]; i++) {
		const struct engine *e = engines[i];

		if (e->best_up_to && e != other && (!best || is_better(e, best, seg_size)))
			best = e;
	}
	return best;
}

/* ---- Start ---- */

/* Sets the engine of mappings that request none. */
static int read_default(const char *text)
{
	char names[128] = "";

	default_number = UMMAP_ENGINE_AUTO;
	if (!text || strcmp(text, "auto") == 0)
		return 0;
	for (size_t i = 0, len = 0; engines[i]; i++) {
		if (strcmp(text, engines[i]->name) == 0) {
			default_number = engines[i]->number;
			return 0;
		}
		len += (size_t)snprintf(names + len, sizeof(names) - len, "%s %s",
					engines[i + 1] ? "," : " or", engines[i]->name);
	}
	return fail(EINVAL, "UMMAP_ENGINE is \"%.100s\": it must be auto%s", text, names);
}

int engine_start(enum fault_answer (*fault)(struct fault *), void *(*serve)(void *))
{
	int err = read_default(config.engine);

	engine_serve_fault = fault;
	engine_serve_messages = serve;
	return err ? err : sigsegv_start(fault);
}

void engine_forget(void)
{
	for (size_t i = 0; engines[i]; i++) {
		if (engines[i]->forget)
			engines[i]->forget();
	}
	engine_forget_addresses();
}

/* ---- Choice ---- */

static const char *asked_by(const struct engine_wish *wish)
{
	return wish->wanted == UMMAP_ENGINE_DEFAULT ? "UMMAP_ENGINE" : "attr->engine";
}

static int start_one(const struct engine *e, const struct engine_wish *wish)
{
	return e->start ? e->start(wish) : 0;
}

/* Returns whether segments can come and go in this process by the engine. A success is
 * remembered. */
static bool can_use(const struct engine *e, const struct engine_wish *wish)
{
	unsigned i = 0;

	while (engines[i] != e)
		i++;
	if (start_one(e, wish) < 0)
		return false;
	if (!(usable >> i & 1) && trial_moves(e) == 0)
		usable |= 1u << i;
	return usable >> i & 1;
}

/* The library does not notice when the kernel stores to memory that it has pinned, and that has
 * moved. */
bool engine_moves_blocks(const struct engine *e, bool writable)
{
	return e->move_in && paged_moves(e) && !(writable && e->refuses_pinned);
}

/* If the best engine cannot be used, for whatever reason, the next best one is tried. If that
 * cannot be used, either, the first segment reports the error, because a store that is mapped in
 * place needs no engine. */
static const struct engine *choose_automatically(const struct engine_wish *wish)
{
	const struct engine *best = find_best(wish->seg_size, NULL), *other;

	if (can_use(best, wish))
		return best;
	other = find_best(wish->seg_size, best);
	log_line(LOG_INFO, "engine", "%s. The library tries the engine %s instead", fail_message(),
		 other->name);
	best = can_use(other, wish) ? other : engines[0];
	fail_clear();
	return best;
}

/* With userfaultfd(2), a page of shared memory that the kernel works on would lose stores, without
 * an error. Therefore few engines share. */
static int choose_shared(const struct engine_wish *wish, const struct engine **e)
{
	const struct engine *named = *e;

	*e = find_capable(true);
	if (wish->kernel)
		return fail(EOPNOTSUPP, "cannot use UMMAP_SHARED with UMMAP_KERNEL. Try one of "
			    "them");
	if (named && !named->shares)
		return fail(EOPNOTSUPP, "cannot use UMMAP_SHARED with the engine %s (%s): it needs "
			    "the engine %s", named->name, asked_by(wish), (*e)->name);
	return 0;
}

/* Chooses the engine that shares the pages of an object, if it can be used. */
static int choose_for_node(const struct engine_wish *wish, const struct engine **e)
{
	const struct engine *named = *e;
	size_t i = 0;

	while (!engines[i]->share)
		i++;
	*e = engines[i];
	if (wish->kernel || wish->shared)
		return fail(EINVAL, "cannot use UMMAP_NODE with UMMAP_KERNEL or UMMAP_SHARED. Try "
			    "one of them");
	if (named && named != *e)
		return fail(EINVAL, "cannot use UMMAP_NODE with the engine %s (%s): it needs the "
			    "engine %s", named->name, asked_by(wish), (*e)->name);
	return start_one(*e, wish);
}

int engine_choose(const struct engine_wish *wish, const struct engine **e)
{
	int number = wish->wanted == UMMAP_ENGINE_DEFAULT ? default_number : wish->wanted;

	*e = find_number(number);
	if (!*e && number != UMMAP_ENGINE_AUTO)
		return fail(EINVAL, "cannot create the mapping: there is no engine %d. Try one of "
			    "UMMAP_ENGINE_*", number);
	if (wish->node)
		return choose_for_node(wish, e);
	if (wish->shared)
		return choose_shared(wish, e);
	if (wish->kernel && *e && (*e)->refuses_kernel)
		return fail(EINVAL, "cannot use UMMAP_KERNEL with the engine %s (%s): it needs the "
			    "engine %s", (*e)->name, asked_by(wish), find_capable(false)->name);
	if (wish->kernel)
		*e = find_capable(false);
	for (size_t i = 0; wish->whole && !*e && engines[i]; i++)
		*e = engines[i]->frames->whole ? engines[i] : NULL;
	if (*e)
		return start_one(*e, wish);
	*e = choose_automatically(wish);
	return 0;
}
