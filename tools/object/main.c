/* SPDX-License-Identifier: BSD-3-Clause */
/* umobject - puts arrays into containers and gets them out again. */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../output.h"
#include "formats.h"

static const char usage[] =
"usage: umobject create CONTAINER [--keep N] [--device FOLDER]...\n"
"       umobject put CONTAINER NAME FILE [--type T] [--dims AxB] [--chunk CxD] [--attribute NAME=VALUE]...\n"
"                    [--strict]\n"
"       umobject get|export CONTAINER NAME FILE [--version N]\n"
"       umobject ls CONTAINER [NAME]\n"
"       umobject stat CONTAINER NAME [--version N]\n"
"       umobject rm CONTAINER NAME\n"
"       umobject cp CONTAINER NAME CONTAINER NAME [--version N] [--chunk CxD]\n"
"       umobject gc CONTAINER\n"
"       umobject check CONTAINER [NAME [--version N]] [--repair]\n"
"Arrays as objects; CONTAINER is a folder, or as rados:POOL/NAME. FILE is plain bytes, or by its end an array of NumPy (.npy) or a dataset\n"
"of HDF5 (.h5, .h5:/name); - is standard input or output.\n"
"  create   makes a container: how many versions of a name are kept (1), and folders for chunks\n"
"  put      makes the file the newest version of an object\n"
"  get, export  writes an object to a file\n"
"  ls       names, with versions and sizes; with NAME, its versions\n"
"  stat     what is known of an object\n"
"  rm       takes a name away\n"
"  cp       copies an object\n"
"  gc       removes what nobody refers to\n"
"  check    reads all versions that are kept, and says what is missing or damaged: then the exit status is 1;\n"
"           --repair restores names and views from what is there\n"
"  --strict: put refuses a file with an attribute that an object cannot have, instead of leaving it out\n"
"  --type T (double; plain bytes: uint8), --dims, --chunk (at most 8 MiB each), --quiet: no progress\n"
"  --help, --version\n";

static struct options {
	unsigned keep;
	const char **devices;
	unsigned ndevices;
	struct umobject_shape plain;
	struct umobject_shape chunk;
	const char **attributes;
	unsigned nattributes;
	uint64_t version;
	bool quiet, repair, strict;
} options = { .plain = { .type = UMOBJECT_UINT8 } };

/* What is put is taken back where the command fails. */
static umobject_put *under_way;

__attribute__((format(printf, 1, 2), noreturn))
static void refuse(const char *format, ...)
{
	va_list args;

	fprintf(stderr, "umobject: ");
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	if (under_way)
		umobject_abandon(under_way);
	exit(2);
}

__attribute__((noreturn))
static void refuse_library(void)
{
	refuse("%s", umobject_errormsg());
}

static umobject_container *open_container(const char *where, unsigned flags)
{
	struct umobject_attr attr = UMOBJECT_ATTR_INIT;
	umobject_container *c;

	attr.flags = flags;
	attr.keep = options.keep;
	attr.devices = options.devices;
	attr.ndevices = options.ndevices;
	if (umobject_open(where, &attr, &c) < 0)
		refuse_library();
	return c;
}

static umobject_version *hold(umobject_container *c, const char *name, struct umobject_stat *st)
{
	umobject_version *v;

	*st = (struct umobject_stat){ .struct_size = sizeof(*st) };
	if (umobject_hold(c, name, options.version, &v) < 0 || umobject_stat(v, st) < 0)
		refuse_library();
	return v;
}

/* ---- Options ---- */

static unsigned parse_dims(const char *what, const char *text, uint64_t dims[UMOBJECT_RANK_MAX])
{
	const char *whole = text;
	unsigned n = 0;

	for (;;) {
		char *end;

		errno = 0;
		if (*text < '0' || *text > '9' || n == UMOBJECT_RANK_MAX)
			refuse("cannot use %s '%s': it must be as 1000x200, with at most %d numbers", what, whole, UMOBJECT_RANK_MAX);
		dims[n++] = strtoull(text, &end, 10);
		if (errno || (*end && *end != 'x'))
			refuse("cannot use %s '%s': it must be as 1000x200, with at most %d numbers", what, whole, UMOBJECT_RANK_MAX);
		if (!*end)
			return n;
		text = end + 1;
	}
}

