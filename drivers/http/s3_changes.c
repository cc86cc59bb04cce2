/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Each block of the temporary file has the number of the flush that includes it, in `blocks`. A
 * block that a later flush has included stays in the file, so a read never depends on whether a
 * flush has just ended.
 *
 * A flush divides the object into units. An object of one unit is written by one PUT. Otherwise, a
 * unit with written blocks is one part of a multipart upload, and the other units are parts that
 * the server copies from the present object. Neither replaces the object before it is complete.
 *
 * Locks: `flushing`, for flushes; then `lock`, for writes and the fields after it.
 */
#include "s3_changes.h"

#include "../blockmap.h"
#include "../keys.h"
#include "common/futex.h"
#include "common/minmax.h"
#include "common/random.h"
#include "loop.h"
#include "remote.h"
#include "s3_calls.h"
#include "s3_bucket.h"
#include "options.h"
#include "whole.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BLOCK 4096u
#define MAX_PARTS 10000u                     /* parts of an upload */
#define UNIT_STEP ((uint64_t)1 << 20)        /* units of long objects are multiples of this */
#define MAX_COPY_BYTES ((uint64_t)256 << 20) /* longest copied part, if it is no single unit */
#define MAX_BUFFER_BYTES ((uint64_t)64 << 20) /* memory for parts that are being sent */
#define MAX_UPLOADS 16u                      /* requests at a time */

struct changes {
	struct remote *remote;
	struct s3_calls *calls;
	uint64_t id;                   /* random number in the marks of its versions */
	char *source;                  /* encoded name of the object for copies, BUCKET/KEY */
	int fd;                        /* temporary file */
	_Atomic uint32_t flushing;
	_Atomic uint32_t lock;
	struct blockmap blocks;        /* number of the flush for each block of the file */
	uint64_t turn;                 /* number of the next flush */
	uint64_t done;                 /* number of the last successful flush */
	_Atomic uint64_t size;         /* length of the store */
	_Atomic uint64_t limit;        /* bytes from here on are not those of the object */
	uint64_t next_limit;           /* value of `limit` after the running flush */
	bool is_dirty;                 /* whether there are changes since the begin of a flush */
	bool has_noticed;              /* whether a failed flush has been reported */
};

/* The new version that a flush makes. Blocks with numbers from done + 1 to turn are new. */
struct version {
	struct changes *c;
	uint64_t size, unit;           /* bytes of the object and of a unit */
	uint64_t limit;                /* bytes from here on are not those of the present object */
	struct validator base;         /* present object */
	char mark[MAX_MARK_BYTES];     /* mark of this version, ID.FLUSH, to recognize it */
	char etag[MAX_ETAG_BYTES];     /* ETag of this version */
	char upload[1100];             /* encoded id of the multipart upload */
	struct part *parts;
	struct s3_call *calls;         /* one for each part */
	unsigned n;                    /* number of parts */
	int64_t end;                   /* time in ms at which all requests fail; 0: none */
	char why[UMMAP_WHY_BYTES];     /* reason of a failure */
};

struct part {
	uint64_t off, len;
	bool is_copy;                  /* whether the server copies the part */
	struct iovec body;
	char query[1200];
	char etag[MAX_ETAG_BYTES];
};

/* ---- The temporary file ---- */

static int transfer_file(int fd, char *buf, size_t len, uint64_t off, bool is_write)
{
	while (len > 0) {
		ssize_t n = is_write ? pwrite(fd, buf, len, (off_t)off) :
				       pread(fd, buf, len, (off_t)off);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0 && is_write)
			return -EIO;
		/* The file may be shorter than the store. */
		if (n == 0) {
			memset(buf, 0, len);
			return 0;
		}
		buf += n;
		len -= (size_t)n;
		off += (uint64_t)n;
	}
	return 0;
}

/* Reads bytes that were not written. */
static int read_object(const struct changes *c, char *buf, size_t len, uint64_t off)
{
	uint64_t limit = c->limit;
	size_t inside = off < limit ? (size_t)min_u64(len, limit - off) : 0;

	memset(buf + inside, 0, len - inside);
	return inside ? remote_read(c->remote, buf, inside, off) : 0;
}

/* The bytes from off on, at most len, that are all in the file or all not. */
static size_t find_run(struct changes *c, size_t len, uint64_t off, bool *is_local)
{
	uint64_t first = off / BLOCK, n = (off + len - 1) / BLOCK - first + 1, value, run = 0;

	do {
		run += blockmap_run(&c->blocks, first + run, n - run, 0, &value);
		if (run == n || !value)
			break;
	} while (blockmap_get(&c->blocks, first + run));
	*is_local = value;
	return (size_t)min_u64(len, (first + run) * BLOCK - off);
}

