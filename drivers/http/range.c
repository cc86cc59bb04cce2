/* SPDX-License-Identifier: BSD-3-Clause */
#include "range.h"

#define FIRST_BYTES ((size_t)2 << 20)    /* longest range until the first ranges were measured */
#define ANSWERS 32                       /* times of an answer in the time of an exchange */
#define MIN_MEASURED_BYTES 32768         /* fewer bytes tell no rate */
#define AVERAGE_SHIFT 3                  /* log2 of the part that each exchange has */

static void add_average(uint64_t *average, uint64_t value)
{
	value = value > 0 ? value : 1;
	if (*average)
		value = *average + (value >> AVERAGE_SHIFT) - (*average >> AVERAGE_SHIFT);
	*average = value > 0 ? value : 1;
}

void range_note(struct pace *pace, uint64_t answer_us, uint64_t end_us, uint64_t bytes)
{
	if (end_us < answer_us || bytes < MIN_MEASURED_BYTES)
		return;
	add_average(&pace->answer_us, answer_us);
	add_average(&pace->bytes_per_ms, bytes * 1000 / (end_us - answer_us + 1));
}

size_t range_length(const struct pace *pace)
{
	size_t length = RANGE_MAX_BYTES;
	double want = (double)pace->answer_us * (double)pace->bytes_per_ms / 1000 * ANSWERS;

	if (!pace->answer_us)
		return FIRST_BYTES;
	while (length > RANGE_MIN_BYTES && (double)length > want)
		length /= 2;
	return length;
}
