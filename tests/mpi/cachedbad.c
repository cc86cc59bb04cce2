/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Wrong calls on a file with an MPI-IO cache, and damaged or outdated caches: each call fails at
 * all ranks with the same MPI error class and with a sentence, and no data is lost.
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

static int open_with_cache(void)
{
	return open_with(hints(near, NULL), MPI_MODE_RDWR | MPI_MODE_CREATE);
}

static void open_without_cache(void)
{
	check(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_RDWR, MPI_INFO_NULL, &file) ==
	      MPI_SUCCESS);
}

/* The call fails at all ranks with the same code. */
#define check_all(call, class, words) do { \
		int code_ = (call), max_ = code_, min_ = code_; \
		check_error(code_, class, words); \
		MPI_Allreduce(MPI_IN_PLACE, &max_, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD); \
		MPI_Allreduce(MPI_IN_PLACE, &min_, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD); \
		check(max_ == min_); \
	} while (0)

/* Rank 0 runs the command while the other ranks wait. */
static void run_shell(const char *format, ...)
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

/* Removes the file and its parts. */
static void remove_file(void)
{
	run_shell("\"$UMMAP_TEST_CACHE\" drop %s && rm -f %s", near, path);
}

static char byte_of(size_t i)
{
	return (char)(i * 7 + i / 300 + 1);
}

static void write_file(void)
{
	static char bytes[BYTES];

	for (size_t i = 0; i < BYTES; i++)
		bytes[i] = byte_of(i);
	if (rank == 0)
		check(MPI_File_write_at(file, 0, bytes, BYTES, MPI_BYTE, MPI_STATUS_IGNORE) ==
		      MPI_SUCCESS);
	MPI_Barrier(MPI_COMM_WORLD);
}

static void read_file(void)
{
	static char bytes[BYTES];

	check(MPI_File_read_at(file, 0, bytes, BYTES, MPI_BYTE, MPI_STATUS_IGNORE) == MPI_SUCCESS);
	for (size_t i = 0; i < BYTES; i++)
		check(bytes[i] == byte_of(i), "byte %zu is %d", i, bytes[i]);
	MPI_Barrier(MPI_COMM_WORLD);
}

static void close_with_kept_data(void)
{
	check(open_with(hints(near, "pmem_close", "keep", NULL), MPI_MODE_RDWR | MPI_MODE_CREATE) ==
	      MPI_SUCCESS);
	write_file();
	check(MPI_File_close(&file) == MPI_SUCCESS);
}

/* The sentence names the folder by its path, not by a descriptor in /proc. */
static void check_names_folder(int code, int class, const char *words)
{
	char text[MPI_MAX_ERROR_STRING];
	int len;

	check_all(code, class, words);
	MPI_Error_string(code, text, &len);
	check(strstr(text, near) && !strstr(text, "/proc/"), "%s", text);
}

static void test_bad_hints(void)
{
	static const char *const bad[][3] = {
		{ "pmem_size", "1", "at least 2M" },         { "pmem_size", "many", "at least 2M" },
		{ "pmem_stripe", "100", "multiple of 64K" }, { "pmem_flush", "0", "seconds" },
		{ "pmem_flush", "never", "seconds" },        { "pmem_populate", "yes", "true" },
		{ "pmem_durable", "always", "write" },       { "pmem_close", "no", "keep" },
	};
	int amode = MPI_MODE_RDWR | MPI_MODE_CREATE;
	MPI_Info info;

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		check_all(open_with(hints(near, bad[i][0], bad[i][1], NULL), amode),
			  MPI_ERR_INFO_VALUE, bad[i][2]);
	check_all(open_with(hints("/no/such/folder", NULL), amode), MPI_ERR_NO_SUCH_FILE,
		  "/no/such/folder");
	check_names_folder(open_with(hints(near, "pmem_size", "10T", NULL), amode),
			   MPI_ERR_NO_SPACE, "");
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
	/* The calls that failed have left nothing in the folder. */
	run_shell("test -z \"$(ls %s)\"", near);
}

