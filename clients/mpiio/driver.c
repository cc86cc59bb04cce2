/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every handle has the file open for itself, so that transfers need no other rank. They run on threads of libummap, never
 * on the one that faulted, which may stand in the middle of MPI: so MPI has to be one for several threads.
 *
 * While ranks write together, the gate of MPI-IO is closed: nobody else calls it. One reason is that it may write with what
 * it was given what lies between, as it was a moment ago. The other is that ROMIO has a lock around all of such a call, in
 * which MPI also serves puts of other ranks, and these fault: so reads take a plain descriptor then, and writes wait in the
 * staging buffer, where reads find them. Only flush waits for the end, which is near: all ranks are in there.
 */
#include "mpiio/driver.h"

#include "common/size.h"
#include "mpiio/gate.h"
#include "mpiio/keys.h"
#include "mpiio/shareio.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <ummap-mpi.h>
#include <unistd.h>

#define STAGED_MAX ((size_t)64 << 20)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* around the list */
static struct mpiio *handles;
static _Thread_local struct mpiio *opened; /* by this thread, last */

/* ---- Opening ---- */

int mpiio_info(const char *hints, MPI_Info *info)
{
	char name[MPI_MAX_INFO_KEY], value[MPI_MAX_INFO_VAL];
	int code;

	*info = MPI_INFO_NULL;
	code = PMPI_Info_create(info);
	while (code == MPI_SUCCESS && *hints) {
		size_t key = strcspn(hints, "=;"), len = strcspn(hints, ";");

		if (key < len && key < sizeof(name) && len - key <= sizeof(value)) {
			snprintf(name, sizeof(name), "%.*s", (int)key, hints);
			snprintf(value, sizeof(value), "%.*s", (int)(len - key - 1), hints + key + 1);
			code = PMPI_Info_set(*info, name, value);
		}
		hints += len + (hints[len] == ';');
	}
	return code;
}

static const char *key_of(const struct ummap_uri *uri, const char *name)
{
	for (unsigned i = 0; i < uri->nkeys; i++) {
		if (strcmp(uri->keys[i].name, name) == 0)
			return uri->keys[i].value;
	}
	return NULL;
}

static const struct {
	const char *name, *type;
} key_types[] = {
#define KEY_TYPE(name, type, default, meaning) { name, type },
	MPIIO_KEYS(KEY_TYPE)
};

static int refuse_value(const char *name, const char *value, struct ummap_geom *geom)
{
	size_t i = 0;

	while (strcmp(key_types[i].name, name) != 0)
		i++;
	snprintf(geom->why, sizeof(geom->why), "%s is \"%.40s\": it must be %s", name, value, key_types[i].type);
	return -EINVAL;
}

static int read_number(const struct ummap_uri *uri, const char *name, uint64_t min, uint64_t max, uint64_t *n,
		       struct ummap_geom *geom)
{
	const char *value = key_of(uri, name);

	if (!value || (size_parse(value, n) == 0 && *n >= min && *n <= max))
		return 0;
	return refuse_value(name, value, geom);
}

static int read_layout(const struct ummap_uri *uri, struct layout *l, struct ummap_geom *geom)
{
	uint64_t rank = 0, ranks = 1;
	int err = read_number(uri, "offset", 0, INT64_MAX, &l->offset, geom);

	if (!err)
		err = read_number(uri, "stripe", 1, SHAREIO_MAX, &l->stripe, geom);
	if (!err)
		err = read_number(uri, "ranks", 1, INT32_MAX, &ranks, geom);
	if (!err)
		err = read_number(uri, "rank", 0, ranks - 1, &rank, geom);
	if (!err && !l->stripe && key_of(uri, "ranks")) {
		snprintf(geom->why, sizeof(geom->why),
			 "cannot use the key ranks without the key stripe. Try stripe=SIZE");
		err = -EINVAL;
	}
	l->rank = (uint32_t)rank;
	l->ranks = (uint32_t)ranks;
	return err;
}

