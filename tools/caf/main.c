/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ummap caf - shows what a folder has of coarrays, and takes single ones out of it. After a crash it looks at the moment to
 * which a restart would go back; nothing in the folder changes.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coarray/earlier.h"

#include "../output.h"

static const char usage[] =
"usage: ummap caf [--prefix P] ls|show DIR\n"
"       ummap caf [--prefix P] export DIR ORDER IMAGE FILE\n"
"Coarrays that are kept in the folder DIR; see ummap-coarray(7).\n"
"  ls       the program, its images, and the coarrays: order, size in bytes, type, and whether they are live\n"
"  show     of which syncs the coarrays of each image are there\n"
"  export   writes the coarray with that order of an image to FILE: as an array of NumPy if it ends with .npy,\n"
"           else as plain bytes\n"
"      --prefix P   how the names of files begin (OpenCoarrays_)\n"
"      --help, --version\n";

static struct earlier found;
static struct manifest *const m = &found.manifest;

__attribute__((noreturn, format(printf, 1, 2))) static void refuse(const char *format, ...)
{
	va_list args;

	fprintf(stderr, "ummap caf: ");
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	exit(2);
}

static void read_folder(const char *folder, const char *prefix)
{
	if (strlen(folder) >= sizeof(found.names.folder) || strlen(prefix) >= sizeof(found.names.prefix))
		refuse("%s: the name is too long", folder);
	strcpy(found.names.folder, folder);
	strcpy(found.names.prefix, prefix);
	if (!earlier_open(&found))
		refuse("%s", found.wrong);
}

/* ---- What is done ---- */

static const char *const states[] = { "live", "parked", "ended", "doomed" };

static void ls(void)
{
	printf("program %s, %d images, sync %" PRIu64 "\n", m->program.name, m->images,
	       found.epoch);
	for (unsigned order = 1; order <= m->next_id; order++) {
		const struct entry *x = manifest_find(m, order);

		if (x)
			printf("%u %" PRIu64 " %s %s\n", order, x->size, states[x->state], *x->type ? x->type : "-");
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
			if (!earlier_look(&found, x, image, &v))
				refuse("%s", found.wrong);
			printf("image %d %s %u: ", image, x->order == ENTRY_POOL ? "pool" : "coarray", x->order);
			if (v.whole)
				printf("syncs %" PRIu64 " to %" PRIu64 "\n", v.epoch - (v.newest - v.oldest), v.epoch);
			else
				printf("no sync has reached it\n");
			earlier_leave(&v);
		}
	}
}

/* As NumPy names types, and how many bytes an element has. */
static size_t element(const char *type, uint64_t size, char name[40])
{
	char word[32] = "";
	size_t bytes = 1;
	const char *kind;

	sscanf(type, "%31s %zu", word, &bytes);
	kind = !strcmp(word, "integer") || !strcmp(word, "logical") ? "<i" : !strcmp(word, "real") ? "<f" :
	       !strcmp(word, "complex") ? "<c" : !strcmp(word, "character") ? "|S" : !strcmp(word, "derived") ? "|V" : "|u";
	if (!bytes || size % bytes || strcmp(kind, "|u") == 0)
		bytes = 1, kind = "|u";
	snprintf(name, 40, "%s%zu", kind, bytes);
	return bytes;
}

/* The header fills whole lines of 64 bytes. */
static void write_header(FILE *f, const struct entry *x)
{
	char type[40], text[200];
	size_t bytes = element(x->type, x->size, type);
	int len = snprintf(text, sizeof(text), "{'descr': '%s', 'fortran_order': True, 'shape': (%" PRIu64 ",), }", type,
			   x->size / bytes);
	int padded = (10 + len + 1 + 63) / 64 * 64 - 10;

	fwrite("\x93NUMPY\x01\x00", 1, 8, f);
	fputc(padded & 0xff, f);
	fputc(padded >> 8, f);
	fprintf(f, "%-*s\n", padded - 1, text);
}

static void write_out(const struct entry *x, const char *bytes, const char *path)
{
	const char *end = strrchr(path, '.');
	FILE *f = fopen(path, "we");

	if (!f)
		refuse("%s: %s", path, strerror(errno));
	if (end && strcmp(end, ".npy") == 0)
		write_header(f, x);
	fwrite(bytes, 1, x->size, f);
	if (ferror(f) | fclose(f))
		refuse("%s cannot be written: %s", path, strerror(errno));
}

static void export(unsigned order, int image, const char *path)
{
	const struct entry *x = order ? manifest_find(m, order) : NULL;
	const char *bytes;
	struct view v;

	if (!x)
		refuse("there is no coarray %u", order);
	bytes = earlier_contents(&found, x, image, &v);
	if (!bytes)
		refuse("%s", found.wrong);
	write_out(x, bytes, path);
	earlier_leave(&v);
}

static unsigned number(const char *text)
{
	char *end;
	unsigned long n = strtoul(text, &end, 10);

	if (*text < '0' || *text > '9' || *end || n > INT32_MAX)
		refuse("\"%s\" is no number; see ummap caf --help", text);
	return (unsigned)n;
}

int main(int argc, char **argv)
{
	static const struct option options[] = { { "prefix", required_argument, NULL, 'p' }, { "help", no_argument, NULL, 'h' },
						 { "version", no_argument, NULL, 'v' }, { 0 } };
	const char *prefix = "OpenCoarrays_", *verb;

	output_watch(2);
	for (int c; (c = getopt_long(argc, argv, "+h", options, NULL)) != -1;) {
		if (c == 'h' || c == 'v') {
			fputs(c == 'h' ? usage : "ummap caf (libummap) " UMMAP_VERSION "\n", stdout);
			return 0;
		}
		if (c != 'p')
			refuse("there is no such option; see ummap caf --help");
		prefix = optarg;
	}
	verb = optind < argc ? argv[optind] : "";
	argv += optind;
	argc -= optind;
	if (!(argc == 2 && (!strcmp(verb, "ls") || !strcmp(verb, "show"))) && !(argc == 5 && !strcmp(verb, "export")))
		refuse("it is ls or show with a folder, or export with a folder, an order, an image and a file; see ummap caf --help");
	read_folder(argv[1], prefix);
	if (!strcmp(verb, "ls"))
		ls();
	else if (!strcmp(verb, "show"))
		show();
	else
		export(number(argv[2]), (int)number(argv[3]), argv[4]);
	return 0;
}
