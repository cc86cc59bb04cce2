/* SPDX-License-Identifier: BSD-3-Clause */
/* In place of screen.c where ncurses is missing. */
#include "top.h"

int screen_run(struct view *view, struct options *o)
{
	(void)view;
	(void)o;
	return -ENOTSUP;
}
