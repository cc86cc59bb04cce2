/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * conform.h - what the checks share. Each check runs in a process of its own, on a store made for it, and
 * ends at the first thing that is wrong. It never trusts the driver: what it expects comes from the shadow, a
 * copy in memory.
 */
#ifndef CONFORM_H
#define CONFORM_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <ummap-driver.h>

#define COUNT(table) (sizeof(table) / sizeof(*(table)))
#define KIB ((size_t)1024)
#define PAGE ((size_t)4096)
#define URI_MAX 8192

/* ---- The table ---- */

struct check {
	const char *name;
	const char *asks;     /* what it makes sure of, for --list */
	void (*run)(void);
};

extern const struct check checks[];
extern const size_t check_count;

/* ---- What the user asked for, and what the first opening found out ---- */

struct options {
	const char *uri;
	size_t size;            /* bytes of the store to use */
	uint64_t seed;
	bool keep;              /* leave the store behind */
	bool overwrite;         /* the store may exist already */
	bool alone;             /* a store has one handle at a time */
	bool forgets;           /* what was written is gone when the handle is closed */
	const char *beside;     /* behind the path of a store: a file that the driver leaves there; NULL: none */
	bool swallows;          /* what was written is gone at once: reads give zeros */
	const char *free_keys;  /* keys that take any text, with commas between them */
};

struct facts {
	char path[URI_MAX];     /* between ':' and '?' */
	bool file;              /* the store is a regular file of that path */
	bool creates;           /* the driver makes it; else the checker does */
	bool writable;
	size_t size;            /* bytes to use: of a store that cannot grow, perhaps fewer than asked for */
};

extern struct options options;
extern struct facts *facts; /* shared with the processes of the checks */

/* ---- What a check says ---- */

enum outcome { OUTCOME_NONE, OUTCOME_OK, OUTCOME_FAILED, OUTCOME_SKIPPED };

/* Shared with the process of a check, and with one that that process makes. */
struct verdict {
	_Atomic int outcome;
	char sentence[512];
	char doing[128];        /* for a check that dies or hangs */
};

extern struct verdict *verdict;
extern int verdict_fd;          /* the memory behind it */

/* Ends the check as failed unless ok. May be called by any thread, and in a signal handler. */
void expect(bool ok, const char *format, ...) __attribute__((format(printf, 2, 3)));
_Noreturn void skip(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* What comes next: told if the check does not survive it. */
void doing(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* fork; the child ends when this process does. */
pid_t fork_child(void);
/* Waits for a process that this check has made; ends the check if the process died, or has ended it. */
void wait_for(pid_t child);
/* "EIO (Input/output error)" of a negative errno; in a buffer of the thread. */
const char *error_name(int err);

/* ---- Handles ---- */

struct handle {
	struct ummap_driver driver;
	void *h;
	struct ummap_geom geom;
	pthread_mutex_t turn;   /* without PARALLEL the checker takes turns, as the library does */
};

/* 0, or -errno with umerrormsg(). */
int handle_try(const char *uri, int oflags, struct handle *h);
/* The store of the check, for reading and, if it can be, writing; or for reading only. */
void handle_open(struct handle *h);
void handle_open_readonly(struct handle *h);
/* The same with known contents: the shadow's. What most checks begin with. */
void handle_fill(struct handle *h);
/* Skips the check if no two handles can have the store at once. */
void handle_need_two(void);
/* Skips the check if the store cannot be written. */
void handle_fill_writable(struct handle *h);
void handle_close(struct handle *h);
/* The bytes of the store now. */
uint64_t handle_size(struct handle *h);
bool handle_can(const struct handle *h, uint32_t cap);

/* Calls that must succeed. They may run at once on any handle. */
void handle_read(struct handle *h, void *buf, size_t len, uint64_t off);
void handle_write(struct handle *h, const void *buf, size_t len, uint64_t off);
void handle_flush(struct handle *h);

/* ---- The shadow ---- */

extern unsigned char *shadow;   /* facts->size bytes */

/* Notes what was written; a store that swallows keeps its zeros. */
void shadow_write(uint64_t off, const void *buf, size_t len);
/* buf, which was read at off, is what the store must hold; what: "a read of 3 bytes at 4095". */
void shadow_compare(const void *buf, size_t len, uint64_t off, const char *what);
/* The whole store, read through h, is what it must be; when: "after the flush". */
void shadow_compare_all(struct handle *h, const char *when);

/* ---- Memory and numbers ---- */

/* Zeroed and on a page boundary; for the life of the process. */
void *memory(size_t len);
uint64_t random_number(void);
size_t random_below(size_t n);
void random_fill(void *buf, size_t len);

/* ---- Other stores than the check's ---- */

/* The URI with another path, or with one more key. */
void uri_with_path(char *uri, const char *path);
void uri_with_key(char *uri, const char *key, const char *value);
/* The URI without "?...", and the name of the outermost driver. */
void uri_scheme(char *scheme, size_t size);
bool uri_is_filter(void);

/* The whole of the process that the check "new-process" starts: compares the store with what fd holds. */
int verify_main(int contents_fd, size_t size);

#endif
