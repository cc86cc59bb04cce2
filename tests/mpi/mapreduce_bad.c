/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mapreduce_bad - unusual and invalid arguments of MapReduce jobs: input that is empty, missing,
 * unreadable or removed at all ranks or at one, impossible sizes, and functions that make calls
 * which are not allowed there. Each job has the right result, or fails with a message at all
 * ranks.
 */
#include "mapreduce.h"

static int add_size(const struct ummr_bytes *key, struct ummr_value *value,
		    const struct ummr_bytes *other, void *arg)
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
	c.reduce = add_size;
	return c;
}

/* The result is the number of bytes of all files. */
static void check_count(ummr_job *job, uint64_t bytes)
{
	struct ummr_bytes key, value;

	if (rank == 0 && bytes > 0)
		check(ummr_next(job, &key, &value) == 1 && key.size == 0 &&
		      *(const uint64_t *)value.data == bytes);
	check(ummr_next(job, &key, &value) == 0);
}

static void check_job_result(const struct ummr_config *c, uint64_t bytes)
{
	ummr_job *job = create_job(c);

	check_run(job);
	check_count(job, bytes);
	check(ummr_write(job, path_of("result"), NULL) == 0, "%s", ummr_error());
	check(ummr_end(job) == 0);
}

static void check_job_fails(const struct ummr_config *c, int error, const char *words)
{
	ummr_job *job = create_job(c);

	check_refused(ummr_run(job), error, words);
	check(ummr_end(job) == 0);
}

/* ---- No input, or one byte, with each way to find records ---- */

static void test_little_input(void)
{
	char folder_name[400], empty[400], one[400];
	const char *nothing[] = { strcpy(folder_name, path_of("folder")),
				  strcpy(empty, path_of("empty")), NULL },
		   *byte[] = { empty, strcpy(one, path_of("one")), folder_name, empty, NULL };

	check(rank != 0 || mkdir(folder_name, 0755) == 0);
	make_file("empty", "", 0);
	make_file("one", "1", 1);
	for (int split = UMMR_SPLIT_LINES; split <= UMMR_SPLIT_OWN; split++) {
		struct ummr_config c = make_config(nothing);

		c.split = split;
		c.storage = split % 2 ? folder : NULL;
		check_job_result(&c, 0);
		c.inputs = byte;
		check_job_result(&c, 1);
		c.task_size = 1;
		c.split = (split + 1) % 3;
		check_job_result(&c, 1);
	}
}

/* ---- Names with a colon, which MPI-IO takes for the name of a file system ---- */

static void test_colons(void)
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
	job = create_job(&c);
	check_run(job);
	check_count(job, 12);
	check(ummr_end(job) == 0);
	check(chdir(before) == 0);
}

/* Lock files of Open MPI's MPI-IO are not read as input, but files with similar names are. */
static void test_lock_files(void)
{
	static const char *const files[] = { "locks/a", "locks/a-1662713857-4087.lock",
					     "locks/a-1-x.lock", "locks/a-12.lock",
					     "locks/b-1-2.lock", "locks/-1-2.lock", "locks/.lock",
						     "locks/ummr.pairs.0" };
	char name[400];
	const char *inputs[] = { strcpy(name, path_of("locks")), NULL };
	struct ummr_config c = make_config(inputs);

	check(rank != 0 || mkdir(name, 0755) == 0);
	for (unsigned i = 0; i < sizeof(files) / sizeof(*files); i++)
		make_file(files[i], "1234567", i + 1);
	check_job_result(&c, 1 + 3 + 4 + 5 + 6 + 7);
}

/* ---- Input that cannot be read ---- */

/* Root may read every file, so rank 0, which lists the input, becomes another user. */
static void test_unreadable(void)
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

static void test_removed_file(void)
{
	char name[400];
	const char *inputs[] = { strcpy(name, path_of("gone")), NULL };
	struct ummr_config c = make_config(inputs);
	ummr_job *job;

	make_file("gone", "here", 4);
	job = create_job(&c);
	MPI_Barrier(MPI_COMM_WORLD);
	check(rank != 0 || unlink(name) == 0);
	MPI_Barrier(MPI_COMM_WORLD);
	check_refused(ummr_run(job), ENOENT, "gone': No such file");
	check(ummr_end(job) == 0);
}

/* The first task of each rank changes the file, which ranks have open. */
struct change {
	const char *path; /* name of the file */
	bool cuts;        /* whether the file is truncated; otherwise its time changes */
	bool is_done;     /* whether this rank has changed the file */
};

static int map_and_change(ummr_job *job, const struct ummr_task *task, void *arg)
{
	const struct timespec times[2] = { { 0, UTIME_OMIT }, { 1, 0 } };
	struct change *change = arg;

	if (!change->is_done)
		check((change->cuts ? truncate(change->path, 100)
		       : utimensat(AT_FDCWD, change->path, times, 0)) == 0);
	change->is_done = true;
	return map_bytes(job, task, arg);
}

