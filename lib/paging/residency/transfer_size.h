/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The transfer size of a mapping with small segments: how many neighbors a fault brings in, from
 * one segment to 2 MiB. This module only computes; other files load and evict.
 *
 * A block of level k is 2^k segments, aligned to their number. A fault loads the absent segments of
 * the block of the current level around it. For each level, the module simulates a cache that loads
 * and evicts whole blocks of this level, first in, first out, in the memory that the mapping has.
 * The level whose misses take the least time becomes the current one: a miss takes the latency of
 * storage, and the time to transfer the block. So the simulation includes everything for which a
 * large block is good (its other segments are used soon) or bad (they take memory from others).
 * The latency of remote stores is measured; other stores count as a local SSD. A block to which the
 * program has stored costs a write besides, for each run of stored segments in it.
 *
 * A simulation needs to learn of the first access to each segment, but the neighbors that a fault
 * makes resident are accessed without a fault. Therefore only a sample of the areas of 2 MiB is
 * simulated, with a proportional part of the memory. In such an area, the neighbors of a fault are
 * loaded, but do not become resident: their first access faults again, which takes a small part of
 * the time of a load. Such a fault makes the block of the level `resolution` around it resident.
 * Resolution is as fine as a bounded part of the time of all loads allows, and the levels below it
 * are not considered, except in an exploration: from time to time, the resolution is one segment
 * for as many accesses as fill the memory several times.
 *
 * The caller serializes the calls of transfer_touch and transfer_store. Other calls may run at any
 * time.
 */
#ifndef TRANSFER_SIZE_H
#define TRANSFER_SIZE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* log2 of the bytes of an area, which is a block of the last level; and the levels of segments of
 * 4 KiB, which are the smallest. */
#define TRANSFER_AREA_SHIFT 21
#define TRANSFER_LEVELS 10

struct transfer_size {
	_Atomic uint64_t request_ns; /* time of a request without the transfer of its bytes */
	uint32_t *stamps;          /* for each block of an area, the time in loads of its level when
				      it was loaded last; an area has 2^levels stamps */
	uint16_t *stored;          /* for each segment of an area, a bit for each level: whether the
				      program has stored to it since the load of its block */
	unsigned levels;           /* number of levels: an area has 2^(levels - 1) segments */
	bool huge;                 /* whether blocks of the last level are on huge pages, which
				      makes their loads cheaper */
	size_t segs;               /* segments of the mapping that may be sampled */
	_Atomic uint32_t level;    /* log2 of the segments that a fault brings in */
	_Atomic uint32_t resolution; /* log2 of the segments that an access in a sampled area makes
				      resident */
	_Atomic uint32_t sample_shift; /* one of 2^sample_shift areas is sampled */
	_Atomic uint64_t load_cost;/* time of loads and writes since the last decision */
	_Atomic uint64_t return_cost; /* time of the returns since the last decision */
	_Atomic size_t memory;     /* segments for which the mapping has memory */
	uint32_t loads[TRANSFER_LEVELS]; /* clocks: loads of each simulated cache */
	uint32_t misses[TRANSFER_LEVELS];/* recent loads of each simulated cache */
	uint32_t writes[TRANSFER_LEVELS];/* recent writes of each simulated cache */
	uint64_t counted_writes;   /* writes of which load_cost has the time */
	unsigned floor;            /* lowest level that is considered */
	uint32_t undecided;        /* accesses since the last decision */
	size_t exploring;          /* accesses until the end of the exploration; 0: none */
	unsigned explored_level;   /* level when the exploration began */
	size_t hold;               /* accesses for which the level does not rise */
	unsigned hold_factor;      /* length of the next hold, in fillings of memory */
	unsigned gap;              /* factor of the time between explorations, in quarters */
	uint64_t credit;           /* time that explorations may take */
};

/* Bytes of zeroed memory for the stamps and bits of a mapping of `segs` segments of 2^shift bytes,
 * which are at most an area. Only the part for sampled areas is used. */
static inline size_t transfer_stamps_len(size_t segs, unsigned shift)
{
	size_t areas = (segs >> (TRANSFER_AREA_SHIFT - shift)) + 1;

	return areas * (2 * sizeof(uint32_t) + sizeof(uint16_t)) << (TRANSFER_AREA_SHIFT - shift);
}

/* Begins with the given stamps, which are zeros. memory: segments for which there is memory. */
void transfer_begin(struct transfer_size *t, uint32_t *stamps, size_t segs, unsigned shift,
		    size_t memory);
/* The largest level. */
unsigned transfer_max_level(const struct transfer_size *t);
/* Whether the library reports accesses to absent or not yet used segments around segment i. */
bool transfer_is_sampled(const struct transfer_size *t, size_t i);
/* Reports an access to segment i, which is sampled. */
void transfer_touch(struct transfer_size *t, size_t i);
/* Reports a store to segment i, which is sampled, after transfer_touch. */
void transfer_store(struct transfer_size *t, size_t i);
/* Sets the number of segments for which there is memory, once for each decision or more often. */
static inline void transfer_set_memory(struct transfer_size *t, size_t memory)
{
	t->memory = memory;
}
/* Reports the load of n segments by a fault, in any area. */
void transfer_count_load(struct transfer_size *t, size_t n);
/* Reports the number of writes of the mapping so far. Serialized like transfer_touch. */
void transfer_count_writes(struct transfer_size *t, uint64_t all);
/* Reports that a load of n segments took so long. Only for stores whose requests do not take
 * REQUEST_NS. */
void transfer_note_time(struct transfer_size *t, size_t n, uint64_t ns);
/* Reports that an access has made a loaded segment resident, without I/O. */
void transfer_count_return(struct transfer_size *t);

#endif
