/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The extension module ummap._ummap: the functions of the module, and functions that its types
 * share. The Python files of the package call them and document what users see.
 *
 * A library call that may take long is made in pieces without the GIL, so that other threads run.
 * PyErr_CheckSignals is called between pieces, so that Ctrl-C ends the call.
 */
#include "_ummap.h"

#include "common/size.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ummap.h>
#include <ummap-driver.h>

#define PIN_PIECE_BYTES ((size_t)1 << 20)

PyObject *raise_os_error(int error, const char *message)
{
	PyObject *args = Py_BuildValue("(is)", error, message);

	if (args)
		PyErr_SetObject(PyExc_OSError, args);
	Py_XDECREF(args);
	return NULL;
}

PyObject *raise_library_error(void)
{
	int error = errno;

	return raise_os_error(error, umerrormsg());
}

/* ---- Pins ---- */

static size_t min_size(size_t a, size_t b)
{
	return a < b ? a : b;
}

void unpin_range(char *addr, size_t len)
{
	for (size_t at = 0; at < len; at += PIN_PIECE_BYTES)
		umunpin(addr + at, min_size(len - at, PIN_PIECE_BYTES));
}

int pin_range(char *addr, size_t len, bool write)
{
	int prot = write ? PROT_READ | PROT_WRITE : PROT_READ, failed;
	size_t piece;

	/* The reads of all pieces start before the first piece is pinned. */
	if (len > PIN_PIECE_BYTES)
		umprefetch(&(struct iovec){ addr, len }, 1);
	for (size_t at = 0; at < len; at += PIN_PIECE_BYTES) {
		piece = min_size(len - at, PIN_PIECE_BYTES);
		Py_BEGIN_ALLOW_THREADS
		failed = umpin(addr + at, piece, prot);
		Py_END_ALLOW_THREADS
		if (failed)
			raise_library_error();
		else if (PyErr_CheckSignals() == -1)
			umunpin(addr + at, piece);
		else
			continue;
		unpin_range(addr, at);
		return -1;
	}
	return 0;
}

/* ---- Counters ---- */

#define COUNTER(name) { #name, offsetof(struct umstat, name), true, true }
#define MAPPING_COUNTER(name) { #name, offsetof(struct umstat, name), true, false }
#define PROCESS_COUNTER(name) { #name, offsetof(struct umstat, name), false, true }
static const struct counter {
	const char *name;
	size_t offset;           /* of the uint64_t in struct umstat */
	bool of_mapping;         /* the counter is in the dictionary of a mapping */
	bool of_process;         /* the counter is in the dictionary of the process */
} counters[] = {
	COUNTER(read_faults), COUNTER(write_faults), COUNTER(upgrade_faults),
	COUNTER(spurious_faults), COUNTER(inactive_hits), COUNTER(readahead_hits),
	COUNTER(readahead_waste), COUNTER(readahead_loads), COUNTER(evictions),
	COUNTER(read_bytes), COUNTER(read_requests), COUNTER(write_bytes),
	COUNTER(write_requests), COUNTER(flushes), COUNTER(read_errors), COUNTER(write_errors),
	COUNTER(resident_bytes), COUNTER(inactive_bytes), COUNTER(dirty_bytes),
	COUNTER(pinned_bytes), COUNTER(budget_bytes), COUNTER(pagecache_bytes),
	COUNTER(lost_bytes), COUNTER(waiting_bytes), COUNTER(commit_bytes),
	MAPPING_COUNTER(kernel), MAPPING_COUNTER(transfer_bytes),
	PROCESS_COUNTER(held_bytes), PROCESS_COUNTER(over_budget_peak), PROCESS_COUNTER(mappings),
};

/* Adds one counter to a dictionary. Returns 0, or -1 with an exception set. */
static int add_counter(PyObject *all, const struct umstat *st, const struct counter *c)
{
	uint64_t number = *(const uint64_t *)((const char *)st + c->offset);
	PyObject *value = PyLong_FromUnsignedLongLong(number);
	int failed = value ? PyDict_SetItemString(all, c->name, value) : -1;

	Py_XDECREF(value);
	return failed;
}

/* Adds the name of a mapping's engine. Returns 0, or -1 with an exception set. */
static int add_engine(PyObject *all, uint64_t engine)
{
	static const char *const names[] = {
		[UMMAP_ENGINE_SEGV] = "segv", [UMMAP_ENGINE_UFFD] = "uffd",
		[UMMAP_ENGINE_SIGBUS] = "sigbus",
	};
	bool is_known = engine < sizeof(names) / sizeof(*names) && names[engine];
	PyObject *name = PyUnicode_FromString(is_known ? names[engine] : "unknown");
	int failed = name ? PyDict_SetItemString(all, "engine", name) : -1;

	Py_XDECREF(name);
	return failed;
}

