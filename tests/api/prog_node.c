/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The table that processes of a memory group share: processes that are killed, that fork, exec and
 * change their user; and a table that is damaged, truncated, removed, of another version or of
 * another user, before and while it is used.
 *
 *	prog_node [SEED]
 */
#include <sched.h>
#include <sys/file.h>

#include "node.h"

#define NOBODY 65534
#define HEAD 64        /* bytes of the table's header */
#define SLOTS_END (HEAD + 64 * 1024)

static uint64_t seed = 1;

static bool try_map(int fd, uint8_t **m)
{
	void *addr;

	if (ummap(NODE_SIZE, NODE_SEG, READ_WRITE, fd, 0, -1, 1, 0, &addr) != 0)
		return false;
	*m = addr;
	return true;
}

static uint8_t *map_some(void)
{
	return map_file(temp_file(NODE_SIZE), NODE_SIZE, NODE_SEG, READ_WRITE, 0);
}

/* Whether a table is gone, at the latest after one more process has begun and ended. The kernel
 * releases the lock of a killed process late if another program reads the memory of that process
 * meanwhile. */
static bool is_swept(const char *path)
{
	struct node_child *other;

	if (access(path, F_OK) != 0)
		return true;
	other = node_start(false);
	node_until(other->budget > 0);
	node_end(other);
	memset(other, 0, sizeof(*other));
	node_count--;
	return access(path, F_OK) != 0;
}

/* ---- Processes that begin and end ---- */

static void map_and_wait(void *by_fork)
{
	map_some()[0] = 1;
	if (by_fork && fork() < 0)
		exit(1);
	for (;;)
		pause();
}

/* Processes are killed at any moment, also while they start. The last ones are not waited for. */
static void killed_in_droves(void *unused)
{
	struct node_child *a;
	uint64_t random = seed;
	pid_t pids[40];

	(void)unused;
	node_begin();
	a = node_start(false);
	node_until(a->budget == NODE_LIMIT);
	for (int turn = 0; turn < 5; turn++) {
		for (int i = 0; i < 40; i++)
			pids[i] = start_child(map_and_wait, NULL);
		pause_ms(next_random(&random) % 40);
		for (int i = 0; i < 40; i++)
			check(kill(pids[i], SIGKILL) == 0);
		for (int i = 0; i < 40 && turn < 4; i++)
			check_killed(wait_child(pids[i]), SIGKILL);
	}
	/* Forty zombies do not count. */
	node_until(a->budget == NODE_LIMIT);
	node_end(a);
	for (int i = 0; i < 40; i++)
		check_killed(wait_child(pids[i]), SIGKILL);
}

static void all_at_once(void *unused)
{
	char path[128];

	(void)unused;
	node_begin();
	for (int i = 0; i < 24; i++)
		node_start(i % 2);
	for (unsigned i = 0; i < node_count; i++)
		node_until(i % 2 || node_children[i].budget == NODE_LIMIT / 24);
	for (unsigned i = 0; i < node_count; i++)
		node_children[i].order = NODE_END;
	for (unsigned i = 0; i < node_count; i++)
		check_exits(wait_child(node_children[i].pid), 0);
	check(!node_table(path), "%s is left", path);
}

/* A child counts from its own first mapping on. */
static void forked(void *unused)
{
	struct node_child *child;
	uint8_t *m;

	(void)unused;
	node_begin();
	m = map_some();
	m[0] = 1;
	check(stat_of(NULL).budget_bytes == NODE_LIMIT);
	child = node_start(false);
	node_until(child->budget == NODE_LIMIT / 2 && stat_of(NULL).budget_bytes == NODE_LIMIT / 2);
	node_use(child, NODE_SIZE);
	node_await_round(child);
	check(child->held <= NODE_LIMIT / 2 + NODE_SLACK);
	node_end(child);
	node_until(stat_of(NULL).budget_bytes == NODE_LIMIT);
	/* A child that maps nothing does not count, and its end changes nothing. */
	check_exits(system("true"), 0);
	check(m[0] == 1 && umunmap(m, 0) == 0);
}

