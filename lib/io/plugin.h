/* SPDX-License-Identifier: BSD-3-Clause */
/* The drivers and policies: built in, registered, and loaded from files. */
#ifndef PLUGIN_H
#define PLUGIN_H

#include <stdbool.h>
#include <stddef.h>
#include <ummap-driver.h>
#include <ummap-policy.h>

/* NULL with a sentence: which ones exist, or what is wrong with the file. The scheme is that of a parsed
 * URI; a policy may be "name:arguments", and len is the length of the name. */
const struct ummap_driver *plugin_driver(const char *scheme);
const struct ummap_policy *plugin_policy(const char *text, size_t len);
/* Registers a driver of the program. Returns 0, or -EINVAL or -EEXIST with a sentence. */
int plugin_add_driver(const struct ummap_driver *driver);
/* Checks the table of a driver of the program, which needs no `open` if its handle is open. Returns
 * 0, or -EINVAL with a sentence. */
int plugin_check_driver(const struct ummap_driver *driver, bool is_open);
/* The name of the policy UMMAP_PTYPE_*; NULL if there is no such policy. */
const char *plugin_ptype(int ptype);
/* The drivers that are built in: returns their number. */
size_t plugin_drivers(const struct ummap_driver *const **list);
/* In a forked child: no other thread is loading, and nothing is loaded. */
void plugin_forget(void);

#endif
