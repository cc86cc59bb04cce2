/* SPDX-License-Identifier: BSD-3-Clause */
/* Makes regions, and returns them to the kernel. The caller of these functions holds the lock of
 * the list for change. */
#ifndef UMRUN_REGION_H
#define UMRUN_REGION_H

#include "umrun/list.h"

/* Maps a file by the library, and returns the address. NULL: the kernel must map it. */
void *region_map(size_t len, int prot, int flags, int fd, off_t off);
/* Ends a region as munmap(2) does: its stores are in the file. */
int region_unmap(struct region *r);
/* Likewise for the part of a region in [addr, addr + len), which begins and ends in the region. */
int region_unmap_part(struct region *r, const char *addr, size_t len);
/* Called without the lock before the kernel stores to a range: hands private regions there to the
 * kernel. */
void region_begin_stores(const void *addr, size_t len);
/* Called before the kernel maps a file: hands the file's regions to the kernel if this mapping or
 * one of them is writable. Returns 0, or -1 with errno. */
int region_note_kernel_mapping(int prot, int flags, int fd);
/* Called before the kernel's mappings in a range get rights: likewise for their files. */
int region_note_kernel_rights(const void *addr, size_t len, int prot);
/* Called after the program has mapped a range, which replaces pages of zeros there. */
void region_forget_zeros(const void *addr, size_t len);

/* Replace regions by mappings of the kernel at the same addresses: all with a byte in a range, or
 * all of a file that reach beyond `end`. --verbose prints the reason, a clause without a period.
 * Return 0, or -1 with errno; then the region that failed has not changed. */
int region_hand_back_range(const void *addr, size_t len, const char *reason);
int region_hand_back_file(struct file_id file, off_t end, const char *reason);
/* Likewise for regions of the file, or of all files (NULL), that are of one of these kinds. Errors
 * are reported. Returns false after an error. */
enum {
	REGIONS_ALL = 1,
	REGIONS_WRITABLE = 2,    /* stores go to the file */
	REGIONS_SHARED = 4,      /* the program's description of the file allows writes */
	REGIONS_LEASED = 8,      /* ... and the file has a lease */
	REGIONS_BROKEN = 16      /* the lease is broken */
};
bool region_hand_back_kinds(const struct file_id *file, int kinds, const char *reason);

/* Called in a forked child: the regions become mappings of the kernel. */
void region_begin_child(void);

#endif
