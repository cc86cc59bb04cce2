/* SPDX-License-Identifier: BSD-3-Clause */
/* The shared memory in which a user's processes on a node find each other. */
#ifndef REGISTRY_H
#define REGISTRY_H

#include "base/sys.h"

#include <sys/types.h>
#include <ummap.h>

#define REGISTRY_MAGIC 0x65646f6e6d6d75ull /* "ummnode" */
#define REGISTRY_VERSION 10
#define REGISTRY_SLOTS 1024
#define REGISTRY_MAPS 22
#define REGISTRY_NAME_LEN 64
#define REGISTRY_PATH_LEN 96

/* The first bytes of the file, which must be exactly these. */
struct registry_head {
	uint64_t magic;
	uint32_t version, slots, slot_size, page_size;
	uint32_t unused[10];
} __attribute__((aligned(64)));

/* The numbers of one process that all others read. Only that process writes them, except `asks`. */
struct registry_slot {
	_Atomic uint64_t owner;   /* registry_owner of the process; 0: free */
	_Atomic uint64_t thread;  /* registry_thread of its background thread; 0: not running yet */
	_Atomic uint32_t asks;    /* number of requests for memory, on which the thread waits */
	_Atomic uint32_t dynamic; /* mode */
	_Atomic uint64_t limit;   /* bytes that it grants all processes together */
	_Atomic uint64_t budget;  /* bytes that it may hold now */
	_Atomic uint64_t held;    /* bytes that it holds */
	_Atomic uint64_t lacks;   /* bytes of its share that it waits for */
} __attribute__((aligned(64)));

/* Counters of the process alone are at the end of struct umstat. */
#define REGISTRY_MAP_STATS (offsetof(struct umstat, tiers) / sizeof(uint64_t))

struct registry_map {
	uint64_t base, size, seg_size;
	uint64_t sharers;         /* processes of its node copy; 0: no copy */
	uint64_t st[REGISTRY_MAP_STATS]; /* first counters of a struct umstat: those of mappings */
	char name[REGISTRY_NAME_LEN]; /* name of the store */
};

/* The counters of one process, for umtop. */
struct registry_page {
	_Atomic uint32_t sequence; /* odd while it is written */
	uint32_t count;            /* number of mappings; the first REGISTRY_MAPS of them follow */
	uint64_t updated;          /* time of the last update (sys_now) */
	struct umstat st;          /* counters of the process */
	struct registry_map map[REGISTRY_MAPS];
} __attribute__((aligned(4096))); /* whole pages, so that those of free slots take no memory */

struct registry {
	struct registry_head head;
	struct registry_slot slot[REGISTRY_SLOTS];
	struct registry_page page[REGISTRY_SLOTS];
};

/* The path of the registry of this user's processes in a group; NULL: processes without a group. */
void registry_path(const char *group, char path[REGISTRY_PATH_LEN]);
/* Opens a registry for reading and writing, or makes an empty one (-EEXIST: another process was
 * faster). Returns a descriptor, or -errno with a message: the registry does not exist (-ENOENT),
 * is accessible to other users (-EACCES), is no registry (-EINVAL), or cannot exist here
 * (-ENOTSUP). */
int registry_open(const char *path);
int registry_create(const char *path);
/* Keeps the registry of a descriptor from being removed, until the descriptor is closed and its
 * mappings end. */
void registry_hold(int fd);
/* Removes a registry, or all registries of this user, unless a process holds them. */
void registry_remove(const char *path);
void registry_sweep(void);

/* Identifies a process, by its ID and its start time. */
uint64_t registry_owner(pid_t pid);
static inline pid_t registry_pid(uint64_t owner)
{
	return (pid_t)(uint32_t)owner;
}
/* Identifies a thread of the owner. The number contains the owner, because it is written after the
 * owner, and until then belongs to the process that had the slot before. In that case, and if there
 * is no thread, registry_tid is 0. */
static inline uint64_t registry_thread(uint64_t owner, uint32_t tid)
{
	return tid ? owner << 32 | tid : 0;
}
static inline pid_t registry_tid(uint64_t owner, uint64_t thread)
{
	return (uint32_t)(thread >> 32) == (uint32_t)owner ? (pid_t)(uint32_t)thread : 0;
}
/* Whether the process is alive, and its thread, if it has one. */
bool registry_alive(uint64_t owner, uint64_t thread);

#endif
