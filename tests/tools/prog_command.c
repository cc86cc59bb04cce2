/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * prog_command - the command ummap: help, wrong names, names in messages, and output of `ummap
 * info`.
 */
#include "common.h"

#define MAX_OUTPUT 65536

static char text[MAX_OUTPUT];
static char folder[4096]; /* folder of the build */

/*
 * Runs a command line in the build folder, and returns its exit status. Both outputs are in text.
 */
static int run(const char *line)
{
	char command[8192];
	size_t len;
	int status;
	FILE *f;

	snprintf(command, sizeof(command), "exec 2>&1; cd '%s' && %s", folder, line);
	f = popen(command, "re");
	check(f);
	len = fread(text, 1, MAX_OUTPUT - 1, f);
	text[len] = '\0';
	status = pclose(f);
	check(WIFEXITED(status), "%s: wait status %#x", line, status);
	return WEXITSTATUS(status);
}

static void expect(const char *line, int status, const char *words)
{
	int got = run(line);

	check(got == status && strstr(text, words), "%s: status %d, not %d, or without '%s': %s",
	      line, got, status, words, text);
}

static void test_help(void)
{
	expect("./ummap help", 0, "\nObserve:\n  top ");
	expect("./ummap --help", 0, "short name: umrun");
	expect("./ummap", 2, "usage: ummap COMMAND");
	expect("./ummap version", 0, "ummap (libummap) ");
	expect("./ummap help wal", 0, "apply");
	expect("PATH=/nowhere ./ummap help wal", 0, "usage: ummap wal");
	expect("./ummap help settings", 0, "UMMAP_MEM_LIMIT: ");
	expect("./ummap wal --version", 0, "ummap wal (libummap) ");
	expect("./umtop --version", 0, "umtop (libummap) ");
	expect("ln -sf \"$PWD/ummap\" tests/umtop; tests/umtop --version; rm tests/umtop", 0,
	       "umtop (libummap) ");
}

static void test_wrong_names(void)
{
	expect("./ummap warl", 2,
	       "ummap: cannot run 'warl': there is no such command. Try 'ummap wal'");
	expect("./ummap cnoform", 2, "Try 'ummap conform'");
	expect("./ummap help obejct", 2, "Try 'ummap object'");
	expect("./ummap something-else", 2, "Try 'ummap help'");
	expect("./ummap help nope", 2, "Try 'ummap help'");
	expect("./ummap ../wal", 2, "there is no such command");
	expect("./ummap ''", 2, "there is no such command");
	expect("./ummap wal.there.is.none ls x", 2, "the file is missing");
	expect("./ummap wal ls /nowhere/store", 2, "ummap wal: ");
	expect("./ummap run --limit 5x true", 125, "ummap run: cannot use --limit '5x'");
	expect("./umrun --limit 5x true", 125, "umrun: cannot use --limit '5x'");
	expect("./umrun --limit 101% true", 125,
	       "cannot use --limit '101%': it must be more than 0: a percentage");
	expect("./umrun --limit 0 true", 125, "cannot use --limit '0': it must be more than 0");
	expect("./umrun --segment 3 true", 125,
	       "cannot use --segment '3': it must be auto, or a power of two");
	expect("./umrun --engine zz true", 125, "cannot use --engine 'zz': it must be uffd");
	expect("./umrun --driver posix:/x true", 125,
	       "cannot use --driver 'posix:/x': it must be NAME or NAME?KEYS");
	expect("./umrun --driver mem true", 125,
	       "cannot use --driver 'mem': it does not store data in files");
	/* A sanitizer, which comes with the library that umrun preloads, must be in the program. */
	if (!SANITIZED)
		expect("./umrun --driver posix --engine auto --segment 64K --limit 50% true", 0,
		       "");
	expect("./umrun /nowhere/program", 127, "umrun: cannot run '/nowhere/program'");
	expect("./ummap wal --nonsense", 2, "Try 'ummap wal --help'");
}