static int check_mpi(struct ummap_geom *geom)
{
	int level = MPI_THREAD_SINGLE;

	if (!shareio_runs()) {
		snprintf(geom->why, sizeof(geom->why),
			 "cannot use the driver mpiio: MPI does not run. Try it between "
			 "MPI_Init_thread and MPI_Finalize");
		return -EINVAL;
	}
	PMPI_Query_thread(&level);
	if (level == MPI_THREAD_MULTIPLE)
		return 0;
	snprintf(geom->why, sizeof(geom->why),
		 "cannot use the driver mpiio: it calls MPI in its own threads. Try "
		 "MPI_Init_thread with MPI_THREAD_MULTIPLE");
	return -EINVAL;
}

static int open_file(struct mpiio *m, int oflags, struct ummap_geom *geom)
{
	int mode = oflags & UMMAP_O_WRITE ? MPI_MODE_RDWR : MPI_MODE_RDONLY, code;
	MPI_Offset size = 0;
	MPI_Info info;

	/* MPI creates only what it may write. */
	if ((oflags & UMMAP_O_CREATE) && (oflags & UMMAP_O_WRITE))
		mode |= MPI_MODE_CREATE;
	errno = 0;
	code = mpiio_info(m->hints, &info);
	if (code == MPI_SUCCESS)
		code = PMPI_File_open(MPI_COMM_SELF, m->path, mode, info, &m->file);
	if (info != MPI_INFO_NULL)
		PMPI_Info_free(&info);
	if (code == MPI_SUCCESS)
		code = PMPI_File_get_size(m->file, &size);
	geom->size = layout_size(&m->layout, (uint64_t)size);
	geom->align = 1;
	geom->optimal = (uint32_t)m->layout.stripe;
	geom->caps = UMMAP_CAP_PARALLEL;
	if (oflags & UMMAP_O_WRITE)
		geom->caps |= UMMAP_CAP_WRITE | UMMAP_CAP_GROW;
	return shareio_errno(code);
}

/* Where the file system knows the file by the same name. Shares are stores of their own. */
static void identify(struct mpiio *m, struct ummap_geom *geom)
{
	struct stat st;

	m->fd = open(m->path, O_RDONLY | O_CLOEXEC);
	if (m->fd < 0 || fstat(m->fd, &st) < 0)
		return;
	geom->id[0] = st.st_ino;
	geom->id[1] = st.st_dev ^ m->layout.offset << 16 ^ m->layout.stripe << 32 ^ (uint64_t)m->layout.rank << 44;
}

static void free_handle(struct mpiio *m)
{
	staging_free(&m->staging);
	pthread_mutex_destroy(&m->lock);
	if (m->fd >= 0)
		close(m->fd);
	free(m->path);
	free(m->hints);
	free(m);
}

static struct mpiio *new_handle(const struct ummap_uri *uri)
{
	const char *hints = key_of(uri, "hints");
	struct mpiio *m = calloc(1, sizeof(*m));

	if (!m)
		return NULL;
	staging_init(&m->staging);
	pthread_mutex_init(&m->lock, NULL);
	m->pid = getpid();
	m->fd = -1;
	m->file = MPI_FILE_NULL;
	m->path = strdup(uri->path);
	m->hints = strdup(hints ? hints : "");
	if (m->path && m->hints)
		return m;
	free_handle(m);
	return NULL;
}

static int mpiio_open(const struct ummap_uri *uri, int oflags, void **h, struct ummap_geom *geom)
{
	struct mpiio *m;
	int err = check_mpi(geom);

	if (!err && oflags & UMMAP_O_WRITERS) {
		snprintf(geom->why, sizeof(geom->why),
			 "cannot use UMMAP_WRITERS with the driver mpiio: MPI-IO may also write "
			 "bytes that the mapping has not changed");
		err = -EINVAL;
	}
	if (err)
		return err;
	m = new_handle(uri);
	if (!m)
		return -ENOMEM;
	err = read_layout(uri, &m->layout, geom);
	if (!err)
		err = open_file(m, oflags, geom);
	if (err) {
		if (m->file != MPI_FILE_NULL)
			PMPI_File_close(&m->file);
		free_handle(m);
		return err;
	}
	identify(m, geom);
	pthread_mutex_lock(&lock);
	m->next = handles;
	handles = m;
	pthread_mutex_unlock(&lock);
	*h = opened = m;
	return 0;
}

