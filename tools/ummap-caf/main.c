/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ummap-caf - shows what a folder has of coarrays, and takes single ones out of it. After a crash it looks at the moment to
 * which a restart would go back; nothing in the folder changes.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "coarray/manifest.h"
#include "ummap.h"

#include "../output.h"

#define URI 2000

static const char usage[] =
"usage: ummap-caf [--prefix P] ls|show DIR\n"
"       ummap-caf [--prefix P] export DIR ORDER IMAGE FILE\n"
"Coarrays that are kept in the folder DIR; see ummap-coarray(7).\n"
"  ls       the program, its images, and the coarrays: order, size in bytes, type, and whether they are live\n"
"  show     of which syncs the coarrays of each image are there\n"
"  export   writes the coarray with that order of an image to FILE: as an array of NumPy if it ends with .npy,\n"
"           else as plain bytes\n"
"      --prefix P   how the names of files begin (OpenCoarrays_)\n"
"      --help, --version\n";

static struct manifest m;
static char begin[MANIFEST_PATH / 2];

__attribute__((noreturn, format(printf, 1, 2))) static void refuse(const char *format, ...)
{
	va_list args;

	fprintf(stderr, "ummap-caf: ");
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	exit(2);
}

static void read_manifest(const char *folder, const char *prefix)
{
	char path[MANIFEST_PATH], *text = NULL;
	const char *wrong;
	size_t room = 0;
	FILE *f;

	if (snprintf(begin, sizeof(begin), "%s/%s", folder, prefix) >= (int)sizeof(begin))
		refuse("%s: the name is too long", folder);
	manifest_path(path, begin);
	f = fopen(path, "re");
	if (!f)
		refuse("%s: %s", path, strerror(errno));
	if (getdelim(&text, &room, '\0', f) < 0)
		refuse("%s cannot be read, or is empty", path);
	fclose(f);
	wrong = manifest_read(&m, text);
	if (wrong)
		refuse("%s: %s", path, wrong);
	free(text);
}

/* ---- Stores ---- */

/* What is there of a mapped coarray of an image. */
struct view {
	char *base;
	bool whole;
	uint64_t epoch, oldest, newest;
};

static size_t encode(char *to, const char *text)
{
	size_t len = 0;

	for (; *text; text++)
		len += (size_t)sprintf(to + len, strchr("%{?&", *text) ? "%%%02X" : "%c", *text);
	return len;
}

/* As it was `back` syncs before the last one that is there. */
static struct view look(const struct entry *x, int image, uint64_t back)
{
	char uri[2 * URI], path[MANIFEST_PATH], log[MANIFEST_PATH];
	struct view v = { 0 };
	size_t len;
	void *base;

	manifest_file(path, begin, m.shared_file, image, x->id);
	manifest_log(log, begin, image, x->id);
	if (access(path, F_OK) < 0)
		return v;
	len = (size_t)sprintf(uri, "wal+posix:");
	len += encode(uri + len, path);
	len += (size_t)sprintf(uri + len, "?wal.path=");
	len += encode(uri + len, log);
	if (back)
		sprintf(uri + len, "&wal.epoch=%" PRIu64, look(x, image, 0).newest - back);
	if (ummap_open(uri, entry_room(x), (off_t)x->at, PROT_READ, NULL, &base) < 0)
		refuse("%s", umerrormsg());
	if (umepoch(base, &v.oldest, &v.newest) < 0)
		refuse("%s", umerrormsg());
	v.base = base;
	v.whole = entry_is_whole(x, entry_trailer(v.base, x));
	v.epoch = v.whole ? entry_trailer(v.base, x)->epoch : 0;
	return v;
}

static void leave(const struct view *v)
{
	if (v->base)
		umunmap(v->base, 0);
}

/* The moment that all images have. */
static uint64_t common_epoch(void)
{
	uint64_t common = UINT64_MAX;

	for (int image = 1; image <= m.images; image++) {
		for (size_t i = 0; i < m.n; i++) {
			const struct entry *x = &m.entries[i];
			uint64_t before = x->since ? x->since - 1 : 0;
			struct view v = { 0 };

			if (x->small || x->state != ENTRY_LIVE)
				continue;
			v = look(x, image, 0);
			before = v.epoch > before ? v.epoch : before;
			common = before < common ? before : common;
			leave(&v);
		}
	}
	return common == UINT64_MAX ? 0 : common;
}

/* ---- What is done ---- */

static const char *const states[] = { "live", "parked", "ended", "doomed" };

static void ls(void)
{
	printf("program %s, %d images, sync %" PRIu64 "\n", m.program, m.images, common_epoch());
	for (unsigned order = 1; order <= m.next_id; order++) {
		const struct entry *x = manifest_find(&m, order);

		if (x)
			printf("%u %" PRIu64 " %s %s\n", order, x->size, states[x->state], *x->type ? x->type : "-");
	}
}

static void show(void)
{
	for (int image = 1; image <= m.images; image++) {
		for (size_t i = 0; i < m.n; i++) {
			const struct entry *x = &m.entries[i];
			struct view v = { 0 };

			if (x->small)
				continue;
			v = look(x, image, 0);
			printf("image %d %s %u: ", image, x->order == ENTRY_POOL ? "pool" : "coarray", x->order);
			if (v.whole)
				printf("syncs %" PRIu64 " to %" PRIu64 "\n", v.epoch - (v.newest - v.oldest), v.epoch);
			else
				printf("no sync has reached it\n");
			leave(&v);
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
	const struct entry *x = order ? manifest_find(&m, order) : NULL, *mapped;
	uint64_t common = common_epoch();
	struct view v;

	if (!x)
		refuse("there is no coarray %u", order);
	if (image < 1 || image > m.images)
		refuse("there are the images 1 to %d only", m.images);
	mapped = x->small ? manifest_find(&m, ENTRY_POOL) : x;
	v = look(mapped, image, 0);
	if (v.whole && mapped->state == ENTRY_LIVE && v.epoch > common) {
		uint64_t back = v.epoch - common;

		leave(&v);
		v = look(mapped, image, back);
	}
	if (!v.whole || (x->small && x->since > v.epoch))
		refuse("no sync of all images has reached coarray %u", order);
	write_out(x, v.base + (x->small ? x->at : 0), path);
	leave(&v);
}

static unsigned number(const char *text)
{
	char *end;
	unsigned long n = strtoul(text, &end, 10);

	if (*text < '0' || *text > '9' || *end || n > INT32_MAX)
		refuse("\"%s\" is no number; see ummap-caf --help", text);
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
			fputs(c == 'h' ? usage : "ummap-caf (libummap) " UMMAP_VERSION "\n", stdout);
			return 0;
		}
		if (c != 'p')
			refuse("there is no such option; see ummap-caf --help");
		prefix = optarg;
	}
	verb = optind < argc ? argv[optind] : "";
	argv += optind;
	argc -= optind;
	if (!(argc == 2 && (!strcmp(verb, "ls") || !strcmp(verb, "show"))) && !(argc == 5 && !strcmp(verb, "export")))
		refuse("it is ls or show with a folder, or export with a folder, an order, an image and a file; see ummap-caf --help");
	read_manifest(argv[1], prefix);
	if (!strcmp(verb, "ls"))
		ls();
	else if (!strcmp(verb, "show"))
		show();
	else
		export(number(argv[2]), (int)number(argv[3]), argv[4]);
	return 0;
}
