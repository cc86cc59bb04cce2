/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reads the environment, which is ignored in a program that gains privileges when it is started. A bad value is
 * refused with a sentence that names the variable, its value and the valid ones; it is never ignored. An unknown name
 * causes a warning, with the name that may have been meant. Runs under the lock of api/start.c.
 */
#include "base/config.h"

#include "base/log.h"
#include "base/size.h"
#include "base/sys.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <ummap.h>
#include <unistd.h>

#define DEFAULT_SEG_SIZE ((size_t)2 << 20)
#define DEFAULT_READAHEAD ((size_t)16 << 20)
#define DEFAULT_FACTOR 0.8
/* Each waits for storage by itself: so many requests of theirs are on their way at a time. */
#define DEFAULT_FAULT_THREADS 8
#define FAULT_THREADS_MAX 64
/* Maximum of UMMAP_OVER_BUDGET, as a multiple of the budget. */
#define OVER_SHARE_MAX 100

struct config config = { .direct = "auto", .cached = "auto" };

bool config_is_name(const char *text)
{
	size_t len = strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.");

	return len > 0 && len <= CONFIG_NAME_MAX && !text[len];
}

static int load_limit(const char *text)
{
	double percent;

	config.mem_limit = 0;
	if (!text)
		return 0;
	config.limit_name = "UMMAP_MEM_LIMIT";
	config.limit_text = text;
	if (size_parse_percent(text, &percent) == 0) {
		config.mem_share = percent / 100;
		return 0;
	}
	if (size_parse(text, &config.mem_limit) == 0 && config.mem_limit > 0)
		return 0;
	return fail(EINVAL, "UMMAP_MEM_LIMIT is \"%s\": it must be " SIZE_FORMS ", or a part of the memory (50%%)", text);
}

static int load_factor(const char *text)
{
	config.mem_share = DEFAULT_FACTOR;
	config.limit_name = "UMMAP_MEM_FACTOR";
	config.limit_text = text ? text : "not set";
	if (!text)
		return 0;
	if (size_parse_decimal(text, &config.mem_share) < 0 || !(config.mem_share > 0 && config.mem_share <= 1))
		return fail(EINVAL, "UMMAP_MEM_FACTOR is \"%s\": it must be above 0 and at most 1", text);
	return 0;
}

static int load_mode(const char *text)
{
	config.dynamic = !text || strcmp(text, "dynamic") == 0;
	if (config.dynamic || strcmp(text, "static") == 0)
		return 0;
	return fail(EINVAL, "UMMAP_MEMCONFIG is \"%s\": it must be static or dynamic", text);
}

static int load_group(const char *text)
{
	config.group = text;
	if (!text || config_is_name(text))
		return 0;
	return fail(EINVAL, "UMMAP_GROUP is \"%.64s\": it must be 1 to %d letters, digits, '-', '_' or '.'", text,
		    CONFIG_NAME_MAX);
}

static int load_sigevict(const char *text)
{
	if (text)
		log_line(LOG_WARN, "config", "UMMAP_SIGEVICT is no longer used: processes ask each other for memory without "
			 "a signal");
	return 0;
}

static int load_bulk_sync(const char *text)
{
	config.bulk_sync = true;
	if (!text || strcmp(text, "true") == 0)
		return 0;
	config.bulk_sync = false;
	if (strcmp(text, "false") == 0)
		return 0;
	return fail(EINVAL, "UMMAP_BULK_SYNC is \"%s\": it must be true or false", text);
}

static int load_seg_size(const char *text)
{
	uint64_t n = DEFAULT_SEG_SIZE;

	config.seg_size_text = text;
	if (text && (size_parse(text, &n) < 0 || n < sys_page() || (n & (n - 1))))
		return fail(EINVAL, "UMMAP_SEG_SIZE is \"%s\": it must be a power of two of at least %zu",
			    text, sys_page());
	config.seg_size = n;
	return 0;
}

static int load_readahead(const char *text)
{
	config.readahead = DEFAULT_READAHEAD;
	if (text && size_parse(text, &config.readahead) < 0)
		return fail(EINVAL, "UMMAP_READAHEAD is \"%s\": it must be " SIZE_FORMS ", or 0 for none", text);
	return 0;
}

static int load_engine(const char *text)
{
	static const char *const names[] = { [UMMAP_ENGINE_AUTO] = "auto", [UMMAP_ENGINE_SEGV] = "segv",
					     [UMMAP_ENGINE_UFFD] = "uffd", [UMMAP_ENGINE_SIGBUS] = "sigbus" };

	for (int i = UMMAP_ENGINE_AUTO; i <= UMMAP_ENGINE_SIGBUS; i++) {
		if (!text || strcmp(text, names[i]) == 0) {
			config.engine = i;
			return 0;
		}
	}
	return fail(EINVAL, "UMMAP_ENGINE is \"%s\": it must be auto, segv, sigbus or uffd", text);
}

