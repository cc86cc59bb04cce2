/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * conform.h - functions and state that the checks share. Each check runs in a process of its own,
 * on a new store, and ends at the first error. It never trusts the driver: the expected contents
 * come from the shadow, a copy in memory.
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

#define CHECK(function, name, asks) void check_##function(void);
#include "checks.def"
#undef CHECK

/* ---- Options of the user, and properties of the store that the first opening found ---- */

struct options {
	const char *uri;
	size_t size;            /* bytes of the store to use */
	uint64_t seed;
	bool keep;              /* whether the store is kept at the end */
	bool overwrite;         /* whether the store may exist already */
	bool alone;             /* whether a store can have only one handle at a time */
	bool forgets;           /* whether data is lost when the handle is closed */
	const char *beside;     /* suffixes of files that the driver leaves; NULL: none */
	bool swallows;          /* whether data is lost at once, so that reads return zeros */
	const char *free_keys;  /* keys that accept any text, separated by commas */
};

struct facts {
	char path[URI_MAX];     /* path of the store: the part of the URI between ':' and '?' */
	bool file;              /* whether the store is a regular file of that path */
	bool creates;           /* whether the driver creates stores */
	bool writable;
	size_t size; /* bytes to use: may be fewer than options.size if the store cannot grow */
};

extern struct options options;
extern struct facts *facts; /* memory shared with the processes of the checks */

/* ---- The result of a check ---- */

enum outcome { OUTCOME_NONE, OUTCOME_OK, OUTCOME_FAILED, OUTCOME_SKIPPED };

/* Memory shared with the process of a check and with its children. */
struct verdict {
	_Atomic int outcome;
	char sentence[512];
	char doing[128];        /* present step, for a check that dies or hangs */
};

extern struct verdict *verdict;
extern int verdict_fd;          /* descriptor of the memory of verdict */

/* Ends the check as failed unless ok. Any thread and a signal handler may call this. */
void expect(bool ok, const char *format, ...) __attribute__((format(printf, 2, 3)));
_Noreturn void skip(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Records the next step, which is reported if the check dies or hangs. */
void doing(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Forks a child that is killed when this process ends. */
pid_t fork_child(void);
/* Waits for a child. Ends the check if the child died or has failed the check. */
void wait_for(pid_t child);
/* Describes a negative errno as "EIO (Input/output error)", in a buffer of the thread. */
const char *error_name(int err);

/* ---- Handles ---- */

struct handle {
	struct ummap_driver driver;
	void *h;
	struct ummap_geom geom;
	pthread_mutex_t turn;   /* lock for calls of a driver without PARALLEL, as in the library */
};

/* Opens a URI. Returns 0, or -errno with umerrormsg(). */
int handle_try(const char *uri, int oflags, struct handle *h);
/* Opens the store of the check for reading and, if possible, writing; or for reading only. */
void handle_open(struct handle *h);
void handle_open_readonly(struct handle *h);
/* Opens the store as above and fills it with the contents of the shadow. */
void handle_fill(struct handle *h);
/* Skips the check if no two handles can have the store at once. */
void handle_need_two(void);
/* Skips the check if the store cannot be written. */
void handle_fill_writable(struct handle *h);
void handle_close(struct handle *h);
/* Returns the present size of the store in bytes. */
uint64_t handle_size(struct handle *h);
bool handle_can(const struct handle *h, uint32_t cap);

/* Make calls that must succeed. Several threads may make them at once on one handle. */
void handle_read(struct handle *h, void *buf, size_t len, uint64_t off);
void handle_write(struct handle *h, const void *buf, size_t len, uint64_t off);
void handle_flush(struct handle *h);

/* ---- The shadow ---- */

extern unsigned char *shadow;   /* expected contents, facts->size bytes */

/* Records a write in the shadow. A store that swallows keeps its zeros. */
void shadow_write(uint64_t off, const void *buf, size_t len);
/* Compares buf, which was read at off, with the shadow. what: "a read of 3 bytes at 4095". */
void shadow_compare(const void *buf, size_t len, uint64_t off, const char *what);
/* Reads the whole store and compares it with the shadow. when: "after the flush". */
void shadow_compare_all(struct handle *h, const char *when);

/* ---- Memory and numbers ---- */

/* Allocates zeroed memory at a page boundary, for the life of the process. */
void *memory(size_t len);
uint64_t random_number(void);
size_t random_below(size_t n);
void random_fill(void *buf, size_t len);

/* ---- Other stores ---- */

/* Make the URI with another path, or with one more key. */
void uri_with_path(char *uri, const char *path);
void uri_with_key(char *uri, const char *key, const char *value);
/* Make the URI without "?...", and the name of the outermost driver. */
void uri_scheme(char *scheme, size_t size);
bool uri_is_filter(void);

/* Main function of the process that the check "new-process" starts: compares the store with the
 * contents of fd. */
int verify_main(int contents_fd, size_t size);

#endif
