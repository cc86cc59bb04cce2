/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Functions of all fuzzers. An input is a sequence of choices; after its end, all choices are
 * zeros. Zero always chooses a valid value, so that each byte of an input can make one value
 * invalid.
 */
#ifndef FUZZ_H
#define FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct input {
	const uint8_t *at, *end;
};

/* Checks a condition that must hold for each input. */
#define must(cond) \
	do { \
		if (!(cond)) { \
			fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #cond); \
			abort(); \
		} \
	} while (0)

static inline uint8_t take(struct input *in)
{
	return in->at < in->end ? *in->at++ : 0;
}

static inline void take_bytes(struct input *in, void *to, size_t len)
{
	for (size_t i = 0; i < len; i++)
		((uint8_t *)to)[i] = take(in);
}

/* Returns a number: small, near the limits of types, a power of two, or any. */
static inline uint64_t take_number(struct input *in)
{
	uint8_t kind = take(in);
	uint64_t n = kind / 6;

	switch (kind % 6) {
	case 0: return n;
	case 1: return UINT64_MAX - n;
	case 2: return (uint64_t)INT64_MAX + n - 20;
	case 3: return (uint64_t)1 << n;
	case 4: return ((uint64_t)1 << n) - 1;
	default: take_bytes(in, &n, sizeof(n)); return n;
	}
}

/* Returns the right number, in most cases. */
static inline uint64_t take_or(struct input *in, uint64_t right)
{
	uint8_t choice = take(in);

	if (choice < 208)
		return right;
	return choice < 232 ? right + choice - 220 : take_number(in);
}

#endif