bool changes_are_remote(struct changes *c, uint64_t off, size_t len)
{
	bool is_local;

	return off + len <= c->limit && find_run(c, len, off, &is_local) == len && !is_local;
}

int changes_read(struct changes *c, void *buf, size_t len, uint64_t off)
{
	int err = 0;

	for (char *to = buf; len > 0 && !err;) {
		bool is_local;
		size_t n = find_run(c, len, off, &is_local);

		err = is_local ? transfer_file(c->fd, to, n, off, false) :
				 read_object(c, to, n, off);
		to += n;
		len -= n;
		off += n;
	}
	return err;
}

/* Copies a block of the object into the file, unless it is there, or all its bytes up to the end
 * of the object are in [off, end). */
static int fill_block_locked(struct changes *c, uint64_t block, uint64_t off, uint64_t end)
{
	uint64_t at = block * BLOCK, limit = min_u64(c->limit, at + BLOCK);
	char bytes[BLOCK];
	int err;

	if (limit <= at || (off <= at && end >= limit) || blockmap_get(&c->blocks, block))
		return 0;
	err = read_object(c, bytes, BLOCK, at);
	return err ? err : transfer_file(c->fd, bytes, BLOCK, at, true);
}

static int write_locked(struct changes *c, const void *buf, size_t len, uint64_t off)
{
	uint64_t first = off / BLOCK, last = (off + len - 1) / BLOCK, end = off + len;
	int err = blockmap_reserve(&c->blocks, first, last - first + 1);

	if (!err)
		err = fill_block_locked(c, first, off, end);
	if (!err && last != first)
		err = fill_block_locked(c, last, off, end);
	if (!err)
		err = transfer_file(c->fd, (char *)(uintptr_t)buf, len, off, true);
	if (err)
		return err;
	for (uint64_t block = first; block <= last; block++)
		blockmap_set(&c->blocks, block, c->turn);
	c->size = max_u64(c->size, end);
	c->is_dirty = true;
	return 0;
}

int changes_write(struct changes *c, const void *buf, size_t len, uint64_t off)
{
	int err;

	if (len == 0)
		return 0;
	futex_lock(&c->lock);
	err = write_locked(c, buf, len, off);
	futex_unlock(&c->lock);
	return err;
}

int changes_resize(struct changes *c, uint64_t size)
{
	int err = 0;

	futex_lock(&c->lock);
	if (size < c->size && ftruncate(c->fd, (off_t)size) != 0)
		err = -errno;
	if (!err && size != c->size) {
		c->limit = min_u64(c->limit, size);
		c->next_limit = min_u64(c->next_limit, size);
		c->size = size;
		c->is_dirty = true;
	}
	futex_unlock(&c->lock);
	return err;
}

uint64_t changes_size(const struct changes *c)
{
	return c->size;
}

/* ---- The parts of a version ---- */

static bool is_changed(struct changes *c, uint64_t off, uint64_t end)
{
	uint64_t block = off / BLOCK, value;

	for (; blockmap_next(&c->blocks, &block, &value) && block * BLOCK < end; block++) {
		if (value > c->done)
			return true;
	}
	return false;
}

/* Appends a unit, or lengthens the copied part before it. */
static void add_unit(struct version *v, uint64_t off, uint64_t len)
{
	bool is_copy = off + len <= v->limit && !is_changed(v->c, off, off + len);
	struct part *last = v->n ? &v->parts[v->n - 1] : NULL;

	if (last && last->is_copy && is_copy && last->len + len <= MAX_COPY_BYTES)
		last->len += len;
	else
		v->parts[v->n++] = (struct part){ .off = off, .len = len, .is_copy = is_copy };
}

static int divide(struct version *v)
{
	uint64_t units = (v->size + v->unit - 1) / v->unit;

	v->parts = calloc(units, sizeof(*v->parts));
	v->calls = calloc(units, sizeof(*v->calls));
	if (!v->parts || !v->calls)
		return -ENOMEM;
	for (uint64_t off = 0; off < v->size; off += v->unit)
		add_unit(v, off, min_u64(v->unit, v->size - off));
	return 0;
}

static int load_body(struct version *v, struct iovec *body, uint64_t off, uint64_t len)
{
	int err;

	body->iov_base = malloc(len + 1);
	body->iov_len = len;
	if (!body->iov_base)
		return -ENOMEM;
	err = changes_read(v->c, body->iov_base, len, off);
	if (err) {
		futex_lock(&v->c->remote->lock);
		snprintf(v->why, sizeof(v->why), "cannot read the other bytes of a part: %.300s",
			 *v->c->remote->why ? v->c->remote->why : strerror(-err));
		futex_unlock(&v->c->remote->lock);
	}
	return err;
}

