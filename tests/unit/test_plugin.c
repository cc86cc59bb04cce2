/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Drivers and policies in files: where the library looks for them, what they may do, and mappings
 * that use them. The files were built together with this program. Invalid files and the installed
 * folder are tested by check-plugins.
 */
#include <criterion/criterion.h>
#include <libgen.h>

#include "common.h"
#include "io/plugin.h"

#define SEG (16 * KIB)
#define SIZE (64 * SEG)

/* Returns the folder of the files that were built for the tests. */
static const char *built(void)
{
	static char path[4096];
	ssize_t len = readlink("/proc/self/exe", path, sizeof(path) - 16);

	check(len > 0);
	path[len] = 0;
	dirname(path);
	return strcat(path, "/plugins");
}

/* Sets the path before the first mapping. */
static void use_path(const char *path)
{
	set_env("UMMAP_DRIVER_PATH", path);
	set_budget(8 * SEG);
}

static uint8_t *open_uri(const char *scheme, const char *path, const char *keys, const char *policy)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	char uri[512];
	void *addr;

	attr.seg_size = SEG;
	attr.flags = UMMAP_CREATE;
	attr.policy = policy;
	snprintf(uri, sizeof(uri), "%s:%s%s", scheme, path, keys);
	check(ummap_open(uri, SIZE, 0, READ_WRITE, &attr, &addr) == 0, "%s", uri);
	return addr;
}

/* Checks that the call fails with EINVAL and a message that has all of these words. */
static void check_refused(int result, const char *const words[])
{
	check(result == -1 && errno == EINVAL);
	for (; *words; words++)
		check(strstr(umerrormsg(), *words), "the message has \"%s\"", *words);
}

#define WORDS(...) (const char *const[]){ __VA_ARGS__, NULL }

static int try_open(const char *uri, const char *policy)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	void *addr;

	attr.policy = policy;
	return ummap_open(uri, SIZE, 0, PROT_READ, &attr, &addr);
}