static void become_sleep(void *child)
{
	struct node_child *c = child;
	uint8_t *m = map_some();

	c->use = NODE_SIZE;
	c->order = NODE_USE;
	node_go_round(c, m, true);
	node_report(c);
	execlp("sleep", "sleep", "1000", (char *)NULL);
}

/* A process that runs another program by exec has no share and receives no signal. */
static void replaced(void *unused)
{
	struct node_child *a, *b;

	(void)unused;
	node_begin();
	a = node_start_with(become_sleep, false);
	node_until(a->held >= NODE_LIMIT - NODE_SLACK);
	b = node_start(false);
	node_use(b, NODE_SIZE);
	node_until(b->budget == NODE_LIMIT);
	node_await_round(b);
	check(waitpid(a->pid, NULL, WNOHANG) == 0, "it was killed");
	node_kill(a);
	node_end(b);
}

/* ---- Tables that are invalid when a process starts ---- */

static void end_table(void *unused)
{
	(void)unused;
	check(umunmap(map_some(), 0) == 0);
	_exit(0);  /* without leaving the group, so that the table stays */
}

/* Creates a valid table without users. No process removes it while the descriptor is open. */
static int make_table(char path[static 128])
{
	struct node_child *child = node_start(false);
	int fd;

	node_until(child->budget > 0);
	check(node_table(path));
	fd = open(path, O_RDWR | O_CLOEXEC);
	check(fd >= 0 && flock(fd, LOCK_SH) == 0);
	node_kill(child);
	return fd;
}

struct warning {
	const char *says, *path;
};

/* An invalid table does not stop a process: it takes the whole limit and logs a warning. */
static void be_alone(void *arg)
{
	const struct warning *w = arg;
	int out = temp_file(0), screen = dup(STDERR_FILENO);
	char text[4096];
	ssize_t len;
	uint8_t *m;

	check(dup2(out, STDERR_FILENO) >= 0);
	m = map_some();
	check(dup2(screen, STDERR_FILENO) >= 0);
	m[0] = 1;
	check(stat_of(NULL).budget_bytes == NODE_LIMIT && umunmap(m, 0) == 0);
	len = pread(out, text, sizeof(text) - 1, 0);
	check(len >= 0);
	text[len] = 0;
	check(strstr(text, " warn mode: ") && strstr(text, w->says) && strstr(text, w->path),
	      "%s: %s", w->says, text);
	check(strstr(text, "UMMAP_GROUP"), "it says what to do: %s", text);
}

static void refused(const char *path, const char *says)
{
	struct warning w = { says, path };

	check_exits(run_child(be_alone, &w), 0);
}

static void bad_heads(void *unused)
{
	uint8_t head[HEAD], bad;
	char path[128];
	int fd;

	(void)unused;
	node_begin();
	fd = make_table(path);
	check(pread(fd, head, HEAD, 0) == HEAD);
	for (int i = 0; i < HEAD; i++) {
		bad = head[i] ^ 0x41;
		check(pwrite(fd, &bad, 1, i) == 1);
		refused(path, i < 8 ? "damaged" : "version");
		check(pwrite(fd, &head[i], 1, i) == 1);
	}
	end_table(NULL);
}

static void bad_files(void *unused)
{
	char path[128];
	off_t size;
	int fd;

	(void)unused;
	node_begin();
	fd = make_table(path);
	size = (off_t)file_size(fd);
	for (off_t wrong = 0; wrong <= 2 * size; wrong = wrong ? wrong * 4 : 1) {
		check(wrong == size || ftruncate(fd, wrong) == 0);
		if (wrong != size)
			refused(path, "bytes");
	}
	check(ftruncate(fd, size) == 0);
	for (int rights = 0; rights < 01000; rights += 0111) {
		check(fchmod(fd, rights) == 0);
		if (geteuid() == 0 || (rights & 0600) == 0600)
			refused(path, "permissions");
	}
	check(fchmod(fd, 0600) == 0);
	if (geteuid() == 0) {
		check(fchown(fd, NOBODY, 0) == 0);
		refused(path, "belongs");
	}
	check(unlink(path) == 0);
	check(symlink("/dev/null", path) == 0);
	refused(path, "cannot open");
	check(unlink(path) == 0 && mkdir(path, 0600) == 0);
	refused(path, "cannot open");
	check(rmdir(path) == 0 && mkfifo(path, 0600) == 0);
	refused(path, "regular");
	check(unlink(path) == 0);
	end_table(NULL);
}