static int begin_copy(const struct version *v, const struct part *p, struct s3_call *call)
{
	char range[64];
	int err;

	snprintf(range, sizeof(range), "bytes=%" PRIu64 "-%" PRIu64, p->off, p->off + p->len - 1);
	err = options_add_line(&call->lines, "x-amz-copy-source", v->c->source);
	if (!err)
		err = options_add_line(&call->lines, "x-amz-copy-source-range", range);
	if (!err)
		err = options_add_line(&call->lines, "x-amz-copy-source-if-match", v->base.etag);
	return err;
}

static int begin_part(void *arg, struct s3_call *call)
{
	struct version *v = arg;
	struct part *p = &v->parts[call - v->calls];

	snprintf(p->query, sizeof(p->query), "partNumber=%u&uploadId=%s",
		 (unsigned)(p - v->parts) + 1, v->upload);
	call->query = p->query;
	if (p->is_copy)
		return begin_copy(v, p, call);
	call->body = &p->body;
	call->nbody = 1;
	return load_body(v, &p->body, p->off, p->len);
}

/* Finds the ETag in the body of an answer, where some servers leave out the quotes that it has in
 * headers. Returns false if there is none. */
static bool find_etag(const struct s3_call *call, char etag[MAX_ETAG_BYTES])
{
	const char *at = call->answer;
	char text[MAX_ETAG_BYTES - 2];

	if (!s3_element(&at, "ETag", text, sizeof(text)) || !*text)
		return false;
	snprintf(etag, MAX_ETAG_BYTES, *text == '"' ? "%s" : "\"%s\"", text);
	return true;
}

/* The answer to a copy has the ETag in its body. */
static int end_part(void *arg, struct s3_call *call)
{
	struct version *v = arg;
	struct part *p = &v->parts[call - v->calls];

	free(p->body.iov_base);
	p->body.iov_base = NULL;
	if (!p->is_copy)
		strcpy(p->etag, call->head.etag);
	else
		find_etag(call, p->etag);
	if (*p->etag)
		return 0;
	snprintf(call->why, sizeof(call->why), "the answer of the server has no ETag");
	return -EIO;
}

/* ---- Requests ---- */

static int keep_reason(struct version *v, const struct s3_call *call, int err)
{
	if (err && !*v->why)
		snprintf(v->why, sizeof(v->why), "%s", *call->why ? call->why : strerror(-err));
	return err;
}

/* After a failure, the other requests of the flush together take a quarter of the timeout, so a
 * server that is gone does not use up the timeout for each of them. */
static void limit_rest(struct version *v)
{
	if (!v->end)
		v->end = loop_now() + (int64_t)max_u64(v->c->remote->keys.timeout * 250, 1000);
}

static int lose(struct version *v)
{
	snprintf(v->why, sizeof(v->why), "another program has replaced the object since it was "
		 "mapped, and nothing was overwritten. Try to copy the mapping to another object");
	return -ESTALE;
}

/* Looks at the present object. Its ETag is "" if there is no object. */
static int look(struct version *v, struct answer *head)
{
	struct s3_call call = { .method = "HEAD", .end = v->end };
	int err = s3_call(v->c->calls, &call);

	*head = call.head;
	if (!err && !*head->etag) {
		err = -EIO;
		snprintf(call.why, sizeof(call.why), "the answer of the server has no ETag");
	}
	err = err == -ENOENT ? 0 : keep_reason(v, &call, err);
	s3_call_free(&call);
	return err;
}

/* Makes a version of the handle the state of the object that loads expect. */
static void adopt(struct remote *remote, const char *etag, uint64_t size)
{
	futex_lock(&remote->lock);
	remote->object = (struct validator){ .total = size };
	strcpy(remote->object.etag, etag);
	futex_unlock(&remote->lock);
	remote->total = size;
	remote->version++;
}

/* Whether a flush that has failed since the last successful one has made the object. */
static bool is_of_failed_flush(const struct changes *c, const struct answer *head)
{
	uint64_t id, flush;

	return sscanf(head->mark, "%" SCNx64 ".%" SCNu64, &id, &flush) == 2 && id == c->id &&
	       flush > c->done && head->has_length;
}

/* Servers that ignore conditions of uploads are older ones. For these, only this request detects
 * that another program has replaced the object. A version of a flush that has failed, because its
 * answer was lost or came late, becomes the present object. */
