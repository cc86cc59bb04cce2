/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The library as part of a plug-in: opened at run time, used, closed, and opened again. This
 * program names no symbol of the library, so that the linker's --as-needed does not link it.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sanitizers.h"
#include "ummap.h"

#define LIBRARY "libummap.so.0"
#define SEG ((size_t)16 * 1024)
#define SIZE (64 * SEG)

#define check(cond) check_at(!!(cond), #cond, __LINE__)

static struct {
	__typeof__(ummap) *map;
	__typeof__(umsync) *sync;
	__typeof__(umunmap) *unmap;
	__typeof__(umerrormsg) *errormsg;
} lib;

static void check_at(int ok, const char *what, int line)
{
	if (ok)
		return;
	fprintf(stderr, "%s:%d: failed: %s; dl: %s; library: %s\n", __FILE__, line, what, dlerror(),
		lib.errormsg ? lib.errormsg() : "-");
	exit(1);
}

static void *open_library(int flags)
{
	void *library = dlopen(LIBRARY, flags);

	check(library);
	lib.map = dlsym(library, "ummap");
	lib.sync = dlsym(library, "umsync");
	lib.unmap = dlsym(library, "umunmap");
	lib.errormsg = dlsym(library, "umerrormsg");
	check(lib.map && lib.sync && lib.unmap && lib.errormsg);
	return library;
}

/* Uses more data than fit into the budget, so that loads and stores fault, and checks the file. */
static void use_mapping(int fd, unsigned char turn)
{
	unsigned char *m, *found = malloc(SIZE);
	void *addr;

	check(lib.map(SIZE, SEG, PROT_READ | PROT_WRITE, fd, 0, -1, 1, UMMAP_PTYPE_FIFO, &addr) ==
	      0);
	m = addr;
	for (size_t at = 0; at < SIZE; at += 512)
		m[at] = (unsigned char)(at / 512 + turn);
	for (size_t at = 0; at < SIZE; at += 512)
		check(m[at] == (unsigned char)(at / 512 + turn));
	check(lib.sync(addr, 1) == 0);
	check(lib.unmap(addr, 1) == 0);
	check(pread(fd, found, SIZE, 0) == (ssize_t)SIZE);
	for (size_t at = 0; at < SIZE; at += 512)
		check(found[at] == (unsigned char)(at / 512 + turn));
	free(found);
}

struct open_in_thread {
	int fd;
	unsigned char turn;
};

static void *open_use_close(void *arg)
{
	struct open_in_thread *o = arg;
	void *library = open_library(RTLD_NOW | RTLD_LOCAL);

	use_mapping(o->fd, o->turn);
	check(dlclose(library) == 0);
	return NULL;
}

/* A fault outside of mappings ends the process, also after the library was closed. */
static void check_foreign_fault(void)
{
	int status;
	pid_t child = fork();

	check(child >= 0);
	if (child == 0) {
		int flags = MAP_PRIVATE | MAP_ANONYMOUS;

		*(volatile char *)mmap(NULL, 4096, PROT_NONE, flags, -1, 0) = 1;
	}
	check(waitpid(child, &status, 0) == child);
	check(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
}

int main(void)
{
	char path[] = "/var/tmp/ummap-test-XXXXXX";
	struct open_in_thread o = { mkstemp(path), 9 };
	pthread_t thread;
	void *library;

	check(o.fd >= 0 && unlink(path) == 0 && ftruncate(o.fd, SIZE) == 0);
	check(setenv("UMMAP_MEM_LIMIT", "131072", 1) == 0);
	/* The library must not be loaded yet. A sanitizer's runtime would load it. */
	check(SANITIZED || !dlopen(LIBRARY, RTLD_NOW | RTLD_NOLOAD));
	for (unsigned char turn = 1; turn <= 3; turn++) {
		library = open_library(turn == 2 ? RTLD_LAZY | RTLD_GLOBAL : RTLD_NOW | RTLD_LOCAL);
		use_mapping(o.fd, turn);
		check(dlclose(library) == 0);
		check_foreign_fault();
	}
	check(pthread_create(&thread, NULL, open_use_close, &o) == 0);
	check(pthread_join(thread, NULL) == 0);
	check_foreign_fault();
	return 0;
}