static uint64_t parse_number(const char *what, const char *text, uint64_t most)
{
	char *end;
	uint64_t n;

	errno = 0;
	n = strtoull(text, &end, 10);
	if (*text < '0' || *text > '9' || *end || errno || n == 0 || n > most)
		refuse("cannot use %s '%s': it must be a number from 1 to %" PRIu64, what, text, most);
	return n;
}

static void add(const char ***list, unsigned *n, const char *what)
{
	*list = realloc(*list, (*n + 1) * sizeof(**list));
	if (!*list)
		refuse("no memory");
	(*list)[(*n)++] = what;
}

enum { KEEP = 256, DEVICE, TYPE, DIMS, CHUNK, ATTRIBUTE, VERSION, QUIET, HELP, REPAIR, STRICT };

static const struct option long_options[] = {
	{ "keep", 1, NULL, KEEP }, { "device", 1, NULL, DEVICE }, { "type", 1, NULL, TYPE }, { "dims", 1, NULL, DIMS },
	{ "chunk", 1, NULL, CHUNK }, { "attribute", 1, NULL, ATTRIBUTE }, { "version", 2, NULL, VERSION }, { "quiet", 0, NULL, QUIET },
	{ "help", 0, NULL, HELP }, { "repair", 0, NULL, REPAIR }, { "strict", 0, NULL, STRICT }, { NULL, 0, NULL, 0 },
};

/* Those that were given: a bit each. */
static unsigned given;

#define BIT(option) (1u << ((option) - KEEP))

static void take_option(int what, char **argv)
{
	if (what >= KEEP)
		given |= BIT(what);
	switch (what) {
	case KEEP:
		options.keep = (unsigned)parse_number("--keep", optarg, 1000);
		break;
	case DEVICE:
		add(&options.devices, &options.ndevices, optarg);
		break;
	case TYPE:
		options.plain.type = type_of_name(optarg);
		if (!options.plain.type)
			refuse("cannot use --type '%s': it must be int8 to uint64, float, double or ldouble", optarg);
		break;
	case DIMS:
		options.plain.rank = parse_dims("--dims", optarg, options.plain.dims);
		break;
	case CHUNK:
		options.chunk.rank = parse_dims("--chunk", optarg, options.chunk.chunk);
		break;
	case ATTRIBUTE:
		if (!strchr(optarg, '='))
			refuse("cannot use --attribute '%s': it must be NAME=VALUE", optarg);
		add(&options.attributes, &options.nattributes, optarg);
		break;
	case VERSION:
		/* The program's, where nothing else is asked for. */
		if (!optarg && argv[optind] && argv[optind][0] >= '0' && argv[optind][0] <= '9')
			optarg = argv[optind++];
		if (!optarg) {
			puts("umobject (libummap) " UMMAP_VERSION);
			exit(0);
		}
		options.version = parse_number("--version", optarg, UINT64_MAX);
		break;
	case QUIET:
		options.quiet = true;
		break;
	case REPAIR:
		options.repair = true;
		break;
	case STRICT:
		options.strict = true;
		break;
	case HELP:
		fputs(usage, stdout);
		exit(0);
	default:
		fputs("Try umobject --help.\n", stderr);
		exit(2);
	}
}

/* ---- Arrays, slab by slab ---- */

static void progress(const char *name, uint64_t done, uint64_t all)
{
	static time_t last;
	time_t now = time(NULL);

	if (options.quiet || !isatty(STDERR_FILENO) || (now == last && done < all))
		return;
	last = now;
	fprintf(stderr, "\r%s: %" PRIu64 " of %" PRIu64 " MiB%s", name, done >> 20, all >> 20, done == all ? "\n" : "");
}

/* Chunks of at most 8 MiB, cut along the first dimensions. */
static void choose_chunk(struct umobject_shape *s)
{
	uint64_t bytes = umobject_type_size(s->type);
	unsigned d;

	/* No dimension is 0, and all together are no more than 64 bits can count. */
	if (!umobject_chunks(s))
		refuse_library();
	if (options.chunk.rank) {
		if (options.chunk.rank != s->rank)
			refuse("cannot use --chunk: it has %u numbers, and the array %u dimensions", options.chunk.rank, s->rank);
		for (d = 0; d < s->rank; d++)
			s->chunk[d] = options.chunk.chunk[d] && options.chunk.chunk[d] < s->dims[d] ? options.chunk.chunk[d] : s->dims[d];
		return;
	}
	for (d = s->rank; d-- > 0;) {
		uint64_t fit = ((uint64_t)8 << 20) / bytes;

		s->chunk[d] = fit == 0 ? 1 : fit < s->dims[d] ? fit : s->dims[d];
		bytes *= s->chunk[d];
	}
}

