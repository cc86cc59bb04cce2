/* SPDX-License-Identifier: BSD-3-Clause */
/* Handles of the store of a check: opening, filling, and the calls that have to succeed. */
#include "conform.h"

#include <errno.h>
#include <string.h>
#include <ummap.h>

#define PIECE (256 * KIB)   /* of filling */

struct options options;
struct facts *facts;

int handle_try(const char *uri, int oflags, struct handle *h)
{
	memset(h, 0, sizeof(*h));
	pthread_mutex_init(&h->turn, NULL);
	h->driver.struct_size = sizeof(h->driver);
	return ummap_driver_open(uri, oflags, &h->driver, &h->h, &h->geom) == 0 ? 0 : -errno;
}

static void open_with(int oflags, struct handle *h)
{
	int err = handle_try(options.uri, oflags, h);

	expect(err == 0, "%s cannot be opened%s: %s", options.uri, oflags & UMMAP_O_WRITE ? " for writing" : "",
	       umerrormsg());
}

void handle_open(struct handle *h)
{
	open_with(facts->writable ? UMMAP_O_WRITE | (facts->creates ? UMMAP_O_CREATE : 0) : 0, h);
}

void handle_open_readonly(struct handle *h)
{
	open_with(0, h);
}

/* Gives the store known bytes. */
static void fill(struct handle *h)
{
	if (h->driver.resize && !options.overwrite && handle_size(h) > facts->size) {
		int err = h->driver.resize(h->h, facts->size);

		/* A filter cannot when the driver behind it cannot. */
		expect(err == 0 || err == -EOPNOTSUPP, "resize to %zu bytes: %s", facts->size, error_name(err));
	}
	for (size_t off = 0, len; off < facts->size; off += len) {
		len = facts->size - off < PIECE ? facts->size - off : PIECE;
		random_fill(shadow + off, len);
		handle_write(h, shadow + off, len, off);
	}
	if (options.swallows)
		memset(shadow, 0, facts->size);
}

void handle_fill(struct handle *h)
{
	handle_open(h);
	shadow = memory(facts->size);
	doing("giving the store its first bytes");
	if (facts->writable)
		fill(h);
	else
		handle_read(h, shadow, facts->size, 0);
}

void handle_need_two(void)
{
	if (options.alone)
		skip("the store has one handle at a time");
}

void handle_fill_writable(struct handle *h)
{
	if (!facts->writable)
		skip("the store can only be read");
	handle_fill(h);
}

void handle_close(struct handle *h)
{
	int err = h->driver.close(h->h);

	expect(err == 0, "close: %s", error_name(err));
	h->h = NULL;
}

uint64_t handle_size(struct handle *h)
{
	uint64_t size = h->geom.size;
	int err = 0;

	if (h->driver.size)
		err = h->driver.size(h->h, &size);
	expect(err == 0, "size: %s", error_name(err));
	return size;
}

bool handle_can(const struct handle *h, uint32_t cap)
{
	return h->geom.caps & cap;
}

static void take_turn(struct handle *h)
{
	if (!handle_can(h, UMMAP_CAP_PARALLEL))
		pthread_mutex_lock(&h->turn);
}

static void end_turn(struct handle *h)
{
	if (!handle_can(h, UMMAP_CAP_PARALLEL))
		pthread_mutex_unlock(&h->turn);
}

void handle_read(struct handle *h, void *buf, size_t len, uint64_t off)
{
	int err;

	take_turn(h);
	err = h->driver.read(h->h, buf, len, off);
	end_turn(h);
	expect(err == 0, "a read of %zu bytes at %ju: %s", len, (uintmax_t)off, error_name(err));
}

void handle_write(struct handle *h, const void *buf, size_t len, uint64_t off)
{
	int err;

	take_turn(h);
	err = h->driver.write(h->h, buf, len, off);
	end_turn(h);
	expect(err == 0, "a write of %zu bytes at %ju: %s", len, (uintmax_t)off, error_name(err));
}

void handle_flush(struct handle *h)
{
	int err = 0;

	take_turn(h);
	if (h->driver.flush)
		err = h->driver.flush(h->h, 0, UINT64_MAX);
	end_turn(h);
	expect(err == 0, "flush: %s", error_name(err));
}
