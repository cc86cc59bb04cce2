/* SPDX-License-Identifier: BSD-3-Clause */
/* The memory of the machine. */
#ifndef MACHINE_H
#define MACHINE_H

#include <stddef.h>

/* The size of RAM. */
size_t machine_ram(void);
/* The memory that the process may use: RAM, or the limit of its cgroup (v1, v2) if that is less. */
size_t machine_memory(void);

#endif
