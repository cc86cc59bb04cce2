/* SPDX-License-Identifier: BSD-3-Clause */
#include "window/spelling.h"

#include <stdio.h>

void spelling_warn(const char *what, const char *name, const char *meant)
{
	fprintf(stderr, "libummap-mpi: unknown %s '%.63s'%s%s%s\n", what, name,
		meant ? "; did you mean '" : "", meant ? meant : "", meant ? "'?" : "");
}
