/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Variables in URIs: their values, where they are replaced, and invalid ones; and thousands of
 * mutated URIs, which may fail, but must do nothing else.
 */
#include <criterion/criterion.h>

#include "common.h"
#include "io/uri.h"

#define SEG (4 * KIB)
#define MAX_VALUE 4095
#define MAX_VARS 256

static const char *const launchers[] = { "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK",
					 "SLURM_PROCID" };

/* Checks the path of a URI after replacement. */
static void check_path(const char *text, const char *path)
{
	struct uri u;

	check(uri_parse(text, &u) == 0, "%s", text);
	check(strcmp(u.layer[0].path, path) == 0, "%s: \"%s\" instead of \"%s\"", text,
	      u.layer[0].path, path);
	uri_free(&u);
}

static void check_refused(const char *text, const char *word)
{
	void *addr;

	errno = 0;
	check(ummap_open(text, SEG, 0, PROT_READ, NULL, &addr) == -1 && errno == EINVAL, "%s",
	      text);
	check_sentence(EINVAL, text, __FILE__, __LINE__);
	check(strstr(umerrormsg(), word), "%s: the message has \"%s\"", text, word);
}

static void forget_rank(void)
{
	for (size_t i = 0; i < 4; i++)
		unsetenv(launchers[i]);
}

Test(vars, system_has_some)
{
	char expected[400], host[300];

	check(gethostname(host, sizeof(host)) == 0);
	snprintf(expected, sizeof(expected), "/d/%s.%d", host, (int)getpid());
	check_path("posix:/d/{host}.{pid}", expected);
}

Test(vars, rank_is_the_launchers)
{
	char value[2] = "1";

	forget_rank();
	check_refused("posix:/d/a.{rank}", "OMPI_COMM_WORLD_RANK");
	/* The first one that is set counts. */
	for (int i = 3; i >= 0; i--) {
		char expected[] = "/d/a.x";

		value[0] = (char)('1' + i);
		set_env(launchers[i], value);
		expected[5] = value[0];
		check_path("posix:/d/a.{rank}", expected);
	}
	set_env(launchers[0], "../../etc/passwd");
	check_refused("posix:/d/a.{rank}", "is not a number");
	check(strstr(umerrormsg(), launchers[0]));
	set_env(launchers[0], "");
	check_refused("posix:/d/a.{rank}", "is not a number");
	set_env(launchers[0], "123456789012345678901");
	check_refused("posix:/d/a.{rank}", "is not a number");
}

static void pid_of_child(void *parent)
{
	char text[200];

	snprintf(text, sizeof(text), "%d-%s", (int)getpid(), (char *)parent);
	check_path("posix:{pid}-{parent}", text);
	check(ummap_setvar("parent", "changed") == 0);
}

Test(vars, children_have_their_own)
{
	char text[100];

	snprintf(text, sizeof(text), "%d", (int)getpid());
	check(ummap_setvar("parent", text) == 0);
	check_exits(run_child(pid_of_child, text), 0);
	check_path("posix:{parent}", text);
}

Test(vars, program_has_its_own)
{
	char value[] = "b c", big[MAX_VALUE + 2], name[65];

	check(ummap_setvar("x", value) == 0);
	value[0] = 'X';  /* the library has a copy */
	check_path("posix:/a/{x}/d", "/a/b c/d");
	check(ummap_setvar("x", "2") == 0);
	check(ummap_setvar("X_9", "3") == 0);
	check_path("posix:{x}{X_9}{x}", "232");
	check(ummap_setvar("x", "") == 0);
	check_path("posix:/{x}", "/");
	check(ummap_setvar("x", NULL) == 0);
	check(ummap_setvar("x", NULL) == 0);
	check_refused("posix:/{x}", "{x}");
	check_path("posix:/{X_9}", "/3");
	memset(big, 'y', sizeof(big));
	big[MAX_VALUE] = 0;
	check(ummap_setvar("x", big) == 0);
	check_path("posix:{x}", big);
	memset(name, 'n', sizeof(name));
	name[63] = 0;
	check(ummap_setvar(name, "long") == 0);
	name[63] = 'n', name[64] = 0;
	check_fails(ummap_setvar(name, "longer"), EINVAL);
	big[MAX_VALUE] = 'y', big[MAX_VALUE + 1] = 0;
	check_fails(ummap_setvar("x", big), EINVAL);
}

Test(vars, refuses_bad_names)
{
	static const char *const bad[] = { "",    "a b",      "a-b",  "a.b", "{a}", "a}",
					   "a=b", "\xc3\xa4", "rank", "pid", "host" };

	check_fails(ummap_setvar(NULL, "1"), EINVAL);
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		check_fails(ummap_setvar(bad[i], "1"), EINVAL);
		check(strstr(umerrormsg(), bad[i]), "the message names %s", bad[i]);
		check_fails(ummap_setvar(bad[i], NULL), EINVAL);
	}
}