/* What one chunk row after the other has: all of the inner dimensions. */
static uint64_t slab_rows(const struct umobject_shape *s)
{
	return s->rank == 0 ? 1 : s->chunk[0];
}

static uint64_t row_size(const struct umobject_shape *s)
{
	uint64_t bytes = umobject_type_size(s->type);
	unsigned d;

	for (d = 1; d < s->rank; d++)
		bytes *= s->dims[d];
	return bytes;
}

/* Of a slab, the chunk. */
static void cut_chunk(const struct umobject_shape *s, const char *slab, uint64_t first, const uint64_t *start, const uint64_t *count, char *to)
{
	uint64_t at[UMOBJECT_RANK_MAX] = { 0 }, size = umobject_type_size(s->type), run = size * count[s->rank - 1], off;
	unsigned d;

	for (;;) {
		off = start[0] + at[0] - first;
		for (d = 1; d < s->rank; d++)
			off = off * s->dims[d] + start[d] + at[d];
		memcpy(to, slab + off * size, run);
		to += run;
		for (d = s->rank - 1; d-- > 0;) {
			if (++at[d] < count[d])
				break;
			at[d] = 0;
		}
		if (d == UINT32_MAX)
			return;
	}
}

static void put_slab(umobject_put *p, const struct umobject_shape *s, const char *slab, uint64_t first, uint64_t *number, char *chunk)
{
	uint64_t start[UMOBJECT_RANK_MAX], count[UMOBJECT_RANK_MAX];

	while (umobject_chunk(s, *number, start, count) && start[0] == first) {
		cut_chunk(s, slab, first, start, count, chunk);
		if (umobject_put_chunk(p, *number, chunk) < 0)
			refuse_library();
		++*number;
	}
}

static int take_attribute(void *put, const char *name, const void *value, size_t size)
{
	if (umobject_put_attribute(put, name, value, size) < 0)
		refuse_library();
	return 0;
}

/* A file that is put, whose attributes are taken. */
struct put_file {
	umobject_put *put;
	const char *path;
};

static int leave_out(void *file, const char *name, const char *reason)
{
	const char *path = ((struct put_file *)file)->path;

	if (options.strict)
		refuse("cannot put '%s': an object cannot have its attribute '%s': %s. Try without --strict, which leaves it out", path, name,
		       reason);
	fprintf(stderr, "umobject: warning: left out the attribute '%s' of '%s': %s\n", name, path, reason);
	return 0;
}

static int take_file_attribute(void *file, const char *name, const void *value, size_t size)
{
	if (umobject_put_attribute(((struct put_file *)file)->put, name, value, size) == 0)
		return 0;
	return errno == EINVAL ? leave_out(file, name, umobject_errormsg()) : take_attribute(((struct put_file *)file)->put, name, value, size);
}

static void put_attributes(umobject_put *p)
{
	unsigned i;

	for (i = 0; i < options.nattributes; i++) {
		const char *equal = strchr(options.attributes[i], '=');
		char *name = strndup(options.attributes[i], (size_t)(equal - options.attributes[i]));

		if (!name)
			refuse("no memory for an attribute");
		take_attribute(p, name, equal + 1, strlen(equal + 1));
		free(name);
	}
}

/* A version's attributes, one after the other, to what takes them: 0, or -1, which ends it. */
static int each_attribute(const umobject_version *v, int (*take)(void *to, const char *name, const void *value, size_t size), void *to)
{
	const char *name;
	unsigned i;

	for (i = 0; (name = umobject_attribute_name(v, i)); i++) {
		size_t size;
		const void *value = umobject_attribute(v, name, &size);

		if (take(to, name, value, size) < 0)
			return -1;
	}
	return 0;
}

