/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Parts that earlier jobs have left in the folders of the nodes. A job continues with parts that
 * have data which the file lacks, if each node finds its own part. Otherwise each machine writes
 * back its parts first, so that a job on another number of nodes can begin with new parts. Parts
 * with such data are refused if some of them are missing, or if the file was replaced or changed.
 * Parts whose data the file has are used if they know its present state, and dropped otherwise.
 * Parts that another process has locked are left alone.
 */
#include "iocache/former.h"

#include "common/stamp.h"
#include "iocache/part.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <ummap.h>
#include <unistd.h>

#define HEAD ".head"

/* Counters of parts, which are summed up over all machines. */
enum count {
	COUNT_HEADS,   /* nodes that have a part */
	COUNT_DIRTY,   /* parts with data that the file lacks */
	COUNT_ALONE,   /* parts that were written back alone */
	COUNT_DAMAGED, /* damaged headers */
	COUNT_OTHER,   /* parts of another file */
	COUNT_WROTE,   /* parts that may have written the file since they noted its facts */
	COUNT_KNOWN,   /* parts that know the present state of the file */
	COUNT_CHANGED, /* parts that know another state */
	COUNT_SHORTER, /* parts that know a larger file */
	COUNTS
};

struct found {
	int64_t count[COUNTS];
	int64_t most[3];         /* maxima over all parts: nodes, job number, negated job number */
	unsigned char *there;    /* whether each node's part was found: machines with a common
				    folder find the same parts */
	uint32_t nodes;          /* length of `there` */
};

void former_path(char path[static FORMER_PATH], const struct cached *c, const char *suffix)
{
	snprintf(path, FORMER_PATH, "%s/%s.%d%s", c->folder, c->name, c->nodes.mine, suffix);
}

