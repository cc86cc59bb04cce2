/* SPDX-License-Identifier: BSD-3-Clause */
/* prog_umalloc - the calls of a heap: sizes, alignments, zeros, discarded memory, errors, fork. */
/* A fork takes all locks of jemalloc, more than the detector of deadlocks can count. */
#define TSAN_MORE ":detect_deadlocks=0"
#include "heap.h"
#include "sanitizers.h"

#include <dlfcn.h>
#include <malloc.h>

#define BUDGET (32 * MIB)

/* ---- Sizes and addresses ---- */

static void all_sizes(void *arg)
{
	umalloc_heap *heap = (set_budget(BUDGET), make_heap(GIB));

	(void)arg;
	for (size_t size = 0; size <= 64 * MIB; size = size < 64 ? size + 1 : size * 5 / 4) {
		char *p = umalloc(heap, size);

		check(p, "%zu: %s", size, umalloc_errormsg());
		check((uintptr_t)p % (size < 16 ? 8 : 16) == 0, "%zu at %p", size, (void *)p);
		check(umalloc_usable_size(heap, p) >= size);
		fill(p, umalloc_usable_size(heap, p), 0, size + 1);
		check_bytes(p, umalloc_usable_size(heap, p), 0, size + 1);
		ufree(heap, p);
	}
	check(umalloc_usable_size(heap, NULL) == 0);
	ufree(heap, NULL);
	umalloc_destroy(heap);
	umalloc_destroy(NULL);
}

static void alignments(void *arg)
{
	umalloc_heap *heap = (set_budget(BUDGET), make_heap(GIB));

	(void)arg;
	for (size_t alignment = 1; alignment <= 64 * MIB; alignment *= 2) {
		for (size_t size = 1; size <= 8 * MIB; size = size * 7 + 3) {
			void *p = ualigned_alloc(heap, alignment, size);

			check(p && (uintptr_t)p % alignment == 0, "%zu at a multiple of %zu: %p",
			      size, alignment, p);
			fill(p, size, 0, alignment);
			check_bytes(p, size, 0, alignment);
			ufree(heap, p);
		}
	}
	check_null(ualigned_alloc(heap, 0, 1), EINVAL);
	check_null(ualigned_alloc(heap, 24, 1), EINVAL);
	check_null(ualigned_alloc(heap, 4 * GIB, 1), ENOMEM);
	umalloc_destroy(heap);
}

/* Memory that had other contents reads as zeros. */
static void zeros(void *arg)
{
	umalloc_heap *heap = (set_budget(BUDGET), make_heap(GIB));

	(void)arg;
	for (int round = 0; round < 4; round++) {
		for (size_t size = 1; size <= 24 * MIB; size = size * 5 + 1) {
			char *p = umalloc(heap, size), *q;

			fill(p, size, 0, 1);
			ufree(heap, p);
			q = ucalloc(heap, 1, size);
			check_zeros(q, size);
			fill(q, size, 0, 2);
			ufree(heap, q);
		}
	}
	check_null(ucalloc(heap, SIZE_MAX / 2, 3), ENOMEM);
	umalloc_destroy(heap);
}

/* Small free extents that share segments with allocations read as zeros when used again. */
static void zeros_between(void *arg)
{
	enum { COUNT = 2000 };
	umalloc_heap *heap = (set_budget(BUDGET), make_heap(GIB));
	static char *kept[COUNT];
	uint64_t random = 1;

	(void)arg;
	for (int round = 0; round < 4; round++) {
		for (size_t i = 0; i < COUNT; i++) {
			size_t size = 4 * KIB * (1 + next_random(&random) % 24);

			if (kept[i])
				continue;
			kept[i] = ucalloc(heap, 1, size);
			check_zeros(kept[i], size);
			fill(kept[i], size, 0, i);
		}
		for (size_t i = 0; i < COUNT; i++) {
			check_bytes(kept[i], 4 * KIB, 0, i);
			if (next_random(&random) % 3)
				ufree(heap, kept[i]), kept[i] = NULL;
		}
		/* Free extents are kept for a second. */
		usleep(round < 2 ? 1100000 : 0);
		ufree(heap, umalloc(heap, 4 * MIB));
	}
	check(heap_stats(heap).discarded > 0 && heap_stats(heap).free > 0);
	umalloc_destroy(heap);
}

