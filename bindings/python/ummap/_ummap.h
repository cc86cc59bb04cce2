/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of the extension module share: errors, long calls in pieces, and the two types. */
#ifndef UMMAP_PYTHON_H
#define UMMAP_PYTHON_H

#define PY_SSIZE_T_CLEAN
/* The stable ABI, which has buffers since 3.11: one file serves all later versions. */
#define Py_LIMITED_API 0x030b0000
#include <Python.h>
#include <stdbool.h>
#include <sys/types.h>

/* Raises OSError with the sentence of the library's last call in this thread, which failed; returns NULL. */
PyObject *core_error(void);
/* The same with a sentence of our own. */
PyObject *core_fail(int error, const char *sentence);

/*
 * Pins bytes that are in a mapping, a piece at a time, without the GIL; between pieces Python's signal handlers run. -1: an
 * exception is set and nothing is pinned. core_unpin ends what one core_pin has pinned, of the same range.
 */
int core_pin(char *addr, size_t len, bool write);
void core_unpin(char *addr, size_t len);

/* A dictionary of the counters of the mapping that holds addr, or of the process (NULL). */
PyObject *core_stat(const void *addr);

/* The class Mapping, and whether [addr, addr + len) is in the mapping that `mapping` is. */
PyObject *mapping_type(PyObject *module);
bool mapping_has(PyObject *mapping, const char *addr);
/* How much may be pinned by what only passes bytes on: a quarter of its limit, or of the machine's memory. */
size_t mapping_pin_most(PyObject *mapping);
/* NULL with an exception set where it has ended, or is another process's and nothing stands in for it. */
PyObject *mapping_check(PyObject *mapping);
/* Some mapping of the parent has nothing in its place in this child: arrays have to look before they touch. */
extern bool mapping_orphans;

/* The base class of memmap, above numpy's ndarray. */
PyObject *array_type(PyObject *module, PyObject *ndarray);

#endif
