/* SPDX-License-Identifier: BSD-3-Clause */
/* ummap_open_handle and ummap_driver_open_filters: stores that the program has opened itself. */
#include "common.h"

#include <criterion/criterion.h>
#include <ummap-driver.h>

#define SEG (16 * KIB)
#define SIZE (4 * SEG)

/* A store in memory that has no name. */
struct memory {
	struct ummap_uri uri;    /* argument of `open`, which finds the structure by it */
	char data[SIZE];
	int opens, closes;
};

static int memory_open(const struct ummap_uri *uri, int oflags, void **h, struct ummap_geom *geom)
{
	struct memory *m = (struct memory *)(uintptr_t)uri;

	check(strcmp(uri->path, "there") == 0 && oflags & UMMAP_O_WRITE);
	m->opens++;
	*h = m;
	*geom = (struct ummap_geom){ .size = SIZE, .align = 1,
				     .caps = UMMAP_CAP_WRITE | UMMAP_CAP_PARALLEL };
	return 0;
}

static int memory_close(void *h)
{
	((struct memory *)h)->closes++;
	return 0;
}

static int memory_read(void *h, void *buf, size_t len, uint64_t off)
{
	memcpy(buf, ((struct memory *)h)->data + off, len);
	return 0;
}

static int memory_write(void *h, const void *buf, size_t len, uint64_t off)
{
	memcpy(((struct memory *)h)->data + off, buf, len);
	return 0;
}

static const struct ummap_driver driver = {
	.struct_size = sizeof(driver),
	.abi = UMMAP_DRIVER_ABI,
	.scheme = "memory",
	.open = memory_open,
	.close = memory_close,
	.read = memory_read,
	.write = memory_write,
};

static struct memory memory = { .uri = { .scheme = "memory", .path = "there" } };

static void *open_memory(struct ummap_geom *geom)
{
	void *h;

	check(driver.open(&memory.uri, UMMAP_O_WRITE, &h, geom) == 0);
	return h;
}

Test(handle, is_mapped_and_closed)
{
	struct ummap_geom geom;
	void *h = open_memory(&geom), *m;

	memory.data[SEG] = 'a';
	check(ummap_open_handle(&driver, h, &geom, SIZE, 0, READ_WRITE, NULL, &m) == 0);
	check(((char *)m)[SEG] == 'a');
	((char *)m)[SEG + 1] = 'b';
	check(umsync(m, 0) == 0 && memory.data[SEG + 1] == 'b');
	check(memory.closes == 0 && umunmap(m, 0) == 0 && memory.closes == 1);
}

Test(handle, stays_open_after_an_error)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	struct ummap_driver other = driver;
	struct ummap_geom geom;
	void *h = open_memory(&geom), *m;

	check_fails(ummap_open_handle(NULL, h, &geom, SIZE, 0, READ_WRITE, NULL, &m), EINVAL);
	check_fails(ummap_open_handle(&driver, h, NULL, SIZE, 0, READ_WRITE, NULL, &m), EINVAL);
	check_fails(ummap_open_handle(&driver, h, &geom, SIZE, 0, READ_WRITE, NULL, NULL), EINVAL);
	check_fails(ummap_open_handle(&driver, h, &geom, 0, 0, READ_WRITE, NULL, &m), EINVAL);
	attr.struct_size = 1;
	check_fails(ummap_open_handle(&driver, h, &geom, SIZE, 0, READ_WRITE, &attr, &m), EINVAL);
	other.abi++;
	check_fails(ummap_open_handle(&other, h, &geom, SIZE, 0, READ_WRITE, NULL, &m), EINVAL);
	other = driver;
	other.read = NULL;
	check_fails(ummap_open_handle(&other, h, &geom, SIZE, 0, READ_WRITE, NULL, &m), EINVAL);
	other = driver;
	other.open = NULL;
	other.write = NULL;
	check_fails(ummap_open_handle(&other, h, &geom, SIZE, 0, READ_WRITE, NULL, &m), EACCES);
	attr = (struct ummap_attr)UMMAP_ATTR_INIT;
	/* The store opens, but the address space is too small for this mapping. */
	attr.before = (size_t)1 << 59;
	check_fails(ummap_open_handle(&driver, h, &geom, SIZE, 0, READ_WRITE, &attr, &m), ENOMEM);
	check(memory.closes == 0);
	check(ummap_open_handle(&driver, h, &geom, SIZE, 0, READ_WRITE, NULL, &m) == 0);
	check(umunmap(m, 0) == 0 && memory.closes == 1);
}

