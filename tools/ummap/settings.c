/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Collects the rows of all parsers' tables and prints them. Each included file is the table from
 * which a parser takes its names, so a setting cannot exist without a row here.
 */
#include "settings.h"

#include <ctype.h>

#include "../tool.h"
#include "clients/mpiio/keys.h"
#undef KEY_NAME
#include "clients/object/keys.h"
#undef KEY_NAME
#include "drivers/key_tables.h"

/* The parsers' messages have the forms of a size here. */
#undef A_SIZE
#undef A_SEGMENT_SIZE
#define A_SIZE "a size"
#define A_SEGMENT_SIZE "auto, or a power of two of at least the page size"

#define TEXT_COLUMNS 80
#define PAGE_COLUMNS 100

struct setting {
	const char *prefix; /* beginning of the name, such as "wal." */
	const char *name;
	const char *type;
	const char *initial; /* default value */
	const char *meaning;
	const char *page; /* manual page that explains the setting */
};

static const struct setting variables[] = {
#define VARIABLE(name, load, type, initial, meaning, page) \
	{ "", name, type, initial, meaning, page },
#include "lib/base/variables.def"
#undef VARIABLE
#define VARIABLE(name, take, field, type, initial, meaning, page) \
	{ "", name, type, initial, meaning, page },
#include "clients/coarray/variables.def"
#undef VARIABLE
};

/* The keys of a driver, or the options of a command. */
struct group {
	const char *prefix;
	const char *page;
	const struct setting *rows;
	size_t n;
};

#define KEY_ROW(name, type, initial, meaning) { NULL, name, type, initial, meaning, NULL },
#define DRIVER(scheme, list, prefix, page) \
	static const struct setting scheme##_keys[] = { list(KEY_ROW) };
ALL_DRIVER_KEYS(DRIVER)
DRIVER(object, OBJECT_KEYS, , )
DRIVER(mpiio, MPIIO_KEYS, , )
#undef DRIVER

#define COUNT(table) (sizeof(table) / sizeof(*(table)))

#define DRIVER(scheme, list, prefix, page) { prefix, page, scheme##_keys, COUNT(scheme##_keys) },
/* clang-format off */
static const struct group drivers[] = {
	ALL_DRIVER_KEYS(DRIVER)
	DRIVER(object, , "object:?", "ummap-object(7)")
	DRIVER(mpiio, , "mpiio:?", "ummap-mpi-hints(7)")
};
/* clang-format on */
#undef DRIVER

