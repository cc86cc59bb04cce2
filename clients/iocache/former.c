/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What earlier jobs have left in the folders of the nodes. Caches with something that the file lacks are gone on with where
 * each node finds its own; else they are written back first, each by the machine that has it, so that another number of nodes
 * may begin anew. They are refused where they are not all there, or the file is another one or was changed since. Caches of
 * which the file has all are kept while it is as they know it, and dropped otherwise. Nothing is touched that another process
 * has locked.
 */
#include "iocache/cached.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <ummap-driver.h>
#include <ummap.h>
#include <unistd.h>

#define HEAD ".head"

/* Of the caches that were found; what is counted is summed up over machines. */
enum count { COUNT_HEADS, COUNT_DIRTY, COUNT_ALONE, COUNT_DAMAGED, COUNT_OTHER, COUNT_WROTE, COUNT_KNOWN, COUNT_CHANGED, COUNT_SHORTER, COUNTS };

struct found {
	int64_t count[COUNTS];
	int64_t most[3];         /* nodes, and a job's number with its negative; greatest of all */
	unsigned char *there;    /* the nodes whose heads are there: machines with one folder together find the same ones */
	uint32_t nodes;          /* of them */
};

void former_name(char *to, size_t room, const struct cached *c, int node, const char *suffix)
{
	snprintf(to, room, "%s.%d%s", c->name, node, suffix);
}

void former_look(struct cached *c, struct head_facts *facts, struct error *e)
{
	struct stat st = { 0 };
	int err = 0;

	if (c->rank == 0 && fstat(c->fd, &st) < 0)
		err = errno;
	/* A file without a name cannot be found again. */
	*facts = (struct head_facts){ st.st_nlink ? st.st_ino : 0, (uint64_t)st.st_size, st.st_mtim.tv_sec, st.st_mtim.tv_nsec };
	PMPI_Bcast(facts, sizeof(*facts), MPI_BYTE, 0, c->comm);
	PMPI_Bcast(&err, 1, MPI_INT, 0, c->comm);
	if (err)
		error_errno(e, err, "cannot read the attributes of '%s': %s", c->path,
			    strerror(err));
}

static bool is_changed(const struct head *head, const struct head_facts *is)
{
	const struct head_facts *was = &head->facts;

	return is->size != was->size || is->seconds != was->seconds || is->nanoseconds != was->nanoseconds;
}

/* ---- Folders ---- */

/* Calls what is to be done with each head of this file; returns the first error of one, or that of the folder. */
static int each(const struct cached *c, int folder, int (*act)(const struct cached *c, int folder, const char *name, void *arg),
		void *arg)
{
	int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), err = 0;
	DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
	size_t begin = strlen(c->name);
	const struct dirent *entry;

	if (!dir)
		return -errno;
	while ((entry = readdir(dir)) && !err) {
		const char *name = entry->d_name;
		size_t len = strlen(name), end = strlen(HEAD);

		if (len > begin + end && strncmp(name, c->name, begin) == 0 && name[begin] == '.' &&
		    strcmp(name + len - end, HEAD) == 0)
			err = act(c, folder, name, arg);
	}
	closedir(dir);
	return err;
}

