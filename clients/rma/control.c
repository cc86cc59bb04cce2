/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Control memory: what the ranks of a window on one machine share beside the window memory. It is a
 * memory object that the first rank makes, with the process of each rank, and for each target two
 * locks and the answers to requests for its segments. Takes no lock.
 */
#include "common/memory_calls.h"
#include "rma/shm.h"

#include <sys/mman.h>
#include <unistd.h>

#define CACHE_LINE 64

static size_t round_to_lines(size_t len)
{
	return (len + CACHE_LINE - 1) & ~(size_t)(CACHE_LINE - 1);
}

static size_t processes_size(int ranks)
{
	return round_to_lines((size_t)ranks * sizeof(struct process_id));
}

static size_t target_size(int ranks)
{
	return 2 * nodelock_size(ranks) +
	       round_to_lines((size_t)ranks * sizeof(struct pager_answer));
}

/* Sets the pointers into control memory. */
static void place_parts(struct shm *shm)
{
	char *at = shm->control;
	struct process_id *processes = shm->control;

	processes[shm->locks.me] = process_identify(getpid());
	shm->locks.processes = processes;
	at += processes_size(shm->ranks);
	for (int i = 0; i < shm->ranks; i++, at += target_size(shm->ranks)) {
		struct target *t = &shm->targets[i];

		t->lock = (struct nodelock *)at;
		t->atomics = (struct nodelock *)(at + nodelock_size(shm->ranks));
		t->answers = (struct pager_answer *)(at + 2 * nodelock_size(shm->ranks));
	}
}

static size_t control_size(int ranks)
{
	return processes_size(ranks) + (size_t)ranks * target_size(ranks);
}

static bool map_control(struct shm *shm, int fd)
{
	size_t len = control_size(shm->ranks);
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (p == MAP_FAILED)
		return false;
	shm->control = p;
	shm->control_len = len;
	place_parts(shm);
	return shm->locks.processes[shm->locks.me].start_time != 0;
}

bool control_make(struct shm *shm, struct descriptor *d)
{
	int fd = memfd_create("window-locks", MFD_CLOEXEC);

	if (fd >= 0 && ftruncate(fd, (off_t)control_size(shm->ranks)) == 0 &&
	    map_control(shm, fd) && descriptor_describe(d, fd))
		return true;
	if (fd >= 0)
		close(fd);
	return false;
}

bool control_find(struct shm *shm, const struct descriptor *d)
{
	int fd = descriptor_open(d);
	bool found = fd >= 0 && map_control(shm, fd);

	if (fd >= 0)
		close(fd);
	return found;
}

void control_close(struct shm *shm)
{
	if (shm->control)
		raw_munmap(shm->control, shm->control_len);
	shm->control = NULL;
}
