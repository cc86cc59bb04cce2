/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ummap info - prints one page about this machine for a bug report: which drivers, filters, engines
 * and policies work here and why others do not, memory, the node's registry, MPI, and the kernel.
 * Each probe runs in a child, because a driver or an engine could crash or change the process.
 */
#include <dirent.h>
#include <inttypes.h>
#include <limits.h>
#include <mntent.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <sys/wait.h>

#include <ummap-driver.h>
#include <ummap.h>

#include "../tool.h"
#include "base/config.h"
#include "base/log.h"
#include "base/place.h"
#include "io/plugin.h"
#include "budget/budget.h"
#include "budget/machine.h"
#include "memory/nodes.h"
#include "node/registry.h"

#define PROBE_BYTES (1 << 20)
#define SMALL_SEGMENT 4096
#define LARGE_SEGMENT (1 << 20)
#define MAX_VALUE 1024

extern char **environ;

TOOL_HELP(INFO_OPTIONS, .usage =
"usage: ummap info [OPTION ...]\n"
"Describes this machine for a bug report: drivers, filters, engines, memory, MPI, kernel.\n");

/* ---- Output: sections of named values, as text or JSON ---- */

static bool json;
static unsigned sections, items;

static void end_section(void)
{
	if (json)
		fputs("}", stdout);
	else if (!items)
		puts("  none");
}

static void begin_section(const char *title)
{
	if (sections++)
		end_section();
	items = 0;
	if (!json) {
		printf("%s%s\n", sections > 1 ? "\n" : "", title);
	} else {
		fputs(sections > 1 ? ",\n" : "{\n", stdout);
		print_json_string(stdout, title);
		fputs(": {", stdout);
	}
}

__attribute__((format(printf, 2, 3)))
static void print_item(const char *name, const char *format, ...)
{
	char value[MAX_VALUE];
	va_list args;

	va_start(args, format);
	vsnprintf(value, sizeof(value), format, args);
	va_end(args);
	if (!json) {
		items++;
		printf("  %-26s  %s\n", name, value);
		return;
	}
	fputs(items++ ? ",\n  " : "\n  ", stdout);
	print_json_string(stdout, name);
	fputs(": ", stdout);
	print_json_string(stdout, value);
}

/* ---- Probes ---- */

/* Runs a probe in a child, which writes its result. A probe that crashes has its signal as the
 * result. */
static void run_probe(void (*probe)(const void *arg, FILE *result), const void *arg,
		      char result[MAX_VALUE])
{
	/* A pipe works where no file can be written, and holds a whole result. */
	int ends[2], status = 0;
	ssize_t len;
	pid_t child;

	if (pipe2(ends, O_CLOEXEC) < 0) {
		snprintf(result, MAX_VALUE, "unknown: cannot make a pipe: %s", strerror(errno));
		return;
	}
	output_flush();
	child = fork();
	if (child < 0)
		snprintf(result, MAX_VALUE, "unknown: cannot start a process: %s",
			 strerror(errno));
	if (child == 0) {
		FILE *file = fdopen(ends[1], "w");

		if (file && freopen("/dev/null", "w", stderr)) {
			probe(arg, file);
			fflush(file);
		}
		_exit(0);
	}
	close(ends[1]);
	if (child > 0 && waitpid(child, &status, 0) == child) {
		len = read(ends[0], result, MAX_VALUE - 1);
		result[len > 0 ? len : 0] = '\0';
		if (WIFSIGNALED(status))
			snprintf(result, MAX_VALUE, "crashes: %s", strsignal(WTERMSIG(status)));
	}
	close(ends[0]);
}

static void probe_driver(const void *uri, FILE *result)
{
	struct ummap_driver driver = { .struct_size = sizeof(driver) };
	struct ummap_geom geom;
	void *handle;

	if (ummap_driver_open(uri, UMMAP_O_WRITE | UMMAP_O_CREATE, &driver, &handle, &geom) < 0) {
		fprintf(result, "cannot be used: %s", umerrormsg());
		return;
	}
	driver.close(handle);
	fputs("works", result);
}

/* The folder where drivers are tried. The caller removes it. */
static char trial_folder[64] = "/tmp/ummap-info-XXXXXX";

