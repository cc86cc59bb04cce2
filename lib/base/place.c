/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A thread that populates memory of its own node needs no policy, because the kernel allocates
 * there by default. Policies are set for a thread and not for addresses (mbind(2)): addresses with
 * different policies never merge to one VMA, and frames take their policy along when they move. A
 * policy is a preference, because the kernel kills a process that is bound to full nodes.
 */
#include "base/place.h"

#include <errno.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PREFERRED_MANY 5 /* MPOL_PREFERRED_MANY, since Linux 5.15 */
#define POLICY_WORDS (sizeof(((struct place_policy *)0)->nodes) / sizeof(uint64_t))
#define POLICY_BITS (64 * POLICY_WORDS)

unsigned place_count = 1;
struct place all_places[MAX_PLACES] = { [0 ... MAX_PLACES - 1] = { .file = -1 } };
uint64_t place_file_bytes;
static uint8_t place_of_node[MAX_NODES];  /* without tiers */
static bool are_tiers;
static _Atomic bool lacks_preferred_many; /* the kernel is older than the policy */
/* 1 + the place of the thread's job; 0: the thread serves itself. */
static _Thread_local unsigned thread_place __attribute__((tls_model("initial-exec")));

static long get_policy(int *mode, uint64_t *nodes, unsigned long flags)
{
	return syscall(SYS_get_mempolicy, mode, nodes, nodes ? POLICY_BITS : 0, NULL, flags);
}

uint64_t place_allowed_nodes(void)
{
	uint64_t nodes[POLICY_WORDS] = { 0 };

	return get_policy(NULL, nodes, MPOL_F_MEMS_ALLOWED) == 0 ? nodes[0] : 1;
}

static bool has_own_policy(void)
{
	int mode;

	return get_policy(&mode, NULL, 0) < 0 || mode != MPOL_DEFAULT;
}

void place_start(void)
{
	uint64_t nodes = place_allowed_nodes();
	unsigned n = 0;

	place_count = 1;
	all_places[0] = (struct place){ .file = -1 };
	place_file_bytes = 0;
	are_tiers = false;
	if (!(nodes & (nodes - 1)) || has_own_policy())
		return;
	memset(place_of_node, 0, sizeof(place_of_node));
	for (unsigned i = 0; i < MAX_NODES && n < MAX_PLACES; i++) {
		if (!(nodes >> i & 1))
			continue;
		all_places[n] = (struct place){ .nodes = 1ull << i, .file = -1 };
		place_of_node[i] = (uint8_t)n++;
	}
	place_count = n;
}

void place_start_tiers(unsigned n, const struct place *tiers)
{
	memcpy(all_places, tiers, n * sizeof(*tiers));
	for (unsigned i = 0; i < n; i++)
		place_file_bytes += place_has_file(i) ? all_places[i].limit : 0;
	are_tiers = true;
	place_count = n;
}

static unsigned place_of_processor(void)
{
	unsigned node = 0;

	getcpu(NULL, &node);
	return node < MAX_NODES ? place_of_node[node] : 0;
}

unsigned place_find_thread(void)
{
	if (are_tiers)
		return 0;
	return thread_place ? thread_place - 1 : place_of_processor();
}

void place_set_thread(unsigned place)
{
	thread_place = 1 + place;
}

static bool set_policy(int mode, const uint64_t *nodes)
{
	return syscall(SYS_set_mempolicy, mode, nodes, nodes ? POLICY_BITS : 0) == 0;
}

/* Prefers nodes, of which an old kernel can prefer only one. */
static bool prefer_nodes(uint64_t nodes)
{
	uint64_t words[POLICY_WORDS] = { nodes };

	if (!lacks_preferred_many && set_policy(PREFERRED_MANY, words))
		return true;
	lacks_preferred_many = true;
	words[0] = nodes & -nodes;
	return set_policy(MPOL_PREFERRED, words);
}

void place_change_policy(unsigned place, struct place_policy *before)
{
	int err = errno;

	if (!all_places[place].nodes ||
	    (!are_tiers && !thread_place && place_of_processor() == place))
		return;
	memset(before->nodes, 0, sizeof(before->nodes));
	before->is_changed = get_policy(&before->mode, before->nodes, 0) == 0 &&
			     prefer_nodes(all_places[place].nodes);
	errno = err;
}

void place_restore_policy(const struct place_policy *before)
{
	int err = errno;

	set_policy(before->mode, before->mode == MPOL_DEFAULT ? NULL : before->nodes);
	errno = err;
}
