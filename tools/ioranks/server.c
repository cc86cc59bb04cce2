/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An I/O process. In each round, it takes all requests that have come, which is at most one of a
 * connection. It sorts the writes by their offsets, copies the data of adjacent ones from the
 * memory of their senders into one buffer, and writes them by one call. Then it makes the files
 * durable whose senders have asked for it. Requests that come meanwhile wait for the next round, so
 * the rounds become larger if storage is slow.
 *
 * The senders are the processes that lose data if the I/O process makes an error, so it carries
 * out nothing in doubt: a sender that gets an error does the work itself.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "../../drivers/file.h"
#include "../../drivers/ioranks.h"
#include "common/memory_calls.h"
#include "common/process.h"
#include "common/timeline.h"
#include "operation.h"
#include "server.h"

#define MAX_CLIENTS 1024
#define GRAIN ((size_t)4096)                          /* alignment of direct transfers */
#define STAGING_BYTES (2 * IORANKS_MAX_BYTES + GRAIN) /* memory for the data of a call */

/* A file, which all of its clients share. */
struct target {
	dev_t device;          /* device and number of the file */
	ino_t number;
	struct file *file;     /* handle of the driver posix */
	unsigned clients;      /* number of clients; 0: the entry is free */
	unsigned failures;     /* number of flushes that have failed */
	int error;             /* error of the last of them */
	struct operation *operation; /* operation on the data; NULL: none */
};

struct client {
	int socket;            /* connection */
	struct process_id process;
	int fd;                /* sender's descriptor, whose locks it keeps; negative: none */
	struct target *target; /* file; NULL: none */
	unsigned failures;     /* number of the file's failures that the client knows */
	bool asked;            /* whether `request` is valid */
	struct ioranks_reply reply;  /* reply to it */
	bool told;             /* whether it knows that the operation has failed */
	size_t len;            /* bytes of a write */
	struct ioranks_request request;
};

static struct target targets[MAX_CLIENTS];
static struct client *clients[MAX_CLIENTS];
static int n_clients;
static char *staging;
static int spare = -1;  /* descriptor that is closed to accept a connection if none is free */

/* ---- Files ---- */

static void close_target(struct client *c)
{
	if (c->target && --c->target->clients == 0) {
		int err = operation_end(c->target->operation, c->reply.why, sizeof(c->reply.why));

		c->reply.error = c->told ? 0 : err;
		file_close(c->target->file);
	}
	if (c->fd >= 0)
		close(c->fd);
	c->target = NULL;
	c->fd = -1;
}

static struct target *find_target(const struct stat *st)
{
	struct target *unused = NULL;

	for (struct target *t = targets; t < targets + MAX_CLIENTS; t++) {
		if (t->clients && t->device == st->st_dev && t->number == st->st_ino)
			return t;
		if (!t->clients && !unused)
			unused = t;
	}
	return unused;
}

/*
 * Copies the data of a write. The client waits for the reply, so they do not change. If it was
 * killed, another process may have its ID, so the client must be alive after the copy was made.
 */
static int copy_data(struct client *c, char *to)
{
	struct iovec iov = { to, c->len };
	ssize_t n = process_vm_readv(c->process.pid, &iov, 1, c->request.piece, c->request.pieces,
				     0);

	if (n != (ssize_t)c->len)
		return n < 0 ? -errno : -EFAULT;
	return is_alive(c->process) ? 0 : -ESRCH;
}

/* Opens a file that no other client has open. */
static int open_file(struct client *c, struct target *t, const char *operation)
{
	static const struct ummap_uri uri = { .scheme = "posix", .path = "" };
	struct ummap_geom geom = { 0 };
	int err;

	if (*operation) {
		t->operation = operation_begin(operation, c->fd, &err, c->reply.why,
					       sizeof(c->reply.why));
		if (!t->operation)
			return err;
	}
	err = file_open_fd(&uri, c->fd, UMMAP_O_WRITE, S_IFBLK, &t->file, &geom);
	if (err)
		operation_end(t->operation, c->reply.why, sizeof(c->reply.why));
	return err;
}

/* Opens the file of the descriptor that the client has sent, with its operation. */
static int open_target(struct client *c)
{
	char operation[IORANKS_MAX_OPERATION_LEN + 1] = "";
	struct target *t;
	struct stat st;
	int err;

	c->len = c->request.pieces ? c->request.piece[0].iov_len : 0;
	if (c->request.pieces > 1 || c->len >= sizeof(operation))
		return -EINVAL;
	err = c->len ? copy_data(c, operation) : 0;
	if (err)
		return err;
	if (c->fd < 0 || c->target)
		return -EBADF;
	if (fstat(c->fd, &st) < 0)
		return -errno;
	t = find_target(&st);
	if (!t->clients) {
		*t = (struct target){ .device = st.st_dev, .number = st.st_ino };
		err = open_file(c, t, operation);
		if (err)
			return err;
	}
	if (!operation_is(t->operation, operation)) {
		snprintf(c->reply.why, sizeof(c->reply.why), "cannot run the operation '%s': "
			 "another program has opened the file with another one, or with none",
			 operation);
		return -EBUSY;
	}
	t->clients++;
	c->target = t;
	c->failures = t->failures;
	return 0;
}

