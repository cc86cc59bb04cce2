/* SPDX-License-Identifier: BSD-3-Clause */
/* Numbers as users write them have one form everywhere, in each locale. */
#include <criterion/criterion.h>

#include <locale.h>

#include "common/size.h"
#include "common.h"

Test(size, forms)
{
	static const struct {
		const char *text;
		uint64_t bytes;
	} good[] = {
		{ "0", 0 },
		{ "1", 1 },
		{ "4096", 4096 },
		{ "4096B", 4096 },
		{ "64K", 64 * KIB },
		{ "64k", 64 * KIB },
		{ "64KB", 64 * KIB },
		{ "64Kb", 64 * KIB },
		{ "64KiB", 64 * KIB },
		{ "64kib", 64 * KIB },
		{ "64 KiB", 64 * KIB },
		{ "64\tM", 64 * MIB },
		{ "64MB", 64 * MIB },
		{ "64MiB", 64 * MIB },
		{ "8G", 8 * GIB },
		{ "0.5G", GIB / 2 },
		{ ".5G", GIB / 2 },
		{ "1.5MiB", MIB + MIB / 2 },
		{ "1.0K", KIB },
		{ "1T", KIB * GIB },
		{ "0.3K", 307 },
		{ "0.0009765625K", 1 },
		{ "0.1G", 107374182 },
		{ "0.99999999999999999999999999K", 1023 },
		{ "18446744073709551615", UINT64_MAX },
	};
	static const char *const bad[] = {
		"",          " ",
		"B",         " 1",
		"1 ",        "1K ",
		" 1K",       "K",
		"-1",        "+1",
		"1X",        "1KK",
		"1KBB",      "1Ki",
		"1iB",       "1.5",
		"1.5B",      ".",
		".K",        "1.K",
		"1..5K",     "1,5K",
		"0x10",      "1e3",
		"64 K B",    "1 1",
		"50%",       "18446744073709551616",
		"16777216T", "99999999999999999999G",
		"1P",
	};
	uint64_t bytes;

	for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
		check(size_parse(good[i].text, &bytes) == 0, "\"%s\"", good[i].text);
		check(bytes == good[i].bytes, "\"%s\" is %" PRIu64, good[i].text, bytes);
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		check(size_parse(bad[i], &bytes) == -EINVAL, "\"%s\" is %" PRIu64, bad[i], bytes);
}

Test(size, counts)
{
	static const char *const bad[] = { "", " 8", "8 ", "8K", "8B", "1.0", "-1", "8 8", "0x8" };
	uint64_t count;

	check(size_parse_count("8", &count) == 0 && count == 8);
	check(size_parse_count("0", &count) == 0 && count == 0);
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		check(size_parse_count(bad[i], &count) == -EINVAL, "\"%s\"", bad[i]);
}

Test(size, percents)
{
	static const char *const bad[] = { "",    "%",  " 50%", "50% ", "0%",   "101%", "100.1%",
					   "-1%", "50", "50%%", "50%K", "50K%", "nan%" };
	double percent;

	check(size_parse_percent("50%", &percent) == 0 && percent == 50);
	check(size_parse_percent("12.5 %", &percent) == 0 && percent == 12.5);
	check(size_parse_percent("100%", &percent) == 0 && percent == 100);
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		check(size_parse_percent(bad[i], &percent) == -EINVAL, "\"%s\"", bad[i]);
}

/* A program's locale may have another decimal point. Tests nothing if no such locale is installed.
 * */
Test(size, locale_has_no_effect)
{
	static const char *const names[] = { "C", "de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8" };
	static const char *const bad[] = { "", "0,5", "nan", "inf", "1e-1", "0.5x", "-0.5", "." };
	double number, percent;
	uint64_t bytes;

	for (size_t k = 0; k < sizeof(names) / sizeof(*names); k++) {
		if (!setlocale(LC_ALL, names[k]))
			continue;
		check(size_parse_decimal("0.8", &number) == 0 && number > 0.799999 &&
		      number < 0.800001);
		check(size_parse_decimal(".5", &number) == 0 && number == 0.5);
		check(size_parse_decimal("1", &number) == 0 && number == 1);
		check(size_parse_percent("12.5%", &percent) == 0 && percent == 12.5);
		check(size_parse("0.5G", &bytes) == 0 && bytes == GIB / 2);
		for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
			check(size_parse_decimal(bad[i], &number) == -EINVAL, "\"%s\"", bad[i]);
	}
}

Test(size, dimensions)
{
	static const char *const bad[] = {
		"",      "x",      "10x", "x10",  "1x2x3x4",
		"1.5x2", "10 x 2", "10K", "-1x2", "18446744073709551616"
	};
	uint64_t dims[3];

	check(size_parse_dims("7", dims, 3) == 1 && dims[0] == 7);
	check(size_parse_dims("1000x200x0", dims, 3) == 3);
	check(dims[0] == 1000 && dims[1] == 200 && dims[2] == 0);
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		check(size_parse_dims(bad[i], dims, 3) == 0, "\"%s\"", bad[i]);
}
