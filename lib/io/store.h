/* SPDX-License-Identifier: BSD-3-Clause */
/* The structure of a store. Only io.c and io_run.c use its fields; other files call functions. */
#ifndef STORE_H
#define STORE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <ummap-driver.h>

#include "io/identity.h"

struct store {
	struct ummap_driver driver;  /* a copy: fields that an older driver lacks are NULL */
	void *handle;                /* handle of the driver */
	bool is_callers;             /* whether the handle belongs to the caller, and stays open */
	struct ummap_geom geom;      /* properties that the driver has reported */
	/* Set when the store is opened: */
	bool async;                  /* whether the driver is asynchronous */
	bool overlaps;               /* whether a thread may keep several requests in flight */
	bool shows_pagecache;        /* whether the driver can map pages of the page cache */
	struct identity identity;
	_Atomic uint32_t turn;       /* lock for calls of a driver without PARALLEL */
	_Atomic unsigned owners;     /* number of owners, each of which closes the store */
	_Atomic uint64_t data_begin; /* bytes [data_begin, data_end) are data: io_is_hole */
	_Atomic uint64_t data_end;   /* does not ask the driver about them */
};

#endif
