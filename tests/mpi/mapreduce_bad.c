/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mapreduce_bad - what jobs of MapReduce should not be given, and are: input that is empty, missing, unreadable or gone, at all
 * ranks or at one, sizes that cannot be, and functions that call what is not theirs. Each has a right result, or an error with a
 * sentence at all ranks.
 */
#include "mapreduce.h"


static int add(const struct ummr_bytes *key, struct ummr_value *value, const struct ummr_bytes *other, void *arg)
{
	(void)key, (void)arg;
	check(value->size == 8 && other->size == 8);
	*(uint64_t *)value->data += *(const uint64_t *)other->data;
	return 0;
}

static int map_bytes(ummr_job *job, const struct ummr_task *task, void *arg)
{
	uint64_t size = task->size;

	(void)arg;
	check(size > 0);
	return ummr_emit(job, NULL, 0, &size, sizeof(size));
}

static size_t find_newline(const char *data, size_t size, void *arg)
{
	const char *end = memchr(data, '\n', size);

	(void)arg;
	return end ? (size_t)(end - data) + 1 : 0;
}

static struct ummr_config make_config(const char *const *inputs)
{
	struct ummr_config c = UMMR_CONFIG_INIT;

	c.inputs = inputs;
	c.record_size = 1;
	c.find_record = find_newline;
	c.map = map_bytes;
	c.reduce = add;
	return c;
}

/* How many bytes there were, of all files. */
static void check_count(ummr_job *job, uint64_t bytes)
{
	struct ummr_bytes key, value;

	if (rank == 0 && bytes > 0)
		check(ummr_next(job, &key, &value) == 1 && key.size == 0 && *(const uint64_t *)value.data == bytes);
	check(ummr_next(job, &key, &value) == 0);
}

static void counts(const struct ummr_config *c, uint64_t bytes)
{
	ummr_job *job = create(c);

	check_run(job);
	check_count(job, bytes);
	check(ummr_write(job, path_of("result"), NULL) == 0, "%s", ummr_error());
	check(ummr_end(job) == 0);
}

static void fails(const struct ummr_config *c, int error, const char *words)
{
	ummr_job *job = create(c);

	check_refused(ummr_run(job), error, words);
	check(ummr_end(job) == 0);
}

/* ---- Hardly anything to read: by all rules, with more ranks than records ---- */

static void little(void)
{
	char folder_name[400], empty[400], one[400];
	const char *nothing[] = { strcpy(folder_name, path_of("folder")), strcpy(empty, path_of("empty")), NULL },
		   *byte[] = { empty, strcpy(one, path_of("one")), folder_name, empty, NULL };

	check(rank != 0 || mkdir(folder_name, 0755) == 0);
	make_file("empty", "", 0);
	make_file("one", "1", 1);
	for (int split = UMMR_SPLIT_LINES; split <= UMMR_SPLIT_OWN; split++) {
		struct ummr_config c = make_config(nothing);

		c.split = split;
		c.storage = split % 2 ? folder : NULL;
		counts(&c, 0);
		c.inputs = byte;
		counts(&c, 1);
		c.task_size = 1;
		c.split = (split + 1) % 3;
		counts(&c, 1);
	}
}

/* ---- Names that have a meaning for MPI-IO, and are files all the same, beside those that would be meant ---- */

static void colons(void)
{
	const char *inputs[] = { "ufs:one", "nowhere:one", NULL };
	struct ummr_config c = make_config(inputs);
	char before[400];
	ummr_job *job;

	make_file("ufs:one", "12345", 5);
	make_file("nowhere:one", "1234567", 7);
	check(rank != 0 || mkdir(path_of("ufs:windows"), 0755) == 0);
	MPI_Barrier(MPI_COMM_WORLD);
	check(getcwd(before, sizeof(before)) && chdir(folder) == 0);
	c.split = UMMR_SPLIT_FIXED;
	c.task_size = 2;
	c.storage = "ufs:windows";
	job = create(&c);
	check_run(job);
	check_count(job, 12);
	check(ummr_end(job) == 0);
	check(chdir(before) == 0);
}

/* What OpenMPI's MPI-IO leaves in a folder when it is killed is no input; what only looks like that is. */
static void locks(void)
{
	static const char *const files[] = { "locks/a", "locks/a-1662713857-4087.lock", "locks/a-1-x.lock", "locks/a-12.lock",
					     "locks/b-1-2.lock", "locks/-1-2.lock", "locks/.lock", "locks/ummr.pairs.0" };
	char name[400];
	const char *inputs[] = { strcpy(name, path_of("locks")), NULL };
	struct ummr_config c = make_config(inputs);

	check(rank != 0 || mkdir(name, 0755) == 0);
	for (unsigned i = 0; i < sizeof(files) / sizeof(*files); i++)
		make_file(files[i], "1234567", i + 1);
	counts(&c, 1 + 3 + 4 + 5 + 6 + 7);
}

