/* SPDX-License-Identifier: BSD-3-Clause */
/* prog_lengthen - umlengthen, and stores behind wal+ that become shorter. */
#include <ummap-driver.h>

#include "../common.h"

static void *map_growing(const char *uri)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	void *base;

	attr.seg_size = 64 * KIB;
	attr.flags = UMMAP_CREATE | UMMAP_GROWS;
	check(ummap_open(uri, GIB, 0, READ_WRITE, &attr, &base) == 0, "%s", uri);
	return base;
}

static uint64_t size_of(const char *path)
{
	struct stat st;

	check(stat(path, &st) == 0);
	return (uint64_t)st.st_size;
}

static void test_length(const char *scheme)
{
	const char *path = in_dir("file");
	char uri[400], *base;

	snprintf(uri, sizeof(uri), "%s:%s", scheme, path);
	base = map_growing(uri);
	fill(base, 1000, 0, 1);
	check(umsync(base, 0) == 0);
	check(umlengthen(base, 300000) == 0);
	check(umlengthen(base, 5) == 0, "a longer store is unchanged");
	fill(base + 200000, 1000, 200000, 1);
	check(umunmap(base, 1) == 0);
	check(size_of(path) == 300000);
	base = map_growing(uri);
	check_bytes(base, 1000, 0, 1);
	check_zeros(base + 1000, 199000);
	check_bytes(base + 200000, 1000, 200000, 1);
	check_zeros(base + 201000, 200000);
	check(umunmap(base, 0) == 0);
	check(unlink(path) == 0);
}

static void test_errors(void)
{
	int fd = filled_file(10000, 1);
	void *base = map_file(fd, 10000, 4096, PROT_READ, 0);

	check_fails(umlengthen(base, 20000), EACCES);
	check_fails(umlengthen((char *)base + 1, 20000), EINVAL);
	check(umunmap(base, 0) == 0);
	base = map_growing("mem:1M");
	check(umlengthen(base, MIB) == 0);
	check_fails(umlengthen(base, MIB + 1), EOPNOTSUPP);
	check(umunmap(base, 0) == 0);
	base = map_file(fd, 10000, 4096, READ_WRITE, 0);
	check_fails(umlengthen(base, (uint64_t)INT64_MAX + 1), EINVAL);
	check(umunmap(base, 0) == 0);
}

/* A log that has blocks may have them behind the new end. */
static void test_shorter(void)
{
	struct ummap_driver driver = { .struct_size = sizeof(driver) };
	const char *path = in_dir("short");
	struct ummap_geom geom;
	char uri[400], bytes[8];
	uint64_t size;
	void *h;

	snprintf(uri, sizeof(uri), "wal+posix:%s", path);
	check(ummap_driver_open(uri, UMMAP_O_WRITE | UMMAP_O_CREATE, &driver, &h, &geom) == 0);
	check(driver.resize(h, 100000) == 0 && driver.resize(h, 50000) == 0);
	check(driver.size(h, &size) == 0 && size == 50000);
	check(driver.write(h, "abcdefg", 8, 40000) == 0);
	check(driver.resize(h, 30000) == -EOPNOTSUPP);
	check(driver.flush(h, 0, UINT64_MAX) == 0);
	check(driver.resize(h, 30000) == -EOPNOTSUPP);
	check(driver.resize(h, 60000) == 0);
	check(driver.read(h, bytes, 8, 40000) == 0 && strcmp(bytes, "abcdefg") == 0);
	check(driver.close(h) == 0);
	check(size_of(path) == 60000);
}

int main(void)
{
	set_group();
	test_length("posix");
	test_length("wal+posix");
	if (has_driver("uring"))
		test_length("uring");
	test_errors();
	test_shorter();
	return 0;
}
