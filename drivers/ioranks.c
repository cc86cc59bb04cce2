/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The filter ioranks: an I/O process of the machine (tools/ioranks) writes to the file, and makes
 * it durable, in place of this process. The filter sends the addresses of the data; the I/O process
 * copies them by process_vm_readv(2) and joins writes that are adjacent in the file, also those of
 * several processes.
 *
 * The driver behind the filter is complete, so this process can always write itself. It does so for
 * short writes, if there is no I/O process, if the connection is in use by another thread, if an
 * I/O process refuses a write or fails, and if an I/O process dies. An I/O process has one thread,
 * so none of its system calls is in progress when the kernel closes the connection. Writes that it
 * has acknowledged are in the file or its page cache, and the flush of this process makes them
 * durable.
 *
 * With the key ioranks.operation, the I/O process passes the data on to a plug-in
 * (ummap-operation.h), so the filter sends it all writes, short ones too. The data in the file do
 * not depend on the operation: if it fails, or this process has to write itself, one flush returns
 * the error after the data have become durable.
 *
 * A process that is killed may leave a request that the I/O process carries out afterwards. Two
 * measures keep such a write from the work of the next process that opens the file: the I/O process
 * holds the descriptor of the killed process, so its locks stay until the write has ended; and the
 * filter speaks to the I/O process before it opens the file, which the I/O process answers after
 * the end of all earlier requests and of all closed connections.
 *
 * Requests call only async-signal-safe functions. Lock: `turn`, across one request and its reply.
 */
#include "ioranks.h"

#include "common/cursor.h"
#include "common/futex.h"
#include "file.h"
#include "keys.h"
#include "transparent.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

extern const struct ummap_driver ummap_driver_ioranks, ummap_driver_posix, ummap_driver_uring;

struct ioranks {
	struct behind next;        /* next driver; the first field */
	int fd;                    /* connection; negative: there is none */
	_Atomic uint32_t turn;     /* lock of the connection */
	atomic_bool connected;     /* whether the I/O process takes requests */
	atomic_bool sent;          /* whether it has written since the last flush */
	atomic_bool own;           /* whether this process has written since the last flush */
	atomic_bool operates;      /* whether an operation needs all writes */
	_Atomic int failure;       /* errno value of the operation that the next flush returns */
	char why[IORANKS_WHY_BYTES]; /* message about it */
	ummap_notice *notice;      /* receiver of notices; NULL: none */
	void *notice_arg;
};

/* ---- The connection ---- */

/* A result of `ask`: the I/O process has died. */
#define LOST (-EPIPE)

/* Sends a request, with a descriptor if fd is not negative, and waits for the reply. Copies its
 * message to `why`, if that is not NULL. Uses syscall(2), because glibc's wrappers are thread
 * cancellation points. */
static int ask(int socket, struct ioranks_request *request, int fd, char *why)
{
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int))];
	} control = { .head = { .cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET,
				.cmsg_type = SCM_RIGHTS } };
	struct iovec iov = { request, IORANKS_REQUEST_BYTES(request->pieces) };
	struct msghdr message = { .msg_iov = &iov, .msg_iovlen = 1 };
	struct ioranks_reply reply;
	const long head = offsetof(struct ioranks_reply, why);
	long n;

	if (fd >= 0) {
		memcpy(CMSG_DATA(&control.head), &fd, sizeof(fd));
		message.msg_control = &control;
		message.msg_controllen = sizeof(control);
	}
	do
		n = syscall(SYS_sendmsg, socket, &message, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return LOST;
	do
		n = syscall(SYS_recvfrom, socket, &reply, sizeof(reply), 0, NULL, NULL);
	while (n < 0 && errno == EINTR);
	if (n < head)
		return LOST;
	if (why) {
		memcpy(why, reply.why, (size_t)(n - head));
		why[n > head ? n - head - 1 : 0] = '\0';
	}
	return reply.error;
}

/* Ends the use of the operation, whose output is incomplete. The next flush returns the error. */
static void end_operation(struct ioranks *r, int err)
{
	if (!atomic_exchange(&r->operates, false))
		return;
	r->failure = err;
	if (r->notice)
		r->notice(r->notice_arg, *r->why ? r->why : "the output of ioranks.operation is "
			  "incomplete, because the I/O process could not write some data, which "
			  "this process has written");
}

