/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The type Mapping: the bytes of one mapping of the library, from ummap_open to umunmap.
 *
 * A mapping ends when it is closed or when its last reference goes, but never while a memoryview,
 * a pin or a call uses its memory: `exports` and `busy` count these. Offsets are bytes from the
 * beginning of the mapping, and this file checks every range. Fields other than `base` belong to
 * the holder of the GIL. A call without the GIL increments `busy` first.
 *
 * A forked child has none of its parent's mappings. At their addresses there is nothing, or the
 * reservations of absent segments. The child maps files there by the kernel, privately and without
 * a limit, so that inherited objects can be read. Mappings of other stores become orphans: their
 * addresses stay reserved, because an array may still point there.
 */
#include "_ummap.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <structmember.h>
#include <sys/mman.h>
#include <time.h>
#include <ummap.h>
#include <unistd.h>

/* A piece of a long call should take this time. Signals are handled between pieces. */
#define PIECE_NS 50000000
#define MIN_PIECE_BYTES ((size_t)1 << 20)
#define MAX_PIECE_BYTES ((size_t)1 << 30)
/* A copy pins at most this many bytes, and at most this fraction of the limit. */
#define MAX_PIN_BYTES ((size_t)16 << 20)
#define PINS_PER_LIMIT 4
/* The rows that are loaded together, and copied while the next ones load. */
#define MAX_GROUP_ROWS 512
#define MAX_GROUP_BYTES ((size_t)8 << 20)

bool mapping_has_orphans;

struct mapping {
	PyObject_HEAD
	char *base;              /* address of the first byte; NULL if the mapping has ended */
	size_t size;             /* bytes */
	size_t limit;            /* the mapping's own limit in bytes; 0 if it has none */
	Py_ssize_t segment;      /* segment size in bytes */
	off_t offset;            /* offset of base in the file, a multiple of the page size */
	int fd;                  /* file that a forked child maps; -1 for other stores */
	pid_t pid;               /* process that made the mapping */
	bool writable;           /* the program may store to the mapping */
	bool keep;               /* changes are made durable at the end */
	bool is_replaced;        /* in a forked child: the kernel maps the file at base */
	bool is_reserved;        /* in a forked child: the addresses are reserved */
	Py_ssize_t exports;      /* buffers and pins on the memory */
	Py_ssize_t busy;         /* calls without the GIL that use the memory */
	PyObject *weak;          /* weak references */
	PyObject *name;          /* path or URI of the store */
};

static struct mapping *to_mapping(PyObject *self)
{
	return (struct mapping *)self;
}

/* ---- Checks ---- */

PyObject *check_mapping_access(PyObject *self)
{
	struct mapping *m = to_mapping(self);

	if (!m->base)
		PyErr_SetString(PyExc_ValueError, "this mapping is closed");
	else if (m->pid != getpid() && !m->is_replaced)
		raise_os_error(ENXIO, "cannot use a mapping of the parent process in a forked "
			       "child. Open the store in the child, too");
	else
		return self;
	return NULL;
}

/* Returns the mapping, or NULL with an exception set if the library does not have it here. */
static PyObject *check_own_mapping(PyObject *self)
{
	if (!check_mapping_access(self))
		return NULL;
	if (to_mapping(self)->pid != getpid())
		return raise_os_error(ENXIO, "cannot do this with a mapping of the parent process: "
				      "a forked child sees only the file. Open the store in the "
				      "child, too");
	return self;
}

bool mapping_has_address(PyObject *self, const char *addr)
{
	struct mapping *m = to_mapping(self);

	return m->base && addr >= m->base && addr < m->base + m->size;
}

size_t mapping_max_pin_bytes(PyObject *self)
{
	size_t limit = to_mapping(self)->limit, pages = (size_t)sysconf(_SC_PHYS_PAGES);

	return (limit ? limit : pages * (size_t)sysconf(_SC_PAGESIZE)) / PINS_PER_LIMIT;
}

/* Checks the range [offset, offset + len). A negative len becomes the rest of the mapping. */
static int check_range(struct mapping *m, Py_ssize_t offset, Py_ssize_t *len)
{
	if (*len < 0 && offset >= 0 && (size_t)offset <= m->size)
		*len = (Py_ssize_t)m->size - offset;
	if (offset >= 0 && *len >= 0 && (size_t)offset <= m->size &&
	    (size_t)*len <= m->size - (size_t)offset)
		return 0;
	PyErr_Format(PyExc_ValueError, "bytes %zd to %zd are not in the mapping, which has %zu",
		     offset, offset + *len, m->size);
	return -1;
}

/* ---- Long calls in pieces ---- */

/* Processes one piece without the GIL. Returns 0, or -1 with the library's error set. */
typedef int (piece_fn)(struct mapping *m, size_t at, size_t len, void *arg);

static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

/*
 * Calls fn for the range [at, at + len) in pieces of at most max bytes. The size of a piece adapts
 * to its duration. Returns 0, or nonzero with an exception set.
 */