static bool are_on_one_machine(void)
{
	MPI_Comm machine;
	int here;

	MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine);
	MPI_Comm_size(machine, &here);
	MPI_Comm_free(&machine);
	return here == ranks;
}

/* A folder in the memory of one machine does not exist on another. */
static void test_folder_of_one_machine(void)
{
	const char *own = "/dev/shm/of-one-machine";

	if (are_on_one_machine())
		return;
	run_shell("mkdir %s", own);
	check_all(open_with(hints(own, NULL), MPI_MODE_RDWR | MPI_MODE_CREATE),
		  MPI_ERR_NO_SUCH_FILE, own);
	run_shell("test -z \"$(ls %s)\" && rmdir %s", own, own);
}

static int handler_calls;

static void count_call(MPI_File *f, int *code, ...)
{
	(void)f, (void)code;
	handler_calls++;
}

/* A rank can have an empty view to take no part in collective accesses. */
static void test_empty_view(void)
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

static void test_bad_calls(void)
{
	char bytes[8] = "";
	MPI_Errhandler errhandler;
	MPI_File twice;
	MPI_Info info = hints(near, NULL);
	MPI_Offset size;

	check(open_with_cache() == MPI_SUCCESS);
	write_file();
	check_all(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_RDWR, info, &twice), MPI_ERR_IO,
		  "open twice");
	MPI_Info_free(&info);
	check_error(MPI_File_read_at(file, -1, bytes, 1, MPI_BYTE, MPI_STATUS_IGNORE), MPI_ERR_ARG,
		    "offset");
	check_error(MPI_File_write_at(file, 0, bytes, -1, MPI_BYTE, MPI_STATUS_IGNORE),
		    MPI_ERR_COUNT, "count");
	check_error(MPI_File_seek(file, -1, MPI_SEEK_SET), MPI_ERR_ARG, "before the beginning");
	check_error(MPI_File_seek(file, 0, 77), MPI_ERR_ARG, "whence is 77");
	check_all(MPI_File_set_size(file, -5), MPI_ERR_ARG, "size");
	if (ranks > 1) {
		check_all(MPI_File_set_size(file, rank ? BYTES / 2 : BYTES * 2), MPI_ERR_ARG,
			  "different sizes");
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
	test_empty_view();
	MPI_File_create_errhandler(count_call, &errhandler);
	MPI_File_set_errhandler(file, errhandler);
	check_error(MPI_File_read_at(file, -1, bytes, 4, MPI_BYTE, MPI_STATUS_IGNORE), MPI_ERR_ARG,
		    "offset");
	check(handler_calls == 1);
	MPI_Errhandler_free(&errhandler);
	check(MPI_File_get_size(file, &size) == MPI_SUCCESS && size == BYTES);
	check(MPI_File_close(&file) == MPI_SUCCESS);
	check(open_with(hints(near, NULL), MPI_MODE_RDONLY) == MPI_SUCCESS);
	check_error(MPI_File_write_at(file, 0, bytes, 1, MPI_BYTE, MPI_STATUS_IGNORE),
		    MPI_ERR_READ_ONLY, "read-only");
	check_all(MPI_File_set_size(file, 5), MPI_ERR_READ_ONLY, "read-only");
	read_file();
	check(MPI_File_close(&file) == MPI_SUCCESS);
	check(open_with(hints(near, NULL), MPI_MODE_WRONLY) == MPI_SUCCESS);
	check_error(MPI_File_read_at(file, 0, bytes, 1, MPI_BYTE, MPI_STATUS_IGNORE),
		    MPI_ERR_ACCESS, "write-only");
	/* The command reports and skips parts that are in use. */
	for (int i = 0; i < 3; i++)
		run_shell("\"$UMMAP_TEST_CACHE\" %s %s 2>&1 | grep -q 'a program has it'",
			  (const char *const[]){ "ls", "flush", "drop" }[i], near);
	check(MPI_File_close(&file) == MPI_SUCCESS);
}