/* A program frees pinned memory: the memory stays resident, and is used again. */
static void zeros_where_pinned(void *arg)
{
	umalloc_heap *heap = (set_budget(BUDGET), make_heap(8 * GIB));
	char *p = umalloc(heap, 4 * MIB), *small[64];

	(void)arg;
	fill(p, 4 * MIB, 0, 1);
	check(umpin(p + MIB, MIB + 100, READ_WRITE) == 0);
	ufree(heap, p);
	for (int round = 0; round < 3; round++) {
		p = ucalloc(heap, 1, 4 * MIB);
		check_zeros(p, 4 * MIB);
		fill(p, 4 * MIB, 0, 2);
		ufree(heap, p);
	}
	for (size_t i = 0; i < 64; i++) {
		small[i] = umalloc(heap, 100000);
		fill(small[i], 100000, 0, 3);
	}
	check(umpin(small[5], 100000, PROT_READ) == 0);
	for (size_t i = 0; i < 64; i++)
		ufree(heap, small[i]);
	/* All free memory is discarded before the call fails. */
	check_null(umalloc(heap, 8 * GIB), ENOMEM);
	for (size_t i = 0; i < 64; i++) {
		small[i] = ucalloc(heap, 1, 100000);
		check_zeros(small[i], 100000);
	}
	p = ucalloc(heap, 1, 2 * GIB);
	check(p && heap_umstat(heap).resident_bytes < 2 * BUDGET);
	umalloc_destroy(heap);
}

static void reallocations(void *arg)
{
	umalloc_heap *heap = (set_budget(BUDGET), make_heap(GIB));
	char *p = urealloc(heap, NULL, 1);
	size_t size = 1;

	(void)arg;
	fill(p, 1, 0, 1);
	for (; size < 100 * MIB; size = size * 3 / 2 + 1) {
		p = urealloc(heap, p, size * 3 / 2 + 1);
		check(p, "%zu: %s", size, umalloc_errormsg());
		check_bytes(p, size, 0, 1);
		fill(p, size * 3 / 2 + 1, 0, 1);
	}
	check_null(urealloc(heap, p, 2 * GIB), ENOMEM);
	check_bytes(p, size, 0, 1);
	for (; size > 1; size = size / 4 + 1) {
		p = urealloc(heap, p, size / 4 + 1);
		check(p && umalloc_usable_size(heap, p) < size + 16, "%zu of %zu",
		      umalloc_usable_size(heap, p), size);
		check_bytes(p, size / 4 + 1, 0, 1);
		if (size <= 5)
			break;
	}
	ufree(heap, urealloc(heap, p, 0));
	umalloc_destroy(heap);
}

/* ---- Memory and storage that a heap uses ---- */

/* Allocations take no memory or space before they are filled. The heap's own data are elsewhere. */
static void is_sparse(void *arg)
{
	umalloc_heap *heap = (set_budget(BUDGET), make_heap(400 * GIB));
	char *p = umalloc(heap, 200 * GIB), *q = ucalloc(heap, 100, GIB);

	(void)arg;
	check(p && q, "%s", umalloc_errormsg());
	check(heap_umstat(heap).resident_bytes == 0, "%" PRIu64, heap_umstat(heap).resident_bytes);
	for (size_t at = 0; at < 100; at += 7) {
		check_zeros(q + at * GIB, 100);
		fill(p + 2 * at * GIB, 100, at, 1);
		fill(q + at * GIB, 100, at, 2);
	}
	for (size_t at = 0; at < 100; at += 7) {
		check_bytes(p + 2 * at * GIB, 100, at, 1);
		check_bytes(q + at * GIB, 100, at, 2);
	}
	ufree(heap, p);
	ufree(heap, q);
	check(heap_umstat(heap).dirty_bytes == 0);
	umalloc_destroy(heap);
}