static int call_in_pieces(struct mapping *m, size_t at, size_t len, size_t max, piece_fn *fn,
			  void *arg)
{
	size_t end = at + len, piece = MIN_PIECE_BYTES < max ? MIN_PIECE_BYTES : max, n;
	int failed = 0;
	int64_t took;

	m->busy++;
	for (; at < end && !failed; at += n) {
		n = end - at < piece ? end - at : piece;
		Py_BEGIN_ALLOW_THREADS
		took = -now_ns();
		failed = fn(m, at, n, arg);
		took += now_ns();
		Py_END_ALLOW_THREADS
		if (failed)
			raise_library_error();
		else
			failed = PyErr_CheckSignals();
		if (took < PIECE_NS / 2 && piece * 2 <= max)
			piece *= 2;
		else if (took > PIECE_NS * 2 && piece > MIN_PIECE_BYTES)
			piece /= 2;
	}
	m->busy--;
	return failed;
}

static int write_piece(struct mapping *m, size_t at, size_t len, void *flags)
{
	return umsync_range(m->base + at, len, UMMAP_NOFLUSH | *(int *)flags);
}

static int flush_piece(struct mapping *m, size_t at, size_t len, void *arg)
{
	(void)arg;
	return umsync_range(m->base + at, len, 0);
}

static int write_range(struct mapping *m, size_t at, size_t len, int flags)
{
	return len > 0 ? call_in_pieces(m, at, len, MAX_PIECE_BYTES, write_piece, &flags) : 0;
}

/* Makes a written range durable, which is one request to the store. */
static int flush_range(struct mapping *m, size_t at, size_t len)
{
	int failed;

	if (len == 0)
		return 0;
	m->busy++;
	Py_BEGIN_ALLOW_THREADS
	failed = flush_piece(m, at, len, NULL);
	Py_END_ALLOW_THREADS
	m->busy--;
	if (failed)
		raise_library_error();
	return failed;
}

/* ---- Methods ---- */

/* _sync(offset=0, length=-1, evict=False, durable=True) */
static PyObject *mapping_sync(PyObject *self, PyObject *args)
{
	struct mapping *m = to_mapping(self);
	Py_ssize_t offset = 0, len = -1;
	int evict = 0, durable = 1;

	if (!PyArg_ParseTuple(args, "|nnpp", &offset, &len, &evict, &durable) ||
	    !check_own_mapping(self) || check_range(m, offset, &len) == -1)
		return NULL;
	if (write_range(m, (size_t)offset, (size_t)len, 0))
		return NULL;
	if (durable && flush_range(m, (size_t)offset, (size_t)len))
		return NULL;
	if (evict && write_range(m, (size_t)offset, (size_t)len, UMMAP_EVICT))
		return NULL;
	Py_RETURN_NONE;
}

/* _begin_sync(): begins a commit, and returns the address of its handle for end_sync. */
static PyObject *mapping_begin_sync(PyObject *self, PyObject *unused)
{
	struct mapping *m = to_mapping(self);
	struct umsync_handle *handle;
	int failed;

	(void)unused;
	if (!check_own_mapping(self))
		return NULL;
	m->busy++;
	Py_BEGIN_ALLOW_THREADS
	failed = umsync_begin(m->base, 0, &handle);
	Py_END_ALLOW_THREADS
	m->busy--;
	return failed ? raise_library_error() : PyLong_FromVoidPtr(handle);
}

/* Makes the error of the library the attribute _error. Returns false after another error. */
static bool keep_error(PyObject *flush)
{
	PyObject *type, *error, *trace;
	int failed;

	raise_library_error();
	PyErr_Fetch(&type, &error, &trace);
	PyErr_NormalizeException(&type, &error, &trace);
	failed = PyObject_SetAttrString(flush, "_error", error);
	Py_XDECREF(type);
	Py_XDECREF(error);
	Py_XDECREF(trace);
	return failed == 0;
}

/* Returns whether the commit has ended: 1 or 0, or -1 after an error. Other threads and handlers of
 * signals do not run meanwhile, so they find the handle or the result. */
static int has_ended(PyObject *flush)
{
	PyObject *address = PyObject_GetAttrString(flush, "_handle");
	struct umsync_handle *handle;
	int done = 1, failed;

	if (!address || address == Py_None) {
		Py_XDECREF(address);
		return address ? 1 : -1;
	}
	handle = PyLong_AsVoidPtr(address);
	Py_DECREF(address);
	if (PyErr_Occurred())
		return -1;
	failed = umsync_test(&handle, &done);
	if (done && PyObject_SetAttrString(flush, "_handle", Py_None) < 0)
		return -1;
	return failed && !keep_error(flush) ? -1 : done;
}

PyObject *mapping_end_sync(PyObject *module, PyObject *args)
{
	const struct timespec pause = { .tv_nsec = 1000000 };
	PyObject *flush;
	int wait, done;

	(void)module;
	if (!PyArg_ParseTuple(args, "Op", &flush, &wait))
		return NULL;
	/* Python's handlers of signals run while the call waits. */
	while ((done = has_ended(flush)) == 0 && wait && PyErr_CheckSignals() == 0) {
		Py_BEGIN_ALLOW_THREADS
		nanosleep(&pause, NULL);
		Py_END_ALLOW_THREADS
	}
	return PyErr_Occurred() ? NULL : PyBool_FromLong(done);
}

