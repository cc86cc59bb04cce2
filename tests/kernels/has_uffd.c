/* SPDX-License-Identifier: BSD-3-Clause */
/* Exit status 0: this kernel supports the engine uffd. 1: it does not, and standard output has the
 * reason. */
#include <stdio.h>

#include "uffd.h"

int main(void)
{
	if (has_uffd())
		return 0;
	puts(NO_UFFD);
	return 1;
}
