/* SPDX-License-Identifier: BSD-3-Clause */
/* umtop - the processes of a node that share memory by libummap, and their mappings. */
#include "top.h"

#include "base/config.h"
#include "base/log.h"
#include "base/size.h"

#include "../output.h"

#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* How long to wait for a second report of everybody, without which there are no rates; and how often to look. */
#define PATIENCE_MS 3000
#define LOOK_US 100000

static const char usage[] =
"usage: umtop [OPTION ...]\n"
"Shows this user's processes that share the node's memory by libummap, and their mappings.\n"
"  -1, --once            once, as text\n"
"  -j, --json            as JSON\n"
"  -m, --maps            mappings too (JSON always has them)\n"
"  -n, --count N         N times\n"
"  -d, --delay SECONDS   from one time to the next (1)\n"
"  -g, --group GROUP     processes with this UMMAP_GROUP; default: the environment's\n"
"  -s, --sort COLUMN     by one of: ";

static void print_usage(FILE *f)
{
	fputs(usage, f);
	for (enum column c = PID; c < COLUMNS; c++)
		fprintf(f, "%s%s", c == PID ? "" : c == FAULTS ? ",\n                        " : ", ", columns[c].key);
	fputs(" (held)\n"
	      "  -r, --reverse         smallest first\n"
	      "  -f, --filter TEXT     only processes with this text in a name, or with this number\n"
	      "  -h, --help\n"
	      "  -V, --version\n"
	      "Without -1 and -j it keeps a screen up to date; h there tells the keys.\n", f);
}

__attribute__((noreturn, format(printf, 1, 2))) static void refuse(const char *format, ...)
{
	va_list args;

	fprintf(stderr, "umtop: ");
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fprintf(stderr, "; see umtop --help\n");
	exit(2);
}

static double parse_delay(const char *text)
{
	double n;

	if (size_parse_decimal(text, &n) < 0 || !(n >= 0.1 && n <= 3600))
		refuse("--delay: '%s' is not 0.1 to 3600 seconds", text);
	return n;
}

static unsigned parse_count(const char *text)
{
	char *end;
	long n = strtol(text, &end, 10);

	if (*end || n < 1 || n > 1000000000)
		refuse("--count: '%s' is not 1 to 1000000000", text);
	return (unsigned)n;
}

static enum column parse_column(const char *text)
{
	enum column c = column_of(text);

	if (c == COLUMNS)
		refuse("--sort: there is no column '%s'", text);
	return c;
}

static const char *parse_group(const char *text)
{
	if (!config_is_name(text))
		refuse("--group: '%s' cannot be a UMMAP_GROUP", text);
	return text;
}

static void parse(struct options *o, const char **group, int argc, char **argv)
{
	static const struct option known[] = {
		{ "once", 0, 0, '1' }, { "json", 0, 0, 'j' }, { "maps", 0, 0, 'm' }, { "count", 1, 0, 'n' },
		{ "delay", 1, 0, 'd' }, { "group", 1, 0, 'g' }, { "sort", 1, 0, 's' }, { "reverse", 0, 0, 'r' },
		{ "filter", 1, 0, 'f' }, { "help", 0, 0, 'h' }, { "version", 0, 0, 'V' },
		{ 0, 0, 0, 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, "1jmn:d:g:s:rf:hV", known, NULL)) != -1) {
		switch (c) {
		case '1': o->looks = 1; break;
		case 'j': o->json = true; break;
		case 'm': o->maps = true; break;
		case 'n': o->looks = parse_count(optarg); break;
		case 'd': o->delay = parse_delay(optarg); break;
		case 'g': *group = parse_group(optarg); break;
		case 's': o->sort = parse_column(optarg); break;
		case 'r': o->ascending = true; break;
		case 'f': snprintf(o->filter, sizeof(o->filter), "%s", optarg); break;
		case 'h': print_usage(stdout); exit(0);
		case 'V': puts("umtop (libummap) " UMMAP_VERSION); exit(0);
		default: fprintf(stderr, "see umtop --help\n"); exit(2);
		}
	}
	if (optind < argc)
		refuse("'%s' is no option", argv[optind]);
}

/* Rates need two reports of each process, which come once a second. */
static int take_first(struct view *view)
{
	uint64_t end = sys_now() + PATIENCE_MS;
	int err = view_take(view);

	while (!err && !view_is_fresh(view) && sys_now() < end) {
		usleep(LOOK_US);
		err = view_take(view);
	}
	return err;
}

static int print_all(struct view *view, const struct options *o)
{
	int err = take_first(view);

	for (unsigned i = 1; !err; i++) {
		view_sort(view, o->sort, o->ascending);
		(o->json ? print_json : print_text)(stdout, view, o);
		if (!output_flush() || i == o->looks)
			break;
		usleep((useconds_t)(o->delay * 1e6));
		err = view_take(view);
	}
	return err;
}

int main(int argc, char **argv)
{
	struct options o = { .delay = 1, .sort = HELD };
	const char *group = secure_getenv("UMMAP_GROUP");
	struct view view = { .count = 0 };
	int err = -ENOTSUP;

	output_watch(1);
	parse(&o, &group, argc, argv);
	view.group = group && *group ? parse_group(group) : NULL;
	registry_path(view.group, view.path);
	registry_sweep();
	if (!o.json && o.looks != 1 && isatty(STDIN_FILENO) && isatty(STDOUT_FILENO))
		err = screen_run(&view, &o);
	if (err == -ENOTSUP)
		err = print_all(&view, &o);
	free(view.process);
	if (err)
		fprintf(stderr, "umtop: %s\n", fail_message());
	return err ? 1 : 0;
}
