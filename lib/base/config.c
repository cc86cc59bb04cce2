/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reads the environment, which is ignored in a program that gains privileges when it is started.
 * The table is in variables.def. An invalid value is an error whose message has the variable, its
 * value and the valid values. An unknown name causes a warning with the most similar known name.
 * Runs under the lock of api/start.c.
 */
#include "base/config.h"

#include "base/log.h"
#include "common/edit_distance.h"
#include "common/size.h"
#include "base/sys.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <ummap.h>
#include <unistd.h>

#define DEFAULT_READAHEAD ((size_t)16 << 20)
#define DEFAULT_MEM_SHARE 0.8
/* Each thread waits for storage by itself, so this is also the number of its requests in flight. */
#define DEFAULT_FAULT_THREADS 8
#define MAX_FAULT_THREADS 64
/* Maximum of UMMAP_OVER_BUDGET, as a multiple of the budget. */
#define MAX_OVER_SHARE 100

struct config config = { .direct = "auto", .cached = "auto" };

bool config_is_name(const char *text)
{
	size_t len =
		strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.");

	return len > 0 && len <= CONFIG_NAME_MAX && !text[len];
}

/* A loader returns 0, REFUSED (the value is not of the type), or -errno with a message. */
#define REFUSED 1

/*
 * The index of the value in `words`, which NULL ends; `otherwise` without a value; -1 for a value
 * that is not there.
 */
static int find_word(const char *text, const char *const *words, int otherwise)
{
	if (!text)
		return otherwise;
	for (int i = 0; words[i]; i++) {
		if (strcmp(text, words[i]) == 0)
			return i;
	}
	return -1;
}

static int load_flag(const char *text, const char *no, const char *yes, bool otherwise, bool *flag)
{
	int value = find_word(text, (const char *const[]){ no, yes, NULL }, otherwise);

	*flag = value == 1;
	return value < 0 ? REFUSED : 0;
}

static int load_limit(const char *text)
{
	double percent;

	config.mem_limit = 0;
	config.mem_share = DEFAULT_MEM_SHARE;
	config.limit_text = text;
	if (!text)
		return 0;
	if (size_parse_percent(text, &percent) == 0) {
		config.mem_share = percent / 100;
		return 0;
	}
	return size_parse(text, &config.mem_limit) == 0 && config.mem_limit > 0 ? 0 : REFUSED;
}

static int load_mode(const char *text)
{
	return load_flag(text, "static", "dynamic", true, &config.dynamic);
}

static int load_group(const char *text)
{
	config.group = text;
	return !text || config_is_name(text) ? 0 : REFUSED;
}

static int load_bulk_sync(const char *text)
{
	return load_flag(text, "false", "true", true, &config.bulk_sync);
}

static int load_seg_size(const char *text)
{
	uint64_t n = DEFAULT_SEG_SIZE;

	config.seg_size_text = text;
	if (text && strcmp(text, "auto") == 0)
		n = UMMAP_SEG_AUTO;
	else if (text && (size_parse(text, &n) < 0 || n < sys_page() || (n & (n - 1))))
		return REFUSED;
	config.seg_size = n;
	return 0;
}

static int load_readahead(const char *text)
{
	config.readahead = DEFAULT_READAHEAD;
	return text && size_parse(text, &config.readahead) < 0 ? REFUSED : 0;
}

static int load_engine(const char *text)
{
	config.engine = text;
	return 0;
}

static int load_fault_threads(const char *text)
{
	uint64_t n = DEFAULT_FAULT_THREADS;

	if (text && (size_parse_count(text, &n) < 0 || n < 1 || n > MAX_FAULT_THREADS))
		return REFUSED;
	config.fault_threads = (unsigned)n;
	return 0;
}

static int load_direct(const char *text)
{
	config.direct = text ? text : "auto";
	return find_word(text, (const char *const[]){ "auto", "always", "never", NULL }, 0) < 0 ?
		       REFUSED :
		       0;
}

static int load_lock(const char *text)
{
	return load_flag(text, "no", "yes", true, &config.lock);
}

static int load_writers(const char *text)
{
	return load_flag(text, "0", "1", false, &config.writers);
}

static int load_cached(const char *text)
{
	config.cached = text ? text : "auto";
	return find_word(text, (const char *const[]){ "auto", "map", "copy", NULL }, 0) < 0 ?
		       REFUSED :
		       0;
}

static int load_on_full(const char *text)
{
	return load_flag(text, "wait", "sigbus", false, &config.bus_when_full);
}

static int load_over_budget(const char *text)
{
	size_t len = text ? strlen(text) : 0;
	char number[24];
	double percent;

	config.over_bytes = 0;
	config.over_share = 1;
	config.over_is_default = !text;
	if (!text)
		return 0;
	if (len && text[len - 1] == '%') {
		if (len <= sizeof(number))
			snprintf(number, sizeof(number), "%.*s", (int)len - 1, text);
		if (len > sizeof(number) || size_parse_decimal(number, &percent) < 0 ||
		    percent > MAX_OVER_SHARE * 100)
			return REFUSED;
		config.over_share = percent / 100;
		return 0;
	}
	/* 0 bytes is 0 % of any budget. */
	config.over_share = 0;
	return size_parse(text, &config.over_bytes) < 0 ? REFUSED : 0;
}

