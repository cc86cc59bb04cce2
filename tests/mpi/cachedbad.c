/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What is wrong with a cached file, or with what is asked of it: an error of MPI's with a sentence, the same at all ranks, and
 * nothing is lost.
 */
#include "common.h"

#include <stdlib.h>
#include <sys/resource.h>

#define BYTES 300000

static char path[400], near[400];
static MPI_File file;

static MPI_Info __attribute__((sentinel)) hints(const char *folder_name, ...)
{
	const char *name;
	va_list args;
	MPI_Info info;

	MPI_Info_create(&info);
	MPI_Info_set(info, "pmem_path", (char *)folder_name);
	va_start(args, folder_name);
	while ((name = va_arg(args, const char *)))
		MPI_Info_set(info, (char *)name, va_arg(args, char *));
	va_end(args);
	return info;
}

static int open_with(MPI_Info info, int amode)
{
	int code = MPI_File_open(MPI_COMM_WORLD, path, amode, info, &file);

	MPI_Info_free(&info);
	return code;
}

static int open_plainly(void)
{
	return open_with(hints(near, NULL), MPI_MODE_RDWR | MPI_MODE_CREATE);
}

/* At all ranks, of one class. */
#define check_all(call, class, words) do { \
		int code_ = (call), most_ = code_, least_ = code_; \
		check_error(code_, class, words); \
		MPI_Allreduce(MPI_IN_PLACE, &most_, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD); \
		MPI_Allreduce(MPI_IN_PLACE, &least_, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD); \
		check(most_ == least_); \
	} while (0)

/* By one rank, for all. */
static void shell(const char *format, ...)
{
	char command[2000];
	va_list args;

	MPI_Barrier(MPI_COMM_WORLD);
	va_start(args, format);
	vsnprintf(command, sizeof(command), format, args);
	va_end(args);
	if (rank == 0)
		check(system(command) == 0, "%s", command);
	MPI_Barrier(MPI_COMM_WORLD);
}

static char byte_of(size_t i)
{
	return (char)(i * 7 + i / 300 + 1);
}

static void write_all_of_it(void)
{
	static char bytes[BYTES];

	for (size_t i = 0; i < BYTES; i++)
		bytes[i] = byte_of(i);
	if (rank == 0)
		check(MPI_File_write_at(file, 0, bytes, BYTES, MPI_BYTE, MPI_STATUS_IGNORE) == MPI_SUCCESS);
	MPI_Barrier(MPI_COMM_WORLD);
}

static void read_all_of_it(void)
{
	static char bytes[BYTES];

	check(MPI_File_read_at(file, 0, bytes, BYTES, MPI_BYTE, MPI_STATUS_IGNORE) == MPI_SUCCESS);
	for (size_t i = 0; i < BYTES; i++)
		check(bytes[i] == byte_of(i), "byte %zu is %d", i, bytes[i]);
	MPI_Barrier(MPI_COMM_WORLD);
}

static void keep_something(void)
{
	check(open_with(hints(near, "pmem_close", "keep", NULL), MPI_MODE_RDWR | MPI_MODE_CREATE) == MPI_SUCCESS);
	write_all_of_it();
	check(MPI_File_close(&file) == MPI_SUCCESS);
}

/* By its name, not by what only one process has. */
static void check_names_folder(int code, int class, const char *words)
{
	char text[MPI_MAX_ERROR_STRING];
	int len;

	check_all(code, class, words);
	MPI_Error_string(code, text, &len);
	check(strstr(text, near) && !strstr(text, "/proc/"), "%s", text);
}

