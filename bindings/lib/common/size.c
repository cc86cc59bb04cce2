/* SPDX-License-Identifier: BSD-3-Clause */
#include "common/size.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

/* Further digits of a fraction change no size by a byte. */
#define MAX_SCALE ((uint64_t)1000000000 * 1000000000)

/* A decimal number: whole + fraction / scale. */
struct decimal {
	uint64_t whole, fraction, scale;
	bool is_fractional; /* it has a point */
};

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static const char *skip_blanks(const char *at)
{
	return at + strspn(at, " \t");
}

/* Where the number ends; NULL: there is none, or it is too large. */
static const char *read_decimal(const char *at, struct decimal *d)
{
	bool has_digits = false;

	*d = (struct decimal){ .scale = 1 };
	for (; is_digit(*at); at++) {
		if (__builtin_mul_overflow(d->whole, 10, &d->whole) ||
		    __builtin_add_overflow(d->whole, (uint64_t)(*at - '0'), &d->whole))
			return NULL;
		has_digits = true;
	}
	if (*at != '.')
		return has_digits ? at : NULL;
	d->is_fractional = true;
	has_digits = is_digit(at[1]); /* "1." is none */
	for (at++; is_digit(*at); at++) {
		if (d->scale < MAX_SCALE) {
			d->fraction = 10 * d->fraction + (uint64_t)(*at - '0');
			d->scale *= 10;
		}
	}
	return has_digits ? at : NULL;
}

/* Power of two of the unit at `at`; -1: it is none. */
static int read_unit(const char *at)
{
	static const char units[] = "KMGT";
	int shift = 0;
	char upper = *at & ~0x20;
	const char *unit = upper ? strchr(units, upper) : NULL;

	if (unit) {
		shift = 10 * (int)(unit - units + 1);
		at++;
		if ((*at & ~0x20) == 'I') {
			at++;
			if ((*at & ~0x20) != 'B')
				return -1;
		}
	}
	if ((*at & ~0x20) == 'B')
		at++;
	return *at ? -1 : shift;
}

int size_parse(const char *text, uint64_t *bytes)
{
	struct decimal d;
	const char *at = read_decimal(text, &d);
	int shift = at ? read_unit(skip_blanks(at)) : -1;

	/* Blanks stand before a unit only. */
	if (at && *at && !*skip_blanks(at))
		return -EINVAL;
	if (shift < 0 || (d.is_fractional && shift == 0) || d.whole > UINT64_MAX >> shift)
		return -EINVAL;
	*bytes = d.whole << shift;
	*bytes += (uint64_t)(((unsigned __int128)d.fraction << shift) / d.scale);
	return 0;
}

int size_parse_count(const char *text, uint64_t *count)
{
	struct decimal d;
	const char *at = read_decimal(text, &d);

	if (!at || *at || d.is_fractional)
		return -EINVAL;
	*count = d.whole;
	return 0;
}

unsigned size_parse_dims(const char *text, uint64_t *dims, unsigned max)
{
	for (unsigned n = 0; n < max; text++) {
		struct decimal d;

		text = read_decimal(text, &d);
		if (!text || d.is_fractional || (*text && *text != 'x'))
			return 0;
		dims[n++] = d.whole;
		if (!*text)
			return n;
	}
	return 0;
}

static const char *read_number(const char *text, double *number)
{
	struct decimal d;
	const char *at = read_decimal(text, &d);

	if (!at)
		return NULL;
	*number = (double)d.whole + (double)d.fraction / (double)d.scale;
	return at;
}

int size_parse_percent(const char *text, double *percent)
{
	const char *at = read_number(text, percent);

	if (!at || strcmp(skip_blanks(at), "%") != 0)
		return -EINVAL;
	return *percent > 0 && *percent <= 100 ? 0 : -EINVAL;
}

int size_parse_decimal(const char *text, double *number)
{
	const char *at = read_number(text, number);

	return at && !*at ? 0 : -EINVAL;
}
