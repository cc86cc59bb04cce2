/* SPDX-License-Identifier: BSD-3-Clause */
/* Exports of other processes, and the memory that they describe: an import fails with a message, or
 * transfers as many bytes as there are. */
#include "fuzz.h"

#include "base/log.h"
#include "memory/shared_pool.h"
#include "peer/import.h"
#include "peer/export.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define SEGS 16

/* Creates a memory object that an export may name. The other process chooses its length. */
static int make_object(uint64_t len, bool sealed)
{
	int fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	must(fd >= 0);
	if (ftruncate(fd, (off_t)(len & INT64_MAX)) < 0)
		must(ftruncate(fd, 1 << 20) == 0);
	if (sealed)
		must(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
	return fd;
}

static void put_segs(int fd, struct input *in)
{
	struct seg seg;

	for (unsigned i = 0; i < SEGS; i++) {
		memset(&seg, 0, sizeof(seg));
		seg.lock = take(in) % 4 == 3;
		seg.head = SEG_VALID | SEG_DIRTY | take_number(in);
		seg.frame = (uint32_t)take_number(in);
		if (pwrite(fd, &seg, sizeof(seg), (off_t)(export_segs_at() + i * sizeof(seg))) !=
		    sizeof(seg))
			return;
	}
}

static int make_control(struct input *in)
{
	size_t len = export_segs_at() + sys_page();
	int fd = make_object(take_or(in, len) % (4 * len), take(in) < 240);
	struct export_header head = { .magic = EXPORT_MAGIC, .version = EXPORT_VERSION };
	struct stat st;

	head.magic = take_or(in, EXPORT_MAGIC);
	head.version = (uint32_t)take_or(in, EXPORT_VERSION);
	head.page = (uint32_t)take_or(in, sys_page());
	head.seg_size = take_or(in, 4096);
	head.count = take_or(in, SEGS);
	head.size = take_or(in, SEGS * 4096);
	/* The length of a sealed object must not change. */
	must(fstat(fd, &st) == 0);
	if (st.st_size >= (off_t)sizeof(head))
		must(pwrite(fd, &head, sizeof(head), 0) == sizeof(head));
	if (st.st_size >= (off_t)(export_segs_at() + SEGS * sizeof(struct seg)))
		put_segs(fd, in);
	return fd;
}

static void copy(struct umimport *peer, struct input *in)
{
	static char buf[1 << 16];

	for (unsigned n = 1 + take(in) % 8; n > 0; n--) {
		uint64_t at = take_number(in);
		size_t len = take_number(in) % sizeof(buf), got;

		got = take(in) % 2 ? import_get(peer, buf, len, at) :
				     import_put(peer, buf, len, at);
		must(got <= len);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = { data, data + size };
	int control = make_control(&in),
	    pool = make_object(take_or(&in, (uint64_t)SHARED_POOL_SPANS << SHARED_POOL_SPAN_SHIFT),
			       take(&in) < 240);
	struct export_description o = {
		.magic = (uint32_t)EXPORT_MAGIC, .pid = getpid(), .control = control, .pool = pool
	};
	struct stat control_file, pool_file;
	struct umexport offer;
	struct umimport *peer;

	must(fstat(control, &control_file) == 0 && fstat(pool, &pool_file) == 0);
	export_identify(&o.machine, &o.pid_namespace);
	o.magic = (uint32_t)take_or(&in, o.magic);
	o.control = (int32_t)take_or(&in, (uint64_t)control);
	o.pool = (int32_t)take_or(&in, (uint64_t)pool);
	o.pid = (int32_t)take_or(&in, (uint64_t)getpid());
	o.machine = take_or(&in, o.machine);
	o.device = take_or(&in, control_file.st_dev);
	o.control_file = take_or(&in, control_file.st_ino);
	o.pool_file = take_or(&in, pool_file.st_ino);
	memcpy(&offer, &o, sizeof(offer));
	fail_clear();
	if (import_open(&offer, &peer) == 0) {
		copy(peer, &in);
		import_close(peer);
	} else {
		must(strlen(fail_message()) > 10);
	}
	close(control);
	close(pool);
	return 0;
}
