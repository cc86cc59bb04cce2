/* SPDX-License-Identifier: BSD-3-Clause */
/* Keys need no escapes. Texts may come from the command line, and are escaped. */
#include "report.h"

#include "kit/common.h"

static void put_text(FILE *out, const char *text)
{
	fputc('"', out);
	for (; *text; text++) {
		if (*text == '"' || *text == '\\')
			fputc('\\', out);
		if ((unsigned char)*text < ' ')
			fprintf(out, "\\u%04x", *text);
		else
			fputc(*text, out);
	}
	fputc('"', out);
}

struct report report_begin(const char *path, const char *program)
{
	struct report r = { NULL };

	if (!path)
		return r;
	r.out = fopen(path, "ae");
	if (!r.out)
		die("--json: %s: %s", path, strerror(errno));
	fprintf(r.out, "{\"program\":\"%s\"", program);
	return r;
}

void report_text(struct report *r, const char *key, const char *value)
{
	if (!r->out)
		return;
	fprintf(r->out, ",\"%s\":", key);
	put_text(r->out, value);
}

void report_number(struct report *r, const char *key, double value)
{
	if (r->out)
		fprintf(r->out, ",\"%s\":%.10g", key, value);
}

void report_end(struct report *r)
{
	if (!r->out)
		return;
	fputs("}\n", r->out);
	if (fclose(r->out))
		die("--json: %s", strerror(errno));
}
