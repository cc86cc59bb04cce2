/* SPDX-License-Identifier: BSD-3-Clause */
#include "object/hdf5.h"

#include "object/error.h"
#include "object/id.h"

#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

static const char magic[8] = "UMVIEW\r\n";

struct header {
	char magic[8];
	struct umobject_id id;
	uint64_t size; /* bytes of the file */
	uint64_t sum;  /* checksum of the file, with 0 here */
};

static uint64_t checksum_view(const struct header *header, const struct bytes *view)
{
	struct header copy = *header;

	copy.sum = 0;
	return XXH3_64bits_withSeed((const char *)view->data + sizeof(copy),
				    view->size - sizeof(copy), XXH3_64bits(&copy, sizeof(copy)));
}

void view_seal(struct bytes *view, const struct umobject_id *id)
{
	struct header header = { .id = *id, .size = view->size };

	memcpy(header.magic, magic, sizeof(magic));
	memset(view->data, 0, VIEW_HEADER_BYTES);
	header.sum = checksum_view(&header, view);
	memcpy(view->data, &header, sizeof(header));
}

int view_verify(const struct bytes *view, const struct umobject_id *id)
{
	struct header header;
	char text[ID_TEXT];

	id_text(id, text);
	if (view->size < VIEW_HEADER_BYTES)
		return object_fail(EBADMSG, "the view '%s.h5' is damaged: it is too short", text);
	memcpy(&header, view->data, sizeof(header));
	if (memcmp(header.magic, magic, sizeof(magic)) != 0 || header.size != view->size ||
	    header.sum != checksum_view(&header, view))
		return object_fail(EBADMSG, "the view '%s.h5' is damaged: its checksum is wrong",
				   text);
	if (!id_same(&header.id, id))
		return object_fail(EBADMSG, "the view '%s.h5' is damaged: it is the view of "
				   "another version", text);
	return 0;
}
