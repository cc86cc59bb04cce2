/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Inference with the weights of a mixture of experts that are larger than memory, as programs for
 * language models do it: the file is mapped read-only, its header is unmapped after it was read,
 * and threads multiply vectors by matrices that lie in the mapping. `prompt` computes many tokens
 * together, so that each layer needs most of its experts once; `generate` computes one token after
 * the other, and needs two experts of each layer. The values are of no use. Each expert is checked
 * by its number, and the printed sum depends on each computed product, so it is equal for all
 * methods.
 */
#include "kit/common.h"
#include "kit/raw.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

static const char help[] =
"usage: weights make FILE [SIZE]\n"
"       weights prompt|generate FILE [METHOD] [TOKENS]\n"
"Makes a file of weights (1G) and prints the number of its layers, or computes tokens\n"
"(64) with it and prints a sum.\n"
"METHOD is how the program reads the weights:\n"
"  map        mapping without advice (default)\n"
"  random     mapping with MADV_RANDOM\n"
"  willneed   mapping with MADV_WILLNEED for the experts that the next steps need\n"
"  direct     pread(2) with O_DIRECT, by a thread that is one expert ahead\n";

#define EXPERTS 32               /* experts of a layer */
#define CHOSEN 2                 /* experts that a token needs in a layer */
#define COLUMNS 1024             /* length of a token's vector */
#define ROWS 2048                /* rows of an expert's matrix, of COLUMNS bytes */
#define EXPERT_BYTES ((size_t)ROWS * COLUMNS)
#define HEADER_BYTES 4096
#define MAX_TOKENS 1024
#define THREADS 2

struct header {
	char magic[8];
	uint32_t layers;
};

/* One token, and the experts that its layer needs. */
struct token {
	int16_t x[COLUMNS];      /* input of a layer */
	int32_t y[CHOSEN][ROWS]; /* products of the chosen experts */
	unsigned chosen[CHOSEN];
	uint64_t random;
};

enum method { MAP, RANDOM, WILLNEED, DIRECT };

static struct token tokens[MAX_TOKENS];
static uint32_t layers;
static enum method method;
static const char *weights;      /* mapping; NULL with DIRECT */
static int file;

/* ---- Parts of the computation ---- */

static size_t offset_of(unsigned layer, unsigned expert)
{
	return HEADER_BYTES + ((size_t)layer * EXPERTS + expert) * EXPERT_BYTES;
}

static void multiply(const int8_t *matrix, const int16_t *x, int32_t *y, unsigned begin,
		     unsigned end)
{
	for (unsigned row = begin; row < end; row++) {
		const int8_t *w = matrix + (size_t)row * COLUMNS;
		int32_t sum = 0;

		for (unsigned i = 0; i < COLUMNS; i++)
			sum += w[i] * x[i];
		y[row] = sum;
	}
}

/* Chooses the experts of a token: some are more frequent than others, as in trained models. */
static void route(struct token *t, unsigned layer)
{
	for (unsigned k = 0; k < CHOSEN; k++) {
		unsigned one, other;

		do {
			one = (unsigned)(next_random(&t->random) >> 33) % EXPERTS;
			other = (unsigned)(next_random(&t->random) >> 33) % EXPERTS;
			one = ((one < other ? one : other) + layer * 7) % EXPERTS;
		} while (k > 0 && one == t->chosen[0]);
		t->chosen[k] = one;
	}
}

/* The input of the next layer. */
static void combine(struct token *t)
{
	for (unsigned i = 0; i < COLUMNS; i++) {
		int32_t sum = 0;

		for (unsigned k = 0; k < CHOSEN; k++)
			sum += (t->y[k][i] >> 6) - (t->y[k][i + COLUMNS] >> 7);
		t->x[i] = (int16_t)(((sum + t->x[i]) & 0xff) - 128);
	}
}

/* ---- Experts in memory ---- */

/* The thread of DIRECT reads the experts of `plan` into two buffers. */
static struct reader {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	size_t plan[EXPERTS + CHOSEN * MAX_TOKENS];
	size_t planned, read, used; /* numbers of experts; at most two are read and not used */
	char *buffer[2];
} reader = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };

