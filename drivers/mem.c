/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The driver mem: anonymous memory as a store.
 *
 * A store is one anonymous mapping of the whole size. It uses memory only where data were written.
 * A bit for each chunk records whether the chunk was written; a read of any other chunk returns
 * zeros and does not access the store's memory. Handles with the same name share a store, and the
 * last handle that is closed frees it.
 *
 * Transfers only copy: they take no lock and make no system call. Opening and closing take the lock
 * of the list. A forked child has no store of its parent, and must not unmap their addresses.
 */
#include "ummap-driver.h"

#include "common/memory_calls.h"
#include "common/minmax.h"
#include "keys.h"

#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

extern const struct ummap_driver ummap_driver_mem;

#define CHUNK_BYTES ((uint64_t)64 << 10)

struct store {
	struct store *next;          /* next store in the list */
	char *name;                  /* name; NULL: the store belongs to one handle */
	pid_t pid;                   /* process that has the memory */
	unsigned handles;            /* number of open handles */
	uint64_t size;               /* size in bytes */
	char *bytes;                 /* the memory */
	_Atomic uint64_t *written;   /* a bit for each chunk that was written */
};

struct handle {
	struct store *store;         /* store, which other handles may share */
	bool writable;               /* whether the handle may write */
};

/* The stores of the process list_pid. A forked child starts with an empty list, because fork(2) may
 * copy the list while a thread changes it. */
static struct store *stores;
static pid_t list_pid;
/* The lock of the list: the process whose thread has it; 0: none. A value that a child inherits
 * names another process, so it does not lock the list of the child. */
static _Atomic pid_t list_owner;

static void lock_list(pid_t me)
{
	pid_t owner = 0;

	while (!atomic_compare_exchange_weak(&list_owner, &owner, me)) {
		if (owner == me) {
			sched_yield();
			owner = 0;
		}
	}
	if (list_pid != me)
		stores = NULL;
	list_pid = me;
}

static void unlock_list(void)
{
	list_owner = 0;
}

/* ---- Transfers ---- */

static bool is_written(const struct store *s, uint64_t chunk)
{
	uint64_t bits = atomic_load_explicit(&s->written[chunk / 64], memory_order_acquire);

	return bits >> chunk % 64 & 1;
}

/* Runs after the bytes have been copied: a thread that reads the bit also reads the bytes. */
static void mark_chunks(struct store *s, uint64_t off, size_t len)
{
	uint64_t end = len > 0 ? (off + len - 1) / CHUNK_BYTES + 1 : 0;

	for (uint64_t chunk = off / CHUNK_BYTES; chunk < end; chunk++) {
		if (!is_written(s, chunk))
			atomic_fetch_or_explicit(&s->written[chunk / 64], (uint64_t)1 << chunk % 64,
						 memory_order_release);
	}
}

static int mem_read(void *h, void *buf, size_t len, uint64_t off)
{
	const struct store *s = ((struct handle *)h)->store;
	uint64_t inside = off < s->size ? min_u64(len, s->size - off) : 0;
	char *to = buf;

	memset(to + inside, 0, len - inside);
	while (inside > 0) {
		uint64_t piece = min_u64(inside, CHUNK_BYTES - off % CHUNK_BYTES);

		if (is_written(s, off / CHUNK_BYTES))
			memcpy(to, s->bytes + off, piece);
		else
			memset(to, 0, piece);
		to += piece;
		off += piece;
		inside -= piece;
	}
	return 0;
}

static int mem_write(void *h, const void *buf, size_t len, uint64_t off)
{
	const struct handle *handle = h;
	struct store *s = handle->store;

	if (!handle->writable)
		return -EBADF;
	if (off > s->size || len > s->size - off)
		return -ENOSPC;
	memcpy(s->bytes + off, buf, len);
	mark_chunks(s, off, len);
	return 0;
}

static int mem_readv(void *h, const struct iovec *iov, int n, uint64_t off)
{
	for (int i = 0; i < n; off += iov[i++].iov_len)
		mem_read(h, iov[i].iov_base, iov[i].iov_len, off);
	return 0;
}

static int mem_writev(void *h, const struct iovec *iov, int n, uint64_t off)
{
	int err = 0;

	for (int i = 0; i < n && !err; off += iov[i++].iov_len)
		err = mem_write(h, iov[i].iov_base, iov[i].iov_len, off);
	return err;
}

/* ---- Opening and closing ---- */

