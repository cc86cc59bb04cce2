/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reads the environment. A bad value is refused with a sentence that names the variable, what it was and
 * what it may be; it is never ignored. Runs under core's start lock.
 */
#include "config.h"

#include "log.h"
#include "sys.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <ummap.h>

#define DEFAULT_SEG_SIZE ((size_t)2 << 20)
#define DEFAULT_READAHEAD ((size_t)16 << 20)
#define DEFAULT_FACTOR 0.8
/* Each waits for storage by itself: so many requests of theirs are on their way at a time. */
#define DEFAULT_FAULT_THREADS 8
#define FAULT_THREADS_MAX 64

struct config config = { .direct = "auto", .cached = "copy" };

int config_size(const char *text, size_t *size)
{
	static const char units[] = "KMGT";
	unsigned long long n;
	const char *unit;
	unsigned shift = 0;
	char *end;

	if (!isdigit((unsigned char)*text))
		return -EINVAL;
	errno = 0;
	n = strtoull(text, &end, 10);
	if (errno)
		return -EINVAL;
	if (*end) {
		unit = strchr(units, toupper((unsigned char)*end));
		if (!unit || end[1])
			return -EINVAL;
		shift = 10 * (unsigned)(unit - units + 1);
	}
	if (n > SIZE_MAX >> shift)
		return -EINVAL;
	*size = (size_t)n << shift;
	return 0;
}

bool config_is_name(const char *text)
{
	size_t len = strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.");

	return len > 0 && len <= CONFIG_NAME_MAX && !text[len];
}

static int load_limit(void)
{
	const char *text = getenv("UMMAP_MEM_LIMIT");
	size_t len = text ? strlen(text) : 0;
	char *end;

	config.mem_limit = 0;
	if (!text)
		return 0;
	if (len && text[len - 1] == '%') {
		double percent = strtod(text, &end);

		if (isdigit((unsigned char)*text) && end == text + len - 1 && percent > 0 && percent <= 100) {
			config.mem_share = percent / 100;
			return 0;
		}
	} else if (config_size(text, &config.mem_limit) == 0 && config.mem_limit > 0) {
		return 0;
	}
	return fail(EINVAL, "UMMAP_MEM_LIMIT is \"%s\": it must be bytes (536870912, 512M, 8G) or 1%% to 100%%",
		    text);
}

static int load_factor(void)
{
	const char *text = getenv("UMMAP_MEM_FACTOR");
	char *end;

	config.mem_share = DEFAULT_FACTOR;
	if (!text)
		return 0;
	config.mem_share = strtod(text, &end);
	if ((!isdigit((unsigned char)*text) && *text != '.') || *end ||
	    !(config.mem_share > 0 && config.mem_share <= 1))
		return fail(EINVAL, "UMMAP_MEM_FACTOR is \"%s\": it must be above 0 and at most 1", text);
	return 0;
}

static int load_mode(void)
{
	const char *text = getenv("UMMAP_MEMCONFIG");

	config.dynamic = text && strcmp(text, "dynamic") == 0;
	if (!text || config.dynamic || strcmp(text, "static") == 0)
		return 0;
	return fail(EINVAL, "UMMAP_MEMCONFIG is \"%s\": it must be static or dynamic", text);
}

static int load_group(void)
{
	config.group = getenv("UMMAP_GROUP");
	if (!config.group || config_is_name(config.group))
		return 0;
	return fail(EINVAL, "UMMAP_GROUP is \"%.64s\": it must be 1 to %d letters, digits, '-', '_' or '.'",
		    config.group, CONFIG_NAME_MAX);
}

static int load_sigevict(void)
{
	const char *text = getenv("UMMAP_SIGEVICT");
	char *end;
	long n;

	config.sigevict = 0;
	if (!text)
		return 0;
	n = strtol(text, &end, 10);
	if (!isdigit((unsigned char)*text) || *end || n < SIGRTMIN || n > SIGRTMAX)
		return fail(EINVAL, "UMMAP_SIGEVICT is \"%s\": it must be a real-time signal, %d to %d", text,
			    SIGRTMIN, SIGRTMAX);
	config.sigevict = (int)n;
	return 0;
}

static int load_bulk_sync(void)
{
	const char *text = getenv("UMMAP_BULK_SYNC");

	config.bulk_sync = true;
	if (!text || strcmp(text, "true") == 0)
		return 0;
	config.bulk_sync = false;
	if (strcmp(text, "false") == 0)
		return 0;
	return fail(EINVAL, "UMMAP_BULK_SYNC is \"%s\": it must be true or false", text);
}