/* ---- Tables that change while they are used ---- */

static void scribble(int fd, off_t from, off_t to, uint64_t *random)
{
	for (int i = 0; i < 64; i++) {
		uint64_t value = next_random(random);
		size_t len = value % 3 ? 8 : 1;

		value = value % 5 ? value >> value % 64 : ~0ull;
		check(pwrite(fd, &value, len, from + next_random(random) % (to - from - 8)) ==
		      (ssize_t)len);
	}
}

static void start_amid_rubbish(void *arg)
{
	uint8_t *m;

	set_env("UMMAP_MEMCONFIG", arg ? "dynamic" : "static");
	if (!try_map(temp_file(NODE_SIZE), &m))
		check(errno == EAGAIN, "only a table that is full");
	else
		for (size_t at = 0; at < NODE_SIZE; at += NODE_SEG)
			m[at] = 1;
}

/* Slots have random bytes. A process starts and works. */
static void rubbish_in_slots(void *unused)
{
	uint64_t random = seed;
	char path[128];
	int fd;

	(void)unused;
	node_begin();
	fd = make_table(path);
	for (unsigned i = 0, n = by_time(6, 20); i < n; i++) {
		for (unsigned k = 0; k < (i < n / 2 ? 1 : 100); k++)
			scribble(fd, HEAD, SLOTS_END, &random);
		check_exits(run_child(start_amid_rubbish, i % 2 ? "" : NULL), 0);
	}
	check(unlink(path) == 0);
}

/* Two processes work while random bytes are written to the table. Afterwards they share again. */
static void rubbish_in_use(void *whole)
{
	struct node_child *c[2];
	uint64_t random = seed + 17;
	char path[128];
	int fd;

	node_begin();
	if (whole)
		set_env("UMMAP_LOG", "error");
	for (int i = 0; i < 2; i++) {
		c[i] = node_start(i);
		node_use(c[i], NODE_LIMIT);
		node_await_round(c[i]);
	}
	check(node_table(path));
	fd = open(path, O_RDWR | O_CLOEXEC);
	check(fd >= 0);
	for (int i = 0; i < 400; i++) {
		/* The first slots are in use. */
		scribble(fd, HEAD, i % 2 ? SLOTS_END : HEAD + 4 * 64, &random);
		scribble(fd, SLOTS_END, SLOTS_END + 40000, &random);
		pause_ms(2);
		for (int k = 0; k < 2; k++)
			check(c[k]->budget <= NODE_LIMIT, "%" PRIu64, c[k]->budget);
	}
	check(unlink(path) == 0);
	node_until(c[0]->budget == NODE_LIMIT / 2);
	for (int i = 0; i < 2; i++) {
		node_check(c[i]);
		node_end(c[i]);
	}
}

static void removed_in_use(void *cut)
{
	struct node_child *a, *b, *c;
	char path[128];

	node_begin();
	a = node_start(false);
	b = node_start(false);
	node_until(a->budget == NODE_LIMIT / 2 && b->budget == NODE_LIMIT / 2);
	node_use(a, NODE_SIZE);
	check(node_table(path));
	if (cut) {
		check(truncate(path, 0) == 0);
		pause_ms(1500);
		check(a->rounds + 1 > 0 && waitpid(a->pid, NULL, WNOHANG) == 0, "it lives");
	}
	check(unlink(path) == 0);
	/* Both find each other again, and a third process joins. */
	node_until(node_table(path));
	c = node_start(false);
	node_until(a->budget == NODE_LIMIT / 3 && b->budget == NODE_LIMIT / 3 &&
		   c->budget == NODE_LIMIT / 3);
	node_end(c);
	node_kill(b);
	node_until(a->budget == NODE_LIMIT);
	node_check(a);
	node_end(a);
	if (node_table(path))
		node_until(is_swept(path));
}

/* ---- Users ---- */

static void be_nobody(void *child)
{
	check(setgid(NOBODY) == 0 && setuid(NOBODY) == 0);
	node_body(child);
}

