/* SPDX-License-Identifier: BSD-3-Clause */
/* What io.c opens and io_run.c makes requests to; opaque for all other files. */
#ifndef STORE_H
#define STORE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <ummap-driver.h>

#include "io/identity.h"

struct store {
	struct ummap_driver driver;  /* a copy, so that fields an older driver lacks are NULL */
	void *handle;
	bool is_callers;             /* the handle is the caller's, and stays open */
	struct ummap_geom geom;
	struct identity identity;
	_Atomic uint32_t turn;
	_Atomic unsigned owners;
	_Atomic uint64_t data_begin; /* there are bytes in [data_begin, data_end), for all that is known ... */
	_Atomic uint64_t data_end;   /* ... about which the driver need not be asked */
};

#endif