static void bad_hints(void)
{
	static const char *const bad[][3] = {
		{ "pmem_size", "1", "at least 2M" }, { "pmem_size", "many", "at least 2M" }, { "pmem_stripe", "100", "multiple of 64K" },
		{ "pmem_flush", "0", "seconds" }, { "pmem_flush", "never", "seconds" }, { "pmem_populate", "yes", "true" },
		{ "pmem_durable", "always", "write" }, { "pmem_close", "no", "keep" }, { "pmem_io_mode", "2", "pmem_io_mode" },
	};
	int amode = MPI_MODE_RDWR | MPI_MODE_CREATE;
	MPI_Info info;

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		check_all(open_with(hints(near, bad[i][0], bad[i][1], NULL), amode), MPI_ERR_INFO_VALUE, bad[i][2]);
	check_all(open_with(hints("/no/such/folder", NULL), amode), MPI_ERR_NO_SUCH_FILE, "/no/such/folder");
	check_names_folder(open_with(hints(near, "pmem_size", "10T", NULL), amode), MPI_ERR_NO_SPACE, "");
	if (ranks > 1) {
		info = rank ? hints(near, NULL) : hints(near, "pmem_flush", "3", NULL);
		check_all(open_with(info, amode), MPI_ERR_INFO_VALUE,
			  "the same hints at all ranks");
		MPI_Info_create(&info);
		if (rank == 0)
			MPI_Info_set(info, "pmem_path", near);
		check_all(open_with(info, amode), MPI_ERR_INFO_VALUE,
			  "the same hints at all ranks");
	}
	/* One of these makes no cache. */
	check(open_with(hints(near, "pmem_io_mode", "1", NULL), amode) == MPI_SUCCESS);
	check(MPI_File_close(&file) == MPI_SUCCESS);
	shell("test -z \"$(ls %s)\"", near);
}

static bool on_one_machine(void)
{
	MPI_Comm machine;
	int here;

	MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine);
	MPI_Comm_size(machine, &here);
	MPI_Comm_free(&machine);
	return here == ranks;
}

/* A folder in the memory of one machine does not exist on another. */
static void folder_of_one_machine(void)
{
	const char *own = "/dev/shm/of-one-machine";

	if (on_one_machine())
		return;
	shell("mkdir %s", own);
	check_all(open_with(hints(own, NULL), MPI_MODE_RDWR | MPI_MODE_CREATE), MPI_ERR_NO_SUCH_FILE, own);
	shell("test -z \"$(ls %s)\" && rmdir %s", own, own);
}

static int called;

static void handler(MPI_File *f, int *code, ...)
{
	(void)f, (void)code;
	called++;
}

/* For a rank that takes no part. */
static void view_of_nothing(void)
{
	MPI_Datatype none;
	MPI_Status s;
	int n = 4;

	MPI_Type_contiguous(0, MPI_INT, &none);
	MPI_Type_commit(&none);
	if (MPI_File_set_view(file, 0, MPI_INT, none, "native", MPI_INFO_NULL) == MPI_SUCCESS) {
		check(MPI_File_read_all(file, &n, 0, MPI_INT, &s) == MPI_SUCCESS);
		check(MPI_File_read_at(file, 3, &n, 1, MPI_INT, &s) == MPI_SUCCESS);
		check_error(MPI_File_write_at(file, 3, &n, 1, MPI_INT, &s), MPI_ERR_ARG, "empty");
		check(MPI_File_seek(file, 0, MPI_SEEK_END) == MPI_SUCCESS);
	}
	MPI_Type_free(&none);
	check(MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "native", MPI_INFO_NULL) == MPI_SUCCESS);
}

