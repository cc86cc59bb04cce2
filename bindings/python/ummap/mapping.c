/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The type Mapping: one mapping of the library, from ummap_open to umunmap, as bytes.
 *
 * It ends when it is closed or when nobody has it any more, but never while a memoryview or a call stands on its memory:
 * these are counted. Offsets are bytes from its beginning, and every range is checked here. All fields but `base` are for
 * the GIL's holder; a call without the GIL counts itself in `busy` first.
 *
 * After a fork the child has none of its parent's mappings, and at their addresses nothing, or what was reserved for absent
 * segments. A mapping of a file gets the kernel's own mapping there, private and without a limit, so that what the child
 * inherited can be read. Others become orphans, whose addresses stay reserved: an array may still point there.
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

/* What a call does between two looks at signals takes about this long, and begins with this much. */
#define PIECE_NS 50000000
#define PIECE_MIN ((size_t)1 << 20)
#define PIECE_MAX ((size_t)1 << 30)
/* What is pinned for a moment, to be copied. */
#define PIN_MAX ((size_t)16 << 20)
#define PIN_SHARE 4
/* Rows that are loaded together, and copied while the next ones load. */
#define GROUP 512
#define GROUP_BYTES ((size_t)8 << 20)

bool mapping_orphans;

struct mapping {
	PyObject_HEAD
	char *base;              /* NULL: it has ended */
	size_t size;
	size_t limit;            /* of its own; 0: none */
	Py_ssize_t segment;      /* its size */
	off_t offset;            /* of base in the file; pages only where fd is */
	int fd;                  /* the file, for what a forked child sees; -1: none */
	pid_t pid;               /* whose it is */
	bool writable;
	bool keep;               /* what was changed is written at the end */
	bool stand_in;           /* in a forked child: the kernel's mapping of the file stands there */
	bool reserved;           /* in a forked child: so that nothing else comes there */
	Py_ssize_t exports;      /* buffers that stand on it */
	Py_ssize_t busy;         /* calls that work on it without the GIL */
	PyObject *weak;
	PyObject *name;          /* of the store, for messages */
};

static struct mapping *of(PyObject *self)
{
	return (struct mapping *)self;
}

/* ---- Checks ---- */

PyObject *mapping_check(PyObject *self)
{
	struct mapping *m = of(self);

	if (!m->base)
		PyErr_SetString(PyExc_ValueError, "this mapping is closed");
	else if (m->pid != getpid() && !m->stand_in)
		core_fail(ENXIO, "the mapping is that of the process from which this one was forked: open it here, too");
	else
		return self;
	return NULL;
}

/* For calls that the library serves. */
static PyObject *check_own(PyObject *self)
{
	if (mapping_check(self) && of(self)->pid != getpid())
		return core_fail(ENXIO, "a forked child has no mapping of its parent's, only the file as it was written: "
				 "open it here, too");
	return PyErr_Occurred() ? NULL : self;
}

bool mapping_has(PyObject *self, const char *addr)
{
	struct mapping *m = of(self);

	return m->base && addr >= m->base && addr < m->base + m->size;
}

size_t mapping_pin_most(PyObject *self)
{
	size_t limit = of(self)->limit, pages = (size_t)sysconf(_SC_PHYS_PAGES);

	return (limit ? limit : pages * (size_t)sysconf(_SC_PAGESIZE)) / PIN_SHARE;
}

/* [offset, offset + len), len negative: to the end. */
static int check_range(struct mapping *m, Py_ssize_t offset, Py_ssize_t *len)
{
	if (*len < 0 && offset >= 0 && (size_t)offset <= m->size)
		*len = (Py_ssize_t)m->size - offset;
	if (offset >= 0 && *len >= 0 && (size_t)offset <= m->size && (size_t)*len <= m->size - (size_t)offset)
		return 0;
	PyErr_Format(PyExc_ValueError, "bytes %zd to %zd are not in the mapping, which has %zu", offset, offset + *len, m->size);
	return -1;
}

/* ---- Long calls in pieces ---- */

