/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ummap ioranks - starts the I/O processes of a job on this machine, unless they run already, and
 * becomes the program. The program inherits a connection to each of them, so they run until all
 * programs of the job have ended.
 */
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "../../drivers/ioranks.h"
#include "../tool.h"
#include "common/process.h"
#include "server.h"

/* Exit statuses are those of env(1) and nohup(1). */
enum { EXIT_OWN_ERROR = 125, EXIT_CANNOT_RUN = 126, EXIT_NOT_FOUND = 127 };

#ifndef SYS_close_range
#define SYS_close_range 436
#endif

#define RETRY_SLEEP_MS 2
#define MAX_RETRIES 2000

TOOL_HELP(IORANKS_OPTIONS, .ends_at_program = true, .usage =
"usage: ummap ioranks [OPTION ...] PROGRAM [ARGUMENT ...]\n"
"Runs a program of a job, such as an MPI rank. I/O processes, which all programs of the job on a\n"
"machine share, write to its stores behind the filter ioranks+.\n");

static char name[IORANKS_MAX_NAME_LEN + 1];
static unsigned processes = 1;

static int listeners[IORANKS_MAX_PROCESSES];

static int make_socket(int flags)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | flags, 0);

	if (fd < 0)
		refuse("cannot make a socket: %m");
	return fd;
}

/* Takes the addresses of all I/O processes. Returns false if another program has them. */
static bool take_addresses(void)
{
	struct sockaddr_un address;

	for (unsigned i = 0; i < processes; i++) {
		socklen_t len = ioranks_address(&address, geteuid(), name, IORANKS_MAX_NAME_LEN, i);

		listeners[i] = make_socket(SOCK_CLOEXEC);
		if (bind(listeners[i], (struct sockaddr *)&address, len) == 0)
			continue;
		if (errno != EADDRINUSE)
			refuse("cannot name the I/O processes '%s': %m", name);
		for (unsigned k = 0; k <= i; k++)
			close(listeners[k]);
		return false;
	}
	return true;
}

/* Leaves only the sockets open, from the number 3 on. The launcher of the program waits until all
 * other descriptors of the program, such as its output, are closed. */
static void close_others(void)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	for (unsigned i = 0; i < processes; i++)
		listeners[i] = fcntl(listeners[i], F_DUPFD_CLOEXEC, 3 + (int)processes);
	for (int i = 0; i < 3; i++)
		dup2(null, i);
	for (unsigned i = 0; i < processes; i++)
		listeners[i] = dup2(listeners[i], 3 + (int)i);
	syscall(SYS_close_range, 3 + processes, UINT_MAX, 0);
}

/* Signals of the terminal end the program, and thereby the I/O processes. */
static void leave_program(void)
{
	setsid();
	close_others();
	prctl(PR_SET_NAME, "ummap-ioranks");
}

/*
 * The body of the first I/O process, which starts the others: Linux may restrict the access to a
 * program's memory to one process and its descendants. For the same reason, it calls listen(2) on
 * all sockets, by which clients learn its process ID.
 */
__attribute__((noreturn)) static void run_processes(void)
{
	unsigned own = 0;

	leave_program();
	signal(SIGCHLD, SIG_IGN);
	for (unsigned i = 0; i < processes; i++)
		if (listen(listeners[i], SOMAXCONN) < 0)
			_exit(EXIT_OWN_ERROR);
	for (unsigned i = 1; i < processes && own == 0; i++)
		if (fork() == 0)
			own = i;
	for (unsigned i = 0; i < processes; i++)
		if (i != own)
			close(listeners[i]);
	serve(listeners[own], false);
	_exit(EXIT_SUCCESS);
}

/* Starts the I/O processes as children of the init process, so the program does not find children
 * that it has not started. */
