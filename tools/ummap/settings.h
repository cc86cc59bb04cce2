/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of all settings, made from the tables that the parsers use. */
#ifndef SETTINGS_H
#define SETTINGS_H

#include <stdbool.h>
#include <stdio.h>

/* Prints all settings as text, for `ummap help settings`. */
void print_settings(FILE *to);
/*
 * Prints the generated part of a manual page: the environment variables (ummap-environment(7)), or
 * URI keys, hints and attributes (ummap-settings(7)).
 */
void print_settings_page(FILE *to, bool environment);

#endif
