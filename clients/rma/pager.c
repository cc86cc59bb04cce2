/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A process has one pipe and one thread for all its windows that others access segment by segment.
 * Other processes open the pipe by way of /proc, and write requests to it, which are short enough
 * to arrive whole. The thread pins the segment and unpins it at once, so that a failure is an
 * error, not a signal. It does nothing else, so it answers whatever the program's threads wait for.
 * It trusts no request.
 *
 * Locks: `lock`, for the list of mappings, and while a request is served, so that no mapping ends
 * meanwhile; `pipes_lock`, for the pipes of other processes, which all windows share.
 */
#include "rma/pager.h"

#include "common/futex.h"

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

/* A mapping of this process. */
struct pager {
	struct pager *next;      /* list */
	uint64_t key;            /* identifies it in requests */
	char *at;                /* its address */
	size_t len;              /* its length */
	struct pager_answer *answers; /* one for each rank */
	int ranks;               /* number of these */
};

struct request {
	uint64_t key, offset;    /* mapping, and offset in it */
	int32_t rank, store;     /* rank that asks; whether it stores */
};

/* The pipe of another process. */
struct pager_pipe {
	struct pager_pipe *next; /* list */
	struct descriptor theirs; /* its descriptor there */
	int fd;                  /* the descriptor here */
	unsigned users;          /* number of targets that use it */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER, pipes_lock = PTHREAD_MUTEX_INITIALIZER;
static struct pager *pagers;
static struct pager_pipe *pipes;
static uint64_t last_key;
/* The process that has the thread: not a child that it forks. */
static pid_t owner;
static int ends[2];

/* ---- Opening a file by another process's descriptor of it ---- */

bool descriptor_describe(struct descriptor *d, int fd)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return false;
	*d = (struct descriptor){ st.st_dev, st.st_ino, getpid(), fd };
	return true;
}

int descriptor_open(const struct descriptor *d)
{
	char path[64];
	struct stat st;
	int fd;

	if (d->fd < 0)
		return -1;
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)d->pid, (int)d->fd);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0 || (fstat(fd, &st) == 0 && st.st_dev == d->device && st.st_ino == d->inode))
		return fd;
	close(fd);
	return -1;
}

/* ---- The owner ---- */

static int load_segment(char *at, bool store)
{
	if (umpin(at, 1, store ? PROT_READ | PROT_WRITE : PROT_READ) < 0)
		return errno;
	umunpin(at, 1);
	return 0;
}

static void serve_request(const struct request *r)
{
	struct pager *p;

	pthread_mutex_lock(&lock);
	for (p = pagers; p && p->key != r->key; p = p->next)
		;
	if (p && r->offset < p->len && r->rank >= 0 && r->rank < p->ranks) {
		struct pager_answer *a = &p->answers[r->rank];

		atomic_store(&a->error, load_segment(p->at + r->offset, r->store));
		atomic_fetch_add(&a->count, 1);
		futex_wake_shared(&a->count);
	}
	pthread_mutex_unlock(&lock);
}

static void *serve_requests(void *unused)
{
	struct request r;

	(void)unused;
	for (;;) {
		if (read(ends[0], &r, sizeof(r)) == sizeof(r))
			serve_request(&r);
	}
	return NULL;
}

/* The thread takes no signals of the program. */
static int start_thread(void)
{
	sigset_t all, old;
	pthread_t thread;
	int err;

	sigfillset(&all);
	sigdelset(&all, SIGSEGV);
	sigdelset(&all, SIGBUS);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(&thread, NULL, serve_requests, NULL);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (!err)
		pthread_detach(thread);
	return err;
}

static bool start_locked(void)
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

struct pager *pager_open(char *at, size_t len, struct descriptor *pipe, uint64_t *key)
{
	struct pager *p = malloc(sizeof(*p));

	if (!p)
		return NULL;
	pthread_mutex_lock(&lock);
	if (start_locked() && descriptor_describe(pipe, ends[1])) {
		*p = (struct pager){ .next = pagers, .key = ++last_key, .at = at, .len = len };
		pagers = p;
		*key = p->key;
	} else {
		free(p);
		p = NULL;
	}
	pthread_mutex_unlock(&lock);
	return p;
}

void pager_answer(struct pager *p, struct pager_answer *answers, int ranks)
{
	pthread_mutex_lock(&lock);
	p->answers = answers;
	p->ranks = ranks;
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

/* ---- Other processes ---- */

/* The pipe is open to be read, too. Otherwise a write after the owner's end would be a SIGPIPE. */
static struct pager_pipe *open_pipe_locked(const struct descriptor *theirs)
{
	struct pager_pipe *pipe = malloc(sizeof(*pipe));
	int fd = pipe ? descriptor_open(theirs) : -1;

	if (fd < 0) {
		free(pipe);
		return NULL;
	}
	*pipe = (struct pager_pipe){ pipes, *theirs, fd, 0 };
	pipes = pipe;
	return pipe;
}

struct pager_pipe *pager_connect(const struct descriptor *d)
{
	struct pager_pipe *pipe;

	pthread_mutex_lock(&pipes_lock);
	pipe = pipes;
	while (pipe && !(pipe->theirs.device == d->device && pipe->theirs.inode == d->inode))
		pipe = pipe->next;
	if (!pipe)
		pipe = open_pipe_locked(d);
	if (pipe)
		pipe->users++;
	pthread_mutex_unlock(&pipes_lock);
	return pipe;
}

void pager_disconnect(struct pager_pipe *pipe)
{
	struct pager_pipe **at = &pipes;

	pthread_mutex_lock(&pipes_lock);
	if (--pipe->users == 0) {
		while (*at != pipe)
			at = &(*at)->next;
		*at = pipe->next;
		close(pipe->fd);
		free(pipe);
	}
	pthread_mutex_unlock(&pipes_lock);
}

bool pager_ask(const struct pager_pipe *pipe, uint64_t key, uint64_t offset, bool store, int rank)
{
	struct request r = { key, offset, rank, store };

	return write(pipe->fd, &r, sizeof(r)) == sizeof(r);
}
