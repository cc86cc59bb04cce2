/* SPDX-License-Identifier: BSD-3-Clause */
/* The registry of a node in /dev/shm as other programs may have left it: the library joins it or
 * logs the reason, reads it while it changes, and leaves; umtop shows it. */
#include "fuzz.h"

#include "tools/top/top.h"
#include "base/log.h"
#include "node/node.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define SLOTS 6

static char group[32], path[REGISTRY_PATH_LEN];

static void put(int fd, const void *bytes, size_t len, size_t at)
{
	must(pwrite(fd, bytes, len, (off_t)at) == (ssize_t)len);
}

static void put_head(int fd, struct input *in)
{
	struct registry_head head = { REGISTRY_MAGIC,
				      REGISTRY_VERSION,
				      REGISTRY_SLOTS,
				      sizeof(struct registry_slot),
				      sizeof(struct registry_page),
				      { 0 } };

	head.magic = take_or(in, head.magic);
	head.version = (uint32_t)take_or(in, head.version);
	head.slots = (uint32_t)take_or(in, head.slots);
	put(fd, &head, sizeof(head), 0);
}

static uint64_t take_owner(struct input *in)
{
	switch (take(in) % 4) {
	case 0: return registry_owner(getpid());
	case 1: return registry_owner(getppid());
	case 2: return (uint64_t)registry_owner(getppid()) + take_number(in);
	default: return take_number(in);
	}
}

static void put_slot(int fd, struct input *in, unsigned i)
{
	struct registry_slot slot = { .owner = 0 };

	slot.owner = take_owner(in);
	slot.thread =
		take(in) % 2 ? take_number(in) : registry_thread(slot.owner, (uint32_t)getpid());
	slot.asks = (uint32_t)take_number(in);
	slot.dynamic = take(in);
	slot.limit = take_number(in);
	slot.budget = take_number(in);
	slot.held = take_number(in);
	slot.lacks = take_number(in);
	put(fd, &slot, sizeof(slot), offsetof(struct registry, slot) + i * sizeof(slot));
}

static void put_page(int fd, struct input *in, unsigned i)
{
	static struct registry_page page;
	uint64_t *words = (uint64_t *)&page;

	memset(&page, 0, sizeof(page));
	page.sequence = take(in) % 2;
	page.count = (uint32_t)take_number(in);
	page.updated = take_number(in);
	for (unsigned n = take(in) % 32; n > 0; n--)
		words[2 + take(in) % 128] = take_number(in);
	take_bytes(in, page.map[0].name, REGISTRY_NAME_LEN);
	memset(page.map[1].name, take(in), REGISTRY_NAME_LEN);
	put(fd, &page, sizeof(page), offsetof(struct registry, page) + i * sizeof(page));
}

/* Changes something in the registry while it is used. */
static void change(struct input *in)
{
	int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	uint8_t what = take(in);
	struct stat st;

	if (fd < 0)
		return;
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
		close(fd);
		return;
	}
	if (what % 8 == 7)
		unlink(path);
	else if (what % 8 == 6)
		must(ftruncate(fd, (off_t)(take_number(in) % (2 * sizeof(struct registry)))) == 0);
	else if (what % 8 < 4)
		put_slot(fd, in, take(in) % SLOTS);
	else
		put_page(fd, in, take(in) % SLOTS);
	close(fd);
}

static void make_file(struct input *in)
{
	uint8_t kind = take(in);
	int fd;

	unlink(path);
	if (kind == 255) {
		must(mkfifo(path, 0600) == 0);
		return;
	}
	if (kind == 254) {
		must(symlink("/dev/null", path) == 0);
		return;
	}
	fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, kind == 253 ? 0644 : 0600);
	must(fd >= 0 && ftruncate(fd, (off_t)(take_or(in, sizeof(struct registry)) %
					      (4 * sizeof(struct registry)))) == 0);
	put_head(fd, in);
	for (unsigned n = take(in) % SLOTS; n > 0; n--)
		put_slot(fd, in, take(in) % SLOTS);
	for (unsigned n = take(in) % SLOTS; n > 0; n--)
		put_page(fd, in, take(in) % SLOTS);
	close(fd);
}

static void look_on(struct view *view, FILE *out, bool json)
{
	const struct options o = { .looks = 1, .maps = true, .json = json };

	if (view_take(view) != 0) {
		must(strlen(fail_message()) > 10);
		return;
	}
	view_is_fresh(view);
	view_sort(view, HELD, false);
	(json ? print_json : print_text)(out, view, &o);
}

static void ask_others(void)
{
	unsigned n = 0;

	for (const struct registry_slot *slot = NULL; (slot = node_next(slot)); n++)
		node_ask(slot);
	must(n < REGISTRY_SLOTS);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static FILE *out;
	const struct node_self self = { .limit = 1 << 20, .dynamic = size % 2 };
	struct input in = { data, data + size };
	struct view view = { .count = 0, .group = group };

	if (!out) {
		snprintf(group, sizeof(group), "fuzz.%d", (int)getpid());
		registry_path(group, path);
		memcpy(view.path, path, sizeof(path));
		out = fopen("/dev/null", "we");
		must(out);
	}
	memcpy(view.path, path, sizeof(path));
	make_file(&in);
	look_on(&view, out, false);
	fail_clear();
	if (node_join(group, &self) != 0)
		must(strlen(fail_message()) > 10);
	node_attend();
	for (unsigned n = 1 + take(&in) % 4; n > 0; n--) {
		if (node_keep()) {
			node_publish(take_number(&in), take_number(&in), take_number(&in));
			ask_others();
			node_asked();
			must(node_page());
		}
		change(&in);
		look_on(&view, out, n % 2);
	}
	if (node_keep())
		node_reap();
	node_leave();
	unlink(path);
	free(view.process);
	return 0;
}
