/* SPDX-License-Identifier: BSD-3-Clause */
#include "kit/kernel_faults.h"

static long page_faults(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return u.ru_minflt + u.ru_majflt;
}

/* Loads or stores in each segment. A fault maps a page, or also pages around it that are cached,
 * for which there is no later fault. */
static void touch_kernel(struct series *s, char *base, size_t from, size_t to, bool store,
			 enum kind kind)
{
	for (size_t i = from; i < to; i++) {
		size_t off = s->order[i] * s->seg;
		uint64_t start, ns, content = FILE_SALT + off / 8 * STRIDE, value = content;
		volatile uint64_t *word = (volatile uint64_t *)(base + off);
		long before = page_faults();
		struct bucket *b = &s->found[kind][0];

		start = now_ns();
		if (store)
			*word = content;
		else
			value = *word;
		ns = now_ns() - start;
		if (value != (kind == ZERO_READ ? 0 : content))
			die("wrong data at %zu", off);
		if (page_faults() > before)
			b->ns[b->n++] = ns;
	}
}

static char *map_kernel(const struct series *s, const char *path)
{
	size_t len = 2 * s->n * s->seg;
	int fd = path ? open_file(path, O_RDWR) : -1;
	char *base = mmap(NULL, len, PROT_READ | PROT_WRITE,
			  path ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS, fd, 0);

	must(base != MAP_FAILED, "mmap");
	must(madvise(base, len, MADV_NOHUGEPAGE) == 0 && madvise(base, len, MADV_RANDOM) == 0,
	     "madvise");
	if (path)
		close(fd);
	return base;
}

void kernel_zero(struct series *s)
{
	bool file = s->server == MMAP;
	char *base;

	/* Data that the library has left there are replaced by holes. */
	must(!file || (truncate(scratch_path, 0) == 0 &&
		       truncate(scratch_path, 2 * s->n * s->seg) == 0),
	     "truncate");
	base = map_kernel(s, file ? scratch_path : NULL);
	touch_kernel(s, base, 0, s->n, false, ZERO_READ);
	touch_kernel(s, base, s->n, 2 * s->n, true, ZERO_WRITE);
}

void kernel_file(struct series *s)
{
	char *base = map_kernel(s, data_path);

	touch_kernel(s, base, 0, s->n, false, FILE_READ);
	touch_kernel(s, base, 0, s->n / 2, true, UPGRADE_WRITE);
	touch_kernel(s, base, s->n, 2 * s->n, true, FILE_WRITE);
}
