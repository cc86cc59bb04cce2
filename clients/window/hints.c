/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reads and writes the hints of windows. hints.def has all hints. An invalid value is an error; it
 * is never changed to a valid one.
 */
#include "window/hints.h"

#include "common/edit_distance.h"
#include "common/size.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PERM 0666
#define RANK_DIGITS 12

/*
 * A kind of value. `take` stores a value in its field and returns false for an invalid one; `put`
 * writes the value of a field and returns false if the hint has none. A kind with `words` has
 * neither: its field is a bool or an enumeration, the index of a word.
 */
struct kind {
	bool (*take)(void *field, const char *value);
	bool (*put)(const void *field, char *value);
	const char *const *words; /* list that NULL ends; "": no value */
	bool is_bool;
};

/* ---- Kinds ---- */

static bool take_bytes(void *field, const char *value)
{
	uint64_t *bytes = field;

	return size_parse(value, bytes) == 0 && *bytes <= INT64_MAX;
}

static bool put_bytes(const void *field, char *value)
{
	snprintf(value, HINT_TEXT, "%llu", (unsigned long long)*(const uint64_t *)field);
	return true;
}

static bool take_segment(void *field, const char *value)
{
	uint64_t *bytes = field;

	return take_bytes(bytes, value) && *bytes >= (uint64_t)sysconf(_SC_PAGESIZE) &&
	       !(*bytes & (*bytes - 1));
}

static bool take_stripe(void *field, const char *value)
{
	uint64_t *stripe = field;

	return take_bytes(field, value) && *stripe > 0;
}

static bool put_stripe(const void *field, char *value)
{
	return put_bytes(field, value) && *(const uint64_t *)field > 0;
}

static bool take_text(void *field, const char *value)
{
	snprintf(field, HINT_TEXT, "%s", value);
	return *value != '\0';
}

static bool put_text(const void *field, char *value)
{
	snprintf(value, HINT_TEXT, "%s", (const char *)field);
	return *value != '\0';
}

/* MPI-IO takes whole numbers without a unit. */
static bool put_number(char *field, uint64_t number)
{
	snprintf(field, HINT_TEXT, "%llu", (unsigned long long)number);
	return number > 0;
}

static bool take_count(void *field, const char *value)
{
	uint64_t n;

	return size_parse_count(value, &n) == 0 && put_number(field, n);
}

static bool take_unit(void *field, const char *value)
{
	uint64_t n;

	return size_parse(value, &n) == 0 && put_number(field, n);
}

/* The index of the value in `words`, which NULL ends; -1: the value is not there. */
static int find_word(const char *const *words, const char *value, size_t len)
{
	for (int i = 0; words[i]; i++) {
		if (strlen(words[i]) == len && memcmp(words[i], value, len) == 0)
			return i;
	}
	return -1;
}

static bool take_value(const struct kind *kind, void *field, const char *value)
{
	int i;

	if (!kind->words)
		return kind->take(field, value);
	i = *value ? find_word(kind->words, value, strlen(value)) : -1;
	if (kind->is_bool)
		*(bool *)field = i > 0;
	else
		*(int *)field = i < 0 ? 0 : i;
	return i >= 0;
}

static bool put_value(const struct kind *kind, const void *field, char *value)
{
	if (!kind->words)
		return kind->put(field, value);
	snprintf(value, HINT_TEXT, "%s",
		 kind->words[kind->is_bool ? *(const bool *)field : *(const int *)field]);
	return *value;
}

static bool take_factor(void *field, const char *value)
{
	double *factor = field;

	if (strcmp(value, "auto") == 0) {
		*factor = FACTOR_AUTO;
		return true;
	}
	return size_parse_decimal(value, factor) == 0 && *factor <= 1;
}

static bool put_factor(const void *field, char *value)
{
	char *comma;

	snprintf(value, HINT_TEXT, "%.6g", *(const double *)field);
	/* The locale may have another decimal point. */
	comma = strchr(value, ',');
	if (comma)
		*comma = '.';
	return true;
}

static bool take_seconds(void *field, const char *value)
{
	int *seconds = field;
	uint64_t n;

	if (strcmp(value, "never") == 0) {
		*seconds = SYNC_NEVER;
		return true;
	}
	if (size_parse_count(value, &n) < 0 || n < 1 || n > 1000000000)
		return false;
	*seconds = (int)n;
	return true;
}

static bool put_seconds(const void *field, char *value)
{
	int seconds = *(const int *)field;

	if (seconds == SYNC_NEVER)
		snprintf(value, HINT_TEXT, "never");
	else
		snprintf(value, HINT_TEXT, "%d", seconds);
	return true;
}

