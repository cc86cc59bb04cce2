/* SPDX-License-Identifier: BSD-3-Clause */
/* Declarations that the files of the extension module share: errors, pins and the two types. */
#ifndef UMMAP_PYTHON_H
#define UMMAP_PYTHON_H

#define PY_SSIZE_T_CLEAN
/* The stable ABI has the buffer protocol since Python 3.11. One file serves all later versions. */
#include <patchlevel.h>
#if PY_VERSION_HEX >= 0x030b0000
#define Py_LIMITED_API 0x030b0000
#endif
#include <Python.h>
#include <stdbool.h>
#include <sys/types.h>

#if PY_VERSION_HEX < 0x030b0000
#define Py_Version PY_VERSION_HEX
#endif
#if PY_VERSION_HEX < 0x030a0000
static inline PyObject *Py_NewRef(PyObject *object)
{
	Py_INCREF(object);
	return object;
}

static inline int PyModule_AddObjectRef(PyObject *module, const char *name, PyObject *value)
{
	return PyModule_AddObject(module, name, Py_NewRef(value));
}
#endif

/* Raises OSError for the library's last failed call in this thread. Returns NULL. */
PyObject *raise_library_error(void);
/* Raises OSError with errno and a message. Returns NULL. */
PyObject *raise_os_error(int error, const char *message);

/*
 * Pins a range of a mapping in pieces, without the GIL, and runs Python's signal handlers between
 * pieces. Returns 0, or -1 with an exception set and nothing pinned.
 */
int pin_range(char *addr, size_t len, bool write);
/* Ends the pins that one call of pin_range has made for the same range. */
void unpin_range(char *addr, size_t len);

/*
 * Notes that changes are lost: the process ends with status 1 where it would end with 0. Returns
 * whether the hook at the end of the process has reported a loss.
 */
bool note_loss(void);

/* Returns the counters of the mapping that holds addr, or of the process if addr is NULL. */
PyObject *make_counters(const void *addr);

/* Makes the class Mapping. */
PyObject *make_mapping_type(PyObject *module);
/* end_sync(flush, wait): returns whether the commit of _begin_sync has ended, whose handle is the
 * attribute _handle of the flush. Then _handle is None, and _error has the error, if any. */
PyObject *mapping_end_sync(PyObject *module, PyObject *args);
/* Returns whether addr is in an open mapping. */
bool mapping_has_address(PyObject *mapping, const char *addr);
/* Returns the bytes that one buffer may pin: a quarter of the limit, or of the machine's memory. */
size_t mapping_max_pin_bytes(PyObject *mapping);
/*
 * Returns the mapping if its memory may be accessed. Returns NULL with an exception set if the
 * mapping is closed, or is the parent's and has no replacement in this forked child.
 */
PyObject *check_mapping_access(PyObject *mapping);
/* True in a forked child if one of the parent's mappings has no replacement: arrays must check. */
extern bool mapping_has_orphans;

/* Makes the base class of memmap, a subclass of numpy's ndarray. */
PyObject *make_array_type(PyObject *module, PyObject *ndarray);

#endif
