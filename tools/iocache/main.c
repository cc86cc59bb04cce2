/* SPDX-License-Identifier: BSD-3-Clause */
/* ummap iocache - shows, writes back and removes the parts of an MPI-IO cache in a folder of one
 * node. */
#include <dirent.h>
#include <inttypes.h>
#include <sys/stat.h>
#include <time.h>

#include "iocache/head.h"
#include "iocache/part.h"

#include "../../drivers/overlay/overlay.h"
#include "../beside.h"

TOOL_HELP(IOCACHE_OPTIONS, .usage =
"usage: ummap iocache ls|flush|drop FOLDER\n"
"Manages the parts of MPI-IO caches in the folder FOLDER (hint pmem_path) of this node.\n"
"\n"
"Actions:\n"
"  ls         show each part, its file, and the bytes that the file lacks\n"
"  flush      write dirty data to the files; the parts stay\n"
"  drop       remove the parts; data that was not written back is lost\n");

#define SUFFIX ".head"
#define IN_USE "a program has it open. Try again when the program has ended"

struct part_file {
	char head_path[PATH_MAX], cache_path[PATH_MAX];
	struct head head;
	int err;                     /* result of reading the header; -EUCLEAN: it is damaged */
	bool flushed;                /* whether this run has written it back */
};

static struct part_file *parts;
static size_t n_parts;
static int result = EXIT_SUCCESS;

__attribute__((format(printf, 1, 2))) static void complain(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	tool_print_error(format, args);
	va_end(args);
	result = EXIT_TROUBLE;
}

static int is_head(const struct dirent *entry)
{
	size_t len = strlen(entry->d_name), end = sizeof(SUFFIX) - 1;

	return len > end && strcmp(entry->d_name + len - end, SUFFIX) == 0;
}

static void read_folder(const char *folder)
{
	struct dirent **entry;
	int n = scandir(folder, &entry, is_head, versionsort);

	if (n < 0)
		refuse("cannot read the folder '%s': %s", folder, strerror(errno));
	parts = calloc((size_t)n + 1, sizeof(*parts));
	if (!parts)
		refuse("cannot list the parts in '%s': %s", folder, strerror(ENOMEM));
	for (int i = 0; i < n; i++) {
		struct part_file *s = &parts[n_parts];
		const char *name = entry[i]->d_name;
		int stem = (int)(strlen(name) - strlen(SUFFIX));
		int len = snprintf(s->head_path, PATH_MAX, "%s/%s", folder, name);
		struct stat st;

		snprintf(s->cache_path, PATH_MAX, "%s/%.*s.cache", folder, stem, name);
		/* The path of the cache is one byte longer. */
		if (len + 1 >= PATH_MAX)
			refuse("cannot read the folder '%s': %s", folder, strerror(ENAMETOOLONG));
		/* The header names the file to write to: trust it only in files of the user. */
		if (lstat(s->head_path, &st) < 0 || !S_ISREG(st.st_mode) ||
		    st.st_uid != geteuid()) {
			complain("cannot use '%s': it is not a file of this user. Try as its owner",
				 s->head_path);
			continue;
		}
		s->err = head_read(s->head_path, &s->head);
		n_parts++;
	}
	for (int i = 0; i < n; i++)
		free(entry[i]);
	free(entry);
}

/* ---- ls ---- */

/* Bytes in the near file that the file lacks, in whole parts of blocks; a negative errno: the near
 * file cannot be read now. */
