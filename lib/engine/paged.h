/* SPDX-License-Identifier: BSD-3-Clause */
/* What the engines of userfaultfd(2) share: their operations (engine.h), for memory that is registered with `u`. */
#ifndef PAGED_H
#define PAGED_H

#include "engine/userfaultfd.h"

/* `writable`: the range is ever stored to. */
int paged_adopt(const struct userfaultfd *u, char *range, size_t len, bool writable);
int paged_map(const struct userfaultfd *u, char *range, char *pool, size_t len, bool writable);
int paged_copy_in(const struct userfaultfd *u, char *range, const char *from, size_t len, bool writable);
int paged_protect(const struct userfaultfd *u, char *range, size_t len, bool writable);
int paged_unmap(const struct userfaultfd *u, char *range, char *pool, size_t len, bool writable, bool exposed);
int paged_unmap_last(char *range, char *pool, size_t len);
int paged_discard(char *range, size_t len);
bool paged_is_one(char *at, size_t len);

#endif