/* _lengthen(size) */
static PyObject *mapping_lengthen(PyObject *self, PyObject *args)
{
	struct mapping *m = to_mapping(self);
	Py_ssize_t size;
	int failed;

	if (!PyArg_ParseTuple(args, "n", &size) || !check_own_mapping(self))
		return NULL;
	m->busy++;
	Py_BEGIN_ALLOW_THREADS
	failed = umlengthen(m->base, (uint64_t)size);
	Py_END_ALLOW_THREADS
	m->busy--;
	if (failed)
		return raise_library_error();
	Py_RETURN_NONE;
}

static int advise_piece(struct mapping *m, size_t at, size_t len, void *advice)
{
	return umadvise(m->base + at, len, *(int *)advice);
}

/* _advise(advice, offset=0, length=-1) */
static PyObject *mapping_advise(PyObject *self, PyObject *args)
{
	struct mapping *m = to_mapping(self);
	Py_ssize_t offset = 0, len = -1;
	int advice, failed;

	if (!PyArg_ParseTuple(args, "i|nn", &advice, &offset, &len) || !check_own_mapping(self) ||
	    check_range(m, offset, &len) == -1)
		return NULL;
	if (len == 0)
		Py_RETURN_NONE;
	if (advice == UMMAP_ADV_DONTNEED)
		failed = call_in_pieces(m, (size_t)offset, (size_t)len, MAX_PIECE_BYTES,
					advise_piece, &advice);
	else if ((failed = umadvise(m->base + offset, (size_t)len, advice)))
		raise_library_error();
	if (failed)
		return NULL;
	Py_RETURN_NONE;
}

static size_t max_copy_bytes(PyObject *self)
{
	size_t max = mapping_max_pin_bytes(self);

	return max < MAX_PIN_BYTES ? max : MAX_PIN_BYTES;
}

/* Copies between pinned bytes of the mapping and bytes elsewhere. */
typedef void (copy_fn)(char *mapped, char *other, size_t len);

static void copy_out(char *mapped, char *other, size_t len)
{
	memmove(other, mapped, len);
}

static void copy_in(char *mapped, char *other, size_t len)
{
	memcpy(mapped, other, len);
}

/*
 * Pins the range, calls fn unless it is NULL, and unpins the range. Only one segment is pinned at a
 * time: threads that hold pins and need more of them could wait for each other.
 */
static int pin_segments(const struct mapping *m, char *mapped, size_t len, char *other, copy_fn *fn)
{
	size_t segment = (size_t)m->segment, done = 0, n;
	int prot = fn == copy_in ? PROT_READ | PROT_WRITE : PROT_READ;

	for (; done < len; done += n) {
		n = segment - (size_t)(mapped + done - m->base) % segment;
		n = n < len - done ? n : len - done;
		if (umpin(mapped + done, n, prot))
			return -1;
		if (fn)
			fn(mapped + done, other + done, n);
		if (umunpin(mapped + done, n))
			return -1;
	}
	return 0;
}

/* Calls pin_segments after the reads of all segments have started. */
static int load_segments(const struct mapping *m, char *mapped, size_t len, char *other,
			 copy_fn *fn)
{
	if (len > (size_t)m->segment)
		umprefetch(&(struct iovec){ mapped, len }, 1);
	return pin_segments(m, mapped, len, other, fn);
}

static int load_piece(struct mapping *m, size_t at, size_t len, void *arg)
{
	(void)arg;
	return load_segments(m, m->base + at, len, NULL, NULL);
}

/* _load(offset=0, length=-1): returns when all bytes were in memory. */
static PyObject *mapping_load(PyObject *self, PyObject *args)
{
	struct mapping *m = to_mapping(self);
	Py_ssize_t offset = 0, len = -1;

	if (!PyArg_ParseTuple(args, "|nn", &offset, &len) || !check_own_mapping(self) ||
	    check_range(m, offset, &len) == -1)
		return NULL;
	if (len > 0 && call_in_pieces(m, (size_t)offset, (size_t)len, max_copy_bytes(self),
				      load_piece, NULL))
		return NULL;
	Py_RETURN_NONE;
}

/* _pin(offset, length, write) */
static PyObject *mapping_pin(PyObject *self, PyObject *args)
{
	struct mapping *m = to_mapping(self);
	Py_ssize_t offset, len;
	int write, failed;

	if (!PyArg_ParseTuple(args, "nnp", &offset, &len, &write) || !check_own_mapping(self) ||
	    check_range(m, offset, &len) == -1)
		return NULL;
	m->busy++;
	failed = pin_range(m->base + offset, (size_t)len, write);
	m->busy--;
	if (failed)
		return NULL;
	m->exports++;
	Py_RETURN_NONE;
}

