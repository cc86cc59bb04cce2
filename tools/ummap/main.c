/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ummap - finds the program of a subcommand and becomes it. The programs are named ummap-NAME and
 * stand in ../libexec/ummap, or in commands/ in the build folder. This file has the table of
 * subcommands, from which the help and the shells' completions are made.
 */
#include <limits.h>
#include <stdint.h>
#include <sys/wait.h>

#include "../tool.h"
#include "settings.h"

#define MAX_NAME 32
#define EXIT_MISUSE 2

static const struct command {
	const char *group;   /* title of the group that begins here; NULL: the group goes on */
	const char *name;
	const char *purpose;
	const char *link;    /* another name under which it is installed; NULL: none */
} commands[] = {
	{ "Run programs", "run", "run a program with its file mappings paged by libummap",
	  "umrun" },
	{ NULL, "cafrun", "run a coarray program and restart it after a crash", NULL },
	{ NULL, "ioranks", "run a program whose output I/O processes of the machine write", NULL },
	{ NULL, "wordcount", "count words on all ranks of an MPI job", NULL },
	{ "Observe", "top", "show the processes that share this node's memory", "umtop" },
	{ NULL, "trace", "summarize or draw a trace of the filter trace+", NULL },
	{ NULL, "timeline", "summarize or draw the timeline of a MapReduce job", NULL },
	{ NULL, "info", "describe this machine for a bug report", NULL },
	{ "Manage stored data", "cp", "copy a store, such as an object at a URL, to another one",
	  NULL },
	{ NULL, "wal", "show, check, apply or remove a log of wal+", NULL },
	{ NULL, "cow", "show, commit or discard changes of cow+", NULL },
	{ NULL, "overlay", "show, check, apply or remove overlays of wal+ and cow+", NULL },
	{ NULL, "sum", "make or check the checksums of sum+", NULL },
	{ NULL, "cache", "show, flush or remove a cache of cache+", NULL },
	{ NULL, "iocache", "show, flush or remove the parts of an MPI-IO cache", NULL },
	{ NULL, "object", "put arrays into containers and get them out again", "umobject" },
	{ NULL, "caf", "show or export coarrays that are kept in files", NULL },
	{ "Develop", "conform", "check whether a storage driver keeps its contract", NULL },
	{ "Help", "help", "show this list, or the manual page of a command", NULL },
	{ NULL, "version", "print the version", NULL },
};
#define N_COMMANDS (sizeof(commands) / sizeof(*commands))

/* The folder of this program, without links. */
static char folder[PATH_MAX];

static void find_folder(void)
{
	ssize_t len = readlink("/proc/self/exe", folder, sizeof(folder) - 1);

	if (len <= 0)
		refuse("cannot find the folder of commands by '/proc/self/exe': %m. Try mounting "
		       "/proc");
	folder[len] = '\0';
	*strrchr(folder, '/') = '\0';
}

/* Finds a file in the build folder or beside the installed program; false: it is in neither. */
static bool find_file(char path[PATH_MAX], const char *build, const char *installed,
		      const char *name)
{
	const char *const places[] = { build, installed };

	for (size_t i = 0; i < 2; i++)
		if (snprintf(path, PATH_MAX, "%s/%s/ummap-%s", folder, places[i], name) <
			    PATH_MAX &&
		    access(path, R_OK) == 0)
			return true;
	return false;
}

static bool find_program(char path[PATH_MAX], const char *name)
{
	return find_file(path, "commands", "../libexec/ummap", name);
}

/* Whether the command is a part of this program. */
static bool is_builtin(const char *name)
{
	return strcmp(name, "help") == 0 || strcmp(name, "version") == 0;
}

static const struct command *find_command(const char *name)
{
	/* A suffix chooses the MPI, as in wordcount.mpich. */
	size_t len = strcspn(name, "."), i;

	for (i = 0; i < N_COMMANDS; i++)
		if (strlen(commands[i].name) == len && strncmp(commands[i].name, name, len) == 0)
			return &commands[i];
	return NULL;
}

__attribute__((noreturn)) static void refuse_name(const char *name)
{
	const char *nearest = NULL;
	char shown[SHOWN_LEN];

	for (size_t i = 0; i < N_COMMANDS; i++)
		nearest = nearer_name(name, nearest, commands[i].name);
	refuse("cannot run '%s': there is no such command. Try 'ummap %s'", show_name(name, shown),
	       nearest ? nearest : "help");
}