Test(vars, are_bounded)
{
	char name[32];

	for (int i = 0; i < MAX_VARS; i++) {
		snprintf(name, sizeof(name), "v%d", i);
		check(ummap_setvar(name, name) == 0, "%d", i);
	}
	check_fails(ummap_setvar("more", "1"), ENOMEM);
	check(ummap_setvar("v7", "changed") == 0);
	check_path("posix:{v7}{v0}{v255}", "changedv0v255");
	check(ummap_setvar("v7", NULL) == 0);
	check(ummap_setvar("more", "1") == 0);
	check_fails(ummap_setvar("v7", "1"), ENOMEM);
}

Test(vars, are_replaced_in_path_and_values_only)
{
	struct uri u;

	check(ummap_setvar("v", "a?b&c=d+e:f%41{v}") == 0);
	/* The value may have any character, and does not change the structure of the URI. */
	check(uri_parse("error+posix:/{v}?x={v}&error.y=%7Bv}{v}", &u) == 0);
	check(u.layers == 2 && u.layer[0].nkeys == 1 && u.layer[1].nkeys == 1);
	check(strcmp(u.layer[1].path, "/a?b&c=d+e:f%41{v}") == 0, "%s", u.layer[1].path);
	check(strcmp(u.layer[1].keys[0].value, "a?b&c=d+e:f%41{v}") == 0);
	check(strcmp(u.layer[0].keys[0].name, "y") == 0);
	check(strcmp(u.layer[0].keys[0].value, "{v}a?b&c=d+e:f%41{v}") == 0, "%s",
	      u.layer[0].keys[0].value);
	uri_free(&u);
	check_path("posix:/%7Bv%7D", "/{v}");
	check_path("posix:/%7bv}", "/{v}");
	check_path("posix:}/}{v}}", "}/}a?b&c=d+e:f%41{v}}");
	check_refused("{v}:/d/a", "not the name of a driver");
	check_refused("posix:/d/a?{v}=1", "the key '{v}'");
}

Test(vars, mistakes_are_told)
{
	static const char *const bad[] = { "posix:/{",          "posix:/{v",     "posix:/{}",
					   "posix:/{v v}",      "posix:/{v?x=}", "posix:/{v%7D",
					   "posix:/{%76}",      "posix:/{{v}}",  "posix:/{v-}",
					   "posix:/a?direct={v" };
	char many[200] = "posix:";

	check(ummap_setvar("v", "1") == 0);
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		check_refused(bad[i], "must begin a variable");
	check_refused("posix:/{nosuch}", "cannot replace {nosuch}");
	check_refused("posix:/a?direct={v}", "direct is \"1\"");
	check_refused("posix:{V}", "{V}");
	for (int i = 0; i < URI_VARIABLES; i++)
		strcat(many, "{v}");
	check_path(many, "11111111111111111111111111111111");
	strcat(many, "{v}");
	check_refused(many, "more than 32 variables");
}

Test(vars, name_files)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	char path[400];
	struct stat st;
	void *addr;

	attr.flags = UMMAP_CREATE;
	set_env("PMI_RANK", "17");
	check(ummap_setvar("dir", temp_dir()) == 0 && ummap_setvar("how", "never") == 0);
	check(ummap_open("posix:{dir}/a.{rank}?direct={how}", SEG, 0, READ_WRITE, &attr, &addr) ==
	      0);
	((uint8_t *)addr)[99] = 1;
	check(umunmap(addr, 1) == 0);
	snprintf(path, sizeof(path), "%s/a.17", temp_dir());
	check(stat(path, &st) == 0 && st.st_size == SEG, "%s", path);
}

static void count_through_driver(void *path)
{
	int fd = temp_file(SEG), counts;
	uint8_t *m;

	check(ummap_setvar("here", temp_dir()) == 0);
	set_env("UMMAP_DRIVER", "error+posix:?error.nth=99&error.count={here}/count.{pid}");
	m = map_file(fd, SEG, SEG, READ_WRITE, 0);
	m[0] = 1;
	check(umunmap(m, 1) == 0);
	snprintf(path, 400, "%s/count.%d", temp_dir(), (int)getpid());
	counts = open(path, O_RDONLY);
	check(counts >= 0 && file_size(counts) > 0, "%s", (char *)path);
}

static void bad_driver(void *unused)
{
	void *addr;

	(void)unused;
	forget_rank();
	set_env("UMMAP_DRIVER", "error+posix:?error.nth={rank}");
	check_fails(ummap(SEG, SEG, READ_WRITE, temp_file(SEG), 0, -1, 1, 0, &addr), EINVAL);
	check(strstr(umerrormsg(), "UMMAP_DRIVER") && strstr(umerrormsg(), "{rank}"));
}

Test(vars, stand_in_the_environments_uri_too)
{
	char path[400];

	check_exits(run_child(count_through_driver, path), 0);
	check_exits(run_child(bad_driver, NULL), 0);
}

/* ---- Threads: a value is the old or the new one, never a mixture ---- */

static atomic_bool stop;

static void *change(void *value)
{
	while (!stop)
		check(ummap_setvar("shared", value) == 0);
	return NULL;
}