/* _unpin(offset, length) */
static PyObject *mapping_unpin(PyObject *self, PyObject *args)
{
	struct mapping *m = to_mapping(self);
	Py_ssize_t offset, len;

	if (!PyArg_ParseTuple(args, "nn", &offset, &len) || !check_mapping_access(self) ||
	    check_range(m, offset, &len) == -1)
		return NULL;
	if (m->pid == getpid())
		unpin_range(m->base + offset, (size_t)len);
	m->exports--;
	Py_RETURN_NONE;
}

/*
 * A copy between the mapping and other memory. The mapped bytes are pinned for the copy, so that a
 * failure of storage is an exception.
 */
struct copy {
	char *other;             /* the other memory */
	size_t at;               /* offset in the mapping that belongs to the first byte of other */
	bool store;              /* copy to the mapping */
};

static int copy_piece(struct mapping *m, size_t at, size_t len, void *arg)
{
	struct copy *c = arg;
	char *mapped = m->base + at, *other = c->other + (at - c->at);

	return c->store ? pin_segments(m, mapped, len, other, copy_in) :
			  load_segments(m, mapped, len, other, copy_out);
}

static int copy_bytes(struct mapping *m, size_t offset, size_t len, char *other, bool store)
{
	struct copy c = { .other = other, .at = offset, .store = store };
	char *temporary = NULL;
	int failed;

	/* Evaluating an index or a buffer may have run any code, also a close. */
	if (!check_mapping_access((PyObject *)m))
		return -1;
	if (len == 0)
		return 0;
	if (m->pid != getpid()) {
		if (store)
			memmove(m->base + offset, other, len);
		else
			memmove(other, m->base + offset, len);
		return 0;
	}
	/* The source is in this mapping: a piece could overwrite the source of a later one. */
	if (store && other < m->base + m->size && other + len > m->base) {
		temporary = PyMem_Malloc(len);
		if (!temporary) {
			PyErr_NoMemory();
			return -1;
		}
		c.other = memcpy(temporary, other, len);
	}
	failed = call_in_pieces(m, offset, len, max_copy_bytes((PyObject *)m), copy_piece, &c);
	PyMem_Free(temporary);
	return failed;
}

/* _copy(offset, buffer, store=False): reads into the buffer, or stores the buffer. */
static PyObject *mapping_copy(PyObject *self, PyObject *args)
{
	struct mapping *m = to_mapping(self);
	Py_buffer buffer = { 0 };
	Py_ssize_t offset, len;
	PyObject *other;
	int store = 0, failed;

	if (!PyArg_ParseTuple(args, "nO|p", &offset, &other, &store) ||
	    !check_mapping_access(self) ||
	    PyObject_GetBuffer(other, &buffer, store ? PyBUF_SIMPLE : PyBUF_WRITABLE) == -1)
		return NULL;
	len = buffer.len;
	failed = check_range(m, offset, &len) ||
		 copy_bytes(m, (size_t)offset, (size_t)len, buffer.buf, store);
	PyBuffer_Release(&buffer);
	if (failed)
		return NULL;
	Py_RETURN_NONE;
}

/* ---- Rows ---- */

struct rows {
	size_t first;            /* offset of row 0 in the mapping */
	Py_ssize_t stride;       /* bytes from one row to the next */
	size_t size;             /* bytes of one row */
	const int64_t *index;    /* row numbers */
	size_t n;                /* number of rows */
	char *out;               /* memory for copies; NULL to prefetch only */
	size_t group;            /* number of rows that are loaded together */
};

static char *row_address(const struct mapping *m, const struct rows *r, size_t i)
{
	return m->base + r->first + r->index[i] * r->stride;
}

static int prefetch_group(const struct mapping *m, const struct rows *r, size_t from)
{
	struct iovec ranges[MAX_GROUP_ROWS];
	int n = 0;

	for (size_t i = from; i < r->n && i < from + r->group; i++)
		ranges[n++] = (struct iovec){ row_address(m, r, i), r->size };
	return umprefetch(ranges, n);
}

static int copy_group(const struct mapping *m, const struct rows *r, size_t from)
{
	for (size_t i = from; i < r->n && i < from + r->group; i++) {
		if (pin_segments(m, row_address(m, r, i), r->size, r->out + i * r->size, copy_out))
			return -1;
	}
	return 0;
}

static int process_rows(struct mapping *m, const struct rows *r)
{
	int failed = 0;

	m->busy++;
	for (size_t from = 0; from < r->n && !failed; from += r->group) {
		Py_BEGIN_ALLOW_THREADS
		if (from == 0 || !r->out)
			failed = prefetch_group(m, r, from);
		if (!failed && r->out && from + r->group < r->n)
			failed = prefetch_group(m, r, from + r->group);
		if (!failed && r->out)
			failed = copy_group(m, r, from);
		Py_END_ALLOW_THREADS
		if (failed)
			raise_library_error();
		else
			failed = PyErr_CheckSignals();
	}
	m->busy--;
	return failed;
}

/* Copies rows of which one is too large to be pinned as a whole. */
static int copy_large_rows(struct mapping *m, const struct rows *r)
{
	int failed = 0;

	for (size_t i = 0; i < r->n && !failed; i++)
		failed = copy_bytes(m, (size_t)(row_address(m, r, i) - m->base), r->size,
				    r->out + i * r->size, false);
	return failed;
}

