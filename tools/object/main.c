/* SPDX-License-Identifier: BSD-3-Clause */
/* ummap object - puts arrays into containers and gets them out again. */
#include <inttypes.h>
#include <time.h>

#include "../tool.h"
#include "formats.h"
#include "object/shape.h"

TOOL_HELP(OBJECT_OPTIONS, .usage =
"usage: ummap object create CONTAINER [--keep N] [--device FOLDER] ...\n"
"       ummap object put CONTAINER NAME FILE [--type T] [--dims AxB] [--chunk CxD]\n"
"                        [--attribute NAME=VALUE] ... [--strict]\n"
"       ummap object get|export CONTAINER NAME FILE [--number N]\n"
"       ummap object ls CONTAINER [NAME]\n"
"       ummap object stat CONTAINER NAME [--number N]\n"
"       ummap object rm CONTAINER NAME\n"
"       ummap object cp CONTAINER NAME CONTAINER NAME [--number N] [--chunk CxD]\n"
"                       [--attribute NAME=VALUE] ...\n"
"       ummap object gc CONTAINER\n"
"       ummap object check CONTAINER [NAME [--number N]] [--repair]\n"
"Keeps arrays as objects in containers. CONTAINER is a folder, rados:POOL/NAME or\n"
"s3:BUCKET/PREFIX. FILE is a NumPy array (.npy), an HDF5 dataset (.h5, .h5:/name), or plain\n"
"bytes; - is standard input or output.\n"
"\n"
"Actions:\n"
"  create      make a container\n"
"  put         make a file the newest version of an object\n"
"  get         write an object to a file\n"
"  export      write an object to a file\n"
"  ls          list names with versions and sizes; with NAME, list its versions\n"
"  stat        show the properties of an object\n"
"  rm          remove a name\n"
"  cp          copy an object\n"
"  gc          remove versions and chunks that are no longer used\n"
"  check       read all kept versions, and report missing or damaged data; then the status is 1\n",
.notes = "umobject is a short name of 'ummap object'.\n");

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

/* The version that is being put, which is abandoned if the command fails. */
static umobject_put *under_way;

static void abandon_put(void)
{
	if (under_way)
		umobject_abandon(under_way);
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
	unsigned n = size_parse_dims(text, dims, UMOBJECT_RANK_MAX);

	if (n == 0)
		refuse("cannot use %s '%s': it must be as 1000x200, with at most %d numbers", what,
		       text, UMOBJECT_RANK_MAX);
	return n;
}

static void add(const char ***list, unsigned *n, const char *what)
{
	*list = realloc(*list, (*n + 1) * sizeof(**list));
	if (!*list)
		refuse("cannot keep the option '%s': no memory", what);
	(*list)[(*n)++] = what;
}

/* Options on the command line, one bit each. */
static unsigned given;

#define BIT(option) (1u << OPTION_##option)

static void use_option(int option)
{
	given |= 1u << option;
	switch (option) {
	case OPTION_KEEP:
		options.keep = (unsigned)parse_number("--keep", optarg, 1, 1000);
		break;
	case OPTION_DEVICE:
		add(&options.devices, &options.ndevices, optarg);
		break;
	case OPTION_TYPE:
		options.plain.type = type_of_name(optarg);
		if (!options.plain.type)
			refuse("cannot use --type '%s': it must be int8 to uint64, float, double "
			       "or ldouble",
			       optarg);
		break;
	case OPTION_DIMS:
		options.plain.rank = parse_dims("--dims", optarg, options.plain.dims);
		break;
	case OPTION_CHUNK:
		options.chunk.rank = parse_dims("--chunk", optarg, options.chunk.chunk);
		break;
	case OPTION_ATTRIBUTE:
		if (!strchr(optarg, '='))
			refuse("cannot use --attribute '%s': it must be NAME=VALUE", optarg);
		add(&options.attributes, &options.nattributes, optarg);
		break;
	case OPTION_NUMBER:
		options.version = parse_number("--number", optarg, 1, UINT64_MAX);
		break;
	case OPTION_QUIET:
		options.quiet = true;
		break;
	case OPTION_REPAIR:
		options.repair = true;
		break;
	case OPTION_STRICT:
		options.strict = true;
		break;
	}
}