/* Opening fails with `words` until the command has dropped the parts. */
static void check_refused(const char *words)
{
	check_all(open_with_cache(), MPI_ERR_FILE, words);
	check_all(open_with_cache(), MPI_ERR_FILE, words);
	run_shell("\"$UMMAP_TEST_CACHE\" drop %s", near);
	check(open_with_cache() == MPI_SUCCESS);
	check(MPI_File_close(&file) == MPI_SUCCESS);
	remove_file();
}

static void test_outdated_parts(void)
{
	remove_file();
	close_with_kept_data();
	run_shell("mv %s %s.old && cp %s.old %s", path, path, path, path);
	check_refused("the file was replaced");
	close_with_kept_data();
	run_shell("echo more >> %s", path);
	check_refused("the file was modified");
	run_shell("head -c 100000 /dev/zero > %s", path);
	close_with_kept_data();
	run_shell("truncate -s 50000 %s", path);
	check_refused("the file was modified");
	close_with_kept_data();
	run_shell("for f in %s/*.head; do head -c 100 $f > $f.new && mv $f.new $f; done", near);
	check_refused("damaged");
	close_with_kept_data();
	if (ranks > 1) {
		run_shell("rm %s/*.1.head", near);
		check_refused("are there");
		close_with_kept_data();
	}
	run_shell("for f in %s/*.cache; do truncate -s 100000 $f; done", near);
	check_names_folder(open_with_cache(), MPI_ERR_IO, "has become shorter");
	remove_file();
}

/* The next change must set another time stamp, also if time stamps are whole seconds. */
static void test_time_stamp(void)
{
	struct timespec times[2] = { { 0 }, { 0 } }, now;

	check(open_with_cache() == MPI_SUCCESS);
	write_file();
	check(MPI_File_close(&file) == MPI_SUCCESS);
	run_shell("rm %s/*", near);
	times[0].tv_sec = times[1].tv_sec = time(NULL);
	check(rank || utimensat(AT_FDCWD, path, times, 0) == 0);
	MPI_Barrier(MPI_COMM_WORLD);
	close_with_kept_data();
	clock_gettime(CLOCK_REALTIME, &now);
	check(rank || now.tv_sec >= times[1].tv_sec + 2, "after %jd s", (intmax_t)(now.tv_sec -
	      times[1].tv_sec));
	remove_file();
}

/* A damaged part without dirty data is harmless: the file has all of the data. */
static void test_damaged_clean_part(void)
{
	check(open_with_cache() == MPI_SUCCESS);
	write_file();
	check(MPI_File_close(&file) == MPI_SUCCESS);
	run_shell("for f in %s/*.0.cache; do truncate -s 5000 $f; done", near);
	check(open_with_cache() == MPI_SUCCESS);
	read_file();
	check(MPI_File_close(&file) == MPI_SUCCESS);
	remove_file();
}

/*
 * Kept data reaches the file by the command and by the next program. A file that is removed while
 * it is open stays usable until it is closed.
 */
static void test_kept_data(void)
{
	close_with_kept_data();
	run_shell("\"$UMMAP_TEST_CACHE\" ls %s | grep -q kept", near);
	run_shell("\"$UMMAP_TEST_CACHE\" flush %s && ! \"$UMMAP_TEST_CACHE\" ls %s | grep -v clean",
		  near, near);
	open_without_cache();
	read_file();
	check(MPI_File_close(&file) == MPI_SUCCESS);
	check(open_with_cache() == MPI_SUCCESS);
	read_file();
	run_shell("rm %s", path);
	write_file();
	check(MPI_File_sync(file) == MPI_SUCCESS);
	read_file();
	check(MPI_File_close(&file) == MPI_SUCCESS);
	run_shell("test -z \"$(ls %s)\"", near);
	check(open_with(hints(near, NULL),
			MPI_MODE_RDWR | MPI_MODE_CREATE | MPI_MODE_DELETE_ON_CLOSE) == MPI_SUCCESS);
	write_file();
	check(MPI_File_close(&file) == MPI_SUCCESS);
	run_shell("test -z \"$(ls %s)\" && ! test -e %s", near, path);
}

