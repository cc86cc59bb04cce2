/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Groups of mappings, by name, and which mappings may join them. The first mapping of a group
 * creates it, and the last one frees it. A mapping that names no group has one of its own. One lock
 * for public calls only: a fault never calls this file. The memory of a group is reused only for
 * groups, because a fault may still read it.
 */
#include "cache/group.h"

#include "base/config.h"
#include "base/log.h"
#include "io/plugin.h"

#include <stdlib.h>
#include <string.h>

struct named {
	struct group group;
	char name[CONFIG_NAME_MAX + 1]; /* name; "": the group of one mapping that names none */
	char *spec;                   /* text by which the policy was requested */
	struct named *next;           /* link of `groups` or `unused` */
};

static struct named *groups, *unused;
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
static struct named *find_group(const char *name)
{
	struct named *g = groups;

	while (g && strcmp(g->name, name) != 0)
		g = g->next;
	return g;
}

/* Creates the policy object for a text such as "prnd:seed=7": the name of the policy, and arguments
 * after a colon. */
static int create_policy(const char *spec, const struct ummap_policy **policy, void **p)
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
static struct named *take_unused_group(void)
{
	struct named *g = unused;

	if (g)
		unused = g->next;
	return g ? g : calloc(1, sizeof(*g));
}

/* Under the lock. */
static int create_group(const struct ummap_attr *attr, const char *spec, size_t len,
	struct named **created)
{
	struct named *g = take_unused_group();
	const struct ummap_policy *policy;
	void *p;
	int err = -ENOMEM;

	if (!g)
		return fail(ENOMEM, "cannot create a group: no memory");
	g->spec = strdup(spec);
	if (g->spec)
		err = create_policy(spec, &policy, &p);
	if (err) {
		free(g->spec);
		g->next = unused;
		unused = g;
		return err;
	}
	strcpy(g->name, attr->group ? attr->group : "");
	cache_open(&g->group, policy, p, attr->budget, len);
	if (attr->group) {
		g->next = groups;
		groups = g;
	}
	*created = g;
	return 0;
}

/* A mapping that joins must have the attributes of the mapping that created the group, or the
 * defaults. */
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

static const char *get_policy(const struct ummap_attr *attr)
{
	if (attr->policy)
		return attr->policy;
	return plugin_ptype(attr->ptype);
}

int group_join(struct member *m, const struct ummap_attr *attr, size_t len)
{
	const char *spec = get_policy(attr);
	struct named *g = NULL;
	int err = attr->group ? check_name(attr->group) : 0;

	if (err)
		return err;
	futex_lock(&lock);
	if (attr->group)
		g = find_group(attr->group);
	err = g ? check_join(g, attr, spec) : create_group(attr, spec, len, &g);
	if (!err)
		cache_join(m, &g->group, len);
	futex_unlock(&lock);
	return err;
}

/* Under the lock. */
static void end_group(struct named *g)
{
	if (g->name[0]) {
		struct named **at = &groups;

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
		end_group(named_of(g));
	futex_unlock(&lock);
}

void group_fork_child(void)
{
	groups = unused = NULL;
	lock = 0;
}