/* All of the array, slab by slab. */
static void put_slabs(umobject_put *p, const char *name, struct array *a, const struct umobject_shape *s)
{
	uint64_t row = row_size(s), rows = slab_rows(s), at[UMOBJECT_RANK_MAX] = { 0 }, count[UMOBJECT_RANK_MAX], number = 0;
	char *slab = malloc(rows * row), *chunk = malloc(rows * row);

	if (!slab || !chunk)
		refuse("cannot put '%s': no memory for %" PRIu64 " bytes. Try smaller chunks", name, rows * row);
	memcpy(count, s->dims, sizeof(count));
	do {
		if (s->rank)
			count[0] = s->dims[0] - at[0] < rows ? s->dims[0] - at[0] : rows;
		if (a->read(a, slab, at, count) < 0)
			refuse("%s", a->why);
		if (s->rank)
			put_slab(p, s, slab, at[0], &number, chunk);
		else if (umobject_put_chunk(p, 0, slab) < 0)
			refuse_library();
		at[0] += s->rank ? count[0] : 1;
		progress(name, at[0] * row, (s->rank ? s->dims[0] : 1) * row);
	} while (s->rank && at[0] < s->dims[0]);
	free(slab);
	free(chunk);
}

/* From an array to a new version, which is committed. from: a version whose attributes it has; NULL: none. */
static void put_from(umobject_container *c, const char *name, struct array *a, const umobject_version *from)
{
	struct umobject_shape s = a->shape;
	umobject_put *p;
	uint64_t version;

	choose_chunk(&s);
	if (umobject_begin(c, name, &s, &p, NULL) < 0)
		refuse_library();
	under_way = p;
	if (from)
		each_attribute(from, take_attribute, p);
	if (a->attributes && a->attributes(a, &(struct taker){ take_file_attribute, leave_out, &(struct put_file){ p, a->path } }) < 0)
		refuse("%s", a->why);
	put_attributes(p);
	put_slabs(p, name, a, &s);
	if (array_ends(a) < 0)
		refuse("%s", a->why);
	under_way = NULL;
	if (umobject_commit(p, 0, &version) < 0)
		refuse_library();
	if (!options.quiet)
		printf("%s: version %" PRIu64 "\n", name, version);
}

static int add_to_array(void *array, const char *name, const void *value, size_t size)
{
	struct array *a = array;

	return a->add_attribute(a, name, value, size);
}

static void get_to(umobject_version *v, const struct umobject_stat *st, const char *path)
{
	const struct umobject_shape *s = &st->shape;
	uint64_t row = row_size(s), rows = slab_rows(s), at[UMOBJECT_RANK_MAX] = { 0 }, count[UMOBJECT_RANK_MAX];
	char *slab = malloc(rows * row);
	struct array a;

	if (!slab)
		refuse("cannot get '%s': no memory for %" PRIu64 " bytes", st->name, rows * row);
	if (array_create(&a, path, s) < 0)
		refuse("%s", a.why);
	if (a.add_attribute && each_attribute(v, add_to_array, &a) < 0)
		refuse("%s", a.why);
	memcpy(count, s->dims, sizeof(count));
	do {
		if (s->rank)
			count[0] = s->dims[0] - at[0] < rows ? s->dims[0] - at[0] : rows;
		if (umobject_read(v, at, count, slab) < 0)
			refuse_library();
		if (a.write(&a, slab, at, count) < 0)
			refuse("%s", a.why);
		at[0] += s->rank ? count[0] : 1;
		progress(st->name, at[0] * row, (s->rank ? s->dims[0] : 1) * row);
	} while (s->rank && at[0] < s->dims[0]);
	if (a.close(&a) < 0)
		refuse("%s", a.why);
	free(slab);
}

/* A version as an array, to be copied from. */
static umobject_version *source;

static int read_source(struct array *a, void *to, const uint64_t *start, const uint64_t *count)
{
	(void)a;
	if (umobject_read(source, start, count, to) < 0)
		refuse_library();
	return 0;
}

/* ---- Commands ---- */

static void print_dims(const struct umobject_shape *s, const uint64_t *dims)
{
	unsigned d;

	for (d = 0; d < s->rank; d++)
		printf("%s%" PRIu64, d ? "x" : "", dims[d]);
	if (!s->rank)
		printf("1");
}

static int do_create(char **arg)
{
	umobject_close(open_container(arg[0], UMOBJECT_CREATE));
	return 0;
}

