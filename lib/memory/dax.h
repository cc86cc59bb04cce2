/* SPDX-License-Identifier: BSD-3-Clause */
/* Files on persistent memory whose pages are frames. Their contents are not kept. */
#ifndef DAX_H
#define DAX_H

#include <stdint.h>

/* Opens a file without a name in a folder whose file system maps persistent memory directly (DAX).
 * Returns its descriptor, and the free bytes of the file system; or -EINVAL with a message. */
int dax_open(const char *folder, uint64_t *space);

#endif