static int load_fault_threads(const char *text)
{
	uint64_t n = DEFAULT_FAULT_THREADS;

	if (text && (size_parse_count(text, &n) < 0 || n < 1 || n > FAULT_THREADS_MAX))
		return fail(EINVAL, "UMMAP_FAULT_THREADS is \"%s\": it must be a number from 1 to %d", text,
			    FAULT_THREADS_MAX);
	config.fault_threads = (unsigned)n;
	return 0;
}

static int load_direct(const char *text)
{
	config.direct = text ? text : "auto";
	if (strcmp(config.direct, "auto") && strcmp(config.direct, "always") && strcmp(config.direct, "never"))
		return fail(EINVAL, "UMMAP_DIRECT is \"%s\": it must be auto, always or never", text);
	return 0;
}

static int load_lock(const char *text)
{
	config.lock = !text || strcmp(text, "no");
	if (!text || !config.lock || strcmp(text, "yes") == 0)
		return 0;
	return fail(EINVAL, "UMMAP_LOCK is \"%s\": it must be yes or no", text);
}

static int load_writers(const char *text)
{
	config.writers = text && strcmp(text, "1") == 0;
	if (!text || config.writers || strcmp(text, "0") == 0)
		return 0;
	return fail(EINVAL, "UMMAP_WRITERS is \"%s\": it must be 1 or 0", text);
}

static int load_cached(const char *text)
{
	config.cached = text ? text : "auto";
	if (strcmp(config.cached, "auto") && strcmp(config.cached, "copy") && strcmp(config.cached, "map"))
		return fail(EINVAL, "UMMAP_CACHED is \"%s\": it must be auto, map or copy", text);
	return 0;
}

static int load_on_full(const char *text)
{
	config.bus_when_full = text && strcmp(text, "sigbus") == 0;
	if (!text || config.bus_when_full || strcmp(text, "wait") == 0)
		return 0;
	return fail(EINVAL, "UMMAP_ON_FULL is \"%s\": it must be wait or sigbus", text);
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
		if (len <= sizeof(number) && size_parse_decimal(number, &percent) == 0 && percent <= OVER_SHARE_MAX * 100) {
			config.over_share = percent / 100;
			return 0;
		}
	} else if (size_parse(text, &config.over_bytes) == 0) {
		/* 0 bytes is 0 % of any budget. */
		config.over_share = 0;
		return 0;
	}
	return fail(EINVAL, "UMMAP_OVER_BUDGET is \"%s\": it must be bytes (67108864, 64M, 1G) or 0%% to %d%% of the budget", text,
		    OVER_SHARE_MAX * 100);
}

static int check_folder(const char *text, size_t len)
{
	char folder[PATH_MAX];
	struct stat st;

	if (len == 0)
		return fail(EINVAL, "UMMAP_DRIVER_PATH has an empty part: it must be folders with colons between them");
	if (*text != '/')
		return fail(EINVAL, "UMMAP_DRIVER_PATH has \"%.*s\": its folders must begin with /", (int)len, text);
	snprintf(folder, sizeof(folder), "%.*s", (int)len, text);
	if (stat(folder, &st) < 0)
		return fail(EINVAL, "UMMAP_DRIVER_PATH has \"%s\": %s", folder, strerror(errno));
	if (!S_ISDIR(st.st_mode))
		return fail(EINVAL, "UMMAP_DRIVER_PATH has \"%s\", which is no folder", folder);
	return 0;
}

static int load_driver_path(const char *text)
{
	const char *part = text;
	int err = 0;

	config.driver_path = text;
	while (part && !err) {
		size_t len = strcspn(part, ":");

		err = check_folder(part, len);
		part = part[len] ? part + len + 1 : NULL;
	}
	return err;
}

static int load_driver(const char *text)
{
	config.driver = text;
	return 0;
}

/* A word without a '/' is more likely meant to turn it on than to be a file in the current folder. */
static int load_stats(const char *text)
{
	const char *slash = text ? strrchr(text, '/') : NULL;
	char folder[PATH_MAX];
	struct stat st;

	config.stats = text;
	if (!text || strcmp(text, "1") == 0)
		return 0;
	if (!slash || !slash[1])
		return fail(EINVAL, "UMMAP_STATS is \"%s\": it must be 1, or the path of a file for JSON, which has a / in it "
			    "(./stats.json)", text);
	snprintf(folder, sizeof(folder), "%.*s", (int)(slash - text + 1), text);
	if (stat(folder, &st) < 0 || !S_ISDIR(st.st_mode))
		return fail(EINVAL, "UMMAP_STATS is \"%s\": it must be 1, or the path of a file for JSON, but there is no folder "
			    "%s", text, folder);
	return 0;
}