/* Groups of two users with the same name are independent. */
static void two_users(void *unused)
{
	struct node_child *a, *b;
	char path[128];

	(void)unused;
	node_begin();
	a = node_start(false);
	b = node_start_with(be_nobody, true);
	node_use(a, NODE_SIZE);
	node_use(b, NODE_SIZE);
	node_until(a->held >= NODE_LIMIT - NODE_SLACK && b->held >= NODE_LIMIT - NODE_SLACK);
	check(a->budget == NODE_LIMIT && b->budget == NODE_LIMIT);
	check(node_table(path));
	node_check(b);
	node_end(b);
	node_end(a);
}

enum squatter { A_FILE, A_FOLDER, A_LINK, A_PIPE, SQUATTERS };

struct intrusion {
	const char *path;
	enum squatter what;
};

/* Another user has created a file with the name of the table. */
static void be_squatter(void *arg)
{
	const struct intrusion *s = arg;
	int fd;

	check(setgid(NOBODY) == 0 && setuid(NOBODY) == 0);
	switch (s->what) {
	case A_FILE:
		fd = open(s->path, O_RDWR | O_CREAT | O_EXCL, 0666);
		check(fd >= 0 && fchmod(fd, 0666) == 0);
		break;
	case A_FOLDER: check(mkdir(s->path, 0777) == 0); break;
	case A_LINK: check(symlink("/dev/shm/ummap-elsewhere", s->path) == 0); break;
	default: check(mkfifo(s->path, 0666) == 0);
	}
}

static void squatted(void *unused)
{
	char path[128];
	int fd;

	(void)unused;
	node_begin();
	fd = make_table(path);
	check(unlink(path) == 0);
	close(fd);
	for (enum squatter s = A_FILE; s < SQUATTERS; s++) {
		struct intrusion intrusion = { path, s };

		check_exits(run_child(be_squatter, &intrusion), 0);
		refused(path, "");
		check(remove(path) == 0);
	}
}

/* The process tries again, and joins the others when it can. */
static void squatted_for_a_while(void *unused)
{
	struct intrusion intrusion;
	struct node_child *a, *b;
	char path[128];
	int fd;

	(void)unused;
	node_begin();
	fd = make_table(path);
	check(unlink(path) == 0);
	close(fd);
	intrusion = (struct intrusion){ path, A_FILE };
	check_exits(run_child(be_squatter, &intrusion), 0);
	a = node_start(false);
	node_until(a->budget == NODE_LIMIT);
	check(unlink(path) == 0);
	b = node_start(false);
	node_until(a->budget == NODE_LIMIT / 2 && b->budget == NODE_LIMIT / 2);
	node_end(a);
	node_end(b);
	check(!node_table(path), "%s is left", path);
}

/* ---- Tables of processes that were killed ---- */

static void group_of(const char *suffix)
{
	static char own[64];
	char text[96];

	if (!*own)
		snprintf(own, sizeof(own), "%s", getenv("UMMAP_GROUP"));
	snprintf(text, sizeof(text), "%.20s.%s", own, suffix);
	set_env("UMMAP_GROUP", text);
}

static void swept(void *unused)
{
	struct node_child *dead, *live;
	char left[128], used[128];

	(void)unused;
	node_begin();
	group_of("a");
	dead = node_start(false);
	node_until(dead->budget > 0);
	check(node_table(left));
	group_of("b");
	live = node_start(false);
	node_until(live->budget > 0);
	check(node_table(used));
	node_kill(dead);
	group_of("c");
	node_until(is_swept(left));
	check(access(used, F_OK) == 0, "%s is in use", used);
	node_end(live);
	check(access(used, F_OK) != 0, "%s is left", used);
}

/* The first process of a namespace cannot kill itself. path: that of its table. */
static void be_killed_in_namespace(void *path)
{
	pid_t child;

	check(unshare(CLONE_NEWPID) == 0);
	child = fork();
	check(child >= 0);
	if (child == 0) {
		map_some();
		node_children[0].rounds = 1;
		for (;;)
			pause();
	}
	node_until(node_children[0].rounds == 1);
	check(node_table(path));
	check(kill(child, SIGKILL) == 0);
	check_killed(wait_child(child), SIGKILL);
}

