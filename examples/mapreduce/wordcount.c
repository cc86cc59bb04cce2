/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * wordcount - counts the words of files and folders on all ranks of an MPI job:
 *
 *	mpirun -n 4 ummap wordcount FOLDER -o counts.txt
 *
 * A word is a sequence of the letters A to Z, in lower case. See ummap-wordcount(1) for the
 * options, and ummap-mapreduce(7) for the phases of the job.
 */
#include "program.h"
#include "words.h"

static int map(ummr_job *job, const struct ummr_task *task, void *arg)
{
	char *p = task->data, *word;
	uint64_t one = 1;
	size_t size;

	(void)arg;
	while ((size = next_word(&p, task->data + task->size, &word)) > 0)
		if (ummr_emit(job, word, size, &one, sizeof(one)) < 0)
			return -1;
	return 0;
}

static int reduce(const struct ummr_bytes *key, struct ummr_value *value,
		  const struct ummr_bytes *other, void *arg)
{
	(void)key, (void)arg;
	*(uint64_t *)value->data += *(const uint64_t *)other->data;
	return 0;
}

static int print(FILE *out, const struct ummr_bytes *word, const struct ummr_bytes *count,
		 void *arg)
{
	(void)arg;
	return fprintf(out, "%7" PRIu64 " %.*s\n", *(const uint64_t *)count->data,
		       (int)word->size, (const char *)word->data) < 0;
}

int main(int argc, char **argv)
{
	const struct program program = {
		.usage = "[options] FILE|FOLDER ...\n"
			 "\n"
			 "Counts the words of files, and of all files in folders, on all ranks\n"
			 "of an MPI job (mpirun -n RANKS ummap wordcount ...). A word is a\n"
			 "sequence of the letters A to Z, in lower case. Each line of the\n"
			 "result has a count and a word, in order of words.\n"
			 "\n"
			 "Options:\n",
		.print = print,
	};
	struct ummr_config config = UMMR_CONFIG_INIT;

	fold_init();
	config.split = UMMR_SPLIT_OWN;
	config.find_record = find_word;
	config.map = map;
	config.reduce = reduce;
	return run_program(&program, &config, argc, argv);
}
