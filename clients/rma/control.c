/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the ranks of a window on one machine share beside their parts: a memory object of the first rank's, with who each
 * rank is, and for each rank's part two locks and answers to those that ask for its segments.
 */
#include "common/memory_calls.h"
#include "rma/pager.h"
#include "rma/shm.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINE 64

static size_t lines(size_t len)
{
	return (len + LINE - 1) & ~(size_t)(LINE - 1);
}

static size_t processes_size(int ranks)
{
	return lines((size_t)ranks * sizeof(struct process_id));
}

static size_t part_size(int ranks)
{
	return 2 * nodelock_size(ranks) + lines((size_t)ranks * sizeof(struct pager_answer));
}

static size_t control_size(int ranks)
{
	return processes_size(ranks) + (size_t)ranks * part_size(ranks);
}

static void hand_out(struct shm *shm)
{
	char *at = shm->control;
	struct process_id *processes = shm->control;

	processes[shm->locks.me] = process_identify(getpid());
	shm->locks.processes = processes;
	at += processes_size(shm->ranks);
	for (int i = 0; i < shm->ranks; i++, at += part_size(shm->ranks)) {
		struct peer *p = &shm->peers[i];

		p->lock = (struct nodelock *)at;
		p->atomics = (struct nodelock *)(at + nodelock_size(shm->ranks));
		p->answers = (struct pager_answer *)(at + 2 * nodelock_size(shm->ranks));
	}
}

static bool map(struct shm *shm, int fd)
{
	size_t len = control_size(shm->ranks);
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (p == MAP_FAILED)
		return false;
	shm->control = p;
	shm->control_len = len;
	hand_out(shm);
	return shm->locks.processes[shm->locks.me].start_time != 0;
}

bool control_make(struct shm *shm, struct control_offer *offer)
{
	int fd = memfd_create("window-locks", MFD_CLOEXEC);
	struct stat st;

	if (fd >= 0 && ftruncate(fd, (off_t)control_size(shm->ranks)) == 0 && fstat(fd, &st) == 0 && map(shm, fd)) {
		*offer = (struct control_offer){ st.st_dev, st.st_ino, getpid(), fd };
		return true;
	}
	if (fd >= 0)
		close(fd);
	return false;
}

void control_hide(const struct control_offer *offer)
{
	if (offer->fd >= 0)
		close(offer->fd);
}

bool control_find(struct shm *shm, const struct control_offer *offer)
{
	char path[64];
	struct stat st;
	bool found;
	int fd;

	if (offer->fd < 0)
		return false;
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)offer->pid, (int)offer->fd);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return false;
	found = fstat(fd, &st) == 0 && st.st_dev == offer->dev && st.st_ino == offer->ino &&
		(uint64_t)st.st_size == control_size(shm->ranks) && map(shm, fd);
	close(fd);
	return found;
}

void control_close(struct shm *shm)
{
	if (shm->control)
		raw_munmap(shm->control, shm->control_len);
	shm->control = NULL;
}
