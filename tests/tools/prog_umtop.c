/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * prog_umtop - compares the output of umtop with the counters that the processes report themselves:
 * text and JSON, sorting and filters, rates, long and unusual names, commits in flight, missing or
 * damaged tables, random bytes in pages, and the screen on a terminal of script(1).
 *
 *	prog_umtop [SEED]
 */
#include "node.h"

#include <glob.h>

#define ROOM (1 << 20)

static char text[ROOM];
static char program[4096];

/* Runs umtop; `text` receives the output. Returns the exit status. */
static int run(const char *options)
{
	char command[8192];
	size_t len;
	FILE *f;
	int status;

	snprintf(command, sizeof(command), "%s %s 2>&1", program, options);
	f = popen(command, "re");
	check(f);
	len = fread(text, 1, ROOM - 1, f);
	text[len] = '\0';
	status = pclose(f);
	check(WIFEXITED(status), "%s: status %#x", command, status);
	return WEXITSTATUS(status);
}

/* ---- Parser of JSON: the functions return the end of a value, or NULL if it is invalid. ---- */

static const char *skip(const char *p)
{
	return p + strspn(p, " \n");
}

static const char *json_string(const char *p)
{
	if (*p++ != '"')
		return NULL;
	for (; *p != '"'; p++) {
		if ((unsigned char)*p < ' ' || (unsigned char)*p > '~' ||
		    (*p == '\\' && !strchr("\"\\", *++p)))
			return NULL;
	}
	return p + 1;
}

static const char *json_value(const char *p);

static const char *json_list(const char *p, char end)
{
	for (p = skip(p + 1); p && *p != end;) {
		if (end == '}') {
			p = json_string(p);
			if (!p || *(p = skip(p)) != ':')
				return NULL;
			p++;
		}
		p = json_value(skip(p));
		if (p && *(p = skip(p)) == ',' && *(p = skip(p + 1)) == end)
			return NULL;
	}
	return p ? p + 1 : NULL;
}

static const char *json_value(const char *p)
{
	char *end;

	if (*p == '{' || *p == '[')
		return json_list(p, *p == '{' ? '}' : ']');
	if (*p == '"')
		return json_string(p);
	if (strncmp(p, "null", 4) == 0)
		return p + 4;
	if (*p != '-' && (*p < '0' || *p > '9'))
		return NULL;
	strtod(p, &end);
	return end;
}

static void check_json(void)
{
	const char *p = text;

	do {
		p = *p == '{' ? json_value(p) : NULL;
		check(p, "no JSON: %s", text);
	} while (*(p = skip(p)));
}

/* Returns the part of the text about a process, or NULL if the text has none. */
static const char *find_process(const struct node_child *c)
{
	char pid[32];
	const char *p;

	snprintf(pid, sizeof(pid), "\"pid\": %d,", (int)c->pid);
	p = strstr(text, pid);
	while (p && strncmp(p, "{\"name\"", 7) != 0)
		p--;
	return p;
}

static const char *process(const struct node_child *c)
{
	const char *p = find_process(c);

	check(p, "no process %d in %s", (int)c->pid, text);
	return p;
}

static double number(const char *p, const char *key)
{
	char quoted[64];

	snprintf(quoted, sizeof(quoted), "\"%s\": ", key);
	p = strstr(p, quoted);
	check(p, "no %s", quoted);
	p += strlen(quoted);
	return strncmp(p, "null", 4) == 0 ? -1 : strtod(p, NULL);
}

static unsigned count(const char *words)
{
	unsigned n = 0;

	for (const char *p = text; (p = strstr(p, words)); p++)
		n++;
	return n;
}

static void run_until(const struct node_child *c, const char *key, double least, double most)
{
	double end = now() + NODE_SECONDS, got;

	do {
		check(run("--once --json") == 0, "%s", text);
	} while ((!find_process(c) || (got = number(process(c), key)) < least || got > most) &&
		 now() < end);
	got = number(process(c), key);
	check(got >= least && got <= most, "%s: %g, not %g to %g", key, got, least, most);
}

/* ---- Processes at work ---- */

