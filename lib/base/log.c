/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages to the user. Allocates no memory, takes no lock, and keeps errno. */
#include "base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MAX_PART_LEVELS 16

static const char *const level_names[] = { "error", "warn", "info", "debug" };

/* The parts of the library that write log lines. */
static const char known_parts[] = "config, engine, flusher, inplace, io, load, lock, mode, node, "
				  "remap, sigsegv, stall, start, stats";

static enum log_level general_level = LOG_WARN;
/* Levels of single parts, which override the general level. */
static struct {
	char part[16];
	enum log_level level;
} part_levels[MAX_PART_LEVELS];
static unsigned part_level_count;

/* Message of the thread's last failed call. The default TLS model would allocate this buffer in a
 * signal handler if a program loads the library with dlopen(3). With this model, glibc has 1664
 * bytes for all libraries that are loaded later: a larger buffer makes Python's "import ummap"
 * fail. */
static _Thread_local char message[512] __attribute__((tls_model("initial-exec")));

static int parse_level(const char *s, size_t len, enum log_level *level)
{
	for (unsigned i = 0; i < sizeof(level_names) / sizeof(*level_names); i++) {
		if (strlen(level_names[i]) == len && memcmp(level_names[i], s, len) == 0) {
			*level = (enum log_level)i;
			return 0;
		}
	}
	return -EINVAL;
}

static bool is_part(const char *s, size_t len)
{
	for (const char *at = known_parts; *at; at += strspn(at, ", ")) {
		size_t n = strcspn(at, ",");

		if (n == len && memcmp(at, s, len) == 0)
			return true;
		at += n;
	}
	return false;
}

static int parse_item(const char *s, size_t len)
{
	const char *colon = memchr(s, ':', len);
	size_t part_len = colon ? (size_t)(colon - s) : 0;

	if (!colon)
		return parse_level(s, len, &general_level);
	if (!is_part(s, part_len) || part_level_count == MAX_PART_LEVELS)
		return -EINVAL;
	if (parse_level(colon + 1, len - part_len - 1, &part_levels[part_level_count].level) < 0)
		return -EINVAL;
	memcpy(part_levels[part_level_count].part, s, part_len);
	part_levels[part_level_count].part[part_len] = '\0';
	part_level_count++;
	return 0;
}

int log_configure(const char *spec, const char **parts)
{
	*parts = known_parts;
	part_level_count = 0;
	general_level = LOG_WARN;
	for (;;) {
		size_t len = strcspn(spec, ",");

		if (parse_item(spec, len) < 0)
			return -EINVAL;
		if (spec[len] == '\0')
			return 0;
		spec += len + 1;
	}
}

static bool is_enabled(enum log_level level, const char *part)
{
	for (unsigned i = 0; i < part_level_count; i++) {
		if (strcmp(part_levels[i].part, part) == 0)
			return level <= part_levels[i].level;
	}
	return level <= general_level;
}

void log_line(enum log_level level, const char *part, const char *format, ...)
{
	char line[512];
	int saved = errno, head, body;
	va_list args;

	if (!is_enabled(level, part))
		return;
	head = snprintf(line, sizeof(line), "ummap[%d] %s %s: ", (int)getpid(),
			level_names[level], part);
	va_start(args, format);
	body = vsnprintf(line + head, sizeof(line) - (size_t)head - 1, format, args);
	va_end(args);
	if (body > (int)sizeof(line) - head - 2)
		body = (int)sizeof(line) - head - 2;
	line[head + body] = '\n';
	/* write(3) is a cancellation point. */
	syscall(SYS_write, STDERR_FILENO, line, (size_t)head + (size_t)body + 1);
	errno = saved;
}

int fail_with(int error, const char *format, va_list args)
{
	/* A separate buffer, because the arguments may contain the current message. */
	char text[2 * sizeof(message)];
	const size_t half = sizeof(message) / 2;
	size_t len;

	vsnprintf(text, sizeof(text), format, args);
	len = strlen(text);
	/* A long message is cut in the middle, to keep the reason and the remedy at its end. */
	if (len < sizeof(message))
		memcpy(message, text, len + 1);
	else
		snprintf(message, sizeof(message), "%.*s...%s", (int)half - 4, text,
			 text + len - half);
	return -error;
}

int fail(int error, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	fail_with(error, format, args);
	va_end(args);
	return -error;
}

const char *fail_message(void)
{
	return message;
}

void fail_clear(void)
{
	message[0] = '\0';
}