static int load_log(const char *text)
{
	const char *rooms;

	if (!text || log_configure(text, &rooms) == 0)
		return 0;
	return fail(EINVAL, "UMMAP_LOG is \"%s\": it must be error, warn, info or debug, with room:level pairs after "
		    "commas if wanted; the rooms are %s", text, rooms);
}

/* ---- All that there are ---- */

static const struct variable {
	const char *name;
	int (*load)(const char *text); /* text NULL: it is not set. load NULL: others read it */
} variables[] = {
	{ "UMMAP_LOG", load_log },
	{ "UMMAP_MEM_FACTOR", load_factor },
	{ "UMMAP_MEM_LIMIT", load_limit }, /* behind the factor, which it overrules */
	{ "UMMAP_MEMCONFIG", load_mode },
	{ "UMMAP_GROUP", load_group },
	{ "UMMAP_SIGEVICT", load_sigevict },
	{ "UMMAP_BULK_SYNC", load_bulk_sync },
	{ "UMMAP_SEG_SIZE", load_seg_size },
	{ "UMMAP_READAHEAD", load_readahead },
	{ "UMMAP_DRIVER", load_driver },
	{ "UMMAP_DRIVER_PATH", load_driver_path },
	{ "UMMAP_DIRECT", load_direct },
	{ "UMMAP_LOCK", load_lock },
	{ "UMMAP_WRITERS", load_writers },
	{ "UMMAP_CACHED", load_cached },
	{ "UMMAP_ENGINE", load_engine },
	{ "UMMAP_FAULT_THREADS", load_fault_threads },
	{ "UMMAP_ON_FULL", load_on_full },
	{ "UMMAP_OVER_BUDGET", load_over_budget },
	{ "UMMAP_STATS", load_stats },
	{ "UMMAP_MPI_ALL", NULL },
	{ "UMMAP_MPI_LOCAL", NULL },
	{ "UMMAP_IOCACHE_ALL", NULL },
	{ "UMMAP_IOCACHE_FAR", NULL },
	{ "UMMAP_IOCACHE_NEAR", NULL },
	{ "UMMAP_IOCACHE_NODES", NULL },
	{ "UMMAP_IOCACHE_PATH", NULL },
};

/* Programs that come with the library have variables of their own. */
static const char *const of_programs[] = { "UMMAP_TEST_", "UMMAP_BENCH_", "UMMAP_STRESS_", "UMMAP_DEMO_" };

#define PREFIX "UMMAP_"
#define NAME_MAX_LEN 31
#define COUNT(table) (sizeof(table) / sizeof(*(table)))

/* How many letters make one name of the other: Levenshtein's distance, one row of its table at a time. */
static size_t distance(const char *a, size_t len, const char *b)
{
	size_t row[NAME_MAX_LEN + 1], last = strlen(b);

	for (size_t j = 0; j <= last; j++)
		row[j] = j;
	for (size_t i = 0; i < len; i++) {
		size_t corner = row[0];

		row[0] = i + 1;
		for (size_t j = 0; j < last; j++) {
			size_t change = corner + (a[i] != b[j]);

			corner = row[j + 1];
			row[j + 1] = min_size(change, 1 + min_size(row[j], row[j + 1]));
		}
	}
	return row[last];
}

/* The name that may be meant: the one that differs least, by no more than half of its own letters. */
static const char *nearest(const char *name, size_t len)
{
	const size_t head = strlen(PREFIX);
	size_t least = SIZE_MAX;
	const char *best = NULL;

	for (size_t i = 0; i < COUNT(variables); i++) {
		const char *known = variables[i].name + head;
		size_t d = distance(name + head, len - head, known);

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
	for (size_t i = 0; i < COUNT(of_programs); i++) {
		if (strncmp(name, of_programs[i], strlen(of_programs[i])) == 0)
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
		meant = nearest(*at, len);
		log_line(LOG_WARN, "config", "unknown variable %.*s%s%s%s", (int)min_size(len, 64), *at,
			 meant ? "; did you mean " : "", meant ? meant : "", meant ? "?" : "");
	}
}

/* Programs free what they had in the environment, and use it for other things. */
static char *copies[COUNT(variables)];

static int load(size_t i)
{
	const char *text = variables[i].load ? secure_getenv(variables[i].name) : NULL;

	free(copies[i]);
	copies[i] = text ? strdup(text) : NULL;
	if (text && !copies[i])
		return fail(ENOMEM, "no memory for the value of %s", variables[i].name);
	return variables[i].load ? variables[i].load(copies[i]) : 0;
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
