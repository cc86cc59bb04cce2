/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reads the variables of the table variables.def from the environment, except in a program that
 * gains privileges when it is started. An invalid value is an error whose message has the variable,
 * its value and the valid values. An unknown name causes a warning with the most similar known
 * name. The caller holds the lock of api/start.c.
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
/* Twice the product of 1.3 GB/s and 50 ms, because the bytes that have come take time, too. */
#define DEFAULT_REMOTE_READAHEAD ((size_t)128 << 20)
#define DEFAULT_MEM_SHARE 0.8
/* Each thread waits for one request, so this is also the number of requests in flight. */
#define DEFAULT_FAULT_THREADS 8
#define MAX_FAULT_THREADS 64
/* Maximum of UMMAP_OVER_BUDGET, in percent of the budget. */
#define MAX_OVER_PERCENT 10000

struct config config = { .direct = "auto", .cached = "auto" };

bool config_is_name(const char *text)
{
	size_t len =
		strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.");

	return len > 0 && len <= CONFIG_NAME_MAX && !text[len];
}

/* Loaders set the fields of `config`. They get the value of the variable, or NULL if it is not set,
 * and return 0, REFUSED (the value is not of the type), or -errno with a message. */
#define REFUSED 1

static int load_flag(const char *text, const char *no, const char *yes, bool unset, bool *flag)
{
	*flag = text ? strcmp(text, yes) == 0 : unset;
	return !text || *flag || strcmp(text, no) == 0 ? 0 : REFUSED;
}

/* words: the valid values; the first one is the default. NULL ends the list. */
static int load_word(const char *text, const char *const *words, const char **word)
{
	*word = text ? text : words[0];
	while (*words && strcmp(*word, *words) != 0)
		words++;
	return *words ? 0 : REFUSED;
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
	uint64_t n = 0;

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
	config.remote_readahead = DEFAULT_REMOTE_READAHEAD;
	if (!text)
		return 0;
	if (size_parse(text, &config.readahead) < 0)
		return REFUSED;
	config.remote_readahead = config.readahead;
	return 0;
}

static int load_engine(const char *text)
{
	config.engine = text;
	return 0;
}

static int load_tiers(const char *text)
{
	config.tiers = text;
	return 0;
}

static int load_tiers_policy(const char *text)
{
	config.tiers_policy = text ? text : "lru";
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
	static const char *const words[] = { "auto", "always", "never", NULL };

	return load_word(text, words, &config.direct);
}

static int load_lock(const char *text)
{
	return load_flag(text, "no", "yes", true, &config.lock);
}

static int load_writers(const char *text)
{
	return load_flag(text, "0", "1", false, &config.writers);
}

static int load_node_cache(const char *text)
{
	return load_flag(text, "0", "1", false, &config.node_cache);
}

static int load_cached(const char *text)
{
	static const char *const words[] = { "auto", "map", "copy", NULL };

	return load_word(text, words, &config.cached);
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
		    percent > MAX_OVER_PERCENT)
			return REFUSED;
		config.over_share = percent / 100;
		return 0;
	}
	config.over_share = 0;
	return size_parse(text, &config.over_bytes) < 0 ? REFUSED : 0;
}

static int load_flush_rate(const char *text)
{
	config.flush_rate = 0;
	return text && size_parse(text, &config.flush_rate) < 0 ? REFUSED : 0;
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

/* start_library checks the driver, after the variables that drivers need are loaded. */
static int load_driver(const char *text)
{
	config.driver = text;
	return 0;
}

/* Refuses a word without a '/', which the user probably means as "on" and not as a file name. */
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
	return fail(EINVAL, "UMMAP_LOG is \"%.100s\": it must be error, warn, info or debug. "
		    "Levels of single parts follow after commas, as in warn,io:debug. The parts "
		    "are %s", text, parts);
}

/* ---- The table of variables ---- */

static const struct variable {
	const char *name;              /* name in the environment */
	int (*load)(const char *text); /* loader; NULL: another library reads the variable */
	const char *type;              /* valid values: completes "it must be ..." */
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

/* Returns the known name with the smallest edit distance if that is at most half of the name's
 * length, otherwise NULL. */
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

/* Copies of the values, because a program may change or free the strings of its environment. */
static char *copies[COUNT(variables)];

static int load_variable(size_t i)
{
	const struct variable *v = &variables[i];
	const char *text = v->load ? secure_getenv(v->name) : NULL;
	int err;

	free(copies[i]);
	copies[i] = text ? strdup(text) : NULL;
	if (text && !copies[i])
		return fail(ENOMEM, "cannot copy the value of %s: not enough memory", v->name);
	err = v->load ? v->load(copies[i]) : 0;
	if (err == REFUSED)
		return fail(EINVAL, "%s is \"%.100s\": it must be %s", v->name, text, v->type);
	return err;
}

int config_load(void)
{
	for (size_t i = 0; i < COUNT(variables); i++) {
		int err = load_variable(i);

		if (err)
			return err;
	}
	warn_of_unknown();
	return 0;
}
