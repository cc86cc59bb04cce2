/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A run in order fills whole huge pages (readahead.c). What is loaded in another order is on parts of them, wherever there
 * was a frame, so that each access to it needs an entry of the processor's for a small page. When a mapping has come to rest,
 * which is that nothing comes or goes between two rounds, neighbours that are all mapped, with the same rights, are copied to
 * frames of one huge page, which then takes their place by one call. It costs no fault anything, and where data comes and goes
 * it does nothing. Where they have such frames, but stores have come to one after the other, the kernel puts them together.
 *
 * The orders of STATES.md hold: the place has no right to be stored to while it is copied, and its rights after it are given
 * to the new frames in the pool. Who stores meanwhile waits for the segment's lock; loads go on.
 */
#include "paging/residency/assemble.h"

#include "paging/residency/evict.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Whether the system has huge pages for those who ask. */
static bool has_huge_pages(void)
{
	static int known; /* 1: no, 2: yes */
	char text[64] = "";
	int fd;

	if (known)
		return known == 2;
	fd = open("/sys/kernel/mm/transparent_hugepage/enabled", O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		known = read(fd, text, sizeof(text) - 1) > 0 && !strstr(text, "[never]") ? 2 : 1;
		close(fd);
	}
	return known == 2;
}

static unsigned per_huge(const struct mapping *map)
{
	return (unsigned)(HUGE_PAGE >> map->shift);
}

/* What has a twin, or is reached by other processes, keeps its frame. */
static bool is_suitable(const struct mapping *map)
{
	return !map->in_place && frames_are_whole(map->frames) && !map->shared && !map->writers &&
	       map->seg_size < HUGE_PAGE && per_huge(map) <= MAX_CLUSTER_SEGMENTS &&
	       (uintptr_t)map->range % HUGE_PAGE == 0 && !sys_locks;
}

/* Faults, and what they bring about. */
static uint64_t movements(const struct mapping *map)
{
	const struct map_stat *st = &map->stat;

	return st->read_faults + st->write_faults + st->upgrade_faults + st->evictions + st->readahead_loads;
}

static bool is_still(const struct seg *s)
{
	return seg_has(s, SEG_VALID) && !(seg_head(s) & (SEG_INACTIVE | SEG_POISONED | SEG_PAGECACHE)) && !seg_pins(s);
}

/* Whether all segments of a huge page are mapped with the same rights. *apart: they are not on one in the pool. */
static bool fit(const struct mapping *map, size_t first, bool *apart)
{
	*apart = false;
	for (unsigned k = 0; k < per_huge(map); k++) {
		const struct seg *s = map_seg(map, first + k), *before = map_seg(map, first + k - (k > 0));

		if (!is_still(s) || seg_has(s, SEG_WRITABLE) != seg_has(before, SEG_WRITABLE))
			return false;
		*apart |= k > 0 && !frame_on_one(before->frame, s->frame);
	}
	return true;
}

/* Locks all segments of a huge page, if nobody has one of them locked. */
static bool lock_all(const struct mapping *map, size_t first)
{
	for (unsigned k = 0; k < per_huge(map); k++) {
		if (seg_trylock(map_seg(map, first + k)))
			continue;
		while (k-- > 0)
			map_unlock(map, first + k, map_seg(map, first + k));
		return false;
	}
	return true;
}

static void unlock_all(const struct mapping *map, size_t first)
{
	for (unsigned k = 0; k < per_huge(map); k++)
		map_unlock(map, first + k, map_seg(map, first + k));
}

/* The new frames have taken the place, and the memory of the old ones is gone. */
static void change_frames(const struct mapping *map, size_t first, uint32_t frame)
{
	for (unsigned k = 0; k < per_huge(map); k++) {
		uint32_t old = map_seg(map, first + k)->frame;

		map_seg(map, first + k)->frame = frame + k;
		frame_free_to_system(old);
	}
}

static void free_all(const struct mapping *map, uint32_t frame)
{
	for (unsigned k = per_huge(map); k-- > 0;)
		frame_free(frame + k);
}

/* Not memcpy(3): a race detector that watches it would wait for threads that wait for this in their stores. */
__attribute__((no_sanitize("thread"))) static void copy_huge(char *to, const char *from)
{
	const volatile uint64_t *words = (const volatile uint64_t *)(const void *)from;

	for (size_t i = 0; i < HUGE_PAGE / sizeof(*words); i++)
		((uint64_t *)(void *)to)[i] = words[i];
}

/* To frames that are taken, in the pool, and may be written. */
static void move_to(struct mapping *map, size_t first, uint32_t frame)
{
	const struct engine *e = map->engine;
	char *range = map_place(map, first), *pool = frame_addr(frame);
	bool writable = seg_has(map_seg(map, first), SEG_WRITABLE);

	for (unsigned k = 0; k < per_huge(map); k++)
		frame_use_blank(frame + k);
	if (!writable || e->protect(e, range, HUGE_PAGE, false) == 0) {
		copy_huge(pool, range);
		if (e->map(e, range, pool, HUGE_PAGE, true, writable) == 0) {
			frame_note_mapped(frame, per_huge(map), writable, true);
			change_frames(map, first, frame);
			return;
		}
	}
	/* Stores find out by themselves that a place has less rights than its segment. */
	free_all(map, frame);
}

/* The system is kept from doing so by itself (arena.c). */
static void collapse(char *range)
{
	if (raw_madvise(range, HUGE_PAGE, MADV_HUGEPAGE) < 0)
		return;
	raw_madvise(range, HUGE_PAGE, MADV_COLLAPSE);
	raw_madvise(range, HUGE_PAGE, MADV_NOHUGEPAGE);
}

/* The segments of a huge page, all locked. false: there is no room just now. */
static bool put_together(struct mapping *map, size_t first)
{
	uint32_t frame = map_seg(map, first)->frame;
	bool apart;

	if (!fit(map, first, &apart))
		return true;
	if (!apart && frame_is_split(frame))
		collapse(map_place(map, first));
	if (!apart)
		return true;
	frame = frame_take_huge(map->frames, budget_batch_limit(map->member.least));
	if (frame != FRAME_NONE)
		move_to(map, first, frame);
	return frame != FRAME_NONE;
}

static bool assemble(struct mapping *map, size_t first)
{
	bool apart, room;

	if (!fit(map, first, &apart) || (!apart && !frame_is_split(map_seg(map, first)->frame)) || !lock_all(map, first))
		return true;
	room = put_together(map, first);
	unlock_all(map, first);
	return room;
}

void assemble_look(struct mapping *map)
{
	uint64_t now, end;
	unsigned n;

	if (!is_suitable(map) || !has_huge_pages())
		return;
	now = movements(map);
	if (now != map->residency.movements) {
		map->residency.movements = now;
		map->residency.next_assemble = 0;
		return;
	}
	n = per_huge(map);
	end = sys_now() + ASSEMBLE_ROUND_MS;
	while (map->residency.next_assemble + n <= map->size >> map->shift && sys_now() < end && assemble(map, map->residency.next_assemble))
		map->residency.next_assemble = map_next_touched(map, map->residency.next_assemble + n) / n * n;
}
