/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Overlay files with correct sums and arbitrary contents, as logs of wal+: the filter refuses them
 * with a message, or reads them, goes back to a commit, applies commits, and makes new ones. The
 * store and the log are files in memory.
 */
#include "fuzz.h"

#include "../drivers/overlay_file.h"
#include "base/log.h"

#include <errno.h>
#include <ummap.h>

#define ROOM ((uint64_t)1 << 20) /* bytes that a file can have; behind them it has none */

static struct mem {
	uint64_t size;
	uint8_t bytes[ROOM];
} store, record_log;

/* ---- A driver of files in memory ---- */

static int mem_open(const struct ummap_uri *uri, int oflags, void **h, struct ummap_geom *geom)
{
	struct mem *m = strcmp(uri->path, "log") == 0 ? &record_log : &store;

	*h = m;
	geom->size = m->size;
	geom->align = 1;
	geom->caps = UMMAP_CAP_PARALLEL |
		     (oflags & UMMAP_O_WRITE ? UMMAP_CAP_WRITE | UMMAP_CAP_GROW : 0);
	return 0;
}

static int mem_close(void *h)
{
	(void)h;
	return 0;
}

static int mem_read(void *h, void *buf, size_t len, uint64_t off)
{
	struct mem *m = h;
	size_t inside = off < ROOM ? ROOM - off < len ? ROOM - off : len : 0;

	must(off <= INT64_MAX && len <= INT64_MAX - off);
	memcpy(buf, m->bytes + (inside ? off : 0), inside);
	memset((char *)buf + inside, 0, len - inside);
	return 0;
}

static int mem_write(void *h, const void *buf, size_t len, uint64_t off)
{
	struct mem *m = h;

	must(off <= INT64_MAX && len <= INT64_MAX - off);
	if (off > ROOM || len > ROOM - off)
		return -ENOSPC;
	memcpy(m->bytes + off, buf, len);
	m->size = off + len > m->size ? off + len : m->size;
	return 0;
}

static int mem_writev(void *h, const struct iovec *iov, int n, uint64_t off)
{
	int err = 0;

	for (int i = 0; i < n && !err; off += iov[i++].iov_len)
		err = mem_write(h, iov[i].iov_base, iov[i].iov_len, off);
	return err;
}

static int mem_flush(void *h, uint64_t off, uint64_t len)
{
	(void)h, (void)off, (void)len;
	return 0;
}

static int mem_resize(void *h, uint64_t size)
{
	struct mem *m = h;

	must(size <= INT64_MAX);
	if (size < ROOM)
		memset(m->bytes + size, 0, ROOM - size);
	m->size = size;
	return 0;
}

static int mem_size(void *h, uint64_t *size)
{
	*size = ((struct mem *)h)->size;
	return 0;
}

static const struct ummap_driver driver = {
	.struct_size = sizeof(driver),
	.abi = UMMAP_DRIVER_ABI,
	.scheme = "fuzzmem",
	.keys = "direct",
	.help = "fuzzmem:NAME  files in memory",
	.open = mem_open,
	.close = mem_close,
	.read = mem_read,
	.write = mem_write,
	.writev = mem_writev,
	.flush = mem_flush,
	.resize = mem_resize,
	.size = mem_size,
};

/* ---- A log ---- */

static void take_head(struct input *in, struct overlay_head *head)
{
	*head = (struct overlay_head){ .salt = take_number(in),
				       .policy = take_or(in, OVERLAY_WAL) };
	head->block = take_or(in, OVERLAY_BLOCK);
	head->base = take(in);
	head->base_size = store.size;
	head->home = take_or(in, head->base);
	head->floor = take_or(in, head->home);
	head->goal = take(in) % 4 == 3 ? take_number(in) : 0;
	head->flags = take(in) % 8 == 7 ? take(in) : 0;
	strcpy(head->store.name, "store");
}

static void put_block(struct input *in, struct overlay_file *log)
{
	char block[OVERLAY_BLOCK];
	struct overlay_record r;

	memset(block, take(in), sizeof(block));
	r = file_record(log, take_number(in), block);
	r.commit = take_or(in, r.commit);
	r.data = take_or(in, r.data);
	r.slot = take_or(in, r.slot);
	r.flags = take_or(in, r.flags);
	file_add_record(log, block, &r);
}

static void put_commit(struct input *in, struct overlay_file *log)
{
	struct overlay_commit c = file_commit(log, take_number(in), 0);

	c.number = take_or(in, c.number);
	c.floor = take_or(in, c.number > 3 ? c.number - take(in) % 3 : c.number);
	c.slots = take_or(in, c.slots);
	c.digest = take_or(in, c.digest);
	file_add_commit(log, &c);
}

static void make_log(struct input *in)
{
	struct overlay_file log;
	struct overlay_head head;

	memset(&store, 0, sizeof(store));
	memset(&record_log, 0, sizeof(record_log));
	store.size = take_number(in) % ROOM;
	take_head(in, &head);
	must(file_begin(&log, "log", &head) == 0);
	for (unsigned n = take(in) % 48; n > 0; n--) {
		if (take(in) % 3 == 0)
			put_block(in, &log);
		else
			put_commit(in, &log);
	}
	if (take(in) % 2)
		file_acknowledge(&log, take_or(in, log.number));
	file_end(&log);
	for (unsigned n = take(in) % 4; n > 0; n--)
		record_log.bytes[take_number(in) % ROOM] = take(in);
	if (take(in) == 255)
		record_log.size = take_number(in) % ROOM;
}

static void use(struct input *in)
{
	static char buf[3 * OVERLAY_BLOCK];
	struct ummap_driver wal = { .struct_size = sizeof(wal) };
	char uri[200], back[64] = "";
	struct ummap_geom geom;
	bool write = take(in) % 4 != 3;
	uint64_t oldest, newest;
	void *h;

	if (take(in) % 2)
		snprintf(back, sizeof(back), "&wal.commit=%ju", (uintmax_t)take_number(in));
	snprintf(uri, sizeof(uri), "wal+fuzzmem:store?wal.path=log&wal.keep=%u%s",
		 1 + take(in) % OVERLAY_KEEP_MAX, back);
	if (ummap_driver_open(uri, write ? UMMAP_O_WRITE : 0, &wal, &h, &geom) != 0) {
		must(strlen(umerrormsg()) > 10);
		return;
	}
	must(wal.commits(h, &oldest, &newest) == 0 && oldest <= newest);
	for (unsigned n = take(in) % 8; n > 0; n--) {
		uint64_t off = take_number(in) % ROOM;
		size_t len = 1 + take_number(in) % sizeof(buf);

		switch (take(in) % 3) {
		case 0: wal.read(h, buf, len, off); break;
		case 1: wal.write(h, buf, len, off); break;
		default: wal.flush(h, 0, UINT64_MAX); break;
		}
	}
	wal.close(h);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = { data, data + size };
	static bool ready;

	if (!ready) {
		must(ummap_driver_register(&driver) == 0);
		side_driver = &driver;
		ready = true;
	}
	make_log(&in);
	use(&in);
	use(&in);
	return 0;
}