static void bad_calls(void)
{
	char bytes[8] = "";
	MPI_Errhandler errhandler;
	MPI_File twice;
	MPI_Info info = hints(near, NULL);
	MPI_Offset size;

	check(open_plainly() == MPI_SUCCESS);
	write_all_of_it();
	check_all(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_RDWR, info, &twice), MPI_ERR_IO,
		  "open twice");
	MPI_Info_free(&info);
	check_error(MPI_File_read_at(file, -1, bytes, 1, MPI_BYTE, MPI_STATUS_IGNORE), MPI_ERR_ARG, "offset");
	check_error(MPI_File_write_at(file, 0, bytes, -1, MPI_BYTE, MPI_STATUS_IGNORE), MPI_ERR_COUNT, "count");
	check_error(MPI_File_seek(file, -1, MPI_SEEK_SET), MPI_ERR_ARG, "before the beginning");
	check_error(MPI_File_seek(file, 0, 77), MPI_ERR_ARG, "whence is 77");
	check_all(MPI_File_set_size(file, -5), MPI_ERR_ARG, "size");
	if (ranks > 1) {
		check_all(MPI_File_set_size(file, rank ? BYTES / 2 : BYTES * 2), MPI_ERR_ARG, "different sizes");
		check_all(MPI_File_preallocate(file, BYTES + rank), MPI_ERR_ARG, "different sizes");
	}
	check_error(MPI_File_write_all_end(file, bytes, MPI_STATUS_IGNORE), MPI_ERR_OTHER,
		    "no such call has begun");
	check(MPI_File_read_all_begin(file, bytes, 1, MPI_BYTE) == MPI_SUCCESS);
	check_error(MPI_File_read_all_begin(file, bytes, 1, MPI_BYTE), MPI_ERR_OTHER,
		    "another one has not ended");
	check(MPI_File_read_all_end(file, bytes, MPI_STATUS_IGNORE) == MPI_SUCCESS);
	check(MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "native", MPI_INFO_NULL) == MPI_SUCCESS);
	check_error(MPI_File_write_at(file, 0, bytes, 3, MPI_BYTE, MPI_STATUS_IGNORE), MPI_ERR_ARG,
		    "not a multiple of the etype");
	view_of_nothing();
	MPI_File_create_errhandler(handler, &errhandler);
	MPI_File_set_errhandler(file, errhandler);
	check_error(MPI_File_read_at(file, -1, bytes, 4, MPI_BYTE, MPI_STATUS_IGNORE), MPI_ERR_ARG, "offset");
	check(called == 1);
	MPI_Errhandler_free(&errhandler);
	check(MPI_File_get_size(file, &size) == MPI_SUCCESS && size == BYTES);
	check(MPI_File_close(&file) == MPI_SUCCESS);
	check(open_with(hints(near, NULL), MPI_MODE_RDONLY) == MPI_SUCCESS);
	check_error(MPI_File_write_at(file, 0, bytes, 1, MPI_BYTE, MPI_STATUS_IGNORE),
		    MPI_ERR_READ_ONLY, "read-only");
	check_all(MPI_File_set_size(file, 5), MPI_ERR_READ_ONLY, "read-only");
	read_all_of_it();
	check(MPI_File_close(&file) == MPI_SUCCESS);
	check(open_with(hints(near, NULL), MPI_MODE_WRONLY) == MPI_SUCCESS);
	check_error(MPI_File_read_at(file, 0, bytes, 1, MPI_BYTE, MPI_STATUS_IGNORE),
		    MPI_ERR_ACCESS, "write-only");
	/* A share that somebody has is told, and left. */
	for (int i = 0; i < 3; i++)
		shell("\"$UMMAP_TEST_CACHE\" %s %s 2>&1 | grep -q 'a program has it'", (const char *const[]){ "ls", "flush", "drop" }[i], near);
	check(MPI_File_close(&file) == MPI_SUCCESS);
}

/* What was kept is refused, and given up by the command. */
static void check_refused(const char *words)
{
	check_all(open_plainly(), MPI_ERR_FILE, words);
	check_all(open_plainly(), MPI_ERR_FILE, words);
	shell("\"$UMMAP_TEST_CACHE\" drop %s", near);
	check(open_plainly() == MPI_SUCCESS);
	check(MPI_File_close(&file) == MPI_SUCCESS);
	shell("\"$UMMAP_TEST_CACHE\" drop %s && rm -f %s", near, path);
}

static void caches_that_do_not_fit(void)
{
	shell("\"$UMMAP_TEST_CACHE\" drop %s && rm -f %s", near, path);
	keep_something();
	shell("mv %s %s.old && cp %s.old %s", path, path, path, path);
	check_refused("the file was replaced");
	keep_something();
	shell("sleep 0.02; echo more >> %s", path);
	check_refused("the file was modified");
	shell("head -c 100000 /dev/zero > %s", path);
	keep_something();
	shell("sleep 0.02; truncate -s 50000 %s", path);
	check_refused("the file was modified");
	keep_something();
	shell("for f in %s/*.head; do head -c 100 $f > $f.new && mv $f.new $f; done", near);
	check_refused("damaged");
	keep_something();
	if (ranks > 1) {
		shell("rm %s/*.1.head", near);
		check_refused("are there");
		keep_something();
	}
	shell("for f in %s/*.cache; do truncate -s 100000 $f; done", near);
	check_names_folder(open_plainly(), MPI_ERR_IO, "has become shorter");
	shell("\"$UMMAP_TEST_CACHE\" drop %s && rm -f %s", near, path);
}

/* Of what the file has in full, nothing is lost by damage. */
static void damage_without_harm(void)
{
	check(open_plainly() == MPI_SUCCESS);
	write_all_of_it();
	check(MPI_File_close(&file) == MPI_SUCCESS);
	shell("for f in %s/*.0.cache; do truncate -s 5000 $f; done", near);
	check(open_plainly() == MPI_SUCCESS);
	read_all_of_it();
	check(MPI_File_close(&file) == MPI_SUCCESS);
	shell("\"$UMMAP_TEST_CACHE\" drop %s && rm -f %s", near, path);
}

