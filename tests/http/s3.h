/* SPDX-License-Identifier: BSD-3-Clause */
/* s3.h - a server for S3, for tests of the driver s3: s3-server, or another one. */
#ifndef TESTS_HTTP_S3_H
#define TESTS_HTTP_S3_H

#include "nginx.h"
#include "objects.h"
#include "plugins.h"

#define SECRET "testsecret/+%"

static char folder[300];
static int port;
static const char *other_server;   /* URL of another server; NULL: s3-server */

/* ---- The server ---- */

static inline void start_server(void)
{
	int pipes[2];
	char text[20] = "";
	const char *const command[] = { HTTP_TESTS "/s3-server", folder, NULL };

	check(pipe(pipes) == 0);
	if (fork() == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(pipes[1], 1);
		execv(command[0], (char **)command);
		_exit(127);
	}
	close(pipes[1]);
	check(read(pipes[0], text, sizeof(text) - 1) > 0, "s3-server does not start");
	port = atoi(text);
	check(port > 0);
	close(pipes[0]);
}

/* Changes the server; see the head of s3-server. */
__attribute__((format(printf, 1, 2)))
static inline void control(const char *format, ...)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	char request[900], answer[200];
	va_list args;

	va_start(args, format);
	vsnprintf(answer, sizeof(answer), format, args);
	va_end(args);
	snprintf(request, sizeof(request), "GET /control?%s HTTP/1.0\r\n\r\n", answer);
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	check(connect(fd, (struct sockaddr *)&at, sizeof(at)) == 0);
	check(write(fd, request, strlen(request)) == (ssize_t)strlen(request));
	check(read(fd, answer, sizeof(answer)) > 12 && memcmp(answer + 9, "200", 3) == 0);
	close(fd);
}

/* Stores an object; path: its name in a URL. */
static inline void write_object_of(const char *path, size_t size, uint64_t seed)
{
	int fd = open(in_dir("source"), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	check(fd >= 0);
	file_fill(fd, 0, size, 0, seed);
	close(fd);
	if (other_server)
		check(shell(HTTP_PLUGINS "/../ummap cp -f -q '%s' 's3:%s'", in_dir("source"),
			    path) == 0);
	else
		control("as=%s&load=%s", path, in_dir("source"));
}

static inline void write_object(const char *path, uint64_t seed)
{
	write_object_of(path, SIZE, seed);
}

static inline void remove_object(const char *path)
{
	if (other_server)
		check(shell(HTTP_TESTS "/s3-request remove %s %s", other_server, path) == 0);
	else
		control("remove=%s", path);
}

/* The number of requests of the log that have the text. */
static inline int count_requests(const char *text)
{
	char line[400];
	int n = 0;
	FILE *f = fopen(in_dir("log"), "r");

	while (f && fgets(line, sizeof(line), f))
		n += strstr(line, text) != NULL;
	if (f)
		fclose(f);
	return n;
}

static inline void set_credentials(void)
{
	set_env("AWS_ACCESS_KEY_ID", "TESTKEY");
	set_env("AWS_SECRET_ACCESS_KEY", SECRET);
}

/* Starts the server, unless there is another one, and sets the environment for it. Returns false if
 * there is no Python. */
static inline bool set_up_s3(void)
{
	char at[60];

	if (!other_server && shell("python3 -c 'import ctypes' 2> /dev/null") != 0)
		return false;
	snprintf(folder, sizeof(folder), "%s", temp_dir());
	use_plugins();
	set_env("HOME", "/nonexistent");
	for (const char *const *name = (const char *const[]){ "AWS_SESSION_TOKEN", "AWS_REGION",
	     "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL_S3", "AWS_PROFILE", "AWS_CONFIG_FILE",
	     "AWS_SHARED_CREDENTIALS_FILE", NULL }; *name; name++)
		unsetenv(*name);
	if (!other_server) {
		start_server();
		snprintf(at, sizeof(at), "http://127.0.0.1:%d", port);
	}
	set_env("AWS_ENDPOINT_URL", other_server ? other_server : at);
	set_credentials();
	return true;
}

#endif
