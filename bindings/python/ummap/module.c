/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The extension module ummap._ummap: what is not about one mapping, and what its types share. Everything that a user sees
 * is documented in the Python files beside this one; here are the calls that they make.
 *
 * A call of the library that may take long is made in pieces, without the GIL, and PyErr_CheckSignals is called in between:
 * so other threads run, and Ctrl-C ends it.
 */
#include "_ummap.h"

#include "base/size.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <ummap.h>
#include <ummap-driver.h>

#define PIN_PIECE ((size_t)1 << 20)

PyObject *core_fail(int error, const char *sentence)
{
	PyObject *args = Py_BuildValue("(is)", error, sentence);

	if (args)
		PyErr_SetObject(PyExc_OSError, args);
	Py_XDECREF(args);
	return NULL;
}

PyObject *core_error(void)
{
	int error = errno;

	return core_fail(error, umerrormsg());
}

/* ---- Pins ---- */

void core_unpin(char *addr, size_t len)
{
	for (size_t at = 0; at < len; at += PIN_PIECE)
		umunpin(addr + at, len - at < PIN_PIECE ? len - at : PIN_PIECE);
}

int core_pin(char *addr, size_t len, bool write)
{
	int prot = write ? PROT_READ | PROT_WRITE : PROT_READ, failed;

	/* All pieces on their way at once. */
	if (len > PIN_PIECE)
		umprefetch(&(struct iovec){ addr, len }, 1);
	for (size_t at = 0; at < len; at += PIN_PIECE) {
		Py_BEGIN_ALLOW_THREADS
		failed = umpin(addr + at, len - at < PIN_PIECE ? len - at : PIN_PIECE, prot);
		Py_END_ALLOW_THREADS
		if (failed)
			core_error();
		else if (PyErr_CheckSignals() == -1)
			umunpin(addr + at, len - at < PIN_PIECE ? len - at : PIN_PIECE);
		else
			continue;
		core_unpin(addr, at);
		return -1;
	}
	return 0;
}

/* ---- Counters ---- */

#define COUNTER(name) { #name, offsetof(struct umstat, name) }
static const struct {
	const char *name;
	size_t at;
} counters[] = {
	COUNTER(read_faults), COUNTER(write_faults), COUNTER(upgrade_faults), COUNTER(spurious_faults), COUNTER(inactive_hits),
	COUNTER(readahead_hits), COUNTER(readahead_waste), COUNTER(readahead_loads), COUNTER(evictions), COUNTER(read_bytes),
	COUNTER(read_requests), COUNTER(write_bytes), COUNTER(write_requests), COUNTER(flushes), COUNTER(read_errors),
	COUNTER(write_errors), COUNTER(resident_bytes), COUNTER(inactive_bytes), COUNTER(dirty_bytes), COUNTER(pinned_bytes),
	COUNTER(budget_bytes), COUNTER(pagecache_bytes), COUNTER(lost_bytes), COUNTER(waiting_bytes),
	/* Of mappings only. */
	COUNTER(engine), COUNTER(kernel),
	/* Of the process only. */
	COUNTER(held_bytes), COUNTER(over_budget_peak), COUNTER(mappings),
};
#define OF_MAPPING (sizeof(counters) / sizeof(*counters) - 3)
#define OF_BOTH (OF_MAPPING - 2)

PyObject *core_stat(const void *addr)
{
	size_t n = addr ? OF_MAPPING : sizeof(counters) / sizeof(*counters);
	struct umstat st = { .struct_size = sizeof(st) };
	PyObject *all, *value;
	int failed;

	if (umstat(addr, &st) == -1)
		return core_error();
	all = PyDict_New();
	for (size_t i = 0; all && i < n; i++) {
		if (!addr && i >= OF_BOTH && i < OF_MAPPING)
			continue;
		value = PyLong_FromUnsignedLongLong(*(const uint64_t *)((const char *)&st + counters[i].at));
		failed = !value || PyDict_SetItemString(all, counters[i].name, value) == -1;
		Py_XDECREF(value);
		if (failed)
			Py_CLEAR(all);
	}
	return all;
}

static PyObject *module_stat(PyObject *module, PyObject *unused)
{
	(void)module, (void)unused;
	return core_stat(NULL);
}

/* ---- Stores ---- */

