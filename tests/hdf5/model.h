/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * model.h - a sequence of changes of an HDF5 file, and what the file contains after each of them. A
 * change creates, extends, overwrites, renames or deletes groups and chunked, partly compressed
 * datasets. The seed and the number of a change determine it, so each process can compute the
 * contents of the file at any change. In a file that is written as SWMR, a change appends rows to
 * one of the datasets, which exist from the beginning, and the numbers of rows tell the change.
 */
#ifndef TESTS_HDF5_MODEL_H
#define TESTS_HDF5_MODEL_H

#include <hdf5.h>

#include "../common.h"

#define GROUPS 4
#define DATASETS 10
#define CHUNK 256
#define ROWS_MAX 3000
#define BLOB_CHANGES 4           /* changes of the file with one blob */
#define BLOB_CHUNK 66001         /* 258 KiB: long enough to be written past the mapping */
#define BLOB_NUMBERS (2 * BLOB_CHUNK)

struct dataset {
	unsigned number;         /* part of the name; 0: the dataset does not exist */
	unsigned group;          /* group that contains it; GROUPS: the root */
	unsigned rows;
	int rows_of[ROWS_MAX];   /* elements */
};

struct model {
	uint64_t seed;
	bool is_swmr;            /* the file is written as SWMR */
	unsigned step;           /* number of the last change */
	struct dataset *changed; /* dataset of the last change, in a file written as SWMR */
	unsigned names;          /* numbers of names that were used */
	bool has_group[GROUPS];
	struct dataset datasets[DATASETS];
};

static inline const char *name_of(const struct dataset *d, char text[32])
{
	if (d->group < GROUPS)
		snprintf(text, 32, "/g%u/d%u", d->group, d->number);
	else
		snprintf(text, 32, "/d%u", d->number);
	return text;
}

/* ---- Changes of the file; `file` is negative if only the model changes ---- */

static inline void file_rows(hid_t file, struct dataset *d, unsigned first, unsigned end)
{
	hsize_t start = first, count = end - first, rows = d->rows;
	hid_t set, space, memory;
	char name[32];

	if (file < 0 || count == 0)
		return;
	set = H5Dopen2(file, name_of(d, name), H5P_DEFAULT);
	check(set >= 0 && H5Dset_extent(set, &rows) >= 0);
	space = H5Dget_space(set);
	memory = H5Screate_simple(1, &count, NULL);
	check(H5Sselect_hyperslab(space, H5S_SELECT_SET, &start, NULL, &count, NULL) >= 0);
	check(H5Dwrite(set, H5T_NATIVE_INT, memory, space, H5P_DEFAULT, d->rows_of + first) >= 0);
	H5Sclose(memory);
	H5Sclose(space);
	check(H5Dclose(set) >= 0);
}

static inline void fill_rows(hid_t file, struct dataset *d, unsigned first, unsigned end,
			     uint64_t r)
{
	for (unsigned i = first; i < end; i++)
		d->rows_of[i] = (int)(mix(r + i / 3) >> 8);
	file_rows(file, d, first, end);
}

static inline void create_dataset(hid_t file, struct dataset *d, bool compressed)
{
	hsize_t none = 0, most = H5S_UNLIMITED, chunk = CHUNK;
	hid_t space, how, set;
	char name[32];

	if (file < 0)
		return;
	space = H5Screate_simple(1, &none, &most);
	how = H5Pcreate(H5P_DATASET_CREATE);
	check(H5Pset_chunk(how, 1, &chunk) >= 0);
	if (compressed && H5Zfilter_avail(H5Z_FILTER_DEFLATE) > 0)
		check(H5Pset_deflate(how, 1) >= 0);
	set = H5Dcreate2(file, name_of(d, name), H5T_NATIVE_INT, space, H5P_DEFAULT, how,
			 H5P_DEFAULT);
	check(set >= 0 && H5Dclose(set) >= 0);
	H5Pclose(how);
	H5Sclose(space);
}

static inline void file_link(hid_t file, const char *from, const char *to)
{
	if (file < 0)
		return;
	if (to)
		check(H5Lmove(file, from, file, to, H5P_DEFAULT, H5P_DEFAULT) >= 0);
	else
		check(H5Ldelete(file, from, H5P_DEFAULT) >= 0);
}

static inline unsigned pick_group(const struct model *m, uint64_t r)
{
	unsigned g = r % (GROUPS + 1);

	return g < GROUPS && m->has_group[g] ? g : GROUPS;
}