/* By the command, and by the next program; and a file that goes while it is open. */
static void nothing_is_lost(void)
{
	keep_something();
	shell("\"$UMMAP_TEST_CACHE\" ls %s | grep -q kept", near);
	shell("\"$UMMAP_TEST_CACHE\" flush %s && ! \"$UMMAP_TEST_CACHE\" ls %s | grep -v clean", near, near);
	check(open_with(hints(near, "pmem_io_mode", "1", NULL), MPI_MODE_RDWR) == MPI_SUCCESS);
	read_all_of_it();
	check(MPI_File_close(&file) == MPI_SUCCESS);
	check(open_plainly() == MPI_SUCCESS);
	read_all_of_it();
	shell("rm %s", path);
	write_all_of_it();
	check(MPI_File_sync(file) == MPI_SUCCESS);
	read_all_of_it();
	check(MPI_File_close(&file) == MPI_SUCCESS);
	shell("test -z \"$(ls %s)\"", near);
	check(open_with(hints(near, NULL), MPI_MODE_RDWR | MPI_MODE_CREATE | MPI_MODE_DELETE_ON_CLOSE) == MPI_SUCCESS);
	write_all_of_it();
	check(MPI_File_close(&file) == MPI_SUCCESS);
	shell("test -z \"$(ls %s)\" && ! test -e %s", near, path);
}

/* What is in use, is a hint again. */
static void hints_in_use(void)
{
	MPI_Info used;

	check(open_plainly() == MPI_SUCCESS);
	check(MPI_File_get_info(file, &used) == MPI_SUCCESS);
	check(MPI_File_close(&file) == MPI_SUCCESS);
	check(open_with(used, MPI_MODE_RDWR) == MPI_SUCCESS);
	check(MPI_File_close(&file) == MPI_SUCCESS);
	shell("\"$UMMAP_TEST_CACHE\" drop %s && rm -f %s", near, path);
}

/* An open that fails for its cache leaves all as it was. */
static void opens_that_fail(void)
{
	int amode;

	shell("echo something > %s", path);
	check_all(open_with(hints("/no/such/folder", NULL), MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE), MPI_ERR_NO_SUCH_FILE, "/no/such");
	shell("grep -q something %s && rm %s", path, path);
	check_all(open_with(hints("/no/such/folder", NULL), MPI_MODE_RDWR | MPI_MODE_CREATE | MPI_MODE_EXCL), MPI_ERR_NO_SUCH_FILE, "/no/such");
	shell("! test -e %s", path);
	check(open_with(hints(near, NULL), MPI_MODE_RDWR | MPI_MODE_CREATE | MPI_MODE_EXCL | MPI_MODE_DELETE_ON_CLOSE) == MPI_SUCCESS);
	check(MPI_File_get_amode(file, &amode) == MPI_SUCCESS);
	check(amode == (MPI_MODE_RDWR | MPI_MODE_CREATE | MPI_MODE_EXCL | MPI_MODE_DELETE_ON_CLOSE));
	check(MPI_File_close(&file) == MPI_SUCCESS);
	shell("! test -e %s", path);
}

/* A place that no file has is not one near the beginning. */
static void places_too_far(void)
{
	MPI_Datatype sparse;
	char byte = 'x';

	check(open_plainly() == MPI_SUCCESS);
	write_all_of_it();
	MPI_Type_create_resized(MPI_BYTE, 0, (MPI_Aint)1 << 40, &sparse);
	MPI_Type_commit(&sparse);
	check(MPI_File_set_view(file, 0, MPI_BYTE, sparse, "native", MPI_INFO_NULL) == MPI_SUCCESS);
	for (int shift = 22; shift < 62; shift++)
		check_error(MPI_File_write_at(file, (MPI_Offset)1 << shift, &byte, 1, MPI_BYTE,
					      MPI_STATUS_IGNORE),
			    MPI_ERR_ARG, "too large for a file");
	check_error(MPI_File_write_at(file, 0, &byte, -1, MPI_BYTE, MPI_STATUS_IGNORE), MPI_ERR_COUNT, "count");
	MPI_Type_free(&sparse);
	check(MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL) == MPI_SUCCESS);
	check(MPI_File_seek(file, INT64_MAX, MPI_SEEK_SET) == MPI_SUCCESS);
	check_error(MPI_File_seek(file, 1, MPI_SEEK_CUR), MPI_ERR_ARG, "too large for a file");
	read_all_of_it();
	check(MPI_File_close(&file) == MPI_SUCCESS);
	shell("\"$UMMAP_TEST_CACHE\" drop %s && rm -f %s", near, path);
}

