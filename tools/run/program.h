/* SPDX-License-Identifier: BSD-3-Clause */
/* Programs that the library cannot be loaded into. */
#ifndef RUN_PROGRAM_H
#define RUN_PROGRAM_H

/*
 * Prints a warning if the library cannot be loaded into the program, because it is statically
 * linked, written in Go, or gains privileges. name is looked for in PATH, as by execvp(3). For a
 * script, its interpreter is checked.
 */
void program_check(const char *name);

#endif