/* One piece, without the GIL. 0, or -1 with the library's sentence. */
typedef int (piece_fn)(struct mapping *m, size_t at, size_t len, void *arg);

static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static int in_pieces(struct mapping *m, size_t at, size_t len, size_t most, piece_fn *fn, void *arg)
{
	size_t end = at + len, piece = PIECE_MIN < most ? PIECE_MIN : most, n;
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
			core_error();
		else
			failed = PyErr_CheckSignals();
		if (took < PIECE_NS / 2 && piece * 2 <= most)
			piece *= 2;
		else if (took > PIECE_NS * 2 && piece > PIECE_MIN)
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

static int write_all(struct mapping *m, size_t at, size_t len, int flags)
{
	return len > 0 ? in_pieces(m, at, len, PIECE_MAX, write_piece, &flags) : 0;
}

/* The flush is one request of the store's. */
static int flush(struct mapping *m, size_t at, size_t len)
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
		core_error();
	return failed;
}

/* ---- Methods ---- */

/* sync(offset=0, length=-1, evict=False, durable=True) */
static PyObject *mapping_sync(PyObject *self, PyObject *args)
{
	struct mapping *m = of(self);
	Py_ssize_t offset = 0, len = -1;
	int evict = 0, durable = 1;

	if (!PyArg_ParseTuple(args, "|nnpp", &offset, &len, &evict, &durable) || !check_own(self) ||
	    check_range(m, offset, &len) == -1)
		return NULL;
	if (write_all(m, (size_t)offset, (size_t)len, 0) || (durable && flush(m, (size_t)offset, (size_t)len)) ||
	    (evict && write_all(m, (size_t)offset, (size_t)len, UMMAP_EVICT)))
		return NULL;
	Py_RETURN_NONE;
}

static int advise_piece(struct mapping *m, size_t at, size_t len, void *advice)
{
	return umadvise(m->base + at, len, *(int *)advice);
}

/* advise(advice, offset, length) */
static PyObject *mapping_advise(PyObject *self, PyObject *args)
{
	struct mapping *m = of(self);
	Py_ssize_t offset = 0, len = -1;
	int advice, failed;

	if (!PyArg_ParseTuple(args, "i|nn", &advice, &offset, &len) || !check_own(self) || check_range(m, offset, &len) == -1)
		return NULL;
	if (len == 0)
		Py_RETURN_NONE;
	if (advice == UMMAP_ADV_DONTNEED)
		failed = in_pieces(m, (size_t)offset, (size_t)len, PIECE_MAX, advise_piece, &advice);
	else if ((failed = umadvise(m->base + offset, (size_t)len, advice)))
		core_error();
	if (failed)
		return NULL;
	Py_RETURN_NONE;
}

static size_t copied_at_once(PyObject *self)
{
	size_t most = mapping_pin_most(self);

	return most < PIN_MAX ? most : PIN_MAX;
}

/* What is done with bytes of one segment, while they are pinned. */
typedef void (pinned_fn)(char *here, char *there, size_t len);

static void copy_out(char *here, char *there, size_t len)
{
	memmove(there, here, len);
}

static void copy_in(char *here, char *there, size_t len)
{
	memcpy(here, there, len);
}

/* One segment at a time: threads that each have pinned some of theirs and need more would wait for each other. */
static int pin_each(const struct mapping *m, char *here, size_t len, char *there, pinned_fn *fn)
{
	size_t segment = (size_t)m->segment, done = 0, n;
	int prot = fn == copy_in ? PROT_READ | PROT_WRITE : PROT_READ;

	for (; done < len; done += n) {
		n = segment - (size_t)(here + done - m->base) % segment;
		n = n < len - done ? n : len - done;
		if (umpin(here + done, n, prot))
			return -1;
		if (fn)
			fn(here + done, there + done, n);
		if (umunpin(here + done, n))
			return -1;
	}
	return 0;
}

/* The same for bytes that are going to be read: all are on their way at once. */
static int load_each(const struct mapping *m, char *here, size_t len, char *there, pinned_fn *fn)
{
	if (len > (size_t)m->segment)
		umprefetch(&(struct iovec){ here, len }, 1);
	return pin_each(m, here, len, there, fn);
}