static int64_t dirty_bytes(const struct part_file *s)
{
	static const struct overlay_policy near_file = {
		.scheme = "cache", .file = "near file", .id = OVERLAY_CACHE
	};
	const struct overlay_opening how = { .path = s->cache_path, .lock = UMMAP_LOCK_SHARED };
	struct ummap_geom geom = { .size = 0 };
	static struct overlay o;
	int64_t nparts = 0;
	int err;

	memset(&o, 0, sizeof(o));
	o.policy = &near_file;
	err = overlay_open(&o, &how, &geom);
	if (err < 0)
		return err;
	for (uint32_t i = 0; i < o.ngroups * OVERLAY_GROUP; i++) {
		const struct overlay_slot *slot = overlay_slot(&o, i);

		if (slot->block != OVERLAY_EMPTY && !(slot->flags & SLOT_CLEAN))
			nparts += __builtin_popcountll(slot->valid);
	}
	err = err == 1 ? -ENODATA : o.damaged_at ? -EUCLEAN : 0;
	overlay_close(&o);
	return err ? err : nparts * (int64_t)OVERLAY_PART;
}

static void complain_of_header(const struct part_file *s)
{
	if (s->err == -EUCLEAN)
		complain("cannot read '%s': the header is damaged. Try 'drop', which removes the "
			 "parts of the folder",
			 s->head_path);
	else
		complain("cannot read '%s': %s", s->head_path, strerror(-s->err));
}

static int ls(const struct job *job)
{
	static const char *const states[] = {
		"damaged", "clean", "open, or left by a crash", "kept", "written back alone",
	};

	read_folder(job->store);
	for (size_t i = 0; i < n_parts; i++) {
		const struct part_file *s = &parts[i];
		int64_t dirty;

		if (s->err) {
			complain_of_header(s);
			continue;
		}
		dirty = dirty_bytes(s);
		printf("%s: part of '%s', node %u of %u, ends at byte %" PRIu64 "; %s; ",
		       s->cache_path, s->head.path, s->head.node, s->head.spread.nodes, s->head.end,
		       states[s->head.state <= HEAD_ALONE ? s->head.state : 0]);
		if (dirty < 0)
			printf(dirty == -EBUSY ? "a program has it\n" :
						 "its near file cannot be read\n");
		else
			printf("%" PRId64 " bytes that the file lacks\n", dirty);
	}
	return result;
}

/* ---- flush ---- */

static bool facts_of(const struct head *head, struct head_facts *facts)
{
	struct stat st;

	if (stat(head->path, &st) < 0)
		return false;
	*facts = (struct head_facts){ st.st_ino, (uint64_t)st.st_size, st.st_mtim.tv_sec,
				      st.st_mtim.tv_nsec };
	return true;
}

static bool is_as_seen(const struct head_facts *is, const struct head_facts *was)
{
	return is->ino == was->ino && is->size == was->size && is->seconds == was->seconds &&
	       is->nanoseconds == was->nanoseconds;
}

/*
 * Whether a part of the job may have changed the file since the others last saw it: a part says
 * that it did, a part has seen the present file, or some parts are in other folders and may have
 * been written back on their nodes.
 */
static bool may_have_written(uint64_t job, const struct head_facts *is)
{
	uint32_t there = 0, nodes = 0;

	for (size_t i = 0; i < n_parts; i++) {
		const struct head *head = &parts[i].head;

		if (parts[i].err || head->job != job)
			continue;
		if (head_wrote(head, is->size) || is_as_seen(is, &head->facts))
			return true;
		there++;
		nodes = head->spread.nodes;
	}
	return there < nodes;
}

/* Whether the file is still in the state that the part has recorded. */
static bool is_known(const struct part_file *s)
{
	const struct head_facts *was = &s->head.facts;
	struct head_facts is;

	if (!facts_of(&s->head, &is) || is.ino != was->ino)
		return false;
	return is_as_seen(&is, was) || (may_have_written(s->head.job, &is) && is.size >= was->size);
}

static void flush_part(struct part_file *s)
{
	struct head_file *head;
	bool opened = false;
	int err = head_open(s->head_path, NULL, &head), opening = err;

	if (!err) {
		err = part_flush_near(s->cache_path, head, &opened);
		head_close(head);
	}
	if (err && !opened)
		complain("cannot write back '%s': %s", s->cache_path,
			 err == -EBUSY ? IN_USE : opening ? strerror(-err) : umerrormsg());
	else if (err)
		complain("cannot write to '%s': %s. The data stays in '%s'", s->head.path,
			 strerror(-err), s->cache_path);
	s->flushed = !err;
}

