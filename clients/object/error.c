/* SPDX-License-Identifier: BSD-3-Clause */
#include "object/error.h"

#include <errno.h>
#include <stdio.h>

#include <ummap-object.h>

void failure_keep(struct failure *f)
{
	f->error = errno;
	snprintf(f->text, sizeof(f->text), "%s", umerrormsg());
}

void failure_restore(const struct failure *f)
{
	umseterror(f->error, "%s", f->text);
}

const char *umobject_errormsg(void)
{
	return umerrormsg();
}
