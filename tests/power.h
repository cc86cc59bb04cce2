/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The driver "power", a disk that can lose power: power:NAME is a file on it. All requests are
 * recorded, and the disk can be cut off at any request. Then the files have the data of their last
 * flush. Of each later write, and of the request in flight, each sector of 512 bytes is written,
 * not written, or written in part, as a seed decides. Each later change of the length may have
 * happened, with those before it.
 *
 * A flush can be made to fail, as in the kernel: data written since the last flush can be read, but
 * become durable only if they are written again.
 */
#ifndef TESTS_POWER_H
#define TESTS_POWER_H

#include <ummap-driver.h>

#include "common.h"

#ifndef POWER_FILES
#define POWER_FILES 2
#endif
#ifndef POWER_CAP
#define POWER_CAP MIB          /* maximum size of a file in bytes */
#endif
#define POWER_SECTOR 512

struct power_file {
	char name[32];
	uint8_t *bytes;           /* POWER_CAP of them; zeros behind the size */
	uint64_t size;
};

enum power_kind { POWER_WRITE, POWER_RESIZE, POWER_FLUSH, POWER_FAILED_FLUSH };

struct power_op {
	enum power_kind kind;
	struct power_file *file;
	uint64_t off, len;        /* POWER_RESIZE: len is the size */
	uint8_t *data;
};

/* The requests since the recording began, and the disk before them. */
struct power_record {
	struct power_file before[POWER_FILES];
	struct power_op *ops;
	size_t n, room;
};

static struct power_file power_disk[POWER_FILES];
static struct power_record *power_recording;   /* NULL: none */
static pthread_mutex_t power_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic unsigned power_bad_flushes;     /* number of flushes that fail, of any file */
static _Atomic unsigned power_good_flushes;    /* number of flushes that succeed before these */
static uint64_t power_room = POWER_CAP; /* size in bytes beyond which a write fails (ENOSPC) */

/* Calls before and after requests; NULL: none. */
static void (*power_before_read)(const struct power_file *file);
static void (*power_before_write)(const struct power_file *file);
static void (*power_after_write)(const struct power_file *file);
static void (*power_before_flush)(const struct power_file *file);

/* ---- The driver ---- */

/* Records a request. The caller holds the lock. */
static inline void power_note(enum power_kind kind, struct power_file *f, const void *data,
			      uint64_t off, uint64_t len)
{
	struct power_record *r = power_recording;
	struct power_op op = { kind, f, off, len, NULL };

	if (!r)
		return;
	if (kind == POWER_WRITE) {
		op.data = malloc(len);
		memcpy(op.data, data, len);
	}
	if (r->n == r->room) {
		r->room = r->room * 2 + 64;
		r->ops = realloc(r->ops, r->room * sizeof(*r->ops));
		check(r->ops);
	}
	r->ops[r->n++] = op;
}

static inline struct power_file *power_file(const char *name)
{
	for (struct power_file *f = power_disk; f < power_disk + POWER_FILES; f++)
		if (f->bytes && strcmp(f->name, name) == 0)
			return f;
	return NULL;
}

static inline int power_open(const struct ummap_uri *uri, int oflags, void **h,
			     struct ummap_geom *geom)
{
	struct power_file *f = power_file(uri->path);

	*h = NULL;
	for (int i = 0; !f && i < POWER_FILES && oflags & UMMAP_O_CREATE; i++) {
		if (power_disk[i].bytes)
			continue;
		f = &power_disk[i];
		snprintf(f->name, sizeof(f->name), "%s", uri->path);
		f->bytes = calloc(1, POWER_CAP);
	}
	if (!f)
		return -ENOENT;
	*h = f;
	geom->size = f->size;
	geom->align = 1;
	geom->caps = UMMAP_CAP_PARALLEL |
		     (oflags & UMMAP_O_WRITE ? UMMAP_CAP_WRITE | UMMAP_CAP_GROW : 0);
	return 0;
}

static inline int power_close(void *h)
{
	(void)h;
	return 0;
}

static inline int power_read(void *h, void *buf, size_t len, uint64_t off)
{
	struct power_file *f = h;
	size_t inside = off < POWER_CAP ? POWER_CAP - off < len ? POWER_CAP - off : len : 0;

	if (power_before_read)
		power_before_read(f);
	pthread_mutex_lock(&power_lock);
	memcpy(buf, f->bytes + off, inside);
	memset((char *)buf + inside, 0, len - inside);
	pthread_mutex_unlock(&power_lock);
	return 0;
}

static inline int power_write(void *h, const void *buf, size_t len, uint64_t off)
{
	struct power_file *f = h;

	if (off + len > power_room)
		return -ENOSPC;
	if (power_before_write)
		power_before_write(f);
	pthread_mutex_lock(&power_lock);
	power_note(POWER_WRITE, f, buf, off, len);
	memcpy(f->bytes + off, buf, len);
	f->size = off + len > f->size ? off + len : f->size;
	pthread_mutex_unlock(&power_lock);
	if (power_after_write)
		power_after_write(f);
	return 0;
}

