/* SPDX-License-Identifier: BSD-3-Clause */
#include "umalloc/arena.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include <ummap.h>

/* Settings of the arenas. Free extents are kept for a second. */
const char *malloc_conf = "dirty_decay_ms:1000,muzzy_decay_ms:0,narenas:1,retain:true";

/* jemalloc reads $MALLOC_CONF and /etc/malloc.conf, which are for the program's own jemalloc. Its
 * calls lead to these functions (rules.mk). */
char *umalloc_je_getenv(const char *name);
char *umalloc_je_getenv(const char *name)
{
	(void)name;
	return NULL;
}

ssize_t umalloc_je_readlink(const char *path, char *to, size_t room);
ssize_t umalloc_je_readlink(const char *path, char *to, size_t room)
{
	(void)path, (void)to, (void)room;
	errno = ENOENT;
	return -1;
}

/* jemalloc's structure, which its header lacks. jemalloc's own data are not in extents of the
 * hooks. */
struct arena_config {
	extent_hooks_t *hooks;
	bool metadata_use_hooks;
};

static int create_arena(struct umalloc_heap *heap, unsigned k)
{
	struct arena_config config = { &heap->hooks, false };
	size_t len = sizeof(unsigned);
	unsigned arena;
	int err = mallctl("experimental.arenas_create_ext", &arena, &len, &config, sizeof(config));

	if (err == EAGAIN)
		return umseterror(ENOMEM, "cannot create an arena of the heap: no memory, or the "
				  "process has 4,095 arenas already, of which each heap uses up "
				  "to %u. Try fewer heaps", heap->arenas);
	if (err)
		return umseterror(err, "cannot create an arena of the heap: %m");
	heap->arena[k] = arena;
	return 0;
}

long arena_number(struct umalloc_heap *heap, unsigned k)
{
	int result = 0;

	if (heap->arena[k] == NO_ARENA) {
		pthread_mutex_lock(&heap->arena_lock);
		if (heap->arena[k] == NO_ARENA)
			result = create_arena(heap, k);
		pthread_mutex_unlock(&heap->arena_lock);
	}
	return result < 0 ? -1 : (long)heap->arena[k];
}

void arena_control_all(struct umalloc_heap *heap, const char *name)
{
	char path[64];

	for (unsigned k = 0; k < heap->arenas; k++) {
		if (heap->arena[k] == NO_ARENA)
			continue;
		snprintf(path, sizeof(path), "arena.%u.%s", (unsigned)heap->arena[k], name);
		mallctl(path, NULL, NULL, NULL, 0);
	}
}
