/* SPDX-License-Identifier: BSD-3-Clause */
#include "object/error.h"

const char *umobject_errormsg(void)
{
	return umerrormsg();
}
