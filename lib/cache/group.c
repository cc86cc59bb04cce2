/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Groups of mappings, by name. The first mapping of a group creates it, the last one frees it; a mapping that names
 * none has a group to itself. Decides which mapping may join. One lock, for public calls only: a fault never comes
 * here. The memory of a group is reused only for groups, because a fault may still read it.
 */
#include "cache/group.h"

#include "base/config.h"
#include "base/log.h"
#include "io/plugin.h"

#include <stdlib.h>
#include <string.h>

struct named {
	struct group group;
	char name[CONFIG_NAME_MAX + 1]; /* "": of one mapping that named none */
	char *spec;                   /* the policy, as it was asked for */
	struct named *next;
};

static struct named *named, *unused;
static _Atomic uint32_t lock;

static struct named *named_of(struct group *g)
{
	return container_of(g, struct named, group);
}

static int check_name(const char *name)
{
	if (!config_is_name(name))
		return fail(EINVAL, "cannot use the group name '%.64s': it must be 1 to %d "
			    "letters, digits, '-', '_' or '.'", name, CONFIG_NAME_MAX);
	return 0;
}

/* Under the lock. */
static struct named *find(const char *name)
{
	struct named *g = named;

	while (g && strcmp(g->name, name) != 0)
		g = g->next;
	return g;
}

/* "prnd:seed=7": the policy's name, and what it may take from behind the colon. */
static int make_policy(const char *spec, const struct ummap_policy **policy, void **p)
{
	size_t len = strcspn(spec, ":");
	int err;

	*policy = plugin_policy(spec, len);
	if (!*policy)
		return -EINVAL;
	err = (*policy)->create(spec[len] ? spec + len + 1 : "", p);
	if (err == -EINVAL && spec[len])
		return fail(EINVAL, "cannot create the policy '%s': the arguments '%s' are not "
			    "valid. Try '%.*s' without arguments", spec, spec + len + 1, (int)len,
			    spec);
	return err ? fail(-err, "cannot create the policy '%s': %s", spec, strerror(-err)) : 0;
}

/* Under the lock. */
static struct named *take_unused(void)
{
	struct named *g = unused;

	if (g)
		unused = g->next;
	return g ? g : calloc(1, sizeof(*g));
}

/* Under the lock. */
static int make(const struct ummap_attr *attr, const char *spec, size_t len, struct named **made)
{
	struct named *g = take_unused();
	const struct ummap_policy *policy;
	void *p;
	int err = -ENOMEM;

	if (!g)
		return fail(ENOMEM, "cannot create a group: no memory");
	g->spec = strdup(spec);
	if (g->spec)
		err = make_policy(spec, &policy, &p);
	if (err) {
		free(g->spec);
		g->next = unused;
		unused = g;
		return err;
	}
	strcpy(g->name, attr->group ? attr->group : "");
	cache_open(&g->group, policy, p, attr->budget, len);
	if (attr->group) {
		g->next = named;
		named = g;
	}
	*made = g;
	return 0;
}

/* A mapping that joins has the attributes of the one that made the group, or the defaults. */
static int check_join(const struct named *g, const struct ummap_attr *attr, const char *spec)
{
	if ((attr->policy || attr->ptype != UMMAP_PTYPE_DEFAULT) && strcmp(g->spec, spec) != 0)
		return fail(EINVAL, "cannot join the group '%s' with the policy '%s': its policy "
			    "is '%s'. Try that policy, or none", g->name, spec, g->spec);
	if (attr->budget && attr->budget != g->group.budget && g->group.budget)
		return fail(EINVAL, "cannot join the group '%s' with a budget of %zu bytes: its "
			    "budget is %zu bytes. Try that budget, or 0", g->name, attr->budget,
			    g->group.budget);
	if (attr->budget && !g->group.budget)
		return fail(EINVAL, "cannot join the group '%s' with a budget of %zu bytes: the "
			    "group has no budget of its own. Try the budget 0", g->name,
			    attr->budget);
	return 0;
}

static const char *policy_of(const struct ummap_attr *attr)
{
	if (attr->policy)
		return attr->policy;
	return plugin_ptype(attr->ptype);
}

int group_join(struct member *m, const struct ummap_attr *attr, size_t len)
{
	const char *spec = policy_of(attr);
	struct named *g = NULL;
	int err = attr->group ? check_name(attr->group) : 0;

	if (err)
		return err;
	futex_lock(&lock);
	if (attr->group)
		g = find(attr->group);
	err = g ? check_join(g, attr, spec) : make(attr, spec, len, &g);
	if (!err)
		cache_join(m, &g->group, len);
	futex_unlock(&lock);
	return err;
}

/* Under the lock. */
static void end(struct named *g)
{
	if (g->name[0]) {
		struct named **at = &named;

		while (*at != g)
			at = &(*at)->next;
		*at = g->next;
	}
	cache_close(&g->group);
	g->group.policy->destroy(g->group.p);
	free(g->spec);
	g->next = unused;
	unused = g;
}

void group_leave(struct member *m)
{
	struct group *g = m->group;

	futex_lock(&lock);
	cache_leave(m);
	if (g->member_count == 0)
		end(named_of(g));
	futex_unlock(&lock);
}

void group_forget(void)
{
	named = unused = NULL;
	lock = 0;
}
