/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The choice of the engine for a mapping, and addresses for mapped ranges. One lock, `places`: held while addresses are
 * searched, and while places of a range are empty for longer than a moment.
 */
#include "engine/engine.h"

#include "base/config.h"
#include "base/log.h"
#include "base/sys.h"
#include "engine/sigbus.h"
#include "engine/trial.h"
#include "engine/uffd.h"
#include "engine/userfaultfd.h"

#include <string.h>
#include <sys/mman.h>
#include <ummap.h>

static _Atomic uint32_t places;
static _Atomic bool usable[2]; /* by can_use */

static void *(*serve_messages)(void *);

int engine_start(enum fault_answer (*fault)(struct fault *), void *(*serve)(void *))
{
	serve_messages = serve;
	return sigsegv_start(fault);
}

void engine_forget(void)
{
	uffd_forget();
	sigbus_forget();
	places = 0;
}

/* ---- Which engine ---- */

static const char *asked_by(const struct engine_wish *wish)
{
	return wish->wanted == UMMAP_ENGINE_DEFAULT ? "UMMAP_ENGINE" : "attr->engine";
}

static const char *name_of(int which)
{
	return which == UMMAP_ENGINE_UFFD ? "uffd" : "sigbus";
}

static int start_uffd(bool kernel)
{
	static _Atomic bool told;
	int err = uffd_start(config.fault_threads, serve_messages);

	if (err || userfaultfd_messages.sees_kernel)
		return err;
	if (kernel)
		return fail(EPERM, "cannot use UMMAP_KERNEL: this process has no right to handle "
			    "accesses by the kernel. Try root, CAP_SYS_PTRACE, "
			    "vm.unprivileged_userfaultfd=1 or access to /dev/userfaultfd");
	if (!atomic_exchange(&told, true))
		log_line(LOG_WARN, "engine", "cannot handle accesses by the kernel: this process "
			 "has no right to do so. System calls on absent segments fail with EFAULT, "
			 "as with the engine segv. Try root, CAP_SYS_PTRACE, "
			 "vm.unprivileged_userfaultfd=1 or access to /dev/userfaultfd");
	return 0;
}

/* With userfaultfd a page of shared memory that the kernel works on would lose what is stored to it, and nothing
 * could tell. */
static int choose_shared(const struct engine_wish *wish, int which)
{
	if (wish->kernel)
		return fail(EOPNOTSUPP, "cannot use UMMAP_SHARED with UMMAP_KERNEL. Try one of "
			    "them");
	if (which == UMMAP_ENGINE_UFFD || which == UMMAP_ENGINE_SIGBUS)
		return fail(EOPNOTSUPP, "cannot use UMMAP_SHARED with the engine %s (%s): it needs "
			    "the engine segv", name_of(which), asked_by(wish));
	return 0;
}

static int choose_sigbus(const struct engine_wish *wish, const struct engine **e)
{
	int err = sigbus_start();

	if (!err)
		*e = wish->writable ? &engine_sigbus : &engine_sigbus_read;
	return err;
}

static int choose_uffd(const struct engine_wish *wish, const struct engine **e)
{
	int err = start_uffd(wish->kernel);

	if (!err)
		*e = wish->writable ? &engine_uffd : &engine_uffd_read;
	return err;
}

/* Whether segments can come and go in this process by segv, or by sigbus. That they could is remembered. */
static bool can_use(const struct engine_wish *wish, bool bus, const struct engine **e)
{
	*e = &engine_segv;
	if (bus && choose_sigbus(wish, e) < 0)
		return false;
	if (!usable[bus])
		usable[bus] = trial_moves(*e) == 0;
	return usable[bus];
}

/* Nobody has asked for either, so any reason why it cannot be had is one for the other. Where neither can be had, that is
 * said when the first segment needs it: a store that is mapped in place has none. */
static void choose_free(const struct engine_wish *wish, const struct engine **e)
{
	if (can_use(wish, wish->small, e))
		return;
	log_line(LOG_INFO, "engine", "%s. The library tries the engine %s instead", fail_message(),
		 wish->small ? "segv" : "sigbus");
	if (!can_use(wish, !wish->small, e))
		*e = &engine_segv;
	fail_clear();
}

