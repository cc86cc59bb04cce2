/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Each handle opens the file by itself, so that transfers do not involve other ranks. Transfers run
 * in threads of libummap, never in the thread that has faulted, which may be inside a call of MPI.
 * MPI must therefore support several threads.
 *
 * While ranks write collectively, the gate is closed, and no other thread calls MPI-IO. There are
 * two reasons: a collective write may also write the bytes between those that it was given, as they
 * were a moment ago; and ROMIO holds a lock during such a call, in which MPI also serves puts of
 * other ranks, which may fault. Reads then use a plain descriptor, and writes go to the staging
 * buffer, where reads find them. Only flushes wait for the gate, which opens soon, because all
 * ranks are in the collective call.
 *
 * The next write, flush or collective write writes the staged data. Until then, it is newer than
 * the file.
 */
#include "mpiio/driver.h"

#include "common/minmax.h"
#include "common/size.h"
#include "mpiio/keys.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <ummap-mpi.h>
#include <unistd.h>

/* Largest staged write: a round of a collective write counts bytes with an int. */
#define MAX_STAGED_BYTES ((size_t)64 << 20)

/* libummap calls drivers in four threads, of which at least two must continue. */
#define MAX_WAITING_FLUSHES 2

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* protects these */
static struct mpiio_handle *handles;
static uint64_t last_number;

/* ---- The gate. Threads in MPI-IO hold it as readers, a collective write as the writer. ---- */

static pthread_rwlock_t gate = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
static pthread_mutex_t closer = PTHREAD_MUTEX_INITIALIZER; /* held while the gate is closed */
static _Atomic unsigned waiting_flushes;

bool mpiio_close_gate(void)
{
	bool can_close = true;

	pthread_mutex_lock(&lock);
	for (const struct mpiio_handle *h = handles; h; h = h->next)
		can_close = can_close && h->fd >= 0;
	pthread_mutex_unlock(&lock);
	if (!can_close || pthread_mutex_trylock(&closer) != 0)
		return false;
	pthread_rwlock_wrlock(&gate);
	return true;
}

void mpiio_open_gate(void)
{
	pthread_rwlock_unlock(&gate);
	pthread_mutex_unlock(&closer);
}

static bool enter_gate(void)
{
	return pthread_rwlock_tryrdlock(&gate) == 0;
}

static void leave_gate(void)
{
	pthread_rwlock_unlock(&gate);
}

/* Enters the gate when it is open. Returns false if enough threads wait for that already. */
static bool wait_for_gate(void)
{
	bool entered = enter_gate();

	if (!entered) {
		if (waiting_flushes++ < MAX_WAITING_FLUSHES)
			entered = pthread_rwlock_rdlock(&gate) == 0;
		waiting_flushes--;
	}
	return entered;
}

/* ---- Opening ---- */

int mpiio_make_info(const char *hints, MPI_Info *info)
{
	char name[MPI_MAX_INFO_KEY], value[MPI_MAX_INFO_VAL];
	int code;

	*info = MPI_INFO_NULL;
	code = PMPI_Info_create(info);
	while (code == MPI_SUCCESS && *hints) {
		size_t key = strcspn(hints, "=;"), len = strcspn(hints, ";");

		if (key < len && key < sizeof(name) && len - key <= sizeof(value)) {
			snprintf(name, sizeof(name), "%.*s", (int)key, hints);
			snprintf(value, sizeof(value), "%.*s", (int)(len - key - 1),
				 hints + key + 1);
			code = PMPI_Info_set(*info, name, value);
		}
		hints += len + (hints[len] == ';');
	}
	return code;
}

static const char *find_key(const struct ummap_uri *uri, const char *name)
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

static int read_number(const struct ummap_uri *uri, const char *name, uint64_t min, uint64_t max,
		       uint64_t *n, struct ummap_geom *geom)
{
	const char *value = find_key(uri, name);
	size_t i = 0;

	if (!value || (size_parse(value, n) == 0 && *n >= min && *n <= max))
		return 0;
	while (strcmp(key_types[i].name, name) != 0)
		i++;
	snprintf(geom->why, sizeof(geom->why), "%s is \"%.40s\": it must be %s", name, value,
		 key_types[i].type);
	return -EINVAL;
}

static int read_stripes(const struct ummap_uri *uri, struct stripes *s, struct ummap_geom *geom)
{
	uint64_t rank = 0, ranks = 1;
	int err = read_number(uri, "offset", 0, INT64_MAX, &s->offset, geom);

	if (!err)
		err = read_number(uri, "stripe", 1, MAX_CALL_BYTES, &s->stripe, geom);
	if (!err)
		err = read_number(uri, "ranks", 1, INT32_MAX, &ranks, geom);
	if (!err)
		err = read_number(uri, "rank", 0, ranks - 1, &rank, geom);
	if (!err && !s->stripe && find_key(uri, "ranks")) {
		snprintf(geom->why, sizeof(geom->why),
			 "cannot use the key ranks without the key stripe. Try stripe=SIZE");
		err = -EINVAL;
	}
	s->rank = (uint32_t)rank;
	s->ranks = (uint32_t)ranks;
	return err;
}