/* Checks the folder that the first `len` bytes of `path` name. */
static int check_folder(const char *name, const char *value, const char *path, size_t len)
{
	char folder[PATH_MAX];
	struct stat st;

	if (len >= sizeof(folder))
		return REFUSED;
	snprintf(folder, sizeof(folder), "%.*s", (int)len, path);
	if (stat(folder, &st) < 0)
		return fail(EINVAL, "%s is \"%.100s\": cannot use the folder '%.200s': %s", name,
			    value, folder, strerror(errno));
	if (!S_ISDIR(st.st_mode))
		return fail(EINVAL, "%s is \"%.100s\": '%.200s' is not a folder", name, value,
			    folder);
	return 0;
}

static int load_driver_path(const char *text)
{
	const char *part = text;
	int err = 0;

	config.driver_path = text;
	while (part && !err) {
		size_t len = strcspn(part, ":");

		err = *part == '/' ? check_folder("UMMAP_DRIVER_PATH", text, part, len) : REFUSED;
		part = part[len] ? part + len + 1 : NULL;
	}
	return err;
}

/* The driver is checked later, when drivers can be found. */
static int load_driver(const char *text)
{
	config.driver = text;
	return 0;
}

/*
 * A word without a '/' is refused: it is more likely meant to turn the output on than to be a file
 * name.
 */
static int load_stats(const char *text)
{
	const char *slash = text ? strrchr(text, '/') : NULL;

	config.stats = text;
	if (!text || strcmp(text, "1") == 0)
		return 0;
	if (!slash || !slash[1])
		return REFUSED;
	return check_folder("UMMAP_STATS", text, text, (size_t)(slash - text + 1));
}

static int load_log(const char *text)
{
	const char *parts;

	if (!text || log_configure(text, &parts) == 0)
		return 0;
	return fail(EINVAL,
		    "UMMAP_LOG is \"%.100s\": it must be error, warn, info or debug. Levels of "
		    "single parts follow "
		    "after commas, as in warn,io:debug. The parts are %s",
		    text, parts);
}

/* ---- The table of variables ---- */

static const struct variable {
	const char *name;
	int (*load)(const char *text); /* text NULL: not set. NULL: another library reads it */
	const char *type;              /* completes "it must be ..." */
} variables[] = {
#define VARIABLE(name, load, type, default, meaning, page) { name, load, type },
#include "base/variables.def"
#undef VARIABLE
};

/* Prefixes of variables that tests, benchmarks and examples read. */
static const char *const other_prefixes[] = { "UMMAP_TEST_", "UMMAP_BENCH_", "UMMAP_STRESS_",
					      "UMMAP_DEMO_" };

#define PREFIX "UMMAP_"
#define COUNT(table) (sizeof(table) / sizeof(*(table)))

/* The known name with the smallest distance, if that is at most half of its length; or NULL. */
static const char *find_nearest(const char *name, size_t len)
{
	const size_t head = strlen(PREFIX);
	size_t least = SIZE_MAX;
	const char *best = NULL;

	for (size_t i = 0; i < COUNT(variables); i++) {
		const char *known = variables[i].name + head;
		size_t d = edit_distance(name + head, len - head, known);

		if (d < least && 2 * d <= strlen(known)) {
			least = d;
			best = variables[i].name;
		}
	}
	return best;
}

static bool is_known(const char *name, size_t len)
{
	for (size_t i = 0; i < COUNT(variables); i++) {
		if (strlen(variables[i].name) == len && memcmp(variables[i].name, name, len) == 0)
			return true;
	}
	for (size_t i = 0; i < COUNT(other_prefixes); i++) {
		if (strncmp(name, other_prefixes[i], strlen(other_prefixes[i])) == 0)
			return true;
	}
	return false;
}

static void warn_of_unknown(void)
{
	if (getauxval(AT_SECURE))
		return;
	for (char **at = environ; at && *at; at++) {
		size_t len = strcspn(*at, "=");
		const char *meant;

		if (strncmp(*at, PREFIX, strlen(PREFIX)) != 0 || is_known(*at, len))
			continue;
		meant = find_nearest(*at, len);
		log_line(LOG_WARN, "config", "unknown variable %.*s%s%s%s", (int)min_size(len, 64),
			 *at, meant ? "; did you mean " : "", meant ? meant : "", meant ? "?" : "");
	}
}

/* Copies of the values: a program may change or free the strings of its environment later. */
static char *copies[COUNT(variables)];

static int load(size_t i)
{
	const struct variable *v = &variables[i];
	const char *text = v->load ? secure_getenv(v->name) : NULL;
	int err;

	free(copies[i]);
	copies[i] = text ? strdup(text) : NULL;
	if (text && !copies[i])
		return fail(ENOMEM, "cannot copy the value of %s: not enough memory", v->name);
	err = v->load ? v->load(copies[i]) : 0;
	return err == REFUSED ?
		       fail(EINVAL, "%s is \"%.100s\": it must be %s", v->name, text, v->type) :
		       err;
}

int config_load(void)
{
	for (size_t i = 0; i < COUNT(variables); i++) {
		int err = load(i);

		if (err)
			return err;
	}
	warn_of_unknown();
	return 0;
}