static bool take_perm(void *field, const char *value)
{
	char *end;
	long perm = strtol(value, &end, 8);

	*(mode_t *)field = (mode_t)perm;
	return end > value && *end == '\0' && perm >= 0 && perm <= 0777;
}

static bool put_perm(const void *field, char *value)
{
	snprintf(value, HINT_TEXT, "%04o", (unsigned)*(const mode_t *)field);
	return true;
}

static bool take_style(void *field, const char *value)
{
	static const char *const words[] = { "read_once",    "write_once", "read_mostly",
					     "write_mostly", "sequential", "reverse_sequential",
					     "random",       NULL };

	for (const char *word = value;;) {
		size_t len = strcspn(word, ",");

		if (find_word(words, word, len) < 0)
			return false;
		if (word[len] == '\0')
			return take_text(field, value);
		word += len + 1;
	}
}

/* ---- The table ---- */

#define WORDS(...) (const char *const[]){ __VA_ARGS__, NULL }
#define KIND(taken, written) { .take = take_##taken, .put = put_##written }

/* The words of enumerations are in the order of the constants. */
static const struct kind
	text = KIND(text, text), count = KIND(count, text), unit = KIND(unit, text),
	bytes = KIND(bytes, bytes), segment = KIND(segment, bytes), stripe = KIND(stripe, stripe),
	factor = KIND(factor, factor), seconds = KIND(seconds, seconds), perm = KIND(perm, perm),
	style = KIND(style, text),
	flag = { .words = WORDS("false", "true"), .is_bool = true },
	order = { .words = WORDS("memory_first", "storage_first"), .is_bool = true },
	type = { .words = WORDS("", "memory", "storage", "object") },
	engine = { .words = WORDS("auto", "segv", "uffd", "kernel", "sigbus") },
	winsync = { .words = WORDS("", "memory", "storage", "async") },
	on_full = { .words = WORDS("", "wait", "sigbus") };

#define FIELD(name) offsetof(struct hints, name)

static const struct hint {
	const char *name;
	const struct kind *kind;
	size_t field;
	const char *type; /* completes "it must be ..." */
} table[] = {
#define HINT(name, kind, field, type, default, meaning, page) { name, &kind, FIELD(field), type },
#include "window/hints.def"
#undef HINT
};

#define TABLE_SIZE (sizeof(table) / sizeof(*table))

static void read_hint(const struct hint *hint, struct hints *h, MPI_Info info, struct error *e)
{
	char value[HINT_TEXT];
	int found = 0;

	if (info != MPI_INFO_NULL)
		PMPI_Info_get(info, hint->name, MPI_MAX_INFO_VAL, value, &found);
	if (found && !take_value(hint->kind, (char *)h + hint->field, value))
		error_set(e, MPI_ERR_INFO_VALUE, "%s is \"%.60s\": it must be %s", hint->name,
			  value, hint->type);
}

/* ---- Misspelled names ---- */

#define MAX_CHANGES 3
static const char prefix[] = "storage_alloc";

const char *spelling_find(const char *name, const void *rows, size_t row_size, size_t n,
			  size_t *changes)
{
	const char *nearest = NULL;

	*changes = SIZE_MAX;
	for (const char *row = rows; n > 0; n--, row += row_size) {
		const char *known = *(const char *const *)(const void *)row;
		size_t distance = edit_distance(name, strlen(name), known);

		if (distance < *changes) {
			*changes = distance;
			nearest = known;
		}
	}
	return nearest;
}

void spelling_warn(const char *what, const char *name, const char *meant)
{
	fprintf(stderr, "libummap-mpi: unknown %s '%.63s'%s%s%s\n", what, name,
		meant ? "; did you mean '" : "", meant ? meant : "", meant ? "'?" : "");
}

/* Warns of unknown hints that begin like the library's, or that are similar to "alloc_type". All
 * other hints are for other layers. */
static void warn_of_unknown(MPI_Info info)
{
	char name[MPI_MAX_INFO_KEY + 1];
	int n = 0;

	if (info != MPI_INFO_NULL)
		PMPI_Info_get_nkeys(info, &n);
	for (int i = 0; i < n; i++) {
		const char *nearest;
		size_t changes;

		PMPI_Info_get_nthkey(info, i, name);
		nearest = spelling_find(name, table, sizeof(*table), TABLE_SIZE, &changes);
		if (changes == 0)
			continue;
		if (strncmp(name, prefix, strlen(prefix)) == 0)
			spelling_warn("hint", name, changes <= 2 * MAX_CHANGES ? nearest : NULL);
		else if (edit_distance(name, strlen(name), table[0].name) < MAX_CHANGES)
			spelling_warn("hint", name, table[0].name);
	}
}

