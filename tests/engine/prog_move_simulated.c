/* SPDX-License-Identifier: BSD-3-Clause */
/* prog_move of tests/api with the engine of the tests (simulated.c). */
#define SIMULATED_ENGINE
#include "api/prog_move.c"
