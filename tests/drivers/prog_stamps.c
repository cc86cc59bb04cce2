/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * prog_stamps - filters that recognize a store by its time stamp notice that another program has
 * written the store, on a file system with time stamps of whole seconds, however soon that happens.
 */
#include <ummap-driver.h>

#include "../common.h"
#include "../small_fs.h"

#define SIZE ((size_t)64 * KIB)

static char uri[1000];

static int try_open(struct ummap_driver *driver, int oflags, void **h)
{
	struct ummap_geom geom;

	*driver = (struct ummap_driver){ .struct_size = sizeof(*driver) };
	return ummap_driver_open(uri, oflags, driver, h, &geom);
}

/* Reads the store through a filter, and writes to it if `writes`. */
static void use_store(bool writes)
{
	struct ummap_driver driver;
	uint8_t bytes[SIZE];
	void *h;

	check(try_open(&driver, UMMAP_O_WRITE, &h) == 0, "%s: %s", uri, umerrormsg());
	check(driver.read(h, bytes, SIZE, 0) == 0);
	check_bytes(bytes, SIZE, 0, 1);
	check(!writes || driver.write(h, bytes, 4096, 0) == 0);
	check(driver.close(h) == 0);
}

static void check_noticed(int fd, bool writes)
{
	struct ummap_driver driver;
	void *h;

	file_fill(fd, 0, SIZE, 0, 1);
	use_store(writes);
	file_fill(fd, 0, SIZE, 0, 2);
	check_fails(try_open(&driver, 0, &h), ESTALE);
}

int main(void)
{
	static const char *const filters[] = { "cache", "cow", "sum" };
	char image[320], beside[320];
	int root, fd;

	set_group();
	root = file_system_in(image, temp_named("image", 8 * MIB, image), "-I 128 -O ^has_journal");
	if (root < 0) {
		printf("skipped: no file system with time stamps of whole seconds\n");
		return 77;
	}
	fd = create(root, "data");
	for (int i = 0; i < 6; i++) {
		const char *filter = filters[i / 2];

		snprintf(beside, sizeof(beside), "%s/%s%d", temp_dir(), filter, i);
		snprintf(uri, sizeof(uri), "%s+posix:/proc/self/fd/%d?%s.path=%s%s", filter, fd,
			 filter, beside, i < 2 ? "&cache.size=2M" : "");
		check_noticed(fd, i % 2);
	}
	return 0;
}
