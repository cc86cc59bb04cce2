/* SPDX-License-Identifier: BSD-3-Clause */
/* ummap iocache - shows, writes back and removes what the folder of a node has of files that MPI programs have opened with a cache. */
#include <dirent.h>
#include <inttypes.h>
#include <sys/stat.h>
#include <time.h>

#include "iocache/head.h"
#include "iocache/part.h"

#include "../../drivers/cache_near.h"
#include "../beside.h"

static const char usage[] =
"usage: ummap iocache ls|flush|drop DIR\n"
"Caches of files that MPI programs have opened with pmem_path DIR; see ummap-mpi-cache(7).\n"
"  ls        of which files, and what they lack\n"
"  flush     writes back what they lack; the caches stay\n"
"  drop      removes the caches, and what of them was not written back\n"
"  --help, --version\n";

#define SUFFIX ".head"

struct share {
	char head_path[PATH_MAX], cache_path[PATH_MAX];
	struct head head;
	int err;                     /* of reading the header; -EUCLEAN: it is damaged */
	bool flushed;
};

static struct share *shares;
static size_t n_shares;
static int result = EXIT_SUCCESS;

__attribute__((format(printf, 1, 2))) static void complain(const char *format, ...)
{
	va_list args;

	fprintf(stderr, "%s: ", program_invocation_short_name);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
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
	shares = calloc((size_t)n + 1, sizeof(*shares));
	if (!shares)
		refuse("cannot list the caches in '%s': %s", folder, strerror(ENOMEM));
	for (int i = 0; i < n; i++) {
		struct share *s = &shares[n_shares];
		int len = (int)(strlen(entry[i]->d_name) - strlen(SUFFIX));
		struct stat st;

		if (snprintf(s->head_path, PATH_MAX, "%s/%s", folder, entry[i]->d_name) >= PATH_MAX ||
		    snprintf(s->cache_path, PATH_MAX, "%s/%.*s.cache", folder, len, entry[i]->d_name) >= PATH_MAX)
			refuse("cannot read the folder '%s': %s", folder, strerror(ENAMETOOLONG));
		/* What it says of a file is only believed of a file of one's own. */
		if (lstat(s->head_path, &st) < 0 || !S_ISREG(st.st_mode) || st.st_uid != geteuid()) {
			complain("cannot use '%s': it is not a file of this user. Try as its owner", s->head_path);
			continue;
		}
		s->err = head_read(s->head_path, &s->head);
		n_shares++;
	}
	for (int i = 0; i < n; i++)
		free(entry[i]);
	free(entry);
}

/* ---- ls ---- */

/* Bytes in the near file that the file lacks, in whole sectors; a negative errno: nobody can tell now. */
static int64_t dirty_bytes(const struct share *s)
{
	static struct cache_near near;
	struct ummap_geom geom = { .size = 0 };
	int64_t sectors = 0;
	int err;

	memset(&near, 0, sizeof(near));
	err = cache_near_look(&near, s->cache_path, UMMAP_LOCK_SHARED, &geom);
	if (err)
		return err < 0 ? err : -ENODATA;
	for (uint32_t i = 0; i < near.index.slots; i++) {
		const struct cache_slot *slot = &near.index.slot[i];

		if (slot->key != CACHE_NO_KEY && slot->key & 1)
			sectors += __builtin_popcountll(slot->valid[0]) + __builtin_popcountll(slot->valid[1]);
	}
	sectors <<= near.sector_shift;
	cache_near_close(&near);
	return sectors;
}

static void complain_of_header(const struct share *s)
{
	if (s->err == -EUCLEAN)
		complain("cannot read '%s': the header is damaged. Try drop, which removes the caches of the folder", s->head_path);
	else
		complain("cannot read '%s': %s", s->head_path, strerror(-s->err));
}

