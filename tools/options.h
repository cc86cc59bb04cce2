/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The options of all commands. A command parses its options and prints its help by its list
 * (tool.h); `ummap help settings` and ummap-options(7) print all lists. The scripts (cafrun,
 * timeline, trace) get their help from here, too, and tests/check-settings looks for each option in
 * them. All commands also have --help and --version.
 *
 * ROW(id, letter, name, argument, default, meaning)
 * letter: the short option, 0: none. argument, default: "": none.
 */
#ifndef TOOLS_OPTIONS_H
#define TOOLS_OPTIONS_H

#define CACHE_OPTIONS(ROW) \
	ROW(FILE, 0, "cache", "CACHE", "STORE.cache", "path of the near file")

#define CAF_OPTIONS(ROW) \
	ROW(PREFIX, 0, "prefix", "PREFIX", "OpenCoarrays_", "beginning of the names of the files")

#define CAFRUN_OPTIONS(ROW) \
	ROW(IMAGES, 'n', "images", "N", "required", "number of images") \
	ROW(PATH, 0, "path", "FOLDER", "PCAF_PATH, or ./coarrays", "folder for the files; it " \
	    "is created if missing") \
	ROW(RECOVER, 0, "recover", "FOLDER", "PCAF_RECOVER", "folder of an earlier run, with " \
	    "any number of images, for pcaf_open_image") \
	ROW(RESTARTS, 0, "restarts", "R", "0", "restart up to R times from the last common " \
	    "moment when images have died") \
	ROW(MPI, 0, "mpi", "MPI", "that of the program", "MPI of the program; one of: openmpi, " \
	    "mpich") \
	ROW(MPIRUN, 0, "mpirun", "ARGS", "", "more arguments for the launcher, separated by " \
	    "blanks; may be repeated")

#define CONFORM_OPTIONS(ROW) \
	ROW(SIZE, 0, "size", "BYTES", "1M", "size of the store, such as 64K or 0.5G") \
	ROW(ONLY, 0, "only", "NAME", "", "run one check of --list") \
	ROW(SEED, 0, "seed", "N", "", "repeat a run with the seed that it printed") \
	ROW(KEEP, 0, "keep", "", "", "do not remove the store at the end") \
	ROW(OVERWRITE, 0, "overwrite", "", "", "use a store that exists; its contents are lost") \
	ROW(ALONE, 0, "alone", "", "", "the driver allows one handle of a store at a time") \
	ROW(FORGETS, 0, "forgets", "", "", "data is lost when the handle is closed (memory)") \
	ROW(SWALLOWS, 0, "swallows", "", "", "data is lost at once, and reads return zeros") \
	ROW(BESIDE, 0, "beside", "ENDS", "", "suffixes of files that the driver leaves beside a " \
	    "store, with commas between them") \
	ROW(FREE, 0, "free", "KEYS", "", "keys that accept any text, with commas between them") \
	ROW(SECONDS, 0, "seconds", "N", "60", "time limit of each check") \
	ROW(LIST, 0, "list", "", "", "print the names of the checks")

#define COW_OPTIONS(ROW) \
	ROW(FILE, 0, "changes", "CHANGES", "STORE.cow", "path of the file of changes")

#define CP_OPTIONS(ROW) \
	ROW(FORCE, 'f', "force", "", "", "overwrite a destination that has data") \
	ROW(QUIET, 'q', "quiet", "", "", "show no progress")

#define INFO_OPTIONS(ROW) \
	ROW(JSON, 'j', "json", "", "", "print JSON: objects of strings")

#define IOCACHE_OPTIONS(ROW)

#define IORANKS_OPTIONS(ROW) \
	ROW(PROCESSES, 'n', "processes", "K", "1", "number of I/O processes on this machine") \
	ROW(NAME, 0, "name", "NAME", "that of the parent process", "name of the I/O processes, " \
	    "which all programs of the job have in common")