/* ---- Transfers of arrays: a slab is one row of chunks along the first dimension ---- */

static void progress(const char *name, uint64_t done, uint64_t all)
{
	static time_t last;
	time_t now = time(NULL);

	if (options.quiet || !isatty(STDERR_FILENO) || (now == last && done < all))
		return;
	last = now;
	fprintf(stderr, "\r%s: %" PRIu64 " of %" PRIu64 " MiB%s", name, done >> 20, all >> 20,
		done == all ? "\n" : "");
}

/* Completes a shape with the chunks of --chunk, or with chunks of at most 8 MiB that are cut along
 * the first dimensions. */
static void choose_chunk(struct umobject_shape *s)
{
	struct umobject_shape asked = *s;
	uint64_t bytes = umobject_type_size(s->type);

	if (options.chunk.rank && options.chunk.rank != s->rank)
		refuse("cannot use --chunk: it has %u numbers, and the array %u dimensions",
		       options.chunk.rank, s->rank);
	memcpy(asked.chunk, options.chunk.chunk, sizeof(asked.chunk));
	if (shape_complete(&asked, s) < 0)
		refuse_library();
	for (unsigned d = s->rank; !options.chunk.rank && d-- > 0;) {
		uint64_t fit = ((uint64_t)8 << 20) / bytes;

		s->chunk[d] = fit == 0 ? 1 : min_u64(fit, s->dims[d]);
		bytes *= s->chunk[d];
	}
}

struct slab {
	const struct umobject_shape *shape; /* the array */
	struct box box;                     /* place in the array */
	char *data;                         /* elements */
};

/* Begins with the first slab of the array, which is the largest one. */
static struct slab first_slab(const struct umobject_shape *s, const char *name)
{
	struct slab slab = { .shape = s };
	uint64_t bytes;

	memcpy(slab.box.count, s->dims, sizeof(s->dims));
	slab.box.count[0] = s->chunk[0];
	bytes = box_bytes(s, &slab.box);
	slab.data = malloc(bytes);
	if (!slab.data)
		refuse("cannot copy '%s': no memory for %" PRIu64 " bytes. Try smaller chunks",
		       name, bytes);
	return slab;
}

/* Moves to the next slab. Returns false, and frees the memory, after the last one. */
static bool next_slab(struct slab *slab, const char *name)
{
	const struct umobject_shape *s = slab->shape;
	struct box done = { { 0 }, { 0 } };

	memcpy(done.count, s->dims, sizeof(s->dims));
	done.count[0] = slab->box.start[0] += slab->box.count[0];
	progress(name, box_bytes(s, &done), shape_bytes(s));
	slab->box.count[0] = min_u64(s->chunk[0], s->dims[0] - slab->box.start[0]);
	if (slab->box.count[0])
		return true;
	free(slab->data);
	return false;
}

/* Puts the chunks of a slab. chunk: memory for one of them. */
static void put_slab(umobject_put *p, const struct slab *slab, uint64_t *number, char *chunk)
{
	for (; *number < umobject_chunks(slab->shape); ++*number) {
		struct box box = shape_chunk(slab->shape, *number);

		if (box.start[0] != slab->box.start[0])
			return;
		box_copy(slab->shape, &box, slab->data, &slab->box, chunk, &box);
		if (umobject_put_chunk(p, *number, chunk) < 0)
			refuse_library();
	}
}

static int take_attribute(void *put, const char *name, const void *value, size_t size)
{
	if (umobject_put_attribute(put, name, value, size) < 0)
		refuse_library();
	return 0;
}

/* A file that is being put, for the callbacks that get its attributes. */
struct put_file {
	umobject_put *put;
	const char *path;
};

