/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What stands in the files of the benchmarks, so that no method can skip work unseen: word i of a file is
 * salt + i * STRIDE. No common compressor can shorten it, it is written at the speed of memory, and the sum
 * of any run of words is known without reading it. Also: making such a file, and a cold page cache.
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

/* Fills buf with what belongs at byte `off` of a file; both are multiples of 32. */
void fill_words(void *buf, size_t len, uint64_t off, uint64_t salt);

uint64_t sum_words(const void *buf, size_t len);

/* What sum_words gives for the len bytes at off. */
uint64_t expected_sum(size_t len, uint64_t off, uint64_t salt);

void read_whole(int fd, void *buf, size_t len, uint64_t off);

void write_whole(int fd, const void *buf, size_t len, uint64_t off);

int open_file(const char *path, int flags);

/* Makes sure that path holds at least size bytes of the rule, which takes long only the first time. */
void make_file(const char *path, size_t size);

/* Empties the page cache of the file; true if nothing of it is left there. */
bool drop_cache(int fd, size_t size);

#endif