static void *read_ahead(void *unused)
{
	struct reader *r = &reader;

	(void)unused;
	pthread_mutex_lock(&r->lock);
	for (;;) {
		while (r->read == r->planned || r->read - r->used == 2)
			pthread_cond_wait(&r->changed, &r->lock);
		size_t n = r->read;

		pthread_mutex_unlock(&r->lock);
		if (pread(file, r->buffer[n % 2], EXPERT_BYTES, (off_t)r->plan[n]) !=
		    (ssize_t)EXPERT_BYTES)
			die("weights: cannot read the file: %s", strerror(errno));
		pthread_mutex_lock(&r->lock);
		r->read++;
		pthread_cond_broadcast(&r->changed);
	}
	return NULL;
}

/* Names the next experts that the computation uses, in this order. */
static void announce(const size_t *offsets, size_t n)
{
	struct reader *r = &reader;

	if (method == WILLNEED) {
		for (size_t i = 0; i < n; i++)
			madvise((void *)(uintptr_t)(weights + offsets[i]), EXPERT_BYTES,
				MADV_WILLNEED);
	}
	if (method != DIRECT)
		return;
	pthread_mutex_lock(&r->lock);
	r->planned = r->read = r->used = 0;
	memcpy(r->plan, offsets, n * sizeof(*offsets));
	r->planned = n;
	pthread_cond_broadcast(&r->changed);
	pthread_mutex_unlock(&r->lock);
}

static const int8_t *get_expert(size_t offset)
{
	struct reader *r = &reader;
	const char *at;

	if (method != DIRECT)
		return (const int8_t *)weights + offset;
	pthread_mutex_lock(&r->lock);
	while (r->read == r->used)
		pthread_cond_wait(&r->changed, &r->lock);
	at = r->buffer[r->used % 2];
	pthread_mutex_unlock(&r->lock);
	return (const int8_t *)at;
}

static void end_expert(void)
{
	struct reader *r = &reader;

	if (method != DIRECT)
		return;
	pthread_mutex_lock(&r->lock);
	r->used++;
	pthread_cond_broadcast(&r->changed);
	pthread_mutex_unlock(&r->lock);
}

/* ---- Threads that compute ---- */

/* A step: the product of one expert and all tokens that chose it. Each thread has some rows. */
static struct step {
	const int8_t *matrix;
	unsigned expert;
	size_t first, end;       /* tokens */
} step;
static pthread_barrier_t begun, ended;

static void compute_rows(unsigned thread)
{
	unsigned begin = thread * ROWS / THREADS, end = (thread + 1) * ROWS / THREADS;

	for (size_t i = step.first; i < step.end; i++) {
		for (unsigned k = 0; k < CHOSEN; k++) {
			if (tokens[i].chosen[k] == step.expert)
				multiply(step.matrix, tokens[i].x, tokens[i].y[k], begin, end);
		}
	}
}

static void *compute(void *number)
{
	for (;;) {
		pthread_barrier_wait(&begun);
		compute_rows((unsigned)(uintptr_t)number);
		pthread_barrier_wait(&ended);
	}
	return NULL;
}

/* Computes one layer of tokens [first, end). */
static void compute_layer(unsigned layer, size_t first, size_t end)
{
	bool needed[EXPERTS] = { false };
	size_t offsets[EXPERTS], n = 0;
	unsigned experts[EXPERTS];

	for (size_t i = first; i < end; i++) {
		route(&tokens[i], layer);
		for (unsigned k = 0; k < CHOSEN; k++)
			needed[tokens[i].chosen[k]] = true;
	}
	for (unsigned e = 0; e < EXPERTS; e++) {
		if (needed[e]) {
			experts[n] = e;
			offsets[n++] = offset_of(layer, e);
		}
	}
	announce(offsets, n);
	for (size_t i = 0; i < n; i++) {
		uint64_t number;

		step = (struct step){ get_expert(offsets[i]), experts[i], first, end };
		pthread_barrier_wait(&begun);
		compute_rows(0);
		pthread_barrier_wait(&ended);
		memcpy(&number, step.matrix, sizeof(number));
		if (number != offsets[i])
			die("weights: expert %u of layer %u has wrong contents", experts[i], layer);
		end_expert();
	}
	for (size_t i = first; i < end; i++)
		combine(&tokens[i]);
}

/* ---- Commands ---- */