/* A forked child has no MPI, and maybe a lock that somebody held. */
static int mpiio_close(void *h)
{
	struct mpiio *m = h, **at = &handles;
	int err = 0;

	if (m->pid != getpid())
		return 0;
	pthread_mutex_lock(&lock);
	while (*at != m)
		at = &(*at)->next;
	*at = m->next;
	pthread_mutex_unlock(&lock);
	if (shareio_runs())
		err = shareio_errno(PMPI_File_close(&m->file));
	free_handle(m);
	return err;
}

/* ---- Transfers ---- */

static size_t total(const struct iovec *iov, int n)
{
	size_t len = 0;

	while (n-- > 0)
		len += iov[n].iov_len;
	return len;
}

static void overlay(const struct mpiio *m, const struct iovec *iov, int n, uint64_t off)
{
	for (int i = 0; i < n; off += iov[i++].iov_len)
		staging_overlay(&m->staging, iov[i].iov_base, iov[i].iov_len, off);
}

static int read_plain(const struct mpiio *m, const struct iovec *iov, int n, uint64_t off)
{
	for (int i = 0; i < n; i++) {
		uint64_t row;

		for (size_t done = 0; done < iov[i].iov_len; ) {
			uint64_t at = layout_place(&m->layout, off, &row);
			size_t len = iov[i].iov_len - done < row ? iov[i].iov_len - done : row;
			ssize_t got = pread(m->fd, (char *)iov[i].iov_base + done, len, (off_t)at);

			if (got < 0 && errno != EINTR)
				return -errno;
			if (got == 0)
				memset((char *)iov[i].iov_base + done, 0, len);
			len = got > 0 ? (size_t)got : got == 0 ? len : 0;
			done += len;
			off += len;
		}
	}
	return 0;
}

/* What has gone from the staging buffer to the file meanwhile was in neither. */
static int mpiio_readv(void *h, const struct iovec *iov, int n, uint64_t off)
{
	struct mpiio *m = h;
	uint64_t drops;
	bool again;
	int err;

	do {
		pthread_mutex_lock(&m->lock);
		drops = m->staging.drops;
		pthread_mutex_unlock(&m->lock);
		if (gate_enter()) {
			err = shareio(m->file, &m->layout, iov, n, off, false);
			gate_leave();
		} else {
			err = m->fd >= 0 ? read_plain(m, iov, n, off) : -EBUSY;
		}
		pthread_mutex_lock(&m->lock);
		overlay(m, iov, n, off);
		again = drops != m->staging.drops;
		pthread_mutex_unlock(&m->lock);
	} while (!err && again);
	return err;
}

static int mpiio_read(void *h, void *buf, size_t len, uint64_t off)
{
	struct iovec iov = { buf, len };

	return mpiio_readv(h, &iov, 1, off);
}

/* In writes that go into a round. */
static int put_all(struct mpiio *m, const struct iovec *iov, int n, uint64_t off)
{
	for (int i = 0; i < n; i++) {
		for (size_t done = 0, len; done < iov[i].iov_len; done += len, off += len) {
			len = iov[i].iov_len - done < STAGED_MAX ? iov[i].iov_len - done : STAGED_MAX;
			if (!staging_put(&m->staging, (char *)iov[i].iov_base + done, len, off))
				return -ENOMEM;
		}
	}
	return 0;
}

/* Makes a write of the staging buffer, if there is one that can be. Called by who has entered. *more: there was. */
static int write_staged(struct mpiio *m, bool *more)
{
	struct staged *p = NULL;
	int err = 0;

	pthread_mutex_lock(&m->lock);
	*more = staging_submit(&m->staging, &p, 1, SIZE_MAX) == 1;
	pthread_mutex_unlock(&m->lock);
	if (!*more)
		return 0;
	err = shareio(m->file, &m->layout, &(struct iovec){ p->data, p->len }, 1, p->off, true);
	m->unsynced = true;
	pthread_mutex_lock(&m->lock);
	staging_complete(&m->staging, &p, 1, !err);
	pthread_mutex_unlock(&m->lock);
	return err;
}