static bool make_trial_folder(void)
{
	char path[PATH_MAX];
	int fd;

	if (!mkdtemp(trial_folder))
		return false;
	snprintf(path, sizeof(path), "%s/store", trial_folder);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0 || ftruncate(fd, PROBE_BYTES) < 0)
		return false;
	close(fd);
	return true;
}

static void remove_trial_folder(void)
{
	DIR *dir = opendir(trial_folder);
	struct dirent *entry;

	while (dir && (entry = readdir(dir)))
		unlinkat(dirfd(dir), entry->d_name, 0);
	if (dir)
		closedir(dir);
	rmdir(trial_folder);
}

/* The keys that a filter needs. The last one names a file; "": there are none. */
static const char *needed_keys(const char *scheme)
{
	if (strcmp(scheme, "trace") == 0)
		return "trace.file";
	return strcmp(scheme, "cache") == 0 ? "cache.size=4M&cache.path" : "";
}

static void print_driver(const struct ummap_driver *driver)
{
	char uri[256], result[MAX_VALUE], name[32];
	const char *scheme = driver->scheme, *keys = needed_keys(scheme);

	if (strcmp(scheme, "mem") == 0 || strcmp(scheme, "null") == 0)
		snprintf(uri, sizeof(uri), "%s:%d", scheme, PROBE_BYTES);
	else if (*keys)
		snprintf(uri, sizeof(uri), "%s+posix:%s/store?%s=%s/%s", scheme, trial_folder, keys,
			 trial_folder, scheme);
	else
		snprintf(uri, sizeof(uri), "%s%s:%s/store", scheme, driver->filter ? "+posix" : "",
			 trial_folder);
	run_probe(probe_driver, uri, result);
	snprintf(name, sizeof(name), "%s%s", scheme, driver->filter ? "+" : "");
	print_item(name, "%s", result);
}

/* Lists plug-ins in a folder, and tells of each whether it can be loaded. */
static void print_plugins(const char *folder)
{
	DIR *dir = opendir(folder);
	struct dirent *entry;
	char name[64], path[PATH_MAX], result[MAX_VALUE];

	while (dir && (entry = readdir(dir))) {
		bool is_driver = sscanf(entry->d_name, "ummap-driver-%60[^.].so", name) == 1;

		if (!is_driver && sscanf(entry->d_name, "ummap-policy-%60[^.].so", name) != 1)
			continue;
		snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
		fail_clear();
		if (is_driver ? plugin_driver(name) != NULL :
				plugin_policy(name, strlen(name)) != NULL)
			snprintf(result, sizeof(result), "can be loaded");
		else
			snprintf(result, sizeof(result), "cannot be loaded: %s", fail_message());
		print_item(path, "%s", result);
	}
	if (dir)
		closedir(dir);
}

/* Returns false if the drivers cannot be tried. */
static bool print_drivers(void)
{
	const struct ummap_driver *const *drivers;
	size_t n = plugin_drivers(&drivers);

	begin_section("drivers and filters");
	if (!make_trial_folder()) {
		fail(errno, "cannot make a file in the folder '%s': %s", trial_folder,
		     strerror(errno));
		print_item("error", "%s", fail_message());
		remove_trial_folder();
		return false;
	}
	for (size_t i = 0; i < n; i++)
		print_driver(drivers[i]);
	remove_trial_folder();
	return true;
}

static void print_plugin_folders(void)
{
	char folder[PATH_MAX];

	begin_section("plug-ins");
	print_plugins(UMMAP_PLUGIN_DIR);
	for (const char *path = config.driver_path; path && *path; path += strspn(path, ":")) {
		snprintf(folder, sizeof(folder), "%.*s", (int)strcspn(path, ":"), path);
		print_plugins(folder);
		path += strcspn(path, ":");
	}
}

static void print_policies(void)
{
	const char *name;

	begin_section("policies");
	/* Type 0 is the default, which is one of the others. */
	for (int i = 1; (name = plugin_ptype(i)); i++)
		print_item(name, "built in");
}

/* ---- Engines ---- */

struct engine_trial {
	int engine;
	unsigned flags;
	size_t seg_size;
};

