/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * slowfs - shows a folder through a pretended storage system that is far away. Each request is
 * answered after a delay, and all requests share a line of a given bandwidth, so many small
 * requests are slow, unless they are made at the same time. There is no page cache unless an option
 * asks for it; only then FUSE lets files be mapped. A sync waits for an answer, but not for the
 * disk under the folder, as with servers that have memory.
 */
#define FUSE_USE_VERSION 312
#include <dirent.h>
#include <fuse.h>
#include <getopt.h>
#include <limits.h>
#include <pthread.h>

#include "kit/data.h"

enum { THREADS = 64 };

struct slow {
	char folder[PATH_MAX];
	uint64_t latency_ns;
	double ns_per_byte;
	size_t readahead;
	bool paged;
	pthread_mutex_t lock;
	uint64_t line_free;               /* when all that was sent so far is through */
};

static struct slow slow = { .latency_ns = 1000000,
			    .ns_per_byte = 1,
			    .lock = PTHREAD_MUTEX_INITIALIZER };

static const char help[] =
"usage: slowfs [OPTION ...] FOLDER MOUNTPOINT\n"
"Shows FOLDER at MOUNTPOINT like a storage system that is far away. `fusermount3 -u MOUNTPOINT`\n"
"ends it.\n"
"  --latency USEC     from a request to its answer (1000)\n"
"  --bandwidth SIZE   bytes a second, of all requests together (1G)\n"
"  --paged            by the page cache, which mmap needs\n"
"  --readahead SIZE   of the page cache, as far as the system goes; 0: each page by itself (128K)\n"
"  --foreground       do not go to the background\n"
"  --help\n";

/* Waits as long as a request of so many bytes takes. */
static void take_time(size_t bytes)
{
	uint64_t until, now = now_ns();
	struct timespec t;

	pthread_mutex_lock(&slow.lock);
	if (slow.line_free < now)
		slow.line_free = now;
	slow.line_free += (uint64_t)((double)bytes * slow.ns_per_byte);
	until = slow.line_free + slow.latency_ns;
	pthread_mutex_unlock(&slow.lock);
	t = (struct timespec){ (time_t)(until / 1000000000), (long)(until % 1000000000) };
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
		;
}

/* Returns the path in the folder for a path below the mount point, or an error for long names. */
static int below(char *path, const char *name)
{
	return snprintf(path, PATH_MAX, "%s%s", slow.folder, name) < PATH_MAX ? 0 : -ENAMETOOLONG;
}

static int result(long value)
{
	return value < 0 ? -errno : (int)value;
}

static int slow_getattr(const char *name, struct stat *st, struct fuse_file_info *fi)
{
	char path[PATH_MAX];
	int err = below(path, name);

	if (err)
		return err;
	return result(fi ? fstat((int)fi->fh, st) : lstat(path, st));
}

static int slow_readdir(const char *name, void *buf, fuse_fill_dir_t fill, off_t off,
			struct fuse_file_info *fi, enum fuse_readdir_flags flags)
{
	char path[PATH_MAX];
	int err = below(path, name);
	struct dirent *entry;
	DIR *dir;

	(void)off;
	(void)fi;
	(void)flags;
	dir = err ? NULL : opendir(path);
	if (!dir)
		return err ? err : -errno;
	while ((entry = readdir(dir)))
		fill(buf, entry->d_name, NULL, 0, 0);
	closedir(dir);
	return 0;
}

static int open_below(const char *name, int flags, mode_t mode, struct fuse_file_info *fi)
{
	char path[PATH_MAX];
	int err = below(path, name), fd;

	if (err)
		return err;
	take_time(0);
	fd = open(path, (flags & ~(O_DIRECT | O_NOFOLLOW)) | O_CLOEXEC, mode);
	if (fd < 0)
		return -errno;
	fi->fh = (uint64_t)fd;
	return 0;
}

static int slow_open(const char *name, struct fuse_file_info *fi)
{
	return open_below(name, fi->flags, 0, fi);
}

static int slow_create(const char *name, mode_t mode, struct fuse_file_info *fi)
{
	return open_below(name, fi->flags | O_CREAT, mode, fi);
}

static int slow_release(const char *name, struct fuse_file_info *fi)
{
	(void)name;
	return result(close((int)fi->fh));
}

static int slow_read(const char *name, char *buf, size_t len, off_t off, struct fuse_file_info *fi)
{
	(void)name;
	take_time(len);
	return result(pread((int)fi->fh, buf, len, off));
}

static int slow_write(const char *name, const char *buf, size_t len, off_t off,
		      struct fuse_file_info *fi)
{
	(void)name;
	take_time(len);
	return result(pwrite((int)fi->fh, buf, len, off));
}

static int slow_fsync(const char *name, int data_only, struct fuse_file_info *fi)
{
	(void)name;
	(void)data_only;
	(void)fi;
	take_time(0);
	return 0;
}

