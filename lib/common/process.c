/* SPDX-License-Identifier: BSD-3-Clause */
#include "common/process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Fields of /proc/PID/stat, counted from 1 as in proc_pid_stat(5). */
#define COMMAND_FIELD 2
#define FLAGS_FIELD 9
#define START_TIME_FIELD 22

#define MAX_STAT_BYTES 512
/* In the field FLAGS_FIELD: the thread ends (the kernel's PF_EXITING). */
#define EXITING 4

/* Reads /proc/PID/stat. Returns the end of the command, or NULL if /proc does not show the process.
 * The command is in parentheses, and may contain any characters. The state follows it. */
static const char *read_stat(int32_t pid, char text[static MAX_STAT_BYTES])
{
	char path[32];
	ssize_t len;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return NULL;
	len = read(fd, text, MAX_STAT_BYTES - 1);
	close(fd);
	text[len > 0 ? len : 0] = '\0';
	return strrchr(text, ')');
}

/* The number in a field behind the command, or 0. */
static uint64_t field_of(const char *at, int field)
{
	for (int i = COMMAND_FIELD; at && i < field; i++)
		at = strchr(at + 1, ' ');
	return at ? strtoull(at, NULL, 10) : 0;
}

/* The start time, or 0. *has_ended: the process is a zombie. */
static uint32_t read_start_time(int32_t pid, bool *has_ended)
{
	char text[MAX_STAT_BYTES];
	const char *at = read_stat(pid, text);

	*has_ended = at && (strncmp(at, ") Z", 3) == 0 || strncmp(at, ") X", 3) == 0);
	return (uint32_t)field_of(at, START_TIME_FIELD);
}

bool is_process_ending(int32_t pid)
{
	char text[MAX_STAT_BYTES];
	const char *at = read_stat(pid, text);

	return !at || field_of(at, FLAGS_FIELD) & EXITING;
}

struct process_id process_identify(int32_t pid)
{
	bool has_ended;

	return (struct process_id){ pid, read_start_time(pid, &has_ended) };
}

bool is_thread_alive(struct process_id process, int32_t thread)
{
	uint32_t start_time;
	bool has_ended;
	int err;

	if (process.pid <= 0 || thread < 0)
		return false;
	/* A thread ID also tells whether execve(2) has replaced the program since. */
	err = thread ? (int)syscall(SYS_tgkill, process.pid, thread, 0) : kill(process.pid, 0);
	if (err < 0 && errno == ESRCH)
		return false;
	start_time = read_start_time(process.pid, &has_ended);
	if (has_ended && !thread)
		return false;
	return !start_time || !process.start_time || start_time == process.start_time;
}

bool is_alive(struct process_id process)
{
	return is_thread_alive(process, 0);
}

uint64_t process_namespace(void)
{
	struct stat st;

	return stat("/proc/self/ns/pid", &st) == 0 ? st.st_ino : 0;
}

uint64_t process_machine(void)
{
	FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
	unsigned a = 0, b = 0, c = 0;

	if (f) {
		if (fscanf(f, "%8x-%4x-%4x", &a, &b, &c) != 3)
			a = b = c = 0;
		fclose(f);
	}
	return (uint64_t)a << 32 | (uint64_t)b << 16 | c;
}
