/* SPDX-License-Identifier: BSD-3-Clause */
/* script.h - functions for tests of the scripts that draw pictures. */
#ifndef TEST_SCRIPT_H
#define TEST_SCRIPT_H

#include "common.h"

/* Runs a script; `out` receives its output. Returns the exit status. */
__attribute__((format(printf, 3, 4)))
static inline int run_tool(const char *name, char out[static 4096], const char *format, ...)
{
	char command[2048];
	size_t len = (size_t)snprintf(command, sizeof(command), "tools/%s ", name), got;
	va_list args;
	FILE *f;

	va_start(args, format);
	vsnprintf(command + len, sizeof(command) - len, format, args);
	va_end(args);
	strcat(command, " 2>&1");
	f = popen(command, "re");
	check(f);
	got = fread(out, 1, 4095, f);
	out[got] = '\0';
	return WEXITSTATUS(pclose(f));
}

static inline void check_picture(const char *path, const char *magic)
{
	char head[16] = "";
	struct stat st;
	int fd = open(path, O_RDONLY);

	check(fd >= 0 && fstat(fd, &st) == 0, "%s", path);
	check(st.st_size > 5000, "%s has %jd bytes", path, (intmax_t)st.st_size);
	check(read(fd, head, sizeof(head) - 1) > 0 && strncmp(head, magic, strlen(magic)) == 0,
	      "%s", head);
	close(fd);
}

#endif