static int load_piece(struct mapping *m, size_t at, size_t len, void *arg)
{
	(void)arg;
	return load_each(m, m->base + at, len, NULL, NULL);
}

/* load(offset, length): waits until it was in memory, and raises where storage fails. */
static PyObject *mapping_load(PyObject *self, PyObject *args)
{
	struct mapping *m = of(self);
	Py_ssize_t offset = 0, len = -1;

	if (!PyArg_ParseTuple(args, "|nn", &offset, &len) || !check_own(self) || check_range(m, offset, &len) == -1)
		return NULL;
	if (len > 0 && in_pieces(m, (size_t)offset, (size_t)len, copied_at_once(self), load_piece, NULL))
		return NULL;
	Py_RETURN_NONE;
}

/* pin(offset, length, write), unpin(offset, length) */
static PyObject *mapping_pin(PyObject *self, PyObject *args)
{
	struct mapping *m = of(self);
	Py_ssize_t offset, len;
	int write, failed;

	if (!PyArg_ParseTuple(args, "nnp", &offset, &len, &write) || !check_own(self) || check_range(m, offset, &len) == -1)
		return NULL;
	m->busy++;
	failed = core_pin(m->base + offset, (size_t)len, write);
	m->busy--;
	if (failed)
		return NULL;
	m->exports++;
	Py_RETURN_NONE;
}

static PyObject *mapping_unpin(PyObject *self, PyObject *args)
{
	struct mapping *m = of(self);
	Py_ssize_t offset, len;

	if (!PyArg_ParseTuple(args, "nn", &offset, &len) || !mapping_check(self) || check_range(m, offset, &len) == -1)
		return NULL;
	if (m->pid == getpid())
		core_unpin(m->base + offset, (size_t)len);
	m->exports--;
	Py_RETURN_NONE;
}

/* Bytes to and from elsewhere. Storage that fails is an exception, because they are pinned for the copy. */
struct copy {
	char *other;
	size_t at;               /* in the mapping, where other begins */
	bool store;
};

static int copy_piece(struct mapping *m, size_t at, size_t len, void *arg)
{
	struct copy *c = arg;
	char *here = m->base + at, *there = c->other + (at - c->at);

	return c->store ? pin_each(m, here, len, there, copy_in) : load_each(m, here, len, there, copy_out);
}

static int copy_bytes(struct mapping *m, size_t offset, size_t len, char *other, bool store)
{
	struct copy c = { .other = other, .at = offset, .store = store };
	char *apart = NULL;
	int failed;

	/* To find out what an index or a buffer is may have run any code. */
	if (!mapping_check((PyObject *)m))
		return -1;
	if (len == 0)
		return 0;
	if (m->pid != getpid()) {
		memmove(store ? m->base + offset : other, store ? other : m->base + offset, len);
		return 0;
	}
	/* From one place of it to another: a piece would overwrite what the next one is to copy. */
	if (store && other < m->base + m->size && other + len > m->base) {
		apart = PyMem_Malloc(len);
		if (!apart) {
			PyErr_NoMemory();
			return -1;
		}
		c.other = memcpy(apart, other, len);
	}
	failed = in_pieces(m, offset, len, copied_at_once((PyObject *)m), copy_piece, &c);
	PyMem_Free(apart);
	return failed;
}

/* copy(offset, buffer, store=False) */
static PyObject *mapping_copy(PyObject *self, PyObject *args)
{
	struct mapping *m = of(self);
	Py_buffer there = { 0 };
	Py_ssize_t offset, len;
	PyObject *other;
	int store = 0, failed;

	if (!PyArg_ParseTuple(args, "nO|p", &offset, &other, &store) || !mapping_check(self) ||
	    PyObject_GetBuffer(other, &there, store ? PyBUF_SIMPLE : PyBUF_WRITABLE) == -1)
		return NULL;
	len = there.len;
	failed = check_range(m, offset, &len) || copy_bytes(m, (size_t)offset, (size_t)len, there.buf, store);
	PyBuffer_Release(&there);
	if (failed)
		return NULL;
	Py_RETURN_NONE;
}

