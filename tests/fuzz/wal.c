/* SPDX-License-Identifier: BSD-3-Clause */
/* Logs of wal+ with sums that fit, whatever they say: they are refused with a sentence, or read, brought home, gone back in
 * and gone on with. Store and log are files in memory. */
#include "fuzz.h"

#include "drivers/wal_log.h"
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
	geom->caps = UMMAP_CAP_PARALLEL | (oflags & UMMAP_O_WRITE ? UMMAP_CAP_WRITE | UMMAP_CAP_GROW : 0);
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
	.struct_size = sizeof(driver), .abi = UMMAP_DRIVER_ABI, .scheme = "fuzzmem", .keys = "direct",
	.help = "fuzzmem:NAME  files in memory", .open = mem_open, .close = mem_close, .read = mem_read, .write = mem_write,
	.writev = mem_writev, .flush = mem_flush, .resize = mem_resize, .size = mem_size,
};

/* ---- A log ---- */

static void put_head(struct input *in, struct side *file, struct wal_head *head)
{
	struct header slots = side_header(WAL_HEAD_MAGIC);

	*head = (struct wal_head){ .salt = take_number(in), .name = "store" };
	head->tail = take_or(in, WAL_START);
	head->chain = take_number(in);
	head->home = take_or(in, take(in));
	head->acked = take_or(in, head->home);
	head->floor = take_or(in, head->home);
	must(header_write_both(&slots, file, head, sizeof(*head)) == 0);
}

static void put_records(struct input *in, struct side *file, const struct wal_head *head)
{
	uint64_t at = head->tail, prev = head->chain, epoch = head->home + 1;
	static char block[WAL_BLOCK];

	for (unsigned n = take(in) % 48; n > 0 && at < ROOM / 2; n--) {
		struct wal_record r = { .magic = WAL_RECORD_MAGIC, .kind = take(in) % 3 == 0 ? WAL_DATA : WAL_COMMIT };
		uint32_t blocks = r.kind == WAL_DATA ? 1 + take(in) % 3 : 0;
		char data[3 * WAL_BLOCK];

		memset(block, take(in), sizeof(block));
		for (uint32_t k = 0; k < blocks; k++)
			memcpy(data + k * WAL_BLOCK, block, WAL_BLOCK);
		r.blocks = (uint32_t)take_or(in, blocks);
		r.epoch = take_or(in, epoch);
		r.place = take_or(in, at);
		r.where = take_number(in);
		r.data = r.kind == WAL_DATA ? checksum(data, blocks * WAL_BLOCK, head->salt) : take_or(in, r.epoch);
		r.prev = take_or(in, prev);
		r.sum = checksum(&r, offsetof(struct wal_record, sum), head->salt);
		if (side_write(file, &r, sizeof(r), at) || side_write(file, data, blocks * WAL_BLOCK, at + sizeof(r)))
			return;
		at += sizeof(r) + blocks * WAL_BLOCK;
		prev = r.sum;
		epoch += r.kind == WAL_COMMIT;
	}
}

static void make_log(struct input *in)
{
	struct ummap_geom geom = { .size = 0 };
	struct wal_head head;
	struct side file;

	memset(&store, 0, sizeof(store));
	memset(&record_log, 0, sizeof(record_log));
	store.size = take_number(in) % ROOM;
	must(side_open(&file, "log", UMMAP_O_WRITE, 0600, UMMAP_LOCK_NONE, &geom) == 0);
	put_head(in, &file, &head);
	if (head.tail < ROOM)
		put_records(in, &file, &head);
	for (unsigned n = take(in) % 4; n > 0; n--)
		record_log.bytes[take_number(in) % ROOM] = take(in);
	if (take(in) == 255)
		record_log.size = take_number(in) % ROOM;
	side_close(&file);
}

static void look(struct input *in)
{
	struct ummap_geom geom = { .size = 0 };
	struct wal_found found;
	struct wal_log l;

	wal_has_commits("log");
	if (wal_look(&l, "log", take(in) % 2 ? UMMAP_LOCK_SHARED : UMMAP_LOCK_NONE, &found, &geom) == 0)
		wal_close(&l);
	else
		must(*geom.why);
}

static void use(struct input *in)
{
	static char buf[3 * WAL_BLOCK];
	struct ummap_driver wal = { .struct_size = sizeof(wal) };
	char uri[200], back[64] = "";
	struct ummap_geom geom;
	bool write = take(in) % 4 != 3;
	uint64_t oldest, newest;
	void *h;

	if (take(in) % 2)
		snprintf(back, sizeof(back), "&wal.commit=%ju", (uintmax_t)take_number(in));
	snprintf(uri, sizeof(uri), "wal+fuzzmem:store?wal.path=log&wal.keep=%u%s", 1 + take(in) % WAL_KEEP_MAX, back);
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
	look(&in);
	use(&in);
	use(&in);
	return 0;
}
