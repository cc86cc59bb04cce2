/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Prints the generated part of a manual page for `make settings`, the text of
 * `ummap help settings`, or the options in the help of a script:
 * make-settings environment|options|settings|text|help COMMAND.
 */
#include "tool.h"
#include "ummap/settings.h"

#define COMMAND(name, list) \
	if (strcmp(command, #name) == 0) { \
		const struct tool_option rows[] = { list(OPTION_ROW) COMMON_OPTIONS }; \
		print_options(rows, sizeof(rows) / sizeof(*rows)); \
	}

static void print_help(const char *command)
{
	ALL_COMMANDS(COMMAND)
}

int main(int argc, char **argv)
{
	if (argc == 3)
		print_help(argv[2]);
	else if (argc == 2 && strcmp(argv[1], "text") == 0)
		print_settings(stdout);
	else if (argc == 2)
		print_settings_page(stdout, argv[1]);
	return argc < 2;
}
