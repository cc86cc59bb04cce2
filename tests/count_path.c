/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Prints the addresses of the functions of the library that one cold fault or one sync enters:
 *
 *     count_path fault|sync FILE
 *
 * The library is linked into this program, and was built with -finstrument-functions (check-path).
 * Functions of the background thread and of workers do not count, because it depends on the time
 * whether they run. Those of the thread that serves messages count for a fault only: it may end a
 * fault while a sync runs. What the first fault or sync of a process makes once, such as a buffer,
 * does not count.
 */
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ummap.h>
#include <unistd.h>

#define UNCOUNTED __attribute__((no_instrument_function))
#define MAX_FUNCTIONS 4096
#define SEGMENT ((size_t)64 << 10)
#define SEGMENTS 64

void __cyg_profile_func_enter(void *function, void *call_site);
void __cyg_profile_func_exit(void *function, void *call_site);
/* The loop of the threads that serve the faults of an engine with messages. */
void *fault_by_message(void *unused);
/* The function that such a thread calls for the next message. */
void messages_next(void);

static _Atomic bool counting;
static bool is_fault;
static _Atomic bool has_server, has_served; /* a thread serves messages; it has served one */
static _Atomic uintptr_t entered[MAX_FUNCTIONS]; /* the set of functions, up to the first 0 */
static _Thread_local bool counts;                /* whether the functions of this thread count */

/* May run in a signal handler. */
UNCOUNTED void __cyg_profile_func_enter(void *function, void *call_site)
{
	(void)call_site;
	if (function == (void *)(uintptr_t)fault_by_message)
		has_server = counts = is_fault;
	if (!counting || !counts)
		return;
	if (function == (void *)(uintptr_t)messages_next)
		has_served = true;
	for (size_t i = 0; i < MAX_FUNCTIONS; i++) {
		uintptr_t none = 0;

		if (atomic_compare_exchange_strong(&entered[i], &none, (uintptr_t)function) ||
		    none == (uintptr_t)function)
			return;
	}
}

UNCOUNTED void __cyg_profile_func_exit(void *function, void *call_site)
{
	(void)function;
	(void)call_site;
}

UNCOUNTED static void die(const char *what)
{
	fprintf(stderr, "count_path: cannot %s: %s\n", what, umerrormsg());
	exit(1);
}

/* Maps the file, of which the page cache has nothing, so that a fault reads from storage. */
UNCOUNTED static char *map_cold(const char *path)
{
	int fd = open(path, O_RDWR);
	void *addr;

	if (fd < 0 || fdatasync(fd) < 0 || posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) != 0 ||
	    ummap(SEGMENTS * SEGMENT, SEGMENT, PROT_READ | PROT_WRITE, fd, 0, 0, 1,
		  UMMAP_PTYPE_FIFO, &addr))
		die("map the file");
	return addr;
}

UNCOUNTED static void count_sync(char *base, bool counted)
{
	base[0] = 1;
	base[SEGMENT] = 1;
	counting = counted;
	if (umsync(base, 0))
		die("sync the mapping");
	counting = false;
}

UNCOUNTED int main(int argc, char **argv)
{
	char *base;

	if (argc != 3)
		return 2;
	is_fault = strcmp(argv[1], "fault") == 0;
	base = map_cold(argv[2]);
	counts = true;
	(void)*(volatile char *)(base + SEGMENTS / 2 * SEGMENT);
	if (!is_fault) {
		count_sync(base, false);
		count_sync(base, true);
	} else {
		counting = true;
		(void)*(volatile char *)base;
		while (has_server && !has_served)
			usleep(1000);
		counting = false;
	}
	for (size_t i = 0; i < MAX_FUNCTIONS && entered[i]; i++)
		printf("0x%jx\n", (uintmax_t)entered[i]);
	return 0;
}