/* The store is not accessed when memory is freed or used again. */
static void discards(void *arg)
{
	umalloc_heap *heap = (set_budget(BUDGET), make_heap(GIB));
	struct umstat before, after;
	size_t size = 3 * BUDGET;
	char *p;

	(void)arg;
	p = umalloc(heap, size);
	fill(p, size, 0, 1);
	check(heap_umstat(heap).write_bytes > 0, "nothing is in storage");
	ufree(heap, p);
	before = heap_umstat(heap);
	check(before.dirty_bytes < 2 * SEG, "%" PRIu64, before.dirty_bytes);
	for (int round = 0; round < 3; round++) {
		p = umalloc(heap, BUDGET / 2);
		fill(p, BUDGET / 2, 0, 2);
		check_bytes(p, BUDGET / 2, 0, 2);
		ufree(heap, p);
	}
	check(umsync_range((void *)(uintptr_t)heap_stats(heap).base, GIB, UMMAP_NOFLUSH) == 0);
	after = heap_umstat(heap);
	check(after.read_bytes - before.read_bytes <= 4 * SEG, "read %" PRIu64,
	      after.read_bytes - before.read_bytes);
	check(after.write_bytes - before.write_bytes <= 4 * SEG, "wrote %" PRIu64,
	      after.write_bytes - before.write_bytes);
	umalloc_destroy(heap);
}

/* Segments of small allocations are discarded when all of these are free. */
static void discards_small(void *arg)
{
	enum { COUNT = 1000, SIZE = 50000 };
	umalloc_heap *heap = (set_budget(BUDGET), make_heap(GIB));
	static char *p[COUNT];
	struct umstat before, after;

	(void)arg;
	for (size_t i = 0; i < COUNT; i++) {
		p[i] = umalloc(heap, SIZE);
		fill(p[i], SIZE, 0, i);
	}
	for (size_t i = 0; i < COUNT; i++)
		ufree(heap, p[i]);
	/* All free memory is discarded before the call fails. */
	check_null(umalloc(heap, GIB), ENOMEM);
	check(heap_stats(heap).discarded > 40 * MIB, "%" PRIu64,
	      (uint64_t)heap_stats(heap).discarded);
	before = heap_umstat(heap);
	check(umsync_range((void *)(uintptr_t)heap_stats(heap).base, GIB, UMMAP_NOFLUSH) == 0);
	after = heap_umstat(heap);
	check(after.write_bytes - before.write_bytes <= 8 * SEG, "wrote %" PRIu64,
	      after.write_bytes - before.write_bytes);
	umalloc_destroy(heap);
}

/* Evicted small allocations are freed without an access to them. */
static void frees_without_touching(void *arg)
{
	enum { COUNT = 100000, SIZE = 1000 };
	umalloc_heap *heap = (set_budget(BUDGET), make_heap(GIB));
	char **p = malloc(COUNT * sizeof(*p));
	struct umstat before;

	(void)arg;
	for (size_t i = 0; i < COUNT; i++) {
		p[i] = umalloc(heap, SIZE);
		fill(p[i], SIZE, 0, i);
	}
	for (size_t i = 0; i < COUNT; i++)
		check_bytes(p[i], SIZE, 0, i);
	before = heap_umstat(heap);
	for (size_t i = 0; i < COUNT; i++)
		ufree(heap, p[i]);
	check(heap_umstat(heap).read_faults == before.read_faults);
	check(heap_umstat(heap).read_bytes == before.read_bytes);
	check(heap_stats(heap).allocated < 2 * MIB, "%" PRIu64, heap_stats(heap).allocated);
	free(p);
	umalloc_destroy(heap);
}

static void counts(void *arg)
{
	umalloc_heap *heap = (set_budget(BUDGET), make_heap(64 * MIB - 1));
	struct umalloc_stats stats = { .struct_size = offsetof(struct umalloc_stats, used),
				       .used = 7 };
	char *p = umalloc(heap, 20 * MIB);

	(void)arg;
	check(heap_stats(heap).size == 64 * MIB);
	check(heap_stats(heap).allocated >= 20 * MIB && heap_stats(heap).allocated < 21 * MIB);
	check(heap_stats(heap).used >= 20 * MIB && heap_stats(heap).used <= 64 * MIB);
	check((const char *)heap_stats(heap).base <= p);
	check(p < (const char *)heap_stats(heap).base + 64 * MIB);
	check(umalloc_stats(heap, &stats) == 0 && stats.size == 64 * MIB && stats.used == 7);
	stats.struct_size = sizeof(stats) + 8;
	check(umalloc_stats(heap, &stats) == -1 && errno == EINVAL);
	check(umalloc_stats(heap, NULL) == -1 && errno == EINVAL);
	ufree(heap, p);
	check(heap_stats(heap).allocated < MIB);
	umalloc_destroy(heap);
}