static void start_processes(void)
{
	pid_t child = fork();

	if (child < 0)
		refuse("cannot start an I/O process: %m");
	if (child == 0) {
		if (fork() == 0)
			run_processes();
		_exit(EXIT_SUCCESS);
	}
	waitpid(child, NULL, 0);
	for (unsigned i = 0; i < processes; i++)
		close(listeners[i]);
}

static int say_hello(int fd)
{
	uint64_t word = 0;
	struct ioranks_request request = { .op = IORANKS_HELLO, .pieces = 1 };
	int reply = -ECONNRESET;

	request.piece[0] = (struct iovec){ &word, sizeof(word) };
	if (send(fd, &request, IORANKS_REQUEST_BYTES(1), MSG_NOSIGNAL) < 0 ||
	    recv(fd, &reply, sizeof(reply), 0) != sizeof(reply))
		return -ECONNRESET;
	return reply;
}

/* Connects to an I/O process. Returns false if it does not run. The program inherits the
 * connection. */
static bool join_process(unsigned number)
{
	struct sockaddr_un address;
	socklen_t len = ioranks_address(&address, geteuid(), name, IORANKS_MAX_NAME_LEN, number);
	int fd = make_socket(0), err;
	struct ucred peer;
	socklen_t size = sizeof(peer);

	if (connect(fd, (struct sockaddr *)&address, len) < 0 ||
	    getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0) {
		close(fd);
		return false;
	}
	prctl(PR_SET_PTRACER, (unsigned long)peer.pid, 0, 0, 0);
	err = say_hello(fd);
	if (err == -ECONNRESET)
		close(fd);
	else if (err)
		fprintf(stderr, "%s: I/O processes cannot read the memory of programs: %s. The "
			"programs write themselves. Try to permit process_vm_readv(2)\n",
			program_invocation_short_name, strerror(-err));
	return err != -ECONNRESET;
}

static bool join_processes(void)
{
	unsigned i = 0;

	while (i < processes && join_process(i))
		i++;
	return i == processes;
}

/* Several programs begin at the same time, and earlier I/O processes may be about to end. */
static void find_processes(void)
{
	for (unsigned i = 0; i < MAX_RETRIES; i++) {
		if (join_processes())
			return;
		if (take_addresses())
			start_processes();
		poll(NULL, 0, RETRY_SLEEP_MS);
	}
	fprintf(stderr, "%s: cannot connect to all I/O processes '%s': some of them have died. "
		"Programs write in place of these. Try another --name\n",
		program_invocation_short_name, name);
}

static void parse_options(int argc, char **argv)
{
	struct process_id parent = process_identify(getppid());
	int option;

	snprintf(name, sizeof(name), "%d-%x", (int)parent.pid, parent.start_time);
	while ((option = take_option(argc, argv, &tool_help)) >= 0) {
		if (option == OPTION_PROCESSES)
			processes = (unsigned)parse_number("--processes", optarg, 1,
							   IORANKS_MAX_PROCESSES);
		else if (!*optarg || strlen(optarg) >= sizeof(name) || strchr(optarg, ','))
			refuse("cannot use --name '%s': it must be 1 to %zu characters without "
			       "commas", optarg, sizeof(name) - 1);
		else
			snprintf(name, sizeof(name), "%s", optarg);
	}
	if (!argv[optind]) {
		fputs(tool_help.usage, stderr);
		exit(EXIT_OWN_ERROR);
	}
}

int main(int argc, char **argv)
{
	char value[IORANKS_MAX_NAME_LEN + 16];

	tool_begin(EXIT_OWN_ERROR);
	parse_options(argc, argv);
	find_processes();
	snprintf(value, sizeof(value), "%s,%u", name, processes);
	if (setenv("UMMAP_IO_RANKS", value, 1) < 0)
		refuse("cannot set UMMAP_IO_RANKS: %m");
	execvp(argv[optind], argv + optind);
	tool_failed = errno == ENOENT ? EXIT_NOT_FOUND : EXIT_CANNOT_RUN;
	refuse("cannot run '%s': %m", argv[optind]);
}
