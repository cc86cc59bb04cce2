/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Records of containers: messages of objects and containers with valid checksums and unusual
 * contents, and damaged chunks. An object that is accepted is consistent, and data that is read
 * from a chunk is the data that was written.
 */
#include "fuzz.h"

/* This program makes headers and their checksums, too. */
#include "object/chunk.c"

#include "object/message.h"
#include "object/object.pb-c.h"

#define BYTES (3 * CHUNK_BLOCK + 77)

/* ---- Messages ---- */

static struct bytes wrap_bytes(struct input *in, uint8_t *inner, size_t len)
{
	Ummap__Stored stored = UMMAP__STORED__INIT;
	struct bytes outer;

	stored.object.data = inner;
	stored.object.len = len;
	stored.checksum = take_or(in, XXH3_64bits(inner, len));
	outer.size = ummap__stored__get_packed_size(&stored);
	outer.data = malloc(outer.size);
	ummap__stored__pack(&stored, outer.data);
	return outer;
}

static struct bytes wrap_packed(struct input *in, const ProtobufCMessage *m)
{
	size_t len = protobuf_c_message_get_packed_size(m), n = take(in) % 4;
	uint8_t *inner = malloc(len ? len : 1);
	struct bytes outer;

	protobuf_c_message_pack(m, inner);
	while (n-- && len)
		inner[take_number(in) % len] ^= take(in);
	outer = wrap_bytes(in, inner, len);
	free(inner);
	return outer;
}

static void check_object(const struct bytes *bytes)
{
	struct object *o = object_unpack(bytes, "it"), *again;
	uint64_t chunks, end = 0;
	size_t i;

	if (!o)
		return;
	chunks = umobject_chunks(&o->shape);
	must(chunks > 0 && *o->name);
	for (i = 0; i < o->nsources; i++) {
		const struct source *s = &o->sources[i];

		must(s->first >= end && s->count > 0 && s->count <= chunks - s->first);
		must(object_source(o, s->first) == s &&
		     object_source(o, s->first + s->count - 1) == s);
		end = s->first + s->count;
	}
	must(object_add_source(o, &o->id, chunks - 1) == 0 && object_source(o, chunks - 1));
	again = object_copy(o);
	must(again && again->nsources == o->nsources && again->nattributes == o->nattributes &&
	     strcmp(again->name, o->name) == 0);
	object_free(again);
	object_free(o);
}

static void try_object(struct input *in)
{
	uint8_t id[17] = "0123456789abcdef", other[17] = "fedcba9876543210";
	uint8_t name[] = "name", value[] = "value";
	uint64_t dims[40], chunk[40];
	Ummap__Source sources[4], *psources[4];
	Ummap__Attribute attributes[3], *pattributes[3];
	Ummap__Object m = UMMAP__OBJECT__INIT;
	struct bytes bytes;
	size_t i;

	m.id = (ProtobufCBinaryData){ take_or(in, 16) % 18, id };
	m.name = (ProtobufCBinaryData){ take_or(in, 4) % 6, name };
	m.version = take_or(in, 1);
	m.type = (uint32_t)take_or(in, UMOBJECT_DOUBLE);
	m.n_dims = take_or(in, 2) % 40;
	m.n_chunk = take_or(in, m.n_dims) % 40;
	for (i = 0; i < 40; i++) {
		dims[i] = take_or(in, 10);
		chunk[i] = take_or(in, 3);
	}
	m.dims = dims;
	m.chunk = chunk;
	m.n_sources = take_or(in, 3) % 5;
	for (i = 0; i < 4; i++) {
		ummap__source__init(psources[i] = &sources[i]);
		sources[i].id = (ProtobufCBinaryData){ take_or(in, 16) % 18, take(in) % 2 ? id :
			other };
		sources[i].first = take_or(in, 4 * i);
		sources[i].count = take_or(in, 4);
	}
	m.sources = psources;
	m.n_attributes = take_or(in, 2) % 4;
	for (i = 0; i < 3; i++) {
		ummap__attribute__init(pattributes[i] = &attributes[i]);
		attributes[i].name = (ProtobufCBinaryData){ take_or(in, 3 - i) % 6, name };
		attributes[i].value = (ProtobufCBinaryData){ take_or(in, 5) % 7, value };
	}
	m.attributes = pattributes;
	bytes = wrap_packed(in, &m.base);
	check_object(&bytes);
	free(bytes.data);
}