/* The hints that MPI_File_get_info returns can be passed to MPI_File_open. */
static void test_used_hints(void)
{
	MPI_Info used;

	check(open_with_cache() == MPI_SUCCESS);
	check(MPI_File_get_info(file, &used) == MPI_SUCCESS);
	check(MPI_File_close(&file) == MPI_SUCCESS);
	check(open_with(used, MPI_MODE_RDWR) == MPI_SUCCESS);
	check(MPI_File_close(&file) == MPI_SUCCESS);
	remove_file();
}

/* If the cache cannot be opened, MPI_File_open neither creates nor removes the file. */
static void test_failed_open(void)
{
	int amode;

	run_shell("echo something > %s", path);
	check_all(
		open_with(hints("/no/such/folder", NULL), MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE),
		MPI_ERR_NO_SUCH_FILE, "/no/such");
	run_shell("grep -q something %s && rm %s", path, path);
	check_all(open_with(hints("/no/such/folder", NULL),
			    MPI_MODE_RDWR | MPI_MODE_CREATE | MPI_MODE_EXCL),
		  MPI_ERR_NO_SUCH_FILE, "/no/such");
	run_shell("! test -e %s", path);
	check(open_with(hints(near, NULL), MPI_MODE_RDWR | MPI_MODE_CREATE | MPI_MODE_EXCL |
						   MPI_MODE_DELETE_ON_CLOSE) == MPI_SUCCESS);
	check(MPI_File_get_amode(file, &amode) == MPI_SUCCESS);
	check(amode ==
	      (MPI_MODE_RDWR | MPI_MODE_CREATE | MPI_MODE_EXCL | MPI_MODE_DELETE_ON_CLOSE));
	check(MPI_File_close(&file) == MPI_SUCCESS);
	run_shell("! test -e %s", path);
}

/* Offsets that overflow are refused; they do not wrap around to the beginning of the file. */
static void test_large_offsets(void)
{
	MPI_Datatype sparse;
	char byte = 'x';

	check(open_with_cache() == MPI_SUCCESS);
	write_file();
	MPI_Type_create_resized(MPI_BYTE, 0, (MPI_Aint)1 << 40, &sparse);
	MPI_Type_commit(&sparse);
	check(MPI_File_set_view(file, 0, MPI_BYTE, sparse, "native", MPI_INFO_NULL) == MPI_SUCCESS);
	for (int shift = 22; shift < 62; shift++)
		check_error(MPI_File_write_at(file, (MPI_Offset)1 << shift, &byte, 1, MPI_BYTE,
					      MPI_STATUS_IGNORE),
			    MPI_ERR_ARG, "too large for a file");
	check_error(MPI_File_write_at(file, 0, &byte, -1, MPI_BYTE, MPI_STATUS_IGNORE),
		    MPI_ERR_COUNT, "count");
	MPI_Type_free(&sparse);
	check(MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL) ==
	      MPI_SUCCESS);
	check(MPI_File_seek(file, INT64_MAX, MPI_SEEK_SET) == MPI_SUCCESS);
	check_error(MPI_File_seek(file, 1, MPI_SEEK_CUR), MPI_ERR_ARG, "too large for a file");
	read_file();
	check(MPI_File_close(&file) == MPI_SUCCESS);
	remove_file();
}

/*
 * If each node has its own folder, the command runs once on each node. The second run must not take
 * the data that the first one wrote to the file for a change by another program.
 */
