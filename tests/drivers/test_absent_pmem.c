/* SPDX-License-Identifier: BSD-3-Clause */
/* A library that was built without libpmem2 refuses the driver pmem and maps files. */
#include <criterion/criterion.h>

#include "common.h"

#define SIZE (64 * KIB)

Test(absent_pmem, is_refused_with_the_reason)
{
	void *m;

	check_fails(ummap_open("pmem:/dev/shm/any", SIZE, 0, PROT_READ, NULL, &m), EOPNOTSUPP);
	check(strstr(umerrormsg(), "libpmem2"));
}

Test(absent_pmem, files_need_it_not)
{
	int fd = filled_file(SIZE, 1);
	uint8_t *m = map_file(fd, SIZE, 0, READ_WRITE, 0);

	check_bytes(m, SIZE, 0, 1);
	check(umunmap(m, 1) == 0);
}
