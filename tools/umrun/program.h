/* SPDX-License-Identifier: BSD-3-Clause */
/* Programs that the library cannot be loaded into. */
#ifndef UMRUN_PROGRAM_H
#define UMRUN_PROGRAM_H

/*
 * Prints a warning if the library cannot serve the program: it is statically linked, written in Go, or gains privileges. name is
 * looked for in PATH, as execvp(3) does; the interpreter of a script is checked in its place.
 */
void program_check(const char *name);

#endif
