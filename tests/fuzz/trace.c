/* SPDX-License-Identifier: BSD-3-Clause */
/* Files that `ummap trace` reads: the tool summarizes them, or prints the reason why it cannot. */
#include "fuzz.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static const char header[] = "start_ns,operation,offset,length,duration_ns,result,thread\n";

static void put(int fd, const void *bytes, size_t len)
{
	must(write(fd, bytes, len) == (ssize_t)len);
}

/* Checks that each line on standard error begins with the tool's name and has no control
 * characters. */
static void check_words(int fd)
{
	static char text[1 << 16];
	ssize_t len = pread(fd, text, sizeof(text) - 1, 0);

	must(len >= 0);
	for (ssize_t i = 0; i < len; i++)
		must(isprint((unsigned char)text[i]) || text[i] == '\n');
	text[len] = '\0';
	for (char *line = text; *line; line += strcspn(line, "\n") + 1) {
		must(strncmp(line, "ummap trace: ", 13) == 0);
		if (!line[strcspn(line, "\n")])
			break;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	extern char **environ;
	int in = memfd_create("trace", 0), out = memfd_create("out", 0),
	    words = memfd_create("words", 0), status;
	posix_spawn_file_actions_t actions;
	char path[64];
	char *argv[] = { "tools/trace", "--summary", path, NULL };
	pid_t pid;

	must(in >= 0 && out >= 0 && words >= 0);
	if (size == 0 || data[0] != '!')
		put(in, header, sizeof(header) - 1);
	put(in, data, size);
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)getpid(), in);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, out, 1);
	posix_spawn_file_actions_adddup2(&actions, words, 2);
	must(posix_spawn(&pid, argv[0], &actions, NULL, argv, environ) == 0);
	posix_spawn_file_actions_destroy(&actions);
	/* The fuzzer's timer interrupts calls. */
	while (waitpid(pid, &status, 0) < 0)
		must(errno == EINTR);
	must(WIFEXITED(status) && WEXITSTATUS(status) <= 1);
	check_words(words);
	close(in);
	close(out);
	close(words);
	return 0;
}