static void test_descriptions(struct node_child *a, struct node_child *b)
{
	const char *p;

	run_until(a, "held", NODE_LIMIT / 4, NODE_LIMIT / 4 + NODE_SLACK);
	run_until(a, "resident", NODE_LIMIT / 4, NODE_LIMIT / 4);
	run_until(a, "dirty", NODE_LIMIT / 4, NODE_LIMIT / 4);
	check_json();
	check(count("\"pid\"") == 2);
	p = process(a);
	check(strncmp(p, "{\"name\": \"prog_umtop\"", 21) == 0 &&
	      strstr(p, "\"mode\": \"static\""));
	check(number(p, "limit") == NODE_LIMIT && number(p, "share") == NODE_LIMIT / 2);
	check(number(p, "budget") == NODE_LIMIT / 2 && number(p, "mappings") == 1 &&
	      number(p, "over") == 0);
	p = strstr(p, "\"maps\"");
	check(p && number(p, "size") == NODE_SIZE && number(p, "seg_size") == NODE_SEG);
	check(number(p, "resident") == NODE_LIMIT / 4 && strstr(p, "ummap-test-"));
	p = process(b);
	check(strstr(p, "\"mode\": \"dynamic\""));
	check(number(p, "held") == (double)b->held || b->order != NODE_REST);
	/* The rates of idle processes are 0. */
	run_until(a, "faults_per_s", 0, 0);
	run_until(a, "read_mib_per_s", 0, 0);
}

static void test_rates(struct node_child *a)
{
	node_use(a, NODE_SIZE);
	node_await_round(a);
	run_until(a, "faults_per_s", 1, 1e9);
	run_until(a, "read_mib_per_s", 0.1, 1e6);
	run_until(a, "write_mib_per_s", 0.1, 1e6);
	check(number(process(a), "readahead_hits") <= 1 &&
	      number(process(a), "inactive_hits") <= 1);
	a->order = NODE_REST;
}

/* Returns the line of a child in the text output, or NULL. */
static const char *line(const struct node_child *c)
{
	char pid[32];

	snprintf(pid, sizeof(pid), "%7d ", (int)c->pid);
	return strstr(text, pid);
}

static void test_order(struct node_child *a, struct node_child *b)
{
	char options[64];

	check(run("--once --sort pid") == 0 && line(a) && line(a) < line(b), "%s", text);
	check(run("--once --sort pid --reverse") == 0 && line(b) && line(a) > line(b), "%s", text);
	check(run("-1 -s held") == 0 && line(a) && line(a) < line(b), "%s", text);
	check(count("\n") == 4 && count("MODE") == 1 && count(" in 256K") == 0, "%s", text);
	check(run("-1m") == 0 && count("\n") == 6 && count(" in 256K") == 2, "%s", text);
	snprintf(options, sizeof(options), "-1 --filter %d", (int)b->pid);
	check(run(options) == 0 && !line(a) && line(b), "%s", text);
	check(run("-1 --filter no-such-thing") == 0 && !line(a) && !line(b));
	check(run("--json --count 2 --delay 0.1 --filter umtop") == 0);
	check_json();
	check(count("\"pid\"") == 4 && count("\"table\"") == 2);
	/* Output into a pipe ends when its reader has ended. */
	check(run("--delay 0.1 | head -n 12") == 0 && count("MODE") >= 2, "%s", text);
}

static void test_processes(void)
{
	struct node_child *a, *b;

	node_begin();
	set_env("UMMAP_READAHEAD", "0");
	b = node_start(true);
	a = node_start(false);
	node_use(a, NODE_LIMIT / 4);
	node_await_round(a);
	a->order = NODE_REST;
	node_use(b, NODE_SEG);
	node_await_round(b);
	b->order = NODE_REST;
	test_descriptions(a, b);
	test_rates(a);
	if (a->pid > b->pid)
		test_order(a, b);
	node_kill(b);
	node_until(run("-1") == 0 && line(a) && !line(b));
	node_end(a);
	check(run("-1") == 0 && strstr(text, "0 processes"), "%s", text);
}

/* ---- Names ---- */