/* Creates a file in its own folder. */
static const char *make_folder(const char *name, const char *file, const char *text)
{
	static char folder[300];
	char path[600];
	int fd;

	snprintf(folder, sizeof(folder), "%s/%s", temp_dir(), name);
	check(mkdir(folder, 0700) == 0 || errno == EEXIST);
	snprintf(path, sizeof(path), "%s/%s", folder, file);
	fd = open(path, O_WRONLY | O_CREAT, 0600);
	check(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	close(fd);
	return folder;
}

/* Writes all of a mapping that is larger than the budget, and checks it with another mapping. */
static void work_through(const char *scheme, const char *path, const char *policy)
{
	uint8_t *m = open_uri(scheme, path, "", policy);

	fill(m, SIZE, 0, 1);
	check(stat_of(m).evictions > 0);
	check(umsync(m, 1) == 0 && umunmap(m, 1) == 0);
	m = open_uri(scheme, path, "", policy);
	check_bytes(m, SIZE, 0, 1);
	check(umunmap(m, 1) == 0);
}

Test(plugin, driver_moves_data)
{
	char path[320];
	struct stat st;
	int fd;

	use_path(built());
	fd = temp_named("data", 0, path);
	work_through("skeleton", path, NULL);
	check_file(fd, 0, SIZE, 0, 1);
	close(fd);
	check(unlink(path) == 0);
	check(umunmap(open_uri("skeleton", path, "?mode=640", NULL), 0) == 0);
	check(stat(path, &st) == 0 && (st.st_mode & 0777 & ~0022) == 0640, "%o", st.st_mode);
	check_refused(try_open("skeleton:/x?mode=rw", NULL), WORDS("mode", "rw", "octal"));
	check_refused(try_open("skeleton:/x?mod=1", NULL),
		      WORDS("skeleton", "the key 'mod'", "mode"));
	check_fails(try_open("skeleton:/nowhere/at/all", NULL), ENOENT);
	check_fails(try_open("skeleton:/", NULL), ENODEV);
}

/* A driver of the program works like others. A table with an error is refused with a message. */
Test(plugin, programs_have_drivers)
{
	extern const struct ummap_driver ummap_driver_posix;
	struct ummap_driver own = ummap_driver_posix;
	char path[320];
	int fd;

	use_path(built());
	own.scheme = "own";
	own.read = NULL;
	check_refused(ummap_driver_register(&own), WORDS("lacks the required call read"));
	own.read = ummap_driver_posix.read;
	own.abi++;
	check_refused(ummap_driver_register(&own), WORDS("version"));
	own.abi--;
	own.struct_size = 1;
	check_refused(ummap_driver_register(&own), WORDS("struct_size"));
	own.struct_size = sizeof(own);
	own.scheme = "Own";
	check_refused(ummap_driver_register(&own), WORDS("cannot add the driver 'Own'"));
	check_refused(ummap_driver_register(NULL), WORDS("NULL"));
	own.scheme = "uring";
	check_fails(ummap_driver_register(&own), EEXIST);
	own.scheme = "own";
	check_refused(try_open("own:/x", NULL), WORDS("cannot find the driver 'own'"));
	check(ummap_driver_register(&own) == 0, "%s", umerrormsg());
	check_fails(ummap_driver_register(&own), EEXIST);
	memset(&own, 0, sizeof(own)); /* the library has a copy */
	fd = temp_named("data", 0, path);
	work_through("own", path, NULL);
	check_file(fd, 0, SIZE, 0, 1);
	close(fd);
}

Test(plugin, driver_takes_descriptors)
{
	int fd = temp_file(SIZE), append;
	char again[64];
	uint8_t *m;
	void *addr;

	use_path(built());
	set_env("UMMAP_DRIVER", "skeleton");
	m = map_file(fd, SIZE, SEG, READ_WRITE, 0);
	fill(m, SIZE, 0, 2);
	check(umunmap(m, 1) == 0);
	check_file(fd, 0, SIZE, 0, 2);
	snprintf(again, sizeof(again), "/proc/self/fd/%d", fd);
	append = open(again, O_RDWR | O_APPEND);
	check_fails(ummap(SIZE, SEG, READ_WRITE, append, 0, -1, 1, 0, &addr), EINVAL);
	check(strstr(umerrormsg(), "O_APPEND"));
	set_env("UMMAP_DRIVER", "posix");  /* without effect: it was read before */
	check(umunmap(map_file(fd, SIZE, SEG, READ_WRITE, 0), 1) == 0);
}

Test(plugin, policy_decides)
{
	char path[320];

	use_path(built());
	close(temp_named("data", 0, path));
	work_through("posix", path, "skeleton");
	check_fails(try_open(strcat(strcpy((char[400]){ 0 }, "posix:"), path), "skeleton:x=1"),
		    EINVAL);
}

Test(plugin, filter_stands_before_any_driver)
{
	char path[320];
	uint8_t flipped[SEG];
	int fd;

	use_path(built());
	fd = temp_named("data", 0, path);
	work_through("flip+posix", path, NULL);
	check(pread(fd, flipped, SEG, 0) == (ssize_t)SEG);
	for (size_t i = 0; i < SEG; i++)
		flipped[i] = (uint8_t)~flipped[i];
	check_bytes(flipped, SEG, 0, 1);
	work_through("flip+skeleton", path, "skeleton");
	work_through("error+flip+flip+skeleton",
		     strcat(strcpy((char[400]){ 0 }, path), "?error.nth=1000000"), NULL);
	check_file(fd, 0, SIZE, 0, 1);
	check_refused(try_open("flip:/x", NULL), WORDS("flip", "filter"));
	check_refused(try_open("skeleton+flip+posix:/x", NULL), WORDS("skeleton", "not a filter"));
	close(fd);
}

Test(plugin, tables_may_be_older_or_newer)
{
	static const char *const uris[] = {
		"older:100000",
		"newer:100000",
		"error+older:100000?error.nth=1000000",
		"trace+older:100000?trace.file=/dev/null",
	};

	use_path(built());
	for (size_t k = 0; k < sizeof(uris) / sizeof(*uris); k++) {
		uint8_t *m;
		void *addr;

		check(ummap_open(uris[k], 100000, 0, PROT_READ, NULL, &addr) == 0, "%s", uris[k]);
		m = addr;
		for (size_t i = 0; i < 100000; i++)
			check(m[i] == i % 251, "%s: byte %zu", uris[k], i);
		check(umunmap(addr, 0) == 0);
		check_fails(ummap_open(uris[k], 100000, 0, READ_WRITE, NULL, &addr), EACCES);
	}
	/* Fields that an older table lacks are NULL, and further fields of a newer one are ignored.
	 * */
	check(plugin_driver("older")->size == NULL && plugin_driver("older")->set_notice == NULL &&
	      plugin_driver("older")->filter == 0);
	check(plugin_driver("older")->struct_size == sizeof(struct ummap_driver));
	check(plugin_driver("newer")->struct_size == sizeof(struct ummap_driver));
}

static void find_nothing(void *path)
{
	if (path)
		use_path(path);
	check_refused(try_open("nosuch:/x", NULL),
		      WORDS("the driver 'nosuch'", "posix", "error", "ummap-driver-nosuch.so",
			    "UMMAP_DRIVER_PATH", path ? (char *)path : "not set"));
	check_refused(try_open("posix:/proc/self/exe", "nosuch"),
		      WORDS("the policy 'nosuch'", "fifo", "wiro-l", "ummap-policy-nosuch.so",
			    path ? (char *)path : "not set"));
	/* A policy cannot be used as a driver, and a driver not as a policy. */
	check_refused(try_open("gentle:/x", NULL), WORDS("cannot find the driver 'gentle'"));
}

Test(plugin, says_where_it_looked)
{
	char path[600];

	snprintf(path, sizeof(path), "/tmp:%s", temp_dir());
	check_exits(run_child(find_nothing, NULL), 0);
	check_exits(run_child(find_nothing, path), 0);
}

Test(plugin, policy_names_are_no_paths)
{
	static const char *const bad[] = { "",
					   ":",
					   ":seed=1",
					   "../skeleton",
					   "plugins/skeleton",
					   "/etc/passwd",
					   "Fifo",
					   "fifo ",
					   "fi_fo",
					   ".",
					   "..",
					   "%2e",
					   "{rank}" };
	char name[200] = "", path[320], uri[400];

	use_path(built());
	close(temp_named("data", SIZE, path));
	snprintf(uri, sizeof(uri), "posix:%s", path);
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		check_refused(try_open(uri, bad[i]),
			      WORDS("cannot use the policy", "lower-case letters"));
	memset(name, 'a', 63);
	check_refused(try_open(uri, name), WORDS("cannot find the policy 'aaa"));
	memset(name, 'a', 64);
	check_refused(try_open(uri, name), WORDS("cannot use the policy", "63"));
}

static void first_folder_counts(void *good_first)
{
	char path[5000], data[320];
	const char *bad = make_folder("bad", "ummap-driver-skeleton.so", "this is no library\n");

	snprintf(path, sizeof(path), "%s:%s", good_first ? built() : bad,
		 good_first ? bad : built());
	use_path(path);
	close(temp_named("data", 0, data));
	if (good_first)
		work_through("skeleton", data, NULL);
	else
		check_refused(try_open("skeleton:/x", NULL),
			      WORDS(bad, "ummap-driver-skeleton.so"));
	/* A file that the first folder lacks is found in the second one. A folder is not a file. */
	check(umunmap(open_uri("flip+posix", data, "", NULL), 0) == 0);
}

Test(plugin, first_folder_counts)
{
	check_exits(run_child(first_folder_counts, NULL), 0);
	check_exits(run_child(first_folder_counts, "yes"), 0);
}

Test(plugin, built_in_ones_come_first)
{
	char data[320];

	use_path(make_folder("own", "ummap-driver-posix.so", "this is no library\n"));
	close(temp_named("data", 0, data));
	work_through("posix", data, NULL);
}

/* ---- Threads and children ---- */

static atomic_int waiting;

/* Each thread uses its own file, so no byte is written by two. */
static void *load_at_once(void *folder)
{
	const struct ummap_driver *driver;
	char data[340];

	snprintf(data, sizeof(data), "%s/data.%d", (const char *)folder, (int)gettid());
	for (waiting--; waiting > 0;)
		;
	driver = plugin_driver("skeleton");
	check(driver);
	check(umunmap(open_uri("flip+skeleton", data, "", "skeleton"), 0) == 0);
	return (void *)(uintptr_t)driver;
}

Test(plugin, is_loaded_once)
{
	pthread_t thread[8];
	char data[320];
	void *driver;

	use_path(built());
	close(temp_named("data", 0, data));
	check(umunmap(open_uri("posix", data, "", NULL), 0) == 0);
	*strrchr(data, '/') = '\0';
	waiting = 8;
	for (int i = 0; i < 8; i++)
		check(pthread_create(&thread[i], NULL, load_at_once, data) == 0);
	for (int i = 0; i < 8; i++) {
		check(pthread_join(thread[i], &driver) == 0);
		check(driver == plugin_driver("skeleton"));
	}
}

static void work_in_child(void *data)
{
	work_through("flip+skeleton", data, "skeleton");  /* the parent has loaded one of these */
}

Test(plugin, works_in_children)
{
	char data[320];

	use_path(built());
	close(temp_named("data", 0, data));
	work_through("skeleton", data, NULL);
	check_exits(run_child(work_in_child, data), 0);
	work_through("flip+skeleton", data, "skeleton");
}

static atomic_bool stop;

static void *keep_looking(void *unused)
{
	while (!stop)
		check(plugin_driver("skeleton"));
	return unused;
}

static void look_in_child(void *unused)
{
	(void)unused;
	check(plugin_driver("skeleton") && plugin_driver("flip"));
}

Test(plugin, children_of_busy_processes_work)
{
	pthread_t thread;
	char data[320];

	use_path(built());
	close(temp_named("data", 0, data));
	check(umunmap(open_uri("posix", data, "", NULL), 0) == 0);
	check(pthread_create(&thread, NULL, keep_looking, NULL) == 0);
	for (int i = 0; i < 200; i++)
		check_exits(run_child(look_in_child, NULL), 0);
	stop = true;
	check(pthread_join(thread, NULL) == 0);
}