/* ---- Rows ---- */

struct rows {
	size_t first;            /* where row 0 begins in the mapping */
	Py_ssize_t stride;
	size_t size;             /* of one row */
	const int64_t *index;
	size_t n;
	char *out;               /* NULL: only prefetched */
	size_t group;            /* rows that are loaded together */
};

static char *row(const struct mapping *m, const struct rows *r, size_t i)
{
	return m->base + r->first + r->index[i] * r->stride;
}

static int prefetch_group(const struct mapping *m, const struct rows *r, size_t from)
{
	struct iovec ranges[GROUP];
	int n = 0;

	for (size_t i = from; i < r->n && i < from + r->group; i++)
		ranges[n++] = (struct iovec){ row(m, r, i), r->size };
	return umprefetch(ranges, n);
}

static int copy_group(const struct mapping *m, const struct rows *r, size_t from)
{
	for (size_t i = from; i < r->n && i < from + r->group; i++) {
		if (pin_each(m, row(m, r, i), r->size, r->out + i * r->size, copy_out))
			return -1;
	}
	return 0;
}

static int do_rows(struct mapping *m, const struct rows *r)
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
			core_error();
		else
			failed = PyErr_CheckSignals();
	}
	m->busy--;
	return failed;
}

/* Rows that are too large to be pinned as a whole. */
static int do_large_rows(struct mapping *m, const struct rows *r)
{
	int failed = 0;

	for (size_t i = 0; i < r->n && !failed; i++)
		failed = copy_bytes(m, (size_t)(row(m, r, i) - m->base), r->size, r->out + i * r->size, false);
	return failed;
}

static int check_rows(struct mapping *m, struct rows *r)
{
	for (size_t i = 0; i < r->n; i++) {
		Py_ssize_t len = (Py_ssize_t)r->size, at;

		if (__builtin_mul_overflow(r->index[i], r->stride, &at) ||
		    __builtin_add_overflow(at, (Py_ssize_t)r->first, &at) || check_range(m, at, &len) == -1) {
			if (!PyErr_Occurred())
				PyErr_SetString(PyExc_ValueError, "a row is not in the mapping");
			return -1;
		}
	}
	return 0;
}

/* rows(first, stride, size, int64 indices, out=None): prefetches the rows and, where there is out, copies them. */
static PyObject *mapping_rows(PyObject *self, PyObject *args)
{
	struct mapping *m = of(self);
	PyObject *indices, *out = Py_None;
	Py_buffer index = { 0 }, there = { 0 };
	Py_ssize_t first, size;
	struct rows r = { 0 };
	bool large = false;
	int failed = -1;

	if (!PyArg_ParseTuple(args, "nnnO|O", &first, &r.stride, &size, &indices, &out) || !check_own(self))
		return NULL;
	if (size <= 0 || first < 0)
		return PyErr_Format(PyExc_ValueError, "a row has %zd bytes from byte %zd on", size, first);
	if (PyObject_GetBuffer(indices, &index, PyBUF_SIMPLE) == -1)
		return NULL;
	if (out != Py_None && PyObject_GetBuffer(out, &there, PyBUF_WRITABLE) == -1)
		goto done;
	r.first = (size_t)first, r.size = (size_t)size;
	r.index = index.buf, r.n = (size_t)index.len / sizeof(int64_t), r.out = there.buf;
	r.group = (copied_at_once(self) < GROUP_BYTES ? copied_at_once(self) : GROUP_BYTES) / r.size;
	large = r.out && r.group == 0;
	r.group = r.group < 1 ? 1 : r.group > GROUP ? GROUP : r.group;
	if (!check_own(self))
		goto done;
	if (r.out && (size_t)there.len != r.n * r.size)
		PyErr_SetString(PyExc_ValueError, "the place for the rows has another size");
	else
		failed = check_rows(m, &r) || (large ? do_large_rows(m, &r) : do_rows(m, &r));
done:
	PyBuffer_Release(&index);
	if (there.obj)
		PyBuffer_Release(&there);
	if (failed)
		return NULL;
	Py_RETURN_NONE;
}

