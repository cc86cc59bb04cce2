/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A user's program, which check-install and check-deb compile as C99 and C++11. Maps a file, writes
 * and syncs it, and reads it through another mapping.
 */
#include <ummap.h>
#include <ummap-driver.h>
#include <ummap-policy.h>

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const char text[] = "written by a program built against the installed library";

static int fail(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, umerrormsg());
	return 1;
}

int main(int argc, char **argv)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	char uri[4096], found[sizeof(text)];
	void *addr = NULL;
	int fd = open(argv[argc - 1], O_RDWR | O_CREAT | O_TRUNC, 0600);

	if (fd < 0 || ummap(1 << 20, 65536, PROT_READ | PROT_WRITE, fd, 0, -1, 1, UMMAP_PTYPE_FIFO,
			    &addr) != 0)
		return fail("ummap");
	memcpy((char *)addr + 100000, text, sizeof(text));
	if (umsync(addr, 1) != 0 || umunmap(addr, 0) != 0)
		return fail("umsync");
	if (pread(fd, found, sizeof(found), 100000) < (ssize_t)sizeof(text) - 1 ||
	    memcmp(found, text, sizeof(text) - 1) != 0)
		return fail("pread");
	snprintf(uri, sizeof(uri), "posix:%s", argv[argc - 1]);
	attr.seg_size = 4096;
	if (ummap_open(uri, 200000, 0, PROT_READ, &attr, &addr) != 0)
		return fail("ummap_open");
	if (strcmp((char *)addr + 100000, text) != 0)
		return fail("the second mapping");
	if (umunmap(addr, 1) != 0)
		return fail("umunmap");
	close(fd);
	return 0;
}