/* A path by which the folder's descriptor leads there: short, whatever the folder is called. */
static void make_path(char *to, size_t room, int folder, const char *name, const char *suffix)
{
	snprintf(to, room, "/proc/self/fd/%d/%.*s%s", folder, (int)(strlen(name) - strlen(HEAD)), name, suffix);
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

static int look(const struct cached *c, int folder, const char *name, void *arg)
{
	struct looking *l = arg;
	struct found *f = l->found;
	struct head head;
	char path[320];
	int err;

	(void)c;
	make_path(path, sizeof(path), folder, name, HEAD);
	err = head_read(path, &head);
	if (err == -EUCLEAN || (!err && head.node >= head.spread.nodes)) {
		f->count[COUNT_DAMAGED]++;
		return 0;
	}
	if (!err)
		err = make_room(f, head.spread.nodes);
	if (err)
		return err;
	make_path(path, sizeof(path), folder, name, ".cache");
	/* A head that has lost its cache is not all of a share. */
	f->there[head.node] |= head_lacks_nothing(&head) || access(path, F_OK) == 0;
	f->count[COUNT_DIRTY] += !head_lacks_nothing(&head);
	f->count[COUNT_ALONE] += head.state == HEAD_ALONE;
	f->count[COUNT_OTHER] += head.facts.ino != l->facts->ino;
	f->count[COUNT_WROTE] += head_wrote(&head, l->facts->size);
	f->count[COUNT_KNOWN] += head.facts.ino == l->facts->ino && !is_changed(&head, l->facts);
	f->count[COUNT_CHANGED] += is_changed(&head, l->facts);
	f->count[COUNT_SHORTER] += l->facts->size < head.facts.size;
	f->most[0] = head.spread.nodes > f->most[0] ? head.spread.nodes : f->most[0];
	f->most[1] = (int64_t)(head.job >> 1) > f->most[1] ? (int64_t)(head.job >> 1) : f->most[1];
	f->most[2] = -(int64_t)(head.job >> 1) > f->most[2] ? -(int64_t)(head.job >> 1) : f->most[2];
	return 0;
}

/* One is dropped, with its cache, under its lock. */
static int drop(const struct cached *c, int folder, const char *name, void *arg)
{
	struct head_file *file;
	char path[320], cache[320];
	int err;

	(void)c, (void)arg;
	make_path(path, sizeof(path), folder, name, HEAD);
	make_path(cache, sizeof(cache), folder, name, ".cache");
	err = head_open(path, NULL, &file);
	if (err && err != -EUCLEAN)
		return err;
	if (unlink(cache) < 0 && errno != ENOENT)
		err = -errno;
	else
		err = unlink(path) < 0 ? -errno : 0;
	if (file)
		head_close(file);
	return err;
}

static int remove_useless(const struct cached *c, int folder, const char *name, void *arg)
{
	const uint64_t *ino = arg;
	struct head head;
	char path[320];

	make_path(path, sizeof(path), folder, name, HEAD);
	if (head_read(path, &head) == 0 && (head_lacks_nothing(&head) || (*ino && head.facts.ino == *ino)))
		drop(c, folder, name, NULL);
	return 0;
}

void former_remove(const char *name, int folder, uint64_t ino)
{
	struct cached c = { .fd = -1 };

	snprintf(c.name, sizeof(c.name), "%s", name);
	each(&c, folder, remove_useless, &ino);
}

/* Only when all have nothing any more, none is missed. That the file was written stays in the head. */
static int note_written(const struct cached *c, int folder, const char *name, void *arg)
{
	struct head_file *file;
	char path[320];
	int err;

	(void)c, (void)arg;
	make_path(path, sizeof(path), folder, name, HEAD);
	err = head_open(path, NULL, &file);
	if (err)
		return err;
	pthread_mutex_lock(&file->lock);
	file->head.state = HEAD_CLEAN;
	err = head_write(file);
	pthread_mutex_unlock(&file->lock);
	head_close(file);
	return err;
}

/* Opening the cache finds what is dirty, and closing it writes that back. */
static int flush(const struct cached *c, int folder, const char *name, void *arg)
{
	struct ummap_driver driver = { .struct_size = sizeof(driver) };
	char path[320], cache[320], uri[700];
	struct ummap_geom geom;
	struct error *e = arg;
	struct head head;
	void *h;
	int err;

	make_path(path, sizeof(path), folder, name, HEAD);
	make_path(cache, sizeof(cache), folder, name, ".cache");
	err = head_read(path, &head);
	if (err || head_lacks_nothing(&head))
		return err;
	snprintf(uri, sizeof(uri), "cache+filepart:%s?cache.path=%s", path, cache);
	if (ummap_driver_open(uri, UMMAP_O_WRITE, &driver, &h, &geom) < 0) {
		err = -errno;
		error_errno(e, errno, "cannot write back the cache of '%s': %s", c->path,
			    umerrormsg());
		return err;
	}
	return driver.close(h);
}

/* ---- All nodes ---- */

/* Each machine in turn, for they may have one folder together. */
static void act_in_turn(struct cached *c, int folder, int (*act)(const struct cached *c, int folder, const char *name, void *arg),
			const char *verb, struct error *e)
{
	int err = 0;

	for (int i = 0; i < c->nodes.n; i++) {
		if (c->rank == c->nodes.owner[i] && c->nodes.first && folder >= 0) {
			err = each(c, folder, act, e);
			if (err)
				error_errno(e, -err,
					    "cannot %s the cache of '%s' from an earlier job: %s",
					    verb, c->path,
					    err == -EBUSY ? "another process uses it"
							  : strerror(-err));
		}
		PMPI_Barrier(c->comm);
	}
	error_agree(c->comm, e);
}

/* A job that dies meanwhile leaves all of them, or none that the file lacks anything of. */
static void write_back(struct cached *c, int folder, struct error *e)
{
	act_in_turn(c, folder, flush, "write back", e);
	if (e->class == MPI_SUCCESS)
		act_in_turn(c, folder, note_written, "write back", e);
	if (e->class == MPI_SUCCESS)
		act_in_turn(c, folder, drop, "drop", e);
}

void former_flush(struct cached *c, struct error *e)
{
	write_back(c, c->folder, e);
}

/* Whether an owner's own is there, and fits what is wanted. */
static bool has_own(const struct cached *c, struct head *own)
{
	char name[128], path[320];

	if (!c->nodes.owns)
		return true;
	former_name(name, sizeof(name), c, c->nodes.mine, HEAD);
	make_path(path, sizeof(path), c->folder, name, HEAD);
	if (head_read(path, own) < 0)
		return false;
	make_path(path, sizeof(path), c->folder, name, ".cache");
	return own->spread.nodes == (uint32_t)c->nodes.n && own->node == (uint32_t)c->nodes.mine && access(path, F_OK) == 0 &&
	       (!c->config.stripe || (own->spread.part == 0 && own->spread.stripe == c->config.stripe));
}

/* How many nodes have a head, wherever it was found. */
static void count_heads(struct cached *c, struct found *f, struct error *e)
{
	int err = make_room(f, (uint32_t)f->most[0]);

	if (err)
		error_errno(e, -err, "cannot list the parts of the cache of '%s' at %lld nodes: %s",
			    c->path, (long long)f->most[0], strerror(-err));
	error_agree(c->comm, e);
	if (e->class != MPI_SUCCESS)
		return;
	PMPI_Allreduce(MPI_IN_PLACE, f->there, (int)f->nodes, MPI_BYTE, MPI_BOR, c->comm);
	for (uint32_t i = 0; i < f->nodes; i++)
		f->count[COUNT_HEADS] += f->there[i];
}

static void look_everywhere(struct cached *c, int folder, const struct head_facts *facts, struct found *f, struct error *e)
{
	struct looking l = { facts, f };
	int err = 0;

	*f = (struct found){ .most = { 0, INT64_MIN, INT64_MIN } };
	if (c->nodes.first && folder >= 0)
		err = each(c, folder, look, &l);
	if (err)
		error_errno(e, -err, "cannot read the cache of '%s' from an earlier job: %s",
			    c->path, strerror(-err));
	PMPI_Allreduce(MPI_IN_PLACE, f->count, COUNTS, MPI_INT64_T, MPI_SUM, c->comm);
	PMPI_Allreduce(MPI_IN_PLACE, f->most, 3, MPI_INT64_T, MPI_MAX, c->comm);
	/* What one has written changes the file for all of them; so it does where one has noted since how the file is. */
	if (f->count[COUNT_DIRTY] && (f->count[COUNT_WROTE] || (f->count[COUNT_KNOWN] && f->most[1] == -f->most[2])))
		f->count[COUNT_CHANGED] = f->count[COUNT_SHORTER];
	/* Of a file that was written, and not looked at since, nothing is known. */
	else if (!f->count[COUNT_DIRTY])
		f->count[COUNT_CHANGED] += f->count[COUNT_WROTE];
	count_heads(c, f, e);
	free(f->there);
	f->there = NULL;
}

/* Why what is there must not be touched. */
static void check(const struct cached *c, const struct found *f, const char *folder, struct error *e)
{
	const int64_t *n = f->count;
	const char *why = NULL;

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

/* What is in another folder goes back to the file, in any case. */
static void find_old(struct cached *c, struct head_facts *facts, struct error *e)
{
	struct found f;
	int folder = -1;

	if (c->nodes.first)
		folder = open(c->config.old, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (c->nodes.first && folder < 0)
		error_errno(e, errno, "cannot open the folder '%s' (do_recovery_path): %s",
			    c->config.old, strerror(errno));
	error_agree(c->comm, e);
	if (e->class == MPI_SUCCESS)
		look_everywhere(c, folder, facts, &f, e);
	if (e->class == MPI_SUCCESS)
		check(c, &f, c->config.old, e);
	if (e->class == MPI_SUCCESS && f.count[COUNT_HEADS])
		write_back(c, folder, e);
	if (folder >= 0)
		close(folder);
	if (e->class == MPI_SUCCESS)
		former_look(c, facts, e);
}

bool former_find(struct cached *c, const struct head_facts *facts, struct head *found, struct error *e)
{
	struct head_facts now = *facts;
	int mine;
	struct found f;

	if (*c->config.old && strcmp(c->config.old, c->config.path) != 0)
		find_old(c, &now, e);
	if (e->class != MPI_SUCCESS)
		return false;
	look_everywhere(c, c->folder, &now, &f, e);
	if (e->class == MPI_SUCCESS)
		check(c, &f, c->config.path, e);
	if (e->class != MPI_SUCCESS || !f.count[COUNT_HEADS])
		return false;
	mine = has_own(c, found);
	PMPI_Allreduce(MPI_IN_PLACE, &mine, 1, MPI_INT, MPI_MIN, c->comm);
	if (mine && f.most[1] == -f.most[2] && !f.count[COUNT_OTHER] && !f.count[COUNT_CHANGED])
		return true;
	write_back(c, c->folder, e);
	return false;
}
