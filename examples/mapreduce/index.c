/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * index - makes an inverted index: a list of the files that contain each word.
 *
 *	mpirun -n 4 index FOLDER -o index.txt
 *
 * reduce_all gets a file name for each occurrence of a word, in any order. It keeps each name once,
 * in order.
 */
#include "program.h"
#include "words.h"

static int map(ummr_job *job, const struct ummr_task *task, void *arg)
{
	char *p = task->data, *word;
	size_t size;

	(void)arg;
	while ((size = next_word(&p, task->data + task->size, &word)) > 0)
		if (ummr_emit(job, word, size, task->path, strlen(task->path) + 1) < 0)
			return -1;
	return 0;
}

/* A sorted list of file names. */
struct names {
	char **names;
	size_t count, room;
	size_t bytes; /* bytes of all names, with their null bytes */
};

static bool find_name(const struct names *n, const char *name, size_t *at)
{
	size_t low = 0, high = n->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;
		int order = strcmp(name, n->names[middle]);

		*at = middle;
		if (order == 0)
			return true;
		if (order < 0)
			high = middle;
		else
			low = middle + 1;
	}
	*at = low;
	return false;
}

static int add_name(struct names *n, const char *name)
{
	size_t at;

	if (find_name(n, name, &at))
		return 0;
	if (n->count == n->room) {
		size_t room = 2 * n->room + 16;
		char **names = realloc(n->names, room * sizeof(*names));

		if (!names)
			return -1;
		n->names = names;
		n->room = room;
	}
	memmove(&n->names[at + 1], &n->names[at], (n->count - at) * sizeof(*n->names));
	n->names[at] = strdup(name);
	if (!n->names[at])
		return -1;
	n->count++;
	n->bytes += strlen(name) + 1;
	return 0;
}

/* Puts one value: a tab and a name for each file. Frees the names. */
static int put_names(ummr_job *job, struct names *n)
{
	char *all = malloc(n->bytes + 1), *to = all;
	int result;

	for (size_t i = 0; i < n->count; i++) {
		if (all)
			to += sprintf(to, "\t%s", n->names[i]);
		free(n->names[i]);
	}
	free(n->names);
	result = all ? ummr_put(job, all, n->bytes) : -1;
	free(all);
	return result;
}

static int list_files(ummr_job *job, const struct ummr_bytes *word, ummr_values *values,
		      void *arg)
{
	struct names n = { 0 };
	struct ummr_bytes value;
	int there, result = 0;

	(void)word, (void)arg;
	while (result == 0 && (there = ummr_next_value(values, &value)) > 0)
		result = add_name(&n, value.data);
	return put_names(job, &n) < 0 ? -1 : result;
}

static int print(FILE *out, const struct ummr_bytes *word, const struct ummr_bytes *files,
		 void *arg)
{
	(void)arg;
	return fprintf(out, "%.*s%.*s\n", (int)word->size, (const char *)word->data,
		       (int)files->size, (const char *)files->data) < 0;
}

int main(int argc, char **argv)
{
	const struct program program = {
		.usage = "[options] FILE|FOLDER ...\n"
			 "\n"
			 "Each line of the result has a word, and the files that contain it,\n"
			 "separated by tabs. A word is a sequence of the letters A to Z, in\n"
			 "lower case.\n"
			 "\n"
			 "Options:\n",
		.print = print,
	};
	struct ummr_config config = UMMR_CONFIG_INIT;

	fold_init();
	config.split = UMMR_SPLIT_OWN;
	config.find_record = find_word;
	config.map = map;
	config.reduce_all = list_files;
	return run_program(&program, &config, argc, argv);
}
