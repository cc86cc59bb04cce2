/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The base class of ummap.memmap, a subclass of numpy's ndarray. It has the functions that are too
 * frequent for Python, and those that Python code cannot have.
 *
 *  - Elements and slices cost as much as ndarray's. A list or an array of rows goes to the method
 *    `_load_rows`, which prefetches.
 *  - A view refers to its mapping, and a copy refers to none.
 *  - Callers that ask for plain bytes, such as os.write and readinto, hand them to the kernel. The
 *    bytes are pinned until the buffer is released. A memoryview lives longer and pins nothing.
 *  - close ends an array in place, and removes its memory from it.
 *  - The garbage collector finds reference cycles through the `base` of a view, which ndarray does
 *    not show to the collector.
 *
 * The file needs no header of numpy: the first fields of an array's structure are the same in every
 * numpy since 1.0, and the position of `base` is checked before it is used.
 */
#include "_ummap.h"

#include <ummap.h>

/* The address marks a buffer whose bytes are pinned, so that its release ends the pins. */
static char pinned_mark;

/* Python 3.11's stable ABI has no names for these two types. */
typedef int (get_buffer_fn)(PyObject *self, Py_buffer *view, int flags);
typedef void (release_buffer_fn)(PyObject *self, Py_buffer *view);

/* The functions of ndarray. */
static struct {
	PyTypeObject *ndarray;
	destructor dealloc;
	traverseproc traverse;
	inquiry clear;
	binaryfunc subscript;
	objobjargproc ass_subscript;
	get_buffer_fn *getbuffer;
	release_buffer_fn *releasebuffer;
} super;

/* Interned names of attributes. */
static PyObject *name_mapping, *name_rows, *name_view, *shared_names[3];

/* The first fields of every array. */
struct array {
	PyObject_HEAD
	char *data;
	int dimensions;
	Py_ssize_t *shape, *strides;
	PyObject *base;          /* the owner of the memory; NULL: the array itself */
};

/* Whether array_traverse visits `base`: its position is right, and ndarray does not visit it. */
static bool follows_base;

static char *data_of(PyObject *array)
{
	return ((struct array *)array)->data;
}

/* Returns a new reference to the mapping, or to None for a copy. */
static PyObject *mapping_of(PyObject *array)
{
	return PyObject_GetAttr(array, name_mapping);
}

static int check_alive(PyObject *self)
{
	PyObject *mapping = mapping_of(self);
	int failed = !mapping || (mapping != Py_None && !check_mapping_access(mapping));

	Py_XDECREF(mapping);
	return failed ? -1 : 0;
}

/* ---- Elements, slices, rows ---- */

static bool is_row_list(PyObject *index)
{
	return PyList_Check(index) || PyObject_TypeCheck(index, super.ndarray);
}

/*
 * Turns a copy that numpy made into a plain ndarray. Subclasses of memmap keep their class, as
 * subclasses of numpy.memmap do.
 */
static PyObject *view_copy_as_ndarray(PyObject *self, PyObject *result)
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

	if (mapping_has_orphans && check_alive(self) == -1)
		return NULL;
	if (is_row_list(index)) {
		rows = PyObject_CallMethodObjArgs(self, name_rows, index, NULL);
		if (rows != Py_None)
			return rows;
		Py_DECREF(rows);
	}
	return view_copy_as_ndarray(self, super.subscript(self, index));
}

static int array_ass_subscript(PyObject *self, PyObject *index, PyObject *value)
{
	if (mapping_has_orphans && check_alive(self) == -1)
		return -1;
	return super.ass_subscript(self, index, value);
}