static const char *const engine_names[] = {
	[UMMAP_ENGINE_SEGV] = "segv",
	[UMMAP_ENGINE_UFFD] = "uffd",
	[UMMAP_ENGINE_SIGBUS] = "sigbus",
};

static void probe_engine(const void *arg, FILE *result)
{
	const struct engine_trial *trial = arg;
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	struct umstat st = { .struct_size = sizeof(st) };
	void *base;

	attr.engine = trial->engine;
	attr.flags = trial->flags;
	attr.seg_size = trial->seg_size;
	if (ummap_open("mem:1M", PROBE_BYTES, 0, PROT_READ | PROT_WRITE, &attr, &base) < 0 ||
	    umstat(base, &st) < 0)
		fprintf(result, "cannot be used: %s", umerrormsg());
	else if (trial->engine != UMMAP_ENGINE_DEFAULT)
		fprintf(result, "works; system calls on segments that are not resident %s",
			st.kernel ? "work" : "fail with EFAULT");
	else
		fputs(engine_names[st.engine], result);
}

static void print_engine(const char *name, struct engine_trial trial)
{
	char result[MAX_VALUE];

	run_probe(probe_engine, &trial, result);
	print_item(name, "%s", result);
}

static void print_engines(void)
{
	begin_section("engines");
	for (int i = UMMAP_ENGINE_SEGV; i <= UMMAP_ENGINE_SIGBUS; i++)
		print_engine(engine_names[i], (struct engine_trial){ i, 0, SMALL_SEGMENT });
	print_engine("default, 4K",
		     (struct engine_trial){ UMMAP_ENGINE_DEFAULT, 0, SMALL_SEGMENT });
	print_engine("default, 1M",
		     (struct engine_trial){ UMMAP_ENGINE_DEFAULT, 0, LARGE_SEGMENT });
}

/* ---- Rights, which an administrator or a container may withhold ---- */

struct right {
	const char *name;				/* name of the item */
	void (*probe)(const void *arg, FILE *result);	/* prints why the right is missing */
	const char *use;				/* what needs the right */
	const char *remedy;				/* how an administrator grants the right */
};

static void probe_kernel_accesses(const void *unused, FILE *result)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	const char *reason, *remedy;
	void *base;

	(void)unused;
	attr.flags = UMMAP_KERNEL;
	if (ummap_open("mem:1M", PROBE_BYTES, 0, PROT_READ | PROT_WRITE, &attr, &base) == 0)
		return;
	reason = umerrormsg();
	remedy = strstr(reason, ". Try");
	fprintf(result, "%.*s", (int)(remedy ? remedy - reason : MAX_VALUE), reason);
}

static void probe_io_uring(const void *unused, FILE *result)
{
	/* The structure io_uring_params, whose header may be missing: zeros are valid. */
	uint64_t params[15] = { 0 };

	(void)unused;
	if (syscall(SYS_io_uring_setup, 1, params) < 0)
		fprintf(result, "cannot use io_uring: %s", strerror(errno));
}

/* Reads from a process that is neither a parent nor a child: Yama permits to read from children. */
static void probe_processes(const void *sibling, FILE *result)
{
	char here, there[1] = "";
	struct iovec to = { &here, 1 }, from = { there, 1 };

	if (process_vm_readv(*(const pid_t *)sibling, &to, 1, &from, 1, 0) != 1)
		fprintf(result, "cannot read from another process: %s", strerror(errno));
}

static const struct right rights[] = {
	{ "accesses by the kernel", probe_kernel_accesses, "the flag UMMAP_KERNEL",
	  "run as root 'chmod 666 /dev/userfaultfd' or 'sysctl vm.unprivileged_userfaultfd=1'" },
	{ "io_uring", probe_io_uring, "the driver uring",
	  "run as root 'sysctl kernel.io_uring_disabled=0', or permit io_uring in the seccomp "
	  "profile of the container" },
	{ "memory of other processes", probe_processes, "MPI windows with the engine uffd",
	  "run as root 'sysctl kernel.yama.ptrace_scope=0', or permit process_vm_readv in the "
	  "seccomp profile of the container" },
};