#define OPTION_SETTING(id, letter, name, ...) { NULL, "--" name, __VA_ARGS__, NULL },
#define COMMAND(name, list) static const struct setting name##_options[] = { list(OPTION_SETTING) };
ALL_COMMANDS(COMMAND)
#undef COMMAND
#define COMMAND(name, list) \
	{ "ummap " #name " ", "ummap-" #name "(1)", name##_options, COUNT(name##_options) },
static const struct group commands[] = { ALL_COMMANDS(COMMAND) };
#undef COMMAND

static const struct setting hints[] = {
#define HINT(name, kind, field, type, initial, meaning, page) \
	{ "", name, type, initial, meaning, page },
#include "clients/window/hints.def"
#undef HINT
#define HINT(identifier, name, type, initial, meaning) \
	{ "", name, type, initial, meaning, "ummap-iocache(7)" },
#include "clients/iocache/hints.def"
#undef HINT
};

static const struct setting attributes[] = {
#define ATTRIBUTE(structure, field, type, initial, meaning, page) \
	{ #structure ".", #field, type, initial, meaning, page },
#include "attributes.def"
#undef ATTRIBUTE
};

/* ---- Text ---- */

static void print_text(FILE *to, const struct setting *s)
{
	const size_t indent = 4;
	char page[40];
	size_t at;

	fprintf(to, "%s%s: %s [%s]\n%*s", s->prefix, s->name, s->type, s->initial, (int)indent, "");
	at = print_words(to, s->meaning, indent, indent, TEXT_COLUMNS, "\n");
	snprintf(page, sizeof(page), "See %s.", s->page);
	print_words(to, page, at, indent, TEXT_COLUMNS, "\n");
	putc('\n', to);
}

/* ---- Manual pages ---- */

/* Escapes what groff treats specially. */
static void escape(char *to, size_t room, const char *text)
{
	size_t len = 0;

	for (; *text && len + 5 < room; text++) {
		const char *as = *text == '-'  ? "\\-" :
				 *text == '\'' ? "\\(aq" :
				 *text == '"'  ? "\\(dq" :
						 NULL;

		if (as)
			len += (size_t)sprintf(to + len, "%s", as);
		else
			to[len++] = *text;
	}
	to[len] = '\0';
}

static void print_reference(FILE *to, const char *page)
{
	char escaped[80];
	size_t name;

	escape(escaped, sizeof(escaped), page);
	name = strcspn(escaped, "(");
	fprintf(to, ".PP\n.BR %.*s %s:\n", (int)name, escaped, escaped + name);
}

/* A row is an indented paragraph. A heading precedes rows of another page than the row before. */
static void print_row(FILE *to, const struct setting *s, const char **page)
{
	char text[400], escaped[400];

	if (!*page || strcmp(*page, s->page) != 0)
		print_reference(to, s->page);
	*page = s->page;
	snprintf(text, sizeof(text), "%s%s\\fP: %s [%s]", s->prefix, s->name, s->type, s->initial);
	escape(escaped, sizeof(escaped), text);
	fprintf(to, ".IP \"\\fB");
	/* An escaped end of line continues the argument of .IP. */
	print_words(to, escaped, 0, 0, PAGE_COLUMNS - 20, "\\\n ");
	fprintf(to, "\" 4\n");
	escape(escaped, sizeof(escaped), s->meaning);
	print_words(to, escaped, 0, 0, PAGE_COLUMNS, "\n");
	putc('\n', to);
}

/* ---- All settings ---- */

typedef void(print_setting)(FILE *to, const struct setting *s, const char **page);

static void print_as_text(FILE *to, const struct setting *s, const char **page)
{
	(void)page;
	print_text(to, s);
}

static void print_table(FILE *to, const struct setting *table, size_t n, print_setting *print)
{
	const char *page = NULL;

	for (size_t i = 0; i < n; i++)
		print(to, &table[i], &page);
}

static void print_groups(FILE *to, const struct group *groups, size_t n, print_setting *print)
{
	const char *page = NULL;

	for (size_t i = 0; i < n; i++) {
		for (size_t k = 0; k < groups[i].n; k++) {
			struct setting s = groups[i].rows[k];

			s.prefix = groups[i].prefix;
			s.page = groups[i].page;
			print(to, &s, &page);
		}
	}
}

/* The meaning of an option is a part of a sentence in the help. */
static void complete_option(struct setting *s, char meaning[400])
{
	snprintf(meaning, 400, "%c%s.", toupper((unsigned char)*s->meaning), s->meaning + 1);
	s->meaning = meaning;
	s->initial = !*s->type ? "off" : *s->initial ? s->initial : "none";
	s->type = *s->type ? s->type : "flag";
}

static void print_option_as_text(FILE *to, const struct setting *s, const char **page)
{
	struct setting option = *s;
	char meaning[400];

	complete_option(&option, meaning);
	print_as_text(to, &option, page);
}

static void print_option_row(FILE *to, const struct setting *s, const char **page)
{
	struct setting option = *s;
	char meaning[400];

	complete_option(&option, meaning);
	option.prefix = "";
	print_row(to, &option, page);
}

void print_settings(FILE *to)
{
	fprintf(to, "Each line has the name of a setting, its type and, in brackets, its default."
		    "\n\nEnvironment variables\n\n");
	print_table(to, variables, COUNT(variables), print_as_text);
	fprintf(to, "\nKeys of URIs\n\n");
	print_groups(to, drivers, COUNT(drivers), print_as_text);
	fprintf(to, "\nHints of MPI\n\n");
	print_table(to, hints, COUNT(hints), print_as_text);
	fprintf(to, "\nAttributes: fields of structures\n\n");
	print_table(to, attributes, COUNT(attributes), print_as_text);
	fprintf(to, "\nOptions of commands, which all have --help and --version, too\n\n");
	print_groups(to, commands, COUNT(commands), print_option_as_text);
}

void print_settings_page(FILE *to, const char *name)
{
	if (strcmp(name, "environment") == 0) {
		print_table(to, variables, COUNT(variables), print_row);
		return;
	}
	if (strcmp(name, "options") == 0) {
		print_groups(to, commands, COUNT(commands), print_option_row);
		return;
	}
	fprintf(to, ".SS Keys of URIs\n");
	print_groups(to, drivers, COUNT(drivers), print_row);
	fprintf(to, ".SS Hints of MPI\n");
	print_table(to, hints, COUNT(hints), print_row);
	fprintf(to, ".SS Attributes\n");
	print_table(to, attributes, COUNT(attributes), print_row);
}
