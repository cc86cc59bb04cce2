/* SPDX-License-Identifier: BSD-3-Clause */
/* ummap top - shows the processes of a node that share memory by libummap, and their mappings. */
#include "top.h"

#include "base/config.h"
#include "base/log.h"
#include "common/size.h"
#include "nodecopy/nodecopy.h"

#include "../tool.h"

/* Rates need two reports of each process. How long to wait for them, and how often to look. */
#define FIRST_REPORTS_MS 3000
#define LOOK_INTERVAL_US 100000

enum { EXIT_ERROR = 1, EXIT_MISUSE = 2 };

TOOL_HELP(TOP_OPTIONS, .usage =
"usage: ummap top [OPTION ...]\n"
"Shows the processes of this user that share this node's memory by libummap, and their mappings.\n"
"Without --once and --json it keeps a screen up to date, in which h shows the keys.\n",
.notes = "umtop is a short name of 'ummap top'.\n");

static double parse_delay(const char *text)
{
	double n;

	if (size_parse_decimal(text, &n) < 0 || !(n >= 0.1 && n <= 3600))
		refuse("cannot use --delay '%s': it must be 0.1 to 3600 seconds", text);
	return n;
}

static enum column parse_column(const char *text)
{
	enum column c = column_of(text);

	if (c == COLUMNS)
		refuse("cannot use --sort '%s': there is no such column. Try '%s --help'", text,
		       program_invocation_short_name);
	return c;
}

static const char *parse_group(const char *text)
{
	if (!config_is_name(text))
		refuse("cannot use --group '%s': a group has 1 to %d letters, digits, '-', '_' or "
		       "'.'",
		       text, CONFIG_NAME_MAX);
	return text;
}

static void parse(struct options *o, const char **group, int argc, char **argv)
{
	int option;

	while ((option = take_option(argc, argv, &tool_help)) >= 0) {
		switch (option) {
		case OPTION_ONCE: o->looks = 1; break;
		case OPTION_JSON: o->json = true; break;
		case OPTION_MAPS: o->maps = true; break;
		case OPTION_COUNT:
			o->looks = (unsigned)parse_number("--count", optarg, 1, 1000000000);
			break;
		case OPTION_DELAY: o->delay = parse_delay(optarg); break;
		case OPTION_GROUP: *group = parse_group(optarg); break;
		case OPTION_SORT: o->sort = parse_column(optarg); break;
		case OPTION_REVERSE: o->ascending = true; break;
		case OPTION_FILTER: snprintf(o->filter, sizeof(o->filter), "%s", optarg); break;
		}
	}
	if (optind < argc)
		refuse_extra(program_invocation_short_name, argv[optind]);
}

/* Waits until each process has reported twice, which takes a second, or until the time is over. */
static int take_first(struct view *view)
{
	uint64_t end = sys_now() + FIRST_REPORTS_MS;
	int err = view_take(view);

	while (!err && !view_is_fresh(view) && sys_now() < end) {
		usleep(LOOK_INTERVAL_US);
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

	tool_begin(EXIT_MISUSE);
	parse(&o, &group, argc, argv);
	view.group = group && *group ? parse_group(group) : NULL;
	tool_failed = EXIT_ERROR;
	registry_path(view.group, view.path);
	registry_sweep();
	nodecopy_sweep();
	if (!o.json && o.looks != 1 && isatty(STDIN_FILENO) && isatty(STDOUT_FILENO))
		err = screen_run(&view, &o);
	if (err == -ENOTSUP)
		err = print_all(&view, &o);
	free(view.process);
	if (err)
		refuse("%s", fail_message());
	return EXIT_SUCCESS;
}