static void map_odd_names(void *child)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	char path[320], uri[512];
	void *addr;

	prctl(PR_SET_NAME, "q\"\\\n\033[2J");
	close(temp_named("with \"quotes\" and \\ and \001 and \303\244", MIB, path));
	snprintf(uri, sizeof(uri), "posix:%s", path);
	for (int i = 0; i < 40; i++)
		check(ummap_open(uri, MIB, 0, PROT_READ, &attr, &addr) == 0);
	node_work(child);
}

static void test_names(void)
{
	struct node_child *c;

	node_begin();
	c = node_start_with(map_odd_names, false);
	run_until(c, "mappings", 41, 41);
	check_json();
	check(strstr(text, "q\\\"\\\\?"), "%s", text);
	/* The mappings are sorted by address, and that of all children may be between them. */
	check(count("quotes\\\" and \\\\ and ? and ??") + count("(deleted)") >= 22, "%s", text);
	check(run("-1m") == 0 && strstr(text, "19 more mappings") && !strchr(text, '\033'), "%s",
	      text);
	node_end(c);
}

/* ---- Node copies ---- */

#define COPY_SIZE (16 * NODE_SEG)

static void map_copy(void *uri)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	void *addr;

	attr.seg_size = NODE_SEG;
	attr.flags = UMMAP_NODE;
	check(ummap_open(uri, COPY_SIZE, 0, PROT_READ, &attr, &addr) == 0);
	check_bytes(addr, COPY_SIZE, 0, 1);
	pause();
}

/* Whether /dev/shm has the file of a copy of this test. */
static bool has_copy_file(void)
{
	char pattern[128];
	glob_t found;
	bool has;

	snprintf(pattern, sizeof(pattern), "/dev/shm/ummapcopy-%u-*-%s", (unsigned)geteuid(),
		 getenv("UMMAP_GROUP"));
	has = glob(pattern, 0, NULL, &found) == 0;
	globfree(&found);
	return has;
}

/* Each process of a copy shows a half of it. umtop removes what killed processes leave. */
static void test_copies(void)
{
	char path[320], uri[400];
	int fd = temp_named("copied", 0, path);
	pid_t children[2];

	file_fill(fd, 0, COPY_SIZE, 0, 1);
	close(fd);
	snprintf(uri, sizeof(uri), "posix:%s", path);
	node_begin();
	unsetenv("UMMAP_ENGINE");
	for (int i = 0; i < 2; i++)
		children[i] = start_child(map_copy, uri);
	node_until(run("-1m") == 0 && count("node copy of 2 processes") == 2 &&
		   count("    2.0M") == 6);
	check(run("-1j") == 0 && count("\"sharers\": 2") == 2, "%s", text);
	for (int i = 0; i < 2; i++) {
		check(kill(children[i], SIGKILL) == 0);
		check_killed(wait_child(children[i]), SIGKILL);
	}
	check(has_copy_file());
	check(run("-1") == 0 && !has_copy_file());
}

#define COMMIT_SEGMENTS 64

/* Begins a commit, which writes so slowly that it stays in flight. */
static void begin_commit(void *uri)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	struct umsync_handle *commit;
	void *addr;

	attr.seg_size = NODE_SEG;
	attr.flags = UMMAP_CREATE;
	attr.flush_rate = 1;
	check(ummap_open(uri, COMMIT_SEGMENTS * NODE_SEG, 0, READ_WRITE, &attr, &addr) == 0);
	memset(addr, 1, COMMIT_SEGMENTS * NODE_SEG);
	check(umsync_begin(addr, 0, &commit) == 0);
	pause();
}

static void test_commits(void)
{
	char path[320], uri[400];
	pid_t child;

	close(temp_named("committed", 0, path));
	snprintf(uri, sizeof(uri), "posix:%s", path);
	node_begin();
	child = start_child(begin_commit, uri);
	node_until(run("-1m") == 0 && count(", commit of ") == 1 && count(" left") == 1);
	check(run("-1j") == 0 && count("\"commit_bytes\": ") == 1 &&
	      number(text, "commit_bytes") > 0, "%s", text);
	check(kill(child, SIGKILL) == 0);
	check_killed(wait_child(child), SIGKILL);
}