static void test_changed_file(void)
{
	static char bytes[20000];
	char name[400];
	const char *inputs[] = { strcpy(name, path_of("changed")), NULL };

	memset(bytes, '\n', sizeof(bytes));
	for (int cuts = 0; cuts < 2; cuts++) {
		struct change change = { name, cuts, false };
		struct ummr_config c = make_config(inputs);

		make_file("changed", bytes, sizeof(bytes));
		c.map = map_and_change;
		c.arg = &change;
		c.task_size = 100;
		check_job_fails(&c, ESTALE, "changed");
	}
}

/* ---- Ranks that differ ---- */

/* The inputs of rank 0 count. */
static void test_other_inputs(void)
{
	char name[400], other[400];
	const char *inputs[] = { strcpy(name, path_of("one")), NULL },
		*others[] = { strcpy(other, path_of("none")), other, NULL };
	struct ummr_config c = make_config(rank == 0 ? inputs : others);

	check_job_result(&c, 1);
}

static int map_slowly(ummr_job *job, const struct ummr_task *task, void *arg)
{
	usleep(1000);
	return map_bytes(job, task, arg);
}

/* The last rank is in a folder where the name of the input does not exist. The job succeeds if this
 * rank gets no task, because the other ranks have mapped all of them. */
static void test_other_folder(void)
{
	const char *inputs[] = { "here", NULL };
	struct ummr_config c = make_config(inputs);
	char before[400], bytes[1000];
	ummr_job *job;

	memset(bytes, 'b', sizeof(bytes));
	make_file("here", bytes, sizeof(bytes));
	check(getcwd(before, sizeof(before)) && chdir(rank > 0 && rank == ranks - 1 ? "/"
						      : folder) == 0);
	c.split = UMMR_SPLIT_FIXED;
	c.task_size = 1;
	c.map = map_slowly;
	job = create_job(&c);
	if (ummr_run(job) == 0)
		check_count(job, sizeof(bytes));
	else
		check(errno == ENOENT && strstr(ummr_error(), "cannot read 'here': No such file"),
		      "%s", ummr_error());
	check(ummr_end(job) == 0);
	check(chdir(before) == 0);
}

/* ---- A result that could not be written: another job combines the runs again ---- */

static int mapped;

static int map_and_count(ummr_job *job, const struct ummr_task *task, void *arg)
{
	mapped++;
	return map_bytes(job, task, arg);
}

static int count_files(void)
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

static int count_mapped_tasks(const struct ummr_config *c, ummr_job **job)
{
	mapped = 0;
	*job = create_job(c);
	check_run(*job);
	if (c->combine == UMMR_COMBINE_ON)
		check_count(*job, 16);
	MPI_Allreduce(MPI_IN_PLACE, &mapped, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	return mapped;
}

static void test_unwritten_result(int combine)
{
	char name[400];
	const char *inputs[] = { strcpy(name, path_of("lines")), NULL };
	struct ummr_config c = make_config(inputs);
	ummr_job *job;

	make_file("lines", "these\nare\nlines\n", 16);
	c.map = map_and_count;
	c.storage = folder;
	c.combine = combine;
	check(count_mapped_tasks(&c, &job) > 0);
	check_refused(ummr_write(job, "/dev/full", NULL), ENOSPC, "cannot write");
	check(ummr_end(job) == 0);
	check(count_files() > 0);
	check(count_mapped_tasks(&c, &job) == 0);
	check_refused(ummr_write(job, "/nowhere/at all", NULL), ENOENT, "cannot write");
	check(ummr_write(job, path_of("result"), NULL) == 0, "%s", ummr_error());
	check(ummr_end(job) == 0);
	check(count_files() == 0);
}

/* With UMMR_COMBINE_OFF, all ranks must pass the same path to ummr_write. */
static void test_other_paths(void)
{
	char input[400], name[400], other[420];
	const char *inputs[] = { strcpy(input, path_of("lines")), NULL };
	struct ummr_config c = make_config(inputs);
	ummr_job *job;

	make_file("lines", "these\nare\nlines\n", 16);
	strcpy(name, path_of("result"));
	strcpy(other, path_of("other"));
	c.combine = UMMR_COMBINE_OFF;
	job = create_job(&c);
	check_run(job);
	if (ranks > 1) {
		check_refused(ummr_write(job, rank == 0 ? name : other, NULL), EINVAL, "differs "
			      "from that of rank 0");
		check_refused(ummr_write(job, rank == 0 ? name : NULL, NULL), EINVAL, "the path is "
			      "'NULL' here");
		check_refused(ummr_write(job, rank == 0 ? NULL : name, NULL), EINVAL, "differs "
			      "from that of rank 0");
	}
	check(access(other, F_OK) != 0 && access(strcat(other, ".unfinished"), F_OK) != 0);
	check(ummr_write(job, name, NULL) == 0, "%s", ummr_error());
	check(ummr_end(job) == 0);
}

/* The file of the timeline is a file of the input. */
static void test_timeline_is_input(void)
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

/* ---- Functions that make calls which are not allowed there ---- */

static ummr_job *running;

static void check_refused_calls(void)
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
	check_refused_calls();
	check_refused(ummr_emit(running, "", 0, "", 0), EINVAL, "for map functions");
	check_refused(ummr_put(running, "", 0), EINVAL, "for reduce_all");
	return find_newline(data, size, arg);
}

