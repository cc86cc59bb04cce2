/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A process has one pipe and one thread for all its windows, from the first on that others can reach segment by segment.
 * Others open the pipe by way of /proc, and write requests to it, which are short enough to arrive whole. The thread pins the
 * segment and lets go of it at once: what cannot be had is an error then, and no signal. It takes part in nothing else, so it
 * answers whatever the program's threads wait for; no request is trusted.
 *
 * Locks: `lock`, around the list of what is paged, and while a request is served, so that nothing ends meanwhile;
 * `doors_lock`, around the pipes of others, which are opened once for all windows.
 */
#include "rma/pager.h"

#include "common/futex.h"
#include "rma/nodelock.h"

#include <ummap.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct pager {
	struct pager *next;
	uint64_t key;
	char *at;
	size_t len;
	struct pager_answer *answers;
	int askers;
};

struct request {
	uint64_t key, offset;
	int32_t asker, store;
};

struct pager_door {
	struct pager_door *next;
	struct pager_offer offer;
	int fd;
	unsigned users;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER, doors_lock = PTHREAD_MUTEX_INITIALIZER;
static struct pager *pagers;
static struct pager_door *doors;
static uint64_t last_key;
/* The process that has the pipe; in a forked child it is another one. */
static pid_t owner;
static int ends[2];

/* ---- The owner ---- */

static int page_in(char *at, bool store)
{
	if (umpin(at, 1, store ? PROT_READ | PROT_WRITE : PROT_READ) < 0)
		return errno;
	umunpin(at, 1);
	return 0;
}

static void serve(const struct request *r)
{
	struct pager *p;

	pthread_mutex_lock(&lock);
	for (p = pagers; p && p->key != r->key; p = p->next)
		;
	if (p && r->offset < p->len && r->asker >= 0 && r->asker < p->askers) {
		struct pager_answer *a = &p->answers[r->asker];

		atomic_store(&a->error, page_in(p->at + r->offset, r->store));
		atomic_fetch_add(&a->count, 1);
		futex_wake_shared(&a->count);
	}
	pthread_mutex_unlock(&lock);
}

static void *run(void *unused)
{
	struct request r;

	(void)unused;
	for (;;) {
		if (read(ends[0], &r, sizeof(r)) == sizeof(r))
			serve(&r);
	}
	return NULL;
}

/* Signals are for the program's threads. */
static int start_thread(void)
{
	sigset_t all, old;
	pthread_t thread;
	int err;

	sigfillset(&all);
	sigdelset(&all, SIGSEGV);
	sigdelset(&all, SIGBUS);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(&thread, NULL, run, NULL);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (!err)
		pthread_detach(thread);
	return err;
}

/* Under the lock. */
static bool start(void)
{
	if (owner == getpid())
		return true;
	if (pipe2(ends, O_CLOEXEC) < 0)
		return false;
	if (start_thread() == 0) {
		owner = getpid();
		return true;
	}
	close(ends[0]);
	close(ends[1]);
	return false;
}

struct pager *pager_open(char *at, size_t len, struct pager_offer *offer)
{
	struct pager *p = malloc(sizeof(*p));
	struct stat st;
	bool running;

	if (!p)
		return NULL;
	pthread_mutex_lock(&lock);
	running = start();
	if (running && fstat(ends[0], &st) == 0) {
		*p = (struct pager){ .next = pagers, .key = ++last_key, .at = at, .len = len };
		pagers = p;
		*offer = (struct pager_offer){ st.st_dev, st.st_ino, p->key, getpid(), ends[1] };
	} else {
		free(p);
		p = NULL;
	}
	pthread_mutex_unlock(&lock);
	return p;
}

void pager_answer(struct pager *p, struct pager_answer *answers, int askers)
{
	pthread_mutex_lock(&lock);
	p->answers = answers;
	p->askers = askers;
	pthread_mutex_unlock(&lock);
}

void pager_close(struct pager *p)
{
	struct pager **at = &pagers;

	pthread_mutex_lock(&lock);
	while (*at != p)
		at = &(*at)->next;
	*at = p->next;
	pthread_mutex_unlock(&lock);
	free(p);
}

/* ---- Those who ask ---- */

/* To be read from as well: then it does not break, which would be a signal, when the other process ends. */
static int open_pipe(const struct pager_offer *o)
{
	char path[64];
	struct stat st;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)o->pid, (int)o->fd);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd >= 0 && fstat(fd, &st) == 0 && S_ISFIFO(st.st_mode) && st.st_dev == o->dev && st.st_ino == o->ino)
		return fd;
	if (fd >= 0)
		close(fd);
	return -1;
}

static struct pager_door *new_door(const struct pager_offer *o)
{
	struct pager_door *d = malloc(sizeof(*d));
	int fd = d ? open_pipe(o) : -1;

	if (fd < 0) {
		free(d);
		return NULL;
	}
	*d = (struct pager_door){ doors, *o, fd, 0 };
	doors = d;
	return d;
}

struct pager_door *pager_enter(const struct pager_offer *o)
{
	struct pager_door *d;

	pthread_mutex_lock(&doors_lock);
	for (d = doors; d && !(d->offer.dev == o->dev && d->offer.ino == o->ino); d = d->next)
		;
	if (!d)
		d = new_door(o);
	if (d)
		d->users++;
	pthread_mutex_unlock(&doors_lock);
	return d;
}

void pager_leave(struct pager_door *door)
{
	struct pager_door **at = &doors;

	pthread_mutex_lock(&doors_lock);
	if (--door->users == 0) {
		while (*at != door)
			at = &(*at)->next;
		*at = door->next;
		close(door->fd);
		free(door);
	}
	pthread_mutex_unlock(&doors_lock);
}

bool pager_ask(const struct pager_door *door, uint64_t key, uint64_t offset, bool store, int asker)
{
	struct request r = { key, offset, asker, store };

	return write(door->fd, &r, sizeof(r)) == sizeof(r);
}