/* Sends a request if the connection is free, or waits for that. Returns LOST if this process has to
 * do the work. */
static int ask_in_turn(struct ioranks *r, struct ioranks_request *request, bool wait)
{
	int err = LOST;

	if (!r->connected)
		return LOST;
	if (wait)
		futex_lock(&r->turn);
	else if (!futex_trylock(&r->turn))
		return LOST;
	if (r->connected) {
		err = ask(r->fd, request, -1, request->op == IORANKS_WRITE ? NULL : r->why);
		if (err == LOST) {
			r->connected = false;
			if (r->notice)
				r->notice(r->notice_arg, "an I/O process has died: this process "
					  "writes to its files itself");
		}
	}
	futex_unlock(&r->turn);
	return err;
}

/* ---- Transfers ---- */

static int ioranks_readv(void *h, const struct iovec *iov, int n, uint64_t off)
{
	return behind_readv(h, iov, n, off);
}

static int ioranks_read(void *h, void *buf, size_t len, uint64_t off)
{
	return behind_read(h, buf, len, off);
}

/* Returns an error if the I/O process has not written all pieces. With an operation, it must write
 * them, if necessary by several requests. */
static int write_elsewhere(struct ioranks *r, const struct iovec *iov, int n, uint64_t off)
{
	struct ioranks_request request = { .op = IORANKS_WRITE };
	struct cursor c = cursor_begin(iov, n, off);
	bool operates = r->operates;
	size_t len = c.end - off;
	int err = 0, pieces;

	if (!r->connected || (!operates && (n > IORANKS_MAX_PIECES || len < IORANKS_MIN_BYTES ||
					    len > IORANKS_MAX_BYTES)))
		return LOST;
	while (!err && c.off < c.end) {
		len = cursor_slice(&c, IORANKS_MAX_BYTES, request.piece, IORANKS_MAX_PIECES,
				   &pieces);
		request.pieces = (uint32_t)pieces;
		request.off = c.off;
		err = ask_in_turn(r, &request, operates);
		cursor_advance(&c, len);
	}
	if (!err)
		r->sent = true;
	return err;
}

static int ioranks_writev(void *h, const struct iovec *iov, int n, uint64_t off)
{
	struct ioranks *r = h;
	int err;

	if (write_elsewhere(r, iov, n, off) == 0)
		return 0;
	err = behind_writev(&r->next, iov, n, off);
	r->own = true;
	if (!err)
		end_operation(r, EIO);
	return err;
}

static int ioranks_write(void *h, const void *buf, size_t len, uint64_t off)
{
	return ioranks_writev(h, &(struct iovec){ (void *)(uintptr_t)buf, len }, 1, off);
}

/*
 * A flush of this process makes all writes of the I/O process durable, too, because they are in the
 * file. After an error of the I/O process, the flush of this process comes in addition: it may
 * report an error of its own. An operation learns of each flush.
 */
static int ioranks_flush(void *h, uint64_t off, uint64_t len)
{
	struct ioranks *r = h;
	struct ioranks_request request = { .op = IORANKS_FLUSH };
	bool own = atomic_exchange(&r->own, false), sent = atomic_exchange(&r->sent, false);
	int err = sent && (!own || r->operates) ? ask_in_turn(r, &request, true) : LOST, own_err;

	if (err > 0) {
		end_operation(r, err);
		err = 0;
	}
	if (own || err) {
		own_err = behind_flush(&r->next, off, len);
		r->own = own_err != 0;
		if (own_err || (err && err != LOST))
			return own_err ? own_err : err;
		if (sent && err)
			end_operation(r, EIO);
	}
	/* A positive value: the data are durable. */
	return atomic_exchange(&r->failure, 0);
}

static int ioranks_resize(void *h, uint64_t size)
{
	struct ioranks *r = h;
	int err = behind_resize(&r->next, size);

	r->own = true;
	return err;
}

static int ioranks_size(void *h, uint64_t *size)
{
	return behind_size(h, size);
}

