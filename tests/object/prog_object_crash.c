/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * prog_object_crash - a put dies before its first system call, its second, and so on until it is through, by ptrace(2). Each time
 * the name has the old array or the new one, whole, and the collector leaves nothing else in the container. A new one of a put of
 * the whole, and one that is made from the old version.
 */
#include "object.h"

#include <signal.h>
#include <sys/ptrace.h>

#define SIDE 40
static const struct umobject_shape shape = { .type = UMOBJECT_UINT32, .rank = 2, .dims = { SIDE, SIDE }, .chunk = { 25, 40 } };
static uint32_t data[SIDE * SIDE];

static void put_number(umobject_container *c, uint32_t number)
{
	for (unsigned i = 0; i < SIDE * SIDE; i++)
		data[i] = number;
	good(umobject_put_array(c, "one", &shape, data));
}

/* Both chunks, as another version of what is held. */
static void change_number(umobject_container *c, uint32_t number)
{
	umobject_version *v;
	umobject_put *p;

	for (unsigned i = 0; i < SIDE * SIDE; i++)
		data[i] = number;
	good(umobject_hold(c, "one", 0, &v));
	good(umobject_begin_from(v, &p, NULL));
	good(umobject_put_chunk(p, 0, data));
	good(umobject_put_chunk(p, 1, data));
	good(umobject_put_attribute(p, "a", &number, sizeof(number)));
	good(umobject_commit(p, 0, NULL));
	umobject_release(v);
}

struct work {
	void (*put)(umobject_container *c, uint32_t number);
	uint32_t number;
};

static void work(void *arg)
{
	const struct work *w = arg;
	umobject_container *c = open_box(box(), 0, 0);

	check(ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0);
	raise(SIGSTOP);
	w->put(c, w->number);
	_exit(0);
}

/* False: it was through before that call. */
static bool die_at(struct work *w, unsigned call)
{
	pid_t pid = start_child(work, w);
	unsigned stops = 0;
	int status;

	check(waitpid(pid, &status, 0) == pid && WIFSTOPPED(status));
	check(ptrace(PTRACE_SETOPTIONS, pid, NULL, (void *)(uintptr_t)(PTRACE_O_EXITKILL | PTRACE_O_TRACESYSGOOD)) == 0);
	/* A stop before each call, and one behind it. */
	while (stops < 2 * call + 1) {
		check(ptrace(PTRACE_SYSCALL, pid, NULL, NULL) == 0);
		check(waitpid(pid, &status, 0) == pid);
		if (WIFEXITED(status)) {
			check(WEXITSTATUS(status) == 0);
			return false;
		}
		check(WIFSTOPPED(status) && WSTOPSIG(status) == (SIGTRAP | 0x80), "status %#x", (unsigned)status);
		stops++;
	}
	kill(pid, SIGKILL);
	check_killed(wait_child(pid), SIGKILL);
	return true;
}

static uint32_t number_now(umobject_container *c)
{
	umobject_version *v;
	uint32_t got;

	good(umobject_hold(c, "one", 0, &v));
	check(umobject_check(v, NULL, NULL) == 0);
	good(umobject_read(v, NULL, NULL, data));
	got = data[0];
	for (unsigned i = 1; i < SIDE * SIDE; i++)
		check(data[i] == got, "a mixture of %u and %u", got, data[i]);
	umobject_release(v);
	return got;
}

static int count_one(void *n, uint64_t version)
{
	(void)version;
	++*(unsigned *)n;
	return 0;
}

static void check_clean(umobject_container *c, unsigned call)
{
	struct umobject_garbage again = { .struct_size = sizeof(again) };
	unsigned n = 0;

	good(umobject_gc(c, NULL));
	good(umobject_versions(c, "one", count_one, &n));
	/* A file that was on its way to storage when its process died is let go by the kernel some time later, and so is its lock. */
	for (unsigned i = 0; i < 1000 && count_stored(VERSIONS) != n; i++) {
		pause_ms(10);
		good(umobject_gc(c, NULL));
	}
	check(n == 1, "after call %u: %u versions of the name", call, n);
	check(count_stored(VERSIONS) == n && count_stored(CHUNKS) == 2 * n && count_stored(VIEWS) == n,
	      "after call %u: %u versions, %u chunks, %u views for %u", call, count_stored(VERSIONS), count_stored(CHUNKS),
	      count_stored(VIEWS), n);
	check(*output_of("find '%s' -name '.?*' %s", box(), "") == '\0', "after call %u: temporary names", call);
	good(umobject_gc(c, &again));
	check(again.versions == 0 && again.chunks == 0);
}

static void die_everywhere(void (*put)(umobject_container *c, uint32_t number), unsigned step)
{
	umobject_container *c = new_box(1);
	uint32_t before = 1, after, changes = 0;
	struct work w = { put, 2 };
	unsigned call = 0;
	bool died;

	put_number(c, before);
	do {
		died = die_at(&w, call);
		after = number_now(c);
		check(after == before || after == w.number, "call %u: %u", call, after);
		changes += after != before;
		check_clean(c, call);
		before = after;
		w.number++;
		call += step;
	} while (died);
	/* It was killed before and behind the moment at which the name changes. */
	check(call > 30 && changes > 1 && changes < call / step - 10, "%u calls, %u versions", call, changes);
	printf("%u calls, %u of them behind the commit\n", call, changes);
	umobject_close(c);
	box_number++;
}

int main(void)
{
	die_everywhere(put_number, 1);
	/* Most of its calls are the same. */
	die_everywhere(change_number, by_time(5, 1));
	return 0;
}