static void print_rights(void)
{
	char result[MAX_VALUE];
	pid_t sibling = fork();

	if (sibling == 0) {
		pause();
		_exit(0);
	}
	begin_section("rights");
	for (size_t i = 0; i < sizeof(rights) / sizeof(*rights); i++) {
		run_probe(rights[i].probe, &sibling, result);
		if (*result)
			print_item(rights[i].name, "missing, needed by %s: %s. To obtain it, %s",
				   rights[i].use, result, rights[i].remedy);
		else
			print_item(rights[i].name, "granted");
	}
	if (sibling > 0)
		kill(sibling, SIGKILL);
}

/* ---- The system ---- */

static void print_file(const char *name, const char *path)
{
	char text[128] = "";
	FILE *file = fopen(path, "re");

	if (!file) {
		print_item(name, "unknown: %s", strerror(errno));
		return;
	}
	if (fgets(text, sizeof(text), file))
		text[strcspn(text, "\n")] = '\0';
	fclose(file);
	print_item(name, "%s", text);
}

static void print_system(void)
{
	struct utsname u;
	char libc[64] = "unknown";

	uname(&u);
#ifdef _CS_GNU_LIBC_VERSION
	confstr(_CS_GNU_LIBC_VERSION, libc, sizeof(libc));
#endif
	begin_section("system");
	print_item("libummap", UMMAP_VERSION);
	print_item("kernel", "%s %s %s", u.sysname, u.release, u.machine);
	print_item("C library", "%s", libc);
	print_item("processors", "%ld", sysconf(_SC_NPROCESSORS_ONLN));
	print_item("page size", "%zu", sys_page());
	print_file("huge pages", "/sys/kernel/mm/transparent_hugepage/enabled");
	print_file("vm.max_map_count", "/proc/sys/vm/max_map_count");
	print_item("user", "%d%s", (int)geteuid(), geteuid() ? "" : " (root)");
}

/* A process that cannot make the registry has the whole limit for itself. */
static void print_registry(const char *path)
{
	char folder[REGISTRY_PATH_LEN];

	snprintf(folder, sizeof(folder), "%s", path);
	*strrchr(folder, '/') = '\0';
	if (access(path, F_OK) == 0)
		print_item("registry", "%s, in use", path);
	else if (access(folder, W_OK | X_OK) == 0)
		print_item("registry", "%s, not there: no process of the group has mappings", path);
	else
		print_item("registry", "%s, cannot be made: %s", path, strerror(errno));
}

static void print_memory(void)
{
	const char *limit = getenv("UMMAP_MEM_LIMIT");
	char path[REGISTRY_PATH_LEN];

	budget_start();
	registry_path(config.group, path);
	begin_section("memory");
	print_item("RAM", "%zu bytes", machine_ram());
	print_item("usable", "%zu bytes%s", machine_memory(),
		   machine_memory() < machine_ram() ? " (limit of the cgroup)" : "");
	if (limit)
		print_item("limit", "%zu bytes (UMMAP_MEM_LIMIT=%s)", budget_limit(), limit);
	else
		print_item("limit", "%zu bytes (default: %.0f %% of the usable memory)",
			   budget_limit(), config.mem_share * 100);
	print_item("group", "%s", config.group ? config.group : "none (UMMAP_GROUP is not set)");
	print_registry(path);
}

/* Whether a file system maps the persistent memory of all of its files. */
static bool has_dax(const struct mntent *m)
{
	const char *option = hasmntopt(m, "dax");

	return option && (option[3] != '=' || strncmp(option, "dax=always", 10) == 0);
}

static void print_dax(void)
{
	FILE *mounts = setmntent("/proc/self/mounts", "r");
	struct mntent *m;
	struct statvfs fs;
	char name[MAX_VALUE];

	while (mounts && (m = getmntent(mounts))) {
		if (!has_dax(m) || statvfs(m->mnt_dir, &fs) < 0)
			continue;
		snprintf(name, sizeof(name), "dax:%s", m->mnt_dir);
		print_item(name, "persistent memory, %" PRIu64 " bytes, %" PRIu64 " free",
			   (uint64_t)fs.f_blocks * fs.f_frsize,
			   (uint64_t)fs.f_bavail * fs.f_frsize);
	}
	if (mounts)
		endmntent(mounts);
}

