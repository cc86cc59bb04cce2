/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The virtual file driver (H5FD) for HDF5.
 *
 * A flush commits only if it writes the whole file. H5Fflush and H5Fclose write everything, and
 * call `truncate` before `flush`. H5Dflush and similar calls write one object, and call only
 * `flush`. A commit could then contain a file that cannot be read, because other parts of the file
 * are still in memory. A single-writer program (SWMR) is the exception, because HDF5 then keeps the
 * file readable with each write.
 *
 * The driver has no `lock`, because a mapping locks its store. HDF5 marks the superblocks of files
 * whose driver locks, and would refuse to open them after a crash.
 */
#include "hdf5/plugin.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <ummap-hdf5.h>

#include "hdf5/store.h"

#define DEFAULT_URI "wal+posix:"
/* HDF5 writes small pieces of metadata in many places, and each commit writes whole segments. */
#define SEGMENT_BYTES ((size_t)64 << 10)
#define URI_MAX 8192

/* The properties of the driver in a property list. */
struct access {
	struct ummap_attr attr;  /* attributes; their texts are in `text` */
	const char *uri;         /* in `text` */
	char text[];
};

/* An open file. */
struct file {
	H5FD_t public;           /* must be first: HDF5 fills it in */
	struct hdf5_store *store;
	struct access *access;   /* for H5Fget_access_plist */
	haddr_t eoa;             /* end of the allocated addresses */
	bool is_whole;           /* HDF5 is writing the whole file */
	bool is_closing;         /* HDF5 has written the whole file in order to close it */
	bool is_swmr;            /* one program writes while others read */
};

static hid_t driver_id = H5I_INVALID_HID;

/* Passes the message of libummap to HDF5's stack of errors. */
static int report(hid_t minor)
{
	H5Epush2(H5E_DEFAULT, __FILE__, "ummap", __LINE__, H5E_ERR_CLS, H5E_VFL, minor, "%s",
		 umerrormsg());
	return -1;
}

/* ---- Property lists ---- */

static const char *put_text(char **to, const char *text)
{
	const char *at = *to;

	if (!text)
		return NULL;
	*to = stpcpy(*to, text) + 1;
	return at;
}

static size_t text_bytes(const char *text)
{
	return text ? strlen(text) + 1 : 0;
}

static struct access *new_access(const char *uri, const struct ummap_attr *attr)
{
	struct access *a = calloc(1, sizeof(*a) + text_bytes(uri) + text_bytes(attr->policy) +
				     text_bytes(attr->group));
	char *to = a ? a->text : NULL;

	if (!a)
		return NULL;
	a->attr = *attr;
	a->uri = put_text(&to, uri);
	a->attr.policy = put_text(&to, attr->policy);
	a->attr.group = put_text(&to, attr->group);
	a->attr.flags |= UMMAP_CREATE | UMMAP_GROWS;
	if (!a->attr.seg_size)
		a->attr.seg_size = SEGMENT_BYTES;
	if (!a->attr.on_full)
		a->attr.on_full = UMMAP_FULL_SIGBUS;
	return a;
}

static void *copy_access(const void *access)
{
	const struct access *a = access;

	return new_access(a->uri, &a->attr);
}

static herr_t free_access(void *access)
{
	free(access);
	return 0;
}

static void *get_access(H5FD_t *file)
{
	return copy_access(((struct file *)file)->access);
}

/* The properties of a list: those of H5Pset_fapl_ummap, the text of the user, or the defaults. */
static struct access *find_access(hid_t fapl)
{
	static const struct ummap_attr defaults = UMMAP_ATTR_INIT;
	const void *access;
	char uri[URI_MAX];

	/* HDF5 1.14 reports an error if a driver that was selected by name has no properties. */
	H5E_BEGIN_TRY {
		access = H5Pget_driver_info(fapl);
	} H5E_END_TRY;
	if (access)
		return copy_access(access);
	return new_access(hdf5_configured(fapl, uri, sizeof(uri)) ? uri : DEFAULT_URI, &defaults);
}

hid_t H5FD_ummap_init(void)
{
	if (H5Iget_type(driver_id) != H5I_VFL)
		driver_id = H5FDregister(&hdf5_class);
	return driver_id;
}

static herr_t terminate(void)
{
	driver_id = H5I_INVALID_HID;
	return 0;
}

static bool is_fitting(const struct ummap_attr *attr)
{
	if (attr->struct_size == sizeof(*attr))
		return true;
	umseterror(EINVAL, "cannot set the attributes: struct_size is %zu, not %zu. Try to start "
		   "from UMMAP_ATTR_INIT", attr->struct_size, sizeof(*attr));
	return false;
}

herr_t H5Pset_fapl_ummap(hid_t fapl, const char *uri, const struct ummap_attr *attr)
{
	static const struct ummap_attr defaults = UMMAP_ATTR_INIT;
	struct access *access;
	hid_t driver = H5FD_ummap_init();
	herr_t err;

	if (driver < 0)
		return -1;
	if (attr && !is_fitting(attr))
		return report(H5E_BADVALUE);
	access = new_access(uri ? uri : DEFAULT_URI, attr ? attr : &defaults);
	if (!access)
		return -1;
	err = H5Pset_driver(fapl, driver, access);
	free(access);
	return err;
}

/* ---- Files ---- */

static unsigned opening_of(unsigned flags)
{
	return (flags & H5F_ACC_RDWR ? HDF5_WRITE : 0) |
	       (flags & H5F_ACC_CREAT ? HDF5_CREATE : 0) |
	       (flags & H5F_ACC_TRUNC ? HDF5_TRUNCATE : 0) |
	       (flags & H5F_ACC_EXCL ? HDF5_EXCLUSIVE : 0);
}

