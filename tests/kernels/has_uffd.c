/* SPDX-License-Identifier: BSD-3-Clause */
/* Exit status 0: the engine uffd can be had on this kernel. 1: it cannot; a sentence on standard output tells why. */
#include <stdio.h>

#include "uffd.h"

int main(void)
{
	if (has_uffd())
		return 0;
	puts(NO_UFFD);
	return 1;
}
