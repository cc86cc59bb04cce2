/* SPDX-License-Identifier: BSD-3-Clause */
/* The checks, for the table of them; each file of checks has its own part of this list. */
#ifndef CHECKS_H
#define CHECKS_H

/* check_open.c */
void check_calls(void);
void check_geometry(void);
void check_identity(void);
void check_descriptors(void);
void check_open_fd(void);
/* check_errors.c */
void check_missing(void);
void check_create(void);
void check_paths(void);
void check_keys(void);
void check_read_only(void);
/* check_transfer.c */
void check_read(void);
void check_read_end(void);
void check_write(void);
void check_readv(void);
void check_writev(void);
/* check_store.c */
void check_last_byte(void);
void check_grow(void);
void check_no_grow(void);
void check_data(void);
void check_resize(void);
void check_flush(void);
void check_reopen(void);
void check_second_handle(void);
void check_new_process(void);
/* check_threads.c */
void check_disjoint(void);
void check_overlap(void);
void check_fork(void);
/* check_lock.c */
void check_lock(void);
/* check_signal.c */
void check_signal(void);
/* check_async.c */
void check_async(void);
void check_async_full(void);
void check_async_poll(void);
void check_async_end(void);
void check_async_threads(void);
void check_async_fork(void);
void check_async_close(void);
/* check_memory.c */
void check_map(void);
void check_pagecache(void);
/* check_mapping.c */
void check_mapping(void);
void check_mapping_offset(void);

#endif