/* The memory of which UMMAP_TIERS can make tiers, with the attributes that the firmware tells. */
static void print_tiers(void)
{
	struct memory_node nodes[MAX_NODES];
	int n = nodes_find(nodes, MAX_NODES);
	char name[32];

	begin_section("tiers");
	if (n < 0)
		print_item("nodes", "unknown: %s", fail_message());
	for (int i = 0; i < n; i++) {
		snprintf(name, sizeof(name), "node:%u", nodes[i].number);
		print_item(name, nodes[i].bandwidth && nodes[i].latency ?
			   "%s, %" PRIu64 " bytes, %" PRIu64 " MB/s, %" PRIu64 " ns" :
			   "%s, %" PRIu64 " bytes, bandwidth and latency unknown", nodes[i].kind,
			   nodes[i].bytes, nodes[i].bandwidth, nodes[i].latency);
	}
	print_dax();
}

static bool is_of_libummap(const char *variable)
{
	static const char *const prefixes[] = { "UMMAP_", "UMRUN_", "UMALLOC_", "UMOBJECT_",
						"PCAF_" };

	for (size_t i = 0; i < sizeof(prefixes) / sizeof(*prefixes); i++)
		if (strncmp(variable, prefixes[i], strlen(prefixes[i])) == 0)
			return true;
	return false;
}

/* Returns false if a variable is wrong, so that nothing else can be tried. */
static bool print_environment(void)
{
	char name[64];
	bool good = config_load() == 0;

	begin_section("environment");
	for (char **at = environ; *at; at++) {
		if (!is_of_libummap(*at))
			continue;
		snprintf(name, sizeof(name), "%.*s", (int)strcspn(*at, "="), *at);
		print_item(name, "%s", strchrnul(*at, '=') + 1);
	}
	if (!good)
		print_item("error", "%s", fail_message());
	return good;
}

/* Finds a library in the build folder, or in the folders where it can be installed. */
static bool find_library(const char *name, char path[PATH_MAX])
{
	static const char *const places[] = { "..", "../../lib", "../../lib64",
					      ("../../lib/" MULTIARCH) };
	char folder[PATH_MAX];
	ssize_t len = readlink("/proc/self/exe", folder, sizeof(folder) - 1);

	folder[len > 0 ? len : 0] = '\0';
	for (size_t i = 0; len > 0 && i < sizeof(places) / sizeof(*places); i++)
		if (snprintf(path, PATH_MAX, "%.*s/%s/%s", (int)(strrchr(folder, '/') - folder),
			     folder, places[i], name) < PATH_MAX &&
		    access(path, R_OK) == 0)
			return true;
	return false;
}

static void print_mpi(void)
{
	static const char *const mpis[] = { "openmpi", "mpich" };
	char name[64], path[PATH_MAX], real[PATH_MAX];

	begin_section("MPI");
	for (size_t i = 0; i < 2; i++) {
		snprintf(name, sizeof(name), "libummap-mpi-%s.so.0", mpis[i]);
		print_item(mpis[i], "%s",
			   !find_library(name, path) ? "not installed" :
			   realpath(path, real)      ? real :
						       path);
	}
}

int main(int argc, char **argv)
{
	bool good;
	char reason[MAX_VALUE];

	tool_begin(2);
	/* A write beyond the limit of file sizes fails with EFBIG, and is reported. */
	signal(SIGXFSZ, SIG_IGN);
	while (take_option(argc, argv, &tool_help) >= 0)
		json = true;
	if (optind < argc)
		refuse_extra(program_invocation_short_name, argv[optind]);
	tool_failed = 1;
	print_system();
	print_mpi();
	good = print_environment();
	if (good) {
		print_memory();
		print_tiers();
		print_engines();
		print_rights();
		good = print_drivers();
		snprintf(reason, sizeof(reason), "%s", good ? "" : fail_message());
		print_plugin_folders();
		print_policies();
	} else {
		snprintf(reason, sizeof(reason), "%s", fail_message());
	}
	end_section();
	fputs(json ? "}\n" : "", stdout);
	if (!good)
		refuse("cannot try drivers%s: %s", sections < 8 ? " and engines" : "", reason);
	return EXIT_SUCCESS;
}
