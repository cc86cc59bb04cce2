/* SPDX-License-Identifier: BSD-3-Clause */
#include "kit/turns.h"

void parse_options(struct options *o, int argc, char **argv, const char *help)
{
	const struct option known[] = {
		{ "size", 1, 0, 's' }, { "budget", 1, 0, 'b' }, { "seg", 1, 0, 'g' },
		{ "reps", 1, 0, 'r' }, { "help", 0, 0, 'h' },   { 0, 0, 0, 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, "", known, NULL)) != -1) {
		switch (c) {
		case 's': o->size = parse_size("size", optarg); break;
		case 'b': o->budget = parse_size("budget", optarg); break;
		case 'g': o->seg = parse_size("seg", optarg); break;
		case 'r': o->reps = parse_count("reps", optarg, 1000); break;
		case 'h': fputs(help, stdout); exit(0);
		default: die("see --help");
		}
	}
	if (optind < argc)
		die("'%s' is no option; see --help", argv[optind]);
	if (o->seg < 4 * KIB || o->seg & (o->seg - 1) || o->size % o->seg)
		die("--seg must be a power of two of at least 4K, and --size a multiple of it");
}