static int ioranks_data(void *h, uint64_t off, uint64_t *begin, uint64_t *end)
{
	const struct ioranks *r = h;

	return r->next.driver.data ? r->next.driver.data(r->next.h, off, begin, end) : -EOPNOTSUPP;
}

static void ioranks_set_notice(void *h, ummap_notice *notice, void *arg)
{
	struct ioranks *r = h;

	r->notice_arg = arg;
	r->notice = notice;
	behind_set_notice(&r->next, notice, arg);
}

/* ---- Opening and closing ---- */

/* The processes of a file are its name's, so all handles of a file on a machine meet in one of
 * them. */
static unsigned choose_process(const char *path, uint64_t processes)
{
	const char *slash = strrchr(path, '/');
	unsigned hash = 5381;

	for (const char *c = slash ? slash + 1 : path; *c; c++)
		hash = hash * 33 + (unsigned char)*c;
	return (unsigned)(hash % processes);
}

/* Gives the I/O process the right to read this process's memory (Yama), and has it tried. */
static int greet(int fd)
{
	volatile uint64_t word = (uintptr_t)&word ^ (uint64_t)getpid() << 48;
	struct ioranks_request request = { .op = IORANKS_HELLO, .pieces = 1, .off = word };
	socklen_t len = sizeof(struct ucred);
	struct ucred peer;

	request.piece[0] = (struct iovec){ (void *)(uintptr_t)&word, sizeof(word) };
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0)
		return -errno;
	if (peer.uid != geteuid())
		return -EPERM;
	prctl(PR_SET_PTRACER, (unsigned long)peer.pid, 0, 0, 0);
	return ask(fd, &request, -1, NULL);
}

/* Connects to the I/O process for a file. name: "NAME,NUMBER". Returns the connection, or a
 * negative errno value. */
