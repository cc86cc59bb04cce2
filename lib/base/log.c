/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages for people. Allocates nothing, takes no lock, and leaves errno alone.
 */
#include "base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ROOMS_MAX 16

static const char *const level_names[] = { "error", "warn", "info", "debug" };

/* Those that have something to say. */
static const char known_rooms[] = "config, engine, flusher, inplace, io, load, lock, mode, node, remap, sigsegv, stall, start, stats";

static enum log_level general_level = LOG_WARN;
static struct {
	char room[16];
	enum log_level level;
} special[ROOMS_MAX];
static unsigned specials;

/* The model is named because a dlopen'ed library must not allocate its thread-local memory in a
 * handler. glibc has 1664 bytes for such memory of all libraries that a program loads later, as
 * Python loads this one: a larger buffer makes "import ummap" fail. */
static _Thread_local char sentence[512] __attribute__((tls_model("initial-exec")));

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

static bool is_room(const char *s, size_t len)
{
	for (const char *at = known_rooms; *at; at += strspn(at, ", ")) {
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
	size_t room = colon ? (size_t)(colon - s) : 0;

	if (!colon)
		return parse_level(s, len, &general_level);
	if (!is_room(s, room) || specials == ROOMS_MAX)
		return -EINVAL;
	if (parse_level(colon + 1, len - room - 1, &special[specials].level) < 0)
		return -EINVAL;
	memcpy(special[specials].room, s, room);
	special[specials].room[room] = '\0';
	specials++;
	return 0;
}

int log_configure(const char *spec, const char **rooms)
{
	*rooms = known_rooms;
	specials = 0;
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

bool log_enabled(enum log_level level, const char *room)
{
	for (unsigned i = 0; i < specials; i++) {
		if (strcmp(special[i].room, room) == 0)
			return level <= special[i].level;
	}
	return level <= general_level;
}

void log_line(enum log_level level, const char *room, const char *format, ...)
{
	char line[512];
	int saved = errno, head, body;
	va_list args;

	if (!log_enabled(level, room))
		return;
	head = snprintf(line, sizeof(line), "ummap[%d] %s %s: ", (int)getpid(), level_names[level], room);
	va_start(args, format);
	body = vsnprintf(line + head, sizeof(line) - (size_t)head - 1, format, args);
	va_end(args);
	if (body > (int)sizeof(line) - head - 2)
		body = (int)sizeof(line) - head - 2;
	line[head + body] = '\n';
	/* Not write(2), at which a thread could be cancelled. */
	syscall(SYS_write, STDERR_FILENO, line, (size_t)head + (size_t)body + 1);
	errno = saved;
}

int fail_with(int error, const char *format, va_list args)
{
	/* The arguments may contain the present message. */
	char text[2 * sizeof(sentence)];
	const size_t half = sizeof(sentence) / 2;
	size_t len;

	vsnprintf(text, sizeof(text), format, args);
	len = strlen(text);
	/* A long name is cut, and not the reason and the remedy after it. */
	if (len < sizeof(sentence))
		memcpy(sentence, text, len + 1);
	else
		snprintf(sentence, sizeof(sentence), "%.*s...%s", (int)half - 4, text,
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
	return sentence;
}

void fail_clear(void)
{
	sentence[0] = '\0';
}
