/* SPDX-License-Identifier: BSD-3-Clause */
/* Huge pages for segments that came one by one. */
#ifndef ASSEMBLE_H
#define ASSEMBLE_H

#include "paging/mapping/mapping.h"

/* Called now and then by the background thread: does a bounded part of it, where the mapping has come to rest. */
void assemble_look(struct mapping *map);

#endif
