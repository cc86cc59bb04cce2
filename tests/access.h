/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Accesses to mappings, for programs that are also built with the engine of the tests
 * (tests/engine/simulated.c), whose mappings can only be accessed by these calls. SIMULATED_ENGINE
 * is defined in that build.
 */
#ifndef TESTS_ACCESS_H
#define TESTS_ACCESS_H

#include <stddef.h>
#include <string.h>

#ifdef SIMULATED_ENGINE

#define UMMAP_ENGINE_SIMULATED 5
#define OTHER_ENGINES UMMAP_ENGINE_SIMULATED
#define DEFAULT_ENGINE "simulated"

void access_load(void *buf, const void *from, size_t len);
void access_store(void *to, const void *buf, size_t len);

#else

#define UMMAP_ENGINE_SIMULATED 0
#define OTHER_ENGINES
#define DEFAULT_ENGINE NULL

static inline void access_load(void *buf, const void *from, size_t len)
{
	memcpy(buf, from, len);
}

static inline void access_store(void *to, const void *buf, size_t len)
{
	memcpy(to, buf, len);
}

#endif

#endif
