/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Runs the example wordcount with a text and a table that are larger than its budget, and counts
 * the same text by sorting. All counts, the totals and the order of the most frequent words must
 * agree. Then tests the manual's statements about --query, unusual texts, and files that must not
 * change.
 */
#include "common.h"

#define TEXT_SIZE (by_time(4, 12) * MIB)
#define BUDGET "2M"
#define TOP 50
#define TOP_TEXT "50"
/* Memory of the program besides the budget. Without a budget, it would have 10 to 30 MiB of
 * mappings. */
#define PEAK_MIB (2 + 10.0)

struct word {
	const char *text;
	size_t length;
	uint64_t count;
};

static char wordcount[512], out[320], errors[320];

/* Runs wordcount. Its output goes to the files `out` and `errors`. Returns its exit status. */
static int run(const char *first, ...)
{
	char *argv[24] = { wordcount, (char *)first };
	va_list args;
	int n = 1;

	va_start(args, first);
	while (argv[n])
		argv[++n] = va_arg(args, char *);
	va_end(args);
	pid_t pid = fork();
	check(pid >= 0);
	if (pid == 0) {
		if (!freopen(out, "w", stdout) || !freopen(errors, "w", stderr))
			_exit(125);
		execv(wordcount, argv);
		_exit(126);
	}
	int status = wait_child(pid);
	check(WIFEXITED(status), "wait status %#x", status);
	return WEXITSTATUS(status);
}

/* Returns the contents of a file and a final NUL. */
static char *read_whole_file(const char *path, size_t *size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	check(fd >= 0, "%s", path);
	*size = file_size(fd);
	char *text = malloc(*size + 1);
	check(text && read(fd, text, *size) == (ssize_t)*size);
	text[*size] = 0;
	close(fd);
	return text;
}

static bool says(const char *path, const char *what)
{
	size_t size;
	char *text = read_whole_file(path, &size);
	bool found = strstr(text, what) != NULL;

	if (!found)
		fprintf(stderr, "\"%s\" is not in:\n%s", what, text);
	free(text);
	return found;
}

static void put_file(const char *path, const char *text, size_t size)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	check(fd >= 0 && write(fd, text, size) == (ssize_t)size, "%s", path);
	close(fd);
}

/* ---- The text ---- */

/* Writes word number n, with letters of random case. Most are short; a few do not fit an entry. */
static size_t make_word(char *to, uint64_t n, uint64_t cases)
{
	static const uint16_t long_ones[] = { 39, 40, 41, 63, 64, 65, 400, 5000 };
	uint64_t letters = mix(n + 1);
	size_t length = n % 1000 < 8 ? long_ones[n % 1000] : 1 + letters % 9;

	for (size_t i = 0; i < length; i++) {
		if (i % 8 == 0)
			letters = mix(letters + i);
		to[i] = (char)((cases >> i % 64 & 1 ? 'A' : 'a') +
			       (letters >> i % 8 * 8 & 255) % 26);
	}
	return length;
}

/*
 * Fills the text. As in natural languages, a few words are very frequent. Each rare word costs a
 * read and a write of a segment.
 */
static void make_text(char *text, size_t size)
{
	static const char gaps[] = " \n\t.,;0159_-@[`{\0\x80\xe4\xff";
	char word[5000];
	uint64_t state = 20;
	size_t at = 0;

	while (at < size) {
		uint64_t r = next_random(&state), cases = next_random(&state) & next_random(&state);
		uint64_t n = r % 20 == 0 ? r >> 44 : 10 + (r >> 44) % (1 + (r >> 5) % 100);
		size_t length = make_word(word, n, cases);
		if (length > size - at)
			length = size - at;
		memcpy(text + at, word, length);
		at += length;
		for (uint64_t gap = r >> 32 & 3; at < size - 1 && gap < 4; gap++)
			text[at++] = gaps[(r >> (8 + gap)) % (sizeof(gaps) - 1)];
	}
}

