/* SPDX-License-Identifier: BSD-3-Clause */
/* Functions for tests of filters that keep a file beside the store, and for the tools of these
 * files. */
#ifndef TESTS_BESIDE_H
#define TESTS_BESIDE_H

#include "common.h"

#define COMMAND_MAX 1600

/* Makes the command of a tool. The program ummap is in the folder above that of this program. */
static inline void tool_command(const char *name, const char *words,
				char command[static COMMAND_MAX])
{
	char self[320];
	ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);

	check(len > 0);
	self[len] = '\0';
	*strrchr(self, '/') = '\0';
	snprintf(command, COMMAND_MAX, "'%s/../ummap' %s %s", self, name, words);
}

/* Runs a tool. Returns its exit status. */
static inline int run_tool(const char *name, const char *words)
{
	char command[COMMAND_MAX], silent[COMMAND_MAX + 20];
	int status;

	tool_command(name, words, command);
	snprintf(silent, sizeof(silent), "%s > /dev/null 2>&1", command);
	status = system(silent);
	check(WIFEXITED(status) && WEXITSTATUS(status) < 127, "%s", command);
	return WEXITSTATUS(status);
}

/* Runs a tool, and checks its exit status and that its output, with errors, has this text. */
static inline void check_tool(const char *name, const char *words, int status, const char *text)
{
	char command[COMMAND_MAX], both[COMMAND_MAX + 20], output[4 * KIB];
	size_t len;
	FILE *out;
	int got;

	tool_command(name, words, command);
	snprintf(both, sizeof(both), "%s 2>&1", command);
	out = popen(both, "r");
	check(out);
	len = fread(output, 1, sizeof(output) - 1, out);
	output[len] = '\0';
	got = pclose(out);
	check(WIFEXITED(got) && WEXITSTATUS(got) == status && strstr(output, text), "%s: %s",
	      command, output);
}

static inline void check_not_dropped(const char *tool, const char *option, const char *file,
				     const char *store)
{
	char words[800];

	snprintf(words, sizeof(words), "%s '%s' drop '%s'", option, file, store);
	check(run_tool(tool, words) == 2 && access(file, F_OK) == 0, "%s %s", tool, words);
}

/* The tool removes only its own kind of files, and only that of the named store. */
static inline void check_drops_nothing_else(const char *tool, const char *option, const char *file,
					    const char *store)
{
	char other[320];
	int fd = temp_named("other", 0, other);

	check(write(fd, "of value", 8) == 8);
	close(fd);
	check_not_dropped(tool, option, other, store);
	check_not_dropped(tool, option, store, store);
	check_not_dropped(tool, option, file, other);
	unlink(other);
}

/* Counts how often the log of messages has these words. */
static inline unsigned count_lines(int log, const char *words)
{
	static char text[64 * KIB];
	ssize_t len = pread(log, text, sizeof(text) - 1, 0);
	unsigned n = 0;

	check(len >= 0);
	text[len] = '\0';
	for (const char *at = text; (at = strstr(at, words)); at++)
		n++;
	return n;
}

#endif