Test(handle, of_a_uri)
{
	struct ummap_driver posix = { .struct_size = sizeof(posix) };
	struct ummap_geom geom;
	int fd = temp_file(SIZE), other = temp_file(SIZE);
	char uri[64];
	void *h, *m;

	file_fill(fd, 0, SIZE, 0, 1);
	file_fill(other, 0, SIZE, 0, 2);
	snprintf(uri, sizeof(uri), "posix:/proc/self/fd/%d", fd);
	check(ummap_driver_open(uri, UMMAP_O_WRITE, &posix, &h, &geom) == 0);
	check(ummap_open_handle(&posix, h, &geom, SIZE, 0, READ_WRITE, NULL, &m) == 0);
	check_bytes(m, SIZE, 0, 1);
	/* The mapping can change to another store, which closes the handle. */
	check(umremap(m, 0, other, -1, UMMAP_SWITCH, &m) == 0);
	check_bytes(m, SIZE, 0, 2);
	check(umunmap(m, 0) == 0);
}

Test(filters, stand_before_a_driver_that_is_not_registered)
{
	struct ummap_driver outer = { .struct_size = sizeof(outer) };
	struct ummap_geom geom;
	void *h, *m;

	check(ummap_driver_open_filters("error+trace:?error.op=write&error.nth=1&"
					"error.errno=ENOSPC&trace.file=/dev/null", &driver,
					&memory.uri, UMMAP_O_WRITE, &outer, &h, &geom) == 0);
	check(memory.opens == 1 && strcmp(outer.scheme, "error") == 0 && geom.size == SIZE);
	check(ummap_open_handle(&outer, h, &geom, SIZE, 0, READ_WRITE, NULL, &m) == 0);
	((char *)m)[0] = 'c';
	check_fails(umsync(m, 0), ENOSPC);
	check(umsync(m, 0) == 0 && memory.data[0] == 'c');
	check(umunmap(m, 0) == 0 && memory.closes == 1);
}

Test(filters, are_checked)
{
	struct ummap_driver outer = { .struct_size = sizeof(outer) };
	const struct ummap_driver *null = NULL;
	struct ummap_uri no_path = { .scheme = "memory" };
	struct ummap_geom geom;
	void *h;

	check_fails(ummap_driver_open_filters("error:", &driver, &no_path, UMMAP_O_WRITE, &outer,
					      &h, &geom), EINVAL);
	no_path.path = "";
	check_fails(ummap_driver_open_filters("error:", &driver, &no_path, UMMAP_O_WRITE, &outer,
					      &h, &geom), EINVAL);
	check_fails(ummap_driver_open_filters("error:/other", &driver, &memory.uri, UMMAP_O_WRITE,
					      &outer, &h, &geom), EINVAL);
	check_fails(ummap_driver_open_filters("posix:", &driver, &memory.uri, UMMAP_O_WRITE,
					      &outer, &h, &geom), EINVAL);
	check_fails(ummap_driver_open_filters("error:?error.wrong=1", &driver, &memory.uri,
					      UMMAP_O_WRITE, &outer, &h, &geom), EINVAL);
	check_fails(ummap_driver_open_filters("error:", null, &memory.uri, UMMAP_O_WRITE, &outer,
					      &h, &geom), EINVAL);
	check(memory.opens == 0);
}

Test(start, makes_the_budget_known)
{
	struct umstat st = { .struct_size = sizeof(st) };

	check(umstat(NULL, &st) == 0 && st.budget_bytes == 0);
	check(umstart() == 0 && umstart() == 0);
	check(umstat(NULL, &st) == 0 && st.budget_bytes > 0 && st.mappings == 0);
}