/* ---- Full heaps and errors ---- */

static void fills_up(void *arg)
{
	enum { MAX_PARTS = 40 * 1024 };
	umalloc_heap *heap = (set_budget(BUDGET), make_heap(GIB));
	static void *p[MAX_PARTS];
	size_t n = 0;

	(void)arg;
	check_null(umalloc(heap, GIB + 1), ENOMEM);
	check_null(umalloc(heap, SIZE_MAX), ENOMEM);
	/* An earlier error has no effect. */
	errno = ENOSPC;
	check(!umalloc(heap, SIZE_MAX) && errno == ENOMEM);
	errno = ENOSPC;
	check(!ualigned_alloc(heap, 2 * GIB, 1) && errno == ENOMEM);
	errno = ENOSPC;
	check(!ucalloc(heap, 2 * GIB, 1) && errno == ENOMEM);
	while (n < MAX_PARTS && (p[n] = umalloc(heap, 32 * KIB)))
		n++;
	/* Each allocation takes a page more than requested. */
	check(errno == ENOMEM && n * 36 * KIB > 960 * MIB, "%zu", n);
	for (size_t i = 0; i < n; i++)
		ufree(heap, p[i]);
	/* The free extents are merged at once. */
	check(umalloc(heap, 100 * MIB), "%s", umalloc_errormsg());
	umalloc_destroy(heap);
}

static void refuses(void *arg)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;

	(void)arg;
	set_budget(BUDGET);
	check_null(umalloc_create(NULL, 0, NULL), EINVAL);
	check_null(umalloc_create(NULL, SIZE_MAX, NULL), EINVAL);
	attr.seg_size = 5000;
	check_null(umalloc_create(NULL, MIB, &attr), EINVAL);
	attr.seg_size = 0;
	attr.struct_size = sizeof(attr) + 8;
	check_null(umalloc_create(NULL, MIB, &attr), EINVAL);
	check_null(umalloc_create("posix:/nowhere/at/all", MIB, NULL), ENOENT);
	check_null(umalloc_create("nonsense", MIB, NULL), EINVAL);
	set_env("TMPDIR", "/nowhere/at/all");
	check_null(umalloc_create(NULL, MIB, NULL), ENOENT);
}

/* The store has a name, and the heap a driver and a segment size. The file's contents are lost. */
static void uses_store(void *arg)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	char path[320], uri[400];
	umalloc_heap *heap;
	int fd = temp_named("heap%20", 0, path);

	(void)arg;
	set_budget(BUDGET);
	file_fill(fd, 0, 4 * MIB, 0, 1);
	snprintf(uri, sizeof(uri), "posix:%s/heap%%2520", temp_dir());
	attr.seg_size = 16 * KIB;
	attr.policy = "plru";
	heap = umalloc_create(uri, GIB, &attr);
	check(heap, "%s", umalloc_errormsg());
	check_zeros(ucalloc(heap, 1, 4 * MIB), 4 * MIB);
	umalloc_destroy(heap);
	heap = umalloc_create("mem:64M", 64 * MIB, NULL);
	check(heap, "%s", umalloc_errormsg());
	fill(umalloc(heap, 40 * MIB), 40 * MIB, 0, 1);
	umalloc_destroy(heap);
	close(fd);
}

static void free_foreign(void *arg)
{
	umalloc_heap *heap = (set_budget(BUDGET), make_heap(GIB));
	char *p = malloc(100);

	signal(SIGABRT, SIG_DFL);
	if (arg)
		ufree(heap, p);
	else
		urealloc(heap, p, 200);
	free(p);
}

