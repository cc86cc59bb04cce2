/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The keys of the drivers of this folder. A driver takes its key list and the types in its error
 * messages from here; `ummap help settings` and ummap-settings(7) print the rows. A file that uses
 * the types must define A_SIZE (common/size.h).
 *
 * KEY(name, type, default, meaning)
 * type: completes the error message "KEY is "VALUE": it must be TYPE".
 */
#ifndef DRIVERS_KEY_TABLES_H
#define DRIVERS_KEY_TABLES_H

#define FILE_KEYS(KEY)                                                                             \
	KEY("direct", "auto, always or never", "UMMAP_DIRECT",                                     \
	    "Whether transfers bypass the page cache (O_DIRECT).")                                 \
	KEY("cached", "auto, map or copy", "UMMAP_CACHED",                                         \
	    "How data in the page cache are read: as page-cache mappings or by a copy.")           \
	KEY("stripe", A_SIZE " below 4G", "as the file system says",                               \
	    "Size of the file's stripes: long writes end at multiples of it.")                     \
	KEY("fd", "the number of an open descriptor", "none",                                      \
	    "Descriptor whose open file description is used instead of opening the path.")

#define POSIX_KEYS(KEY) FILE_KEYS(KEY)

#define URING_ONLY_KEYS(KEY)                                                                     \
	KEY("depth", "a number from 1 to 64", "64", "Requests that one thread has in flight.")

#define URING_KEYS(KEY) FILE_KEYS(KEY) URING_ONLY_KEYS(KEY)

#define PMEM_KEYS(KEY)                                                                             \
	KEY("granularity", "auto, page, cacheline or byte", "auto",                                \
	    "Coarsest unit of durability that is accepted; auto accepts any.")

#define MEM_KEYS(KEY)                                                                              \
	KEY("name", "a name of at least one character", "none",                                    \
	    "Name of the store. All mappings of the process with the same name share it.")

#define NULL_KEYS(KEY)                                                                             \
	KEY("fill", "yes or no", "yes", "Whether a read fills memory with zeros.")

#define ERROR_KEYS(KEY)                                                                            \
	KEY("op", "read, write, flush or any", "any", "Calls that are counted.")                   \
	KEY("nth", "a number of at least 1", "1", "First counted call that fails.")                \
	KEY("times", "a number of at least 1, or always", "1", "Number of calls that fail.")       \
	KEY("errno", "a name such as EIO or ENOSPC, or a number up to 4095", "EIO",                \
	    "Error of the calls that fail.")                                                       \
	KEY("short", "a number of bytes", "0", "Bytes that a failing transfer moves first.")       \
	KEY("delay", "a number of microseconds", "0", "Time that each counted call waits first.")  \
	KEY("count", "the path of a file", "none",                                                 \
	    "File that always contains the numbers of counted and of failed calls.")

#define TRACE_KEYS(KEY)                                                                            \
	KEY("file", "the path of a file", "required",                                              \
	    "File that the trace is written to. An existing regular file is not overwritten.")

#define IORANKS_KEYS(KEY)                                                                          \
	KEY("name", "a name of at most 63 characters, a comma and a number from 1 to 64",          \
	    "UMMAP_IO_RANKS", "Name and number of the I/O processes of this machine.")             \
	KEY("operation", "the file of a plug-in, and an argument after a comma", "none",           \
	    "Operation of the I/O process on the data that it writes.")

#define WAL_KEYS(KEY)                                                                              \
	KEY("path", "the path of a file", "STORE.wal", "Log file.")                                \
	KEY("size", A_SIZE " of at least 1", "free space", "Maximum size of the log.")             \
	KEY("keep", "a number from 1 to 16", "1",                                                  \
	    "Number of the newest commits that can be opened again.")                              \
	KEY("commit", "a commit number", "the newest",                                             \
	    "Commit to open. A writable mapping drops the later ones.")                            \
	KEY("verify", "no or yes", "no", "Whether reads of the log compare its checksums.")

#define COW_KEYS(KEY)                                                                              \
	KEY("path", "the path of a file", "STORE.cow", "File of changes.")                         \
	KEY("verify", "no or yes", "no", "Whether reads of changes compare their checksums.")

#define SUM_KEYS(KEY)                                                                              \
	KEY("path", "the path of a file", "STORE.sum", "File of checksums.")                       \
	KEY("changed", "refuse, check or renew", "refuse",                                         \
	    "If the store was written without the filter: refuse to open it, check the old "       \
	    "checksums, or make new ones.")

