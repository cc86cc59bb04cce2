/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * nginx.h - a real web server on loopback: nginx with the files of a folder, by HTTP, and by TLS
 * with HTTP/1.1 and HTTP/2 and a certificate of an authority that only the test trusts. Its log has
 * a line for each request: port, protocol, status, number of the connection. It ends with the test.
 */
#ifndef TESTS_HTTP_NGINX_H
#define TESTS_HTTP_NGINX_H

#include <arpa/inet.h>
#include <sys/socket.h>

#include "common.h"

static char nginx_folder[300];
static int nginx_port, nginx_tls_port, nginx_h2_port;
static int nginx_behind; /* port of a server to which nginx passes requests for /bucket; 0: none */
static pid_t nginx_pid;

__attribute__((format(printf, 1, 2)))
static inline int shell(const char *format, ...)
{
	char command[2000];
	va_list args;
	int status;

	va_start(args, format);
	vsnprintf(command, sizeof(command), format, args);
	va_end(args);
	status = system(command);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

static inline int nginx_free_port(void)
{
	struct sockaddr_in at = { .sin_family = AF_INET };
	socklen_t len = sizeof(at);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	check(fd >= 0 && bind(fd, (struct sockaddr *)&at, sizeof(at)) == 0);
	check(getsockname(fd, (struct sockaddr *)&at, &len) == 0);
	close(fd);
	return ntohs(at.sin_port);
}

static inline void nginx_make_certificates(void)
{
	check(shell("cd %s && (openssl req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem"
		    " -subj /CN=test-authority -days 2 &&"
		    " openssl req -newkey rsa:2048 -nodes -keyout key.pem -out request.pem"
		    " -subj /CN=localhost &&"
		    " printf 'subjectAltName=DNS:localhost,IP:127.0.0.1' > names &&"
		    " openssl x509 -req -in request.pem -CA ca.pem -CAkey ca.key -CAcreateserial"
		    " -out cert.pem -days 2 -extfile names) > openssl.log 2>&1",
		    nginx_folder) == 0);
}

static inline void nginx_configure(void)
{
	char path[400];
	FILE *f;

	snprintf(path, sizeof(path), "%s/nginx.conf", nginx_folder);
	f = fopen(path, "w");
	check(f);
	fprintf(f, "daemon off; master_process off; pid nginx.pid; error_log error.log;\n"
		"events { worker_connections 512; }\n"
		"http {\n"
		" log_format test '$server_port $server_protocol $status $connection';\n"
		" access_log %s/access.log test; client_body_temp_path body;\n"
		" proxy_temp_path proxy; fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi;\n"
		" scgi_temp_path scgi; keepalive_requests 100000;\n"
		" ssl_certificate cert.pem; ssl_certificate_key key.pem; root %s/files;\n"
		" server {\n"
		"  listen 127.0.0.1:%d; listen 127.0.0.1:%d ssl; listen 127.0.0.1:%d ssl http2;\n"
		"  location /secret/ { auth_basic x; auth_basic_user_file passwords; }\n"
		"  location /settle { access_log off; return 200; }\n"
		"  location /moved { return 302 /object; }\n"
		"  location /insecure { return 302 http://127.0.0.1:%d/object; }\n"
		"  location /bucket/ { proxy_pass http://127.0.0.1:%d;\n"
		"   proxy_set_header Host $http_host; client_max_body_size 0; }\n"
		"  if ($host = proxied.test) { rewrite ^ /object break; }\n"
		" }\n"
		"}\n", nginx_folder, nginx_folder, nginx_port, nginx_tls_port, nginx_h2_port,
		nginx_port, nginx_behind ? nginx_behind : 1);
	fclose(f);
	check(shell("cd %s && mkdir files files/secret && printf 'user:{PLAIN}word\\n' > passwords",
		    nginx_folder) == 0);
}

/* nginx writes the line of a request after the answer. It has one thread, so when it answers this
 * request, which has no line, the lines of all answers that the test has seen are there. */
static inline bool nginx_answers(void)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons((uint16_t)nginx_port) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	char answer[1000];
	bool ok;

	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	ok = connect(fd, (struct sockaddr *)&at, sizeof(at)) == 0 &&
	     send(fd, "GET /settle HTTP/1.0\r\n\r\n", 24, MSG_NOSIGNAL) == 24 &&
	     read(fd, answer, sizeof(answer)) > 0;
	close(fd);
	return ok;
}

static inline void nginx_stop(void)
{
	if (nginx_pid > 0 && temp_dir_owner == getpid())
		kill(nginx_pid, SIGKILL);
}

/* Starts the server; its files are those of nginx_folder/files. Ends the test with 77 if nginx or
 * openssl is missing. */
static inline void nginx_start(void)
{
	if (shell("(PATH=$PATH:/usr/sbin; nginx -v && openssl version) > /dev/null 2>&1") != 0)
		exit(77);
	snprintf(nginx_folder, sizeof(nginx_folder), "%s", temp_dir());
	nginx_port = nginx_free_port();
	nginx_tls_port = nginx_free_port();
	nginx_h2_port = nginx_free_port();
	nginx_make_certificates();
	nginx_configure();
	nginx_pid = fork();
	if (nginx_pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		setenv("PATH", "/usr/sbin:/usr/bin:/sbin:/bin", 1);
		execlp("nginx", "nginx", "-p", nginx_folder, "-c", "nginx.conf", "-e", "error.log",
		       (char *)NULL);
		_exit(127);
	}
	atexit(nginx_stop);
	for (int i = 0; i < 2000 && !nginx_answers(); i++)
		pause_ms(10);
	check(nginx_answers(), "nginx does not start: see %s/error.log", nginx_folder);
}

/* Writes a file of the server, whose bytes are pattern(offset, seed). */
static inline void nginx_write(const char *name, size_t size, uint64_t seed)
{
	char path[400];
	int fd;

	snprintf(path, sizeof(path), "%s/files/%s", nginx_folder, name);
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	check(fd >= 0);
	file_fill(fd, 0, size, 0, seed);
	close(fd);
}

/* The number of lines of the server's log that have the text. */
static inline int nginx_count(const char *text)
{
	char path[400], line[200];
	int n = 0;
	FILE *f;

	check(nginx_answers());
	snprintf(path, sizeof(path), "%s/access.log", nginx_folder);
	f = fopen(path, "r");
	check(f);
	while (fgets(line, sizeof(line), f))
		n += strstr(line, text) != NULL;
	fclose(f);
	return n;
}

static inline void nginx_forget(void)
{
	check(nginx_answers());
	check(shell(": > %s/access.log", nginx_folder) == 0);
}

#endif
