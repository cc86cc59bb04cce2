/* SPDX-License-Identifier: BSD-3-Clause */
/* Prints a view as lines of text, and as JSON. */
#include "../tool.h"
#include "top.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>

#define COLUMN_WIDTH 8

/* ---- Text ---- */

static void print_bytes(char *to, size_t room, double bytes)
{
	static const char units[] = "BKMGTP";
	unsigned u = 0;

	for (; bytes >= 1000 && units[u + 1]; u++)
		bytes /= 1024;
	snprintf(to, room, u == 0 || bytes >= 100 ? "%.0f%c" : "%.1f%c", bytes, units[u]);
}

static void print_value(char *to, size_t room, enum column c, double value)
{
	if (isnan(value))
		snprintf(to, room, "-");
	else if (columns[c].unit == BYTES)
		print_bytes(to, room, value);
	else if (columns[c].unit == PART)
		snprintf(to, room, "%.0f", value * 100);
	else
		snprintf(to, room, "%.*f", columns[c].unit == MIB_PER_SECOND ? 1 : 0, value);
}

__attribute__((format(printf, 3, 4))) static size_t append(char *line, size_t at,
							   const char *format, ...)
{
	va_list args;
	int len;

	va_start(args, format);
	len = vsnprintf(line + at, LINE_MAX_LEN - at, format, args);
	va_end(args);
	return at + (size_t)len < LINE_MAX_LEN ? at + (size_t)len : LINE_MAX_LEN - 1;
}

static size_t append_values(char *line, size_t at, const struct row *row)
{
	char value[32];

	for (enum column c = SHARE; c < COLUMNS; c++) {
		print_value(value, sizeof(value), c, row->value[c]);
		at = append(line, at, "%*s", COLUMN_WIDTH, value);
	}
	return at;
}

void line_summary(char line[LINE_MAX_LEN], const struct view *view)
{
	char held[16], limit[16];

	print_bytes(held, sizeof(held), view->held);
	print_bytes(limit, sizeof(limit), view->limit);
	append(line, 0, "%s: %u process%s %s%s share%s %s, %s held", strrchr(view->path, '/') + 1,
	       view->count, view->count == 1 ? "" : "es",
	       view->group ? "of UMMAP_GROUP=" : "without UMMAP_GROUP",
	       view->group ? view->group : "", view->count == 1 ? "s" : "", limit, held);
}

void line_titles(char line[LINE_MAX_LEN])
{
	size_t at = append(line, 0, "%7s %-15s %-7s", columns[PID].title, "NAME", "MODE");

	for (enum column c = SHARE; c < COLUMNS; c++)
		at = append(line, at, "%*s", COLUMN_WIDTH, columns[c].title);
}

void line_process(char line[LINE_MAX_LEN], const struct process *p)
{
	size_t at = append(line, 0, "%7d %-15.15s %-7s", (int)registry_pid(p->owner), p->self.name,
			   p->dynamic ? "dynamic" : "static");

	append_values(line, at, &p->self);
}

void line_map(char line[LINE_MAX_LEN], const struct row *map)
{
	char size[16], seg[16], load[16], left[16];
	size_t len = strlen(map->name), at;

	print_bytes(size, sizeof(size), (double)map->size);
	print_bytes(seg, sizeof(seg), (double)map->seg_size);
	/* A long path is cut at its beginning, because its end tells more. */
	at = append(line, 0, "  %-29s", map->name + (len > 29 ? len - 29 : 0));
	at = append_values(line, at, map);
	at = append(line, at, "  %s in %s", size, seg);
	if (map->transfer_bytes > map->seg_size) {
		print_bytes(load, sizeof(load), (double)map->transfer_bytes);
		at = append(line, at, ", loads of %s", load);
	}
	if (map->commit_bytes) {
		print_bytes(left, sizeof(left), (double)map->commit_bytes);
		at = append(line, at, ", commit of %s left", left);
	}
	if (map->sharers)
		append(line, at, ", node copy of %" PRIu64 " process%s", map->sharers,
		       map->sharers == 1 ? "" : "es");
}

const char *line_more(char line[LINE_MAX_LEN], const struct process *p)
{
	unsigned n = p->mappings - p->shown;

	append(line, 0, "%7s %u more mapping%s", "", n, n == 1 ? "" : "s");
	return line;
}

static void print_maps(FILE *f, const struct process *p)
{
	char line[LINE_MAX_LEN];

	for (unsigned i = 0; i < p->shown; i++) {
		line_map(line, &p->map[i]);
		fprintf(f, "%s\n", line);
	}
	if (p->mappings > p->shown)
		fprintf(f, "%s\n", line_more(line, p));
}