/* Runs in a child that was forked while threads changed variables, before the first mapping. */
static void set_and_use(void *unused)
{
	(void)unused;
	check(ummap_setvar("mine", "1") == 0);
	check_path("posix:{mine}", "1");
}

Test(vars, are_for_threads)
{
	char a[2000], b[1000];
	pthread_t first, second;

	memset(a, 'a', sizeof(a));
	memset(b, 'b', sizeof(b));
	a[sizeof(a) - 1] = b[sizeof(b) - 1] = 0;
	check(ummap_setvar("shared", a) == 0);
	check(pthread_create(&first, NULL, change, a) == 0);
	check(pthread_create(&second, NULL, change, b) == 0);
	for (unsigned i = 0; i < by_time(40, 200); i++)
		check_exits(run_child(set_and_use, NULL), 0);
	for (unsigned i = 0; i < by_time(4000, 20000); i++) {
		struct uri u;

		check(uri_parse("posix:{shared}", &u) == 0);
		check(strcmp(u.layer[0].path, a) == 0 || strcmp(u.layer[0].path, b) == 0);
		uri_free(&u);
	}
	stop = true;
	check(pthread_join(first, NULL) == 0 && pthread_join(second, NULL) == 0);
}

/* ---- Mutated URIs ---- */

#define URI_BYTES 300

static const char *const seeds[] = {
	"posix:data",
	"posix:data?direct=never",
	"error+posix:data?error.nth=7&error.op=read&direct=auto",
	"error+error+posix:data",
	"posix:{v}",
	"posix:./{v}?direct={how}",
	"posix:d%61ta",
	"posix:{pid}.{host}.{rank}",
	"error+posix:data?error.errno=ENOSPC&error.short=100&error.times=always",
	"posix:%7Bv%7D",
};

static const char *const pieces[] = {
	"{",      "}",
	"{v}",    "{big}",
	"{rank}", "%",
	"%7B",    "%00",
	"%4",     "?",
	"&",      "=",
	"+",      ":",
	".",      "error.",
	"posix",  "posix:",
	"error+", "direct=",
	"nth=",   "{v",
	"\x7f",   "\xff",
	"0",      "99999999999999999999",
	"-1",     "%n%s",
	" ",
};

static const char *pick(const char *const list[], size_t n, uint64_t *state)
{
	return list[next_random(state) % n];
}

/* Removes bytes, inserts a piece, or changes a byte. The path stays relative. */
static void mutate(char *uri, uint64_t *state)
{
	size_t len = strlen(uri), at = next_random(state) % (len + 1), take, n;
	const char *piece = pick(pieces, sizeof(pieces) / sizeof(*pieces), state);
	char rest[URI_BYTES];

	take = next_random(state) % 3 ? 0 : next_random(state) % (len - at + 1);
	strcpy(rest, uri + at + take);
	n = strlen(piece);
	if (at + n + strlen(rest) < URI_BYTES && next_random(state) % 4)
		sprintf(uri + at, "%s%s", piece, rest);
	else
		strcpy(uri + at, rest);
	if (*uri && next_random(state) % 4 == 0) {
		char byte = (char)(next_random(state) % 255 + 1);

		uri[next_random(state) % strlen(uri)] = byte == '/' ? '.' : byte;
	}
}

/* Errors that an invalid URI, or a path without a file, may cause. */
static bool is_fair(int error)
{
	return error == EINVAL || error == ENOENT || error == ENODEV || error == ENAMETOOLONG ||
	       error == ENOTDIR;
}

Test(vars, any_uri_fails_decently)
{
	unsigned opened = 0, refused = 0, n = by_time(3000, 40000);
	char big[MAX_VALUE + 1];
	uint64_t state = 42;
	void *addr;
	int fds;

	check(chdir(temp_dir()) == 0);
	close(temp_named("data", SEG, (char[320]){ 0 }));
	memset(big, '%', sizeof(big));
	big[MAX_VALUE] = 0;
	check(ummap_setvar("v", "data") == 0 && ummap_setvar("how", "never") == 0 &&
	      ummap_setvar("big", big) == 0);
	check(ummap_open("posix:data", SEG, 0, READ_WRITE, NULL, &addr) == 0 &&
	      umunmap(addr, 0) == 0);
	fds = count_fds();
	for (unsigned i = 0; i < n; i++) {
		char uri[URI_BYTES];

		strcpy(uri, pick(seeds, sizeof(seeds) / sizeof(*seeds), &state));
		for (uint64_t changes = next_random(&state) % 4; changes > 0; changes--)
			mutate(uri, &state);
		errno = 0;
		if (ummap_open(uri, SEG, 0, READ_WRITE, NULL, &addr) == 0) {
			check(umunmap(addr, 0) == 0, "%s", uri);
			opened++;
			continue;
		}
		check(is_fair(errno), "%s", uri);
		check_sentence(errno, uri, __FILE__, __LINE__);
		refused++;
	}
	check(opened > n / 20 && refused > n / 4, "%u opened, %u refused", opened, refused);
	check(count_fds() == fds && stat_of(NULL).mappings == 0);
}