/* One request, as it is for a file. */
static inline int power_writev(void *h, const struct iovec *iov, int n, uint64_t off)
{
	static __thread uint8_t whole[POWER_CAP];
	size_t len = 0;

	for (int i = 0; i < n; len += iov[i++].iov_len) {
		check(len + iov[i].iov_len <= sizeof(whole));
		memcpy(whole + len, iov[i].iov_base, iov[i].iov_len);
	}
	return power_write(h, whole, len, off);
}

static inline int power_flush(void *h, uint64_t off, uint64_t len)
{
	bool fails;

	(void)off, (void)len;
	if (power_before_flush)
		power_before_flush(h);
	pthread_mutex_lock(&power_lock);
	fails = power_bad_flushes > 0 && power_good_flushes == 0;
	power_good_flushes -= power_good_flushes > 0;
	power_bad_flushes -= fails;
	power_note(fails ? POWER_FAILED_FLUSH : POWER_FLUSH, h, NULL, 0, 0);
	pthread_mutex_unlock(&power_lock);
	return fails ? -EIO : 0;
}

static inline void power_set_size(struct power_file *f, uint64_t size)
{
	if (size < f->size)
		memset(f->bytes + size, 0, f->size - size);
	f->size = size;
}

static inline int power_resize(void *h, uint64_t size)
{
	pthread_mutex_lock(&power_lock);
	power_note(POWER_RESIZE, h, NULL, 0, size);
	power_set_size(h, size);
	pthread_mutex_unlock(&power_lock);
	return 0;
}

static inline int power_size(void *h, uint64_t *size)
{
	*size = ((struct power_file *)h)->size;
	return 0;
}

static const struct ummap_driver power_driver = {
	.struct_size = sizeof(power_driver),
	.abi = UMMAP_DRIVER_ABI,
	.scheme = "power",
	.keys = "direct",
	.help = "power:NAME  files of a disk in memory that can lose power",
	.open = power_open,
	.close = power_close,
	.read = power_read,
	.write = power_write,
	.writev = power_writev,
	.flush = power_flush,
	.resize = power_resize,
	.size = power_size,
};

/* ---- Recording ---- */

static inline void power_copy_file(struct power_file *to, const struct power_file *from)
{
	uint8_t *bytes = to->bytes ? to->bytes : malloc(POWER_CAP);
	uint64_t size = from->size > to->size || !to->bytes ? from->size : to->size;

	if (!from->bytes)
		size = 0;
	if (!to->bytes)
		memset(bytes, 0, POWER_CAP);
	if (size)
		memcpy(bytes, from->bytes, size);
	*to = *from;
	to->bytes = bytes;
}

/* Empties the disk. */
static inline void power_erase(void)
{
	for (int i = 0; i < POWER_FILES; i++) {
		free(power_disk[i].bytes);
		memset(&power_disk[i], 0, sizeof(power_disk[i]));
	}
}

static inline void power_record_begin(struct power_record *r)
{
	memset(r, 0, sizeof(*r));
	for (int i = 0; i < POWER_FILES; i++)
		if (power_disk[i].bytes)
			power_copy_file(&r->before[i], &power_disk[i]);
	power_recording = r;
}

static inline size_t power_requests(void)
{
	size_t n;

	pthread_mutex_lock(&power_lock);
	n = power_recording->n;
	pthread_mutex_unlock(&power_lock);
	return n;
}

static inline void power_record_free(struct power_record *r)
{
	for (size_t i = 0; i < r->n; i++)
		free(r->ops[i].data);
	free(r->ops);
	for (int i = 0; i < POWER_FILES; i++)
		free(r->before[i].bytes);
	memset(r, 0, sizeof(*r));
}

/* ---- Cutting ---- */

/* A position in a record, and the durable state of the disk there. */
struct power_replay {
	const struct power_record *record;
	size_t at;
	struct power_file durable[POWER_FILES];
	size_t *pending[POWER_FILES];  /* requests of each file since its last flush */
	size_t npending[POWER_FILES];  /* number of these requests */
};

static inline void power_apply(struct power_file *f, const struct power_op *op)
{
	if (op->kind == POWER_RESIZE)
		power_set_size(f, op->len);
	if (op->kind != POWER_WRITE)
		return;
	memcpy(f->bytes + op->off, op->data, op->len);
	f->size = op->off + op->len > f->size ? op->off + op->len : f->size;
}

/* Writes some sectors of a request: `there` of 32 completely, and half of the others in part. */
static inline void power_apply_some(struct power_file *f, const struct power_op *op, unsigned there,
				    uint64_t *seed)
{
	uint64_t end = op->off + op->len, next;

	for (uint64_t at = op->off; at < end; at = next) {
		uint64_t chance = next_random(seed), len;

		next = (at / POWER_SECTOR + 1) * POWER_SECTOR;
		next = next < end ? next : end;
		len = chance % 32 < there ? next - at :
		      chance / 32 % 2     ? 0 :
					    chance / 64 % (next - at);
		memcpy(f->bytes + at, op->data + (at - op->off), len);
	}
}

