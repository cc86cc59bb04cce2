/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sort - sorts the lines of files by their bytes, as LC_ALL=C sort does:
 *
 *	mpirun -n 4 sort FOLDER -o sorted.txt
 *
 * The key is the line, and the value is the number of its occurrences. The job sorts the keys; with
 * --storage, in files, so that the lines need not fit into memory.
 */
#include "program.h"

static bool unique, reverse;

static int map(ummr_job *job, const struct ummr_task *task, void *arg)
{
	const char *line = task->data, *stop = line + task->size, *end;
	uint64_t one = 1;

	(void)arg;
	for (; line < stop; line = end + 1) {
		end = memchr(line, '\n', (size_t)(stop - line));
		end = end ? end : stop;
		if (ummr_emit(job, line, (size_t)(end - line), &one, sizeof(one)) < 0)
			return -1;
	}
	return 0;
}

static int reduce(const struct ummr_bytes *key, struct ummr_value *value,
		  const struct ummr_bytes *other, void *arg)
{
	(void)key, (void)arg;
	*(uint64_t *)value->data += *(const uint64_t *)other->data;
	return 0;
}

static int print(FILE *out, const struct ummr_bytes *line, const struct ummr_bytes *count,
		 void *arg)
{
	uint64_t times = unique ? 1 : *(const uint64_t *)count->data;

	(void)arg;
	while (times-- > 0)
		if (fwrite(line->data, 1, line->size, out) != line->size || putc('\n', out) == EOF)
			return -1;
	return 0;
}

static bool set(int letter, const char *value)
{
	(void)value;
	if (letter == 'u')
		unique = true;
	else
		reverse = true;
	return true;
}

static const char *prepare(const struct options *o, struct ummr_config *config)
{
	(void)o;
	config->order = reverse ? UMMR_ORDER_DESCENDING : UMMR_ORDER_ASCENDING;
	return NULL;
}

int main(int argc, char **argv)
{
	const struct program program = {
		.usage = "[options] FILE|FOLDER ...\n"
			 "\n"
			 "Writes the lines of all files, in order of their bytes.\n"
			 "\n"
			 "Options:\n"
			 "  -r                    sort in descending order\n"
			 "  -u                    write each line once\n",
		.letters = "ru",
		.set = set,
		.prepare = prepare,
		.print = print,
	};
	struct ummr_config config = UMMR_CONFIG_INIT;

	config.map = map;
	config.reduce = reduce;
	return run_program(&program, &config, argc, argv);
}
