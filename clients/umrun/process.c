/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Children share the descriptions of the process, but not the mappings of its library. Before a
 * child begins, regions under a write lease are handed to the kernel: the child may use the same
 * description, which does not break a lease. When the process ends or runs another program, all
 * stores are written.
 */
#include "umrun/process.h"

#include "umrun/calls.h"
#include "umrun/config.h"
#include "umrun/lease.h"
#include "umrun/next_calls.h"
#include "umrun/region.h"
#include "umrun/signals.h"

#include <ummap.h>

static pid_t own_pid;
/* Whether stores could not be written when the program ended. */
static bool has_lost_stores;

bool is_own_process(void)
{
	return getpid() == own_pid;
}

/* ---- Children ---- */

static void share_descriptions_locked(const char *reason)
{
	region_hand_back_kinds(NULL, REGIONS_LEASED, reason);
	lease_note_shared_descriptions();
}

/* Called before a child begins that runs no handlers of fork(2). The child of vfork(2) has its
 * parent's memory, and the parent waits. */
void before_child(void)
{
	if (config.exclusive || list_is_locked_here() || !is_own_process())
		return;
	list_lock_write();
	share_descriptions_locked("another process receives the file description");
	list_unlock();
}

/* Returns the C library's vfork, to which the caller jumps. */
__attribute__((visibility("hidden"), used))
void *process_begin_vfork(void);
void *process_begin_vfork(void)
{
	int error = errno;

	before_child();
	errno = error;
	return next_call(CALL_vfork);
}

/* vfork(2) returns twice, so no frame may lie between it and the program. */
#if defined(__x86_64__)
__asm__(".pushsection .text\n"
	".globl vfork\n"
	".type vfork, @function\n"
	"vfork:\n"
	"	endbr64\n"
	"	subq $8, %rsp\n"
	"	call process_begin_vfork\n"
	"	addq $8, %rsp\n"
	"	jmp *%rax\n"
	".size vfork, .-vfork\n"
	".popsection\n");
#elif defined(__aarch64__)
__asm__(".pushsection .text\n"
	".globl vfork\n"
	".type vfork, %function\n"
	"vfork:\n"
	"	stp x29, x30, [sp, #-16]!\n"
	"	bl process_begin_vfork\n"
	"	mov x16, x0\n"
	"	ldp x29, x30, [sp], #16\n"
	"	br x16\n"
	".size vfork, .-vfork\n"
	".popsection\n");
#endif

/* A child of its own memory, in which the mappings of the library do not exist: it gets every
 * mapping from the kernel. */
static void before_copied_child(void)
{
	if (list_is_locked_here() || !is_own_process())
		return;
	before_child();
	list_lock_write();
	region_hand_back_range(NULL, SIZE_MAX, "a child begins without the handlers of fork");
	list_unlock();
}

pid_t take_Fork(void)
{
	pid_t pid;

	before_copied_child();
	pid = next__Fork();
	/* The child writes its own regions, also if its parent had none. */
	if (pid == 0)
		own_pid = getpid();
	return pid;
}

void before_clone(int flags)
{
	if (!(flags & CLONE_VM))
		before_copied_child();
	else if (!(flags & CLONE_FILES))
		before_child();
}

static void before_fork(void)
{
	list_lock_write();
	region_hand_back_kinds(NULL, REGIONS_WRITABLE, "a child is forked");
	if (!config.exclusive)
		share_descriptions_locked("a child is forked");
}

static void begin_child(void)
{
	own_pid = getpid();
	list_begin_child();
	region_begin_child();
}

/* ---- Programs that replace this one ---- */

static bool write_all(bool tells)
{
	bool is_written = true;
	const struct region *r;

	if (!region_count || !is_own_process())
		return true;
	list_lock_read();
	for (size_t i = 0; (r = list_at(i)); i++) {
		if (!r->is_writable || umsync_range(r->addr, r->library_len, UMMAP_NOFLUSH) == 0)
			continue;
		is_written = false;
		if (tells)
			fprintf(stderr, "umrun: %s: cannot write stores to a mapping, and they are "
				"lost: %s\n", program_invocation_short_name, umerrormsg());
	}
	list_unlock();
	return is_written;
}

/* Called before sync(2), for example: every process sees the stores in the files. */
void before_sync(void)
{
	write_all(true);
}

/* The new program inherits the descriptions, and would not release their leases. The library's
 * descriptors may still be open after the last region has ended. */
void before_exec(void)
{
	write_all(true);
	if (!is_own_process())
		return;
	list_lock_write();
	region_hand_back_kinds(NULL, REGIONS_LEASED, "the process runs another program");
	lease_keep_locks_over_exec();
	list_unlock();
}

/* Makes a call with arguments as a list. */
int exec_list(exec_call exec, const char *file, const char *first, va_list rest)
{
	size_t count = 1;
	va_list copy;

	va_copy(copy, rest);
	for (const char *arg = first; arg; arg = va_arg(copy, const char *))
		count++;
	va_end(copy);
	char *argv[count];

	for (size_t i = 0; i < count; i++) {
		argv[i] = (char *)(uintptr_t)first;
		first = first ? va_arg(rest, const char *) : NULL;
	}
	return exec(file, argv);
}

/* ---- The end of the program ---- */

int exit_status(int status)
{
	return write_all(true) || status ? status : EXIT_FAILURE;
}

__attribute__((destructor))
static void end_program(void)
{
	struct umstat st = { .struct_size = sizeof(st) };

	if (!is_own_process())
		return;
	/* The library's destructor, which runs next, reports the files and the bytes that they
	 * lack. */
	has_lost_stores = !write_all(false) || (umstat(NULL, &st) == 0 && st.lost_bytes);
	report_end();
}

/* Runs after all destructors, because it is registered before the dynamic linker's own handler. */
static void fail_if_lost(int status, void *unused)
{
	(void)unused;
	if (!has_lost_stores || status)
		return;
	fflush(NULL);
	next__exit(EXIT_FAILURE);
}

/* ---- The start ---- */

static bool yield_broken(void)
{
	bool is_done;

	list_lock_write();
	is_done = region_hand_back_kinds(NULL, REGIONS_BROKEN, "the file is opened again");
	list_unlock();
	return is_done;
}

/* The process that started this one may share its descriptions. The handlers of fork(2) are
 * registered behind the library's, which come first in a child. */
__attribute__((constructor))
static void start_umrun(void)
{
	config_read();
	next_start();
	own_pid = getpid();
	if (config.pins)
		signals_require_pins();
	lease_begin(yield_broken);
	on_exit(fail_if_lost, NULL);
	before_child();
	pthread_atfork(before_fork, list_unlock, begin_child);
}