static int load_seg_size(void)
{
	const char *text = getenv("UMMAP_SEG_SIZE");
	size_t n = DEFAULT_SEG_SIZE;

	if (text && (config_size(text, &n) < 0 || n < sys_page() || (n & (n - 1))))
		return fail(EINVAL, "UMMAP_SEG_SIZE is \"%s\": it must be a power of two of at least %zu",
			    text, sys_page());
	config.seg_size = n;
	return 0;
}

static int load_readahead(void)
{
	const char *text = getenv("UMMAP_READAHEAD");

	config.readahead = DEFAULT_READAHEAD;
	if (text && config_size(text, &config.readahead) < 0)
		return fail(EINVAL, "UMMAP_READAHEAD is \"%s\": it must be bytes (16M), or 0 for none", text);
	return 0;
}

static int load_engine(void)
{
	static const char *const names[] = { [UMMAP_ENGINE_AUTO] = "auto", [UMMAP_ENGINE_SEGV] = "segv",
					     [UMMAP_ENGINE_UFFD] = "uffd" };
	const char *text = getenv("UMMAP_ENGINE");

	for (int i = UMMAP_ENGINE_AUTO; i <= UMMAP_ENGINE_UFFD; i++) {
		if (!text || strcmp(text, names[i]) == 0) {
			config.engine = i;
			return 0;
		}
	}
	return fail(EINVAL, "UMMAP_ENGINE is \"%s\": it must be auto, segv or uffd", text);
}

static int load_fault_threads(void)
{
	const char *text = getenv("UMMAP_FAULT_THREADS");
	size_t n = DEFAULT_FAULT_THREADS;

	if (text && (config_size(text, &n) < 0 || n < 1 || n > FAULT_THREADS_MAX))
		return fail(EINVAL, "UMMAP_FAULT_THREADS is \"%s\": it must be a number from 1 to %d", text,
			    FAULT_THREADS_MAX);
	config.fault_threads = (unsigned)n;
	return 0;
}

static int load_direct(void)
{
	const char *text = getenv("UMMAP_DIRECT");

	config.direct = text ? text : "auto";
	if (strcmp(config.direct, "auto") && strcmp(config.direct, "always") && strcmp(config.direct, "never"))
		return fail(EINVAL, "UMMAP_DIRECT is \"%s\": it must be auto, always or never", text);
	return 0;
}

static int load_lock(void)
{
	const char *text = getenv("UMMAP_LOCK");

	config.lock = !text || strcmp(text, "no");
	if (!text || !config.lock || strcmp(text, "yes") == 0)
		return 0;
	return fail(EINVAL, "UMMAP_LOCK is \"%s\": it must be yes or no", text);
}

static int load_writers(void)
{
	const char *text = getenv("UMMAP_WRITERS");

	config.writers = text && strcmp(text, "1") == 0;
	if (!text || config.writers || strcmp(text, "0") == 0)
		return 0;
	return fail(EINVAL, "UMMAP_WRITERS is \"%s\": it must be 1 or 0", text);
}

static int load_cached(void)
{
	const char *text = getenv("UMMAP_CACHED");

	config.cached = text ? text : "copy";
	if (strcmp(config.cached, "copy") && strcmp(config.cached, "map"))
		return fail(EINVAL, "UMMAP_CACHED is \"%s\": it must be copy or map", text);
	return 0;
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

static int load_driver_path(void)
{
	const char *part = secure_getenv("UMMAP_DRIVER_PATH");
	int err = 0;

	config.driver_path = part;
	while (part && !err) {
		size_t len = strcspn(part, ":");

		err = check_folder(part, len);
		part = part[len] ? part + len + 1 : NULL;
	}
	return err;
}

static int load_names(void)
{
	const char *text = getenv("UMMAP_LOG");

	if (text && log_configure(text) < 0)
		return fail(EINVAL, "UMMAP_LOG is \"%s\": it must be error, warn, info or debug, with "
			    "room:level pairs after commas if wanted", text);
	config.driver = getenv("UMMAP_DRIVER");
	config.stats = getenv("UMMAP_STATS");
	if (config.stats && !*config.stats)
		return fail(EINVAL, "UMMAP_STATS is empty: it must be 1, or a path for JSON");
	return 0;
}

int config_load(void)
{
	int (*const loads[])(void) = { load_names, load_factor, load_limit, load_mode, load_group, load_sigevict,
				       load_bulk_sync, load_seg_size, load_readahead, load_direct, load_cached, load_driver_path, load_lock, load_writers,
				       load_engine, load_fault_threads };

	for (unsigned i = 0; i < sizeof(loads) / sizeof(*loads); i++) {
		int err = loads[i]();

		if (err)
			return err;
	}
	return 0;
}