static inline void change_group(struct model *m, hid_t file, unsigned g)
{
	char name[16];
	hid_t group;

	snprintf(name, sizeof(name), "/g%u", g);
	if (!m->has_group[g]) {
		if (file >= 0) {
			group = H5Gcreate2(file, name, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
			check(group >= 0 && H5Gclose(group) >= 0);
		}
		m->has_group[g] = true;
		return;
	}
	file_link(file, name, NULL);
	m->has_group[g] = false;
	for (unsigned i = 0; i < DATASETS; i++)
		if (m->datasets[i].group == g)
			m->datasets[i].number = 0;
}

static inline void change_dataset(struct model *m, hid_t file, struct dataset *d, uint64_t r)
{
	unsigned first, end, kind = r % 8;
	char from[32], to[32];

	r /= 8;
	if (!d->number) {
		d->number = ++m->names;
		d->group = pick_group(m, r);
		d->rows = 100 + r / 8 % 900;
		create_dataset(file, d, r & 1);
		fill_rows(file, d, 0, d->rows, r);
	} else if (kind == 0) {
		file_link(file, name_of(d, from), NULL);
		d->number = 0;
	} else if (kind == 1) {
		name_of(d, from);
		d->number = ++m->names;
		d->group = pick_group(m, r);
		file_link(file, from, name_of(d, to));
	} else if (kind < 5 && d->rows < ROWS_MAX) {
		first = d->rows;
		d->rows = first + 1 + r % 500 < ROWS_MAX ? first + 1 + r % 500 : ROWS_MAX;
		fill_rows(file, d, first, d->rows, r);
	} else {
		first = r % d->rows;
		end = first + 1 + r / 4096 % (d->rows - first);
		fill_rows(file, d, first, end, r);
	}
}

static inline hid_t step_attribute(hid_t file)
{
	hid_t space, attr;

	if (H5Aexists(file, "step") > 0)
		return H5Aopen(file, "step", H5P_DEFAULT);
	space = H5Screate(H5S_SCALAR);
	attr = H5Acreate2(file, "step", H5T_NATIVE_UINT, space, H5P_DEFAULT, H5P_DEFAULT);
	H5Sclose(space);
	return attr;
}

static inline void append_rows(struct model *m, hid_t file, uint64_t r)
{
	struct dataset *d = &m->datasets[r % DATASETS];
	unsigned first = d->rows;

	d->rows += 1 + (unsigned)(r / 64 % 20);
	check(d->rows <= ROWS_MAX);
	fill_rows(file, d, first, d->rows, r);
	m->changed = d;
}

/* Each blob replaces the one before it. */
static inline unsigned blob_number(const struct model *m, size_t i)
{
	return (unsigned)mix(m->seed + m->step / BLOB_CHANGES * BLOB_NUMBERS + i);
}

static inline void change_blob(const struct model *m, hid_t file)
{
	static unsigned numbers[BLOB_NUMBERS];
	hsize_t count = BLOB_NUMBERS, chunk = BLOB_CHUNK;
	hid_t space, set, how;

	if (file < 0 || m->step % BLOB_CHANGES != 0)
		return;
	for (size_t i = 0; i < BLOB_NUMBERS; i++)
		numbers[i] = blob_number(m, i);
	if (m->step > BLOB_CHANGES)
		check(H5Ldelete(file, "blob", H5P_DEFAULT) >= 0);
	space = H5Screate_simple(1, &count, NULL);
	how = H5Pcreate(H5P_DATASET_CREATE);
	check(H5Pset_chunk(how, 1, &chunk) >= 0);
	set = H5Dcreate2(file, "blob", H5T_NATIVE_UINT, space, H5P_DEFAULT, how, H5P_DEFAULT);
	check(set >= 0 && H5Dwrite(set, H5T_NATIVE_UINT, H5S_ALL, H5S_ALL, H5P_DEFAULT,
				   numbers) >= 0 && H5Dclose(set) >= 0);
	H5Pclose(how);
	H5Sclose(space);
}

/* The next change: some datasets, seldom a group, and always the number of the change. */
static inline void model_step(struct model *m, hid_t file)
{
	uint64_t r = mix(m->seed * 1000003 + ++m->step);
	hid_t attr;

	if (m->is_swmr) {
		append_rows(m, file, r);
		return;
	}
	if (r % 6 == 0)
		change_group(m, file, r / 6 % GROUPS);
	for (unsigned n = 1 + r / 32 % 3; n > 0; n--) {
		r = mix(r);
		change_dataset(m, file, &m->datasets[r % DATASETS], r / DATASETS);
	}
	change_blob(m, file);
	if (file < 0)
		return;
	attr = step_attribute(file);
	check(attr >= 0 && H5Awrite(attr, H5T_NATIVE_UINT, &m->step) >= 0 && H5Aclose(attr) >= 0);
}

/* Makes the last change durable: many changes of a file written as SWMR by a flush of the dataset
 * alone. */
static inline void model_flush(const struct model *m, hid_t file)
{
	char name[32];
	hid_t set;

	if (!m->is_swmr || m->step % 3 == 0) {
		check(H5Fflush(file, H5F_SCOPE_GLOBAL) >= 0);
		return;
	}
	set = H5Dopen2(file, name_of(m->changed, name), H5P_DEFAULT);
	check(set >= 0 && H5Dflush(set) >= 0 && H5Dclose(set) >= 0);
}

static inline void model_begin(struct model *m, uint64_t seed, bool is_swmr)
{
	memset(m, 0, sizeof(*m));
	m->seed = seed;
	m->is_swmr = is_swmr;
	for (unsigned i = 0; i < DATASETS && is_swmr; i++) {
		m->datasets[i].number = i + 1;
		m->datasets[i].group = GROUPS;
	}
}

/* Creates the file of a model, before its first change. */
static inline hid_t model_create(struct model *m, const char *path, hid_t fapl)
{
	hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, fapl);

	check(file >= 0);
	for (unsigned i = 0; i < DATASETS && m->is_swmr; i++)
		create_dataset(file, &m->datasets[i], i & 1);
	if (m->is_swmr)
		check(H5Fstart_swmr_write(file) >= 0);
	return file;
}