static inline void power_replay_begin(struct power_replay *p, const struct power_record *r)
{
	memset(p, 0, sizeof(*p));
	p->record = r;
	for (int i = 0; i < POWER_FILES; i++) {
		if (r->before[i].bytes)
			power_copy_file(&p->durable[i], &r->before[i]);
		p->pending[i] = malloc((r->n + 1) * sizeof(size_t));
	}
}

static inline void power_replay_end(struct power_replay *p)
{
	for (int i = 0; i < POWER_FILES; i++) {
		free(p->durable[i].bytes);
		free(p->pending[i]);
	}
}

static inline void power_step(struct power_replay *p)
{
	const struct power_op *op = &p->record->ops[p->at];
	size_t i = (size_t)(op->file - power_disk);
	struct power_file *durable = &p->durable[i];

	if (!durable->bytes) {
		memcpy(durable->name, op->file->name, sizeof(durable->name));
		durable->bytes = calloc(1, POWER_CAP);
	}
	if (op->kind == POWER_WRITE || op->kind == POWER_RESIZE) {
		p->pending[i][p->npending[i]++] = p->at++;
		return;
	}
	for (size_t k = 0; k < p->npending[i]; k++) {
		const struct power_op *pending = &p->record->ops[p->pending[i][k]];

		/* A failed flush loses the data, but keeps the length. */
		if (op->kind == POWER_FLUSH || pending->kind == POWER_RESIZE)
			power_apply(durable, pending);
		else if (pending->off + pending->len > durable->size)
			power_set_size(durable, pending->off + pending->len);
	}
	p->npending[i] = 0;
	p->at++;
}

/* Applies some of the pending requests, and chooses one of the lengths since the last flush. */
static inline void power_cut_file(struct power_file *f, const struct power_record *r,
				  const size_t *pending, size_t n, uint64_t *seed)
{
	size_t lengths = n ? next_random(seed) % (n + 1) : 0;
	uint64_t size = f->size;
	/* If nearly all sectors are written, a missing one is rarely noticed. */
	unsigned there = next_random(seed) % 2 ? 12 : 31;

	for (size_t k = 0; k < n; k++) {
		const struct power_op *op = &r->ops[pending[k]];

		if (op->kind == POWER_WRITE)
			power_apply_some(f, op, there, seed);
		if (k >= lengths)
			continue;
		if (op->kind == POWER_RESIZE && op->len < size)
			memset(f->bytes + op->len, 0, POWER_CAP - op->len);
		size = op->kind == POWER_RESIZE ? op->len :
		       op->off + op->len > size ? op->off + op->len :
						  size;
	}
	memset(f->bytes + size, 0, POWER_CAP - size);
	f->size = size;
}

/* Sets the disk to a state after a loss of power during request k. k must not decrease. */
static inline void power_cut(struct power_replay *p, size_t k, uint64_t seed)
{
	power_recording = NULL;
	while (p->at < k)
		power_step(p);
	for (size_t i = 0; i < POWER_FILES; i++) {
		const struct power_op *now = k < p->record->n ? &p->record->ops[k] : NULL;
		size_t n = p->npending[i];

		if (now && now->file == &power_disk[i] && now->kind != POWER_FLUSH &&
		    now->kind != POWER_FAILED_FLUSH)
			p->pending[i][n++] = k;
		if (!p->durable[i].bytes && n == 0) {
			free(power_disk[i].bytes);
			memset(&power_disk[i], 0, sizeof(power_disk[i]));
			continue;
		}
		if (!p->durable[i].bytes) {
			memset(power_disk[i].bytes, 0, POWER_CAP);
			power_disk[i].size = 0;
		} else {
			power_copy_file(&power_disk[i], &p->durable[i]);
		}
		power_cut_file(&power_disk[i], p->record, p->pending[i], n, &seed);
	}
}

/*
 * Sets the disk to its state after a process was killed before request k, and records anew: all
 * requests before k are done, and those that were not flushed can still be lost. Returns their
 * number.
 */
static inline size_t power_kill(struct power_replay *p, size_t k, struct power_record *r)
{
	power_recording = NULL;
	memset(r, 0, sizeof(*r));
	while (p->at < k)
		power_step(p);
	for (size_t i = 0; i < POWER_FILES; i++) {
		struct power_file *f = &power_disk[i];

		if (p->durable[i].bytes) {
			power_copy_file(&r->before[i], &p->durable[i]);
			power_copy_file(f, &p->durable[i]);
		} else {
			free(f->bytes);
			memset(f, 0, sizeof(*f));
		}
	}
	power_recording = r;
	for (size_t i = 0; i < POWER_FILES; i++) {
		for (size_t n = 0; n < p->npending[i]; n++) {
			const struct power_op *op = &p->record->ops[p->pending[i][n]];

			power_note(op->kind, op->file, op->data, op->off, op->len);
			power_apply(&power_disk[i], op);
		}
	}
	return r->n;
}

#endif