/* ---- Damaged tables ---- */

static void test_damaged_tables(uint64_t seed)
{
	struct node_child *a;
	uint64_t random = seed;
	char path[128];
	int fd;

	node_begin();
	a = node_start(true);
	node_use(a, NODE_SEG);
	node_await_round(a);
	check(node_table(path));
	fd = open(path, O_RDWR | O_CLOEXEC);
	check(fd >= 0);
	for (int i = 0; i < 12; i++) {
		/* The random bytes change slots and pages, but not the header. */
		for (int k = 0; k < 300; k++) {
			uint64_t value = next_random(&random) >> next_random(&random) % 64;
			uint64_t at = 64 + next_random(&random) % (i % 2 ? 512 : 90000);

			check(pwrite(fd, &value, 8, at) == 8);
		}
		check(run(i % 3 ? "-1jm -d 0.1" : "-1m") == 0, "%s", text);
		if (i % 3)
			check_json();
	}
	/* The process may have lost its slot, and made another registry. */
	node_kill(a);
	close(fd);
	check(unlink(path) == 0 || errno == ENOENT);
	a = node_start(true);
	node_use(a, NODE_SEG);
	node_await_round(a);
	fd = open(path, O_RDWR | O_CLOEXEC);
	check(fd >= 0);
	check(pwrite(fd, "x", 1, 0) == 1);
	check(run("--once") == 1 && strstr(text, "damaged") && strstr(text, path), "%s", text);
	check(ftruncate(fd, 100) == 0);
	check(run("--once --json") == 1 && strstr(text, "bytes"), "%s", text);
	check(unlink(path) == 0);
	node_kill(a);
	close(fd);
}

static void test_wrong_usage(void)
{
	check(run("--sort nothing") == 2 && strstr(text, "--sort"));
	check(run("--delay 0") == 2 && strstr(text, "--delay"));
	check(run("--count x") == 2 && strstr(text, "--count"));
	check(run("--group a/b") == 2 && strstr(text, "--group"));
	check(run("anything") == 2 && run("--nonsense") == 2);
	check(run("--help") == 0 && strstr(text, "--once"));
	check(run("--once --group there.is.none") == 0 && strstr(text, "0 processes"), "%s", text);
}

/* ---- The screen ---- */

/* Presses each key at least once; the terminal records the output. */
static void test_screen(void)
{
	struct node_child *a;
	char command[8192];
	size_t len;
	FILE *f;

	node_begin();
	a = node_start(false);
	node_until(a->budget == NODE_LIMIT);
	snprintf(command, sizeof(command),
		 "(for key in h h m r '<' '>' + - z /umtop '\n' /xyz '\n'; do sleep 0.1; "
		 "printf '%%s' \"$key\"; done; sleep 0.3; printf q) | TERM=xterm script -qec %s "
		 "/dev/null",
		 program);
	f = popen(command, "re");
	check(f);
	len = fread(text, 1, ROOM - 1, f);
	for (size_t i = 0; i < len; i++)
		text[i] = text[i] ? text[i] : ' ';
	text[len] = '\0';
	check(pclose(f) == 0, "%s", text);
	check(strstr(text, "prog_umtop") && strstr(text, "1 process") &&
		      strstr(text, "sort by the column"),
	      "%s", text);
	check(strstr(text, "smallest first") && strstr(text, "only: _"));
	node_end(a);
}

int main(int argc, char **argv)
{
	ssize_t len = readlink("/proc/self/exe", program, sizeof(program) - 64);

	check(len > 0);
	program[len] = '\0';
	*strrchr(program, '/') = '\0';
	strcpy(strrchr(program, '/'), "/umtop");
	setvbuf(stdout, NULL, _IOLBF, 0);
	test_processes();
	test_names();
	test_copies();
	test_commits();
	test_damaged_tables(argc > 1 ? strtoull(argv[1], NULL, 10) : 1);
	test_wrong_usage();
	run("--once");
	test_screen();
	return 0;
}
