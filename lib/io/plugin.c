/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The drivers and policies: built-in ones, each of which is one line of a table; those of files,
 * which are loaded once and never unloaded, because a fault may run their code; and drivers that
 * the program has registered. The first file with the right name counts; if it is bad, it is
 * refused. Runs in public calls only. Lock: `loading`, held across dlopen(3), so a constructor of a
 * file must not call the library.
 */
#include "io/plugin.h"

#include "base/config.h"
#include "base/log.h"
#include "base/sys.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <ummap.h>

/* ---- Files ---- */

/* Bytes. A symbol with a larger struct_size is not a table. */
#define TABLE_MAX 4096

#define PROGRAM "this program" /* the place of a driver that the program has registered */

static const char load_folder[] = UMMAP_PLUGIN_DIR;

/* The fields at the beginning of both tables. */
struct head {
	size_t struct_size;
	uint32_t abi;
	const char *name;
};

_Static_assert(offsetof(struct ummap_driver, scheme) == offsetof(struct head, name),
	       "the beginning of a driver's table");
_Static_assert(offsetof(struct ummap_policy, name) == offsetof(struct head, name),
	       "the beginning of a policy's table");

/* A required call of a table. */
struct required {
	const char *call;
	size_t at;
};

struct kind {
	const char *word;        /* in the names of files */
	const char *symbol;
	uint32_t abi;
	size_t size;             /* of the table that this library knows */
	struct required required[6];
};

#define REQUIRED(kind, call) { #call, offsetof(struct ummap_##kind, call) }

static const struct kind driver_kind = {
	"driver", "ummap_driver", UMMAP_DRIVER_ABI, sizeof(struct ummap_driver),
	{ REQUIRED(driver, open), REQUIRED(driver, close), REQUIRED(driver, read) },
};

/* A driver whose handle is open already. */
static const struct kind handle_kind = {
	"driver", "ummap_driver", UMMAP_DRIVER_ABI, sizeof(struct ummap_driver),
	{ REQUIRED(driver, close), REQUIRED(driver, read) },
};

static const struct kind policy_kind = {
	"policy", "ummap_policy", UMMAP_POLICY_ABI, sizeof(struct ummap_policy),
	{ REQUIRED(policy, create), REQUIRED(policy, destroy), REQUIRED(policy, insert),
	  REQUIRED(policy, remove), REQUIRED(policy, pick) },
};

static const struct kind tier_policy_kind = {
	"tier-policy", "ummap_tier_policy", UMMAP_POLICY_ABI, sizeof(struct ummap_tier_policy),
	{ REQUIRED(tier_policy, rank), REQUIRED(tier_policy, promote) },
};

/* A copy of a table: fields that an older file does not have are zero. */
struct loaded {
	struct loaded *next;
	const struct kind *kind;
	union {
		struct head head;
		struct ummap_driver driver;
		struct ummap_policy policy;
		struct ummap_tier_policy tier_policy;
	} table;
};

static struct loaded *all;
static _Atomic uint32_t loading;

/* The fork may have copied the list in the middle of a change. Files that are in memory load again
 * at once. */
void plugin_forget(void)
{
	all = NULL;
	loading = 0;
}

static bool in_folder(const struct kind *kind, const char *name, const char *folder, size_t len,
		      char file[static PATH_MAX])
{
	struct stat st;
	int n = snprintf(file, PATH_MAX, "%.*s/ummap-%s-%s.so", (int)len, folder, kind->word, name);

	return n < PATH_MAX && stat(file, &st) == 0 && S_ISREG(st.st_mode);
}

static bool find_file(const struct kind *kind, const char *name, const char *path,
		      char file[static PATH_MAX])
{
	if (in_folder(kind, name, load_folder, strlen(load_folder), file))
		return true;
	while (path) {
		size_t len = strcspn(path, ":");

		if (in_folder(kind, name, path, len, file))
			return true;
		path = path[len] ? path + len + 1 : NULL;
	}
	return false;
}

/* Returns the table that a file exports, or NULL with a message. */
static const struct head *open_file(const struct kind *kind, const char *file)
{
	void *object = dlopen(file, RTLD_NOW | RTLD_LOCAL);
	const struct head *table;

	if (!object) {
		const char *why = dlerror();

		/* The message begins with the name of the file, unless a library of the file is
		 * missing. */
		if (strncmp(why, file, strlen(file)) == 0)
			why += strlen(file) + strspn(why + strlen(file), ": ");
		fail(EINVAL, "cannot load '%s': %s", file, why);
		return NULL;
	}
	table = dlsym(object, kind->symbol);
	if (!table)
		fail(EINVAL, "cannot load '%s': it does not export %s. Try to define const struct "
		     "%s %s", file, kind->symbol, kind->symbol, kind->symbol);
	return table;
}

static bool has_call(const void *table, size_t at)
{
	void (*call)(void);

	memcpy(&call, (const char *)table + at, sizeof(call));
	return call != NULL;
}

