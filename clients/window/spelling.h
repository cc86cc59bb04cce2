/* SPDX-License-Identifier: BSD-3-Clause */
/* Warnings of unknown names of hints and variables. */
#ifndef SPELLING_H
#define SPELLING_H

/* Warns that a hint or variable (`what`) is unknown. meant: the name to suggest, or NULL. */
void spelling_warn(const char *what, const char *name, const char *meant);

#endif