/* ---- What cannot be read ---- */

/* As a user who may read nothing of this; root may read all. Only rank 0 looks. */
static void unreadable(void)
{
	char name[400];
	const char *inputs[] = { strcpy(name, path_of("secret")), NULL };
	struct ummr_config c = make_config(inputs);
	bool root = getuid() == 0;
	ummr_job *job;

	make_file("secret", "secret", 6);
	check(rank != 0 || chmod(name, 0) == 0);
	check(rank != 0 || !root || setresuid(65534, 65534, 0) == 0);
	check_refused(ummr_create(MPI_COMM_WORLD, &c, &job), EACCES, "secret': Permission denied");
	check(rank != 0 || !root || setresuid(0, 0, 0) == 0);
}

static void gone(void)
{
	char name[400];
	const char *inputs[] = { strcpy(name, path_of("gone")), NULL };
	struct ummr_config c = make_config(inputs);
	ummr_job *job;

	make_file("gone", "here", 4);
	job = create(&c);
	MPI_Barrier(MPI_COMM_WORLD);
	check(rank != 0 || unlink(name) == 0);
	MPI_Barrier(MPI_COMM_WORLD);
	check_refused(ummr_run(job), ENOENT, "gone': No such file");
	check(ummr_end(job) == 0);
}

/* The first of many tasks changes the file, which ranks have open. */
struct change {
	const char *path;
	bool cut;
	bool done;
};

static int map_and_change(ummr_job *job, const struct ummr_task *task, void *arg)
{
	const struct timespec times[2] = { { 0, UTIME_OMIT }, { 1, 0 } };
	struct change *change = arg;

	if (!change->done)
		check((change->cut ? truncate(change->path, 100) : utimensat(AT_FDCWD, change->path, times, 0)) == 0);
	change->done = true;
	return map_bytes(job, task, arg);
}

static void changed(void)
{
	static char bytes[20000];
	char name[400];
	const char *inputs[] = { strcpy(name, path_of("changed")), NULL };

	memset(bytes, '\n', sizeof(bytes));
	for (int is_cut = 0; is_cut < 2; is_cut++) {
		struct change change = { name, is_cut, false };
		struct ummr_config c = make_config(inputs);

		make_file("changed", bytes, sizeof(bytes));
		c.map = map_and_change;
		c.arg = &change;
		c.task_size = 100;
		fails(&c, ESTALE, "changed");
	}
}

/* ---- Ranks that differ ---- */

/* Rank 0's count. */
static void other_inputs(void)
{
	char name[400], other[400];
	const char *inputs[] = { strcpy(name, path_of("one")), NULL }, *others[] = { strcpy(other, path_of("none")), other, NULL };
	struct ummr_config c = make_config(rank == 0 ? inputs : others);

	counts(&c, 1);
}

static int map_slowly(ummr_job *job, const struct ummr_task *task, void *arg)
{
	usleep(1000);
	return map_bytes(job, task, arg);
}

/* A name that leads one rank elsewhere. If it gets no task, because the others are done before it begins, it does not matter. */
static void elsewhere(void)
{
	const char *inputs[] = { "here", NULL };
	struct ummr_config c = make_config(inputs);
	char before[400], bytes[1000];
	ummr_job *job;

	memset(bytes, 'b', sizeof(bytes));
	make_file("here", bytes, sizeof(bytes));
	check(getcwd(before, sizeof(before)) && chdir(rank > 0 && rank == ranks - 1 ? "/" : folder) == 0);
	c.split = UMMR_SPLIT_FIXED;
	c.task_size = 1;
	c.map = map_slowly;
	job = create(&c);
	if (ummr_run(job) == 0)
		check_count(job, sizeof(bytes));
	else
		check(errno == ENOENT && strstr(ummr_error(), "cannot read 'here': No such file"), "%s", ummr_error());
	check(ummr_end(job) == 0);
	check(chdir(before) == 0);
}

/* ---- A result that cannot be written is not lost with the job: what is left of it is combined, and no task mapped, again ---- */

static int mapped;

static int map_and_count(ummr_job *job, const struct ummr_task *task, void *arg)
{
	mapped++;
	return map_bytes(job, task, arg);
}

static int files_left(void)
{
	const struct dirent *e;
	int left = 0;
	DIR *d;

	MPI_Barrier(MPI_COMM_WORLD);
	d = opendir(folder);
	while ((e = readdir(d)))
		left += strncmp(e->d_name, "ummr.", 5) == 0;
	closedir(d);
	MPI_Barrier(MPI_COMM_WORLD);
	return left;
}