static PyObject *mapping_stat(PyObject *self, PyObject *unused)
{
	(void)unused;
	return check_own(self) ? core_stat(of(self)->base) : NULL;
}

/* ---- As bytes ---- */

static Py_ssize_t mapping_length(PyObject *self)
{
	return mapping_check(self) ? (Py_ssize_t)of(self)->size : -1;
}

static int mapping_getbuffer(PyObject *self, Py_buffer *view, int flags)
{
	struct mapping *m = of(self);

	if (!mapping_check(self))
		return -1;
	if (PyBuffer_FillInfo(view, self, m->base, (Py_ssize_t)m->size, !m->writable, flags) == -1)
		return -1;
	m->exports++;
	return 0;
}

static void mapping_releasebuffer(PyObject *self, Py_buffer *view)
{
	(void)view;
	of(self)->exports--;
}

/* Where an index or a slice of step 1 is; len -1 for an index. */
static int where(struct mapping *m, PyObject *index, Py_ssize_t *at, Py_ssize_t *len)
{
	Py_ssize_t stop, step;

	if (PySlice_Check(index)) {
		if (PySlice_Unpack(index, at, &stop, &step) == -1)
			return -1;
		*len = PySlice_AdjustIndices((Py_ssize_t)m->size, at, &stop, step);
		if (step == 1)
			return 0;
		PyErr_SetString(PyExc_ValueError, "slices of a mapping have step 1; memoryview(mapping) takes others");
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
	struct mapping *m = of(self);
	Py_ssize_t at, len;
	PyObject *bytes;
	char byte;

	if (!mapping_check(self) || where(m, index, &at, &len) == -1)
		return NULL;
	if (len < 0)
		return copy_bytes(m, (size_t)at, 1, &byte, false) ? NULL : PyLong_FromLong((unsigned char)byte);
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
		PyErr_SetString(PyExc_ValueError, "a byte is 0 to 255");
		return -1;
	}
	return copy_bytes(m, (size_t)at, 1, &byte, true);
}

static int mapping_ass_subscript(PyObject *self, PyObject *index, PyObject *value)
{
	struct mapping *m = of(self);
	Py_ssize_t at, len;
	Py_buffer from;
	int failed = -1;

	if (!mapping_check(self))
		return -1;
	if (!value || !m->writable) {
		PyErr_SetString(PyExc_TypeError, value ? "the mapping is read-only: open it with mode 'r+'" :
				"bytes of a mapping cannot be deleted");
		return -1;
	}
	if (where(m, index, &at, &len) == -1)
		return -1;
	if (len < 0)
		return store_byte(m, at, value);
	if (PyObject_GetBuffer(value, &from, PyBUF_SIMPLE) == -1)
		return -1;
	if (from.len == len)
		failed = copy_bytes(m, (size_t)at, (size_t)len, from.buf, true);
	else
		PyErr_Format(PyExc_ValueError, "%zd bytes do not fit a slice of %zd", from.len, len);
	PyBuffer_Release(&from);
	return failed ? -1 : 0;
}

/* ---- Beginning, end, fork ---- */

static int end(struct mapping *m)
{
	char *base = m->base;
	int failed;

	if (m->pid != getpid()) {
		/* Only what stands in for it is this process's. */
		if (m->stand_in || m->reserved)
			munmap(base, m->size);
		m->base = NULL;
		return 0;
	}
	m->base = NULL;
	Py_BEGIN_ALLOW_THREADS
	failed = umunmap(base, m->keep);
	Py_END_ALLOW_THREADS
	if (failed && errno != EUCLEAN)
		m->base = base;
	if (failed)
		core_error();
	return failed;
}

static int check_unused(const struct mapping *m)
{
	if (!m->exports && !m->busy)
		return 0;
	PyErr_Format(PyExc_BufferError, "%zd buffers, pins or calls still stand on the mapping", m->exports + m->busy);
	return -1;
}