static void free_store(struct store *s)
{
	if (s->bytes)
		raw_munmap(s->bytes, s->size);
	free((void *)s->written);
	free(s->name);
	free(s);
}

static int make_store(const char *name, uint64_t size, pid_t me, struct store **made,
		      struct ummap_geom *geom)
{
	struct store *s = calloc(1, sizeof(*s));
	void *bytes = mmap(NULL, size, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (s) {
		s->pid = me;
		s->size = size;
		s->bytes = bytes == MAP_FAILED ? NULL : bytes;
		s->name = name ? strdup(name) : NULL;
		s->written = calloc(size / CHUNK_BYTES / 64 + 1, sizeof(*s->written));
	}
	if (s && s->bytes && s->written && (!name || s->name)) {
		raw_madvise(bytes, size, MADV_DONTFORK);
		*made = s;
		return 0;
	}
	if (s)
		free_store(s);
	else if (bytes != MAP_FAILED)
		raw_munmap(bytes, size);
	return keys_refuse(geom, ENOMEM, "cannot create a store of %llu bytes: no address space or "
			   "memory", (unsigned long long)size);
}

static struct store *find_store(const char *name)
{
	struct store *s = stores;

	while (s && !(s->name && strcmp(s->name, name) == 0))
		s = s->next;
	return s;
}

/* Adds a handle to the store of that name, which is made if it does not exist. The caller has the
 * lock of the list. */
static int attach_locked(const char *name, uint64_t size, pid_t me, struct store **store,
		  struct ummap_geom *geom)
{
	struct store *s = name ? find_store(name) : NULL;
	int err;

	if (s && s->size != size)
		return keys_refuse(geom, EINVAL, "cannot open the store '%.140s' with %llu bytes: "
				   "it has %llu. Try that size", name, (unsigned long long)size,
				   (unsigned long long)s->size);
	if (!s) {
		err = make_store(name, size, me, &s, geom);
		if (err)
			return err;
		s->next = stores;
		stores = s;
	}
	s->handles++;
	*store = s;
	return 0;
}

static const struct key_type types[] = { MEM_KEYS(KEY_TYPE) KEY_TYPES_END };

static int mem_open(const struct ummap_uri *uri, int oflags, void **h, struct ummap_geom *geom)
{
	const char *name = uri->nkeys ? uri->keys[0].value : NULL; /* the only key */
	struct handle *handle;
	pid_t me = getpid();
	uint64_t size;
	int err;

	if (!keys_size(uri->path, &size))
		return keys_refuse(geom, EINVAL, "the size is \"%.140s\": it must be " A_SIZE
				   " of at least 1, as in mem:64M", uri->path);
	if (name && !*name)
		return keys_refuse_value(geom, "", uri->keys, types);
	handle = malloc(sizeof(*handle));
	if (!handle)
		return -ENOMEM;
	handle->writable = oflags & UMMAP_O_WRITE;
	lock_list(me);
	err = attach_locked(name, size, me, &handle->store, geom);
	unlock_list();
	if (err) {
		free(handle);
		return err;
	}
	geom->size = size;
	geom->align = 1;
	geom->caps = UMMAP_CAP_PARALLEL | UMMAP_CAP_FAULTSAFE;
	if (oflags & UMMAP_O_WRITE)
		geom->caps |= UMMAP_CAP_WRITE;
	/* No number of a device equals an address. */
	geom->id[0] = (uintptr_t)handle->store;
	geom->id[1] = (uintptr_t)&ummap_driver_mem;
	*h = handle;
	return 0;
}

static int mem_close(void *h)
{
	struct store *s = ((struct handle *)h)->store, **link = &stores;
	pid_t me = getpid();
	bool last;

	free(h);
	if (s->pid != me)
		return 0;
	lock_list(me);
	last = --s->handles == 0;
	if (last) {
		while (*link != s)
			link = &(*link)->next;
		*link = s->next;
	}
	unlock_list();
	if (last)
		free_store(s);
	return 0;
}

const struct ummap_driver ummap_driver_mem = {
	.struct_size = sizeof(struct ummap_driver),
	.abi = UMMAP_DRIVER_ABI,
	.scheme = "mem",
	.keys = MEM_KEYS(KEY_NAME),
	.help = "mem:SIZE?name=NAME  memory of this process, lost with its last handle",
	.open = mem_open,
	.close = mem_close,
	.read = mem_read,
	.write = mem_write,
	.readv = mem_readv,
	.writev = mem_writev,
};