static int check_base(struct version *v)
{
	struct answer head;
	int err = look(v, &head);

	if (err || strcmp(head.etag, v->base.etag) == 0)
		return err;
	if (!is_of_failed_flush(v->c, &head))
		return lose(v);
	adopt(v->c->remote, head.etag, head.length);
	v->base = v->c->remote->object;
	return 0;
}

/* Decides whether a request that should replace the object has done so. Its answer may be lost or
 * incomplete, or a gateway's; a repetition then fails because of the success. The answer of Ceph's
 * server to the end of an upload has no ETag. */
static int judge_replacement(struct version *v, struct s3_call *call, int err)
{
	struct answer head;

	if (!err && *v->etag)
		return 0;
	if (err) {
		keep_reason(v, call, err);
		limit_rest(v);
	}
	if (look(v, &head) == 0 && strcmp(head.mark, v->mark) == 0) {
		strcpy(v->etag, head.etag);
		return 0;
	}
	return err ? err : -EIO;
}

/* Makes the request that replaces the object. */
static int replace(struct version *v, struct s3_call *call)
{
	struct remote *remote = v->c->remote;
	int err = check_base(v);

	if (err)
		return err;
	call->etag = v->base.etag;
	remote->is_replacing = true;
	err = s3_call(v->c->calls, call);
	if (!err && !find_etag(call, v->etag))
		strcpy(v->etag, call->head.etag);
	err = judge_replacement(v, call, err);
	if (!err)
		adopt(remote, v->etag, v->size);
	remote->is_replacing = false;
	return err;
}

static int put_object(struct version *v)
{
	struct s3_call call = { .method = "PUT" };
	struct iovec body = { NULL, 0 };
	int err = load_body(v, &body, 0, v->size);

	call.body = &body;
	call.nbody = 1;
	if (!err)
		err = options_add_line(&call.lines, "x-amz-meta-ummap-version", v->mark);
	if (!err)
		err = replace(v, &call);
	free(body.iov_base);
	s3_call_free(&call);
	return err;
}

/* ---- Multipart uploads ---- */

static int begin_upload(struct version *v)
{
	struct s3_call call = { .method = "POST", .query = "uploads=" };
	char id[sizeof(v->upload) / 3];
	int err = options_add_line(&call.lines, "x-amz-meta-ummap-version", v->mark);
	const char *at;

	if (!err)
		err = keep_reason(v, &call, s3_call(v->c->calls, &call));
	at = call.answer;
	if (!err && s3_element(&at, "UploadId", id, sizeof(id)) && *id)
		s3_encode(v->upload, id, "");
	else if (!err)
		err = -EIO;
	s3_call_free(&call);
	return err;
}

/* If the request fails, the upload remains until the bucket's rules end it. */
static void abort_upload(struct version *v)
{
	struct s3_call call = { .method = "DELETE" };
	char query[sizeof(v->upload) + 20];

	limit_rest(v);
	call.end = v->end;
	snprintf(query, sizeof(query), "uploadId=%s", v->upload);
	call.query = query;
	s3_call(v->c->calls, &call);
	s3_call_free(&call);
}

static int send_parts(struct version *v)
{
	unsigned parallel = (unsigned)min_u64(MAX_BUFFER_BYTES / v->unit + 1, MAX_UPLOADS);
	int err;

	for (unsigned i = 0; i < v->n; i++)
		v->calls[i].method = "PUT";
	err = s3_run(v->c->calls, v->calls, v->n, parallel, begin_part, end_part, v);
	for (unsigned i = 0; i < v->n; i++) {
		if (v->calls[i].res == err)
			keep_reason(v, &v->calls[i], err);
		free(v->parts[i].body.iov_base);
		s3_call_free(&v->calls[i]);
	}
	return err;
}

/* The list of parts, which completes the upload. */
static int complete_upload(struct version *v)
{
	struct s3_call call = { .method = "POST" };
	char query[sizeof(v->upload) + 20];
	struct iovec body;
	FILE *list = open_memstream((char **)&body.iov_base, &body.iov_len);
	int err;

	if (!list)
		return -ENOMEM;
	fprintf(list, "<CompleteMultipartUpload>");
	for (unsigned i = 0; i < v->n; i++)
		fprintf(list, "<Part><PartNumber>%u</PartNumber><ETag>%s</ETag></Part>", i + 1,
			v->parts[i].etag);
	fprintf(list, "</CompleteMultipartUpload>");
	if (fclose(list) != 0)
		return -ENOMEM;
	snprintf(query, sizeof(query), "uploadId=%s", v->upload);
	call.query = query;
	call.body = &body;
	call.nbody = 1;
	err = replace(v, &call);
	free(body.iov_base);
	s3_call_free(&call);
	return err;
}