static inline hid_t model_open(const struct model *m, const char *path, hid_t fapl)
{
	hid_t file = H5Fopen(path, H5F_ACC_RDWR | (m->is_swmr ? H5F_ACC_SWMR_WRITE : 0), fapl);

	check(file >= 0);
	return file;
}

/* ---- Comparison ---- */

static inline unsigned rows_of_set(hid_t file, const struct dataset *d)
{
	hsize_t rows = 0;
	char name[32];
	hid_t set, space;

	if (H5Lexists(file, name_of(d, name), H5P_DEFAULT) <= 0)
		return 0;
	set = H5Dopen2(file, name, H5P_DEFAULT);
	space = H5Dget_space(set);
	H5Sget_simple_extent_dims(space, &rows, NULL);
	H5Sclose(space);
	H5Dclose(set);
	return (unsigned)rows;
}

/* Of a file written as SWMR: the change after which the model has at least as many rows. */
static inline unsigned step_of_rows(struct model *m, hid_t file)
{
	unsigned rows = 0, has = 0;

	for (unsigned i = 0; i < DATASETS; i++)
		rows += rows_of_set(file, &m->datasets[i]);
	while (has < rows) {
		model_step(m, -1);
		for (unsigned i = has = 0; i < DATASETS; i++)
			has += m->datasets[i].rows;
	}
	return m->step;
}

/* The number of the change after which the file was flushed; 0: it has none. */
static inline unsigned file_step(struct model *m, hid_t file)
{
	unsigned step = 0;
	hid_t attr;

	if (m->is_swmr)
		return step_of_rows(m, file);
	if (H5Aexists(file, "step") <= 0)
		return 0;
	attr = H5Aopen(file, "step", H5P_DEFAULT);
	if (attr < 0 || H5Aread(attr, H5T_NATIVE_UINT, &step) < 0)
		step = 0;
	if (attr >= 0)
		H5Aclose(attr);
	return step;
}

static inline bool has_links(hid_t file, const char *group, unsigned n)
{
	H5G_info_t info;

	return H5Gget_info_by_name(file, group, &info, H5P_DEFAULT) >= 0 && info.nlinks == n;
}

static inline bool has_dataset(hid_t file, const struct dataset *d)
{
	static int rows[ROWS_MAX];
	char name[32];
	hid_t set = H5Dopen2(file, name_of(d, name), H5P_DEFAULT), space;
	hsize_t count = 0;
	bool same;

	if (set < 0)
		return false;
	space = H5Dget_space(set);
	same = H5Sget_simple_extent_dims(space, &count, NULL) == 1 && count == d->rows &&
	       H5Dread(set, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, rows) >= 0 &&
	       memcmp(rows, d->rows_of, count * sizeof(*rows)) == 0;
	H5Sclose(space);
	H5Dclose(set);
	return same;
}

static inline bool has_blob(const struct model *m, hid_t file)
{
	static unsigned numbers[BLOB_NUMBERS];
	hid_t set = H5Dopen2(file, "blob", H5P_DEFAULT);
	bool same = set >= 0 && H5Dread(set, H5T_NATIVE_UINT, H5S_ALL, H5S_ALL, H5P_DEFAULT,
					numbers) >= 0;

	for (size_t i = 0; i < BLOB_NUMBERS && same; i++)
		same = numbers[i] == blob_number(m, i);
	H5Dclose(set);
	return same;
}

/* Whether the file has exactly the contents of the model: each link, each element. */
static inline bool model_is_in(const struct model *m, hid_t file)
{
	unsigned links[GROUPS + 1] = { 0 };
	char name[16];

	for (unsigned i = 0; i < DATASETS; i++) {
		const struct dataset *d = &m->datasets[i];

		if (!d->number)
			continue;
		links[d->group]++;
		if (!has_dataset(file, d))
			return false;
	}
	for (unsigned g = 0; g < GROUPS; g++) {
		links[GROUPS] += m->has_group[g];
		snprintf(name, sizeof(name), "/g%u", g);
		if (m->has_group[g] && !has_links(file, name, links[g]))
			return false;
	}
	if (!m->is_swmr && m->step >= BLOB_CHANGES) {
		links[GROUPS]++;
		if (!has_blob(m, file))
			return false;
	}
	return has_links(file, "/", links[GROUPS]);
}

/* Whether the file has the contents of the change whose number it contains. */
static inline bool file_is_whole(hid_t file, uint64_t seed, bool is_swmr, unsigned *step)
{
	static struct model m;

	model_begin(&m, seed, is_swmr);
	*step = file_step(&m, file);
	while (m.step < *step)
		model_step(&m, -1);
	return *step > 0 && model_is_in(&m, file);
}

#endif