void former_look(struct cached *c, struct head_facts *facts, struct error *e)
{
	struct stat st = { 0 };
	int err = 0;

	if (c->rank == 0 && fstat(c->fd, &st) < 0)
		err = errno;
	/* A file without a name has inode 0: no later job can find it. */
	*facts = (struct head_facts){ st.st_nlink ? st.st_ino : 0, (uint64_t)st.st_size,
				      st.st_mtim.tv_sec, st.st_mtim.tv_nsec };
	/* The next change must set another time stamp. Meanwhile the others wait for rank 0. */
	if (c->rank == 0 && !err)
		stamp_await(st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
	PMPI_Bcast(facts, sizeof(*facts), MPI_BYTE, 0, c->comm);
	PMPI_Bcast(&err, 1, MPI_INT, 0, c->comm);
	if (err)
		error_errno(e, err, "cannot read the attributes of '%s': %m", c->path);
}

static bool is_changed(const struct head *head, const struct head_facts *is)
{
	const struct head_facts *was = &head->facts;

	return is->size != was->size || is->seconds != was->seconds ||
	       is->nanoseconds != was->nanoseconds;
}

/* ---- The parts in one folder ---- */

/* Paths of a part's files. */
struct paths {
	char head[FORMER_PATH], near[FORMER_PATH];
};

/* An action on a part. Returns 0 or a negative errno value. */
typedef int action(const struct cached *c, const struct paths *part, void *arg);

/* Performs an action on all parts of a file in a folder, until one fails. */
static int for_each_part(const struct cached *c, const char *folder, action *act, void *arg)
{
	DIR *dir = opendir(folder);
	size_t begin = strlen(c->name);
	const struct dirent *entry;
	struct paths part;
	int err = 0;

	if (!dir)
		return -errno;
	while (!err && (entry = readdir(dir))) {
		const char *name = entry->d_name;
		size_t len = strlen(name), end = strlen(HEAD);

		if (len <= begin + end || strncmp(name, c->name, begin) != 0 ||
		    name[begin] != '.' || strcmp(name + len - end, HEAD) != 0)
			continue;
		snprintf(part.head, sizeof(part.head), "%s/%s", folder, name);
		snprintf(part.near, sizeof(part.near), "%s/%.*s.cache", folder, (int)(len - end),
			 name);
		err = act(c, &part, arg);
	}
	closedir(dir);
	return err;
}

struct looking {
	const struct head_facts *facts;
	struct found *found;
};

static int make_room(struct found *f, uint32_t nodes)
{
	unsigned char *more;

	if (nodes <= f->nodes)
		return 0;
	more = realloc(f->there, nodes);
	if (!more)
		return -ENOMEM;
	memset(more + f->nodes, 0, nodes - f->nodes);
	f->there = more;
	f->nodes = nodes;
	return 0;
}

static int look(const struct cached *c, const struct paths *part, void *arg)
{
	struct looking *l = arg;
	struct found *f = l->found;
	struct head head;
	int64_t job;
	int err = head_read(part->head, &head);

	(void)c;
	if (err == -EUCLEAN || (!err && head.node >= head.spread.nodes)) {
		f->count[COUNT_DAMAGED]++;
		return 0;
	}
	if (!err)
		err = make_room(f, head.spread.nodes);
	if (err)
		return err;
	/* A header without its near file is not a part. */
	f->there[head.node] |= head_lacks_nothing(&head) || access(part->near, F_OK) == 0;
	f->count[COUNT_DIRTY] += !head_lacks_nothing(&head);
	f->count[COUNT_ALONE] += head.state == HEAD_ALONE;
	f->count[COUNT_OTHER] += head.facts.ino != l->facts->ino;
	f->count[COUNT_WROTE] += head_wrote(&head, l->facts->size);
	f->count[COUNT_KNOWN] += head.facts.ino == l->facts->ino && !is_changed(&head, l->facts);
	f->count[COUNT_CHANGED] += is_changed(&head, l->facts);
	f->count[COUNT_SHORTER] += l->facts->size < head.facts.size;
	job = (int64_t)(head.job >> 1);
	f->most[0] = head.spread.nodes > f->most[0] ? head.spread.nodes : f->most[0];
	f->most[1] = job > f->most[1] ? job : f->most[1];
	f->most[2] = -job > f->most[2] ? -job : f->most[2];
	return 0;
}

/* Removes a part, under the lock of its header. */
static int drop(const struct cached *c, const struct paths *part, void *arg)
{
	struct head_file *file;
	int err = head_open(part->head, NULL, &file);

	(void)c, (void)arg;
	if (err && err != -EUCLEAN)
		return err;
	if (unlink(part->near) < 0 && errno != ENOENT)
		err = -errno;
	else
		err = unlink(part->head) < 0 ? -errno : 0;
	if (file)
		head_close(file);
	return err;
}

static int drop_useless(const struct cached *c, const struct paths *part, void *arg)
{
	const uint64_t *ino = arg;
	struct head head;

	if (head_read(part->head, &head) == 0 &&
	    (head_lacks_nothing(&head) || (*ino && head.facts.ino == *ino)))
		drop(c, part, NULL);
	return 0;
}

void former_remove(const char *name, const char *folder, uint64_t ino)
{
	struct cached c = { .fd = -1 };

	snprintf(c.name, sizeof(c.name), "%s", name);
	for_each_part(&c, folder, drop_useless, &ino);
}

/* Notes that the file has the data of a part. `wrote` stays in the header. */
static int note_written(const struct cached *c, const struct paths *part, void *arg)
{
	struct head_file *file;
	int err = head_open(part->head, NULL, &file);

	(void)c, (void)arg;
	if (err)
		return err;
	file->head.state = HEAD_CLEAN;
	err = head_write(file);
	head_close(file);
	return err;
}

static int flush(const struct cached *c, const struct paths *part, void *arg)
{
	struct head_file *file;
	struct error *e = arg;
	struct head head;
	bool opened;
	int err = head_read(part->head, &head);

	if (err || head_lacks_nothing(&head))
		return err;
	err = head_open(part->head, NULL, &file);
	if (err)
		return err;
	err = part_flush_near(part->near, file, &opened);
	if (err && !opened)
		error_errno(e, -err, "cannot write back the cache of '%s': %s", c->path,
			    umerrormsg());
	head_close(file);
	return err;
}

/* ---- All nodes ---- */

/* Collective: each machine acts in turn, because machines may have a common folder. */
static void act_in_turn(struct cached *c, action *act, const char *verb, struct error *e)
{
	int err = 0;

	for (int i = 0; i < c->nodes.n; i++) {
		if (c->rank == c->nodes.owner[i] && c->nodes.first && c->folder)
			err = for_each_part(c, c->folder, act, e);
		PMPI_Barrier(c->comm);
	}
	if (err)
		error_errno(e, -err, "cannot %s the cache of '%s' from an earlier job: %s", verb,
			    c->path,
			    err == -EBUSY ? "another process uses it" : strerror(-err));
	error_agree(c->comm, e);
}

/* Headers change after all parts are written. If the job dies in the meantime, either all parts
 * remain, or the file has the data of all parts. */
void former_flush(struct cached *c, struct error *e)
{
	act_in_turn(c, flush, "write back", e);
	if (e->class == MPI_SUCCESS)
		act_in_turn(c, note_written, "write back", e);
	if (e->class == MPI_SUCCESS)
		act_in_turn(c, drop, "drop", e);
}

/* Whether an owner finds its part, and the part has the requested layout. */
static bool has_own(const struct cached *c, struct head *own)
{
	char path[FORMER_PATH];

	if (!c->nodes.owns)
		return true;
	former_path(path, c, HEAD);
	if (head_read(path, own) < 0)
		return false;
	former_path(path, c, ".cache");
	return own->spread.nodes == (uint32_t)c->nodes.n &&
	       own->node == (uint32_t)c->nodes.mine && access(path, F_OK) == 0 &&
	       (!c->config.stripe ||
		(own->spread.part == 0 && own->spread.stripe == c->config.stripe));
}

/* Counts the nodes whose part was found on any machine. */
static void count_heads(struct cached *c, struct found *f, struct error *e)
{
	int err = make_room(f, (uint32_t)f->most[0]);

	if (err)
		error_errno(e, -err, "cannot list the parts of the cache of '%s' at %lld nodes: %m",
			    c->path, (long long)f->most[0]);
	error_agree(c->comm, e);
	if (e->class != MPI_SUCCESS)
		return;
	PMPI_Allreduce(MPI_IN_PLACE, f->there, (int)f->nodes, MPI_BYTE, MPI_BOR, c->comm);
	for (uint32_t i = 0; i < f->nodes; i++)
		f->count[COUNT_HEADS] += f->there[i];
}

static void look_everywhere(struct cached *c, const struct head_facts *facts, struct found *f,
			    struct error *e)
{
	struct looking l = { facts, f };
	int err = 0;

	*f = (struct found){ .most = { 0, INT64_MIN, INT64_MIN } };
	if (c->nodes.first && c->folder)
		err = for_each_part(c, c->folder, look, &l);
	if (err)
		error_errno(e, -err, "cannot read the cache of '%s' from an earlier job: %m",
			    c->path);
	PMPI_Allreduce(MPI_IN_PLACE, f->count, COUNTS, MPI_INT64_T, MPI_SUM, c->comm);
	PMPI_Allreduce(MPI_IN_PLACE, f->most, 3, MPI_INT64_T, MPI_MAX, c->comm);
	/* A part of the job has changed the file for all parts, if it has written the file, or
	 * knows its present state. */
	if (f->count[COUNT_DIRTY] &&
	    (f->count[COUNT_WROTE] || (f->count[COUNT_KNOWN] && f->most[1] == -f->most[2])))
		f->count[COUNT_CHANGED] = f->count[COUNT_SHORTER];
	/* A part that has written the file does not know its present state. */
	else if (!f->count[COUNT_DIRTY])
		f->count[COUNT_CHANGED] += f->count[COUNT_WROTE];
	count_heads(c, f, e);
	free(f->there);
	f->there = NULL;
}

/* Sets an error if the parts must not be used. */
static void check(const struct cached *c, const struct found *f, struct error *e)
{
	const char *why = NULL, *folder = c->config.path;
	const int64_t *n = f->count;

	if (n[COUNT_DAMAGED])
		why = "the header of a part is damaged";
	else if (n[COUNT_DIRTY] && n[COUNT_OTHER])
		why = "it has changes that were not written back, and the file was replaced";
	else if (n[COUNT_DIRTY] && n[COUNT_CHANGED])
		why = "it has changes that were not written back, and the file was modified";
	if (why)
		error_set(e, MPI_ERR_FILE,
			  "cannot use the cache of '%.60s': %s. Try 'ummap iocache drop %.60s', "
			  "which discards the caches there",
			  c->path, why, folder);
	else if (n[COUNT_DIRTY] && n[COUNT_HEADS] < f->most[0])
		error_set(e, MPI_ERR_FILE,
			  "cannot use the cache of '%.60s' in '%.60s': it has changes, but only "
			  "%lld of its %lld parts are there. Try a job on all nodes that have a "
			  "part",
			  c->path, folder, (long long)n[COUNT_HEADS], (long long)f->most[0]);
	else if (n[COUNT_ALONE] && n[COUNT_HEADS] < f->most[0])
		error_set(e, MPI_ERR_FILE,
			  "cannot use the cache of '%.50s': only %lld of its %lld parts are there, "
			  "and the others may have changes. Try a job on all nodes that have a "
			  "part, or 'ummap iocache drop %.50s'",
			  c->path, (long long)n[COUNT_HEADS], (long long)f->most[0], folder);
}

bool former_find(struct cached *c, const struct head_facts *facts, struct head *found,
		 struct error *e)
{
	struct found f;
	int mine;

	look_everywhere(c, facts, &f, e);
	if (e->class == MPI_SUCCESS)
		check(c, &f, e);
	if (e->class != MPI_SUCCESS || !f.count[COUNT_HEADS])
		return false;
	mine = has_own(c, found);
	PMPI_Allreduce(MPI_IN_PLACE, &mine, 1, MPI_INT, MPI_MIN, c->comm);
	if (mine && f.most[1] == -f.most[2] && !f.count[COUNT_OTHER] && !f.count[COUNT_CHANGED])
		return true;
	former_flush(c, e);
	return false;
}