static int check_rows(struct mapping *m, struct rows *r)
{
	for (size_t i = 0; i < r->n; i++) {
		Py_ssize_t len = (Py_ssize_t)r->size, at;

		if (__builtin_mul_overflow(r->index[i], r->stride, &at) ||
		    __builtin_add_overflow(at, (Py_ssize_t)r->first, &at) ||
		    check_range(m, at, &len) == -1) {
			if (!PyErr_Occurred())
				PyErr_SetString(PyExc_ValueError, "a row is not in the mapping");
			return -1;
		}
	}
	return 0;
}

/* _read_rows(first, stride, size, int64 indices, out=None): prefetches rows, or copies to out. */
static PyObject *mapping_rows(PyObject *self, PyObject *args)
{
	struct mapping *m = to_mapping(self);
	PyObject *indices, *out = Py_None;
	Py_buffer index = { 0 }, target = { 0 };
	Py_ssize_t first, size;
	struct rows r = { 0 };
	bool is_large = false;
	size_t max;
	int failed = -1;

	if (!PyArg_ParseTuple(args, "nnnO|O", &first, &r.stride, &size, &indices, &out) ||
	    !check_own_mapping(self))
		return NULL;
	if (size <= 0 || first < 0)
		return PyErr_Format(PyExc_ValueError, "cannot read rows of %zd bytes at byte %zd",
				    size, first);
	if (PyObject_GetBuffer(indices, &index, PyBUF_SIMPLE) == -1)
		return NULL;
	if (out != Py_None && PyObject_GetBuffer(out, &target, PyBUF_WRITABLE) == -1)
		goto done;
	max = max_copy_bytes(self);
	r.first = (size_t)first, r.size = (size_t)size;
	r.index = index.buf, r.n = (size_t)index.len / sizeof(int64_t), r.out = target.buf;
	r.group = (max < MAX_GROUP_BYTES ? max : MAX_GROUP_BYTES) / r.size;
	is_large = r.out && r.group == 0;
	r.group = r.group < 1 ? 1 : r.group > MAX_GROUP_ROWS ? MAX_GROUP_ROWS : r.group;
	if (!check_own_mapping(self))
		goto done;
	if (r.out && (size_t)target.len != r.n * r.size)
		PyErr_SetString(PyExc_ValueError, "cannot copy rows: the target has another size");
	else
		failed = check_rows(m, &r) ||
			 (is_large ? copy_large_rows(m, &r) : process_rows(m, &r));
done:
	PyBuffer_Release(&index);
	if (target.obj)
		PyBuffer_Release(&target);
	if (failed)
		return NULL;
	Py_RETURN_NONE;
}

static PyObject *mapping_stat(PyObject *self, PyObject *unused)
{
	(void)unused;
	return check_own_mapping(self) ? make_counters(to_mapping(self)->base) : NULL;
}

/* ---- Bytes and buffers ---- */

static Py_ssize_t mapping_length(PyObject *self)
{
	return check_mapping_access(self) ? (Py_ssize_t)to_mapping(self)->size : -1;
}

static int mapping_getbuffer(PyObject *self, Py_buffer *view, int flags)
{
	struct mapping *m = to_mapping(self);

	if (!check_mapping_access(self))
		return -1;
	if (PyBuffer_FillInfo(view, self, m->base, (Py_ssize_t)m->size, !m->writable, flags) == -1)
		return -1;
	m->exports++;
	return 0;
}

static void mapping_releasebuffer(PyObject *self, Py_buffer *view)
{
	(void)view;
	to_mapping(self)->exports--;
}

/* Returns the range of an index or a slice with step 1. *len is -1 for an index. */
static int parse_index(struct mapping *m, PyObject *index, Py_ssize_t *at, Py_ssize_t *len)
{
	Py_ssize_t stop, step;

	if (PySlice_Check(index)) {
		if (PySlice_Unpack(index, at, &stop, &step) == -1)
			return -1;
		*len = PySlice_AdjustIndices((Py_ssize_t)m->size, at, &stop, step);
		if (step == 1)
			return 0;
		PyErr_SetString(PyExc_ValueError, "cannot use a slice with another step than 1. "
				"Try memoryview(mapping)");
		return -1;
	}
	*at = PyNumber_AsSsize_t(index, PyExc_IndexError);
	if (*at == -1 && PyErr_Occurred())
		return -1;
	*len = -1;
	*at += *at < 0 ? (Py_ssize_t)m->size : 0;
	if (*at >= 0 && (size_t)*at < m->size)
		return 0;
	PyErr_SetString(PyExc_IndexError, "mapping index out of range");
	return -1;
}