/* ---- Hints for MPI-IO ---- */

static bool is_for_mpiio(const char *name)
{
	static const char *const begins[] = {
		"access_style", "cb_",          "chunked", "collective_buffering",
		"direct_",      "file_perm",    "ind_",    "io_node_list",
		"nb_proc",      "num_io_nodes", "romio_",  "striping_"
	};

	for (size_t i = 0; i < sizeof(begins) / sizeof(*begins); i++) {
		if (strncmp(name, begins[i], strlen(begins[i])) == 0)
			return true;
	}
	return false;
}

/* Collects the hints for MPI-IO. A value with a semicolon cannot be passed; no file needs one. */
static void pass_on(struct hints *h, MPI_Info info)
{
	char name[MPI_MAX_INFO_KEY + 1], value[HINT_TEXT];
	int n = 0, found, len = 0;

	if (info != MPI_INFO_NULL)
		PMPI_Info_get_nkeys(info, &n);
	for (int i = 0; i < n; i++) {
		PMPI_Info_get_nthkey(info, i, name);
		if (!is_for_mpiio(name))
			continue;
		PMPI_Info_get(info, name, MPI_MAX_INFO_VAL, value, &found);
		if (found && !strchr(value, ';') &&
		    (size_t)len + strlen(name) + strlen(value) + 2 < sizeof(h->passed))
			len += sprintf(h->passed + len, "%s%s=%s", len ? ";" : "", name, value);
	}
}

bool hints_by(const struct hints *h, const char *name)
{
	size_t len = strcspn(h->driver, ":"), n = strlen(name);

	return len >= n && strncmp(h->driver + len - n, name, n) == 0 &&
	       (len == n || h->driver[len - n - 1] == '+');
}

/* ---- All hints ---- */

/* Replaces %r in the file name by the rank, and %% by %. */
static void expand_name(struct hints *h, int rank, struct error *e)
{
	char name[HINT_TEXT];
	size_t len = 0;

	for (const char *s = h->filename; *s; s++) {
		if (*s != '%')
			name[len++] = *s;
		else if (*++s == 'r')
			len += (size_t)sprintf(name + len, "%d", rank);
		else if (*s == '%')
			name[len++] = '%';
		else
			return error_set(e, MPI_ERR_INFO_VALUE,
					 "cannot use storage_alloc_filename '%.100s': r or %% must "
					 "follow each %%. Try %%r for the rank, or %%%% for a %%",
					 h->filename);
		if (len > sizeof(name) - RANK_DIGITS)
			return error_set(e, MPI_ERR_INFO_VALUE,
					 "cannot use storage_alloc_filename '%.100s...': the name "
					 "is too long",
					 h->filename);
	}
	name[len] = '\0';
	memcpy(h->filename, name, sizeof(name));
}

/*
 * An object is a store of the driver OBJECT_DRIVER. Hints that are only for files or for other
 * drivers are errors.
 */
static void take_object(struct hints *h, struct error *e)
{
	const struct {
		const char *name;
		bool there;
	} files[] = {
		{ "storage_alloc_filename", *h->filename },
		{ "storage_alloc_driver", *h->driver },
		{ "storage_alloc_offset", h->offset },
		{ "storage_alloc_unlink", h->unlink },
		{ "storage_alloc_stripe", h->stripe },
		{ "storage_alloc_writers", h->writers },
		{ "storage_alloc_engine = kernel", h->engine == ENGINE_KERNEL },
		{ "storage_alloc_consistent", h->consistent },
		{ "storage_alloc_node_cache", h->node_cache },
	};

	for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++) {
		if (files[i].there)
			error_set(e, MPI_ERR_INFO_VALUE,
				  "cannot use %s with alloc_type=object: it is for windows in "
				  "files. Try to leave it out",
				  files[i].name);
	}
	if (!*h->object)
		error_set(e, MPI_ERR_INFO_VALUE,
			  "cannot use alloc_type=object: storage_alloc_object is not set. Try a "
			  "container and a name, such as /data/box/field");
	h->type = TYPE_STORAGE;
	strcpy(h->driver, OBJECT_DRIVER);
	strcpy(h->filename, h->object);
}

/* Hints that exclude another one. */
struct excluded {
	const char *name;
	bool there;
};