static int check_table(const struct loaded *l, const char *name, const char *file)
{
	const struct kind *kind = l->kind;
	const struct head *head = &l->table.head;

	if (head->abi != kind->abi)
		return fail(EINVAL, "cannot use the %s '%s' of %s: it was built for version %u of "
			    "ummap-%s.h, but this library has version %u. Try to build it again",
			    kind->word, name, file, head->abi, kind->word, kind->abi);
	if (!head->name || strcmp(head->name, name) != 0)
		return fail(EINVAL, "cannot use the %s '%s' of %s: its name there is '%s'. Try one "
			    "name for both", kind->word, name, file, head->name ? head->name : "");
	for (const struct required *r = kind->required; r->call; r++) {
		if (!has_call(&l->table, r->at))
			return fail(EINVAL, "cannot use the %s '%s' of %s: it lacks the required "
				    "call %s", kind->word, name, file, r->call);
	}
	return 0;
}

/* Copies a table, which is defined in `file`. Returns NULL with a message on failure. */
static struct loaded *clone_table(const struct kind *kind, const struct head *table,
				 const char *name, const char *file)
{
	struct loaded *l;

	if (table->struct_size < sizeof(*table) || table->struct_size > TABLE_MAX) {
		fail(EINVAL, "cannot use the %s '%s' of %s: its struct_size is %zu. Try "
		     "sizeof(struct %s)", kind->word, name, file, table->struct_size, kind->symbol);
		return NULL;
	}
	l = calloc(1, sizeof(*l));
	if (!l) {
		fail(EINVAL, "cannot use the %s '%s' of %s: no memory", kind->word, name, file);
		return NULL;
	}
	l->kind = kind;
	memcpy(&l->table, table, min_size(table->struct_size, kind->size));
	l->table.head.struct_size = kind->size;
	if (check_table(l, name, file) < 0) {
		free(l);
		return NULL;
	}
	return l;
}

static struct loaded *find_loaded(const struct kind *kind, const char *name)
{
	struct loaded *l = all;

	while (l && (l->kind != kind || strcmp(l->table.head.name, name)))
		l = l->next;
	return l;
}

static void add_loaded(struct loaded *l, const char *file)
{
	log_line(LOG_INFO, "load", "the library uses the %s '%s' of %s", l->kind->word,
		 l->table.head.name, file);
	l->next = all;
	all = l;
}

static int find_or_load(const struct kind *kind, const char *name, const char *path,
			struct loaded **found)
{
	const struct head *table;
	char file[PATH_MAX];

	*found = find_loaded(kind, name);
	if (*found || !find_file(kind, name, path, file))
		return 0;
	table = open_file(kind, file);
	*found = table ? clone_table(kind, table, name, file) : NULL;
	if (!*found)
		return -EINVAL;
	add_loaded(*found, file);
	return 0;
}

static int add_driver(const struct ummap_driver *driver)
{
	struct loaded *l;

	if (find_loaded(&driver_kind, driver->scheme))
		return fail(EEXIST, "cannot add the driver '%s': a driver of this name exists",
			    driver->scheme);
	l = clone_table(&driver_kind, (const struct head *)driver, driver->scheme, PROGRAM);
	if (!l)
		return -EINVAL;
	add_loaded(l, PROGRAM);
	return 0;
}

int plugin_check_driver(const struct ummap_driver *driver, bool is_open)
{
	const char *name = driver->scheme ? driver->scheme : "";
	struct loaded *l = clone_table(is_open ? &handle_kind : &driver_kind,
				       (const struct head *)driver, name, PROGRAM);

	free(l);
	return l ? 0 : -EINVAL;
}

static int load_add_driver(const struct ummap_driver *driver)
{
	int err;

	futex_lock(&loading);
	err = add_driver(driver);
	futex_unlock(&loading);
	return err;
}

/* Stores the table of a file, or NULL if there is no file. */
static int load_table(const struct kind *kind, const char *name, struct loaded **found)
{
	int err;

	futex_lock(&loading);
	err = find_or_load(kind, name, config.driver_path, found);
	futex_unlock(&loading);
	return err;
}

/* ---- Built-in drivers and policies, and the search for all ---- */

extern const struct ummap_driver ummap_driver_posix, ummap_driver_uring, ummap_driver_pmem,
	ummap_driver_mem, ummap_driver_null, ummap_driver_error, ummap_driver_trace,
	ummap_driver_ioranks, ummap_driver_wal, ummap_driver_cow, ummap_driver_sum,
	ummap_driver_cache;
extern const struct ummap_policy ummap_policy_fifo, ummap_policy_lifo, ummap_policy_plru,
	ummap_policy_prnd, ummap_policy_wiro_f, ummap_policy_wiro_l, ummap_policy_s3fifo;
extern const struct ummap_tier_policy ummap_tier_policy_lru, ummap_tier_policy_static;

static const struct ummap_driver *const drivers[] = {
	&ummap_driver_posix, &ummap_driver_uring, &ummap_driver_pmem, &ummap_driver_mem,
	&ummap_driver_null, &ummap_driver_error, &ummap_driver_trace,
	&ummap_driver_ioranks, &ummap_driver_wal, &ummap_driver_cow, &ummap_driver_sum,
	&ummap_driver_cache,
};