/* Whether all parts of a job are in this folder, and the file has all their data. */
static bool is_complete(uint64_t job)
{
	uint32_t written = 0, nodes = 1;

	for (size_t i = 0; i < n_parts; i++) {
		const struct part_file *s = &parts[i];

		if (s->err || s->head.job != job)
			continue;
		written += s->flushed || head_lacks_nothing(&s->head);
		nodes = s->head.spread.nodes;
	}
	return written >= nodes;
}

/*
 * Updates the header of a part, after all parts have been written back. A part that had been
 * written back earlier keeps its record of the file.
 */
static void note_flushed(struct part_file *s)
{
	struct head_file *file;
	enum head_state state = is_complete(s->head.job) ? HEAD_CLEAN : HEAD_ALONE;
	int err;

	if (s->err || (!s->flushed && (s->head.state != HEAD_ALONE || state == HEAD_ALONE)))
		return;
	err = head_open(s->head_path, NULL, &file);
	if (!err) {
		pthread_mutex_lock(&file->lock);
		if (!s->flushed) {
			file->head.state = state;
		} else if (facts_of(&file->head, &file->head.facts)) {
			file->head.state = state;
			file->head.wrote = 0;
		}
		err = head_write(file);
		pthread_mutex_unlock(&file->lock);
		head_close(file);
	}
	if (err)
		complain("cannot write '%s': %s", s->head_path, strerror(-err));
}

static int flush(const struct job *job)
{
	bool *fit;

	read_folder(job->store);
	fit = calloc(n_parts + 1, sizeof(*fit));
	if (!fit)
		refuse("cannot write back the parts in '%s': %s", job->store, strerror(ENOMEM));
	/* All parts are checked before the first of them changes a file. */
	for (size_t i = 0; i < n_parts; i++)
		fit[i] = !parts[i].err &&
			 (head_lacks_nothing(&parts[i].head) || is_known(&parts[i]));
	for (size_t i = 0; i < n_parts; i++) {
		struct part_file *s = &parts[i];

		if (s->err)
			complain_of_header(s);
		else if (!fit[i])
			complain("cannot write back '%s': '%s' is missing, is another file, or was "
				 "changed by others. Try 'drop' if the data in the cache is not "
				 "wanted",
				 s->cache_path, s->head.path);
		else if (!head_lacks_nothing(&s->head))
			flush_part(s);
	}
	for (size_t i = 0; i < n_parts; i++)
		note_flushed(&parts[i]);
	free(fit);
	return result;
}

/* ---- drop ---- */

/* Removes all parts, also damaged ones, but not those that a program has locked. */
static int drop(const struct job *job)
{
	read_folder(job->store);
	for (size_t i = 0; i < n_parts; i++) {
		struct part_file *s = &parts[i];
		struct head_file *file = NULL;
		int err = head_open(s->head_path, NULL, &file);

		if (err && err != -EUCLEAN)
			complain("cannot remove '%s': %s", s->head_path,
				 err == -EBUSY ? IN_USE : strerror(-err));
		else if ((unlink(s->cache_path) < 0 && errno != ENOENT) || unlink(s->head_path) < 0)
			complain("cannot remove '%s': %s", s->cache_path, strerror(errno));
		if (!err)
			head_close(file);
	}
	return result;
}

int main(int argc, char **argv)
{
	static const struct action actions[] = {
		{ { "ls", 1, 1 }, ls }, { { "flush", 1, 1 }, flush },
		{ { "drop", 1, 1 }, drop }, { .run = NULL },
	};
	const struct tool tool = { .help = &tool_help, .suffix = "", .actions = actions };

	return tool_main(&tool, argc, argv);
}