/* ---- Clients ---- */

static void drop_client(int i)
{
	struct client *c = clients[i];

	close_target(c);
	close(c->socket);
	free(c);
	clients[i] = clients[--n_clients];
}

/* Ends a connection for which no descriptor is free: its client would wait for a reply. */
static void refuse_client(int listener)
{
	close(spare);
	close(accept4(listener, NULL, NULL, SOCK_CLOEXEC));
	spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static void accept_client(int listener)
{
	int socket = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	struct client *c = n_clients < MAX_CLIENTS ? calloc(1, sizeof(*c)) : NULL;
	socklen_t len = sizeof(struct ucred);
	struct ucred peer;

	if (socket < 0 && (errno == EMFILE || errno == ENFILE))
		refuse_client(listener);
	if (socket < 0 || !c || getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0 ||
	    peer.uid != geteuid()) {
		if (socket >= 0)
			close(socket);
		free(c);
		return;
	}
	c->socket = socket;
	c->process = process_identify(peer.pid);
	c->fd = -1;
	clients[n_clients++] = c;
}

/* Takes the descriptor of a message. */
static void take_fd(struct client *c, struct msghdr *message)
{
	struct cmsghdr *head = CMSG_FIRSTHDR(message);

	if (!head || head->cmsg_type != SCM_RIGHTS)
		return;
	close_target(c);
	memcpy(&c->fd, CMSG_DATA(head), sizeof(c->fd));
}

/* Receives the request of a client. Returns false if the connection has ended. */
static bool receive(struct client *c)
{
	char control[CMSG_SPACE(sizeof(int))];
	struct iovec iov = { &c->request, sizeof(c->request) };
	struct msghdr message = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control,
				  .msg_controllen = sizeof(control) };
	ssize_t n = recvmsg(c->socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return true;
	if (n < (ssize_t)IORANKS_REQUEST_BYTES(0) || c->request.pieces > IORANKS_MAX_PIECES ||
	    n != (ssize_t)IORANKS_REQUEST_BYTES(c->request.pieces))
		return false;
	take_fd(c, &message);
	c->asked = true;
	return true;
}

/* ---- Requests ---- */

static int greet(struct client *c)
{
	uint64_t word = 0;
	int err;

	c->len = sizeof(word);
	if (c->request.pieces != 1 || c->request.piece[0].iov_len != sizeof(word))
		return -EINVAL;
	err = copy_data(c, (char *)&word);
	return !err && word != c->request.off ? -ESRCH : err;
}

static bool is_write(const struct client *c)
{
	return c->asked && c->request.op == IORANKS_WRITE;
}

static void reply(struct client *c)
{
	c->asked = false;
	/* A client that does not take the reply has died, which `receive` notices. */
	send(c->socket, &c->reply, offsetof(struct ioranks_reply, why) + strlen(c->reply.why) + 1,
	     MSG_NOSIGNAL | MSG_DONTWAIT);
}

static int compare_places(const void *one, const void *other)
{
	const struct client *a = *(struct client *const *)one, *b = *(struct client *const *)other;

	if (a->target != b->target)
		return a->target < b->target ? -1 : 1;
	return a->request.off < b->request.off ? -1 : a->request.off > b->request.off;
}

/* Collects the clients of all valid writes, in the order of their places. Returns their number. */
static int collect_writes(struct client *list[MAX_CLIENTS])
{
	int n = 0;

	for (int i = 0; i < n_clients; i++) {
		struct client *c = clients[i];

		if (!is_write(c))
			continue;
		c->len = 0;
		for (uint32_t k = 0; k < c->request.pieces; k++)
			c->len += c->request.piece[k].iov_len;
		c->reply.error = !c->target ? -EBADF : c->len > IORANKS_MAX_BYTES ? -EMSGSIZE : 0;
		if (!c->reply.error)
			list[n++] = c;
	}
	qsort(list, (size_t)n, sizeof(*list), compare_places);
	return n;
}

/* Writes as many of n writes as follow each other without a gap and have room in memory, by one
 * call. Returns their number; 1 if the data of the first cannot be copied. */
static int write_joined(struct client **list, int n)
{
	struct target *t = list[0]->target;
	uint64_t off = list[0]->request.off, began = timeline_begin();
	/* Direct transfers need memory that is aligned as the file is. */
	size_t skip = off % GRAIN, len = 0;
	int k, err = 0;

	for (k = 0; k < n && list[k]->target == t && list[k]->request.off == off + len &&
		    skip + len + list[k]->len <= STAGING_BYTES; k++) {
		err = copy_data(list[k], staging + skip + len);
		if (err)
			break;
		len += list[k]->len;
	}
	if (k > 0) {
		err = file_write(t->file, staging + skip, len, off);
		timeline_end(began, "io", "write", len, "");
		if (!err)
			operation_write(t->operation, staging + skip, len, off);
	}
	n = k > 0 ? k : 1;
	for (int i = 0; i < n; i++) {
		list[i]->reply.error = err;
		reply(list[i]);
	}
	return n;
}

static void carry_out_writes(void)
{
	static struct client *list[MAX_CLIENTS];
	int n = collect_writes(list);

	for (int i = 0; i < n;)
		i += write_joined(list + i, n - i);
}

/* Each client of a file learns once that the operation on it has failed. */
static void tell_operation(struct client *c)
{
	const char *why;
	int err = operation_error(c->target->operation, &why);

	if (!err || c->told)
		return;
	c->told = true;
	c->reply.error = err;
	snprintf(c->reply.why, sizeof(c->reply.why), "%s", why);
}

/*
 * Flushes the files of all clients that have asked for it, each file once. A flush that fails is an
 * error of all writes before it, so each client of the file learns of it by its next flush.
 */
static void carry_out_flushes(void)
{
	static bool flushed[MAX_CLIENTS];

	memset(flushed, 0, sizeof(flushed));
	for (int i = 0; i < n_clients; i++) {
		struct client *c = clients[i];
		struct target *t = c->target;

		if (!c->asked || c->request.op != IORANKS_FLUSH)
			continue;
		if (t && !flushed[t - targets]) {
			uint64_t began = timeline_begin();
			int err = file_flush(t->file, 0, 0);

			timeline_end(began, "io", "flush", 0, "");
			flushed[t - targets] = true;
			t->failures += err != 0;
			t->error = err ? err : t->error;
			if (!err)
				operation_commit(t->operation);
		}
		c->reply.error = !t ? -EBADF : c->failures != t->failures ? t->error : 0;
		c->failures = t ? t->failures : 0;
		if (t && !c->reply.error)
			tell_operation(c);
	}
}

static void carry_out_others(struct client *c)
{
	switch (c->request.op) {
	case IORANKS_HELLO:
		c->reply.error = greet(c);
		break;
	case IORANKS_OPEN:
		c->reply.error = open_target(c);
		break;
	case IORANKS_CLOSE:
		c->reply.error = 0;
		close_target(c);
		break;
	case IORANKS_WRITE:
	case IORANKS_FLUSH:
		break;
	default:
		c->reply.error = -EINVAL;
	}
}

/* One round. Connections that have ended are closed before any reply: see ioranks.c. */
static void run_round(void)
{
	for (int i = n_clients; i-- > 0;) {
		if (!receive(clients[i]))
			drop_client(i);
	}
	for (int i = 0; i < n_clients; i++)
		clients[i]->reply = (struct ioranks_reply){ 0 };
	carry_out_writes();
	carry_out_flushes();
	for (int i = 0; i < n_clients; i++) {
		if (clients[i]->asked) {
			carry_out_others(clients[i]);
			reply(clients[i]);
		}
	}
}

/* Waits for requests and connections. Returns whether there are new connections. */
static bool wait_for_work(int listener)
{
	static struct pollfd polled[MAX_CLIENTS + 1];

	polled[0] = (struct pollfd){ listener, POLLIN, 0 };
	for (int i = 0; i < n_clients; i++)
		polled[i + 1] = (struct pollfd){ clients[i]->socket, POLLIN, 0 };
	poll(polled, (nfds_t)n_clients + 1, -1);
	return polled[0].revents;
}

/* Whether a client has not opened a file: it is no connection of the filter. */
static bool has_holder(void)
{
	for (int i = 0; i < n_clients; i++)
		if (!clients[i]->target)
			return true;
	return false;
}

/* A client needs three descriptors, and many systems permit 1024 by default. Returns the limit that
 * must be set afterwards, because the program of an I/O rank may rely on it. */
static struct rlimit raise_limit(void)
{
	struct rlimit before = { 0 }, limit;

	getrlimit(RLIMIT_NOFILE, &before);
	limit = before;
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
	return before;
}

int serve(int listener, bool for_holders)
{
	struct rlimit before;
	bool any_new;

	staging = mmap(NULL, STAGING_BYTES, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (staging == MAP_FAILED)
		return -ENOMEM;
	before = raise_limit();
	spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
	do {
		any_new = wait_for_work(listener);
		run_round();
		if (any_new)
			accept_client(listener);
	} while (any_new || (for_holders ? has_holder() : n_clients > 0));
	while (n_clients > 0)
		drop_client(n_clients - 1);
	close(spare);
	setrlimit(RLIMIT_NOFILE, &before);
	raw_munmap(staging, STAGING_BYTES);
	return 0;
}
