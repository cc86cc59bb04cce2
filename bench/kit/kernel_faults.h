/* SPDX-License-Identifier: BSD-3-Clause */
/* Faults that the kernel serves: of a mapped file, and of memory. */
#ifndef BENCH_KERNEL_FAULTS_H
#define BENCH_KERNEL_FAULTS_H

#include <sys/resource.h>

#include "kit/series.h"

void kernel_zero(struct series *s);

void kernel_file(struct series *s);

#endif