static void exclude(const char *name, const struct excluded *others, size_t n, struct error *e)
{
	for (size_t i = 0; i < n; i++) {
		if (others[i].there)
			error_set(e, MPI_ERR_INFO_VALUE,
				  "cannot use %s with %s. Try to leave one of them out", name,
				  others[i].name);
	}
}

/* The window is read-only, and its memory is that of a node copy. */
static void check_node_cache(const struct hints *h, struct error *e)
{
	const struct excluded others[] = {
		{ "storage_alloc_factor", h->factor != 0 },
		{ "storage_alloc_unlink", h->unlink },
		{ "storage_alloc_writers", h->writers },
		{ "storage_alloc_consistent", h->consistent },
		{ "this storage_alloc_engine",
		  h->engine != ENGINE_AUTO && h->engine != ENGINE_SIGBUS },
		{ "the driver mpiio", hints_by(h, "mpiio") },
	};

	exclude("storage_alloc_node_cache", others, sizeof(others) / sizeof(*others), e);
}

/* A moment (moment.h) covers all bytes of all parts, each in its own file, opened through wal+. */
static void check_consistent(const struct hints *h, struct error *e)
{
	const char *env = secure_getenv("UMMAP_DRIVER");
	const char *driver = *h->driver ? h->driver : env ? env : "";
	const struct excluded others[] = {
		{ "storage_alloc_offset", h->offset },
		{ "storage_alloc_factor", h->factor != 0 },
		{ "storage_alloc_unlink", h->unlink },
		{ "storage_alloc_writers", h->writers },
		{ "storage_alloc_engine = kernel", h->engine == ENGINE_KERNEL },
		{ "the driver mpiio", hints_by(h, "mpiio") },
		{ "storage_alloc_winsync = storage or async", h->winsync >= WINSYNC_STORAGE },
		{ "a driver with a wal+ of its own",
		  strncmp(driver, "wal+", 4) == 0 || strstr(driver, "+wal+") },
	};

	exclude("storage_alloc_consistent", others, sizeof(others) / sizeof(*others), e);
}

void hints_default(struct hints *h, MPI_Comm comm)
{
	const char *local = secure_getenv("UMMAP_MPI_LOCAL");

	memset(h, 0, sizeof(*h));
	h->perm = PERM;
	h->syncfreq = SYNC_NEVER;
	PMPI_Comm_rank(comm, &h->rank);
	PMPI_Comm_size(comm, &h->ranks);
	h->local = !local || strcmp(local, "false") != 0;
}

void hints_read(struct hints *h, MPI_Info info, MPI_Comm comm, bool all, struct error *e)
{
	const char *folder = all ? secure_getenv("UMMAP_MPI_ALL") : NULL;

	hints_default(h, comm);
	if (h->rank == 0)
		warn_of_unknown(info);
	read_hint(&table[0], h, info, e);
	if (h->type == TYPE_NONE && e->class == MPI_SUCCESS && folder && *folder) {
		h->type = TYPE_STORAGE;
		h->nameless = h->discard = true;
	}
	for (size_t i = 1; i < TABLE_SIZE && h->type >= TYPE_STORAGE; i++)
		read_hint(&table[i], h, info, e);
	if (h->type == TYPE_STORAGE && h->consistent)
		check_consistent(h, e);
	if (h->type == TYPE_STORAGE && h->node_cache)
		check_node_cache(h, e);
	/* No later run reads a file that is removed with the window. */
	if (h->winsync == WINSYNC_DEFAULT)
		h->winsync = h->nameless || h->consistent || (h->unlink && h->discard)
				     ? WINSYNC_MEMORY
				     : WINSYNC_STORAGE;
	if (h->type == TYPE_OBJECT)
		take_object(h, e);
	else
		*h->object = '\0';
	if (!h->nameless && !*h->object)
		expand_name(h, h->rank, e);
	else if (!h->nameless)
		return;
	else if ((size_t)snprintf(h->filename, sizeof(h->filename), "%s", folder) >=
		 sizeof(h->filename))
		error_set(e, MPI_ERR_INFO_VALUE,
			  "cannot use UMMAP_MPI_ALL '%.80s...': the name is too long", folder);
	if (h->type == TYPE_STORAGE && !*h->filename)
		error_set(e, MPI_ERR_INFO_VALUE,
			  "cannot use alloc_type=storage: storage_alloc_filename is not set. Try "
			  "the name of a file");
	if (hints_by(h, "mpiio"))
		pass_on(h, info);
	else if (h->stripe)
		error_set(e, MPI_ERR_INFO_VALUE,
			  "cannot use storage_alloc_stripe: it needs the driver mpiio. Try "
			  "storage_alloc_driver=mpiio");
}