/* (uri, write, create, empty): how many bytes the store has; empty: none from now on. */
static PyObject *module_store_size(PyObject *module, PyObject *args)
{
	struct ummap_driver driver = { .struct_size = sizeof(driver) };
	int write, create, empty, error = 0, failed;
	struct ummap_geom geom;
	const char *uri;
	void *handle;

	(void)module;
	if (!PyArg_ParseTuple(args, "sppp", &uri, &write, &create, &empty))
		return NULL;
	Py_BEGIN_ALLOW_THREADS
	failed = ummap_driver_open(uri, (write ? UMMAP_O_WRITE : 0) | (create ? UMMAP_O_CREATE : 0), &driver, &handle, &geom);
	Py_END_ALLOW_THREADS
	if (failed)
		return core_error();
	Py_BEGIN_ALLOW_THREADS
	if (empty && geom.size > 0)
		error = driver.resize ? driver.resize(handle, 0) : -EOPNOTSUPP;
	driver.close(handle);
	Py_END_ALLOW_THREADS
	if (error)
		return core_fail(-error, "mode 'w+' makes a store empty first, which this one does not do: use 'r+'");
	return PyLong_FromUnsignedLongLong(empty ? 0 : geom.size);
}

/* ---- Sizes ---- */

/* Bytes of a text, as the library reads its variables; ValueError, without a text of its own, if it is none. */
static PyObject *module_parse_size(PyObject *module, PyObject *text)
{
	const char *utf8 = PyUnicode_AsUTF8AndSize(text, NULL);
	uint64_t bytes;

	(void)module;
	if (!utf8)
		return NULL;
	if (size_parse(utf8, &bytes) < 0) {
		PyErr_SetNone(PyExc_ValueError);
		return NULL;
	}
	return PyLong_FromUnsignedLongLong(bytes);
}

/* Per cent of "50%". */
static PyObject *module_parse_percent(PyObject *module, PyObject *text)
{
	const char *utf8 = PyUnicode_AsUTF8AndSize(text, NULL);
	double percent;

	(void)module;
	if (!utf8)
		return NULL;
	if (size_parse_percent(utf8, &percent) < 0) {
		PyErr_SetNone(PyExc_ValueError);
		return NULL;
	}
	return PyFloat_FromDouble(percent);
}

static PyMethodDef methods[] = {
	{ "parse_size", module_parse_size, METH_O, NULL },
	{ "parse_percent", module_parse_percent, METH_O, NULL },
	{ "stat", module_stat, METH_NOARGS, NULL },
	{ "store_size", module_store_size, METH_VARARGS, NULL },
	{ NULL, NULL, 0, NULL },
};

/* Without numpy there is no memmap, and the rest works. */
static int add_array(PyObject *module)
{
	PyObject *numpy = PyImport_ImportModule("numpy"), *ndarray, *type = NULL;

	if (!numpy) {
		if (!PyErr_ExceptionMatches(PyExc_ImportError))
			return -1;
		PyErr_Clear();
		return 0;
	}
	ndarray = PyObject_GetAttrString(numpy, "ndarray");
	if (ndarray)
		type = array_type(module, ndarray);
	Py_DECREF(numpy);
	Py_XDECREF(ndarray);
	if (!type || PyModule_AddObjectRef(module, "Array", type) == -1) {
		Py_XDECREF(type);
		return -1;
	}
	Py_DECREF(type);
	return 0;
}

static int add_all(PyObject *module)
{
	static const struct {
		const char *name;
		int value;
	} constants[] = {
		{ "CREATE", UMMAP_CREATE }, { "KERNEL", UMMAP_KERNEL }, { "WRITERS", UMMAP_WRITERS }, { "BLANK", UMMAP_BLANK },
	};
	PyObject *type = mapping_type(module);
	int failed = !type || PyModule_AddObjectRef(module, "Mapping", type) == -1;

	Py_XDECREF(type);
	for (size_t i = 0; !failed && i < sizeof(constants) / sizeof(*constants); i++)
		failed = PyModule_AddIntConstant(module, constants[i].name, constants[i].value) == -1;
	return failed || PyModule_AddStringConstant(module, "version", UMMAP_VERSION) == -1 ? -1 : add_array(module);
}

static struct PyModuleDef definition = {
	PyModuleDef_HEAD_INIT, "ummap._ummap", NULL, -1, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__ummap(void);
PyMODINIT_FUNC PyInit__ummap(void)
{
	PyObject *module = PyModule_Create(&definition);

	if (module && add_all(module) == -1)
		Py_CLEAR(module);
	return module;
}
