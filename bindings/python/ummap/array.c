/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The base class of ummap.memmap, between it and numpy's ndarray: what is too frequent for Python,
 * or what Python cannot do.
 *
 *  - Elements and slices cost what ndarray's do. A list or an array of rows goes to the method
 *    `_rows`, which prefetches.
 *  - A view knows its mapping, a copy has none.
 *  - Callers that ask for plain bytes, such as os.write and readinto, hand them to the kernel: they
 *    are pinned until the buffer is released. A memoryview lives longer, and pins nothing.
 *  - close ends an array in place: nothing that is left of it can be touched.
 *  - The garbage collector finds reference cycles through an array that a view stands on, which
 *    ndarray hides from it.
 *
 * It needs no header of numpy's: the first fields of an array's structure are the same in every
 * numpy since 1.0, and the position of `base` is checked before it is used.
 */
#include "_ummap.h"

#include <string.h>
#include <ummap.h>

/* Pins of a buffer are ended by who finds this in it. */
static char pinned_mark;

/* What ndarray does itself. */
static struct {
	PyTypeObject *ndarray;
	destructor dealloc;
	traverseproc traverse;
	inquiry clear;
	binaryfunc subscript;
	objobjargproc ass_subscript;
	int (*getbuffer)(PyObject *self, Py_buffer *view, int flags);
	void (*releasebuffer)(PyObject *self, Py_buffer *view);
} super;

/* Names of attributes, made once. */
static PyObject *name_mapping, *name_rows, *name_view, *shared_names[3];

/* The beginning of every array. */
struct array {
	PyObject_HEAD
	char *data;
	int dimensions;
	Py_ssize_t *shape, *strides;
	PyObject *base;          /* the object whose memory this is; NULL: its own */
};

/* The collector visits `base` here: its position is right, and ndarray does not visit it. */
static bool follows_base;

static char *data_of(PyObject *array)
{
	return ((struct array *)array)->data;
}

/* A new reference; None: it has none. */
static PyObject *mapping_of(PyObject *array)
{
	return PyObject_GetAttr(array, name_mapping);
}

static int check_alive(PyObject *self)
{
	PyObject *mapping = mapping_of(self);
	int failed = !mapping || (mapping != Py_None && !mapping_check(mapping));

	Py_XDECREF(mapping);
	return failed ? -1 : 0;
}

/* ---- Elements, slices, rows ---- */

static bool names_rows(PyObject *index)
{
	return PyList_Check(index) || PyObject_TypeCheck(index, super.ndarray);
}

/* What numpy copied out is an ndarray; subclasses of memmap keep what numpy gives them, as those of numpy.memmap do. */
static PyObject *without_mapping(PyObject *self, PyObject *result)
{
	PyObject *mapping, *view;

	if (!result || Py_TYPE(result) != Py_TYPE(self))
		return result;
	mapping = mapping_of(result);
	if (!mapping) {
		Py_DECREF(result);
		return NULL;
	}
	Py_DECREF(mapping);
	if (mapping != Py_None)
		return result;
	mapping = PyObject_GetAttrString((PyObject *)Py_TYPE(self), "_keeps_subclass");
	if (!mapping || PyObject_IsTrue(mapping)) {
		if (!mapping)
			Py_CLEAR(result);
		Py_XDECREF(mapping);
		return result;
	}
	Py_DECREF(mapping);
	view = PyObject_CallMethodObjArgs(result, name_view, (PyObject *)super.ndarray, NULL);
	Py_DECREF(result);
	return view;
}

static PyObject *array_subscript(PyObject *self, PyObject *index)
{
	PyObject *rows;

	if (mapping_orphans && check_alive(self) == -1)
		return NULL;
	if (names_rows(index)) {
		rows = PyObject_CallMethodObjArgs(self, name_rows, index, NULL);
		if (rows != Py_None)
			return rows;
		Py_DECREF(rows);
	}
	return without_mapping(self, super.subscript(self, index));
}

static int array_ass_subscript(PyObject *self, PyObject *index, PyObject *value)
{
	if (mapping_orphans && check_alive(self) == -1)
		return -1;
	return super.ass_subscript(self, index, value);
}

