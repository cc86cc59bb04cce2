/* SPDX-License-Identifier: BSD-3-Clause */
/* The drivers and policies: built in, registered, and loaded from files. */
#ifndef PLUGIN_H
#define PLUGIN_H

#include <stdbool.h>
#include <stddef.h>
#include <ummap-driver.h>
#include <ummap-policy.h>

/* Find a driver or policy. The scheme is that of a parsed URI. A policy may be "name:arguments",
 * and len is the length of the name. Returns NULL with a message if there is none, or if its file
 * is bad. */
const struct ummap_driver *plugin_driver(const char *scheme);
const struct ummap_policy *plugin_policy(const char *text, size_t len);
/* Finds a policy for tiers in the same way. */
const struct ummap_tier_policy *plugin_tier_policy(const char *name);
/* Registers a driver of the program. Returns 0, or -EINVAL or -EEXIST with a message. */
int plugin_add_driver(const struct ummap_driver *driver);
/* Checks the table of a driver of the program, which needs no `open` if its handle is open. Returns
 * 0, or -EINVAL with a message. */
int plugin_check_driver(const struct ummap_driver *driver, bool is_open);
/* The name of the policy UMMAP_PTYPE_*; NULL if there is no such policy. */
const char *plugin_ptype(int ptype);
/* Gets the built-in drivers, and returns their number. */
size_t plugin_drivers(const struct ummap_driver *const **list);
/* In a forked child: no other thread loads a file, and no file is loaded. */
void plugin_forget(void);

#endif