static PyObject *mapping_subscript(PyObject *self, PyObject *index)
{
	struct mapping *m = to_mapping(self);
	Py_ssize_t at, len;
	PyObject *bytes;
	char byte;

	if (!check_mapping_access(self) || parse_index(m, index, &at, &len) == -1)
		return NULL;
	if (len < 0 && copy_bytes(m, (size_t)at, 1, &byte, false))
		return NULL;
	if (len < 0)
		return PyLong_FromLong((unsigned char)byte);
	bytes = PyBytes_FromStringAndSize(NULL, len);
	if (bytes && copy_bytes(m, (size_t)at, (size_t)len, PyBytes_AsString(bytes), false))
		Py_CLEAR(bytes);
	return bytes;
}

static int store_byte(struct mapping *m, Py_ssize_t at, PyObject *value)
{
	Py_ssize_t number = PyNumber_AsSsize_t(value, PyExc_ValueError);
	char byte = (char)number;

	if (number == -1 && PyErr_Occurred())
		return -1;
	if (number < 0 || number > 255) {
		PyErr_SetString(PyExc_ValueError, "a byte must be from 0 to 255");
		return -1;
	}
	return copy_bytes(m, (size_t)at, 1, &byte, true);
}

static int mapping_ass_subscript(PyObject *self, PyObject *index, PyObject *value)
{
	struct mapping *m = to_mapping(self);
	Py_ssize_t at, len;
	Py_buffer from;
	int failed = -1;

	if (!check_mapping_access(self))
		return -1;
	if (!value || !m->writable) {
		PyErr_SetString(PyExc_TypeError, !value ? "cannot delete bytes of a mapping" :
				"cannot store to the mapping: it is read-only. Open it with mode "
				"'r+'");
		return -1;
	}
	if (parse_index(m, index, &at, &len) == -1)
		return -1;
	if (len < 0)
		return store_byte(m, at, value);
	if (PyObject_GetBuffer(value, &from, PyBUF_SIMPLE) == -1)
		return -1;
	if (from.len == len)
		failed = copy_bytes(m, (size_t)at, (size_t)len, from.buf, true);
	else
		PyErr_Format(PyExc_ValueError, "cannot assign %zd bytes to a slice of %zd",
			     from.len, len);
	PyBuffer_Release(&from);
	return failed ? -1 : 0;
}

/* ---- Beginning, end and fork ---- */

static int unmap(struct mapping *m)
{
	char *base = m->base;
	int failed, error;

	if (m->pid != getpid()) {
		/* The replacement is the only mapping that this process has at base. */
		if (m->is_replaced || m->is_reserved)
			munmap(base, m->size);
		m->base = NULL;
		return 0;
	}
	m->base = NULL;
	Py_BEGIN_ALLOW_THREADS
	failed = umunmap(base, m->keep);
	Py_END_ALLOW_THREADS
	error = errno;
	if (failed && error != EUCLEAN)
		m->base = base;
	if (failed)
		raise_library_error();
	errno = error;
	return failed;
}

static int check_not_in_use(const struct mapping *m)
{
	if (!m->exports && !m->busy)
		return 0;
	PyErr_Format(PyExc_BufferError, "cannot close the mapping: %zd buffers, pins or calls use "
		     "it", m->exports + m->busy);
	return -1;
}

static PyObject *mapping_close(PyObject *self, PyObject *unused)
{
	struct mapping *m = to_mapping(self);

	(void)unused;
	if (!m->base)
		Py_RETURN_NONE;
	if (check_not_in_use(m))
		return NULL;
	if (m->keep && m->pid == getpid() && write_range(m, 0, m->size, 0))
		return NULL;
	/* Other threads may have used or closed the mapping during the write. */
	if (m->base && (check_not_in_use(m) || unmap(m)))
		return NULL;
	Py_RETURN_NONE;
}

/*
 * Ends a mapping whose last reference goes without a close. An error can only be printed, and
 * changes that storage did not take are lost.
 */
static void end_unreferenced(struct mapping *m)
{
	PyObject *type, *value, *trace;
	int error;

	PyErr_Fetch(&type, &value, &trace);
	/* The first call returns the error of an earlier write once, although it has written all
	 * changes. */
	error = unmap(m) ? errno : 0;
	if (error && m->base) {
		PyErr_Clear();
		error = unmap(m) ? errno : 0;
	}
	if (m->base && m->keep && PyErr_Occurred()) {
		char message[256];

		/* The library's message says that the changes stay in memory. */
		PyErr_Clear();
		snprintf(message, sizeof(message), "cannot write the changes at the end of the "
			 "mapping; they are lost: %s", strerror(error));
		if (!note_loss())
			raise_os_error(error, message);
	}
	if (PyErr_Occurred())
		PyErr_WriteUnraisable(m->name);
	if (m->base) {
		umunmap(m->base, 0);
		m->base = NULL;
	}
	PyErr_Restore(type, value, trace);
}

/* The memory stays until the object is deallocated, because other objects may still use it. */
static int mapping_traverse(PyObject *self, visitproc visit, void *arg)
{
	Py_VISIT(Py_TYPE(self));
	Py_VISIT(to_mapping(self)->name);
	return 0;
}

static int mapping_clear(PyObject *self)
{
	Py_CLEAR(to_mapping(self)->name);
	return 0;
}

