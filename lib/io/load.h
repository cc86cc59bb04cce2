/* SPDX-License-Identifier: BSD-3-Clause */
/* Drivers and policies that stand in files of their own. */
#ifndef LOAD_H
#define LOAD_H

#include <ummap-driver.h>
#include <ummap-policy.h>

/* The folder of those that are installed with the library. */
extern const char load_folder[];

/*
 * Finds the driver or policy of this name (lower-case letters, digits, '-') in load_folder and then in the
 * folders of `path` (with colons between them, or NULL). What is found stays for ever. Returns 0, with NULL
 * if there is no such file; or -EINVAL with a sentence about the file. Never on the way of a fault.
 */
int load_driver(const char *name, const char *path, const struct ummap_driver **driver);
int load_policy(const char *name, const char *path, const struct ummap_policy **policy);
/* Adds a driver that stands in the program; its scheme is one that could be. Returns 0, or -EINVAL or -EEXIST with a
 * sentence. */
int load_add_driver(const struct ummap_driver *driver);
/* In a forked child: nobody else is loading, and nothing is loaded. */
void load_forget(void);

#endif
