/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Mappings of a node copy (UMMAP_NODE): read-only mappings whose segments are in memory that all
 * processes share which map the same bytes of the same store (nodecopy/table.h). Such a mapping is
 * in place (map->in_place): its headers only count, and the copy has its own budget.
 */
#ifndef SHARED_COPY_H
#define SHARED_COPY_H

#include "paging/mapping/mapping.h"

/* Text that is the same for the same bytes only: the file and its time stamps. */
struct copy_key {
	char text[512];
};

/* Makes the key of a mapping of `size` bytes of a file; an empty one if the store is no file. Waits
 * until the last change of the file is some time ago, so that a later change has another time
 * stamp. Returns 0, or -errno with a message. */
int copy_identify(const char *uri, int fd, uint64_t offset, size_t size, size_t seg_size,
		  struct copy_key *key);
/* Makes the key of a mapping whose store is open and no file: its driver must tell the version of
 * the store, and read this version only. Returns 0, or -errno with a message. */
int copy_identify_remote(const struct mapping *map, struct copy_key *key);
/* Joins the copy of the store and maps it. If this process begins the copy, the copy may have as
 * many bytes in memory as the mapping's group, or the memory group, may. Returns 0, or -errno with
 * a message. */
int copy_enter(struct mapping *map, const struct copy_key *key);
/* Leaves the copy, before the mapped range is freed. */
void copy_leave(struct mapping *map);
/* In a forked child, which does not have the mapping. */
void copy_forget(struct mapping *map);
/* Loads segment i, and perhaps some after it, unless the copy has it. Returns 0 or -errno. */
int copy_load(struct mapping *map, size_t i);
/* The number of segments that a list to prefetch may have; and whether it needs segment i. */
size_t copy_prefetch_room(const struct mapping *map);
bool copy_lacks(const struct mapping *map, size_t i);
/* Waits, for as long as budgets grow, until the copy has room for more segments of a list, of which
 * `taken` have been loaded. The first ones need no room. Returns false if there is none. */
bool copy_await_room(const struct mapping *map, size_t taken);
/* Loads segments of a sorted list that the copy lacks, unless other processes load them. */
void copy_prefetch(struct mapping *map, const size_t *list, size_t n);
/* Keeps segment i, which the caller has locked, in memory. Returns 0 or -errno; -ENOMEM: the copy
 * has too many pins. */
int copy_pin(struct mapping *map, size_t i);
void copy_unpin(const struct mapping *map, size_t i);
/* For the background thread. copy_count_parts counts this process's parts of its copies in its
 * budget. copy_adjust sets what it gives them, and returns the time in ms until the next call. */
void copy_count_parts(void);
unsigned copy_adjust(void);
/* Bytes of the copy that count in this process, and the number of processes that have the copy: as
 * of the last copy_adjust. */
size_t copy_part(const struct mapping *map);
unsigned copy_sharers(const struct mapping *map);
/* Bytes that the copy has in memory, and its budget. */
void copy_count(const struct mapping *map, uint64_t *resident, uint64_t *budget);

#endif
