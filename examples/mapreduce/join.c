/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * join - combines the lines of two tables that have the same first field, as join(1) does, but
 * needs no sorted tables:
 *
 *	mpirun -n 4 join people.tsv cities.tsv -o both.tsv
 *
 * A value is the rest of a line after its key, with the number of the table in place of the tab.
 * reduce_all gets the values of one key in any order, and puts a pair for each combination of a
 * line of the first table and a line of the second one.
 */
#include "program.h"

#include <sys/stat.h>

static const char *first_table; /* the table whose fields come first in the result */

/* Bit in the first byte of a value, beside the number of the table: the line has no tab. */
enum { TAB = 0, NO_TAB = 2 };

static int map(ummr_job *job, const struct ummr_task *task, void *arg)
{
	char *line = task->data, *stop = line + task->size, *end;
	char table = strcmp(task->path, first_table) != 0;

	(void)arg;
	for (; line < stop; line = end + 1) {
		char *tab, no_tab = table | NO_TAB;

		end = memchr(line, '\n', (size_t)(stop - line));
		end = end ? end : stop;
		tab = memchr(line, '\t', (size_t)(end - line));
		if (tab)
			*tab = table | TAB;
		if ((tab ? ummr_emit(job, line, (size_t)(tab - line), tab, (size_t)(end - tab))
			 : ummr_emit(job, line, (size_t)(end - line), &no_tab, 1)) < 0)
			return -1;
	}
	return 0;
}

/* The rests of lines, each with its tab. */
struct rows {
	struct ummr_bytes *rows;
	size_t count, room;
};

static int add_row(struct rows *r, const struct ummr_bytes *value)
{
	bool has_tab = !(*(const char *)value->data & NO_TAB);
	char *row = malloc(value->size);

	if (r->count == r->room) {
		size_t room = 2 * r->room + 16;
		struct ummr_bytes *rows = realloc(r->rows, room * sizeof(*rows));

		r->rows = rows ? rows : r->rows;
		r->room = rows ? room : r->room;
	}
	if (!row || r->count == r->room) {
		free(row);
		return -1;
	}
	memcpy(row, value->data, value->size);
	row[0] = '\t';
	r->rows[r->count++] = (struct ummr_bytes){ row, has_tab ? value->size : 0 };
	return 0;
}

static int put_combination(ummr_job *job, const struct ummr_bytes *a,
			   const struct ummr_bytes *b)
{
	char *both = malloc(a->size + b->size + 1);
	int result = -1;

	if (both) {
		memcpy(both, a->data, a->size);
		memcpy(both + a->size, b->data, b->size);
		result = ummr_put(job, both, a->size + b->size);
	}
	free(both);
	return result;
}

static void free_rows(struct rows *r)
{
	for (size_t i = 0; i < r->count; i++)
		free((void *)r->rows[i].data);
	free(r->rows);
}

static int join(ummr_job *job, const struct ummr_bytes *key, ummr_values *values, void *arg)
{
	struct rows tables[2] = { 0 };
	struct ummr_bytes value;
	int result = 0;

	(void)key, (void)arg;
	while (result == 0 && ummr_next_value(values, &value) > 0)
		result = add_row(&tables[*(const char *)value.data & 1], &value);
	for (size_t i = 0; i < tables[0].count; i++)
		for (size_t j = 0; j < tables[1].count && result == 0; j++)
			result = put_combination(job, &tables[0].rows[i], &tables[1].rows[j]);
	free_rows(&tables[0]);
	free_rows(&tables[1]);
	return result;
}

static int print(FILE *out, const struct ummr_bytes *key, const struct ummr_bytes *fields,
		 void *arg)
{
	(void)arg;
	return fwrite(key->data, 1, key->size, out) != key->size ||
	       fwrite(fields->data, 1, fields->size, out) != fields->size || putc('\n', out) == EOF;
}

static const char *prepare(const struct options *o, struct ummr_config *config)
{
	struct stat st;

	(void)config;
	if (!o->inputs[1] || o->inputs[2])
		return "cannot join: two tables are needed";
	if (strcmp(o->inputs[0], o->inputs[1]) == 0)
		return "cannot join: both tables have the same name. Try a link to join a table "
		       "with itself";
	for (int i = 0; i < 2; i++)
		if (stat(o->inputs[i], &st) == 0 && S_ISDIR(st.st_mode))
			return "cannot join: a table is a folder. Try a file";
	first_table = o->inputs[0];
	return NULL;
}

int main(int argc, char **argv)
{
	const struct program program = {
		.usage = "[options] TABLE TABLE\n"
			 "\n"
			 "A line of a table has fields, separated by tabs. For each line of\n"
			 "the first table and each line of the second table with the same\n"
			 "first field, the result has one line: this field, the other fields\n"
			 "of the first line, and those of the second line. The result is in\n"
			 "order of first fields.\n"
			 "\n"
			 "Options:\n",
		.prepare = prepare,
		.print = print,
	};
	struct ummr_config config = UMMR_CONFIG_INIT;

	config.map = map;
	config.reduce_all = join;
	return run_program(&program, &config, argc, argv);
}