/* obj is the array that this one is a view or a copy of. */
static PyObject *array_finalize(PyObject *self, PyObject *obj)
{
	PyObject *mapping, *value;
	bool ours;

	/* Not so None, for a new array, and an ordinary array that is viewed as one of ours. */
	if (!PyObject_HasAttr(obj, name_mapping))
		Py_RETURN_NONE;
	mapping = mapping_of(obj);
	if (!mapping)
		return NULL;
	ours = mapping != Py_None && mapping_has(mapping, data_of(self));
	if (ours && PyObject_SetAttr(self, name_mapping, mapping) == -1)
		goto failed;
	for (int i = 0; ours && i < 3; i++) {
		value = PyObject_GetAttr(obj, shared_names[i]);
		if (!value || PyObject_SetAttr(self, shared_names[i], value) == -1) {
			Py_XDECREF(value);
			goto failed;
		}
		Py_DECREF(value);
	}
	Py_DECREF(mapping);
	Py_RETURN_NONE;
failed:
	Py_DECREF(mapping);
	return NULL;
}

/* ---- Buffers ---- */

/* Where the memory has no room for it the kernel may still do a part, as it does with a long write anyway. */
static int pin_buffer(PyObject *self, Py_buffer *view, bool write)
{
	PyObject *mapping = mapping_of(self);
	bool pins = mapping && mapping != Py_None && ummapped(view->buf, (size_t)view->len) &&
		    (size_t)view->len <= mapping_pin_most(mapping);
	bool failed = !mapping || (pins && core_pin(view->buf, (size_t)view->len, write) == -1);

	Py_XDECREF(mapping);
	if (!failed)
		view->internal = pins ? &pinned_mark : view->internal;
	else
		PyBuffer_Release(view);
	return failed ? -1 : 0;
}

static int array_getbuffer(PyObject *self, Py_buffer *view, int flags)
{
	if (mapping_orphans && check_alive(self) == -1)
		return -1;
	if (super.getbuffer(self, view, flags) == -1)
		return -1;
	return flags & ~PyBUF_WRITABLE || view->len == 0 ? 0 : pin_buffer(self, view, flags & PyBUF_WRITABLE);
}

static void array_releasebuffer(PyObject *self, Py_buffer *view)
{
	if (view->internal == &pinned_mark)
		core_unpin(view->buf, (size_t)view->len);
	else if (super.releasebuffer)
		super.releasebuffer(self, view);
}

/* ---- The end ---- */

/* Whether nobody but the caller has this array, so that nothing else can stand on its memory. */
static bool is_alone(PyObject *self)
{
	/* The variable that it is called by, and the call itself; the latter counts no more since 3.14. */
	return Py_REFCNT(self) <= (Py_Version >= 0x030e0000 ? 1 : 2);
}

/*
 * Changes are made durable first, while other threads run, which may make views of it. From is_alone to the end of
 * __setstate__, which takes the memory away, no other thread runs: it is all in C, with the GIL held.
 */
static PyObject *array_close(PyObject *self, PyObject *unused)
{
	PyObject *has_mapping = PyObject_CallMethod(self, "_flush_before_close", NULL), *state, *set, *emptied, *done = NULL;
	bool alone;

	(void)unused;
	state = has_mapping ? PyObject_GetAttrString(self, "_closed_state") : NULL;
	set = state ? PyObject_GetAttrString((PyObject *)super.ndarray, "__setstate__") : NULL;
	if (set) {
		alone = has_mapping == Py_True && is_alone(self);
		emptied = alone ? PyObject_CallFunctionObjArgs(set, self, state, NULL) : Py_NewRef(Py_None);
		done = emptied ? PyObject_CallMethod(self, "_finish_close", "O", alone ? Py_True : Py_False) : NULL;
		Py_XDECREF(emptied);
	}
	Py_XDECREF(has_mapping);
	Py_XDECREF(state);
	Py_XDECREF(set);
	return done;
}

static PyObject *array_exit(PyObject *self, PyObject *args)
{
	return array_close(self, args);
}

static PyObject *array_enter(PyObject *self, PyObject *unused)
{
	(void)unused;
	return Py_NewRef(self);
}

/*
 * The memory of an array must stay until the array itself goes, so nothing is cleared here. Each
 * cycle through `base` has an attribute of an array in it, too, and Python's class clears these.
 */
