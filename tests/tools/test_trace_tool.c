/* SPDX-License-Identifier: BSD-3-Clause */
/* test_trace_tool.c - tools/trace on real traces: sums, pictures and error messages. */
#include <criterion/criterion.h>

#include "script.h"
#include "trace.h"

static const char *write_trace(void)
{
	const char *csv = in_dir("t.csv");
	uint8_t *m;

	set_budget(BUDGET);
	m = map_uri(SPAN, READ_WRITE,
		    "trace+error+posix:%s?trace.file=%s&error.op=write&error.nth=5&"
		    "error.times=40",
		    in_dir("data"), csv);
	fill(m, SPAN, 0, 1);
	check_fails(umsync(m, 0), EIO);
	for (int tries = 0; umsync(m, 0) == -1; tries++)
		check(tries < 40);
	check(umunmap(m, 1) == 0);
	read_trace(csv);
	return csv;
}

static int by_duration(const void *a, const void *b)
{
	const struct line *x = a, *y = b;

	return x->took < y->took ? -1 : x->took > y->took;
}

/* Computes the median and the 99th percentile of an operation, in microseconds. Sorts the trace. */
static void find_percentiles(const char *op, double *median, double *p99)
{
	size_t n = 0, count = 0;

	qsort(trace.line, trace.n, sizeof(*trace.line), by_duration);
	for (size_t i = 0; i < trace.n; i++)
		n += strcmp(trace.line[i].op, op) == 0;
	for (size_t i = 0; i < trace.n; i++) {
		if (strcmp(trace.line[i].op, op) != 0)
			continue;
		count++;
		if (count == (n + 1) / 2)
			*median = trace.line[i].took / 1e3;
		if (count == (n * 99 + 99) / 100)
			*p99 = trace.line[i].took / 1e3;
	}
}

static void check_row(const char *out, const char *op)
{
	const char *row = strstr(out, op);
	double median = 0, p99 = 0, got_median, got_p99, rate;
	size_t requests, failed;
	uint64_t bytes;

	check(row, "no row for %s in:\n%s", op, out);
	check(sscanf(row + strlen(op), "%zu %zu %" SCNu64 " %lf %lf %lf", &requests, &failed,
		     &bytes, &got_median, &got_p99, &rate) == 6,
	      "%s", row);
	check(failed == count_lines(op, -EIO) && requests == count_lines(op, 0) + failed, "%s",
	      row);
	check(bytes == count_bytes(op), "%s", row);
	find_percentiles(op, &median, &p99);
	check(got_median >= median - 0.06 && got_median <= median + 0.06, "%s, not %f", row,
	      median);
	check(got_p99 >= p99 - 0.06 && got_p99 <= p99 + 0.06, "%s, not %f", row, p99);
	check(rate > 0, "%s", row);
}

Test(tool, summary)
{
	const char *csv = write_trace();
	char out[4096];

	check(run_tool("trace", out, "--summary %s", csv) == 0, "%s", out);
	check_row(out, "read");
	check_row(out, "write");
	check(strstr(out, "\nflush "), "%s", out);
}

/* The time of concurrent requests counts once for the rate. */
Test(tool, rate_counts_concurrent_requests_once)
{
	const char *csv = in_dir("t.csv");
	FILE *f = fopen(csv, "we");
	char out[4096];

	fprintf(f, "%s\n", HEADER);
	fprintf(f, "5000000000,read,0,1048576,1000000000,0,1\n1000000000,read,0,1048576,1000000000,"
		   "0,1\n");
	fprintf(f, "1500000000,read,0,1048576,500000000,0,1\n1500000000,read,0,1048576,1000000000,-"
		   "5,1\n");
	fprintf(f, "# 7 lines lost: No space left on device\n8000000000,wri");
	fclose(f);
	check(run_tool("trace", out, "-s %s", csv) == 0, "%s", out);
	check(strstr(out, "7 lines lost: No space left on device"), "%s", out);
	check(strstr(out, "no requests: 1"), "%s", out);
	check(strstr(out,
		     "read              4       1       3145728  1000000.0  1000000.0       1.2"),
	      "%s", out);
}

Test(tool, pictures)
{
	const char *csv = write_trace(), *png = in_dir("t.png"), *svg = in_dir("t.svg");
	char out[4096];

	check(run_tool("trace", out, "%s -o %s", csv, png) == 0 && !*out, "%s", out);
	check_picture(png, "\x89PNG");
	check(run_tool("trace", out, "-o %s %s", svg, csv) == 0 && !*out, "%s", out);
	check_picture(svg, "<?xml");
}

Test(tool, error_messages)
{
	const char *csv = in_dir("t.csv");
	static const struct { const char *args, *says; int status;
	} cases[] = {
		{ "", "no file name", 2 },
		{ "--sumary x", "'--sumary': there is no such option", 2 },
		{ "x y", "one trace at a time", 2 },
		{ "x", "--summary", 2 },
		{ "x -o", "needs the name", 2 },
		{ "x -o y.gif", ".png", 2 },
		{ "-s /nowhere", "cannot read", 1 },
		{ "-s /etc", "cannot read", 1 },
		{ "-s /etc/passwd", "is no trace", 1 },
		{ "--help", "usage:", 0 },
	};
	char out[4096];
	int fd;

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		check(run_tool("trace", out, "%s", cases[i].args) == cases[i].status, "%s: %s",
		      cases[i].args, out);
		check(strstr(out, cases[i].says), "%s: %s", cases[i].args, out);
	}
	/* Control characters of a terminal are replaced. */
	fd = temp_named("escape.csv", 0, (char[320]){ 0 });
	check(write(fd, HEADER "\n# \33]0;x\a\n", strlen(HEADER) + 10) > 0);
	close(fd);
	check(run_tool("trace", out, "-s %s", in_dir("escape.csv")) == 1 &&
		      strstr(out, " ?]0;x?\n") && !strchr(out, '\33'),
	      "%s", out);
	/* The shell prints no warning of its own about zero bytes. */
	fd = temp_named("zeros.csv", 0, (char[320]){ 0 });
	check(write(fd, "\0\0\n1\n", 5) == 5);
	close(fd);
	check(run_tool("trace", out, "-s %s", in_dir("zeros.csv")) == 1 &&
		      strstr(out, "is no trace") && !strchr(strchr(out, '\n') + 1, '\n'),
	      "%s", out);
	fd = temp_named("t.csv", 0, (char[320]){ 0 });
	check(run_tool("trace", out, "-s %s", csv) == 1 && strstr(out, "it is empty"), "%s", out);
	check(write(fd, HEADER "\n", strlen(HEADER) + 1) > 0);
	check(run_tool("trace", out, "-s %s", csv) == 1 && strstr(out, "no requests"), "%s", out);
	check(write(fd, "1,read,0,1,1,0,1\n", 17) == 17);
	check(run_tool("trace", out, "%s -o /nowhere/x.png", csv) == 1 &&
		      strstr(out, "cannot write"),
	      "%s", out);
	close(fd);
}
