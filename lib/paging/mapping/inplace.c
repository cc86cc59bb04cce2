/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Mappings in place. The driver has mapped the pages of the store into the mapped range, and the
 * program accesses them without the library. No segment is ever valid, the library does not know
 * which bytes have changed, and the headers only count pins. Never accesses the mapped range. Takes
 * the locks of segments to count pins. Only the only user of a mapping may call inplace_enter and
 * inplace_leave.
 */
#include "paging/mapping/inplace.h"

#include "engine/engine.h"
#include "base/log.h"
#include "paging/mapping/shared_copy.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

static bool is_device_dax(int fd)
{
	static const char wanted[] = "/dax";
	char path[64], kind[256];
	struct stat st;
	ssize_t len;

	if (fstat(fd, &st) < 0 || !S_ISCHR(st.st_mode))
		return false;
	snprintf(path, sizeof(path), "/sys/dev/char/%u:%u/subsystem", major(st.st_rdev),
		 minor(st.st_rdev));
	len = readlink(path, kind, sizeof(kind));
	return len >= (ssize_t)strlen(wanted) &&
	       memcmp(kind + len - strlen(wanted), wanted, strlen(wanted)) == 0;
}

#ifdef STATX_ATTR_DAX
static bool is_dax_file(int fd)
{
	struct statx stx;

	return statx(fd, "", AT_EMPTY_PATH, STATX_TYPE, &stx) == 0 &&
	       stx.stx_attributes & STATX_ATTR_DAX;
}
#else
/* musl before 1.2.4 has no statx: files on DAX are treated as ordinary files. */
static bool is_dax_file(int fd)
{
	(void)fd;
	return false;
}
#endif

bool inplace_suits(int fd)
{
	return is_dax_file(fd) || is_device_dax(fd);
}

/* The store must have all contents of the mapping in whole pages: no zeros in place of its bytes,
 * and no bytes beyond its end. */
static bool store_has_all(const struct mapping *map)
{
	const struct backing *t = &map->backings[map->current];

	return t->read && t->offset % sys_page() == 0 && io_size(t->store) >= t->offset + map->size;
}

/* Number of times that a mapping was put in place. */
static _Atomic uint64_t placed;

int inplace_enter(struct mapping *map)
{
	const struct backing *t = &map->backings[map->current];
	size_t len = round_up(map->size, sys_page());
	int err;

	if (!io_maps(t->store) || !store_has_all(map))
		return 0;
	err = io_map(t->store, map->range, len, t->offset,
		     map->writable ? PROT_READ | PROT_WRITE : PROT_READ);
	if (err == -ENOTSUP)
		return 0;
	if (!err && raw_madvise(map->range, len, MADV_DONTFORK) < 0)
		err = -errno;
	if (err) {
		engine_reset(map->engine, map->range, len, map->writable);
		return fail(-err, "cannot map the store '%s' in place: %s", map->name,
			    strerror(-err));
	}
	map->in_place = true;
	map->life.placed = atomic_fetch_add(&placed, 1) + 1;
	map->life.persisted = sys_now();
	log_line(LOG_INFO, "inplace", "the store '%s' is mapped in place at %p", map->name,
		 (void *)map->range);
	return 0;
}

/* For pages of the store, which no engine manages. */
static int set_rights(char *at, size_t len, bool writable)
{
	return mprotect(at, len, writable ? PROT_READ | PROT_WRITE : PROT_READ) < 0 ? -errno : 0;
}

int inplace_leave(struct mapping *map)
{
	size_t len = round_up(map->size, sys_page());
	/* A store made between the sync and the reset would never be synced. */
	int err = set_rights(map->range, len, false);

	if (!err)
		err = inplace_sync(map, 0, map->size);
	if (!err)
		err = engine_reset(map->engine, map->range, len, map->writable);
	if (err) {
		set_rights(map->range, len, map->writable);
		return fail(-err, "cannot change the mapping of '%s' in place: %s", map->name,
			    strerror(-err));
	}
	map->in_place = false;
	return 0;
}

int inplace_sync(struct mapping *map, size_t at, size_t len)
{
	int err;

	if (!map->writable)
		return 0;
	if (len == map->size)
		map->life.persisted = sys_now();
	err = io_persist(map->backings[map->current].store, map->range + at, len, &map->stat.io);
	return err ? fail(-err, "cannot make changes to '%s' durable: %s", map->name,
			  strerror(-err)) : 0;
}

int inplace_sync_old(struct mapping *map, uint64_t interval)
{
	if (sys_now() - map->life.persisted < interval)
		return 0;
	return inplace_sync(map, 0, map->size);
}

/* With an engine that reports accesses by SIGBUS, an access that faulted before the mapping was put
 * in place looks like an error of the store, but does not fault again. So each thread tries once
 * again after each time that a mapping was put in place. */
static bool should_try_again(const struct mapping *map)
{
	static _Thread_local uint64_t tried __attribute__((tls_model("initial-exec")));
	bool first = tried != map->life.placed;

	tried = map->life.placed;
	return map->engine->signal == SIGBUS && first;
}

int inplace_fault(struct mapping *map, void *addr, bool bus)
{
	size_t page = (size_t)((char *)addr - map->range) & ~(sys_page() - 1);

	if (bus)
		return should_try_again(map) ? 0 : -EFAULT;
	/* The access may have faulted while another thread changed the mapping, with fewer
	 * rights. */
	return set_rights(map->range + page, sys_page(), map->writable);
}

int inplace_pin(struct mapping *map, size_t i)
{
	struct seg *s = map_seg(map, i);
	int err = 0;

	seg_lock(s);
	if (seg_pins(s) == SEG_PINS_MAX)
		err = -EAGAIN;
	else if (seg_pins(s) == 0 && map->copy)
		err = copy_pin(map, i);
	if (!err && seg_pins(s) == 0)
		map->life.pinned += map->seg_size;
	if (!err)
		seg_set_pins(s, seg_pins(s) + 1);
	seg_unlock(s);
	return err;
}

void inplace_unpin(struct mapping *map, size_t i)
{
	struct seg *s = map_seg(map, i);

	seg_lock(s);
	if (seg_pins(s) > 0) {
		seg_set_pins(s, seg_pins(s) - 1);
		if (seg_pins(s) == 0)
			map->life.pinned -= map->seg_size;
		if (seg_pins(s) == 0 && map->copy)
			copy_unpin(map, i);
	}
	seg_unlock(s);
}