static void make(const char *path, size_t size)
{
	struct header head = { "weights", (uint32_t)(size / EXPERT_BYTES / EXPERTS) };
	char *block = calloc(1, HEADER_BYTES);
	uint64_t *words = malloc(EXPERT_BYTES), random = 1;
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);

	if (head.layers == 0)
		die("weights: a layer has %zu MiB: the size is too small",
		    EXPERTS * EXPERT_BYTES >> 20);
	if (fd < 0 || !block || !words)
		die("weights: cannot make '%s': %s", path, strerror(errno));
	memcpy(block, &head, sizeof(head));
	must(write(fd, block, HEADER_BYTES) == HEADER_BYTES, "write");
	for (unsigned i = 0; i < head.layers * EXPERTS; i++) {
		for (size_t k = 0; k < EXPERT_BYTES / sizeof(*words); k++)
			words[k] = next_random(&random);
		words[0] = offset_of(0, i);
		must(write(fd, words, EXPERT_BYTES) == (ssize_t)EXPERT_BYTES, "write");
	}
	must(!close(fd), "close");
	printf("%u layers\n", head.layers);
	free(words);
	free(block);
}

static void open_weights(const char *path)
{
	const struct header *head;
	size_t size;
	char *map;

	file = open(path, O_RDONLY);
	if (file < 0)
		die("weights: cannot open '%s': %s", path, strerror(errno));
	size = (size_t)lseek(file, 0, SEEK_END);
	map = mmap(NULL, size, PROT_READ, MAP_SHARED, file, 0);
	if (map == MAP_FAILED)
		die("weights: cannot map '%s': %s", path, strerror(errno));
	head = (const struct header *)map;
	layers = head->layers;
	if (memcmp(head->magic, "weights", 8) || offset_of(layers, 0) != size)
		die("weights: '%s' was not made by `weights make`", path);
	munmap(map, HEADER_BYTES);
	weights = map;
	if (method == RANDOM)
		madvise(map + HEADER_BYTES, size - HEADER_BYTES, MADV_RANDOM);
	if (method == DIRECT) {
		munmap(map + HEADER_BYTES, size - HEADER_BYTES);
		close(file);
		file = open(path, O_RDONLY | O_DIRECT);
		must(file >= 0, "open with O_DIRECT");
	}
}

static void start_threads(void)
{
	pthread_t thread;

	must(!pthread_barrier_init(&begun, NULL, THREADS), "pthread_barrier_init");
	must(!pthread_barrier_init(&ended, NULL, THREADS), "pthread_barrier_init");
	for (uintptr_t i = 1; i < THREADS; i++)
		must(!pthread_create(&thread, NULL, compute, (void *)i), "pthread_create");
	if (method != DIRECT)
		return;
	reader.buffer[0] = huge_memory(2 * EXPERT_BYTES);
	reader.buffer[1] = reader.buffer[0] + EXPERT_BYTES;
	must(!pthread_create(&thread, NULL, read_ahead, NULL), "pthread_create");
}

static void infer(bool together, size_t count)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < count; i++) {
		tokens[i].random = 1 + i;
		for (unsigned k = 0; k < COLUMNS; k++)
			tokens[i].x[k] = (int16_t)(next_random(&tokens[i].random) & 0xff) - 128;
	}
	for (size_t i = 0; i < count; i += together ? count : 1) {
		for (unsigned layer = 0; layer < layers; layer++)
			compute_layer(layer, i, together ? count : i + 1);
	}
	for (size_t i = 0; i < count; i++) {
		for (unsigned k = 0; k < COLUMNS; k++)
			sum = sum * 31 + (uint16_t)tokens[i].x[k];
	}
	printf("%016llx\n", (unsigned long long)sum);
}

int main(int argc, char **argv)
{
	static const char *const names[] = { "map", "random", "willneed", "direct" };
	bool together;

	if (argc == 2 && !strcmp(argv[1], "--help")) {
		fputs(help, stdout);
		return 0;
	}
	if (argc >= 3 && argc <= 4 && !strcmp(argv[1], "make")) {
		make(argv[2], argc > 3 ? parse_size("SIZE", argv[3]) : GIB);
		return 0;
	}
	if (argc < 3 || argc > 5 || (strcmp(argv[1], "prompt") && strcmp(argv[1], "generate"))) {
		fputs(help, stderr);
		return 2;
	}
	together = !strcmp(argv[1], "prompt");
	while (argc > 3 && strcmp(argv[3], names[method])) {
		if (++method > DIRECT)
			die("weights: unknown method '%s'", argv[3]);
	}
	open_weights(argv[2]);
	start_threads();
	infer(together, argc > 4 ? parse_count("TOKENS", argv[4], MAX_TOKENS) : 64);
	return 0;
}