static int ls(const struct job *job)
{
	static const char *const states[] = { "damaged", "clean", "open, or left by a crash", "kept", "written back alone" };

	read_folder(job->store);
	for (size_t i = 0; i < n_shares; i++) {
		const struct share *s = &shares[i];
		int64_t dirty;

		if (s->err) {
			complain_of_header(s);
			continue;
		}
		dirty = dirty_bytes(s);
		printf("%s: of %s, node %u of %u, which reaches to byte %" PRIu64 "; %s; ", s->cache_path, s->head.path, s->head.node,
		       s->head.spread.nodes, s->head.end, states[s->head.state <= HEAD_ALONE ? s->head.state : 0]);
		if (dirty < 0)
			printf(dirty == -EBUSY ? "a program has it\n" : "its near file cannot be read\n");
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
	*facts = (struct head_facts){ st.st_ino, (uint64_t)st.st_size, st.st_mtim.tv_sec, st.st_mtim.tv_nsec };
	return true;
}

static bool is_as_seen(const struct head_facts *is, const struct head_facts *was)
{
	return is->ino == was->ino && is->size == was->size && is->seconds == was->seconds && is->nanoseconds == was->nanoseconds;
}

/* What one share of a job has written changes the file for all of them: where one says that it did, where one has seen the file
 * since, and where not all are in this folder, for then others may have been written back on their nodes. */
static bool may_have_written(uint64_t job, const struct head_facts *is)
{
	uint32_t there = 0, nodes = 0;

	for (size_t i = 0; i < n_shares; i++) {
		const struct head *head = &shares[i].head;

		if (shares[i].err || head->job != job)
			continue;
		if (head_wrote(head, is->size) || is_as_seen(is, &head->facts))
			return true;
		there++;
		nodes = head->spread.nodes;
	}
	return there < nodes;
}

/* Whether the file is as the share knows it. */
static bool is_known(const struct share *s)
{
	const struct head_facts *was = &s->head.facts;
	struct head_facts is;

	if (!facts_of(&s->head, &is) || is.ino != was->ino)
		return false;
	return is_as_seen(&is, was) || (may_have_written(s->head.job, &is) && is.size >= was->size);
}

static void flush_share(struct share *s)
{
	static char head[3 * PATH_MAX], cache[3 * PATH_MAX], uri[sizeof(head) + sizeof(cache) + 64];
	struct ummap_driver driver = { .struct_size = sizeof(driver) };
	struct ummap_geom geom;
	void *h;
	int err;

	encode(head, s->head_path);
	encode(cache, s->cache_path);
	snprintf(uri, sizeof(uri), "cache+filepart:%s?cache.path=%s", head, cache);
	if (ummap_driver_open(uri, UMMAP_O_WRITE, &driver, &h, &geom) < 0) {
		complain("cannot write back '%s': %s", s->cache_path,
			 errno == EBUSY ? "a program has it open. Try again when the program has ended" : umerrormsg());
		return;
	}
	err = driver.close(h);
	if (err)
		complain("cannot write to '%s': %s. The data stays in '%s'", s->head.path, strerror(-err), s->cache_path);
	s->flushed = !err;
}

/* Whether all shares of a job are in this folder, with nothing that the file lacks. */
static bool is_complete(uint64_t job)
{
	uint32_t written = 0, nodes = 1;

	for (size_t i = 0; i < n_shares; i++) {
		const struct share *s = &shares[i];

		if (s->err || s->head.job != job)
			continue;
		written += s->flushed || head_lacks_nothing(&s->head);
		nodes = s->head.spread.nodes;
	}
	return written >= nodes;
}

/* When all have written. One that was written back before stays with what it knew of the file then. */
static void note_flushed(struct share *s)
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

	part_register();
	read_folder(job->store);
	fit = calloc(n_shares + 1, sizeof(*fit));
	if (!fit)
		refuse("cannot write back the caches in '%s': %s", job->store, strerror(ENOMEM));
	/* Before the first of them changes a file. */
	for (size_t i = 0; i < n_shares; i++)
		fit[i] = !shares[i].err && (head_lacks_nothing(&shares[i].head) || is_known(&shares[i]));
	for (size_t i = 0; i < n_shares; i++) {
		struct share *s = &shares[i];

		if (s->err)
			complain_of_header(s);
		else if (!fit[i])
			complain("cannot write back '%s': '%s' is missing, is another file, or was changed by others. Try drop "
				 "if the data in the cache is not wanted", s->cache_path, s->head.path);
		else if (!head_lacks_nothing(&s->head))
			flush_share(s);
	}
	for (size_t i = 0; i < n_shares; i++)
		note_flushed(&shares[i]);
	free(fit);
	return result;
}

/* ---- drop ---- */

/* A damaged head is no reason to keep it; a lock is. */
static int drop(const struct job *job)
{
	read_folder(job->store);
	for (size_t i = 0; i < n_shares; i++) {
		struct share *s = &shares[i];
		struct head_file *file = NULL;
		int err = head_open(s->head_path, NULL, &file);

		if (err && err != -EUCLEAN)
			complain("cannot remove '%s': %s", s->head_path,
				 err == -EBUSY ? "a program has it open. Try again when the program has ended" : strerror(-err));
		else if ((unlink(s->cache_path) < 0 && errno != ENOENT) || unlink(s->head_path) < 0)
			complain("cannot remove '%s': %s", s->cache_path, strerror(errno));
		if (!err)
			head_close(file);
	}
	return result;
}

int main(int argc, char **argv)
{
	static const struct verb verbs[] = {
		{ "ls", 2, ls }, { "flush", 2, flush }, { "drop", 2, drop }, { NULL, 0, NULL },
	};
	const struct tool tool = { .usage = usage, .option = "cache", .suffix = "", .verbs = verbs };

	return tool_main(&tool, argc, argv);
}