static PyObject *mapping_close(PyObject *self, PyObject *unused)
{
	struct mapping *m = of(self);

	(void)unused;
	if (!m->base)
		Py_RETURN_NONE;
	if (check_unused(m) || (m->keep && m->pid == getpid() && write_all(m, 0, m->size, 0)))
		return NULL;
	/* What other threads have done meanwhile. */
	if (m->base && (check_unused(m) || end(m)))
		return NULL;
	Py_RETURN_NONE;
}

/* Of what is dropped without a close an error can only be printed, and the mapping ends without what storage did not take. */
static void end_dropped(struct mapping *m)
{
	PyObject *type, *value, *trace;

	PyErr_Fetch(&type, &value, &trace);
	if (end(m))
		PyErr_WriteUnraisable(m->name);
	if (m->base) {
		umunmap(m->base, 0);
		m->base = NULL;
	}
	PyErr_Restore(type, value, trace);
}

/* The mapping itself stays until the object goes: what stands on its memory may go later. */
static int mapping_traverse(PyObject *self, visitproc visit, void *arg)
{
	Py_VISIT(Py_TYPE(self));
	Py_VISIT(of(self)->name);
	return 0;
}

static int mapping_clear(PyObject *self)
{
	Py_CLEAR(of(self)->name);
	return 0;
}