static int do_put(char **arg)
{
	umobject_container *c = open_container(arg[0], 0);
	struct array a;

	if (array_open(&a, arg[2], &options.plain) < 0)
		refuse("%s", a.why);
	put_from(c, arg[1], &a, NULL);
	a.close(&a);
	umobject_close(c);
	return 0;
}

static int do_get(char **arg)
{
	umobject_container *c = open_container(arg[0], UMOBJECT_READ_ONLY);
	struct umobject_stat st;
	umobject_version *v = hold(c, arg[1], &st);

	get_to(v, &st, arg[2]);
	umobject_release(v);
	umobject_close(c);
	return 0;
}

static void print_line(const char *name, const struct umobject_stat *st)
{
	printf("%" PRIu64 "\t%" PRIu64 "\t%s ", st->version, st->bytes, name_of_type(st->shape.type));
	print_dims(&st->shape, st->shape.dims);
	putchar('\t');
	for (; *name; name++)
		putchar((unsigned char)*name < ' ' || *name == 127 ? '?' : *name);
	putchar('\n');
}

static bool all_listed = true;

/* What was listed may have gone since. What cannot be read does not hide the others. */
static int not_held(void)
{
	if (errno == ENOENT)
		return 0;
	fflush(stdout);
	fprintf(stderr, "umobject: %s\n", umobject_errormsg());
	all_listed = false;
	return 0;
}

static int list_name(void *container, const char *name)
{
	struct umobject_stat st = { .struct_size = sizeof(st) };
	umobject_version *v;

	if (umobject_hold(container, name, 0, &v) < 0)
		return not_held();
	umobject_stat(v, &st);
	print_line(name, &st);
	umobject_release(v);
	return 0;
}

struct listed {
	umobject_container *container;
	const char *name;
	unsigned n;
};

static int list_version(void *arg, uint64_t version)
{
	struct listed *l = arg;
	struct umobject_stat st = { .struct_size = sizeof(st) };
	umobject_version *v;

	if (umobject_hold(l->container, l->name, version, &v) < 0)
		return not_held();
	umobject_stat(v, &st);
	print_line(l->name, &st);
	l->n++;
	umobject_release(v);
	return 0;
}

static int do_ls(char **arg)
{
	umobject_container *c = open_container(arg[0], UMOBJECT_READ_ONLY);
	struct listed l = { c, arg[1], 0 };

	if ((arg[1] ? umobject_versions(c, arg[1], list_version, &l) : umobject_list(c, list_name, c)) < 0)
		refuse_library();
	if (arg[1] && !l.n && all_listed)
		refuse("cannot list '%s': there is no object %s in %s", arg[1], arg[1], arg[0]);
	umobject_close(c);
	return all_listed ? 0 : 2;
}

static void print_id(const struct umobject_id *id)
{
	unsigned i;

	for (i = 0; i < sizeof(id->bytes); i++)
		printf("%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", id->bytes[i]);
}

static int do_stat(char **arg)
{
	umobject_container *c = open_container(arg[0], UMOBJECT_READ_ONLY);
	struct umobject_stat st;
	umobject_version *v = hold(c, arg[1], &st);
	time_t created = (time_t)(st.created / 1000000000);
	unsigned i;
	char text[64];

	strftime(text, sizeof(text), "%F %T", localtime(&created));
	printf("name     %s\nversion  %" PRIu64 "\nid       ", st.name, st.version);
	print_id(&st.id);
	printf("\ntype     %s\ndims     ", name_of_type(st.shape.type));
	print_dims(&st.shape, st.shape.dims);
	printf("\nchunk    ");
	print_dims(&st.shape, st.shape.chunk);
	printf("\nchunks   %" PRIu64 ", of which %" PRIu64 " are stored\nbytes    %" PRIu64 "\ncreated  %s\n", st.chunks, st.stored, st.bytes, text);
	for (i = 0; i < st.attributes; i++) {
		const char *name = umobject_attribute_name(v, i);
		size_t size;
		const char *value = umobject_attribute(v, name, &size);

		printf("attribute %s=%.*s\n", name, (int)size, value);
	}
	umobject_release(v);
	umobject_close(c);
	return 0;
}

static int do_rm(char **arg)
{
	umobject_container *c = open_container(arg[0], 0);

	if (umobject_delete(c, arg[1]) < 0)
		refuse_library();
	umobject_close(c);
	return 0;
}