/* Each node has a folder of its own, so the command runs once on each: what the first has written is no change by others. */
static void one_node_after_the_other(void)
{
	for (int by_command = 0; by_command < 2; by_command++) {
		keep_something();
		shell("mkdir %s.1 && mv %s/*.1.* %s.1 && \"$UMMAP_TEST_CACHE\" flush %s", near, near, near, near);
		if (by_command)
			shell("\"$UMMAP_TEST_CACHE\" flush %s.1", near);
		shell("mv %s.1/* %s && rmdir %s.1", near, near, near);
		check(open_plainly() == MPI_SUCCESS);
		read_all_of_it();
		check(MPI_File_close(&file) == MPI_SUCCESS);
		check(open_with(hints(near, "pmem_io_mode", "1", NULL), MPI_MODE_RDWR) == MPI_SUCCESS);
		read_all_of_it();
		check(MPI_File_close(&file) == MPI_SUCCESS);
		shell("\"$UMMAP_TEST_CACHE\" drop %s && rm -f %s", near, path);
	}
	if (ranks > 1) {
		/* What the other nodes have may be missed. */
		keep_something();
		shell("mkdir %s.1 && mv %s/*.1.* %s.1 && \"$UMMAP_TEST_CACHE\" flush %s", near, near, near, near);
		check_all(open_plainly(), MPI_ERR_FILE, "are there");
		shell("\"$UMMAP_TEST_CACHE\" flush %s.1", near);
		check_all(open_plainly(), MPI_ERR_FILE, "are there");
		shell("mv %s.1/* %s && rmdir %s.1 && \"$UMMAP_TEST_CACHE\" flush %s", near, near, near, near);
		shell("! \"$UMMAP_TEST_CACHE\" ls %s | grep -v '; clean;' && rm %s/*.1.*", near, near);
		check(open_plainly() == MPI_SUCCESS);
		read_all_of_it();
		check(MPI_File_close(&file) == MPI_SUCCESS);
		shell("\"$UMMAP_TEST_CACHE\" drop %s && rm -f %s", near, path);
	}
	/* A head alone is not all of a share. */
	keep_something();
	shell("rm %s/*.1.cache", near);
	check_refused("are there");
}

static _Atomic int syncs;

__attribute__((visibility("default"))) int fdatasync(int fd)
{
	syncs++;
	return (int)syscall(SYS_fdatasync, fd);
}

/* What is behind all shares: it is durable as all else, and no change by others after a crash. Its caches are as they were then. */
static void beyond_the_caches(void)
{
	MPI_Offset far = ((MPI_Offset)65 << 30) + rank * 100, size;
	char byte = 'f';
	int before;

	check(open_with(hints(near, "pmem_durable", "write", "pmem_size", "4M", NULL), MPI_MODE_RDWR | MPI_MODE_CREATE) == MPI_SUCCESS);
	write_all_of_it();
	check(MPI_File_sync(file) == MPI_SUCCESS);
	MPI_Barrier(MPI_COMM_WORLD);
	before = syncs;
	check(MPI_File_write_at(file, far, &byte, 1, MPI_BYTE, MPI_STATUS_IGNORE) == MPI_SUCCESS);
	check(syncs > before);
	shell("mkdir %s.then && cp %s/* %s.then", near, near, near);
	check(MPI_File_close(&file) == MPI_SUCCESS);
	shell("mv %s.then/* %s && rmdir %s.then", near, near, near);
	check(open_plainly() == MPI_SUCCESS);
	read_all_of_it();
	byte = 0;
	check(MPI_File_read_at(file, far, &byte, 1, MPI_BYTE, MPI_STATUS_IGNORE) == MPI_SUCCESS && byte == 'f');
	check(MPI_File_get_size(file, &size) == MPI_SUCCESS && size == ((MPI_Offset)65 << 30) + (ranks - 1) * 100 + 1);
	check(MPI_File_close(&file) == MPI_SUCCESS);
	shell("\"$UMMAP_TEST_CACHE\" drop %s && rm -f %s", near, path);
}

