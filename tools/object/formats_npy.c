/* SPDX-License-Identifier: BSD-3-Clause */
/* NumPy files of versions 1 to 3: a header in the form of a Python dictionary, then the elements.
 */
#include "formats.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEAD_MAX 65536

static const char within_head[] = "it ends within its head";

static const struct {
	const char *code;
	enum umobject_type type;
} codes[] = {
	{ "|i1", UMOBJECT_INT8 },   { "|u1", UMOBJECT_UINT8 },    { "<i2", UMOBJECT_INT16 },
	{ "<u2", UMOBJECT_UINT16 }, { "<i4", UMOBJECT_INT32 },    { "<u4", UMOBJECT_UINT32 },
	{ "<i8", UMOBJECT_INT64 },  { "<u8", UMOBJECT_UINT64 },   { "<f4", UMOBJECT_FLOAT },
	{ "<f8", UMOBJECT_DOUBLE }, { "<f16", UMOBJECT_LDOUBLE },
};

/* Returns the text after a key of the header. */
static const char *value_of(const char *head, const char *key)
{
	const char *at = strstr(head, key);

	at = at ? strchr(at, ':') : NULL;
	return at ? at + 1 + strspn(at + 1, " ") : NULL;
}

static int take_type(struct array *a, const char *text)
{
	size_t i, len;

	for (i = 0; text && (*text == '\'' || *text == '"') && i < sizeof(codes) / sizeof(*codes);
	     i++) {
		len = strlen(codes[i].code);
		if (strncmp(text + 1, codes[i].code, len) == 0 &&
		    (text[1 + len] == '\'' || text[1 + len] == '"')) {
			a->shape.type = codes[i].type;
			return 0;
		}
	}
	text = text ? text : "none";
	/* The message shows the text up to the next key. */
	len = strcspn(text, *text == '[' ? "]" : ",}\n");
	return array_fail(a, "%s has elements of a type that objects do not have: %.*s", a->path,
			  len < 40 ? (int)len : 40, text);
}

static int take_dims(struct array *a, const char *text)
{
	a->shape.rank = 0;
	if (!text || *text++ != '(')
		return array_fail(a, "%s does not say its shape", a->path);
	for (;;) {
		char *end;

		text += strspn(text, " ,L");
		if (*text == ')')
			return 0;
		if (*text < '0' || *text > '9' || a->shape.rank == UMOBJECT_RANK_MAX)
			return array_fail(a, "%s has a shape that no object has", a->path);
		a->shape.dims[a->shape.rank++] = strtoull(text, &end, 10);
		text = end;
	}
}

int npy_open(struct array *a)
{
	unsigned char begin[12];
	const char *order;
	char *head;
	size_t len;
	int result;

	if (read_bytes(a, begin, 10, within_head) < 0)
		return -1;
	if (memcmp(begin, "\x93NUMPY", 6) != 0 || begin[6] < 1 || begin[6] > 3)
		return array_fail(a,
				  "%s is no file of NumPy, or of a version that is not known here",
				  a->path);
	len = begin[8] | (size_t)begin[9] << 8;
	if (begin[6] > 1) {
		if (read_bytes(a, begin + 10, 2, within_head) < 0)
			return -1;
		len |= (size_t)begin[10] << 16 | (size_t)begin[11] << 24;
	}
	if (len > HEAD_MAX)
		return array_fail(a, "%s has a head of %zu bytes: it is damaged", a->path, len);
	head = calloc(1, len + 1);
	if (!head)
		return array_fail(a, "no memory");
	result = read_bytes(a, head, len, within_head);
	order = result == 0 ? value_of(head, "'fortran_order'") : NULL;
	if (result == 0 && !order)
		result = array_fail(a, "%s does not say its order: its head is damaged", a->path);
	else if (result == 0 && strncmp(order, "False", 5) != 0)
		result = array_fail(
			a, "%s is in Fortran's order: numpy.ascontiguousarray makes it C's",
			a->path);
	if (result == 0 && (take_type(a, value_of(head, "'descr'")) < 0 ||
			    take_dims(a, value_of(head, "'shape'")) < 0))
		result = -1;
	free(head);
	return result;
}

int npy_create(struct array *a)
{
	char head[2048] = "\x93NUMPY\x01", dims[1024] = "";
	size_t i, n = 0, len;
	unsigned d;

	for (i = 0; codes[i].type != a->shape.type; i++)
		;
	for (d = 0; d < a->shape.rank; d++)
		n += (size_t)snprintf(dims + n, sizeof(dims) - n, "%llu%s",
				      (unsigned long long)a->shape.dims[d],
				      d + 1 < a->shape.rank ? ", " :
				      a->shape.rank == 1    ? "," :
							      "");
	len = 10 + (size_t)snprintf(head + 10, sizeof(head) - 10,
				    "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }",
				    codes[i].code, dims);
	while ((len + 1) % 64)
		head[len++] = ' ';
	head[len++] = '\n';
	head[8] = (char)((len - 10) & 0xff);
	head[9] = (char)((len - 10) >> 8);
	return write_bytes(a, head, len);
}
