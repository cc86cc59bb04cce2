/* SPDX-License-Identifier: BSD-3-Clause */
/* Ways to write the outputs of a simulation. Each output is an array of doubles, `side` in each
 * row, and each rank has one chunk of it, the chunks below each other. All calls are collective. */
#ifndef FIELD_OUTPUTS_H
#define FIELD_OUTPUTS_H

#include <stdint.h>

struct outputs {
	const char *path;    /* does not exist before, and is removed behind */
	uint64_t side;
	unsigned count;      /* of outputs */
	int irregular;       /* whether the chunks differ in size, as those of particles do */
};

struct output_method {
	const char *name;
	void (*begin)(const struct outputs *o);
	/* The chunk of this rank; durable when it returns, or after `finish`. */
	void (*write)(const struct outputs *o, unsigned output, const double *chunk);
	/* The chunk of any rank, each at its own turn. NULL: it cannot be found. */
	void (*read)(const struct outputs *o, unsigned output, int of, double *chunk);
	void (*end)(void);
	/* Waits until all outputs are durable; NULL: they are when `write` returns. */
	void (*finish)(void);
};

/* End with NULL; empty where there is no parallel HDF5. */
extern const struct output_method *const outputs_hdf5[];

#endif