/* The last rank owns no part, so it opens the file when it first needs it; a process without descriptors cannot. */
static void opens_without_descriptors(void)
{
	MPI_Offset far = (MPI_Offset)65 << 30;
	struct rlimit was, none;
	char byte = 'f', nodes[16];

	/* Among several machines the last rank owns a part, and its MPI polls descriptors. */
	if (!on_one_machine())
		return;
	snprintf(nodes, sizeof(nodes), "%s", getenv("UMMAP_TEST_IOCACHE_NODES") ? getenv("UMMAP_TEST_IOCACHE_NODES") : "1");
	setenv("UMMAP_TEST_IOCACHE_NODES", "1", 1);
	check(open_plainly() == MPI_SUCCESS);
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == ranks - 1) {
		check(getrlimit(RLIMIT_NOFILE, &was) == 0);
		none = was;
		none.rlim_cur = 0;
		check(setrlimit(RLIMIT_NOFILE, &none) == 0);
		check_error(MPI_File_write_at(file, far, &byte, 1, MPI_BYTE, MPI_STATUS_IGNORE), MPI_ERR_IO, "Too many open files");
		check(setrlimit(RLIMIT_NOFILE, &was) == 0);
		check(MPI_File_write_at(file, far, &byte, 1, MPI_BYTE, MPI_STATUS_IGNORE) == MPI_SUCCESS);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	check(MPI_File_close(&file) == MPI_SUCCESS);
	setenv("UMMAP_TEST_IOCACHE_NODES", nodes, 1);
	shell("\"$UMMAP_TEST_CACHE\" drop %s && rm -f %s", near, path);
}

/* Also of what the file reaches to without storage. */
static void storage_for_all(void)
{
	struct stat st;

	check(open_plainly() == MPI_SUCCESS);
	check(MPI_File_set_size(file, 1 << 20) == MPI_SUCCESS);
	check(MPI_File_preallocate(file, 1 << 20) == MPI_SUCCESS);
	check(stat(path, &st) == 0 && st.st_size == 1 << 20 && st.st_blocks >= (1 << 20) / 512, "%lld blocks", (long long)st.st_blocks);
	MPI_Barrier(MPI_COMM_WORLD);
	check(MPI_File_preallocate(file, 0) == MPI_SUCCESS);
	check(MPI_File_close(&file) == MPI_SUCCESS);
	shell("\"$UMMAP_TEST_CACHE\" drop %s && rm -f %s", near, path);
}

/* MPIs do not agree on whether ufs: is part of a name: the cache is of the file that MPI has. */
static void names_with_a_colon(void)
{
	char name[500], found[300] = "";
	MPI_Info used;
	int is, code;

	check(chdir(folder) == 0);
	setenv("UMMAP_IOCACHE_ALL", folder, 1);
	setenv("UMMAP_IOCACHE_PATH", near, 1);
	for (int i = 0; i < 2; i++) {
		snprintf(name, sizeof(name), i ? "ufs:%s" : "ufs:file", path);
		code = MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_RDWR | MPI_MODE_CREATE, MPI_INFO_NULL, &file);
		/* A folder named ufs: is not there. */
		check(code == MPI_SUCCESS || i, "%s", name);
		if (code != MPI_SUCCESS)
			continue;
		check(MPI_File_get_info(file, &used) == MPI_SUCCESS);
		MPI_Info_get(used, "pmem_path", sizeof(found) - 1, found, &is);
		check(is && strcmp(found, near) == 0, "%s", name);
		MPI_Info_free(&used);
		write_all_of_it();
		check(MPI_File_close(&file) == MPI_SUCCESS);
		shell("test $(cat ufs:file file 2> /dev/null | wc -c) = %d && rm -f ufs:file file", BYTES);
		shell("\"$UMMAP_TEST_CACHE\" drop %s", near);
	}
	unsetenv("UMMAP_IOCACHE_ALL");
}

static bool no_truncate;

__attribute__((visibility("default"))) int ftruncate(int fd, off_t size)
{
	if (no_truncate) {
		errno = EPERM;
		return -1;
	}
	return (int)syscall(SYS_ftruncate, fd, size);
}