/* The numbers about hints of which one reduction computes the maximum of all ranks. */
struct common {
	int64_t failed;             /* ranks - rank at a rank with an error; 0: no error */
	int64_t storage, fencesync;
	int64_t object, file;       /* the window is an object; it is none */
	int64_t consistent, single; /* storage_alloc_consistent is true; it is false */
	int64_t stripe, offset;     /* for the driver mpiio; INT64_MIN: no stripes */
	int64_t unstripe,
		unoffset; /* negated stripe and offset: all ranks agree if both maxima do */
};

static struct common common_of(const struct hints *h, const struct error *e)
{
	bool mpiio = h->type == TYPE_STORAGE && hints_by(h, "mpiio"), striped = mpiio && h->stripe;

	return (struct common){
		.failed = e->class == MPI_SUCCESS ? 0 : h->ranks - h->rank,
		.storage = h->type == TYPE_STORAGE,
		.fencesync = h->fencesync,
		.object = *h->object != '\0',
		.file = *h->object == '\0',
		.consistent = h->type == TYPE_STORAGE && h->consistent,
		.single = h->type != TYPE_STORAGE || !h->consistent,
		.stripe = mpiio ? (int64_t)h->stripe : INT64_MIN,
		.unstripe = mpiio ? -(int64_t)h->stripe : INT64_MIN,
		.offset = striped ? (int64_t)h->offset : INT64_MIN,
		.unoffset = striped ? -(int64_t)h->offset : INT64_MIN,
	};
}

/* Whether ranks have different stripes or offsets, whose parts would overlap. */
static bool stripes_differ(const struct common *c)
{
	return (c->stripe > INT64_MIN && c->stripe != -c->unstripe) ||
	       (c->offset > INT64_MIN && c->offset != -c->unoffset);
}

bool hints_agree(struct hints *h, MPI_Info info, MPI_Comm comm, bool all, struct error *e)
{
	struct common c;

	hints_read(h, info, comm, all, e);
	c = common_of(h, e);
	PMPI_Allreduce(MPI_IN_PLACE, &c, sizeof(c) / sizeof(int64_t), MPI_INT64_T, MPI_MAX, comm);
	h->fencesync = c.fencesync;
	if (c.failed)
		error_share(comm, h->ranks - (int)c.failed, e);
	else if (c.object && !all)
		error_set(e, MPI_ERR_INFO_VALUE,
			  "cannot use alloc_type=object here: it is for MPI_Win_allocate only");
	else if (c.object && c.file)
		error_set(e, MPI_ERR_INFO_VALUE,
			  "cannot use alloc_type=object at some ranks only. Try to set it at all "
			  "ranks, or at none");
	else if (c.consistent && !all)
		error_set(e, MPI_ERR_INFO_VALUE,
			  "cannot use storage_alloc_consistent here: it is for MPI_Win_allocate "
			  "only");
	else if (c.consistent && c.single)
		error_set(e, MPI_ERR_INFO_VALUE,
			  "cannot use storage_alloc_consistent at some ranks only. Try to set it "
			  "at all ranks");
	else if (c.storage && stripes_differ(&c))
		error_set(e, MPI_ERR_INFO_VALUE,
			  "cannot share the file in stripes: the ranks give different values of "
			  "storage_alloc_stripe or storage_alloc_offset. Try the same values at "
			  "all ranks");
	return c.storage;
}

void hints_write(const struct hints *h, MPI_Info info)
{
	char value[HINT_TEXT];

	for (size_t i = 0; i < (h->type == TYPE_STORAGE ? TABLE_SIZE : 1); i++) {
		if (!put_value(table[i].kind, (const char *)h + table[i].field, value))
			continue;
		if (*h->object && table[i].field == FIELD(type))
			strcpy(value, type.words[TYPE_OBJECT]);
		value[MPI_MAX_INFO_VAL - 1] = '\0';
		PMPI_Info_set(info, table[i].name, value);
	}
	for (const char *s = h->passed; *s; s += strcspn(s, ";"), s += *s == ';') {
		size_t name = strcspn(s, "="), len = strcspn(s, ";");
		char key[MPI_MAX_INFO_KEY + 1];

		snprintf(key, sizeof(key), "%.*s", (int)name, s);
		snprintf(value, sizeof(value), "%.*s", (int)(len - name - 1), s + name + 1);
		PMPI_Info_set(info, key, value);
	}
}