static void test_flush_by_node(void)
{
	for (int by_command = 0; by_command < 2; by_command++) {
		close_with_kept_data();
		run_shell("mkdir %s.1 && mv %s/*.1.* %s.1 && \"$UMMAP_TEST_CACHE\" flush %s", near,
			  near, near, near);
		if (by_command)
			run_shell("\"$UMMAP_TEST_CACHE\" flush %s.1", near);
		run_shell("mv %s.1/* %s && rmdir %s.1", near, near, near);
		check(open_with_cache() == MPI_SUCCESS);
		read_file();
		check(MPI_File_close(&file) == MPI_SUCCESS);
		open_without_cache();
		read_file();
		check(MPI_File_close(&file) == MPI_SUCCESS);
		remove_file();
	}
	if (ranks > 1) {
		/* Parts of other nodes are missing: they may have dirty data, so opening fails. */
		close_with_kept_data();
		run_shell("mkdir %s.1 && mv %s/*.1.* %s.1 && \"$UMMAP_TEST_CACHE\" flush %s", near,
			  near, near, near);
		check_all(open_with_cache(), MPI_ERR_FILE, "are there");
		run_shell("\"$UMMAP_TEST_CACHE\" flush %s.1", near);
		check_all(open_with_cache(), MPI_ERR_FILE, "are there");
		run_shell("mv %s.1/* %s && rmdir %s.1 && \"$UMMAP_TEST_CACHE\" flush %s", near,
			  near, near, near);
		run_shell("! \"$UMMAP_TEST_CACHE\" ls %s | grep -v '; clean;' && rm %s/*.1.*", near,
			  near);
		check(open_with_cache() == MPI_SUCCESS);
		read_file();
		check(MPI_File_close(&file) == MPI_SUCCESS);
		remove_file();
	}
	/* A part without its near file is incomplete. */
	close_with_kept_data();
	run_shell("rm %s/*.1.cache", near);
	check_refused("are there");
}

static _Atomic int fdatasync_calls;

__attribute__((visibility("default"))) int fdatasync(int fd)
{
	fdatasync_calls++;
	return (int)syscall(SYS_fdatasync, fd);
}

/*
 * Bytes far behind the end that all parts cover are written to the file itself. They are durable
 * like all other bytes, and after a crash, which the test simulates by restoring the parts, the
 * next open must not take them for a change by another program.
 */
static void test_bytes_beyond_parts(void)
{
	MPI_Offset far = ((MPI_Offset)65 << 30) + rank * 100, size;
	char byte = 'f';
	int before;

	check(open_with(hints(near, "pmem_durable", "write", "pmem_size", "4M", NULL),
			MPI_MODE_RDWR | MPI_MODE_CREATE) == MPI_SUCCESS);
	write_file();
	check(MPI_File_sync(file) == MPI_SUCCESS);
	MPI_Barrier(MPI_COMM_WORLD);
	before = fdatasync_calls;
	check(MPI_File_write_at(file, far, &byte, 1, MPI_BYTE, MPI_STATUS_IGNORE) == MPI_SUCCESS);
	check(fdatasync_calls > before);
	run_shell("mkdir %s.then && cp %s/* %s.then", near, near, near);
	check(MPI_File_close(&file) == MPI_SUCCESS);
	run_shell("mv %s.then/* %s && rmdir %s.then", near, near, near);
	check(open_with_cache() == MPI_SUCCESS);
	read_file();
	byte = 0;
	check(MPI_File_read_at(file, far, &byte, 1, MPI_BYTE, MPI_STATUS_IGNORE) == MPI_SUCCESS &&
	      byte == 'f');
	check(MPI_File_get_size(file, &size) == MPI_SUCCESS &&
	      size == ((MPI_Offset)65 << 30) + (ranks - 1) * 100 + 1);
	check(MPI_File_close(&file) == MPI_SUCCESS);
	remove_file();
}

/*
 * The last rank owns no part, so it opens the file when it first needs it. A process that has no
 * free descriptor cannot open it.
 */