/* Past the staging buffer, and takes along what was left there. */
static int write_through(struct mpiio *m, const struct iovec *iov, int n, uint64_t off)
{
	bool more;
	int err = shareio(m->file, &m->layout, iov, n, off, true);

	m->unsynced = true;
	/* If it fails it stays there, for flush to tell. */
	write_staged(m, &more);
	return err;
}

static int mpiio_writev(void *h, const struct iovec *iov, int n, uint64_t off)
{
	struct mpiio *m = h;
	bool entered = gate_enter(), pass;
	int err = 0;

	pthread_mutex_lock(&m->lock);
	pass = entered && staging_bypass(&m->staging, total(iov, n), off);
	if (!pass)
		err = put_all(m, iov, n, off);
	pthread_mutex_unlock(&m->lock);
	if (pass)
		err = write_through(m, iov, n, off);
	if (entered)
		gate_leave();
	return err;
}

static int mpiio_write(void *h, const void *buf, size_t len, uint64_t off)
{
	struct iovec iov = { (void *)(uintptr_t)buf, len };

	return mpiio_writev(h, &iov, 1, off);
}

static int mpiio_flush(void *h, uint64_t off, uint64_t len)
{
	struct mpiio *m = h;
	bool more = true;
	int err = gate_wait(), failed;

	(void)off, (void)len;
	if (err)
		return -err;
	while (!err && more)
		err = write_staged(m, &more);
	/* What could not be written is in the staging buffer. */
	err = -err;
	pthread_mutex_lock(&m->lock);
	failed = m->failed;
	m->failed = 0;
	pthread_mutex_unlock(&m->lock);
	if (!err && atomic_exchange(&m->unsynced, false)) {
		errno = 0;
		err = shareio_runs() ? shareio_errno(PMPI_File_sync(m->file)) : -EIO;
		if (err)
			m->unsynced = true;
	}
	gate_leave();
	return err < 0 || !failed ? err : failed;
}

/* ---- For collective syncs ---- */

struct mpiio *mpiio_find(const void *addr)
{
	struct mpiio *m;

	pthread_mutex_lock(&lock);
	for (m = handles; m; m = m->next) {
		if (m->base && (const char *)addr >= m->base && (const char *)addr < m->base + m->size)
			break;
	}
	pthread_mutex_unlock(&lock);
	return m;
}

/* One without a descriptor could not be read. */
bool mpiio_close_gate(void)
{
	bool mine = true;

	pthread_mutex_lock(&lock);
	for (const struct mpiio *m = handles; m; m = m->next)
		mine = mine && m->fd >= 0;
	pthread_mutex_unlock(&lock);
	return mine && gate_close();
}

/* ---- The table ---- */

static const struct ummap_driver driver = {
	.struct_size = sizeof(struct ummap_driver),
	.abi = UMMAP_DRIVER_ABI,
	.scheme = "mpiio",
	.keys = MPIIO_KEYS(KEY_NAME),
	.help = "mpiio:PATH?stripe=SIZE&rank=R&ranks=N  a file, or stripes of it, by MPI-IO",
	.open = mpiio_open,
	.close = mpiio_close,
	.read = mpiio_read,
	.write = mpiio_write,
	.flush = mpiio_flush,
	.readv = mpiio_readv,
	.writev = mpiio_writev,
};

/* With the library, so that it is there before any URI can name it. */
__attribute__((constructor)) static void register_driver(void)
{
	ummap_driver_register(&driver);
}

int ummpi_open(const char *uri, size_t size, off_t offset, int prot, const struct ummap_attr *attr, void **addr)
{
	int result;

	opened = NULL;
	result = ummap_open(uri, size, offset, prot, attr, addr);
	if (result == 0 && opened) {
		pthread_mutex_lock(&lock);
		opened->base = *addr;
		opened->size = size;
		pthread_mutex_unlock(&lock);
	}
	return result;
}