#define OBJECT_OPTIONS(ROW) \
	ROW(KEEP, 0, "keep", "N", "1", "number of versions of each name to keep") \
	ROW(DEVICE, 0, "device", "FOLDER", "the container", "folder for chunks; may be " \
	    "repeated") \
	ROW(TYPE, 0, "type", "T", "uint8", "type of plain bytes; one of: int8, uint8, int16, " \
	    "uint16, int32, uint32, int64, uint64, float, double, ldouble") \
	ROW(DIMS, 0, "dims", "AxB", "one dimension", "dimensions of plain bytes") \
	ROW(CHUNK, 0, "chunk", "CxD", "at most 8 MiB each", "dimensions of a chunk") \
	ROW(ATTRIBUTE, 0, "attribute", "NAME=VALUE", "", "attribute of the object; may be " \
	    "repeated") \
	ROW(STRICT, 0, "strict", "", "", "refuse a file with an attribute that an object " \
	    "cannot have") \
	ROW(NUMBER, 0, "number", "N", "the newest", "number of the version to use") \
	ROW(REPAIR, 0, "repair", "", "", "restore names and views from the data that is there") \
	ROW(QUIET, 0, "quiet", "", "", "print no progress and no version numbers")

#define OVERLAY_OPTIONS(ROW) \
	ROW(STORE, 0, "store", "STORE", "as the overlay says", "apply: the store to write to") \
	ROW(JSON, 'j', "json", "", "", "print JSON") \
	ROW(QUIET, 0, "quiet", "", "", "print only errors")

#define RUN_OPTIONS(ROW) \
	ROW(LIMIT, 0, "limit", "SIZE", "UMMAP_MEM_LIMIT", "memory for all mappings of the " \
	    "program and its children: 512M or 50%") \
	ROW(SEGMENT, 0, "segment", "SIZE", "auto if read-only, else 256K", \
	    "unit of reading and eviction") \
	ROW(POLICY, 0, "policy", "NAME", "s3fifo", "eviction policy; one of: fifo, lifo, plru, " \
	    "prnd, wiro-f, wiro-l, s3fifo, or a policy that can be loaded") \
	ROW(DRIVER, 0, "driver", "NAME", "uring, or posix if uring cannot be used", \
	    "driver for the files") \
	ROW(ENGINE, 0, "engine", "NAME", "uffd, if it may be used", "way to catch accesses; " \
	    "one of: uffd, sigbus, segv") \
	ROW(TIERS, 0, "tiers", "LIST", "UMMAP_TIERS", "tiers of memory from fast to slow " \
	    "(hbm:8G,dram:32G); implies --engine segv") \
	ROW(ONLY, 0, "only", "GLOB", "", "page only files whose path or name matches") \
	ROW(MIN, 0, "min", "SIZE", "1M", "page only mappings of at least this size") \
	ROW(HEAP, 0, "heap", "FOLDER", "", "also page allocations of 64 KiB and more, and " \
	    "private memory of 256 KiB and more, to a file in this folder") \
	ROW(HEAP_MIN, 0, "heap-min", "SIZE", "64K", "with --heap: smallest allocation to page") \
	ROW(EXCLUSIVE, 0, "exclusive", "", "", "no other process uses the files: also page " \
	    "mappings that would otherwise stay with the kernel") \
	ROW(NODE_CACHE, 0, "node-cache", "", "", "the program and its children share one copy " \
	    "of each file that they only read") \
	ROW(STATS, 0, "stats", "", "", "print statistics of the mappings at the end") \
	ROW(VERBOSE, 0, "verbose", "", "", "also print the files that the kernel maps, and why") \
	ROW(QUIET, 0, "quiet", "", "", "print nothing about mappings that stay with the kernel")

#define SUM_OPTIONS(ROW) \
	ROW(FILE, 0, "sums", "FILE", "STORE.sum", "path of the file of checksums")

#define TIMELINE_OPTIONS(ROW) \
	ROW(OUTPUT, 'o', "output", "PICTURE", "", "draw phases and memory over time, as .png " \
	    "or .svg (needs gnuplot)") \
	ROW(SUMMARY, 's', "summary", "", "", "print the phases of each rank: times, steps, " \
	    "syncs, and memory") \
	ROW(RUN, 0, "run", "N", "1", "run to show, of a job that has run several times")

