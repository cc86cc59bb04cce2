/* SPDX-License-Identifier: BSD-3-Clause */
/* The checks, in the order in which they run: what others depend on comes first. */
#include "checks.h"
#include "conform.h"

const struct check checks[] = {
	{ "calls", "the table has the calls that scheme, caps and other calls promise", check_calls },
	{ "geometry", "align is a power of two, and size is the size", check_geometry },
	{ "identity", "handles of one store have one id, those of others have others", check_identity },
	{ "read", "reads are whole, at every alignment of offset, length and memory", check_read },
	{ "read-end", "bytes past the end are zeros", check_read_end },
	{ "readv", "a readv is its reads", check_readv },
	{ "write", "writes are whole, at every alignment, and change nothing beside them", check_write },
	{ "writev", "a writev is its writes", check_writev },
	{ "last-byte", "the last byte can be written, and the size stays", check_last_byte },
	{ "grow", "UMMAP_CAP_GROW: a write past the end ends the store, and the gap is zeros", check_grow },
	{ "no-grow", "without it: an error, and nothing is changed", check_no_grow },
	{ "resize", "resize cuts and lengthens, and what it adds is zeros", check_resize },
	{ "flush", "flush works for the whole store and for any part", check_flush },
	{ "reopen", "a new handle has what an old one wrote", check_reopen },
	{ "second-handle", "handles see what others wrote and flushed", check_second_handle },
	{ "new-process", "a new process sees what was flushed", check_new_process },
	{ "read-only", "a handle for reading refuses to write", check_read_only },
	{ "open-fd", "open_fd gives the same as open, and refuses what it must", check_open_fd },
	{ "descriptors", "handles leave no descriptors behind, here or in programs that are started", check_descriptors },
	{ "missing", "a store that is not there is ENOENT, with a sentence", check_missing },
	{ "create", "UMMAP_O_CREATE makes a store, and empties none", check_create },
	{ "paths", "folders and paths that are too long are refused", check_paths },
	{ "keys", "unknown keys, and values that mean nothing, are EINVAL, with a sentence", check_keys },
	{ "disjoint", "threads that write blocks side by side keep out of each other's", check_disjoint },
	{ "overlap", "threads that write the same blocks leave the bytes of one of them", check_overlap },
	{ "signal", "size, and transfers with UMMAP_CAP_FAULTSAFE, work in a signal handler", check_signal },
	{ "fork", "a forked child closes the handle, and its parent does not notice", check_fork },
	{ "map", "map shows the bytes of the store, and stores to it are in the store", check_map },
	{ "lock", "locks keep others from the range, and nobody from anything else, as long as the handle has them",
	  check_lock },
	{ "lend", "lend shows the bytes of the store, or changes nothing", check_lend },
	{ "async", "every request comes back once, with the right bytes", check_async },
	{ "async-full", "submit returns 0 when it is full, and goes on after reap", check_async_full },
	{ "async-poll", "reap with a minimum of 0 does not wait, and gives everything in the end", check_async_poll },
	{ "async-end", "asynchronous requests at and past the end", check_async_end },
	{ "async-threads", "threads that submit and reap at once get back their own requests", check_async_threads },
	{ "async-fork", "requests in flight come back when a forked child closes the handle", check_async_fork },
	{ "async-close", "close with requests in flight leaves their memory alone afterwards", check_async_close },
	{ "mapping", "a mapping with a quarter in memory: random stores, umsync, and again", check_mapping },
	{ "mapping-offset", "the same at an odd offset, with an odd length", check_mapping_offset },
};

const size_t check_count = COUNT(checks);