static int leave_out(void *file, const char *name, const char *reason)
{
	const char *path = ((struct put_file *)file)->path;

	if (options.strict)
		refuse("cannot put '%s': an object cannot have its attribute '%s': %s. Try without "
		       "--strict, which leaves it out",
		       path, name, reason);
	fprintf(stderr, "%s: warning: left out the attribute '%s' of '%s': %s\n",
		program_invocation_short_name, name, path, reason);
	return 0;
}

static int take_file_attribute(void *file, const char *name, const void *value, size_t size)
{
	if (umobject_put_attribute(((struct put_file *)file)->put, name, value, size) == 0)
		return 0;
	return errno == EINVAL ? leave_out(file, name, umobject_errormsg()) :
				 take_attribute(((struct put_file *)file)->put, name, value, size);
}

static void put_attributes(umobject_put *p)
{
	unsigned i;

	for (i = 0; i < options.nattributes; i++) {
		const char *equal = strchr(options.attributes[i], '=');
		char *name =
			strndup(options.attributes[i], (size_t)(equal - options.attributes[i]));

		if (!name)
			refuse("cannot add the attribute '%s': no memory", options.attributes[i]);
		take_attribute(p, name, equal + 1, strlen(equal + 1));
		free(name);
	}
}

/* Calls take for each attribute of a version. Returns 0, or -1 as soon as a call returns -1. */
static int each_attribute(const umobject_version *v,
			  int (*take)(void *to, const char *name, const void *value, size_t size),
			  void *to)
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

/* Puts the whole array, slab by slab. */
static void put_slabs(umobject_put *p, const char *name, struct array *a,
		      const struct umobject_shape *s)
{
	struct slab slab = first_slab(s, name);
	struct box first = shape_chunk(s, 0);
	char *chunk = malloc(box_bytes(s, &first));
	uint64_t number = 0;

	if (!chunk)
		refuse("cannot put '%s': no memory for a chunk. Try smaller chunks", name);
	do {
		if (a->read(a, slab.data, slab.box.start, slab.box.count) < 0)
			refuse("%s", a->why);
		put_slab(p, &slab, &number, chunk);
	} while (next_slab(&slab, name));
	free(chunk);
}

/* Puts an array as a new version, and commits it. from: version whose attributes are copied; NULL:
 * none. */
static void put_from(umobject_container *c, const char *name, struct array *a,
		     const umobject_version *from)
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
	if (a->attributes &&
	    a->attributes(a, &(struct taker){ take_file_attribute, leave_out,
					      &(struct put_file){ p, a->path } }) < 0)
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
	struct slab slab = first_slab(&st->shape, st->name);
	struct array a;

	if (array_create(&a, path, &st->shape) < 0)
		refuse("%s", a.why);
	if (a.add_attribute && each_attribute(v, add_to_array, &a) < 0)
		refuse("%s", a.why);
	do {
		if (umobject_read(v, slab.box.start, slab.box.count, slab.data) < 0)
			refuse_library();
		if (a.write(&a, slab.data, slab.box.start, slab.box.count) < 0)
			refuse("%s", a.why);
	} while (next_slab(&slab, st->name));
	if (a.close(&a) < 0)
		refuse("%s", a.why);
}

/* The version from which cp copies. */
static umobject_version *source;

static int read_source(struct array *a, void *to, const uint64_t *start, const uint64_t *count)
{
	(void)a;
	if (umobject_read(source, start, count, to) < 0)
		refuse_library();
	return 0;
}

/* ---- Actions ---- */

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
	printf("%" PRIu64 "\t%" PRIu64 "\t%s ", st->version, st->bytes,
	       name_of_type(st->shape.type));
	print_dims(&st->shape, st->shape.dims);
	putchar('\t');
	for (; *name; name++)
		putchar((unsigned char)*name < ' ' || *name == 127 ? '?' : *name);
	putchar('\n');
}

static bool all_listed = true;

/* An object may have been removed since it was listed. An object that cannot be read is reported,
 * and the others are still listed. */