static int map_and_call(ummr_job *job, const struct ummr_task *task, void *arg)
{
	check_refused_calls();
	check_refused(ummr_put(job, "", 0), EINVAL, "for reduce_all");
	return map_bytes(job, task, arg);
}

static int reduce_and_call(ummr_job *job, const struct ummr_bytes *key, ummr_values *values,
			   void *arg)
{
	struct ummr_bytes value;
	uint64_t all = 0;

	(void)key, (void)arg;
	check_refused_calls();
	check_refused(ummr_emit(job, "", 0, "", 0), EINVAL, "for map functions");
	while (ummr_next_value(values, &value) > 0)
		all += *(const uint64_t *)value.data;
	return ummr_put(job, &all, sizeof(all));
}

static void progress_and_call(const struct ummr_progress *progress, void *arg)
{
	(void)progress, (void)arg;
	check_refused_calls();
	check_refused(ummr_emit(running, "", 0, "", 0), EINVAL, "for map functions");
}

static int print_and_call(FILE *out, const struct ummr_bytes *key, const struct ummr_bytes *value,
			  void *arg)
{
	(void)key, (void)arg;
	check_refused_calls();
	check_refused(ummr_emit(running, "", 0, "", 0), EINVAL, "for map functions");
	return fwrite(value->data, 1, value->size, out) != value->size;
}

static int print_fails(FILE *out, const struct ummr_bytes *key, const struct ummr_bytes *value,
		       void *arg)
{
	(void)out, (void)key, (void)value, (void)arg;
	return 1;
}

static void test_calls(void)
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
	running = create_job(&c);
	check_run(running);
	check(ummr_write(running, path_of("result"), print_and_call) == 0, "%s", ummr_error());
	check_refused(ummr_write(running, path_of("result"), print_fails), EIO, "the print "
		      "function failed");
	check_count(running, 16);
	check(ummr_end(running) == 0);
}

/* ---- Impossible sizes. The functions ignore the error, and the job fails all the same. ---- */

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

static int reduce_too_much(const struct ummr_bytes *key, struct ummr_value *value,
			   const struct ummr_bytes *other, void *arg)
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

static void test_sizes(void)
{
	char name[400];
	const char *inputs[] = { strcpy(name, path_of("lines")), NULL };
	struct ummr_config c = make_config(inputs);

	for (int i = 0; i < 2; i++) {
		size_t large[2] = { i ? 3 : SIZE_MAX, i ? SIZE_MAX - 3 : 5 };

		c.map = map_too_much;
		c.arg = large;
		check_job_fails(&c, EINVAL, "too large");
	}
	c.map = map_null;
	check_job_fails(&c, EINVAL, "too large");
	c.map = map_bytes;
	c.task_size = 2;
	c.split = UMMR_SPLIT_FIXED;
	c.reduce = reduce_too_much;
	check_job_fails(&c, EINVAL, "too large");
	c.reduce = NULL;
	c.reduce_all = put_too_much;
	check_job_fails(&c, EINVAL, "too large");
}

/* The windows are larger than the memory of any machine. */
static void test_no_memory(void)
{
	char name[400];
	const char *inputs[] = { strcpy(name, path_of("lines")), NULL };
	struct ummr_config c = make_config(inputs);

	c.bucket_size = (size_t)1 << 52;
	check_job_fails(&c, ENOMEM, "cannot enlarge");
}

int main(int argc, char **argv)
{
	set_budget(4 * MIB);
	set_env("UMMAP_SEG_SIZE", "64K");
	start_mpi(&argc, &argv, MPI_THREAD_SINGLE);
	test_little_input();
	test_colons();
	test_lock_files();
	test_unreadable();
	test_removed_file();
	test_changed_file();
	test_other_inputs();
	test_other_folder();
	test_unwritten_result(UMMR_COMBINE_ON);
	test_unwritten_result(UMMR_COMBINE_OFF);
	test_other_paths();
	test_timeline_is_input();
	test_calls();
	test_sizes();
	test_no_memory();
	MPI_Finalize();
	return 0;
}
