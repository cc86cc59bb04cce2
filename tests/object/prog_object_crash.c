/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * prog_object_crash - a process that puts is killed before its first system call, its second one,
 * and so on, with ptrace(2). Each time the name has the old array or the new one, entirely, and the
 * collector leaves nothing else in the container. The puts are: a whole array, a version made from
 * the old one, and the first version of a name. A removal of a name is killed, too.
 */
#include "object.h"

#include <signal.h>
#include <sys/ptrace.h>

#define SIDE 40
static const struct umobject_shape shape = { .type = UMOBJECT_UINT32, .rank = 2, .dims = { SIDE,
	SIDE }, .chunk = { 25, 40 } };
static uint32_t data[SIDE * SIDE];

static void put_number(umobject_container *c, uint32_t number)
{
	for (unsigned i = 0; i < SIDE * SIDE; i++)
		data[i] = number;
	good(umobject_put_array(c, "one", &shape, data));
}

/* Puts both chunks, in a version made from the held one. */
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

/* Returns false if the process ended before that call. */
static bool die_at(struct work *w, unsigned call)
{
	pid_t pid = start_child(work, w);
	unsigned stops = 0;
	int status;

	check(waitpid(pid, &status, 0) == pid && WIFSTOPPED(status));
	check(ptrace(PTRACE_SETOPTIONS, pid, NULL,
		     (void *)(uintptr_t)(PTRACE_O_EXITKILL | PTRACE_O_TRACESYSGOOD)) == 0);
	/* The process stops before and after each call. */
	while (stops < 2 * call + 1) {
		check(ptrace(PTRACE_SYSCALL, pid, NULL, NULL) == 0);
		check(waitpid(pid, &status, 0) == pid);
		if (WIFEXITED(status)) {
			check(WEXITSTATUS(status) == 0);
			return false;
		}
		check(WIFSTOPPED(status) && WSTOPSIG(status) == (SIGTRAP | 0x80), "status %#x",
		      (unsigned)status);
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

static unsigned count_names(const char *folder)
{
	return (unsigned)atoi(output_of("ls '%s/%s' | wc -l", box(), folder));
}

/* Checks that the views of names are those of their newest versions. */
static void check_views(umobject_container *c, unsigned call)
{
	char wanted[64], *to = wanted + sprintf(wanted, "../views/");
	umobject_version *v;
	struct umobject_id id;

	if (count_names("names") == 0) {
		check(count_names("h5") == 0, "after call %u: a view without a name", call);
		return;
	}
	good(umobject_hold(c, "one", 0, &v));
	id = stat_held(v).id;
	umobject_release(v);
	for (unsigned i = 0; i < 16; i++)
		to += sprintf(to, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
			      id.bytes[i]);
	strcpy(to, ".h5");
	check(strcmp(output_of("readlink '%s/%s'", box(), "h5/one.h5"), wanted) == 0, "after call "
	      "%u: the view is another one's", call);
}

/* A killed process loses no name. The name may show the view of another version until the collector
 * has run. */
static void find_no_loss(void *call, const char *name, const char *sentence)
{
	check(strstr(sentence, "view"), "after call %u: %s: %s", *(unsigned *)call, name, sentence);
}

static void check_clean(umobject_container *c, unsigned keep, unsigned call)
{
	struct umobject_garbage again = { .struct_size = sizeof(again) };
	unsigned n = 0;

	check(umobject_check_container(c, NULL, 0, find_no_loss, &call) >= 0, "%s",
	      umobject_errormsg());
	good(umobject_gc(c, NULL));
	check(umobject_check_container(c, NULL, 0, find_no_loss, &call) == 0, "after call %u: "
	      "damage", call);
	good(umobject_versions(c, "one", count_one, &n));
	/* The kernel closes a file that was being written, and releases its lock, some time after
	 * the process has ended. */
	for (unsigned i = 0; i < 1000 && count_stored(VERSIONS) != n; i++) {
		pause_ms(10);
		good(umobject_gc(c, NULL));
	}
	check(n <= keep, "after call %u: %u versions of the name", call, n);
	/* The newest version may have its link in versions/ already. */
	check(n ? count_names("names") == 1 && count_names("versions") - (n - 1) <= (keep > 1) :
	      count_names("names") + count_names("versions") == 0, "after call %u: %u names, and "
	      "%u of old versions", call, count_names("names"), count_names("versions"));
	check_views(c, call);
	check(count_stored(VERSIONS) == n && count_stored(CHUNKS) == 2 * n &&
	      count_stored(VIEWS) == n, "after call %u: %u versions, %u chunks, %u views for %u",
	      call, count_stored(VERSIONS), count_stored(CHUNKS), count_stored(VIEWS), n);
	check(*output_of("find '%s' -name '.?*' %s", box(), "") == '\0', "after call %u: temporary "
	      "names", call);
	good(umobject_gc(c, &again));
	check(again.versions == 0 && again.chunks == 0);
}

static void die_everywhere(void (*put)(umobject_container *c, uint32_t number), unsigned keep,
			   unsigned step)
{
	umobject_container *c = new_box(keep);
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
		check_clean(c, keep, call);
		before = after;
		w.number++;
		call += step;
	} while (died);
	/* The process was killed before and after the moment at which the name changes. */
	check(call > 30 && changes > (step == 1) && changes < call / step - 10, "%u calls, %u "
	      "versions", call, changes);
	printf("%u calls, %u of them behind the commit\n", call, changes);
	umobject_close(c);
	box_number++;
}

static void delete_name(umobject_container *c, uint32_t number)
{
	(void)number;
	good(umobject_delete(c, "one"));
}

static int note_name(void *seen, const char *name)
{
	check(strcmp(name, "one") == 0);
	*(bool *)seen = true;
	return 0;
}

/* Checks that every listed name has versions, and that all of them can be held by number and by
 * id. */
static bool is_there(umobject_container *c)
{
	bool there = false;
	unsigned n = 0;
	umobject_version *v;

	good(umobject_list(c, note_name, &there));
	good(umobject_versions(c, "one", count_one, &n));
	check(there == (n > 0), "%u versions", n);
	if (!there)
		refused(umobject_hold(c, "one", 1, &v), ENOENT, "cannot find version 1");
	return there;
}

/* A new name exists or not, and so does a removed one. */
static void start_and_end_processes(unsigned step)
{
	umobject_container *c = new_box(3);
	struct work come = { put_number, 7 }, go = { delete_name, 0 };
	unsigned call = 0, came = 0, stayed = 0;
	bool died;

	do {
		bool first = call / step % 2;
		uint32_t number;

		if (!first)
			put_number(c, 6);
		died = die_at(&come, call);
		number = is_there(c) ? number_now(c) : 0;
		check(number == 7 || (first ? number == 0 : number == 6), "call %u: %u", call,
		      number);
		came += number == 7;
		check_clean(c, 3, call);
		if (is_there(c))
			good(umobject_delete(c, "one"));
		check_clean(c, 0, call);
		call += step;
	} while (died);
	for (call = 0, died = true; died; call += step > 1 ? 4 : 1) {
		for (unsigned i = 0; i < 3; i++)
			put_number(c, 8 + i);
		died = die_at(&go, call);
		stayed += is_there(c);
		check(!is_there(c) || number_now(c) == 10);
		check_clean(c, 3, call);
		if (is_there(c))
			good(umobject_delete(c, "one"));
		check_clean(c, 0, call);
	}
	check(came > 0 && came < call && stayed > 0, "%u, %u", came, stayed);
	umobject_close(c);
	box_number++;
}

int main(void)
{
	die_everywhere(put_number, 1, 1);
	/* Most calls are the same as in the put before. */
	die_everywhere(change_number, 1, by_time(5, 1));
	die_everywhere(put_number, 3, by_time(9, 1));
	start_and_end_processes(by_time(5, 1));
	return 0;
}