/* Usage errors have one form in all commands. */
static void test_usage_errors(void)
{
	expect("./ummap wal --nosuch", 2,
	       "ummap wal: cannot use '--nosuch': there is no such option. Try 'ummap wal --help'");
	expect("./ummap wal --log", 2, "cannot use '--log': it needs a value");
	expect("./ummap info -jx --json", 2, "cannot use '-x': there is no such option");
	expect("./ummap info --json=3", 2, "cannot use '--json=3': it takes no value");
	expect("./ummap info x", 2, "cannot use 'x': there are too many arguments");
	expect("./ummap version x", 2, "cannot use 'x': there are too many arguments");
	expect("./ummap help a b", 2, "cannot use 'b': there are too many arguments");
	expect("./ummap wal aply x", 2,
	       "cannot run 'aply': there is no such action. Try 'ummap wal apply'");
	expect("./ummap caf exprt", 2, "Try 'ummap caf export'");
	expect("./ummap wal ls", 2, "cannot run 'ls': it has too few or too many arguments");
	expect("./ummap help nope", 2, "Try 'ummap help'");
	expect("./ummap \"$(printf 'a\\033b')\"", 2,
	       "cannot run 'a\\x1bb': there is no such command");
	expect("./ummap $(printf 'x%.0s' 1 2 3 4 5 6 7 8 9)$(printf '%090d' 0)", 2,
	       "...': there is no such command");
	expect("./ummap conform", 2, "Try 'ummap conform posix:/tmp/store'");
	expect("./ummap -- version --", 0, "ummap (libummap)");
	expect("./ummap cafrun -- true", 2, "-n is missing");
	expect("./ummap trace -- -x", 2, "cannot show '-x'");
}

static void test_unwritable_output(void)
{
	static const char *const scripts[] = { "trace", "timeline", "cafrun" };
	char line[128];

	for (size_t i = 0; i < 3; i++) {
		snprintf(line, sizeof(line), "./ummap %s --help > /dev/full", scripts[i]);
		expect(line, i < 2 ? 1 : 2, "cannot write the output");
		check(!strstr(text, "error"), "%s: %s", line, text);
		snprintf(line, sizeof(line), "./ummap %s --version >&-", scripts[i]);
		expect(line, i < 2 ? 1 : 2, "cannot write the output");
		check(!strstr(text, "error"), "%s: %s", line, text);
	}
	expect("./ummap help info > /dev/full", 2, "cannot write the output: No space left");
}

static void test_info(void)
{
	static const char *const wanted[] = {
		"\nmemory\n",      "\nengines\n",
		"\n  segv ",       "\n  posix                       works\n",
		"\n  wal+ ",       "\n  cache+ ",
		"\n  s3fifo ",     "\n  kernel ",
		"\n  limit ",      "\n  registry ",
		"\n  UMMAP_STATS",
	};

	expect("UMMAP_STATS=1 ./ummap info", 0, "system\n");
	for (size_t i = 0; i < sizeof(wanted) / sizeof(*wanted); i++)
		check(strstr(text, wanted[i]), "%s is not in: %s", wanted[i], text);
	expect("UMMAP_MEM_LIMIT=64M ./ummap info", 0, "67108864 bytes (UMMAP_MEM_LIMIT=64M)");
	expect("UMMAP_MEM_LIMIT=64M ./ummap info --json 2> /dev/null | python3 -c 'import json, "
	       "sys; i = json.load(sys.stdin); "
	       "print(i[\"drivers and filters\"][\"posix\"], len(i))'",
	       0, "works 10");
	/* A wrong setting is reported, and the output is complete. */
	expect("UMMAP_SEG_SIZE=3 ./ummap info", 1,
	       "ummap info: cannot try drivers and engines: UMMAP_SEG_SIZE is \"3\"");
	expect("UMMAP_SEG_SIZE=3 ./ummap info --json 2> /dev/null | python3 -c 'import json, sys; "
	       "print(json.load(sys.stdin)[\"environment\"][\"error\"])'",
	       0, "UMMAP_SEG_SIZE is \"3\"");
	expect("UMMAP_DRIVER_PATH=$PWD/tests/plugins ./ummap info", 0,
	       "ummap-driver-skeleton.so  can be loaded");
	expect("./ummap info --json | grep -c '\"s3fifo\"'", 0, "1\n");
	/* ThreadSanitizer writes a file before main. */
	if (!SANITIZED)
		expect("(ulimit -f 0; ./ummap info > tests/info.out); s=$?; rm -f tests/info.out; "
		       "exit $s", 1, "cannot write the output: File too large");
	expect("./ummap info --nonsense", 2, "Try 'ummap info --help'");
	expect("./ummap info > /dev/full", 1, "cannot write the output: No space left");
}

int main(void)
{
	ssize_t len = readlink("/proc/self/exe", folder, sizeof(folder) - 1);

	check(len > 0);
	folder[len] = '\0';
	*strrchr(folder, '/') = '\0';
	*strrchr(folder, '/') = '\0';
	test_help();
	test_wrong_names();
	test_usage_errors();
	test_unwritable_output();
	test_info();
	return 0;
}