static int array_traverse(PyObject *self, visitproc visit, void *arg)
{
	Py_VISIT(Py_TYPE(self));
	if (follows_base)
		Py_VISIT(((struct array *)self)->base);
	return super.traverse ? super.traverse(self, visit, arg) : 0;
}

static int array_clear(PyObject *self)
{
	return super.clear ? super.clear(self) : 0;
}

static void array_dealloc(PyObject *self)
{
	PyTypeObject *type = Py_TYPE(self);

	PyObject_GC_UnTrack(self);
	super.dealloc(self);
	Py_DECREF(type);
}

static PyMethodDef methods[] = {
	{ "__array_finalize__", array_finalize, METH_O, NULL },
	{ "__enter__", array_enter, METH_NOARGS, NULL },
	{ "__exit__", array_exit, METH_VARARGS, NULL },
	{ "close", array_close, METH_NOARGS,
	  "close()\n--\n\n"
	  "Make all changes durable and end this array, which raises ValueError from then on.\n\n"
	  "The mapping, its memory and its lock on the file end at once if nothing else uses them; otherwise with the last view,\n"
	  "array or memoryview on it, which can be used until then. The end of a ``with`` block closes, too.\n\n"
	  "Raises OSError if the changes cannot be made durable: the array then stays as it was.\n" },
	{ NULL, NULL, 0, NULL },
};

static PyType_Slot slots[] = {
	{ Py_tp_dealloc, array_dealloc },
	{ Py_tp_traverse, array_traverse },
	{ Py_tp_clear, array_clear },
	{ Py_tp_alloc, PyType_GenericAlloc },
	{ Py_tp_free, PyObject_GC_Del },
	{ Py_tp_methods, methods },
	{ Py_mp_subscript, array_subscript },
	{ Py_mp_ass_subscript, array_ass_subscript },
	{ Py_bf_getbuffer, array_getbuffer },
	{ Py_bf_releasebuffer, array_releasebuffer },
	{ 0, NULL },
};

static PyType_Spec spec = {
	"ummap._ummap.Array", 0, 0,
	Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, slots,
};

static int make_names(void)
{
	static const char *const texts[] = { "filename", "offset", "mode" };

	name_mapping = PyUnicode_InternFromString("_mmap");
	name_rows = PyUnicode_InternFromString("_load_rows");
	name_view = PyUnicode_InternFromString("view");
	for (int i = 0; i < 3; i++) {
		shared_names[i] = PyUnicode_InternFromString(texts[i]);
		if (!shared_names[i])
			return -1;
	}
	return name_mapping && name_rows && name_view ? 0 : -1;
}

/* Whether the base of a view is where struct array has it; -1: an exception is set. */
static int try_base(PyObject *ndarray)
{
	PyObject *array = PyObject_CallFunction(ndarray, "i", 1);
	PyObject *view = array ? PyObject_CallMethodObjArgs(array, name_view, NULL) : NULL;
	int found = view ? ((struct array *)view)->base == array : -1;

	Py_XDECREF(view);
	Py_XDECREF(array);
	return found;
}

PyObject *array_type(PyObject *module, PyObject *ndarray)
{
	PyTypeObject *nd = (PyTypeObject *)Py_NewRef(ndarray);
	PyObject *bases, *type;
	int found;

	(void)module;
	found = make_names() == -1 ? -1 : try_base(ndarray);
	if (found == -1)
		return NULL;
	super.ndarray = nd;
	super.dealloc = (destructor)PyType_GetSlot(nd, Py_tp_dealloc);
	super.traverse = (traverseproc)PyType_GetSlot(nd, Py_tp_traverse);
	super.clear = (inquiry)PyType_GetSlot(nd, Py_tp_clear);
	follows_base = found && !super.traverse;
	super.subscript = (binaryfunc)PyType_GetSlot(nd, Py_mp_subscript);
	super.ass_subscript = (objobjargproc)PyType_GetSlot(nd, Py_mp_ass_subscript);
	super.getbuffer = (int (*)(PyObject *, Py_buffer *, int))PyType_GetSlot(nd, Py_bf_getbuffer);
	super.releasebuffer = (void (*)(PyObject *, Py_buffer *))PyType_GetSlot(nd, Py_bf_releasebuffer);
	bases = PyTuple_Pack(1, ndarray);
	if (!bases)
		return NULL;
	type = PyType_FromSpecWithBases(&spec, bases);
	Py_DECREF(bases);
	return type;
}