const char *line_tier(char line[LINE_MAX_LEN], const struct umstat *st, unsigned tier)
{
	char bytes[16];

	print_bytes(bytes, sizeof(bytes), (double)st->tier_bytes[tier]);
	append(line, 0, "%7s tier %u: %s; loads %" PRIu64 ", promotions %" PRIu64
	       ", demotions %" PRIu64 ", hits %" PRIu64, "", tier, bytes, st->tier_loads[tier],
	       st->tier_promotions[tier], st->tier_demotions[tier], st->tier_hits[tier]);
	return line;
}

void print_text(FILE *f, const struct view *view, const struct options *o)
{
	char line[LINE_MAX_LEN];

	line_summary(line, view);
	fprintf(f, "%s\n", line);
	line_titles(line);
	fprintf(f, "%s\n", line);
	for (unsigned i = 0; i < view->count; i++) {
		const struct process *p = &view->process[i];

		if (!view_matches(p, o->filter))
			continue;
		line_process(line, p);
		fprintf(f, "%s\n", line);
		for (unsigned k = 0; k < p->page.st.tiers; k++)
			fprintf(f, "%s\n", line_tier(line, &p->page.st, k));
		if (o->maps)
			print_maps(f, p);
	}
}

/* ---- JSON ---- */

static void json_string(FILE *f, const char *key, const char *text)
{
	fprintf(f, "\"%s\": ", key);
	print_json_string(f, text);
}

static void json_values(FILE *f, const struct row *row, enum column from)
{
	for (enum column c = from; c < COLUMNS; c++) {
		bool whole = columns[c].unit == NUMBER || columns[c].unit == BYTES;

		fprintf(f, ", \"%s\": ", columns[c].key);
		if (isnan(row->value[c]))
			fprintf(f, "null");
		else
			fprintf(f, "%.*f", whole ? 0 : 3, row->value[c]);
	}
}

static void json_map(FILE *f, const struct row *map)
{
	fprintf(f, "{");
	json_string(f, "name", map->name);
	fprintf(f, ", \"base\": %" PRIu64 ", \"size\": %" PRIu64 ", \"seg_size\": %" PRIu64
		", \"transfer_bytes\": %" PRIu64 ", \"commit_bytes\": %" PRIu64 ", \"sharers\": %"
		PRIu64, map->base, map->size, map->seg_size, map->transfer_bytes,
		map->commit_bytes, map->sharers);
	json_values(f, map, BUDGET);
	fprintf(f, "}");
}

static void json_tiers(FILE *f, const struct umstat *st)
{
	fprintf(f, ", \"tiers\": [");
	for (unsigned i = 0; i < st->tiers; i++)
		fprintf(f, "%s{\"bytes\": %" PRIu64 ", \"loads\": %" PRIu64 ", \"promotions\": %"
			PRIu64 ", \"demotions\": %" PRIu64 ", \"hits\": %" PRIu64 "}",
			i ? ", " : "", st->tier_bytes[i], st->tier_loads[i],
			st->tier_promotions[i], st->tier_demotions[i], st->tier_hits[i]);
	fprintf(f, "]");
}

static void json_process(FILE *f, const struct process *p)
{
	fprintf(f, "{");
	json_string(f, "name", p->self.name);
	fprintf(f, ", \"mode\": \"%s\", \"limit\": %" PRIu64 ", \"mappings\": %u",
		p->dynamic ? "dynamic" : "static", p->limit, p->mappings);
	json_values(f, &p->self, PID);
	json_tiers(f, &p->page.st);
	fprintf(f, ", \"maps\": [");
	for (unsigned i = 0; i < p->shown; i++) {
		fprintf(f, i ? ",\n    " : "\n    ");
		json_map(f, &p->map[i]);
	}
	fprintf(f, "]}");
}

void print_json(FILE *f, const struct view *view, const struct options *o)
{
	bool first = true;

	fprintf(f, "{");
	json_string(f, "table", view->path);
	fprintf(f, ", \"time_ms\": %" PRIu64 ", \"limit\": %.0f, \"held\": %.0f, \"processes\": [",
		sys_now(), view->limit, view->held);
	for (unsigned i = 0; i < view->count; i++) {
		if (!view_matches(&view->process[i], o->filter))
			continue;
		fprintf(f, first ? "\n  " : ",\n  ");
		json_process(f, &view->process[i]);
		first = false;
	}
	fprintf(f, "]}\n");
}
