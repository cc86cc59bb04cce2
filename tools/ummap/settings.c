/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Collects the rows of all parsers' tables and prints them. Each included file is the table from
 * which a parser takes its names, so a setting cannot exist without a row here.
 */
#include "settings.h"

#include <string.h>

#include "clients/mpiio/keys.h"
#undef KEY_NAME
#include "clients/object/keys.h"
#undef KEY_NAME
#include "drivers/key_tables.h"

/* The parsers' messages have the forms of a size here. */
#define A_SIZE "a size"
#define A_SEGMENT_SIZE "a power of two of at least the page size"

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

/* The keys of one driver. */
struct driver {
	const char *prefix;
	const char *page;
	const struct setting *keys;
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
static const struct driver drivers[] = {
	ALL_DRIVER_KEYS(DRIVER)
	DRIVER(object, , "object:?", "ummap-object(7)")
	DRIVER(mpiio, , "mpiio:?", "ummap-mpi-hints(7)")
};
/* clang-format on */
#undef DRIVER

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

/* Prints words and breaks lines before `columns` by `end`. Returns the column after the text. */
static size_t print_words(FILE *to, const char *text, size_t at, size_t indent, size_t columns,
			  const char *end)
{
	while (*text) {
		size_t len = strcspn(text, " ");

		if (at > indent && at + 1 + len > columns) {
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

static void print_keys(FILE *to, print_setting *print)
{
	const char *page = NULL;

	for (size_t i = 0; i < COUNT(drivers); i++) {
		for (size_t k = 0; k < drivers[i].n; k++) {
			struct setting s = drivers[i].keys[k];

			s.prefix = drivers[i].prefix;
			s.page = drivers[i].page;
			print(to, &s, &page);
		}
	}
}

void print_settings(FILE *to)
{
	fprintf(to, "Each line has the name of a setting, its type and, in brackets, its default.\n"
		    "The options of the commands are listed by `ummap NAME --help`.\n\nEnvironment "
		    "variables\n\n");
	print_table(to, variables, COUNT(variables), print_as_text);
	fprintf(to, "\nKeys of URIs\n\n");
	print_keys(to, print_as_text);
	fprintf(to, "\nHints of MPI\n\n");
	print_table(to, hints, COUNT(hints), print_as_text);
	fprintf(to, "\nAttributes: fields of structures\n\n");
	print_table(to, attributes, COUNT(attributes), print_as_text);
}

void print_settings_page(FILE *to, bool environment)
{
	if (environment) {
		print_table(to, variables, COUNT(variables), print_row);
		return;
	}
	fprintf(to, ".SS Keys of URIs\n");
	print_keys(to, print_row);
	fprintf(to, ".SS Hints of MPI\n");
	print_table(to, hints, COUNT(hints), print_row);
	fprintf(to, ".SS Attributes\n");
	print_table(to, attributes, COUNT(attributes), print_row);
}
