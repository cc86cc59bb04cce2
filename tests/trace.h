/* SPDX-License-Identifier: BSD-3-Clause */
/* Functions that the tests of the filter trace share: read traces, and map traced stores. */
#ifndef TESTS_TRACE_H
#define TESTS_TRACE_H

#include "common.h"

#define SEG (64 * KIB)
#define BUDGET (16 * SEG)
#define SPAN (8 * BUDGET)
#define HEADER "start_ns,operation,offset,length,duration_ns,result,thread"

/* ---- Traces ---- */

struct line {
	uint64_t start, off, len, took;
	char op[16];
	int result;
	long thread;
};

struct trace {
	size_t n, lost;
	bool says_lost;
	char why[64];
	struct line line[40000];
};

static struct trace trace;

static inline void parse_line(const char *text)
{
	struct line *l = &trace.line[trace.n++];
	int used = 0;

	check(trace.n <= sizeof(trace.line) / sizeof(*trace.line));
	check(sscanf(text, "%" SCNu64 ",%15[a-z],%" SCNu64 ",%" SCNu64 ",%" SCNu64 ",%d,%ld%n",
		     &l->start, l->op, &l->off, &l->len, &l->took, &l->result, &l->thread,
		     &used) == 7,
	      "\"%s\"", text);
	check(text[used] == '\0', "\"%s\"", text);
}

/* Reads a trace, whose lines must be complete. Only the last line may be a remark. */
static inline void read_trace(const char *path)
{
	FILE *f = fopen(path, "re");
	char text[256];

	check(f, "%s", path);
	memset(&trace, 0, sizeof(trace));
	check(fgets(text, sizeof(text), f) && strcmp(text, HEADER "\n") == 0, "%s: \"%s\"", path,
	      text);
	while (fgets(text, sizeof(text), f)) {
		check(!trace.says_lost && strchr(text, '\n'), "\"%s\"", text);
		text[strcspn(text, "\n")] = '\0';
		if (text[0] == '#')
			trace.says_lost = sscanf(text, "# %zu lines lost: %63[^\n]", &trace.lost,
						 trace.why) == 2;
		else
			parse_line(text);
	}
	fclose(f);
}

static inline size_t count_lines(const char *op, int result)
{
	size_t n = 0;

	for (size_t i = 0; i < trace.n; i++)
		n += strcmp(trace.line[i].op, op) == 0 && trace.line[i].result == result;
	return n;
}

static inline uint64_t count_bytes(const char *op)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < trace.n; i++)
		bytes += strcmp(trace.line[i].op, op) == 0 && trace.line[i].result == 0 ?
				 trace.line[i].len :
				 0;
	return bytes;
}

/* ---- Mappings ---- */

__attribute__((format(printf, 3, 4)))
static inline uint8_t *map_uri(size_t size, int prot, const char *format, ...)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	char uri[1024];
	void *addr = NULL;
	va_list args;

	va_start(args, format);
	vsnprintf(uri, sizeof(uri), format, args);
	va_end(args);
	attr.seg_size = SEG;
	attr.flags = UMMAP_CREATE;
	check(ummap_open(uri, size, 0, prot, &attr, &addr) == 0, "%s", uri);
	return addr;
}

#endif