static int slow_truncate(const char *name, off_t size, struct fuse_file_info *fi)
{
	char path[PATH_MAX];
	int err = below(path, name);

	if (err)
		return err;
	take_time(0);
	return result(fi ? ftruncate((int)fi->fh, size) : truncate(path, size));
}

static int slow_fsyncdir(const char *name, int data_only, struct fuse_file_info *fi)
{
	return slow_fsync(name, data_only, fi);
}

static int slow_unlink(const char *name)
{
	char path[PATH_MAX];
	int err = below(path, name);

	take_time(0);
	return err ? err : result(unlink(path));
}

static int slow_mkdir(const char *name, mode_t mode)
{
	char path[PATH_MAX];
	int err = below(path, name);

	take_time(0);
	return err ? err : result(mkdir(path, mode));
}

static int slow_rmdir(const char *name)
{
	char path[PATH_MAX];
	int err = below(path, name);

	take_time(0);
	return err ? err : result(rmdir(path));
}

static int slow_symlink(const char *target, const char *name)
{
	char path[PATH_MAX];
	int err = below(path, name);

	take_time(0);
	return err ? err : result(symlink(target, path));
}

static int slow_readlink(const char *name, char *target, size_t size)
{
	char path[PATH_MAX];
	int err = below(path, name);
	ssize_t len;

	take_time(0);
	if (err)
		return err;
	len = readlink(path, target, size - 1);
	if (len < 0)
		return -errno;
	target[len] = '\0';
	return 0;
}

static int slow_link(const char *from, const char *to)
{
	char old[PATH_MAX], new[PATH_MAX];
	int err = below(old, from);

	if (!err)
		err = below(new, to);
	take_time(0);
	return err ? err : result(link(old, new));
}

/* FUSE also does this to files that are removed while somebody has them open. */
static int slow_rename(const char *from, const char *to, unsigned flags)
{
	char old[PATH_MAX], new[PATH_MAX];
	int err = below(old, from);

	if (!err)
		err = below(new, to);
	take_time(0);
	return err ? err : result(renameat2(AT_FDCWD, old, AT_FDCWD, new, flags));
}

static void *slow_init(struct fuse_conn_info *conn, struct fuse_config *config)
{
	config->direct_io = !slow.paged;
	config->kernel_cache = 0;
	conn->max_readahead = (unsigned)slow.readahead;
	conn->max_background = THREADS;
	conn->congestion_threshold = THREADS;
	conn->want &= ~FUSE_CAP_WRITEBACK_CACHE;
	return NULL;
}

static const struct fuse_operations operations = {
	.init = slow_init, .getattr = slow_getattr, .readdir = slow_readdir, .open = slow_open,
	.create = slow_create, .release = slow_release, .read = slow_read, .write = slow_write,
	.fsync = slow_fsync,
	.truncate = slow_truncate, .unlink = slow_unlink, .rename = slow_rename, .link = slow_link,
	.mkdir = slow_mkdir, .rmdir = slow_rmdir, .fsyncdir = slow_fsyncdir,
	.symlink = slow_symlink, .readlink = slow_readlink,
};

static bool parse_options(int argc, char **argv)
{
	static const struct option known[] = {
		{ "latency", 1, 0, 'l' }, { "bandwidth", 1, 0, 'b' }, { "paged", 0, 0, 'p' },
		{ "readahead", 1, 0, 'r' }, { "foreground", 0, 0, 'f' }, { "help", 0, 0, 'h' },
		{ 0, 0, 0, 0 },
	};
	bool foreground = false;
	int c;

	slow.readahead = 128 * KIB;
	while ((c = getopt_long(argc, argv, "", known, NULL)) != -1) {
		switch (c) {
		case 'l':
			slow.latency_ns = 1000ull * parse_count("latency", optarg, 60000000);
			break;
		case 'b': slow.ns_per_byte = 1e9 / (double)parse_size("bandwidth", optarg); break;
		case 'p': slow.paged = true; break;
		case 'r':
			slow.readahead = strcmp(optarg, "0") ? parse_size("readahead", optarg) : 0;
			break;
		case 'f': foreground = true; break;
		case 'h': fputs(help, stdout); exit(0);
		default: die("see --help");
		}
	}
	if (argc - optind != 2)
		die("say which FOLDER, and the MOUNTPOINT; see --help");
	if (!realpath(argv[optind], slow.folder))
		die("%s: %s", argv[optind], strerror(errno));
	return foreground;
}

int main(int argc, char **argv)
{
	bool foreground = parse_options(argc, argv);
	char threads[64];
	char *fuse[] = {
		argv[0], argv[optind + 1], (char *)"-o", threads, foreground ? (char *)"-f" : NULL,
		NULL,
	};

	snprintf(threads, sizeof(threads), "fsname=slowfs,max_idle_threads=%d,max_threads=%d",
		 THREADS, THREADS);
	return fuse_main(foreground ? 5 : 4, fuse, &operations, NULL);
}