/* Bytes that are cut off are gone at once, in the caches and in the file, and do not come back when the file grows. */
static void cuts_and_grows(const char *flush)
{
	static char bytes[BYTES];
	struct stat st;

	check(open_with(hints(near, "pmem_flush", flush, NULL), MPI_MODE_RDWR | MPI_MODE_CREATE) == MPI_SUCCESS);
	for (int i = 0; i < 10; i++) {
		MPI_Offset size = i % 2 ? 0 : BYTES / 3, now;

		write_all_of_it();
		if (i % 3 == 0)
			check(MPI_File_sync(file) == MPI_SUCCESS);
		check(MPI_File_set_size(file, size) == MPI_SUCCESS);
		check(MPI_File_get_size(file, &now) == MPI_SUCCESS && now == size);
		check(stat(path, &st) == 0 && st.st_size <= size, "%lld bytes", (long long)st.st_size);
		MPI_Barrier(MPI_COMM_WORLD);
		if (rank == ranks - 1)
			check(MPI_File_write_at(file, BYTES - 1, &(char){ byte_of(BYTES - 1) }, 1, MPI_BYTE, MPI_STATUS_IGNORE) == MPI_SUCCESS);
		MPI_Barrier(MPI_COMM_WORLD);
		check(MPI_File_read_at(file, 0, bytes, BYTES, MPI_BYTE, MPI_STATUS_IGNORE) == MPI_SUCCESS);
		for (int k = 0; k < BYTES - 1; k++)
			check(bytes[k] == (k < size ? byte_of((size_t)k) : 0), "byte %d is %d after %d cuts", k, bytes[k], i + 1);
		check(bytes[BYTES - 1] == byte_of(BYTES - 1));
		MPI_Barrier(MPI_COMM_WORLD);
	}
	/* A file that cannot be cut stays as it is. */
	write_all_of_it();
	no_truncate = true;
	check_error(MPI_File_set_size(file, 100), MPI_ERR_ACCESS, "to 100 bytes");
	no_truncate = false;
	read_all_of_it();
	check(MPI_File_set_size(file, BYTES / 2) == MPI_SUCCESS);
	check(MPI_File_set_size(file, BYTES) == MPI_SUCCESS);
	check(MPI_File_close(&file) == MPI_SUCCESS);
	if (rank == 0) {
		int fd = open(path, O_RDONLY | O_CLOEXEC);

		check(fd >= 0 && pread(fd, bytes, BYTES, 0) == BYTES);
		close(fd);
		for (int k = 0; k < BYTES; k++)
			check(bytes[k] == (k < BYTES / 2 ? byte_of((size_t)k) : 0), "byte %d is %d in the file", k, bytes[k]);
	}
	shell("\"$UMMAP_TEST_CACHE\" drop %s && rm -f %s", near, path);
}

/* What ends at one node has ended at all, when it begins anew. */
static void again_and_again(void)
{
	for (int i = 0; i < 20; i++) {
		check(open_with(hints(near, "pmem_close", "keep", NULL), MPI_MODE_RDWR | MPI_MODE_CREATE) == MPI_SUCCESS);
		write_all_of_it();
		check(MPI_File_set_size(file, BYTES / 2) == MPI_SUCCESS);
		write_all_of_it();
		check(MPI_File_close(&file) == MPI_SUCCESS);
	}
	check(open_plainly() == MPI_SUCCESS);
	read_all_of_it();
	check(MPI_File_close(&file) == MPI_SUCCESS);
	shell("\"$UMMAP_TEST_CACHE\" drop %s && rm -f %s", near, path);
}

int main(int argc, char **argv)
{
	start_mpi(&argc, &argv, MPI_THREAD_SINGLE);
	snprintf(path, sizeof(path), "%s/file", folder);
	snprintf(near, sizeof(near), "%s/near", folder);
	shell("mkdir %s", near);
	bad_hints();
	folder_of_one_machine();
	bad_calls();
	nothing_is_lost();
	caches_that_do_not_fit();
	damage_without_harm();
	again_and_again();
	cuts_and_grows("close");
	cuts_and_grows("1");
	hints_in_use();
	opens_that_fail();
	places_too_far();
	if (ranks > 1)
		one_node_after_the_other();
	beyond_the_caches();
	if (ranks > 1)
		opens_without_descriptors();
	storage_for_all();
	names_with_a_colon();
	MPI_Finalize();
	return 0;
}