#define CACHE_KEYS(KEY)                                                                            \
	KEY("path", "the path of a file or folder", "required", "Near file, or its folder.")       \
	KEY("size", A_SIZE " of at least 1", "as it is",                                           \
	    "Size of the near file. Required to create it.")                                       \
	KEY("block", "a power of two from 4K to 256K", "64K", "Unit of caching and eviction.")     \
	KEY("mode", "back, through or read", "back",                                               \
	    "Where writes go: back, near file first; through, both; read, far store only.")        \
	KEY("populate", "no or background", "no",                                                  \
	    "background: a thread fills the near file from the beginning of the store.")           \
	KEY("flush", "near or far", "near",                                                        \
	    "What a sync makes durable. The modes through and read have far only.")                \
	KEY("dirty", "1 to 90 percent, optionally a comma and up to 1000000 seconds", "50,10",     \
	    "How much of the near file may be dirty, and for how long.")                           \
	KEY("close", "flush or keep", "flush",                                                     \
	    "At the end of the mapping: write dirty blocks back, or keep them in the near file.")  \
	KEY("verify", "no or yes", "no",                                                           \
	    "Whether reads of the near file compare clean blocks with checksums.")

#define REQUEST_KEYS(KEY)                                                                          \
	KEY("timeout", "a number of seconds from 1 to 86400", "60",                                \
	    "Seconds after which a load fails, including all its repetitions.")                    \
	KEY("retries", "a number from 0 to 100", "8", "Repetitions of a failed request.")          \
	KEY("requests", "a number from 1 to 128", "64", "Requests that are in flight at a time.")  \
	KEY("range", "auto or " A_SIZE " from 4K to 1G", "auto",                                   \
	    "Longest range that one request reads. auto: 64K to 8M, as measured.")                 \
	KEY("version", "auto, 1.1 or 2", "auto", "Version of HTTP.")

#define HTTP_ONLY_KEYS(KEY)                                                                        \
	KEY("validator", "required or none", "required",                                           \
	    "Whether an object without ETag and Last-Modified is refused.")                        \
	KEY("whole", "no or yes", "no",                                                            \
	    "Whether an object is downloaded as a whole if the server cannot send ranges.")

#define HTTP_KEYS(KEY) REQUEST_KEYS(KEY) HTTP_ONLY_KEYS(KEY)

#define S3_ONLY_KEYS(KEY)                                                                          \
	KEY("endpoint", "a URL http(s)://HOST without user and query", "as the environment says",  \
	    "Server, which has all buckets as its folders.")                                       \
	KEY("region", "a name of letters, digits and '-'", "as the environment says",              \
	    "Region of the bucket.")                                                               \
	KEY("profile", "the name of a profile", "AWS_PROFILE",                                     \
	    "Profile in ~/.aws that has the credentials.")                                         \
	KEY("part", "a size from 5M to 1G, a multiple of 4K", "8M",                                \
	    "Length of the parts in which a new version of the object is sent.")                   \
	KEY("credentials", "auto or none", "auto",                                                 \
	    "none: requests are not signed, as for public buckets.")

#define S3_KEYS(KEY) REQUEST_KEYS(KEY) S3_ONLY_KEYS(KEY)

/* How the header of a log or of a file of changes names any driver of files. */
#define FILE_WAY "posix"
/* The filter by which a read-only store can be written to, in messages. */
#define WRITING_FILTER "cow+"
/* The drivers of files, and the filters that leave all bytes as they are. */
#define FILE_DRIVERS "posix", "uring", "pmem"
#define TRANSPARENT_FILTERS "error", "trace", "ioranks"

/* DRIVER(scheme, keys, beginning of the keys in a URI, page) for all drivers of this folder. */
#define ALL_DRIVER_KEYS(DRIVER)                                                                    \
	DRIVER(posix, POSIX_KEYS, "posix:? or uring:?", "ummap-drivers(7)")                        \
	DRIVER(uring, URING_ONLY_KEYS, "uring:?", "ummap-drivers(7)")                              \
	DRIVER(pmem, PMEM_KEYS, "pmem:?", "ummap-pmem(7)")                                         \
	DRIVER(mem, MEM_KEYS, "mem:?", "ummap-drivers(7)")                                         \
	DRIVER(null, NULL_KEYS, "null:?", "ummap-drivers(7)")                                      \
	DRIVER(error, ERROR_KEYS, "error.", "ummap-drivers(7)")                                    \
	DRIVER(trace, TRACE_KEYS, "trace.", "ummap-drivers(7)")                                    \
	DRIVER(ioranks, IORANKS_KEYS, "ioranks.", "ummap-ioranks(1)")                             \
	DRIVER(wal, WAL_KEYS, "wal.", "ummap-wal(7)")                                              \
	DRIVER(cow, COW_KEYS, "cow.", "ummap-cow(7)")                                              \
	DRIVER(sum, SUM_KEYS, "sum.", "ummap-sum(7)")                                              \
	DRIVER(cache, CACHE_KEYS, "cache.", "ummap-cache(7)")                                      \
	DRIVER(request, REQUEST_KEYS, "http:?, https:? or s3:?", "ummap-http(7)")                  \
	DRIVER(http, HTTP_ONLY_KEYS, "http:? or https:?", "ummap-http(7)")                         \
	DRIVER(s3, S3_ONLY_KEYS, "s3:?", "ummap-s3(7)")

/* The list of names for ummap_driver.keys: .keys = WAL_KEYS(KEY_NAME). */
#define KEY_NAME(name, type, default, meaning) name " "

#endif
