/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Options of the sanitizers for programs that die of SIGSEGV or fork with threads on purpose.
 */
#ifndef TESTS_SANITIZERS_H
#define TESTS_SANITIZERS_H

/* With GCC 12, another thread may hold the lock of the sanitizer's allocator during fork(2), and
 * the child waits for it forever. */
#ifdef __SANITIZE_ADDRESS__
#define ADDRESS_SANITIZED 1
#else
#define ADDRESS_SANITIZED 0
#endif

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1  /* limits of memory and time do not hold */

/* More options of a program: ":name=value". */
#ifndef TSAN_MORE
#define TSAN_MORE ""
#endif

__attribute__((visibility("default"))) const char *__asan_default_options(void);
__attribute__((visibility("default"))) const char *__tsan_default_options(void);
__attribute__((visibility("default"))) const char *__tsan_default_suppressions(void);

/* More suppressions of a program: "race:function\n". */
#ifndef TSAN_MORE_SUPPRESSIONS
#define TSAN_MORE_SUPPRESSIONS ""
#endif

const char *__asan_default_options(void)
{
	return "handle_segv=0:handle_sigbus=0:allow_user_segv_handler=1:use_sigaltstack=0:"
	       "detect_leaks=0";
}

const char *__tsan_default_options(void)
{
	return "handle_segv=0:handle_sigbus=0:handle_sigfpe=0:handle_sigill=0:handle_abort=0:"
	       "die_after_fork=0" TSAN_MORE;
}

/*
 * TSan does not know that no thread can store to a segment whose write permission is revoked
 * (twin_keep, is_written, trim_zeros, make_copy, sum_page). It takes memory that the library has
 * mapped by a system call for the memory that was at this address before (prefetch_open,
 * prefetch_add).
 */
const char *__tsan_default_suppressions(void)
{
	return "race:twin_keep\nrace:is_written\nrace:trim_zeros\nrace:make_copy\n"
	       "race:sum_page\nrace:prefetch_open\nrace:prefetch_add\n" TSAN_MORE_SUPPRESSIONS;
}
#else
#define SANITIZED 0
#endif

#endif
