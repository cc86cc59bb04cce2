/* SPDX-License-Identifier: BSD-3-Clause */
/* Kinds of memory without MPI: of the process, of the library, and the kernel's mmap. Files are as
 * long as the memory over them, because mmap cannot extend a file. */
#include "alloc.h"

#include "kit/data.h"
#include "kit/policy.h"
#include "ummap.h"

#include <limits.h>

/* ---- Memory of the process, on huge pages, as zeros. ---- */

static void plain_open(struct memory *m)
{
	size_t len = (m->size + 2 * HUGE_PAGE - 1) & ~(HUGE_PAGE - 1);
	char *p = mmap(NULL, len, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		die("no memory for %zu bytes", m->size);
	m->base = (char *)(((uintptr_t)p + HUGE_PAGE - 1) & ~(uintptr_t)(HUGE_PAGE - 1));
	madvise(m->base, len - (size_t)(m->base - p), MADV_HUGEPAGE);
	m->own = p;
}

static void plain_close(struct memory *m)
{
	munmap(m->own, (m->size + 2 * HUGE_PAGE - 1) & ~(HUGE_PAGE - 1));
}

static const struct alloc_kind plain = {
	"memory", false, false, plain_open, NULL, NULL, NULL, NULL, plain_close,
};

/* ---- The library. ---- */

bool alloc_writers(void)
{
	const char *text = getenv("UMMAP_WRITERS");

	return text && !strcmp(text, "1");
}

static void library_open(struct memory *m)
{
	int prot = m->write ? PROT_READ | PROT_WRITE : PROT_READ;
	void *addr = NULL;

	if (ummap(m->size, m->alloc->seg, prot, m->fd, 0, -1, !m->fresh || alloc_writers(),
		  m->alloc->ptype, &addr))
		die("ummap: %s", umerrormsg());
	m->base = addr;
}

static void library_sync(struct memory *m)
{
	if (umsync(m->base, 0))
		die("umsync: %s", umerrormsg());
}

static void library_chill(struct memory *m)
{
	if (umsync(m->base, 1))
		die("umsync: %s", umerrormsg());
	drop_cache(m->fd, m->size);
}

static void library_advise(struct memory *m, bool random)
{
	if (umadvise(m->base, m->size, random ? UMMAP_ADV_RANDOM : UMMAP_ADV_SEQUENTIAL))
		die("umadvise: %s", umerrormsg());
}

static void library_expect(struct memory *m, size_t off, size_t len)
{
	if (umadvise(m->base + off, len, UMMAP_ADV_WILLNEED))
		die("umadvise: %s", umerrormsg());
}

static void library_close(struct memory *m)
{
	if (umunmap(m->base, 0))
		die("umunmap: %s", umerrormsg());
}

static const struct alloc_kind library = {
	"ummap",       true,           false,          library_open,  library_sync,
	library_chill, library_advise, library_expect, library_close,
};

/* ---- The kernel's mmap. ---- */

static void kernel_open(struct memory *m)
{
	m->base = mmap(NULL, m->size, m->write ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED,
		       m->fd, 0);
	if (m->base == MAP_FAILED)
		die("mmap: %s", strerror(errno));
}

static void kernel_sync(struct memory *m)
{
	if (msync(m->base, m->size, MS_SYNC))
		die("msync: %s", strerror(errno));
}

static void kernel_chill(struct memory *m)
{
	kernel_sync(m);
	/* Pages that are mapped stay in the page cache. */
	if (madvise(m->base, m->size, MADV_DONTNEED))
		die("madvise: %s", strerror(errno));
	drop_cache(m->fd, m->size);
}

static void kernel_advise(struct memory *m, bool random)
{
	if (madvise(m->base, m->size, random ? MADV_RANDOM : MADV_SEQUENTIAL))
		die("madvise: %s", strerror(errno));
}

static void kernel_expect(struct memory *m, size_t off, size_t len)
{
	size_t skip = off % (size_t)sysconf(_SC_PAGESIZE);

	if (madvise(m->base + off - skip, len + skip, MADV_WILLNEED))
		die("madvise: %s", strerror(errno));
}

static void kernel_close(struct memory *m)
{
	munmap(m->base, m->size);
}

static const struct alloc_kind kernel = {
	"mmap",       true,          true,          kernel_open,  kernel_sync,
	kernel_chill, kernel_advise, kernel_expect, kernel_close,
};

/* ---- The command line. ---- */

static const struct alloc_kind *const kinds[] = { &plain, &library, &kernel, NULL };

static const struct alloc_kind *find_in(const struct alloc_kind *const *list, const char *name)
{
	for (; *list; list++)
		if (!strcmp((*list)->name, name))
			return *list;
	return NULL;
}

const char *alloc_names(void)
{
	static char text[128];
	const struct alloc_kind *const *k;

	text[0] = '\0';
	for (k = kinds; *k; k++)
		strcat(strcat(text, *text ? ", " : ""), (*k)->name);
	for (k = alloc_mpi_kinds; *k; k++)
		strcat(strcat(text, ", "), (*k)->name);
	return text;
}

const struct alloc_kind *alloc_find(const char *name)
{
	const struct alloc_kind *kind = find_in(kinds, name);

	if (!kind)
		kind = find_in(alloc_mpi_kinds, name);
	if (!kind)
		die("there is no memory '%s': it must be one of %s", name, alloc_names());
	return kind;
}

bool alloc_option(struct alloc *a, int option, const char *value)
{
	switch (option) {
	case ALLOC_KIND: a->kind = alloc_find(value); break;
	case ALLOC_SEG: a->seg = parse_size("seg", value); break;
	case ALLOC_BUDGET: a->budget = parse_size("budget", value); break;
	case ALLOC_POLICY: a->ptype = parse_policy(value), a->policy = value; break;
	case ALLOC_FACTOR: a->factor = value; break;
	case ALLOC_DRIVER: setenv("UMMAP_DRIVER", value, 1); break;
	case ALLOC_ENGINE:
		a->engine = value;
		if (strcmp(value, "kernel"))
			setenv("UMMAP_ENGINE", value, 1);
		break;
	case ALLOC_MODE: setenv("UMMAP_MEMCONFIG", value, 1); break;
	case ALLOC_ADVISE: a->advise = true; break;
	default: return false;
	}
	return true;
}

void alloc_limit(const struct alloc *a, unsigned processes, pid_t leader)
{
	char text[32];

	snprintf(text, sizeof(text), "bench-%d", (int)leader);
	setenv("UMMAP_GROUP", text, 0);
	if (!a->budget)
		return;
	snprintf(text, sizeof(text), "%zu", a->budget * processes);
	setenv("UMMAP_MEM_LIMIT", text, 1);
}

/*
 * Touches twice this amount of memory, and frees it. If a virtual machine has returned memory to
 * its host, getting it back takes milliseconds for each MiB, which the first measurement would pay
 * for. The amount is doubled because the next user of memory may get other pages. It is at most an
 * eighth of the free memory, because other ranks do the same.
 */
static void warm_memory(size_t len)
{
	size_t most = (size_t)sysconf(_SC_AVPHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE) / 8;
	size_t twice = 2 * len < most ? 2 * len : most;
	size_t padded = (twice + 2 * HUGE_PAGE - 1) & ~(HUGE_PAGE - 1), i;
	char *p = mmap(NULL, padded, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		die("no memory for %zu bytes", twice);
	madvise(p, padded, MADV_HUGEPAGE);
	for (i = 0; i < twice; i += 4 * KIB)
		((volatile char *)p)[i] = 1;
	munmap(p, padded);
}

/* A group has room for what is warmed, which is twice of this, and for the process itself. */
void alloc_warm(const struct alloc *a, bool grouped, size_t bytes)
{
	size_t most = grouped ? a->budget / 4 : a->budget;

	warm_memory(most && most < bytes ? most : bytes);
}

/* ---- Memory. ---- */

static struct memory *open_as(struct memory wanted)
{
	struct memory *m = malloc(sizeof(*m));

	*m = wanted;
	m->alloc->kind->open(m);
	return m;
}

struct memory *memory_open(const struct alloc *a, int fd, size_t size, bool write, bool fresh)
{
	return open_as((struct memory){ .alloc = a,
					.size = size,
					.fd = fd,
					.write = write,
					.fresh = fresh });
}

/* A file without a name, so that nothing is left behind. */
static int scratch_file(const char *dir, size_t size)
{
	char path[PATH_MAX];
	int fd;

	snprintf(path, sizeof(path), "%s/ummap-bench-XXXXXX", dir);
	fd = mkostemp(path, O_CLOEXEC);
	if (fd < 0 || unlink(path) || ftruncate(fd, (off_t)size))
		die("%s: %s", path, strerror(errno));
	return fd;
}

struct memory *memory_scratch(const struct alloc *a, const char *dir, size_t size)
{
	int fd = a->kind->stored ? scratch_file(dir, size) : -1;

	return open_as((struct memory){ .alloc = a,
					.size = size,
					.fd = fd,
					.write = true,
					.fresh = true,
					.dir = dir });
}

void memory_sync(struct memory *m)
{
	if (m->alloc->kind->sync)
		m->alloc->kind->sync(m);
}

void memory_chill(struct memory *m)
{
	if (m->alloc->kind->chill)
		m->alloc->kind->chill(m);
}

void memory_advise(struct memory *m, bool random)
{
	if (m->alloc->advise && m->alloc->kind->advise)
		m->alloc->kind->advise(m, random);
}

void memory_expect(struct memory *m, size_t off, size_t len)
{
	if (m->alloc->kind->expect)
		m->alloc->kind->expect(m, off, len);
}

void memory_close(struct memory *m)
{
	m->alloc->kind->close(m);
	if (m->fd >= 0)
		close(m->fd);
	free(m);
}

void memory_stored(const struct memory *m, void *buf, size_t len, size_t off)
{
	if (m->fd >= 0)
		read_whole(m->fd, buf, len, off);
	else
		memcpy(buf, m->base + off, len);
}