/* A process removes the tables of PID namespaces that have ended, too. Any process does, also one
 * of another test. */
static void swept_from_outside(void *unused)
{
	char *left = mmap(NULL, 128, READ_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	(void)unused;
	check(left != MAP_FAILED);
	node_begin();
	check_exits(run_child(be_killed_in_namespace, left), 0);
	check(*left);
	group_of("other");
	node_until(is_swept(left));
}

/* A process uses the table that has the name of its group. The file is compared by its inode. */
static void check_table(const struct node_child *c)
{
	unsigned long inode = 0, found;
	char path[128], line[512];
	struct stat st;
	FILE *f;

	check(node_table(path) && stat(path, &st) == 0, "%d has no table", (int)c->pid);
	snprintf(path, sizeof(path), "/proc/%d/maps", (int)c->pid);
	f = fopen(path, "re");
	check(f, "%s", path);
	while (fgets(line, sizeof(line), f)) {
		if (strstr(line, " /dev/shm/") && sscanf(line, "%*s %*s %*s %*s %lu", &found) == 1)
			inode = found;
	}
	fclose(f);
	check(inode == st.st_ino, "%d is by itself: %lu, not %lu", (int)c->pid, inode,
	      (unsigned long)st.st_ino);
}

/* Processes of three groups begin, end and are killed, at any time. */
static void comings_and_goings(void *unused)
{
	enum { MANY = 12, STEPS = 400 };
	static const char *const groups[] = { "a", "b", "c" };
	uint64_t random = seed;
	const char *group[MANY];
	char path[128];

	(void)unused;
	node_begin();
	for (int i = 0; i < STEPS; i++) {
		uint64_t r = next_random(&random);
		struct node_child *c = &node_children[r % MANY];

		if (!c->pid) {
			memset(c, 0, sizeof(*c));
			group[r % MANY] = groups[r / MANY % 3];
			group_of(group[r % MANY]);
			c->pid = start_child(node_body, c);
		} else if (r / MANY % 3) {
			kill(c->pid, SIGKILL);
			check_killed(wait_child(c->pid), SIGKILL);
			c->pid = 0;
		} else {
			c->order = NODE_END;
			check_exits(wait_child(c->pid), 0);
			c->pid = 0;
		}
		for (int k = 0; i % 8 == 0 && k < MANY; k++) {
			if (!node_children[k].pid || !node_children[k].budget)
				continue;
			group_of(group[k]);
			check_table(&node_children[k]);
		}
	}
	for (int k = 0; k < MANY; k++) {
		if (node_children[k].pid)
			node_kill(&node_children[k]);
	}
	node_count = MANY;
	for (int k = 0; k < 3; k++) {
		group_of(groups[k]);
		if (!node_table(path))
			continue;
		group_of("d");
		node_until(is_swept(path));
	}
}

static void in_child(void (*test)(void *), void *arg, const char *name)
{
	double start = now();

	check_exits(run_child(test, arg), 0);
	printf("%s: %.1f s\n", name, now() - start);
}

int main(int argc, char **argv)
{
	if (argc > 1)
		seed = strtoull(argv[1], NULL, 10);
	setvbuf(stdout, NULL, _IOLBF, 0);
	in_child(killed_in_droves, NULL, "killed in droves");
	in_child(all_at_once, NULL, "all at once");
	in_child(forked, NULL, "forked");
	in_child(replaced, NULL, "replaced");
	in_child(swept, NULL, "swept");
	in_child(comings_and_goings, NULL, "comings and goings");
	in_child(bad_heads, NULL, "bad heads");
	in_child(bad_files, NULL, "bad files");
	in_child(rubbish_in_slots, NULL, "rubbish in slots");
	in_child(rubbish_in_use, NULL, "rubbish in use");
	in_child(removed_in_use, NULL, "removed in use");
	in_child(removed_in_use, "", "cut short in use");
	if (geteuid() == 0) {
		in_child(swept_from_outside, NULL, "swept from outside");
		in_child(two_users, NULL, "two users");
		in_child(squatted, NULL, "squatted");
		in_child(squatted_for_a_while, NULL, "squatted for a while");
	}
	return 0;
}