static int check_mpi(struct ummap_geom *geom)
{
	int level = MPI_THREAD_SINGLE;

	if (!is_mpi_running()) {
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

static int open_file(struct mpiio_handle *h, int oflags, struct ummap_geom *geom)
{
	int mode = oflags & UMMAP_O_WRITE ? MPI_MODE_RDWR : MPI_MODE_RDONLY, code;
	MPI_Offset size = 0;
	MPI_Info info;

	/* MPI does not create a file that it may only read. */
	if ((oflags & UMMAP_O_CREATE) && (oflags & UMMAP_O_WRITE))
		mode |= MPI_MODE_CREATE;
	errno = 0;
	code = mpiio_make_info(h->hints, &info);
	if (code == MPI_SUCCESS)
		code = PMPI_File_open(MPI_COMM_SELF, h->path, mode, info, &h->file);
	if (info != MPI_INFO_NULL)
		PMPI_Info_free(&info);
	if (code == MPI_SUCCESS)
		code = PMPI_File_get_size(h->file, &size);
	geom->size = stripes_store_size(&h->stripes, (uint64_t)size);
	geom->align = 1;
	geom->optimal = (uint32_t)h->stripes.stripe;
	geom->caps = UMMAP_CAP_PARALLEL;
	if (oflags & UMMAP_O_WRITE)
		geom->caps |= UMMAP_CAP_WRITE | UMMAP_CAP_GROW;
	return mpiio_errno(code);
}

/* Opens the file without MPI, if the kernel knows it by this name. Stores of one file that have
 * other stripes get other identities. */
static void identify(struct mpiio_handle *h, struct ummap_geom *geom)
{
	const struct stripes *s = &h->stripes;
	struct stat st;

	h->fd = open(h->path, O_RDONLY | O_CLOEXEC);
	if (h->fd < 0 || fstat(h->fd, &st) < 0)
		return;
	geom->id[0] = st.st_ino;
	geom->id[1] = st.st_dev ^ s->offset << 16 ^ s->stripe << 32 ^ (uint64_t)s->rank << 44;
}

static void free_handle(struct mpiio_handle *h)
{
	staging_free(&h->staging);
	pthread_mutex_destroy(&h->drain);
	pthread_mutex_destroy(&h->lock);
	if (h->fd >= 0)
		close(h->fd);
	free(h->path);
	free(h->hints);
	free(h);
}

static struct mpiio_handle *new_handle(const struct ummap_uri *uri)
{
	const char *hints = find_key(uri, "hints");
	struct mpiio_handle *h = calloc(1, sizeof(*h));

	if (!h)
		return NULL;
	staging_init(&h->staging);
	pthread_mutex_init(&h->drain, NULL);
	pthread_mutex_init(&h->lock, NULL);
	h->pid = getpid();
	h->opener = pthread_self();
	h->fd = -1;
	h->file = MPI_FILE_NULL;
	h->path = strdup(uri->path);
	h->hints = strdup(hints ? hints : "");
	if (h->path && h->hints)
		return h;
	free_handle(h);
	return NULL;
}

static int mpiio_open(const struct ummap_uri *uri, int oflags, void **handle,
		      struct ummap_geom *geom)
{
	struct mpiio_handle *h;
	int err = check_mpi(geom);

	if (!err && oflags & UMMAP_O_WRITERS) {
		snprintf(geom->why, sizeof(geom->why),
			 "cannot use UMMAP_WRITERS with the driver mpiio: MPI-IO may also write "
			 "bytes that the mapping has not changed");
		err = -EINVAL;
	}
	if (err)
		return err;
	h = new_handle(uri);
	if (!h)
		return -ENOMEM;
	err = read_stripes(uri, &h->stripes, geom);
	if (!err)
		err = open_file(h, oflags, geom);
	if (err) {
		if (h->file != MPI_FILE_NULL)
			PMPI_File_close(&h->file);
		free_handle(h);
		return err;
	}
	identify(h, geom);
	pthread_mutex_lock(&lock);
	h->number = ++last_number;
	h->next = handles;
	handles = h;
	pthread_mutex_unlock(&lock);
	*handle = h;
	return 0;
}

/* A forked child cannot call MPI, and a lock may be held by a thread that it does not have. */
static int mpiio_close(void *handle)
{
	struct mpiio_handle *h = handle, **at = &handles;
	int err = 0;

	if (h->pid != getpid())
		return 0;
	pthread_mutex_lock(&lock);
	while (*at != h)
		at = &(*at)->next;
	*at = h->next;
	pthread_mutex_unlock(&lock);
	errno = 0;
	if (is_mpi_running())
		err = mpiio_errno(PMPI_File_close(&h->file));
	free_handle(h);
	return err;
}

/* ---- Transfers ---- */

/* If a staged write has moved to the file after the file was read, the bytes were missed in both,
 * and the read is repeated. */
static int mpiio_readv(void *handle, const struct iovec *iov, int n, uint64_t off)
{
	struct mpiio_handle *h = handle;
	uint64_t removals, at;
	bool again;
	int err;

	do {
		pthread_mutex_lock(&h->lock);
		removals = h->staging.removals;
		pthread_mutex_unlock(&h->lock);
		if (enter_gate()) {
			err = stripes_read(&h->stripes, h->file, -1, iov, n, off);
			leave_gate();
		} else {
			err = h->fd < 0 ? -EBUSY
					: stripes_read(&h->stripes, h->file, h->fd, iov, n, off);
		}
		pthread_mutex_lock(&h->lock);
		at = off;
		for (int i = 0; i < n; at += iov[i++].iov_len)
			staging_overlay(&h->staging, iov[i].iov_base, iov[i].iov_len, at);
		again = removals != h->staging.removals;
		pthread_mutex_unlock(&h->lock);
	} while (!err && again);
	return err;
}

static int mpiio_read(void *handle, void *buf, size_t len, uint64_t off)
{
	return mpiio_readv(handle, &(struct iovec){ buf, len }, 1, off);
}

static int stage(struct mpiio_handle *h, const struct iovec *iov, int n, uint64_t off)
{
	bool good = true;

	pthread_mutex_lock(&h->lock);
	for (int i = 0; i < n; i++) {
		const char *from = iov[i].iov_base, *end = from + iov[i].iov_len;

		for (size_t len; good && from < end; from += len, off += len) {
			len = min_size((size_t)(end - from), MAX_STAGED_BYTES);
			good = staging_add(&h->staging, from, len, off);
		}
	}
	pthread_mutex_unlock(&h->lock);
	return good ? 0 : -ENOMEM;
}

/* Writes the staged data. The caller is in the gate, so no collective write takes any. */
static int write_staged(struct mpiio_handle *h)
{
	struct staged_write *w = NULL;
	int err = 0;

	pthread_mutex_lock(&h->drain);
	pthread_mutex_lock(&h->lock);
	while (!err && staging_take(&h->staging, &w, 1) > 0) {
		struct iovec iov = { w->data, w->len };

		pthread_mutex_unlock(&h->lock);
		err = stripes_write(&h->stripes, h->file, &iov, 1, w->off);
		h->is_unsynced = true;
		pthread_mutex_lock(&h->lock);
		staging_end_take(&h->staging, !err);
	}
	pthread_mutex_unlock(&h->lock);
	pthread_mutex_unlock(&h->drain);
	return err;
}

/* Staged data that this write may replace goes to the file before it. */
static int mpiio_writev(void *handle, const struct iovec *iov, int n, uint64_t off)
{
	struct mpiio_handle *h = handle;
	int err;

	if (!enter_gate())
		return stage(h, iov, n, off);
	err = write_staged(h);
	if (!err) {
		err = stripes_write(&h->stripes, h->file, iov, n, off);
		h->is_unsynced = true;
	}
	leave_gate();
	return err;
}

static int mpiio_write(void *handle, const void *buf, size_t len, uint64_t off)
{
	return mpiio_writev(handle, &(struct iovec){ (void *)(uintptr_t)buf, len }, 1, off);
}

/* Data that cannot be written stays in the staging buffer: the positive error says that it is not
 * lost. */
static int mpiio_flush(void *handle, uint64_t off, uint64_t len)
{
	struct mpiio_handle *h = handle;
	int err;

	(void)off, (void)len;
	if (!wait_for_gate())
		return EBUSY;
	err = -write_staged(h);
	if (!err && atomic_exchange(&h->is_unsynced, false)) {
		errno = 0;
		err = is_mpi_running() ? mpiio_errno(PMPI_File_sync(h->file)) : -EIO;
		if (err)
			h->is_unsynced = true;
	}
	leave_gate();
	if (atomic_exchange(&h->is_lost, false))
		err = -EIO;
	return err;
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

/* The library registers the driver when it is loaded, before a URI can name it. */
__attribute__((constructor)) static void register_driver(void)
{
	ummap_driver_register(&driver);
}

/* ---- Mappings ---- */

struct mpiio_handle *mpiio_find(const void *addr)
{
	struct mpiio_handle *h;

	pthread_mutex_lock(&lock);
	for (h = handles; h; h = h->next)
		if (h->base && (uintptr_t)addr - (uintptr_t)h->base < h->size)
			break;
	pthread_mutex_unlock(&lock);
	return h;
}

/* The driver may be behind filters, so its handle is found as the newest one of this thread. */
int ummpi_open(const char *uri, size_t size, off_t offset, int prot, const struct ummap_attr *attr,
	       void **addr)
{
	struct mpiio_handle *h;
	uint64_t before;
	int result;

	pthread_mutex_lock(&lock);
	before = last_number;
	pthread_mutex_unlock(&lock);
	result = ummap_open(uri, size, offset, prot, attr, addr);
	pthread_mutex_lock(&lock);
	for (h = handles; h && h->number > before; h = h->next)
		if (result == 0 && pthread_equal(h->opener, pthread_self())) {
			h->base = *addr;
			h->size = size;
			break;
		}
	pthread_mutex_unlock(&lock);
	return result;
}