static int connect_to(const char *name, const char *path)
{
	const char *comma = strrchr(name, ',');
	struct sockaddr_un address;
	uint64_t processes;
	socklen_t len;
	int fd, err;

	if (!comma || comma == name || comma - name > IORANKS_MAX_NAME_LEN ||
	    !keys_number(comma + 1, 1, IORANKS_MAX_PROCESSES, &processes))
		return -EINVAL;
	len = ioranks_address(&address, (unsigned)geteuid(), name, (int)(comma - name),
			      choose_process(path, processes));
	fd = file_away(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
	if (fd < 0)
		return -errno;
	err = connect(fd, (struct sockaddr *)&address, len) < 0 ? -errno : greet(fd);
	if (!err)
		return fd;
	close(fd);
	return err;
}

/* Hands the open file to the I/O process. err: no I/O process is connected. operation: "", or the
 * text of an operation, without which the file cannot be used. */
static int share_file(struct ioranks *r, int err, const char *operation, struct ummap_geom *geom)
{
	struct ioranks_request request = { .op = IORANKS_OPEN, .pieces = *operation != '\0' };

	request.piece[0] = (struct iovec){ (void *)(uintptr_t)operation, strlen(operation) };
	if (!err)
		err = ask(r->fd, &request, file_descriptor(r->next.h), r->why);
	r->connected = !err;
	r->operates = !err && *operation;
	if (err && *operation)
		return keys_refuse(geom, -err, "%.390s", *r->why ? r->why : "cannot run "
				   "ioranks.operation: there is no I/O process that can read the "
				   "memory of this process. Try ummap ioranks");
	if (err && !*geom->why)
		keys_refuse(geom, 0, "no I/O process writes to the file, but this process: %s",
			    strerror(-err));
	return 0;
}

/* Reads the keys. operation: room for the value of the key, whose path becomes absolute. Returns
 * the name of the I/O processes. */
static const char *read_keys(const struct ummap_uri *uri, char operation[PATH_MAX])
{
	/* ummpi_io_split(3) sets the variable after the start of the library. */
	const char *name = secure_getenv("UMMAP_IO_RANKS"), *value, *comma;

	*operation = '\0';
	for (unsigned i = 0; i < uri->nkeys; i++) {
		value = uri->keys[i].value;
		if (strcmp(uri->keys[i].name, "name") == 0) {
			name = value;
			continue;
		}
		comma = strchrnul(value, ',');
		if (!memchr(value, '/', (size_t)(comma - value)) || *value == '/' ||
		    !getcwd(operation, PATH_MAX))
			*operation = '\0';
		snprintf(operation + strlen(operation), PATH_MAX - strlen(operation), "%s%s",
			 *operation ? "/" : "", value);
	}
	return name;
}

static int refuse_values(const char *name, const char *operation, int err, struct ummap_geom *geom)
{
	if (strlen(operation) > IORANKS_MAX_OPERATION_LEN)
		return keys_refuse(geom, EINVAL, "ioranks.operation is too long: it may have %u "
				   "characters, with the current folder if it begins with none",
				   IORANKS_MAX_OPERATION_LEN);
	if (err == -EINVAL)
		return keys_refuse(geom, EINVAL, "ioranks.name is \"%.100s\": it must be a name of "
				   "at most 63 characters, a comma and a number from 1 to 64",
				   name);
	return 0;
}

static int open_handle(const struct ummap_uri *uri, int fd, int oflags, void **h,
		       struct ummap_geom *geom)
{
	char operation[PATH_MAX];
	const char *name = read_keys(uri, operation);
	bool use = name && *name && (oflags & UMMAP_O_WRITE);
	struct ioranks *r;
	int err;

	if (!uri->next)
		return keys_refuse(geom, EINVAL, "cannot use the filter ioranks alone. Try "
				   "ioranks+driver:path");
	if (uri->next != &ummap_driver_posix && uri->next != &ummap_driver_uring)
		return keys_refuse(geom, EINVAL, "cannot use the driver '%.100s' behind the filter "
				   "ioranks: it must be posix or uring", uri->next->scheme);
	r = calloc(1, sizeof(*r));
	if (!r)
		return -ENOMEM;
	r->fd = use ? connect_to(name, uri->path) : -1;
	err = refuse_values(name, operation, r->fd, geom);
	if (!err)
		err = behind_open(&r->next, uri, fd, oflags, geom);
	if (!err && (use || (*operation && oflags & UMMAP_O_WRITE))) {
		err = share_file(r, use && r->fd >= 0 ? 0 : use ? r->fd : -ENOTCONN, operation,
				 geom);
		if (err)
			behind_close(&r->next);
	}
	if (!err) {
		*h = r;
		return 0;
	}
	if (r->fd >= 0)
		close(r->fd);
	free(r);
	return err;
}

static int ioranks_open(const struct ummap_uri *uri, int oflags, void **h, struct ummap_geom *geom)
{
	return open_handle(uri, -1, oflags, h, geom);
}

static int ioranks_open_fd(const struct ummap_uri *uri, int fd, int oflags, void **h,
			   struct ummap_geom *geom)
{
	return open_handle(uri, fd, oflags, h, geom);
}

static int ioranks_close(void *h)
{
	struct ioranks *r = h;
	struct ioranks_request request = { .op = IORANKS_CLOSE };
	int err;

	/* The locks of the file end when both processes have closed it. In a forked child, the
	 * connection is its parent's. */
	if (r->connected && !behind_inherited(&r->next) && ask(r->fd, &request, -1, r->why) > 0 &&
	    r->notice)
		r->notice(r->notice_arg, r->why);
	err = behind_close(&r->next);
	if (r->fd >= 0)
		close(r->fd);
	free(r);
	return err;
}

const struct ummap_driver ummap_driver_ioranks = {
	.struct_size = sizeof(struct ummap_driver),
	.abi = UMMAP_DRIVER_ABI,
	.scheme = "ioranks",
	.filter = 1,
	.keys = IORANKS_KEYS(KEY_NAME),
	.help = "a filter that has the I/O processes of `ummap ioranks` write to the file",
	.open = ioranks_open,
	.open_fd = ioranks_open_fd,
	.close = ioranks_close,
	.read = ioranks_read,
	.write = ioranks_write,
	.flush = ioranks_flush,
	.resize = ioranks_resize,
	.readv = ioranks_readv,
	.writev = ioranks_writev,
	.size = ioranks_size,
	.data = ioranks_data,
	.lock = pass_lock,
	.commits = pass_commits,
	.set_notice = ioranks_set_notice,
	.hand_over = pass_hand_over,
};