/* __array_finalize__(obj): obj is the array of which self is a view or a copy. */
static PyObject *array_finalize(PyObject *self, PyObject *obj)
{
	PyObject *mapping, *value;
	bool is_view;

	/* None (for a new array) and other ndarrays have no mapping. */
	if (!PyObject_HasAttr(obj, name_mapping))
		Py_RETURN_NONE;
	mapping = mapping_of(obj);
	if (!mapping)
		return NULL;
	is_view = mapping != Py_None && mapping_has_address(mapping, data_of(self));
	if (is_view && PyObject_SetAttr(self, name_mapping, mapping) == -1)
		goto failed;
	for (int i = 0; is_view && i < 3; i++) {
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

/*
 * Pins the bytes of a buffer unless they are too many. Without the pin the kernel may still
 * transfer a part of them, as it may with every long write.
 */
static int pin_buffer(PyObject *self, Py_buffer *view, bool write)
{
	PyObject *mapping = mapping_of(self);
	size_t len = (size_t)view->len;
	bool pins = mapping && mapping != Py_None && ummapped(view->buf, len) &&
		    len <= mapping_max_pin_bytes(mapping);
	bool failed = !mapping || (pins && pin_range(view->buf, len, write) == -1);

	Py_XDECREF(mapping);
	if (!failed)
		view->internal = pins ? &pinned_mark : view->internal;
	else
		PyBuffer_Release(view);
	return failed ? -1 : 0;
}

static int array_getbuffer(PyObject *self, Py_buffer *view, int flags)
{
	if (mapping_has_orphans && check_alive(self) == -1)
		return -1;
	if (super.getbuffer(self, view, flags) == -1)
		return -1;
	/* A memoryview asks for more than plain bytes. */
	if (flags & ~PyBUF_WRITABLE || view->len == 0)
		return 0;
	return pin_buffer(self, view, flags & PyBUF_WRITABLE);
}

static void array_releasebuffer(PyObject *self, Py_buffer *view)
{
	if (view->internal == &pinned_mark)
		unpin_range(view->buf, (size_t)view->len);
	else if (super.releasebuffer)
		super.releasebuffer(self, view);
}

/* ---- The end ---- */

/* Returns whether only the caller refers to this array, so that no view uses its memory. */
static bool is_unshared(PyObject *self)
{
	/* The caller's variable is one reference. The call is another one before Python 3.14. */
	return Py_REFCNT(self) <= (Py_Version >= 0x030e0000 ? 1 : 2);
}

/*
 * close(): makes changes durable first, while other threads run and may make views. From
 * is_unshared to the end of __setstate__, which removes the memory, this thread holds the GIL and
 * runs C only.
 */
static PyObject *array_close(PyObject *self, PyObject *unused)
{
	PyObject *has_mapping = PyObject_CallMethod(self, "_flush_before_close", NULL);
	PyObject *state, *set, *emptied, *done = NULL;
	bool unshared;

	(void)unused;
	state = has_mapping ? PyObject_GetAttrString(self, "_closed_state") : NULL;
	set = state ? PyObject_GetAttrString((PyObject *)super.ndarray, "__setstate__") : NULL;
	if (set) {
		unshared = has_mapping == Py_True && is_unshared(self);
		emptied = unshared ? PyObject_CallFunctionObjArgs(set, self, state, NULL) :
				     Py_NewRef(Py_None);
		if (emptied)
			done = PyObject_CallMethod(self, "_finish_close", "O",
						   unshared ? Py_True : Py_False);
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
 * The memory of an array must stay until the array is deallocated, so `base` is visited but never
 * cleared. Each cycle through `base` also has an attribute of an array, which Python's class
 * clears.
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
	  "Make all changes durable and end this array. Later uses raise ValueError.\n\n"
	  "The mapping, its memory and its lock on the file end at once if nothing else uses\n"
	  "them. Otherwise they end with the last view, array or memoryview of the mapping, which\n"
	  "can be used until then. The end of a ``with`` block closes the array, too.\n\n"
	  "Raises OSError if the changes cannot be made durable. The array then stays open.\n\n"
	  ">>> import ummap\n"
	  ">>> a = ummap.memmap(\"mem:1M\", shape=10)\n"
	  ">>> a.close()\n"
	  ">>> a\n"
	  "<ummap.memmap, closed>\n" },
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

/* Returns 1 if `base` is where struct array has it, 0 if not, and -1 with an exception set. */
static int check_base_position(PyObject *ndarray)
{
	PyObject *array = PyObject_CallFunction(ndarray, "i", 1);
	PyObject *view = array ? PyObject_CallMethodObjArgs(array, name_view, NULL) : NULL;
	int found = view ? ((struct array *)view)->base == array : -1;

	Py_XDECREF(view);
	Py_XDECREF(array);
	return found;
}

static void take_functions_of(PyTypeObject *nd)
{
#if PY_VERSION_HEX >= 0x030a0000
	super.dealloc = (destructor)PyType_GetSlot(nd, Py_tp_dealloc);
	super.traverse = (traverseproc)PyType_GetSlot(nd, Py_tp_traverse);
	super.clear = (inquiry)PyType_GetSlot(nd, Py_tp_clear);
	super.subscript = (binaryfunc)PyType_GetSlot(nd, Py_mp_subscript);
	super.ass_subscript = (objobjargproc)PyType_GetSlot(nd, Py_mp_ass_subscript);
	super.getbuffer = (get_buffer_fn *)PyType_GetSlot(nd, Py_bf_getbuffer);
	super.releasebuffer = (release_buffer_fn *)PyType_GetSlot(nd, Py_bf_releasebuffer);
#else /* PyType_GetSlot refuses static types such as ndarray. */
	super.dealloc = nd->tp_dealloc;
	super.traverse = nd->tp_traverse;
	super.clear = nd->tp_clear;
	super.subscript = nd->tp_as_mapping->mp_subscript;
	super.ass_subscript = nd->tp_as_mapping->mp_ass_subscript;
	super.getbuffer = nd->tp_as_buffer->bf_getbuffer;
	super.releasebuffer = nd->tp_as_buffer->bf_releasebuffer;
#endif
}

PyObject *make_array_type(PyObject *module, PyObject *ndarray)
{
	PyTypeObject *nd = (PyTypeObject *)Py_NewRef(ndarray);
	PyObject *bases, *type;
	int found;

	(void)module;
	found = make_names() == -1 ? -1 : check_base_position(ndarray);
	if (found == -1)
		return NULL;
	super.ndarray = nd;
	take_functions_of(nd);
	follows_base = found && !super.traverse;
	bases = PyTuple_Pack(1, ndarray);
	if (!bases)
		return NULL;
	type = PyType_FromSpecWithBases(&spec, bases);
	Py_DECREF(bases);
	return type;
}