static void try_container(struct input *in)
{
	uint8_t folder[] = "data";
	ProtobufCBinaryData devices[300];
	Ummap__Container m = UMMAP__CONTAINER__INIT;
	struct description d;
	struct bytes bytes;
	size_t i;

	m.format = (uint32_t)take_or(in, 1);
	m.keep = (uint32_t)take_or(in, 1);
	m.n_devices = take_or(in, 2) % 301;
	for (i = 0; i < m.n_devices; i++)
		devices[i] = (ProtobufCBinaryData){ take_or(in, 4) % 6, folder };
	m.devices = devices;
	bytes = wrap_packed(in, &m.base);
	if (description_unpack(&bytes, "it", &d) == 0) {
		must(d.keep > 0 && d.keep <= KEEP_MAX && d.ndevices > 0 &&
		     d.ndevices <= DEVICES_MAX);
		for (i = 0; i < d.ndevices; i++)
			must(*d.devices[i]);
		description_free(&d);
	}
	free(bytes.data);
}

static void try_bytes(struct input *in)
{
	size_t len = (size_t)(in->end - in->at);
	struct bytes inner = { malloc(len + 1), len }, bytes;
	struct input none = { NULL, NULL };
	struct description d;

	take_bytes(in, inner.data, len);
	check_object(&inner);
	if (description_unpack(&inner, "it", &d) == 0)
		description_free(&d);
	bytes = wrap_bytes(&none, inner.data, len);
	check_object(&bytes);
	if (description_unpack(&bytes, "it", &d) == 0)
		description_free(&d);
	free(bytes.data);
	free(inner.data);
}

/* ---- Chunks ---- */

static const struct umobject_id chunk_id = { "chunk" };
static uint8_t original[BYTES], *file;
static size_t file_size;
static uint8_t *kept;

static int memory_read(struct stored *s, void *to, size_t size, uint64_t at)
{
	(void)s;
	if (at > file_size || size > file_size - at) {
		errno = EBADMSG;
		return -1;
	}
	memcpy(to, file + at, size);
	return 0;
}

static void memory_close(struct stored *s)
{
	(void)s;
}

static const struct stored_ops memory_ops = { memory_read, memory_close };

static struct stored *memory_open(struct backend *b, const struct umobject_id *id, uint64_t number)
{
	static struct stored s = { &memory_ops };

	(void)b;
	(void)id;
	(void)number;
	return &s;
}

static const struct chunk_ops memory_chunks = { .open = memory_open };
static const struct backend_ops memory_backend = { .chunks = &memory_chunks };

/* Makes the chunk once, because HDF5 is slow. */
static void make_chunk(void)
{
	struct umobject_shape shape = { UMOBJECT_UINT8, 1, { BYTES }, { BYTES } };
	struct chunk_writer w = { 0 };
	struct iovec iov[CHUNK_PIECES];
	size_t i;

	for (i = 0; i < BYTES; i++)
		original[i] = (uint8_t)(i * 7 + i / 256);
	must(chunk_prepare(&w, &shape, &chunk_id, 0, original, iov) == 0);
	for (i = 0; i < CHUNK_PIECES; file_size += iov[i++].iov_len) {
		kept = realloc(kept, file_size + iov[i].iov_len);
		memcpy(kept + file_size, iov[i].iov_base, iov[i].iov_len);
	}
	file = malloc(file_size);
	chunk_writer_free(&w);
}

/* Changes fields of the header, with or without a checksum that matches. */
static void change_header(struct input *in)
{
	struct chunk_header *header = (struct chunk_header *)file;

	header->number = take_or(in, header->number);
	header->size = take_or(in, header->size);
	header->data = take_or(in, header->data);
	header->block = (uint32_t)take_or(in, header->block);
	header->blocks = (uint32_t)take_or(in, header->blocks);
	header->sums[take(in) % 4] ^= take(in);
	if (take(in) % 2 == 0 && header->blocks <= 4)
		header->sum = header_sum(header);
}

static void try_chunk(struct input *in)
{
	struct backend b = { &memory_backend };
	size_t n, at, size, whole = file_size;
	static uint8_t got[BYTES];
	struct chunk *c;

	memcpy(file, kept, file_size);
	change_header(in);
	for (n = take(in) % 4; n > 0; n--)
		file[take_number(in) % file_size] ^= take(in);
	if (take(in) % 8 == 1)
		file_size = take_number(in) % file_size;
	c = chunk_open(&b, &chunk_id, 0, BYTES);
	if (c) {
		for (n = 0; n < 4; n++) {
			at = take_number(in) % BYTES;
			size = take_number(in) % (BYTES - at + 1);
			if (chunk_read(c, got, size, at,
				       take_number(in) % (BYTES - at - size + 1)) == 0)
				must(memcmp(got, original + at, size) == 0);
		}
		chunk_close(c);
	}
	file_size = whole;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static void (*const kinds[])(struct input *) = { try_object, try_container, try_chunk,
		try_bytes };
	struct input in = { data, data + size };

	if (!file)
		make_chunk();
	kinds[take(&in) % 4](&in);
	return 0;
}