PyObject *make_counters(const void *addr)
{
	struct umstat st = { .struct_size = sizeof(st) };
	PyObject *all;

	if (umstat(addr, &st) == -1)
		return raise_library_error();
	all = PyDict_New();
	for (size_t i = 0; all && i < sizeof(counters) / sizeof(*counters); i++) {
		if (!(addr ? counters[i].of_mapping : counters[i].of_process))
			continue;
		if (add_counter(all, &st, &counters[i]) == -1)
			Py_CLEAR(all);
	}
	if (all && addr && add_engine(all, st.engine) == -1)
		Py_CLEAR(all);
	return all;
}

static PyObject *module_stat(PyObject *module, PyObject *unused)
{
	(void)module, (void)unused;
	return make_counters(NULL);
}

/* ---- The exit status ---- */

/* on_exit(3), which not every C library has. */
extern int on_exit(void (*function)(int, void *), void *arg) __attribute__((weak));

static bool has_lost;      /* changes of a mapping are lost */
static bool is_reported;   /* the hook at the end of the process has reported the loss */

bool note_loss(void)
{
	has_lost = true;
	return is_reported;
}

/* glibc continues with the other handlers, and takes the status of the last call of exit. */
static void fail_if_lost(int status, void *unused)
{
	(void)unused;
	if (has_lost && !status)
		exit(EXIT_FAILURE);
}

/* fail_at_exit(): the process ends with status 1 where it would end with 0. */
static PyObject *module_fail_at_exit(PyObject *module, PyObject *unused)
{
	(void)module, (void)unused;
	is_reported = true;
	note_loss();
	Py_RETURN_NONE;
}

/* ---- Stores ---- */

static PyObject *refuse_to_empty(const char *uri, int error)
{
	const char *reason = strerror(error);
	char message[1024];

	if (error == EOPNOTSUPP)
		reason = "its driver cannot make a store shorter";
	snprintf(message, sizeof(message), "cannot empty '%s' for mode 'w+': %s. Try mode 'r+'",
		 uri, reason);
	return raise_os_error(error, message);
}

/* store_size(uri, write, create, max): returns the bytes of a store. If `max` is not negative, a
 * longer store is made so short. */
static PyObject *module_store_size(PyObject *module, PyObject *args)
{
	struct ummap_driver driver = { .struct_size = sizeof(driver) };
	int write, create, flags, error = 0, failed;
	struct ummap_geom geom;
	Py_ssize_t max;
	const char *uri;
	bool is_long;
	void *handle;

	(void)module;
	if (!PyArg_ParseTuple(args, "sppn", &uri, &write, &create, &max))
		return NULL;
	flags = (write ? UMMAP_O_WRITE : 0) | (create ? UMMAP_O_CREATE : 0);
	Py_BEGIN_ALLOW_THREADS
	failed = ummap_driver_open(uri, flags, &driver, &handle, &geom);
	Py_END_ALLOW_THREADS
	if (failed)
		return raise_library_error();
	is_long = max >= 0 && geom.size > (uint64_t)max;
	Py_BEGIN_ALLOW_THREADS
	if (is_long)
		error = driver.resize ? driver.resize(handle, (uint64_t)max) : -EOPNOTSUPP;
	driver.close(handle);
	Py_END_ALLOW_THREADS
	if (error)
		return refuse_to_empty(uri, -error);
	return PyLong_FromUnsignedLongLong(is_long ? (uint64_t)max : geom.size);
}

/* ---- Sizes ---- */

/* parse_size(text): returns bytes. Raises ValueError without a message for invalid text. */
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

/* parse_percent(text): returns 50.0 for "50%". Raises ValueError without a message. */
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
	{ "fail_at_exit", module_fail_at_exit, METH_NOARGS, NULL },
	{ "parse_size", module_parse_size, METH_O, NULL },
	{ "parse_percent", module_parse_percent, METH_O, NULL },
	{ "stat", module_stat, METH_NOARGS, NULL },
	{ "end_sync", mapping_end_sync, METH_VARARGS, NULL },
	{ "store_size", module_store_size, METH_VARARGS, NULL },
	{ NULL, NULL, 0, NULL },
};

/* Adds the class Array if numpy is installed. The other parts of the module work without numpy. */
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
		type = make_array_type(module, ndarray);
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
		{ "CREATE", UMMAP_CREATE }, { "KERNEL", UMMAP_KERNEL },
		{ "WRITERS", UMMAP_WRITERS }, { "NODE", UMMAP_NODE }, { "BLANK", UMMAP_BLANK },
		{ "GROWS", UMMAP_GROWS },
	};
	PyObject *type = make_mapping_type(module);
	int failed = !type || PyModule_AddObjectRef(module, "Mapping", type) == -1;

	Py_XDECREF(type);
	for (size_t i = 0; !failed && i < sizeof(constants) / sizeof(*constants); i++)
		failed = PyModule_AddIntConstant(module, constants[i].name, constants[i].value);
	if (failed || PyModule_AddStringConstant(module, "version", UMMAP_VERSION) == -1)
		return -1;
	return add_array(module);
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
	if (module && on_exit)
		on_exit(fail_if_lost, NULL);
	return module;
}
