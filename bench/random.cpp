// SPDX-License-Identifier: BSD-3-Clause
// random FILE THREADS [advised]: reads 20,000 pages of a mapped file at random, with several
// threads, and prints their sum, and MiB per second on the standard error output. With "advised",
// the mapping has MADV_RANDOM. bench/graphs runs it, also compiled by other systems.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>

static constexpr unsigned READS = 20000;
static const uint64_t *words;
static size_t pages;
static unsigned threads;

static void *read_pages(void *number)
{
	uint64_t random = 88172645463325252ull, sum = 0;

	for (unsigned i = 0; i < READS; i++) {
		random ^= random << 13;
		random ^= random >> 7;
		random ^= random << 17;
		const uint64_t *page = words + random % pages * 512;
		for (int word = 0; i % threads == (uintptr_t)number && word < 512; word++)
			sum += page[word];
	}
	return (void *)sum;
}

int main(int argc, char **argv)
{
	pthread_t thread[64];
	struct stat status;
	uint64_t sum = 0;
	void *part;
	int fd = argc > 2 ? open(argv[1], O_RDONLY) : -1;

	threads = fd < 0 ? 0 : (unsigned)atoi(argv[2]);
	if (fd < 0 || fstat(fd, &status) || threads < 1 || threads > 64)
		return 2;
	pages = (size_t)status.st_size / 4096;
	void *map = mmap(nullptr, (size_t)status.st_size, PROT_READ, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED || (argc > 3 && madvise(map, (size_t)status.st_size, MADV_RANDOM)))
		return 1;
	words = (const uint64_t *)map;
	auto start = std::chrono::steady_clock::now();
	for (uintptr_t i = 0; i < threads; i++)
		if (pthread_create(&thread[i], nullptr, read_pages, (void *)i))
			return 1;
	for (unsigned i = 0; i < threads; i++) {
		pthread_join(thread[i], &part);
		sum += (uint64_t)part;
	}
	std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
	std::printf("%llu\n", (unsigned long long)sum);
	std::fprintf(stderr, "%.1f\n", READS / 256.0 / seconds.count());
	return 0;
}
