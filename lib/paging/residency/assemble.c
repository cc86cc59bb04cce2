/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A sequential run fills whole huge pages (readahead.c). Segments that are loaded in another order
 * are on parts of huge pages, so each access to them needs a translation entry of a small page. If
 * nothing is loaded or evicted between two rounds, the mapping is idle: then neighbours that are
 * all resident, with the same rights, are copied to frames of one huge page, which is mapped in
 * their place by one call. No fault takes longer for that, and nothing happens while segments come
 * and go. If the frames are one huge page already, but stores came to them one after the other,
 * the kernel assembles them.
 *
 * The orders of STATES.md hold: the slot loses the right to store before it is copied, and the new
 * frames get their rights in the pool. A store meanwhile waits for the lock of the segment. Loads
 * go on.
 */
#include "paging/residency/assemble.h"

#include "paging/residency/evict.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Whether the system gives huge pages on request. */
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

/* Whether segments of the mapping may change their frames. Frames with twins, or that other
 * processes access, must stay. */
static bool is_suitable(const struct mapping *map)
{
	return !map->in_place && !map->tiers && frames_are_whole(map->frames) && !map->shared &&
	       !map->writers && map->seg_size < HUGE_PAGE &&
	       per_huge(map) <= MAX_CLUSTER_SEGMENTS &&
	       (uintptr_t)map->range % HUGE_PAGE == 0 && !sys_memory_is_locked;
}

/* Returns the number of faults, loads and evictions. */
static uint64_t count_movements(const struct mapping *map)
{
	const struct map_stat *st = &map->stat;

	return st->read_faults + st->write_faults + st->upgrade_faults + st->evictions +
	       st->readahead_loads;
}

static bool can_move(const struct seg *s)
{
	return seg_has(s, SEG_VALID) && !seg_pins(s) &&
	       !(seg_head(s) & (SEG_INACTIVE | SEG_POISONED | SEG_PAGECACHE));
}

/* Whether all segments of a huge page are resident with the same rights. *apart: their frames are
 * not one huge page of the pool. */
static bool can_assemble(const struct mapping *map, size_t first, bool *apart)
{
	*apart = false;
	for (unsigned k = 0; k < per_huge(map); k++) {
		const struct seg *s = map_seg(map, first + k);
		const struct seg *before = map_seg(map, first + k - (k > 0));

		if (!can_move(s) || seg_has(s, SEG_WRITABLE) != seg_has(before, SEG_WRITABLE))
			return false;
		*apart |= k > 0 && !frame_on_one(before->frame, s->frame);
	}
	return true;
}

/* Locks all segments of a huge page. Returns false if one is locked. */
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

/* Records that the new frames are mapped, and frees the old ones, which have no memory any more. */
static void change_frames(const struct mapping *map, size_t first, uint32_t frame)
{
	for (unsigned k = 0; k < per_huge(map); k++) {
		uint32_t old = map_seg(map, first + k)->frame;

		__atomic_store_n(&map_seg(map, first + k)->frame, frame + k, __ATOMIC_RELAXED);
		frame_free_to_system(old);
	}
}

static void free_all(const struct mapping *map, uint32_t frame)
{
	for (unsigned k = per_huge(map); k-- > 0;)
		frame_free(frame + k);
}

/* Not memcpy(3): a race detector that intercepts it would wait for threads whose stores wait for
 * this copy. */
__attribute__((no_sanitize("thread"))) static void copy_huge(char *to, const char *from)
{
	const volatile uint64_t *words = (const volatile uint64_t *)(const void *)from;

	for (size_t i = 0; i < HUGE_PAGE / sizeof(*words); i++)
		((uint64_t *)(void *)to)[i] = words[i];
}

/* Copies the segments to frames that are taken, in the pool and writable, and maps these. */
static void move_to_huge_page(struct mapping *map, size_t first, uint32_t frame)
{
	const struct engine *e = map->engine;
	char *range = map_slot(map, first), *pool = frame_addr(frame);
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
	/* A slot may have lost the right to store. A fault restores it from the header. */
	free_all(map, frame);
}

/* Makes the kernel assemble a huge page, which it must not do by itself (arena.c). */
static void collapse_huge_page(char *range)
{
	if (raw_madvise(range, HUGE_PAGE, MADV_HUGEPAGE) < 0)
		return;
	raw_madvise(range, HUGE_PAGE, MADV_COLLAPSE);
	raw_madvise(range, HUGE_PAGE, MADV_NOHUGEPAGE);
}

/* Assembles a huge page whose segments are locked. Returns false if memory has no room for it
 * now. */
static bool assemble_locked(struct mapping *map, size_t first)
{
	uint32_t frame = map_seg(map, first)->frame;
	bool apart;

	if (!can_assemble(map, first, &apart))
		return true;
	if (!apart && frame_is_split(frame))
		collapse_huge_page(map_slot(map, first));
	if (!apart)
		return true;
	frame = frame_take_huge(map->frames, frame_place(frame),
				budget_batch_limit(map->member.least));
	if (frame != FRAME_NONE)
		move_to_huge_page(map, first, frame);
	return frame != FRAME_NONE;
}

static bool assemble_huge_page(struct mapping *map, size_t first)
{
	bool apart, room;

	if (!can_assemble(map, first, &apart) ||
	    (!apart && !frame_is_split(map_seg(map, first)->frame)) || !lock_all(map, first))
		return true;
	room = assemble_locked(map, first);
	unlock_all(map, first);
	return room;
}

void assemble_if_idle(struct mapping *map)
{
	uint64_t now, end;
	unsigned n;

	if (!is_suitable(map) || !has_huge_pages())
		return;
	now = count_movements(map);
	if (now != map->residency.movements) {
		map->residency.movements = now;
		map->residency.next_assemble = 0;
		return;
	}
	n = per_huge(map);
	end = sys_now() + ASSEMBLE_ROUND_MS;
	while (map->residency.next_assemble + n <= map->size >> map->shift && sys_now() < end &&
	       assemble_huge_page(map, map->residency.next_assemble))
		map->residency.next_assemble =
			map_next_touched(map, map->residency.next_assemble + n) / n * n;
}
