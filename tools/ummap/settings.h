/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of all settings, made from the tables that the parsers use. */
#ifndef SETTINGS_H
#define SETTINGS_H

#include <stdio.h>

/* Prints all settings as text, for `ummap help settings`. */
void print_settings(FILE *to);
/* Prints the generated part of the manual page ummap-NAME(7): environment, options or settings. */
void print_settings_page(FILE *to, const char *name);

#endif