/* The policy of UMMAP_PTYPE_x is at x - 1. */
static const struct ummap_policy *const policies[] = {
	&ummap_policy_lifo, &ummap_policy_plru, &ummap_policy_prnd, &ummap_policy_wiro_f,
	&ummap_policy_wiro_l, &ummap_policy_s3fifo, &ummap_policy_fifo,
};

static const struct ummap_tier_policy *const tier_policies[] = {
	&ummap_tier_policy_lru, &ummap_tier_policy_static,
};

#define NAME_CHARS "abcdefghijklmnopqrstuvwxyz0123456789-"
#define POLICY_NAME_MAX 63

#define COUNT(table) (sizeof(table) / sizeof(*(table)))

/* Appends a word, with a blank before it. */
static size_t add_word(char *list, size_t size, size_t len, const char *word)
{
	return min_size(size - 1, len + (size_t)snprintf(list + len, size - len, " %s", word));
}

/* The message lists the built-in ones, and the folders that were searched. */
static void fail_missing(const char *kind, const char *name, const char *known)
{
	bool needs_curl = strcmp(name, "http") == 0 || strcmp(name, "https") == 0 ||
			  strcmp(name, "s3") == 0;

	fail(EINVAL, "cannot find the %s '%s': the built-in ones are%s, and ummap-%s-%s.so is "
	     "neither in %s nor in a folder of UMMAP_DRIVER_PATH (%s)%s", kind, name, known, kind,
	     name, load_folder, config.driver_path ? config.driver_path : "not set",
	     needs_curl ? ". It is built and installed if libcurl is there" : "");
}

const struct ummap_driver *plugin_driver(const char *scheme)
{
	struct loaded *found;
	char known[128] = "";
	size_t len = 0;

	for (size_t i = 0; i < COUNT(drivers); i++) {
		if (strcmp(drivers[i]->scheme, scheme) == 0)
			return drivers[i];
		len = add_word(known, sizeof(known), len, drivers[i]->scheme);
	}
	if (load_table(&driver_kind, scheme, &found) == 0 && !found)
		fail_missing("driver", scheme, known);
	return found ? &found->table.driver : NULL;
}

size_t plugin_drivers(const struct ummap_driver *const **list)
{
	*list = drivers;
	return COUNT(drivers);
}

int plugin_add_driver(const struct ummap_driver *driver)
{
	const char *scheme = driver->scheme;

	if (!scheme || !*scheme || scheme[strspn(scheme, NAME_CHARS)])
		return fail(EINVAL, "cannot add the driver '%s': its name must be lower-case "
			    "letters, digits and '-'", scheme ? scheme : "");
	for (size_t i = 0; i < COUNT(drivers); i++) {
		if (strcmp(drivers[i]->scheme, scheme) == 0)
			return fail(EEXIST, "cannot add the driver '%s': a built-in driver has "
				    "this name", scheme);
	}
	return load_add_driver(driver);
}

const struct ummap_policy *plugin_policy(const char *text, size_t name_len)
{
	struct loaded *found;
	char known[128] = "", name[POLICY_NAME_MAX + 1];
	size_t len = 0;

	if (name_len == 0 || name_len > POLICY_NAME_MAX || strspn(text, NAME_CHARS) < name_len) {
		fail(EINVAL, "cannot use the policy '%s': it must be NAME or NAME:ARGUMENTS, with "
		     "a NAME of 1 to %d lower-case letters, digits and '-'", text, POLICY_NAME_MAX);
		return NULL;
	}
	snprintf(name, sizeof(name), "%.*s", (int)name_len, text);
	for (size_t i = 0; i < COUNT(policies); i++) {
		if (strcmp(policies[i]->name, name) == 0)
			return policies[i];
		len = add_word(known, sizeof(known), len, policies[i]->name);
	}
	if (load_table(&policy_kind, name, &found) == 0 && !found)
		fail_missing("policy", name, known);
	return found ? &found->table.policy : NULL;
}

const struct ummap_tier_policy *plugin_tier_policy(const char *name)
{
	struct loaded *found;
	char known[128] = "";
	size_t len = 0;

	for (size_t i = 0; i < COUNT(tier_policies); i++) {
		if (strcmp(tier_policies[i]->name, name) == 0)
			return tier_policies[i];
		len = add_word(known, sizeof(known), len, tier_policies[i]->name);
	}
	if (!*name || strlen(name) > POLICY_NAME_MAX || name[strspn(name, NAME_CHARS)]) {
		fail(EINVAL, "UMMAP_TIERS_POLICY is \"%.100s\": it must be 1 to %d lower-case "
		     "letters, digits and '-'", name, POLICY_NAME_MAX);
		return NULL;
	}
	if (load_table(&tier_policy_kind, name, &found) == 0 && !found)
		fail_missing("tier-policy", name, known);
	return found ? &found->table.tier_policy : NULL;
}

const char *plugin_ptype(int ptype)
{
	if (ptype == UMMAP_PTYPE_DEFAULT)
		ptype = UMMAP_PTYPE_S3FIFO;
	if (ptype < 1 || (size_t)ptype > COUNT(policies))
		return NULL;
	return policies[ptype - 1]->name;
}
