/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tool.h - the beginning and the end of a command: exit statuses, error messages, and the check
 * that the output has been written. Messages begin with the name by which the user started the
 * command ("ummap wal", "umtop"), which `ummap` passes as argv[0].
 */
#ifndef TOOLS_TOOL_H
#define TOOLS_TOOL_H

#include "common/edit_distance.h"
#include "common/size.h"
#include "options.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int tool_failed; /* exit status if the command fails */
static int output_error; /* errno of the first write to standard output that failed */

/* Returns false if the output cannot be written. tool_end reports that. */
static inline bool output_flush(void)
{
	if (fflush(stdout) < 0 && !output_error)
		output_error = errno;
	return !ferror(stdout);
}

static void tool_end(void)
{
	bool good = output_flush();

	if (fclose(stdout) < 0 && !output_error)
		output_error = errno;
	if (good && !output_error)
		return;
	fprintf(stderr, "%s: cannot write the output%s%s\n", program_invocation_short_name,
		output_error ? ": " : "", output_error ? strerror(output_error) : "");
	_exit(tool_failed);
}

/*
 * The first call of main. Opens /dev/null in place of closed standard descriptors, so that no
 * other file gets their numbers. A program that replaces this one finds them closed again.
 */
static inline void tool_begin(int failed)
{
	int fd;

	while ((fd = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0 && fd <= STDERR_FILENO)
		;
	if (fd >= 0)
		close(fd);
	tool_failed = failed;
	atexit(tool_end);
}

__attribute__((format(printf, 1, 0))) static inline void tool_print_error(const char *format,
									  va_list args)
{
	int error = errno;

	fprintf(stderr, "%s: ", program_invocation_short_name);
	errno = error;
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
}

/* Prints an error message and ends the program. */
__attribute__((noreturn, format(printf, 1, 2))) static inline void refuse(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	tool_print_error(format, args);
	va_end(args);
	exit(tool_failed);
}

/* Reads a number from min to max. If the text has no such number, ends the program. */
static inline uint64_t parse_number(const char *what, const char *text, uint64_t min, uint64_t max)
{
	uint64_t n;

	if (size_parse_count(text, &n) < 0 || n < min || n > max)
		refuse("cannot use %s '%s': it must be a number from %ju to %ju", what, text,
		       (uintmax_t)min, (uintmax_t)max);
	return n;
}

/* Prints a string of JSON, in quotes. */
static inline void print_json_string(FILE *to, const char *text)
{
	putc('"', to);
	for (; *text; text++) {
		if ((unsigned char)*text < ' ')
			fprintf(to, "\\u%04x", (unsigned)*text);
		else
			fprintf(to, *text == '"' || *text == '\\' ? "\\%c" : "%c", *text);
	}
	putc('"', to);
}

#define SHOWN_LEN 64

/* Copies a name for a message: control characters as \\x1b, and a long name cut. */
static inline const char *show_name(const char *name, char shown[SHOWN_LEN])
{
	size_t len = 0;

	for (; *name && len < SHOWN_LEN - 8; name++) {
		unsigned char c = (unsigned char)*name;

		len += (size_t)snprintf(shown + len, SHOWN_LEN - len,
					c < ' ' || c == 0x7f ? "\\x%02x" : "%c", c);
	}
	/* A cut within a UTF-8 character leaves none of its bytes. */
	while (*name && len > 0 && ((unsigned char)*name & 0xc0) == 0x80) {
		len--;
		name--;
	}
	snprintf(shown + len, SHOWN_LEN - len, "%s", *name ? "..." : "");
	return shown;
}

#define MAX_NAME_LEN 32

/* Which of two known names a mistyped one means. NULL: none is near enough. */
#define MAX_TYPING_ERRORS 2
static inline const char *nearer_name(const char *typed, const char *nearest, const char *known)
{
	size_t distance;

	if (strlen(typed) > MAX_NAME_LEN || strlen(known) > MAX_NAME_LEN)
		return nearest;
	distance = edit_distance(typed, strlen(typed), known);
	if (distance > MAX_TYPING_ERRORS || 2 * distance >= strlen(known) ||
	    (nearest && edit_distance(typed, strlen(typed), nearest) <= distance))
		return nearest;
	return known;
}

/* The first field of each row in a table of actions. `least` and `most` count the words after the
 * name. A row without a name ends the table. */
struct tool_action {
	const char *name;
	int least, most;
};

/* Returns the row of the action that the words call. row_size: bytes of a row. Ends the command if
 * there is no such action, and prints the usage if there are no words. */
static inline const void *find_action(const void *table, size_t row_size, const char *usage,
				      char **words)
{
	const char *nearest = NULL, *reason = "there is no such action";
	char shown[SHOWN_LEN];
	int n = -1;

	if (!words[0]) {
		fputs(usage, stderr);
		exit(tool_failed);
	}
	while (words[n + 1])
		n++;
	for (const struct tool_action *a = table; a->name;
	     a = (const void *)((const char *)a + row_size)) {
		nearest = nearer_name(words[0], nearest, a->name);
		if (strcmp(words[0], a->name) != 0)
			continue;
		if (n >= a->least && n <= a->most)
			return a;
		reason = "it has too few or too many arguments";
		nearest = "--help";
		break;
	}
	refuse("cannot run '%s': %s. Try '%s %s'", show_name(words[0], shown), reason,
	       program_invocation_short_name, nearest ? nearest : "--help");
}

/* Ends a command that has an argument too many. */
__attribute__((noreturn)) static inline void refuse_extra(const char *command, const char *word)
{
	char shown[SHOWN_LEN];

	refuse("cannot use '%s': there are too many arguments. Try '%s --help'",
	       show_name(word, shown), command);
}

/* The next option, as getopt_long(3) returns it, which a message refuses if it is wrong. */
static inline int next_option(int argc, char **argv, const char *letters,
			      const struct option *known)
{
	int at = optind, c;
	char shown[SHOWN_LEN], letter[3] = { '-', 0, 0 };
	const char *word, *reason = "there is no such option";

	opterr = 0;
	c = getopt_long(argc, argv, letters, known, NULL);
	if (c != '?')
		return c;
	word = argv[optind - 1];
	/* A letter that others follow leaves optind as it is. */
	if (optind == at || strncmp(word, "--", 2) != 0) {
		letter[1] = (char)optopt;
		word = letter;
		for (size_t i = 0; optopt && letters[i]; i++)
			if (letters[i] == optopt)
				reason = "it needs a value";
	} else {
		size_t len = strcspn(word, "="), matches = 0;

		for (const struct option *o = known; o->name; o++) {
			if (strncmp(o->name, word + 2, len - 2) != 0)
				continue;
			matches++;
			reason = o->has_arg ? "it needs a value" : "it takes no value";
		}
		if (!matches)
			reason = "there is no such option";
		if (matches > 1 && !optopt)
			reason = "it may be one of several options";
	}
	refuse("cannot use '%s': %s. Try '%s --help'", show_name(word, shown), reason,
	       program_invocation_short_name);
}

__attribute__((noreturn)) static inline void print_version(void)
{
	printf("%s (libummap) " UMMAP_VERSION "\n", program_invocation_short_name);
	exit(EXIT_SUCCESS);
}

/* ---- Options and help, by the lists of options.h ---- */

struct tool_option {
	int letter;              /* short option; 0: there is none */
	const char *name;        /* long option, without -- */
	const char *argument;    /* name of the value in the help; "": the option takes none */
	const char *initial;     /* default value; "": there is none */
	const char *meaning;
};

struct tool_help {
	const char *usage;       /* text before the options */
	const struct tool_option *options;
	int n_options;
	const char *notes;       /* text after the options */
	bool ends_at_program;    /* whether options end at the first other word */
};

#define OPTION_ID(id, ...) OPTION_##id,
#define OPTION_ROW(id, ...) { __VA_ARGS__ },
/* The options of all commands, which stand behind those of the list. */
#define COMMON_OPTIONS \
	{ 'h', "help", "", "", "print this help" }, { 'V', "version", "", "", "print the version" }
/* Declares `tool_help` for a list of options.h, and the constants OPTION_ID, which are indexes. The
 * other arguments initialize fields. */
#define TOOL_HELP(LIST, ...) \
	enum { LIST(OPTION_ID) OPTION_HELP, OPTION_VERSION, N_OPTIONS }; \
	static const struct tool_help tool_help = { \
		.options = (const struct tool_option[]){ \
			LIST(OPTION_ROW) COMMON_OPTIONS \
		}, \
		.n_options = N_OPTIONS, __VA_ARGS__ \
	}

#define MAX_OPTIONS 24
#define HELP_COLUMNS 98

/* Prints words, and breaks lines before the column `limit` by `end`. Returns the column after the
 * text. */
static inline size_t print_words(FILE *to, const char *text, size_t at, size_t indent,
				 size_t limit, const char *end)
{
	while (*text) {
		size_t len = strcspn(text, " ");

		if (at > indent && at + 1 + len > limit) {
			fprintf(to, "%s%*s", end, (int)indent, "");
			at = indent;
		} else if (at > indent) {
			putc(' ', to);
			at++;
		}
		fprintf(to, "%.*s", (int)len, text);
		at += len;
		text += len + strspn(text + len, " ");
	}
	return at;
}

static inline int format_option(const struct tool_option *o, char *to, size_t room)
{
	char letter[5] = "    ";

	if (o->letter)
		snprintf(letter, sizeof(letter), "-%c, ", o->letter);
	return snprintf(to, room, "  %s--%s%s%s", letter, o->name, *o->argument ? " " : "",
			o->argument);
}

static inline void print_options(const struct tool_option *table, int n)
{
	char left[80], text[400];
	int width = 0;

	for (int i = 0; i < n; i++) {
		int len = format_option(&table[i], left, sizeof(left));

		width = len > width ? len : width;
	}
	printf("Options:\n");
	for (int i = 0; i < n; i++) {
		const struct tool_option *o = &table[i];

		format_option(o, left, sizeof(left));
		printf("%-*s", width + 2, left);
		snprintf(text, sizeof(text), *o->initial ? "%s (%s)" : "%s", o->meaning,
			 o->initial);
		print_words(stdout, text, (size_t)width + 2, (size_t)width + 2, HELP_COLUMNS, "\n");
		putchar('\n');
	}
}

/* The next option, as its index in the table; -1: there is none. Deals with --help and --version,
 * and refuses wrong options. */
static inline int take_option(int argc, char **argv, const struct tool_help *help)
{
	struct option known[MAX_OPTIONS + 1] = { { 0 } };
	char letters[2 * MAX_OPTIONS + 2] = "";
	size_t len = 0;
	int c;

	if (help->ends_at_program)
		letters[len++] = '+';
	for (int i = 0; i < help->n_options; i++) {
		const struct tool_option *o = &help->options[i];

		known[i] = (struct option){ o->name, *o->argument != '\0', NULL, 256 + i };
		if (o->letter)
			letters[len++] = (char)o->letter;
		if (o->letter && *o->argument)
			letters[len++] = ':';
	}
	c = next_option(argc, argv, letters, known);
	for (int i = 0; i < help->n_options && c >= 0 && c < 256; i++)
		if (help->options[i].letter == c)
			c = 256 + i;
	if (c == 256 + help->n_options - 1)
		print_version();
	if (c == 256 + help->n_options - 2) {
		printf("%s\n", help->usage);
		print_options(help->options, help->n_options);
		printf("%s%s", help->notes ? "\n" : "", help->notes ? help->notes : "");
		exit(EXIT_SUCCESS);
	}
	return c < 0 ? -1 : c - 256;
}

#endif