static herr_t free_file(struct file *f)
{
	free(f->access);
	free(f);
	return 0;
}

static H5FD_t *open_file(const char *name, unsigned flags, hid_t fapl, haddr_t maxaddr)
{
	struct file *f = calloc(1, sizeof(*f));
	char *uri = NULL;

	(void)maxaddr;
	if (f)
		f->access = find_access(fapl);
	if (f && f->access)
		uri = hdf5_name(f->access->uri, name);
	if (uri)
		f->store = hdf5_store_open(uri, opening_of(flags), &f->access->attr);
	free(uri);
	if (f && f->store) {
		f->is_swmr = flags & H5F_ACC_SWMR_WRITE;
		return &f->public;
	}
	report(H5E_CANTOPENFILE);
	if (f)
		free_file(f);
	return NULL;
}

static int settle_superblock(struct file *f)
{
	struct hdf5_store *s = f->store;
	haddr_t at = f->public.base_addr;

	if (!s->writable || hdf5_store_is_inherited(s) || at >= s->eof)
		return 0;
	f->is_swmr |= hdf5_superblock_is_swmr(s->base + at, s->eof - at);
	return hdf5_superblock_settle(s->base + at, s->eof - at, f->eoa, f->is_swmr);
}

/* If HDF5 could not open a file or write it in whole, its changes are dropped. */
static herr_t close_file(H5FD_t *file)
{
	struct file *f = (struct file *)file;
	bool commits = f->is_closing && settle_superblock(f) == 0;
	int err = hdf5_store_close(f->store, commits, f->eoa);

	if (err)
		report(H5E_CANTCLOSEFILE);
	free_file(f);
	return err;
}

/* A store is opened once, so two handles with one store are of the same file. */
static int compare_files(const H5FD_t *one, const H5FD_t *other)
{
	uintptr_t a = (uintptr_t)((const struct file *)one)->store;
	uintptr_t b = (uintptr_t)((const struct file *)other)->store;

	return (a > b) - (a < b);
}

/* As the default driver of HDF5, but without a descriptor. */
static herr_t query(const H5FD_t *file, unsigned long *features)
{
	(void)file;
	*features = H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_ACCUMULATE_METADATA |
		    H5FD_FEAT_DATA_SIEVE | H5FD_FEAT_AGGREGATE_SMALLDATA |
		    H5FD_FEAT_SUPPORTS_SWMR_IO | H5FD_FEAT_DEFAULT_VFD_COMPATIBLE;
	return 0;
}

static haddr_t get_eoa(const H5FD_t *file, H5FD_mem_t type)
{
	(void)type;
	return ((const struct file *)file)->eoa;
}

static herr_t set_eoa(H5FD_t *file, H5FD_mem_t type, haddr_t addr)
{
	(void)type;
	((struct file *)file)->eoa = addr;
	return 0;
}

static haddr_t get_eof(const H5FD_t *file, H5FD_mem_t type)
{
	(void)type;
	return ((const struct file *)file)->store->eof;
}

static herr_t read_file(H5FD_t *file, H5FD_mem_t type, hid_t dxpl, haddr_t addr, size_t size,
			void *buf)
{
	(void)type;
	(void)dxpl;
	if (hdf5_store_read(((struct file *)file)->store, buf, size, addr) == -1)
		return report(H5E_READERROR);
	return 0;
}

static herr_t write_file(H5FD_t *file, H5FD_mem_t type, hid_t dxpl, haddr_t addr, size_t size,
			 const void *buf)
{
	(void)type;
	(void)dxpl;
	if (hdf5_store_write(((struct file *)file)->store, buf, size, addr) == -1)
		return report(H5E_WRITEERROR);
	return 0;
}

/* The commit of a file that is closed is made by close_file, because HDF5 writes the superblock
 * once more after the flush. */
static herr_t flush_file(H5FD_t *file, hid_t dxpl, hbool_t closing)
{
	struct file *f = (struct file *)file;
	int err = 0;

	(void)dxpl;
	f->is_closing = closing && f->is_whole;
	if (!f->is_closing) {
		err = settle_superblock(f);
		if (!err && (f->is_whole || f->is_swmr))
			err = hdf5_store_commit(f->store, f->eoa);
	}
	f->is_whole = false;
	return err ? report(H5E_CANTFLUSH) : 0;
}

/* The file keeps its length until it is closed: see store.c. */
static herr_t truncate_file(H5FD_t *file, hid_t dxpl, hbool_t closing)
{
	struct file *f = (struct file *)file;

	(void)dxpl;
	(void)closing;
	f->is_whole = true;
	return 0;
}

const H5FD_class_t hdf5_class = {
	HDF5_CLASS_HEAD
	.name = "ummap",
	.maxaddr = (haddr_t)INT64_MAX,
	.fc_degree = H5F_CLOSE_WEAK,
	.terminate = terminate,
	.fapl_get = get_access,
	.fapl_copy = copy_access,
	.fapl_free = free_access,
	.open = open_file,
	.close = close_file,
	.cmp = compare_files,
	.query = query,
	.get_eoa = get_eoa,
	.set_eoa = set_eoa,
	.get_eof = get_eof,
	.read = read_file,
	.write = write_file,
	.flush = flush_file,
	.truncate = truncate_file,
	.fl_map = H5FD_FLMAP_DICHOTOMY,
};
