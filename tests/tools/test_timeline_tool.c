/* SPDX-License-Identifier: BSD-3-Clause */
/* test_timeline_tool.c - tools/timeline: sums, pictures and error messages. */
#include <criterion/criterion.h>

#include "script.h"

#define HEADER "run,rank,seconds,phase,event,memory_kib\n"

/*
 * The timeline of two ranks, of which the second was killed while it reduced and wrote a line, and
 * then of a run with one rank.
 */
static const char events[] = HEADER "1,0,0.000010,map,begin,10240\n1,0,0.250000,map,step,20480\n1,"
				    "0,0.300000,map,sync,40960\n1,0,0.500000,map,step,20480\n"
				    "1,0,0.500010,map,end,20480\n1,0,0.500020,reduce,begin,"
				    "20480\n1,0,0.750000,reduce,end,20480\n"
				    "1,0,0.750010,combine,begin,20480\n1,0,0.875000,combine,step,"
				    "30720\n1,0,1.000000,combine,end,30720\n"
				    "1,1,0.000020,map,begin,10240\n1,1,0.600000,map,end,10240\n1,1,"
				    "0.600010,reduce,begin,10240\n1,1,0.700000,reduce,step,10240\n"
				    "1,1,0.7000\n"
				    "2,0,0.000000,map,begin,1024\n2,0,3.000000,map,end,1024\n";

static const char *write_timeline(const char *name, const char *text)
{
	const char *path = in_dir(name);
	FILE *f = fopen(path, "we");

	check(f && fputs(text, f) >= 0 && fclose(f) == 0);
	return path;
}

Test(timeline, summary)
{
	const char *csv = write_timeline("t.csv", events);
	char out[4096];

	check(run_tool("timeline", out, "--summary %s", csv) == 0, "%s", out);
	check(strstr(out,
		     "\n   0  map           0.000      0.500     0.500      2      1      40.0\n"),
	      "%s", out);
	check(strstr(out,
		     "\n   0  combine       0.750      1.000     0.250      1      0      30.0\n"),
	      "%s", out);
	check(strstr(out,
		     "\n   1  reduce        0.600      0.700     0.100      1      0      10.0\n"),
	      "%s", out);
	check(strstr(out, "no events: 1"), "%s", out);
	check(!strstr(out, "3.000"), "%s", out);
	check(run_tool("timeline", out, "--run 2 -s %s", csv) == 0, "%s", out);
	check(strstr(out,
		     "\n   0  map           0.000      3.000     3.000      0      0       1.0\n"),
	      "%s", out);
}

Test(timeline, pictures)
{
	const char *csv = write_timeline("t.csv", events), *png = in_dir("t.png"),
		   *svg = in_dir("t.svg");
	char out[4096];

	check(run_tool("timeline", out, "%s -o %s", csv, png) == 0, "%s", out);
	check_picture(png, "\x89PNG");
	check(run_tool("timeline", out, "--run 2 -o %s %s %s", svg, csv, csv) == 0, "%s", out);
	check_picture(svg, "<?xml");
}

#define OUTPUT_HEADER "begin,end,process,event,bytes,store\n"

/* The output of two programs and an I/O process. Both programs have begun the file. */
static const char output[] = OUTPUT_HEADER
	OUTPUT_HEADER
	"100.500000,101.000000,70,commit,2097152,a,b\n"
	"100.250000,101.250000,70,commit,1048576,a,b\n"
	"100.600000,100.700000,io75,write,3145728,\n"
	"100.700000,100.800000,io75,flush,0,\n"
	"100.900000,101.000000,71,wait,0,\n"
	"100.9";

Test(timeline, output)
{
	static const char *const lines[] = {
		"\n70          commit       2      3.0     1.500     1.000\n",
		"\nio75        write        1      3.0     0.100     0.100\n",
		"\nio75        flush        1      0.0     0.100     0.100\n",
		"\n71          wait         1      0.0     0.100     0.100\n",
		"no events: 1",
	};
	const char *csv = write_timeline("t.csv", output), *png = in_dir("t.png"), *other;
	char out[4096];

	check(run_tool("timeline", out, "%s -s -o %s", csv, png) == 0, "%s", out);
	for (size_t i = 0; i < sizeof(lines) / sizeof(*lines); i++)
		check(strstr(out, lines[i]), "%s%s", lines[i], out);
	check_picture(png, "\x89PNG");
	other = write_timeline("u.csv", events);
	check(run_tool("timeline", out, "-s %s %s", csv, other) == 1 &&
	      strstr(out, "is not the output of a job"), "%s", out);
	csv = write_timeline("t.csv", OUTPUT_HEADER);
	check(run_tool("timeline", out, "-s %s", csv) == 1 && strstr(out, "has no events"), "%s",
	      out);
}

Test(timeline, error_messages)
{
	static const struct { const char *args, *says; int status;
	} cases[] = {
		{ "", "no file name", 2 },
		{ "--sumary x", "'--sumary': there is no such option", 2 },
		{ "x", "--summary", 2 },
		{ "x -o", "needs the name", 2 },
		{ "x -o y.gif", ".png", 2 },
		{ "x -s --run 0", "run, from 1", 2 },
		{ "x -s --run", "run, from 1", 2 },
		{ "-s /nowhere", "cannot read", 1 },
		{ "-s /etc", "cannot read", 1 },
		{ "-s /etc/passwd", "is no timeline", 1 },
		{ "--help", "usage:", 0 },
	};
	const char *csv;
	char out[4096];

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		check(run_tool("timeline", out, "%s", cases[i].args) == cases[i].status, "%s: %s",
		      cases[i].args, out);
		check(strstr(out, cases[i].says), "%s: %s", cases[i].args, out);
	}
	csv = write_timeline("t.csv", HEADER);
	check(run_tool("timeline", out, "-s %s", csv) == 1 && strstr(out, "no events of run 1"),
	      "%s", out);
	csv = write_timeline("t.csv", events);
	check(run_tool("timeline", out, "-s --run 3 %s", csv) == 1 &&
		      strstr(out, "no events of run 3"),
	      "%s", out);
	check(run_tool("timeline", out, "%s -o /nowhere/x.png", csv) == 1 &&
		      strstr(out, "cannot write"),
	      "%s", out);
}