#define TOP_OPTIONS(ROW) \
	ROW(ONCE, '1', "once", "", "", "print once, as text") \
	ROW(JSON, 'j', "json", "", "", "print JSON") \
	ROW(MAPS, 'm', "maps", "", "", "show mappings, too (JSON always has them)") \
	ROW(COUNT, 'n', "count", "N", "no limit", "update this often, then end") \
	ROW(DELAY, 'd', "delay", "SECONDS", "1", "time between updates") \
	ROW(GROUP, 'g', "group", "GROUP", "that of the environment", "show the processes with " \
	    "this UMMAP_GROUP") \
	ROW(SORT, 's', "sort", "COLUMN", "held", "column to sort by; one of: pid, share, " \
	    "budget, held, over, lacks, resident, inactive, dirty, waiting, pagecache, " \
	    "faults_per_s, read_mib_per_s, write_mib_per_s, inactive_hits, readahead_hits") \
	ROW(REVERSE, 'r', "reverse", "", "", "sort in ascending order") \
	ROW(FILTER, 'f', "filter", "TEXT", "", "show processes with this text in a name, or " \
	    "with this number")

#define TRACE_OPTIONS(ROW) \
	ROW(OUTPUT, 'o', "output", "PICTURE", "", "draw offsets and latencies over time, as " \
	    ".png or .svg (needs gnuplot)") \
	ROW(SUMMARY, 's', "summary", "", "", "print requests, bytes, latencies and rates of " \
	    "each operation")

#define WAL_OPTIONS(ROW) \
	ROW(FILE, 0, "log", "LOG", "STORE.wal", "path of the log")

#define WORDCOUNT_OPTIONS(ROW) \
	ROW(OUTPUT, 'o', "output", "FILE", "standard output", "file for the result") \
	ROW(STORAGE, 's', "storage", "FOLDER", "", "keep the windows of the job in files of " \
	    "this folder, and continue a job that was interrupted") \
	ROW(SYNC, 0, "sync", "TASKS", "a 25th of the time", "with --storage: tasks of a rank " \
	    "between syncs") \
	ROW(LIMIT, 0, "limit", "SIZE", "", "with --storage: memory for windows, for all ranks " \
	    "of a machine together") \
	ROW(TABLE, 0, "table", "SIZE", "256M", "bytes of pairs in the hash table of a rank") \
	ROW(TASK, 't', "task", "SIZE", "a 16th of a rank's part of the input, from 1M to 64M", \
	    "bytes of one task") \
	ROW(TIMELINE, 0, "timeline", "FILE", "", "write the events of all ranks to this file, " \
	    "as CSV") \
	ROW(QUIET, 'q', "quiet", "", "", "show no progress")

/* COMMAND(name, list) */
#define ALL_COMMANDS(COMMAND) \
	COMMAND(cache, CACHE_OPTIONS) \
	COMMAND(caf, CAF_OPTIONS) \
	COMMAND(cafrun, CAFRUN_OPTIONS) \
	COMMAND(conform, CONFORM_OPTIONS) \
	COMMAND(cow, COW_OPTIONS) \
	COMMAND(cp, CP_OPTIONS) \
	COMMAND(info, INFO_OPTIONS) \
	COMMAND(ioranks, IORANKS_OPTIONS) \
	COMMAND(object, OBJECT_OPTIONS) \
	COMMAND(overlay, OVERLAY_OPTIONS) \
	COMMAND(run, RUN_OPTIONS) \
	COMMAND(sum, SUM_OPTIONS) \
	COMMAND(timeline, TIMELINE_OPTIONS) \
	COMMAND(top, TOP_OPTIONS) \
	COMMAND(trace, TRACE_OPTIONS) \
	COMMAND(wal, WAL_OPTIONS) \
	COMMAND(wordcount, WORDCOUNT_OPTIONS)

#endif
