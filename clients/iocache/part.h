/* SPDX-License-Identifier: BSD-3-Clause */
/* The driver filepart: a node's share of a file, as the head of its cache has it. */
#ifndef FILE_PART_H
#define FILE_PART_H

/* So that URIs can name it: "filepart:HEAD". */
void part_register(void);

#endif