static void mapping_dealloc(PyObject *self)
{
	PyTypeObject *type = Py_TYPE(self);
	struct mapping *m = to_mapping(self);

	PyObject_GC_UnTrack(self);
	if (m->weak)
		PyObject_ClearWeakRefs(self);
	if (m->base)
		end_unreferenced(m);
	if (m->fd >= 0)
		close(m->fd);
	Py_CLEAR(m->name);
	((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
	Py_DECREF(type);
}

/*
 * Returns whether [from, to) holds only inaccessible reservations of the parent's mappings: this
 * process has made no mapping since the fork.
 */
static bool is_only_reserved(const char *from, const char *to)
{
	struct umstat st = { .struct_size = sizeof(st) };
	bool has_mappings = umstat(NULL, &st) == -1 || st.mappings > 0;
	FILE *maps = has_mappings ? NULL : fopen("/proc/self/maps", "re");
	unsigned long low, high, inode;
	bool only = maps;
	char *line = NULL;
	size_t room = 0;
	char rights[5];

	while (only && getline(&line, &room, maps) > 0) {
		if (sscanf(line, "%lx-%lx %4s %*x %*x:%*x %lu", &low, &high, rights, &inode) != 4)
			only = false;
		else if (low < (uintptr_t)to && high > (uintptr_t)from)
			only = strcmp(rights, "---p") == 0 && inode == 0;
	}
	free(line);
	if (maps)
		fclose(maps);
	return only;
}

/* Maps a replacement for a mapping of the parent. It overwrites nothing but its reservations. */
static bool map_replacement(struct mapping *m, int prot, int flags, int fd, off_t offset)
{
	int careful_flags = flags | MAP_PRIVATE | MAP_NORESERVE | MAP_FIXED_NOREPLACE;

	if (mmap(m->base, m->size, prot, careful_flags, fd, offset) == m->base)
		return true;
	flags |= MAP_PRIVATE | MAP_NORESERVE;
	return errno == EEXIST && is_only_reserved(m->base, m->base + m->size) &&
	       mmap(m->base, m->size, prot, flags | MAP_FIXED, fd, offset) == m->base;
}

/* _enter_child(): called once in a forked child. */
static PyObject *mapping_in_child(PyObject *self, PyObject *unused)
{
	struct mapping *m = to_mapping(self);
	int prot = m->writable ? PROT_READ | PROT_WRITE : PROT_READ;

	(void)unused;
	/* The threads of calls in progress do not exist in the child. */
	m->busy = 0;
	if (!m->base || m->pid == getpid() || m->is_replaced)
		Py_RETURN_NONE;
	m->is_replaced = m->fd >= 0 && map_replacement(m, prot, 0, m->fd, m->offset);
	if (!m->is_replaced)
		m->is_reserved |= map_replacement(m, PROT_NONE, MAP_ANONYMOUS, -1, 0);
	mapping_has_orphans |= !m->is_replaced;
	Py_RETURN_NONE;
}

/* The arguments of a new mapping. */
struct opening {
	const char *uri;
	Py_ssize_t size;
	long long offset;
	int writable, keep, fd;
	unsigned long long segment, limit;
	struct ummap_attr attr;
};

static int parse_opening(PyObject *args, PyObject *kwargs, struct opening *o, PyObject **name)
{
	static char *words[] = { "uri", "size", "offset", "writable", "keep", "flags", "segment",
				 "policy", "limit", "engine", "fd", "on_full", "tiers", "name",
				 NULL };

	return PyArg_ParseTupleAndKeywords(args, kwargs, "snLppIKzKiiizO", words, &o->uri, &o->size,
					   &o->offset, &o->writable, &o->keep, &o->attr.flags,
					   &o->segment, &o->attr.policy, &o->limit, &o->attr.engine,
					   &o->fd, &o->attr.on_full, &o->attr.tiers,
					   name);
}

static PyObject *mapping_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
	struct opening o = { .attr = UMMAP_ATTR_INIT, .fd = -1 };
	PyObject *name;
	struct mapping *m;
	void *base = NULL;
	int prot, failed;

	if (!parse_opening(args, kwargs, &o, &name))
		return NULL;
	if (o.size <= 0)
		return PyErr_Format(PyExc_ValueError, "cannot map %zd bytes: a mapping has at "
				    "least one byte", o.size);
	o.attr.seg_size = (size_t)o.segment;
	o.attr.budget = (size_t)o.limit;
	m = (struct mapping *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
	if (!m)
		return NULL;
	m->fd = -1;
	prot = o.writable ? PROT_READ | PROT_WRITE : PROT_READ;
	Py_BEGIN_ALLOW_THREADS
	failed = ummap_open(o.uri, (size_t)o.size, (off_t)o.offset, prot, &o.attr, &base);
	Py_END_ALLOW_THREADS
	if (failed) {
		raise_library_error();
		Py_DECREF(m);
		return NULL;
	}
	m->base = base;
	m->size = (size_t)o.size;
	m->limit = o.attr.budget;
	m->segment = o.attr.seg_size ? (Py_ssize_t)o.attr.seg_size : sysconf(_SC_PAGESIZE);
	m->offset = (off_t)o.offset;
	m->pid = getpid();
	m->writable = o.writable;
	m->keep = o.keep;
	m->name = Py_NewRef(name);
	m->fd = o.fd >= 0 ? fcntl(o.fd, F_DUPFD_CLOEXEC, 0) : -1;
	return (PyObject *)m;
}

static PyObject *get_closed(PyObject *self, void *unused)
{
	(void)unused;
	return PyBool_FromLong(!to_mapping(self)->base);
}

static PyObject *get_address(PyObject *self, void *unused)
{
	(void)unused;
	return PyLong_FromVoidPtr(to_mapping(self)->base);
}

static PyObject *get_is_own(PyObject *self, void *unused)
{
	(void)unused;
	return PyBool_FromLong(to_mapping(self)->base && to_mapping(self)->pid == getpid());
}

static PyObject *get_max_copy_bytes(PyObject *self, void *unused)
{
	(void)unused;
	return PyLong_FromSize_t(max_copy_bytes(self));
}

static PyMethodDef methods[] = {
	{ "_sync", mapping_sync, METH_VARARGS, NULL },
	{ "_begin_sync", mapping_begin_sync, METH_NOARGS, NULL },
	{ "_lengthen", mapping_lengthen, METH_VARARGS, NULL },
	{ "_advise", mapping_advise, METH_VARARGS, NULL },
	{ "_load", mapping_load, METH_VARARGS, NULL },
	{ "_pin", mapping_pin, METH_VARARGS, NULL },
	{ "_unpin", mapping_unpin, METH_VARARGS, NULL },
	{ "_copy", mapping_copy, METH_VARARGS, NULL },
	{ "_read_rows", mapping_rows, METH_VARARGS, NULL },
	{ "_enter_child", mapping_in_child, METH_NOARGS, NULL },
	{ "stat", mapping_stat, METH_NOARGS,
	  "stat()\n--\n\n"
	  "Return the counters of this mapping since it was opened, as a dictionary.\n\n"
	  "The keys are the names of umstat(3): ``read_bytes``, ``resident_bytes``,\n"
	  "``budget_bytes`` and so on. Values are bytes or numbers of events.\n\n"
	  ">>> import ummap\n"
	  ">>> ummap.open(\"mem:1M\", \"r+\", size=\"1M\").stat()[\"dirty_bytes\"]\n"
	  "0\n" },
	{ "close", mapping_close, METH_NOARGS,
	  "close()\n--\n\n"
	  "Make all changes durable and end the mapping. A second close does nothing.\n\n"
	  "Raises BufferError while a memoryview, a pin or a call uses the mapping, and OSError\n"
	  "if the changes cannot be made durable. The mapping then stays open, unless errno is\n"
	  "EUCLEAN (umunmap(3)).\n\n"
	  ">>> import ummap\n"
	  ">>> m = ummap.open(\"mem:1M\", \"r+\", size=\"1M\")\n"
	  ">>> m.close()\n"
	  ">>> m.closed\n"
	  "True\n" },
	{ NULL, NULL, 0, NULL },
};

static PyGetSetDef getset[] = {
	{ "closed", get_closed, NULL, "Whether the mapping has ended.", NULL },
	{ "_address", get_address, NULL, NULL, NULL },
	{ "_max_copy_bytes", get_max_copy_bytes, NULL, NULL, NULL },
	{ "_is_own", get_is_own, NULL, NULL, NULL },
	{ NULL, NULL, NULL, NULL, NULL },
};

static PyMemberDef members[] = {
	{ "__weaklistoffset__", T_PYSSIZET, offsetof(struct mapping, weak), READONLY, NULL },
	/* Python code knows the default segment size, and sets it here. */
	{ "_segment", T_PYSSIZET, offsetof(struct mapping, segment), 0, NULL },
	{ "writable", T_BOOL, offsetof(struct mapping, writable), READONLY,
	  "Whether the program may store to the mapping." },
	{ "name", T_OBJECT, offsetof(struct mapping, name), READONLY,
	  "The path or the URI of the store." },
	{ NULL, 0, 0, 0, NULL },
};

static PyType_Slot slots[] = {
	{ Py_tp_new, mapping_new },
	{ Py_tp_dealloc, mapping_dealloc },
	{ Py_tp_traverse, mapping_traverse },
	{ Py_tp_clear, mapping_clear },
	{ Py_tp_methods, methods },
	{ Py_tp_getset, getset },
	{ Py_tp_members, members },
	{ Py_mp_length, mapping_length },
	{ Py_mp_subscript, mapping_subscript },
	{ Py_mp_ass_subscript, mapping_ass_subscript },
	{ Py_bf_getbuffer, mapping_getbuffer },
	{ Py_bf_releasebuffer, mapping_releasebuffer },
	{ 0, NULL },
};

static PyType_Spec spec = {
	"ummap._ummap.Mapping", sizeof(struct mapping), 0,
	Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, slots,
};

PyObject *make_mapping_type(PyObject *module)
{
	(void)module;
	return PyType_FromSpec(&spec);
}
