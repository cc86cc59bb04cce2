/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Prints the generated part of a manual page for `make settings`, or the text of
 * `ummap help settings`: make-settings environment|options|settings|text.
 */
#include "ummap/settings.h"

#include <string.h>

int main(int argc, char **argv)
{
	if (argc == 2 && strcmp(argv[1], "text") == 0)
		print_settings(stdout);
	else if (argc == 2)
		print_settings_page(stdout, argv[1]);
	return argc == 2 ? 0 : 2;
}
