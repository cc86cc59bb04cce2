/* SPDX-License-Identifier: BSD-3-Clause */
/* The drivers and policies that there are. */
#ifndef PLUGIN_H
#define PLUGIN_H

#include <ummap-driver.h>
#include <ummap-policy.h>

/* NULL with a sentence: what there is, or what is wrong with the file that has it. A scheme is of a parsed
 * URI; a policy may be "name:arguments", and len is that of the name. */
const struct ummap_driver *plugin_driver(const char *scheme);
const struct ummap_policy *plugin_policy(const char *text, size_t len);
/* One more driver, of the program's own. Returns 0, or -EINVAL or -EEXIST with a sentence. */
int plugin_add_driver(const struct ummap_driver *driver);
/* The policy of an UMMAP_PTYPE_*; NULL if there is none. */
const char *plugin_ptype(int ptype);
/* In a forked child: nobody else is loading, and nothing is loaded. */
void plugin_forget(void);

#endif