static void test_no_free_descriptor(void)
{
	MPI_Offset far = (MPI_Offset)65 << 30;
	struct rlimit was, none;
	char byte = 'f', nodes[16];

	/* Among several machines the last rank owns a part, and its MPI polls descriptors. */
	if (!are_on_one_machine())
		return;
	snprintf(nodes, sizeof(nodes), "%s",
		 getenv("UMMAP_TEST_IOCACHE_NODES") ? getenv("UMMAP_TEST_IOCACHE_NODES") : "1");
	setenv("UMMAP_TEST_IOCACHE_NODES", "1", 1);
	check(open_with_cache() == MPI_SUCCESS);
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == ranks - 1) {
		check(getrlimit(RLIMIT_NOFILE, &was) == 0);
		none = was;
		none.rlim_cur = 0;
		check(setrlimit(RLIMIT_NOFILE, &none) == 0);
		check_error(MPI_File_write_at(file, far, &byte, 1, MPI_BYTE, MPI_STATUS_IGNORE),
			    MPI_ERR_IO, "Too many open files");
		check(setrlimit(RLIMIT_NOFILE, &was) == 0);
		check(MPI_File_write_at(file, far, &byte, 1, MPI_BYTE, MPI_STATUS_IGNORE) ==
		      MPI_SUCCESS);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	check(MPI_File_close(&file) == MPI_SUCCESS);
	setenv("UMMAP_TEST_IOCACHE_NODES", nodes, 1);
	remove_file();
}

/* MPI_File_preallocate also allocates storage for a hole that the size already includes. */
static void test_preallocate(void)
{
	struct stat st;

	check(open_with_cache() == MPI_SUCCESS);
	check(MPI_File_set_size(file, 1 << 20) == MPI_SUCCESS);
	check(MPI_File_preallocate(file, 1 << 20) == MPI_SUCCESS);
	check(stat(path, &st) == 0 && st.st_size == 1 << 20 && st.st_blocks >= (1 << 20) / 512,
	      "%lld blocks", (long long)st.st_blocks);
	MPI_Barrier(MPI_COMM_WORLD);
	check(MPI_File_preallocate(file, 0) == MPI_SUCCESS);
	check(MPI_File_close(&file) == MPI_SUCCESS);
	remove_file();
}

/*
 * For some MPIs "ufs:" is a part of the name, and for others it is not. The cache must belong to
 * the file that MPI opens.
 */
static void test_names_with_colon(void)
{
	char name[500], found[300] = "";
	MPI_Info used;
	int has_hint, code;

	check(chdir(folder) == 0);
	setenv("UMMAP_IOCACHE_ALL", folder, 1);
	setenv("UMMAP_IOCACHE_PATH", near, 1);
	for (int i = 0; i < 2; i++) {
		snprintf(name, sizeof(name), i ? "ufs:%s" : "ufs:file", path);
		code = MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_RDWR | MPI_MODE_CREATE,
				     MPI_INFO_NULL, &file);
		/* The second name fails where "ufs:" is a folder, which does not exist. */
		check(code == MPI_SUCCESS || i, "%s", name);
		if (code != MPI_SUCCESS)
			continue;
		check(MPI_File_get_info(file, &used) == MPI_SUCCESS);
		MPI_Info_get(used, "pmem_path", sizeof(found) - 1, found, &has_hint);
		check(has_hint && strcmp(found, near) == 0, "%s", name);
		MPI_Info_free(&used);
		write_file();
		check(MPI_File_close(&file) == MPI_SUCCESS);
		run_shell("test $(cat ufs:file file 2> /dev/null | wc -c) = %d && rm -f ufs:file "
			  "file",
			  BYTES);
		run_shell("\"$UMMAP_TEST_CACHE\" drop %s", near);
	}
	unsetenv("UMMAP_IOCACHE_ALL");
}

static bool refuses_ftruncate;

__attribute__((visibility("default"))) int ftruncate(int fd, off_t size)
{
	if (refuses_ftruncate) {
		errno = EPERM;
		return -1;
	}
	return (int)syscall(SYS_ftruncate, fd, size);
}

/*
 * Truncated bytes disappear at once in the parts and in the file, and are zeros when the file grows
 * again.
 */