static int upload(struct version *v)
{
	int err = divide(v);

	if (!err)
		err = check_base(v);
	if (!err)
		err = begin_upload(v);
	if (err)
		return err;
	err = send_parts(v);
	if (!err)
		err = complete_upload(v);
	if (err)
		abort_upload(v);
	return err;
}

/* ---- Flushing ---- */

/* Returns false if there are no changes. */
static bool begin_version(struct changes *c, struct version *v)
{
	uint64_t least;
	bool is_dirty;

	futex_lock(&c->lock);
	is_dirty = c->is_dirty;
	c->is_dirty = false;
	*v = (struct version){ .c = c, .size = c->size, .limit = c->limit,
			       .base = c->remote->object };
	c->next_limit = v->size;
	snprintf(v->mark, sizeof(v->mark), "%" PRIx64 ".%" PRIu64, c->id, c->turn);
	c->turn++;
	futex_unlock(&c->lock);
	least = (v->size + MAX_PARTS - 1) / MAX_PARTS;
	least = (least + UNIT_STEP - 1) / UNIT_STEP * UNIT_STEP;
	v->unit = max_u64(c->remote->keys.part, least);
	return is_dirty;
}

static void end_version(struct changes *c, int err)
{
	futex_lock(&c->lock);
	if (err) {
		c->is_dirty = true;
	} else {
		c->limit = c->next_limit;
		c->done = c->turn - 1;
	}
	futex_unlock(&c->lock);
}

static int flush_locked(struct changes *c)
{
	struct version v;
	int err;

	if (!begin_version(c, &v))
		return 0;
	err = v.size <= v.unit ? put_object(&v) : upload(&v);
	if (err) {
		/* A replacement of the object may be the reason of any error. Other errors are
		 * those of a server that refuses a request, such as one for a missing bucket. */
		limit_rest(&v);
		if (check_base(&v) == -ESTALE)
			err = -ESTALE;
		else if (err != -EACCES && err != -ENOMEM)
			err = -EIO;
	}
	free(v.parts);
	free(v.calls);
	end_version(c, err);
	if (err && !c->has_noticed)
		notice_give(&c->remote->notice, "cannot write a new version of '%.200s': %s",
			    c->remote->shown, *v.why ? v.why : strerror(-err));
	c->has_noticed = err;
	return -err;
}

/* After a failure, all changes are still there. */
int changes_flush(struct changes *c)
{
	int err;

	futex_lock(&c->flushing);
	err = flush_locked(c);
	futex_unlock(&c->flushing);
	return err;
}

/* ---- Opening ---- */

/* An object without bytes is empty, or missing: then it is to be created. */
static int look_at_empty(struct changes *c, struct ummap_geom *geom)
{
	struct version v = { .c = c };
	struct answer head;
	int err = look(&v, &head);

	strcpy(c->remote->object.etag, head.etag);
	c->is_dirty = !*c->remote->object.etag;
	return err ? keys_refuse(geom, -err, "cannot open '%.150s': %.200s", c->remote->shown,
				 v.why) : 0;
}

int changes_open(struct remote *remote, struct changes **changes, struct ummap_geom *geom)
{
	struct changes *c;
	const char *name = remote->shown + strlen("s3:");

	int err;

	if (remote->total && !*remote->object.etag)
		return keys_refuse(geom, EOPNOTSUPP, "cannot write to '%.200s': the server sends "
				   "no ETag, so a change by another program cannot be detected",
				   remote->shown);
	c = calloc(1, sizeof(*c));
	if (!c)
		return -ENOMEM;
	*c = (struct changes){ .remote = remote, .id = random_id(), .fd = -1, .turn = 1,
			       .size = remote->total, .limit = remote->total };
	c->source = malloc(3 * strlen(name) + 1);
	c->calls = s3_calls_new(remote);
	if (!c->source || !c->calls) {
		changes_close(c, false);
		return -ENOMEM;
	}
	s3_encode(c->source, name, "/");
	err = *remote->object.etag ? 0 : look_at_empty(c, geom);
	if (!err) {
		c->fd = whole_make_file(geom);
		err = c->fd < 0 ? c->fd : 0;
	}
	if (err)
		changes_close(c, false);
	else
		*changes = c;
	return err;
}

void changes_close(struct changes *c, bool is_foreign)
{
	if (!is_foreign)
		s3_calls_free(c->calls);
	blockmap_free(&c->blocks);
	if (c->fd >= 0)
		close(c->fd);
	free(c->source);
	free(c);
}