static bool is_letter(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static int by_word(const void *pa, const void *pb)
{
	const struct word *a = pa, *b = pb;
	size_t n = a->length < b->length ? a->length : b->length;
	int order = memcmp(a->text, b->text, n);

	return order ? order : (a->length > b->length) - (a->length < b->length);
}

static int by_count(const void *pa, const void *pb)
{
	const struct word *a = pa, *b = pb;

	return a->count != b->count ? (a->count < b->count) - (a->count > b->count) :
				      by_word(pa, pb);
}

/* Counts the words of a text, which it changes to lower case, by sorting. *n: number of different
 * words. *total: number of all words. */
static struct word *count_by_sorting(char *text, size_t size, size_t *n, uint64_t *total)
{
	struct word *words = malloc((size / 2 + 1) * sizeof(*words));
	size_t found = 0, distinct = 0;

	check(words);
	for (size_t i = 0; i < size; i++) {
		if (!is_letter(text[i]))
			continue;
		text[i] |= 'a' - 'A';
		if (i == 0 || !is_letter(text[i - 1]))
			words[found++] = (struct word){ text + i, 0, 1 };
		words[found - 1].length++;
	}
	qsort(words, found, sizeof(*words), by_word);
	for (size_t i = 0; i < found; i++) {
		if (distinct > 0 && by_word(&words[distinct - 1], &words[i]) == 0)
			words[distinct - 1].count++;
		else
			words[distinct++] = words[i];
	}
	*n = distinct;
	*total = found;
	return words;
}

/* Parses up to max lines "count word". The words stay in the text. */
static size_t read_counts(char *text, struct word *words, size_t max)
{
	size_t n = 0;
	char *end;

	for (; n < max && (*text == ' ' || (*text >= '0' && *text <= '9')); n++) {
		words[n].count = strtoull(text, &end, 10);
		words[n].text = end + 1;
		words[n].length = strcspn(end + 1, "\n");
		text = end + 1 + words[n].length + 1;
	}
	return n;
}

static void check_counts(const char *what, const struct word *given, const struct word *right,
			 size_t n)
{
	for (size_t i = 0; i < n; i++)
		check(given[i].count == right[i].count && by_word(&given[i], &right[i]) == 0,
		      "%s, number %zu: %" PRIu64 " times \"%.*s\", not %" PRIu64 " times \"%.*s\"",
		      what, i, given[i].count, (int)given[i].length, given[i].text, right[i].count,
		      (int)right[i].length, right[i].text);
}

static void check_query(const char *table, const struct word *w)
{
	char *word = strndup(w->text, w->length), expected[32];

	snprintf(expected, sizeof(expected), "%" PRIu64 "\n", w->count);
	check(run("--budget", BUDGET, "--query", word, "--table", table, NULL) ==
	      (w->count ? 0 : 1));
	check(says(out, expected), "%s", word);
	free(word);
}

/* Checks the output: the most frequent words, the totals, and that the peak of memory was bounded.
 * */
static void check_output(struct word *right, size_t n, uint64_t total)
{
	struct word given[TOP + 1];
	char expected[100];
	size_t size;
	char *output = read_whole_file(out, &size), *peak = strstr(output, "peak ");

	snprintf(expected, sizeof(expected),
		 "\nbytes     %zu\nwords     %" PRIu64 "\ndistinct  %zu\n", TEXT_SIZE, total, n);
	check(says(out, expected));
	check(peak);
	check(SANITIZED || strtod(peak + 5, NULL) < PEAK_MIB, "peak: %.10s", peak + 5);
	qsort(right, n, sizeof(*right), by_count);
	check(read_counts(output, given, TOP + 1) == TOP);
	check_counts("top", given, right, TOP);
	free(output);
}

static void check_list(const char *path, struct word *right, size_t n)
{
	struct word *given = calloc(n + 1, sizeof(*given));
	size_t size;
	char *list = read_whole_file(path, &size);

	check(given);
	check(read_counts(list, given, n + 1) == n);
	qsort(given, n, sizeof(*given), by_word);
	qsort(right, n, sizeof(*right), by_word);
	check_counts("list", given, right, n);
	free(list);
	free(given);
}

/* ---- Tests ---- */

static void test_counts(void)
{
	static const size_t lengths[] = { 40, 41,
					  5000 }; /* below, at and far above an entry's limit */
	char path[320], table[320], list[320];
	size_t n;
	uint64_t total;
	char *text = malloc(TEXT_SIZE);

	close(temp_named("text", 0, path));
	close(temp_named("table", 0, table));
	close(temp_named("list", 0, list));
	check(text);
	make_text(text, TEXT_SIZE);
	put_file(path, text, TEXT_SIZE);
	/* The table begins with 16 entries and has to grow many times. */
	int rc = run("--budget", BUDGET, "--seg", "64K", "--table-seg", "16K", "--entries", "16",
		     "--top", TOP_TEXT, "--table", table, "--list", list, path, NULL);
	check(says(errors, "100.0%"));
	check(rc == 0, "exit status %d", rc);

	struct word *right = count_by_sorting(text, TEXT_SIZE, &n, &total);
	check(n > TEXT_SIZE / 256, "the text is too poor for this test: %zu words", n);
	check_output(right, n, total);
	check_list(list, right, n);
	check_query(table, &right[n / 2]);
	check_query(table, &(struct word){ "nosuchwordhere", 14, 0 });
	for (size_t k = 0; k < sizeof(lengths) / sizeof(*lengths); k++) {
		size_t i = 0;
		while (i < n && right[i].length != lengths[k])
			i++;
		check(i < n, "there is no word of %zu letters", lengths[k]);
		check_query(table, &right[i]);
	}
	free(right);
	free(text);
}

/* Each text replaces the previous one in the same table. */
static void test_odd_texts(void)
{
	static const struct { const char *text, *said;
	} cases[] = {
		{ "", "bytes     0\nwords     0\ndistinct  0\n" },
		{ "x", "      1 x\nbytes     1\nwords     1\ndistinct  1\n" },
		{ " 12 ", "bytes     4\nwords     0\ndistinct  0\n" },
		{ "cc a cc", "      2 cc\n      1 a\nbytes     7\n" },
		{ "b A c\nB a",
		  "      2 a\n      2 b\n      1 c\nbytes     9\nwords     5\ndistinct  3\n" },
	};
	char path[320], table[320];
	size_t size;

	close(temp_named("odd", 0, path));
	close(temp_named("odd.counts", 0, table));
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		put_file(path, cases[i].text, strlen(cases[i].text));
		check(run("--quiet", "--table", table, path, NULL) == 0);
		check(says(out, cases[i].said), "text %zu", i);
		free(read_whole_file(errors, &size));
		check(size == 0, "not quiet with text %zu", i);
	}
	check_query(table, &(struct word){ "B", 1, 2 });
	check_query(table, &(struct word){ "x", 1, 0 });
}

