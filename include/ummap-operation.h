/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ummap-operation.h - the interface for authors of operations. An operation is a function on the
 * data that an I/O process writes to a file (ummap-ioranks(1), ummpi_io_split(3)): it can reduce
 * them, or write a converted copy. ummap-operation(3) describes the contract.
 *
 * A shared library exports one `const struct ummap_operation ummap_operation`. The key
 * ioranks.operation of a URI names the library. The calls run in the I/O process, one at a time,
 * and return 0 or a negative errno value. After a call that fails, the operation gets no more data
 * of the file.
 */
#ifndef UMMAP_OPERATION_H
#define UMMAP_OPERATION_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define UMMAP_OPERATION_ABI 1

#define UMMAP_OPERATION_WHY_BYTES 256 /* room for the message of an operation, with its zero */

/* A file that an operation gets the data of. */
struct ummap_operation_file {
	const char *path;      /* absolute path of the file */
	const char *argument;  /* text after the comma in the value of the key; "": none */
	void *state;           /* for the operation; NULL at first */
	/* Message of a call that fails; "": the text of its errno value is used. */
	char why[UMMAP_OPERATION_WHY_BYTES];
};

struct ummap_operation {
	size_t struct_size;    /* sizeof(struct ummap_operation) */
	uint32_t abi;          /* UMMAP_OPERATION_ABI */
	/* Begins with a file. If it fails, the file is not opened, and `close` is not called. */
	int (*open)(struct ummap_operation_file *file);
	/* Gets data that are in the file now, at the offset off. They are valid during the call. */
	int (*write)(struct ummap_operation_file *file, const void *data, size_t len, uint64_t off);
	/* The data so far are durable: a sync or a commit of one of the programs ends. NULL: the
	 * operation does not need to know. */
	int (*commit)(struct ummap_operation_file *file);
	/* Ends with a file. No program has it open any more, or an earlier call has failed. */
	int (*close)(struct ummap_operation_file *file);
};

/* The symbol that a library exports. */
#pragma GCC visibility push(default)
extern const struct ummap_operation ummap_operation;
#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif
