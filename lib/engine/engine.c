/* SPDX-License-Identifier: BSD-3-Clause */
/* The choice of the engine for a mapping. Takes no lock. */
#include "engine/engine.h"

#include "base/config.h"
#include "base/log.h"
#include "base/sys.h"
#include "engine/sigbus.h"
#include "engine/trial.h"
#include "engine/uffd.h"
#include "engine/userfaultfd.h"

#include <ummap.h>

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
	engine_forget_places();
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