static int do_cp(char **arg)
{
	umobject_container *from = open_container(arg[0], UMOBJECT_READ_ONLY), *to = open_container(arg[2], 0);
	struct umobject_stat st;
	struct array a;

	source = hold(from, arg[1], &st);
	a = (struct array){ .shape = st.shape, .read = read_source };
	if (!options.chunk.rank) {
		options.chunk.rank = st.shape.rank;
		memcpy(options.chunk.chunk, st.shape.chunk, sizeof(st.shape.chunk));
	}
	put_from(to, arg[3], &a, source);
	umobject_release(source);
	umobject_close(from);
	umobject_close(to);
	return 0;
}

static int do_gc(char **arg)
{
	umobject_container *c = open_container(arg[0], 0);
	struct umobject_garbage g = { .struct_size = sizeof(g) };

	if (umobject_gc(c, &g) < 0)
		refuse_library();
	printf("%" PRIu64 " versions, %" PRIu64 " chunks, %" PRIu64 " bytes removed\n", g.versions, g.chunks, g.bytes);
	umobject_close(c);
	return 0;
}

static void report(void *unused, const char *name, const char *sentence)
{
	(void)unused;
	printf("%s: %s\n", name, sentence);
}

static void report_chunk(void *name, const char *sentence)
{
	report(NULL, name, sentence);
}

static int check_version(umobject_container *c, char *name)
{
	struct umobject_stat st;
	umobject_version *v = hold(c, name, &st);
	int faults = umobject_check(v, report_chunk, name);

	umobject_release(v);
	return faults;
}

static int do_check(char **arg)
{
	umobject_container *c = open_container(arg[0], options.repair ? 0 : UMOBJECT_READ_ONLY);
	int faults = options.version ? check_version(c, arg[1]) :
		umobject_check_container(c, arg[1], options.repair ? UMOBJECT_REPAIR : 0, report, NULL);

	if (faults < 0)
		refuse_library();
	umobject_close(c);
	return faults ? 1 : 0;
}

static const struct command {
	const char *name;
	int least, most;
	int (*run)(char **arg);
	unsigned takes;
} commands[] = {
	{ "create", 1, 1, do_create, BIT(KEEP) | BIT(DEVICE) },
	{ "put", 3, 3, do_put, BIT(TYPE) | BIT(DIMS) | BIT(CHUNK) | BIT(ATTRIBUTE) | BIT(STRICT) },
	{ "get", 3, 3, do_get, BIT(VERSION) }, { "export", 3, 3, do_get, BIT(VERSION) }, { "ls", 1, 2, do_ls, 0 },
	{ "stat", 2, 2, do_stat, BIT(VERSION) }, { "rm", 2, 2, do_rm, 0 },
	{ "cp", 4, 4, do_cp, BIT(VERSION) | BIT(CHUNK) | BIT(ATTRIBUTE) }, { "gc", 1, 1, do_gc, 0 },
	{ "check", 1, 2, do_check, BIT(VERSION) | BIT(REPAIR) },
};

/* One that would be passed over may be the one that matters, as in "rm --version 3". */
static void refuse_others(const struct command *c)
{
	size_t i;

	for (i = 0; long_options[i].name; i++)
		if (given & BIT(long_options[i].val) & ~(c->takes | BIT(QUIET)))
			refuse("cannot %s: %s takes no --%s. Try umobject --help", c->name, c->name, long_options[i].name);
}

static int run(const struct command *c, char **arg, int n)
{
	refuse_others(c);
	if (c->run == do_check && n == 1 && options.version)
		refuse("cannot check a version without an object: check takes --version with a name");
	if (options.version && options.repair)
		refuse("cannot repair one version: check takes --version or --repair, not both");
	return c->run(arg);
}

int main(int argc, char **argv)
{
	size_t i;
	int what, n;

	output_watch(2);
	while ((what = getopt_long(argc, argv, "", long_options, NULL)) != -1)
		take_option(what, argv);
	n = argc - optind - 1;
	for (i = 0; n >= 0 && i < sizeof(commands) / sizeof(*commands); i++)
		if (strcmp(commands[i].name, argv[optind]) == 0 && n >= commands[i].least && n <= commands[i].most)
			return run(&commands[i], argv + optind + 1, n);
	fputs(usage, stderr);
	return 2;
}
