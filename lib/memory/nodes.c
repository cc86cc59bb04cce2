/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * hwloc is loaded when a process needs it, which few do: it reads the whole machine, and needs
 * other libraries. It remains loaded.
 */
#include "memory/nodes.h"

#include "base/log.h"
#include "base/place.h"

#include <errno.h>

#if __has_include(<hwloc.h>)
#include <dlfcn.h>
#include <hwloc.h>

#define LIBRARY "libhwloc.so.15" /* version 2 */

#define CALLS(CALL) CALL(topology_init) CALL(topology_set_flags) \
	CALL(topology_load) CALL(topology_destroy) \
	CALL(get_nbobjs_by_depth) CALL(get_obj_by_depth) CALL(memattr_get_best_initiator) \
	CALL(bitmap_alloc) CALL(bitmap_free) CALL(bitmap_or) CALL(bitmap_isincluded)
#define DECLARE(name) __typeof__(&hwloc_##name) name;
#define LOAD(name) && (call.name = (__typeof__(call.name))dlsym(library, "hwloc_" #name))

static struct {
	CALLS(DECLARE)
} call;

/* Tells memory without processors from ordinary memory: it is high-bandwidth memory if it is faster
 * than all memory with processors, otherwise an expansion such as CXL. */
static void set_kinds(struct memory_node *nodes, unsigned n)
{
	uint64_t ordinary = 0;

	for (unsigned i = 0; i < n; i++) {
		if (nodes[i].has_processors && nodes[i].bandwidth > ordinary)
			ordinary = nodes[i].bandwidth;
	}
	for (unsigned i = 0; i < n; i++)
		nodes[i].kind = nodes[i].has_processors ? "dram" :
				ordinary && nodes[i].bandwidth > ordinary ? "hbm" : "cxl";
}

static int load_library(void)
{
	void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);

	if (library CALLS(LOAD))
		return 0;
	return fail(EOPNOTSUPP, "cannot find kinds of memory: %s. Try to install hwloc 2",
		    dlerror());
}

static hwloc_obj_t find_node(hwloc_topology_t machine, unsigned number)
{
	int n = call.get_nbobjs_by_depth(machine, HWLOC_TYPE_DEPTH_NUMANODE);

	for (int i = 0; i < n; i++) {
		hwloc_obj_t node = call.get_obj_by_depth(machine, HWLOC_TYPE_DEPTH_NUMANODE,
							 (unsigned)i);

		if (node->os_index == number)
			return node;
	}
	return NULL;
}

/* Returns an attribute of a node for the nearest processors; 0: it is unknown. */
static uint64_t find_attribute(hwloc_topology_t machine, hwloc_obj_t node, hwloc_memattr_id_t id)
{
	struct hwloc_location from;
	hwloc_uint64_t value;

	return call.memattr_get_best_initiator(machine, id, node, 0, &from, &value) == 0 ? value :
											   0;
}

/* hwloc says which processors are near a node: they belong to the first node that has them. */
static unsigned read_nodes(hwloc_topology_t machine, struct memory_node *nodes, unsigned most)
{
	hwloc_bitmap_t seen = call.bitmap_alloc();
	unsigned n = 0;

	for (unsigned i = 0; seen && i < MAX_NODES && n < most; i++) {
		hwloc_obj_t node = find_node(machine, i);

		if (!node || !node->attr->numanode.local_memory)
			continue;
		nodes[n++] = (struct memory_node){
			.number = i, .bytes = node->attr->numanode.local_memory,
			.has_processors = !call.bitmap_isincluded(node->cpuset, seen),
			.bandwidth = find_attribute(machine, node, HWLOC_MEMATTR_ID_BANDWIDTH),
			.latency = find_attribute(machine, node, HWLOC_MEMATTR_ID_LATENCY),
		};
		call.bitmap_or(seen, seen, node->cpuset);
	}
	call.bitmap_free(seen);
	return n;
}

int nodes_find(struct memory_node *nodes, unsigned most)
{
	hwloc_topology_t machine;
	int n, err = load_library();

	if (err)
		return err;
	if (call.topology_init(&machine) < 0)
		return fail(EOPNOTSUPP, "cannot find kinds of memory: hwloc cannot allocate "
			    "memory");
	/* The processors of a node count also where the cpuset does not allow them. */
	call.topology_set_flags(machine, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
	n = call.topology_load(machine) < 0 ?
	    fail(EOPNOTSUPP, "cannot find kinds of memory: hwloc cannot read this machine") :
	    (int)read_nodes(machine, nodes, most);
	call.topology_destroy(machine);
	if (n > 0)
		set_kinds(nodes, (unsigned)n);
	return n;
}
#else
int nodes_find(struct memory_node *nodes, unsigned most)
{
	(void)nodes, (void)most;
	return fail(EOPNOTSUPP, "cannot find kinds of memory: libummap was built without hwloc");
}
#endif