static int tasks_mapped(const struct ummr_config *c, ummr_job **job)
{
	mapped = 0;
	*job = create(c);
	check_run(*job);
	if (c->combine == UMMR_COMBINE_ON)
		check_count(*job, 16);
	MPI_Allreduce(MPI_IN_PLACE, &mapped, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	return mapped;
}

static void unwritten(int combine)
{
	char name[400];
	const char *inputs[] = { strcpy(name, path_of("lines")), NULL };
	struct ummr_config c = make_config(inputs);
	ummr_job *job;

	make_file("lines", "these\nare\nlines\n", 16);
	c.map = map_and_count;
	c.storage = folder;
	c.combine = combine;
	check(tasks_mapped(&c, &job) > 0);
	check_refused(ummr_write(job, "/dev/full", NULL), ENOSPC, "cannot write");
	check(ummr_end(job) == 0);
	check(files_left() > 0);
	check(tasks_mapped(&c, &job) == 0);
	check_refused(ummr_write(job, "/nowhere/at all", NULL), ENOENT, "cannot write");
	check(ummr_write(job, path_of("result"), NULL) == 0, "%s", ummr_error());
	check(ummr_end(job) == 0);
	check(files_left() == 0);
}

/* Of a result that all ranks have a part of. */
static void other_paths(void)
{
	char input[400], name[400], other[420];
	const char *inputs[] = { strcpy(input, path_of("lines")), NULL };
	struct ummr_config c = make_config(inputs);
	ummr_job *job;

	make_file("lines", "these\nare\nlines\n", 16);
	strcpy(name, path_of("result"));
	strcpy(other, path_of("other"));
	c.combine = UMMR_COMBINE_OFF;
	job = create(&c);
	check_run(job);
	if (ranks > 1) {
		check_refused(ummr_write(job, rank == 0 ? name : other, NULL), EINVAL, "differs from that of rank 0");
		check_refused(ummr_write(job, rank == 0 ? name : NULL, NULL), EINVAL, "the path is 'NULL' here");
		check_refused(ummr_write(job, rank == 0 ? NULL : name, NULL), EINVAL, "differs from that of rank 0");
	}
	check(access(other, F_OK) != 0 && access(strcat(other, ".unfinished"), F_OK) != 0);
	check(ummr_write(job, name, NULL) == 0, "%s", ummr_error());
	check(ummr_end(job) == 0);
}

/* A timeline in the place of a file of the input. */
static void timeline_is_input(void)
{
	char name[400], link_name[400];
	const char *inputs[] = { strcpy(name, path_of("lines")), NULL };
	struct ummr_config c = make_config(inputs);
	struct stat st;
	ummr_job *job;

	make_file("lines", "these\nare\nlines\n", 16);
	strcpy(link_name, path_of("link"));
	check(rank != 0 || link(name, link_name) == 0);
	c.timeline = name;
	check_refused(ummr_create(MPI_COMM_WORLD, &c, &job), EINVAL, "it is a file of the input");
	c.timeline = link_name;
	check_refused(ummr_create(MPI_COMM_WORLD, &c, &job), EINVAL, "it is a file of the input");
	check(stat(name, &st) == 0 && st.st_size == 16);
	MPI_Barrier(MPI_COMM_WORLD);
	check(rank != 0 || unlink(link_name) == 0);
}

/* ---- Functions that call what is not theirs ---- */

static ummr_job *running;

static void check_calls(void)
{
	struct ummr_bytes key, value;

	check_refused(ummr_run(running), EINVAL, "running");
	check_refused(ummr_end(running), EINVAL, "running");
	check_refused(ummr_next(running, &key, &value), EINVAL, "cannot return the result");
	check_refused(ummr_rewind(running), EINVAL, "cannot return the result");
	check_refused(ummr_write(running, "/nowhere", NULL), EINVAL, "cannot return the result");
}

static size_t find_and_call(const char *data, size_t size, void *arg)
{
	check_calls();
	check_refused(ummr_emit(running, "", 0, "", 0), EINVAL, "for map functions");
	check_refused(ummr_put(running, "", 0), EINVAL, "for reduce_all");
	return find_newline(data, size, arg);
}

static int map_and_call(ummr_job *job, const struct ummr_task *task, void *arg)
{
	check_calls();
	check_refused(ummr_put(job, "", 0), EINVAL, "for reduce_all");
	return map_bytes(job, task, arg);
}

static int reduce_and_call(ummr_job *job, const struct ummr_bytes *key, ummr_values *values, void *arg)
{
	struct ummr_bytes value;
	uint64_t all = 0;

	(void)key, (void)arg;
	check_calls();
	check_refused(ummr_emit(job, "", 0, "", 0), EINVAL, "for map functions");
	while (ummr_next_value(values, &value) > 0)
		all += *(const uint64_t *)value.data;
	return ummr_put(job, &all, sizeof(all));
}

static void progress_and_call(const struct ummr_progress *progress, void *arg)
{
	(void)progress, (void)arg;
	check_calls();
	check_refused(ummr_emit(running, "", 0, "", 0), EINVAL, "for map functions");
}

static int print_and_call(FILE *out, const struct ummr_bytes *key, const struct ummr_bytes *value, void *arg)
{
	(void)key, (void)arg;
	check_calls();
	check_refused(ummr_emit(running, "", 0, "", 0), EINVAL, "for map functions");
	return fwrite(value->data, 1, value->size, out) != value->size;
}

static int print_fails(FILE *out, const struct ummr_bytes *key, const struct ummr_bytes *value, void *arg)
{
	(void)out, (void)key, (void)value, (void)arg;
	return 1;
}

static void calls(void)
{
	char name[400];
	const char *inputs[] = { strcpy(name, path_of("lines")), NULL };
	struct ummr_config c = make_config(inputs);

	make_file("lines", "these\nare\nlines\n", 16);
	c.split = UMMR_SPLIT_OWN;
	c.task_size = 4;
	c.find_record = find_and_call;
	c.map = map_and_call;
	c.reduce = NULL;
	c.reduce_all = reduce_and_call;
	c.progress = progress_and_call;
	running = create(&c);
	check_run(running);
	check(ummr_write(running, path_of("result"), print_and_call) == 0, "%s", ummr_error());
	check_refused(ummr_write(running, path_of("result"), print_fails), EIO, "the print function failed");
	check_count(running, 16);
	check(ummr_end(running) == 0);
}

/* ---- Sizes that cannot be, whether map and reduce say so or not ---- */

static int map_too_much(ummr_job *job, const struct ummr_task *task, void *arg)
{
	const size_t *sizes = arg;

	(void)task;
	check_refused(ummr_emit(job, "key", sizes[0], "value", sizes[1]), EINVAL, "too large");
	return 0;
}

static int map_null(ummr_job *job, const struct ummr_task *task, void *arg)
{
	(void)task, (void)arg;
	check_refused(ummr_emit(job, "key", 3, NULL, 1), EINVAL, "too large");
	return 0;
}

static int reduce_too_much(const struct ummr_bytes *key, struct ummr_value *value, const struct ummr_bytes *other, void *arg)
{
	(void)key, (void)other, (void)arg;
	check_refused(ummr_resize(value, SIZE_MAX), EINVAL, "too large");
	return 0;
}

static int put_too_much(ummr_job *job, const struct ummr_bytes *key, ummr_values *values, void *arg)
{
	(void)key, (void)values, (void)arg;
	check_refused(ummr_put(job, "value", SIZE_MAX - 3), EINVAL, "too large");
	return 0;
}

static void sizes(void)
{
	char name[400];
	const char *inputs[] = { strcpy(name, path_of("lines")), NULL };
	struct ummr_config c = make_config(inputs);

	for (int i = 0; i < 2; i++) {
		size_t large[2] = { i ? 3 : SIZE_MAX, i ? SIZE_MAX - 3 : 5 };

		c.map = map_too_much;
		c.arg = large;
		fails(&c, EINVAL, "too large");
	}
	c.map = map_null;
	fails(&c, EINVAL, "too large");
	c.map = map_bytes;
	c.task_size = 2;
	c.split = UMMR_SPLIT_FIXED;
	c.reduce = reduce_too_much;
	fails(&c, EINVAL, "too large");
	c.reduce = NULL;
	c.reduce_all = put_too_much;
	fails(&c, EINVAL, "too large");
}

/* Of windows in memory, as much as no machine has. */
static void no_memory(void)
{
	char name[400];
	const char *inputs[] = { strcpy(name, path_of("lines")), NULL };
	struct ummr_config c = make_config(inputs);

	c.bucket_size = (size_t)1 << 52;
	fails(&c, ENOMEM, "cannot enlarge");
}

int main(int argc, char **argv)
{
	set_budget(4 * MIB);
	set_env("UMMAP_SEG_SIZE", "64K");
	start_mpi(&argc, &argv, MPI_THREAD_SINGLE);
	little();
	colons();
	locks();
	unreadable();
	gone();
	changed();
	other_inputs();
	elsewhere();
	unwritten(UMMR_COMBINE_ON);
	unwritten(UMMR_COMBINE_OFF);
	other_paths();
	timeline_is_input();
	calls();
	sizes();
	no_memory();
	MPI_Finalize();
	return 0;
}
