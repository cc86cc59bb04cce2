/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The longest range that one exchange reads. The server needs some time for each answer, in which
 * the connection carries nothing. A range is so long that this time is a small part of the time of
 * the exchange, and no longer: the bytes of a long range come late, and are lost for the most part
 * if the connection breaks.
 */
#ifndef DRIVERS_HTTP_RANGE_H
#define DRIVERS_HTTP_RANGE_H

#include <stddef.h>
#include <stdint.h>

#define RANGE_MIN_BYTES ((size_t)64 << 10)
#define RANGE_MAX_BYTES ((size_t)8 << 20)

/* Averages of the exchanges with a server. */
struct pace {
	uint64_t answer_us;            /* time until the first byte; 0: not measured */
	uint64_t bytes_per_ms;         /* bytes of one exchange after that; 0: not measured */
};

/* Adds an exchange: the times until the first and the last byte, and the bytes between them. */
void range_note(struct pace *pace, uint64_t answer_us, uint64_t end_us, uint64_t bytes);
/* Returns the length of the longest range. */
size_t range_length(const struct pace *pace);

#endif