/* The file has no name while the heap lives, and its space is free afterwards. */
static void leaves_nothing(void *arg)
{
	umalloc_heap *heap;
	const char *folder = in_dir("own");
	char found[400] = "";
	FILE *list;

	(void)arg;
	set_budget(BUDGET);
	check(mkdir(folder, 0700) == 0);
	set_env("TMPDIR", folder);
	heap = make_heap(GIB);
	fill(umalloc(heap, 2 * BUDGET), 2 * BUDGET, 0, 1);
	snprintf(found, sizeof(found), "ls -A %s", folder);
	list = popen(found, "r");
	check(!fgets(found, sizeof(found), list), "%s", found);
	pclose(list);
	umalloc_destroy(heap);
}

/* ---- Fork: the heap belongs to the parent ---- */

static _Atomic bool is_over;

static void *churn(void *arg)
{
	umalloc_heap *heap = arg;
	uint64_t random = 5;

	while (!is_over) {
		size_t size = 1 + next_random(&random) %
			      (next_random(&random) % 16 ? 2000 : 2 * MIB);
		char *p = umalloc(heap, size);

		fill(p, size < 5000 ? size : 5000, 0, size);
		check_bytes(p, size < 5000 ? size : 5000, 0, size);
		ufree(heap, p);
	}
	return NULL;
}

static void run_in_child(umalloc_heap *heap, char *p)
{
	umalloc_heap *own;

	check_null(umalloc(heap, 10), ENXIO);
	check_null(ucalloc(heap, 10, 10), ENXIO);
	check_null(urealloc(heap, p, 10), ENXIO);
	ufree(heap, p);
	check(umalloc_usable_size(heap, p) >= 1000);
	own = make_heap(GIB);
	fill(umalloc(own, 2 * MIB), 2 * MIB, 0, 3);
	umalloc_destroy(own);
	umalloc_destroy(heap);
	_exit(0);
}

static void forks(void *arg)
{
	umalloc_heap *heap = (set_budget(BUDGET), make_heap(GIB));
	char *p = umalloc(heap, 1000);
	pthread_t thread[3];

	(void)arg;
	fill(p, 1000, 0, 9);
	for (int i = 0; i < 3; i++)
		check(pthread_create(&thread[i], NULL, churn, heap) == 0);
	for (int i = 0; i < 20; i++) {
		pid_t child = fork();
		int status;

		check(child >= 0);
		if (child == 0)
			run_in_child(heap, p);
		check(waitpid(child, &status, 0) == child);
		check_exits(status, 0);
	}
	is_over = true;
	for (int i = 0; i < 3; i++)
		check(pthread_join(thread[i], NULL) == 0);
	check_bytes(p, 1000, 0, 9);
	umalloc_destroy(heap);
}

/* ---- The program's own malloc is unchanged ---- */

static void beside_malloc(void *arg)
{
	umalloc_heap *heap;
	char *p;

	(void)arg;
	set_budget(BUDGET);
	set_env("MALLOC_CONF", "nonsense:true");
	heap = make_heap(GIB);
	p = malloc(1000);
	check(malloc_usable_size(p) >= 1000);
	free(p);
	check(!dlsym(RTLD_DEFAULT, "mallocx") && !dlsym(RTLD_DEFAULT, "umalloc_je_mallocx"));
	umalloc_destroy(heap);
}

static void aborts(void *arg)
{
	int status = run_child(free_foreign, arg);

	check(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT, "wait status %#x", status);
}

int main(void)
{
	static const struct {
		const char *name;
		void (*run)(void *);
	} parts[] = {
		{ "all sizes", all_sizes }, { "alignments", alignments }, { "zeros", zeros },
		{ "zeros between", zeros_between }, { "zeros where pinned", zeros_where_pinned },
		{ "reallocations", reallocations }, { "is sparse", is_sparse },
		{ "discards", discards }, { "discards small allocations", discards_small },
		{ "frees without touching", frees_without_touching }, { "counts", counts },
		{ "fills up", fills_up }, { "refuses", refuses }, { "uses a store", uses_store },
		{ "leaves nothing", leaves_nothing }, { "forks", forks },
		{ "beside malloc", beside_malloc },
	};

	for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++) {
		printf("%s\n", parts[i].name);
		fflush(stdout);
		check_exits(run_child(parts[i].run, NULL), 0);
	}
	aborts(NULL);
	aborts("free");
	return 0;
}