int engine_choose(const struct engine_wish *wish, const struct engine **e)
{
	int which = wish->wanted == UMMAP_ENGINE_DEFAULT ? config.engine : wish->wanted;

	*e = &engine_segv;
	if (wish->shared)
		return choose_shared(wish, which);
	if (which == UMMAP_ENGINE_SEGV && wish->kernel)
		return fail(EINVAL, "cannot use UMMAP_KERNEL with the engine segv (%s): it needs "
			    "the engine uffd", asked_by(wish));
	if (which == UMMAP_ENGINE_UFFD || wish->kernel)
		return choose_uffd(wish, e);
	if (which == UMMAP_ENGINE_SIGBUS)
		return choose_sigbus(wish, e);
	if (which == UMMAP_ENGINE_AUTO)
		choose_free(wish, e);
	return 0;
}

int engine_number(const struct engine *e)
{
	return e->by_bus ? UMMAP_ENGINE_SIGBUS : e->by_message ? UMMAP_ENGINE_UFFD : UMMAP_ENGINE_SEGV;
}

bool engine_sees_kernel(const struct engine *e)
{
	return e->by_message && userfaultfd_messages.sees_kernel;
}

/* ---- Mapped ranges ---- */

void engine_hold_places(void)
{
	futex_lock(&places);
}

void engine_release_places(void)
{
	futex_unlock(&places);
}

int engine_fail(const struct engine *e, const char *what, int err)
{
	const char *call = sys_failure(&err);
	const char *larger = "larger limits: vm.max_map_count (sysctl(8)), RLIMIT_AS (ulimit -v)";

	return fail(-err, "cannot %s: %s%s%s. Try %s", what, call ? call : "", call ? ": " : "",
		    strerror(-err), err == -ENOMEM ? larger : e->needs);
}

int engine_attach(const struct engine *e, size_t len, size_t seg_size, size_t before, size_t after, char **range)
{
	size_t pages = round_up(len, sys_page()), align = max_size(HUGE_PAGE, min_size(seg_size, 512 * HUGE_PAGE));
	size_t lead = round_up(before, align), all = lead + pages + after;
	char *start, *at;
	int err;

	engine_hold_places();
	start = sys_reserve_apart(all, align);
	engine_release_places();
	if (!start)
		start = sys_reserve(all, align);
	if (!start)
		return fail(ENOMEM, "cannot reserve %zu bytes of addresses: no address space. Try "
			    "a larger RLIMIT_AS (ulimit -v)", all);
	at = start + lead;
	sys_forget_failure();
	err = e->adopt(e, at, pages);
	if (err) {
		raw_munmap(start, all);
		return engine_fail(e, "prepare the addresses of a mapping", err);
	}
	/* The range is aligned; what stands before it need not be. */
	if (lead > before)
		raw_munmap(start, lead - before);
	*range = at;
	return 0;
}

bool engine_extend(const struct engine *e, char *range, size_t len, size_t more)
{
	char *end = range + round_up(len, sys_page()), *at;
	size_t pages = (size_t)(range + round_up(len + more, sys_page()) - end);

	if (pages == 0)
		return true;
	engine_hold_places();
	at = sys_bare(end, pages, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
	engine_release_places();
	if (at == end && e->adopt(e, end, pages) == 0)
		return true;
	if (at != MAP_FAILED)
		raw_munmap(at, pages);
	return false;
}

int engine_reset(const struct engine *e, char *range, size_t len)
{
	int err = engine_segv.discard(range, len);

	return err ? err : e->adopt(e, range, len);
}

void engine_detach(const struct engine *e, char *range, size_t len)
{
	size_t pages = round_up(len, sys_page());

	if (!pages)
		return;
	hooked_munmap(range, pages);
	e->wake(e, range, pages);
}

int engine_replace(const struct engine *e, char *range, size_t len, void *with)
{
	size_t pages = round_up(len, sys_page());
	int err = hooked_move(with, range, pages) == MAP_FAILED ? -errno : 0;

	if (err)
		hooked_munmap(range, pages);
	e->wake(e, range, pages);
	return err;
}