static void test_refusals(void)
{
	char path[320], table[320], other[320];
	uint64_t zero = 0;

	close(temp_named("good", 0, path));
	close(temp_named("good.counts", 0, table));
	close(temp_named("precious", 0, other));
	put_file(path, "some words", 10);
	put_file(other, "not a table at all", 18);
	check(run("--quiet", "--table", path, path, NULL) == 2 &&
	      says(errors, "both the text and the table"));
	check(says(path, "some words"));
	check(run("--quiet", "--table", other, path, NULL) == 2 &&
	      says(errors, "not a table of wordcount"));
	check(says(other, "not a table at all"));
	check(run("--query", "some", "--table", other, NULL) == 2 &&
	      says(errors, "not a table of wordcount"));
	check(run("--table", table, "/nonexistent/text", NULL) == 2 &&
	      says(errors, "No such file"));
	check(run("--seg", "3000", "--table", table, path, NULL) == 2 &&
	      says(errors, "cannot map '"));
	check(run("--budget", "a lot", "--table", table, path, NULL) == 2 &&
	      says(errors, "UMMAP_MEM_LIMIT"));
	check(run("--entries", "many", "--table", table, path, NULL) == 2 &&
	      says(errors, "--entries"));
	check(run("--table", table, NULL) == 2 && says(errors, "usage"));

	/* The failed runs leave a valid table. */
	check(run("--quiet", "--table", table, path, NULL) == 0);
	check(run("--query", "no-word", "--table", table, NULL) == 2 && says(errors, "not a word"));
	int fd = open(table, O_WRONLY | O_CLOEXEC);
	/* Marks the table as that of a killed process. */
	check(fd >= 0 && pwrite(fd, &zero, sizeof(zero), 16) == sizeof(zero));
	close(fd);
	check(run("--query", "some", "--table", table, NULL) == 2 &&
	      says(errors, "was not finished"));
}

int main(void)
{
	ssize_t n = readlink("/proc/self/exe", wordcount, sizeof(wordcount) - 40);

	check(n > 0);
	wordcount[n] = 0;
	for (int up = 0; up < 2; up++)
		*strrchr(wordcount, '/') = 0;
	strcat(wordcount, "/examples/wordcount");
	check(access(wordcount, X_OK) == 0, "%s has not been built", wordcount);
	close(temp_named("out", 0, out));
	close(temp_named("errors", 0, errors));
	test_counts();
	test_odd_texts();
	test_refusals();
	return 0;
}