static void test_truncate(const char *flush)
{
	static char bytes[BYTES];
	struct stat st;

	check(open_with(hints(near, "pmem_flush", flush, NULL), MPI_MODE_RDWR | MPI_MODE_CREATE) ==
	      MPI_SUCCESS);
	for (int i = 0; i < 10; i++) {
		MPI_Offset size = i % 2 ? 0 : BYTES / 3, now;

		write_file();
		if (i % 3 == 0)
			check(MPI_File_sync(file) == MPI_SUCCESS);
		check(MPI_File_set_size(file, size) == MPI_SUCCESS);
		check(MPI_File_get_size(file, &now) == MPI_SUCCESS && now == size);
		check(stat(path, &st) == 0 && st.st_size <= size, "%lld bytes",
		      (long long)st.st_size);
		MPI_Barrier(MPI_COMM_WORLD);
		if (rank == ranks - 1)
			check(MPI_File_write_at(file, BYTES - 1, &(char){ byte_of(BYTES - 1) }, 1,
						MPI_BYTE, MPI_STATUS_IGNORE) == MPI_SUCCESS);
		MPI_Barrier(MPI_COMM_WORLD);
		check(MPI_File_read_at(file, 0, bytes, BYTES, MPI_BYTE, MPI_STATUS_IGNORE) ==
		      MPI_SUCCESS);
		for (int k = 0; k < BYTES - 1; k++)
			check(bytes[k] == (k < size ? byte_of((size_t)k) : 0),
			      "byte %d is %d after %d cuts", k, bytes[k], i + 1);
		check(bytes[BYTES - 1] == byte_of(BYTES - 1));
		MPI_Barrier(MPI_COMM_WORLD);
	}
	/* A file that cannot be truncated keeps its data. */
	write_file();
	refuses_ftruncate = true;
	check_error(MPI_File_set_size(file, 100), MPI_ERR_ACCESS, "to 100 bytes");
	refuses_ftruncate = false;
	read_file();
	check(MPI_File_set_size(file, BYTES / 2) == MPI_SUCCESS);
	check(MPI_File_set_size(file, BYTES) == MPI_SUCCESS);
	check(MPI_File_close(&file) == MPI_SUCCESS);
	if (rank == 0) {
		int fd = open(path, O_RDONLY | O_CLOEXEC);

		check(fd >= 0 && pread(fd, bytes, BYTES, 0) == BYTES);
		close(fd);
		for (int k = 0; k < BYTES; k++)
			check(bytes[k] == (k < BYTES / 2 ? byte_of((size_t)k) : 0),
			      "byte %d is %d in the file", k, bytes[k]);
	}
	remove_file();
}

/* A node that opens the file again does so only after all nodes have closed it. */
static void test_repeated_open(void)
{
	for (int i = 0; i < 20; i++) {
		check(open_with(hints(near, "pmem_close", "keep", NULL),
				MPI_MODE_RDWR | MPI_MODE_CREATE) == MPI_SUCCESS);
		write_file();
		check(MPI_File_set_size(file, BYTES / 2) == MPI_SUCCESS);
		write_file();
		check(MPI_File_close(&file) == MPI_SUCCESS);
	}
	check(open_with_cache() == MPI_SUCCESS);
	read_file();
	check(MPI_File_close(&file) == MPI_SUCCESS);
	remove_file();
}

int main(int argc, char **argv)
{
	start_mpi(&argc, &argv, MPI_THREAD_SINGLE);
	snprintf(path, sizeof(path), "%s/file", folder);
	snprintf(near, sizeof(near), "%s/near", folder);
	run_shell("mkdir %s", near);
	test_bad_hints();
	test_folder_of_one_machine();
	test_bad_calls();
	test_kept_data();
	test_outdated_parts();
	test_time_stamp();
	test_damaged_clean_part();
	test_repeated_open();
	test_truncate("close");
	test_truncate("1");
	test_used_hints();
	test_failed_open();
	test_large_offsets();
	if (ranks > 1)
		test_flush_by_node();
	test_bytes_beyond_parts();
	if (ranks > 1)
		test_no_free_descriptor();
	test_preallocate();
	test_names_with_colon();
	MPI_Finalize();
	return 0;
}
