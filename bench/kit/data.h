/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Contents of the files of benchmarks: word i of a file is salt + i * STRIDE. So no method can skip
 * work without an error, common compressors cannot shorten the data, they are written at the speed
 * of memory, and the sum of any range is known without reading it. Also functions that make such a
 * file and empty the page cache.
 */
#ifndef BENCH_DATA_H
#define BENCH_DATA_H

#include <fcntl.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kit/common.h"

#define STRIDE 0x9E3779B97F4A7C15ull
#define FILE_SALT 0x1F83D9ABFB41BD6Bull

/* Fills buf with the contents at byte `off` of a file. len and off are multiples of 32. */
void fill_words(void *buf, size_t len, uint64_t off, uint64_t salt);

uint64_t sum_words(const void *buf, size_t len);

/* Returns the result of sum_words for len bytes at off. */
uint64_t expected_sum(size_t len, uint64_t off, uint64_t salt);

void read_whole(int fd, void *buf, size_t len, uint64_t off);

void write_whole(int fd, const void *buf, size_t len, uint64_t off);

int open_file(const char *path, int flags);

/* Ensures that the file has at least size bytes of these contents, which is slow the first time. */
void make_file(const char *path, size_t size);

/* Empties the page cache of the file. Returns whether no page is left. */
bool drop_cache(int fd, size_t size);

#endif
