/* SPDX-License-Identifier: BSD-3-Clause */
/* The list of all engines. A test compiles this file with a longer table. */
#include "engine/table.h"

#ifndef ENGINES
#define ENGINES "engine/engines.def"
#endif

#define ENGINE(name) extern const struct engine engine_##name;
#include ENGINES
#undef ENGINE

const struct engine *const engines[] = {
#define ENGINE(name) &engine_##name,
#include ENGINES
	NULL
};