static void mapping_dealloc(PyObject *self)
{
	PyTypeObject *type = Py_TYPE(self);
	struct mapping *m = of(self);

	PyObject_GC_UnTrack(self);
	if (m->weak)
		PyObject_ClearWeakRefs(self);
	if (m->base)
		end_dropped(m);
	if (m->fd >= 0)
		close(m->fd);
	Py_CLEAR(m->name);
	((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
	Py_DECREF(type);
}

/* Whether all that is in [from, to) gives access to nothing, and is nobody's: no mapping was made since the fork. */
static bool only_reserved(const char *from, const char *to)
{
	struct umstat st = { .struct_size = sizeof(st) };
	FILE *maps = umstat(NULL, &st) == 0 && st.mappings == 0 ? fopen("/proc/self/maps", "re") : NULL;
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

/* Maps what stands in for a mapping of the parent, where nothing but its reservations can be overwritten. */
static bool put_in_place(struct mapping *m, int prot, int flags, int fd, off_t offset)
{
	flags |= MAP_PRIVATE | MAP_NORESERVE;
	if (mmap(m->base, m->size, prot, flags | MAP_FIXED_NOREPLACE, fd, offset) == m->base)
		return true;
	return errno == EEXIST && only_reserved(m->base, m->base + m->size) &&
	       mmap(m->base, m->size, prot, flags | MAP_FIXED, fd, offset) == m->base;
}

/* In a forked child, once. */
static PyObject *mapping_in_child(PyObject *self, PyObject *unused)
{
	struct mapping *m = of(self);
	int prot = m->writable ? PROT_READ | PROT_WRITE : PROT_READ;

	(void)unused;
	/* The threads that were in calls are not in the child. */
	m->busy = 0;
	if (!m->base || m->pid == getpid() || m->stand_in)
		Py_RETURN_NONE;
	m->stand_in = m->fd >= 0 && put_in_place(m, prot, 0, m->fd, m->offset);
	if (!m->stand_in)
		m->reserved |= put_in_place(m, PROT_NONE, MAP_ANONYMOUS, -1, 0);
	mapping_orphans |= !m->stand_in;
	Py_RETURN_NONE;
}

/* All that is not in the structure of the library. */
struct opening {
	const char *uri;
	Py_ssize_t size;
	long long offset;
	int writable, keep, fd;
	unsigned long long segment, limit;
	struct ummap_attr attr;
};

static int parse(PyObject *args, PyObject *kwargs, struct opening *o, PyObject **name)
{
	static char *words[] = { "uri", "size", "offset", "writable", "keep", "flags", "segment", "policy", "limit", "engine",
				 "fd", "name", NULL };

	return PyArg_ParseTupleAndKeywords(args, kwargs, "snLppIKzKiiO", words, &o->uri, &o->size, &o->offset, &o->writable,
					   &o->keep, &o->attr.flags, &o->segment, &o->attr.policy, &o->limit, &o->attr.engine,
					   &o->fd, name);
}

static PyObject *mapping_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
	struct opening o = { .attr = UMMAP_ATTR_INIT, .fd = -1 };
	PyObject *name;
	struct mapping *m;
	void *base = NULL;
	int failed;

	if (!parse(args, kwargs, &o, &name))
		return NULL;
	if (o.size <= 0)
		return PyErr_Format(PyExc_ValueError, "a mapping has at least one byte, not %zd", o.size);
	o.attr.seg_size = (size_t)o.segment;
	o.attr.budget = (size_t)o.limit;
	m = (struct mapping *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
	if (!m)
		return NULL;
	m->fd = -1;
	Py_BEGIN_ALLOW_THREADS
	failed = ummap_open(o.uri, (size_t)o.size, (off_t)o.offset, o.writable ? PROT_READ | PROT_WRITE : PROT_READ, &o.attr,
			    &base);
	Py_END_ALLOW_THREADS
	if (failed) {
		core_error();
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
	return PyBool_FromLong(!of(self)->base);
}

static PyObject *get_address(PyObject *self, void *unused)
{
	(void)unused;
	return PyLong_FromVoidPtr(of(self)->base);
}

static PyObject *get_own(PyObject *self, void *unused)
{
	(void)unused;
	return PyBool_FromLong(of(self)->base && of(self)->pid == getpid());
}

static PyObject *get_at_once(PyObject *self, void *unused)
{
	(void)unused;
	return PyLong_FromSize_t(copied_at_once(self));
}

static PyMethodDef methods[] = {
	{ "_sync", mapping_sync, METH_VARARGS, NULL },
	{ "_advise", mapping_advise, METH_VARARGS, NULL },
	{ "_load", mapping_load, METH_VARARGS, NULL },
	{ "_pin", mapping_pin, METH_VARARGS, NULL },
	{ "_unpin", mapping_unpin, METH_VARARGS, NULL },
	{ "_copy", mapping_copy, METH_VARARGS, NULL },
	{ "_read_rows", mapping_rows, METH_VARARGS, NULL },
	{ "_enter_child", mapping_in_child, METH_NOARGS, NULL },
	{ "stat", mapping_stat, METH_NOARGS,
	  "stat()\n--\n\n"
	  "Return the counters of this mapping since it was opened, as a dictionary: bytes read and written, faults, what is in\n"
	  "memory now. umstat(3) says what each of them counts.\n" },
	{ "close", mapping_close, METH_NOARGS,
	  "close()\n--\n\n"
	  "Make all changes durable and end the mapping; closing it twice is no error.\n\n"
	  "Raises BufferError while a memoryview, a pin or a call stands on it, and OSError if the changes cannot be made durable:\n"
	  "the mapping then stays as it was.\n" },
	{ NULL, NULL, 0, NULL },
};

static PyGetSetDef getset[] = {
	{ "closed", get_closed, NULL, "Whether it has ended.", NULL },
	{ "_address", get_address, NULL, NULL, NULL },
	{ "_max_copy_bytes", get_at_once, NULL, NULL, NULL },
	{ "_is_own", get_own, NULL, NULL, NULL },
	{ NULL, NULL, NULL, NULL, NULL },
};

static PyMemberDef members[] = {
	{ "__weaklistoffset__", T_PYSSIZET, offsetof(struct mapping, weak), READONLY, NULL },
	/* Set where the default holds, which Python code knows. */
	{ "_segment", T_PYSSIZET, offsetof(struct mapping, segment), 0, NULL },
	{ "writable", T_BOOL, offsetof(struct mapping, writable), READONLY, "Whether it may be stored to." },
	{ "name", T_OBJECT, offsetof(struct mapping, name), READONLY, "The path or the URI of the store." },
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

PyObject *mapping_type(PyObject *module)
{
	(void)module;
	return PyType_FromSpec(&spec);
}
