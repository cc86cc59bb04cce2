/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ummap caf - shows the coarrays in a folder, and exports single ones. After a crash it shows the
 * common moment to which a restart would go back. It never changes the folder.
 */
#include <inttypes.h>

#include "coarray/earlier.h"
#include "common/minmax.h"

#include "../tool.h"

#include <ummap.h>

TOOL_HELP(CAF_OPTIONS, .ends_at_program = true, .usage =
"usage: ummap caf [--prefix PREFIX] ls|show FOLDER\n"
"       ummap caf [--prefix PREFIX] export FOLDER ORDER IMAGE FILE\n"
"Shows and exports the coarrays that are kept in the folder FOLDER.\n"
"\n"
"Actions:\n"
"  ls               list the program and its coarrays: order, size in bytes, state, type\n"
"  show             list the syncs that each coarray of each image has\n"
"  export           write one coarray of one image to FILE: as a NumPy array if it ends in .npy,\n"
"                   else as plain bytes\n");

static struct earlier found;
static struct manifest *const m = &found.manifest;

static void read_folder(const char *folder, const char *prefix)
{
	if (strlen(folder) >= sizeof(found.names.folder) ||
	    strlen(prefix) >= sizeof(found.names.prefix))
		refuse("cannot open '%s': the name is too long", folder);
	strcpy(found.names.folder, folder);
	strcpy(found.names.prefix, prefix);
	if (!earlier_open(&found))
		refuse("%s", found.wrong);
}

/* ---- Actions ---- */

static const char *const states[] = { "live", "parked", "ended", "doomed" };

static void ls(void)
{
	printf("program %s, %d images, sync %" PRIu64 "\n", m->program.name, m->images,
	       found.epoch);
	for (unsigned order = 1; order <= m->next_id; order++) {
		const struct entry *x = manifest_find(m, order);

		if (x)
			printf("%u %" PRIu64 " %s %s\n", order, x->size, states[x->state],
			       *x->type ? x->type : "-");
	}
}

static void show(void)
{
	for (int image = 1; image <= m->images; image++) {
		for (size_t i = 0; i < m->n; i++) {
			const struct entry *x = &m->entries[i];
			struct view v;

			if (x->small)
				continue;
			if (!earlier_view(&found, x, image, &v))
				refuse("%s", found.wrong);
			printf("image %d %s %u: ", image,
			       x->order == ENTRY_POOL ? "pool" : "coarray", x->order);
			if (v.whole)
				printf("syncs %" PRIu64 " to %" PRIu64 "\n",
				       v.epoch - (v.newest - v.oldest), v.epoch);
			else
				printf("no complete sync\n");
			earlier_close_view(&v);
		}
	}
}

/* Writes NumPy's name of a type, and returns the bytes of an element. */
static size_t element(const char *type, uint64_t size, char name[40])
{
	char word[32] = "";
	size_t bytes = 1;
	const char *kind;

	sscanf(type, "%31s %zu", word, &bytes);
	kind = !strcmp(word, "integer") || !strcmp(word, "logical") ? "<i" :
	       !strcmp(word, "real")                                ? "<f" :
	       !strcmp(word, "complex")                             ? "<c" :
	       !strcmp(word, "character")                           ? "|S" :
	       !strcmp(word, "derived")                             ? "|V" :
								      "|u";
	if (!bytes || size % bytes || strcmp(kind, "|u") == 0)
		bytes = 1, kind = "|u";
	snprintf(name, 40, "%s%zu", kind, bytes);
	return bytes;
}

/* Writes the header of a .npy file, which is padded to a multiple of 64 bytes. */
static void write_header(FILE *f, const struct entry *x)
{
	char type[40], text[200];
	size_t bytes = element(x->type, x->size, type);
	int len = snprintf(text, sizeof(text),
			   "{'descr': '%s', 'fortran_order': True, 'shape': (%" PRIu64 ",), }",
			   type, x->size / bytes);
	int padded = (10 + len + 1 + 63) / 64 * 64 - 10;

	fwrite("\x93NUMPY\x01\x00", 1, 8, f);
	fputc(padded & 0xff, f);
	fputc(padded >> 8, f);
	fprintf(f, "%-*s\n", padded - 1, text);
}

/* Writes from a copy, because the kernel may not be able to read absent segments. */
static void write_bytes(FILE *f, const char *bytes, size_t len)
{
	char copy[64 << 10];

	for (size_t at = 0, n; at < len; at += n) {
		n = min_size(len - at, sizeof(copy));
		if (umcopy(copy, bytes + at, n) < 0)
			refuse("cannot read the coarray: %m");
		fwrite(copy, 1, n, f);
	}
}

static void write_out(const struct entry *x, const char *bytes, const char *path)
{
	const char *end = strrchr(path, '.');
	FILE *f = fopen(path, "we");

	if (!f)
		refuse("cannot open '%s': %m", path);
	if (end && strcmp(end, ".npy") == 0)
		write_header(f, x);
	write_bytes(f, bytes, x->size);
	if (ferror(f) | fclose(f))
		refuse("cannot write '%s': %m", path);
}

static void export(unsigned order, int image, const char *path)
{
	const struct entry *x = order ? manifest_find(m, order) : NULL;
	const char *bytes;
	struct view v;

	if (!x)
		refuse("cannot export coarray %u: there is none of that order. Try 'ls'", order);
	bytes = earlier_contents(&found, x, image, &v);
	if (!bytes)
		refuse("%s", found.wrong);
	write_out(x, bytes, path);
	earlier_close_view(&v);
}

int main(int argc, char **argv)
{
	static const struct tool_action actions[] = {
		{ "ls", 1, 1 }, { "show", 1, 1 }, { "export", 4, 4 }, { .name = NULL },
	};
	const char *prefix = "OpenCoarrays_";
	const struct tool_action *action;

	tool_begin(2);
	while (take_option(argc, argv, &tool_help) >= 0)
		prefix = optarg;
	argv += optind;
	action = find_action(actions, sizeof(*actions), tool_help.usage, argv);
	read_folder(argv[1], prefix);
	if (action == &actions[0])
		ls();
	else if (action == &actions[1])
		show();
	else
		export((unsigned)parse_number("ORDER", argv[2], 0, INT32_MAX),
		       (int)parse_number("IMAGE", argv[3], 0, INT32_MAX), argv[4]);
	return 0;
}