static void print_help(FILE *f)
{
	char path[PATH_MAX];

	fputs("usage: ummap COMMAND [ARGUMENT ...]\n"
	      "       ummap help [COMMAND|settings]\n"
	      "The commands of libummap, which maps files into memory under the program's "
	      "control.\n",
	      f);
	for (size_t i = 0; i < N_COMMANDS; i++) {
		const struct command *c = &commands[i];

		if (c->group)
			fprintf(f, "\n%s:\n", c->group);
		fprintf(f, "  %-10s %s", c->name, c->purpose);
		if (c->link)
			fprintf(f, " (short name: %s)", c->link);
		if (!is_builtin(c->name) && !find_program(path, c->name))
			fputs(" [not installed]", f);
		fputc('\n', f);
	}
	fputs("\n"
	      "'ummap help COMMAND' shows the manual page of a command, 'ummap COMMAND --help'\n"
	      "its options, and 'ummap help settings' all variables, keys, hints and\n"
	      "attributes.\n", f);
}

/* Becomes the program of a command, whose messages begin with the given name. */
__attribute__((noreturn)) static void run_command(const char *name, char *shown_name, char **argv)
{
	char path[PATH_MAX];

	program_invocation_short_name = shown_name;
	if (!find_program(path, name))
		refuse("cannot run '%s': the file is missing. Try installing the package that has "
		       "it",
		       path);
	argv[0] = shown_name;
	execv(path, argv);
	refuse("cannot run '%s': %m", path);
}

__attribute__((noreturn)) static void run_subcommand(char **argv)
{
	static char shown_name[sizeof("ummap ") + MAX_NAME];

	if (!find_command(argv[0]) || strlen(argv[0]) > MAX_NAME || strchr(argv[0], '/'))
		refuse_name(argv[0]);
	snprintf(shown_name, sizeof(shown_name), "ummap %s", argv[0]);
	run_command(argv[0], shown_name, argv);
}

/* Shows a manual page by man(1), if both are there; false: the page cannot be shown. man(1) does
 * not report that its output cannot be written. Therefore, the output is copied unless man(1)
 * writes to a terminal. */
static bool show_page(const char *name)
{
	char file[PATH_MAX], page[MAX_NAME + 8], part[4096];
	bool copies = !isatty(STDOUT_FILENO);
	int status, ends[2] = { -1, -1 };
	ssize_t len;
	pid_t child;

	snprintf(page, sizeof(page), "%s.1", name);
	if (!find_file(file, "../man", "../share/man/man1", page))
		snprintf(file, sizeof(file), "ummap-%s", name);
	output_flush();
	if (copies && pipe2(ends, O_CLOEXEC) < 0)
		return false;
	child = fork();
	if (child == 0) {
		if (freopen("/dev/null", "w", stderr) &&
		    (!copies || dup2(ends[1], STDOUT_FILENO) >= 0))
			execlp("man", "man", file, (char *)NULL);
		_exit(127);
	}
	if (copies) {
		close(ends[1]);
		while ((len = read(ends[0], part, sizeof(part))) > 0)
			fwrite(part, 1, (size_t)len, stdout);
		output_flush();
		close(ends[0]);
	}
	return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

static int help(char **argv)
{
	char *help_arguments[] = { argv[0], "--help", NULL };

	if (argv[0] && strcmp(argv[0], "--") == 0)
		argv++;
	if (argv[0] && argv[1])
		refuse_extra("ummap", argv[1]);
	if (!argv[0] || *argv[0] == '-' || is_builtin(argv[0])) {
		print_help(stdout);
		return EXIT_SUCCESS;
	}
	if (strcmp(argv[0], "settings") == 0) {
		print_settings(stdout);
		return EXIT_SUCCESS;
	}
	if (!find_command(argv[0]))
		refuse_name(argv[0]);
	if (show_page(argv[0]))
		return EXIT_SUCCESS;
	run_subcommand(help_arguments);
}

static bool is_one_of(const char *word, const char *a, const char *b, const char *c)
{
	return strcmp(word, a) == 0 || strcmp(word, b) == 0 || strcmp(word, c) == 0;
}

int main(int argc, char **argv)
{
	const char *invoked = strrchr(argv[0] ? argv[0] : "ummap", '/');

	invoked = invoked ? invoked + 1 : argv[0];
	tool_begin(EXIT_MISUSE);
	find_folder();
	for (size_t i = 0; i < N_COMMANDS && invoked; i++)
		if (commands[i].link && strcmp(invoked, commands[i].link) == 0)
			run_command(commands[i].name, (char *)(uintptr_t)commands[i].link, argv);
	if (argc > 1 && strcmp(argv[1], "--") == 0) {
		argv++;
		argc--;
	}
	if (argc < 2) {
		print_help(stderr);
		return EXIT_MISUSE;
	}
	if (is_one_of(argv[1], "help", "--help", "-h"))
		return help(argv + 2);
	if (is_one_of(argv[1], "version", "--version", "-V")) {
		if (argv[2] && strcmp(argv[2], "--") != 0)
			refuse_extra("ummap", argv[2]);
		print_version();
	}
	run_subcommand(argv + 1);
}