static int not_held(void)
{
	if (errno == ENOENT)
		return 0;
	fflush(stdout);
	fprintf(stderr, "umobject: %s\n", umobject_errormsg());
	all_listed = false;
	return 0;
}

/* The names or the versions that ls prints. */
struct listed {
	umobject_container *container;
	const char *name; /* name of the object */
	unsigned n;       /* number of printed lines */
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

static int list_name(void *arg, const char *name)
{
	((struct listed *)arg)->name = name;
	return list_version(arg, 0);
}

static int do_ls(char **arg)
{
	umobject_container *c = open_container(arg[0], UMOBJECT_READ_ONLY);
	struct listed l = { c, arg[1], 0 };

	if ((arg[1] ? umobject_versions(c, arg[1], list_version, &l) :
		      umobject_list(c, list_name, &l)) < 0)
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
	printf("\nchunks   %" PRIu64 ", of which %" PRIu64 " are stored\nbytes    %" PRIu64
	       "\ncreated  %s\n",
	       st.chunks, st.stored, st.bytes, text);
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
	umobject_container *from = open_container(arg[0], UMOBJECT_READ_ONLY),
			   *to = open_container(arg[2], 0);
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
	printf("%" PRIu64 " versions, %" PRIu64 " chunks, %" PRIu64 " bytes removed\n", g.versions,
	       g.chunks, g.bytes);
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
	int faults = options.version ?
			     check_version(c, arg[1]) :
			     umobject_check_container(
				     c, arg[1], options.repair ? UMOBJECT_REPAIR : 0, report, NULL);

	if (faults < 0)
		refuse_library();
	umobject_close(c);
	return faults ? 1 : 0;
}

static const struct action {
	struct tool_action call;
	int (*run)(char **arg);
	unsigned takes;
} actions[] = {
	{ { "create", 1, 1 }, do_create, BIT(KEEP) | BIT(DEVICE) },
	{ { "put", 3, 3 }, do_put,
	  BIT(TYPE) | BIT(DIMS) | BIT(CHUNK) | BIT(ATTRIBUTE) | BIT(STRICT) },
	{ { "get", 3, 3 }, do_get, BIT(NUMBER) },
	{ { "export", 3, 3 }, do_get, BIT(NUMBER) },
	{ { "ls", 1, 2 }, do_ls, 0 },
	{ { "stat", 2, 2 }, do_stat, BIT(NUMBER) },
	{ { "rm", 2, 2 }, do_rm, 0 },
	{ { "cp", 4, 4 }, do_cp, BIT(NUMBER) | BIT(CHUNK) | BIT(ATTRIBUTE) },
	{ { "gc", 1, 1 }, do_gc, 0 },
	{ { "check", 1, 2 }, do_check, BIT(NUMBER) | BIT(REPAIR) },
	{ .run = NULL },
};

/* Options that an action does not use are refused: "rm --number 3" would remove all versions. */
static void refuse_others(const struct action *c)
{
	for (int i = 0; i < N_OPTIONS; i++)
		if (given & 1u << i & ~(c->takes | BIT(QUIET)))
			refuse("cannot %s: %s takes no --%s. Try '%s --help'", c->call.name,
			       c->call.name, tool_help.options[i].name,
			       program_invocation_short_name);
}

static int run(const struct action *c, char **arg)
{
	refuse_others(c);
	if (c->run == do_check && !arg[1] && options.version)
		refuse("cannot check a version without an object: check takes --number with a "
		       "name");
	if (options.version && options.repair)
		refuse("cannot repair one version: check takes --number or --repair, not both");
	return c->run(arg);
}

int main(int argc, char **argv)
{
	int option;

	tool_begin(2);
	atexit(abandon_put);
	while ((option = take_option(argc, argv, &tool_help)) >= 0)
		use_option(option);
	argv += optind;
	return run(find_action(actions, sizeof(*actions), tool_help.usage, argv), argv + 1);
}
