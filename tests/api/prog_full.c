/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Stores to a mapping whose file cannot grow. RLIMIT_FSIZE replaces a full file system: it needs no
 * root, and raising it makes space. Memory stays within its bound, the message is logged, and no
 * byte is lost.
 */
#include "common.h"

#define SEG (64 * KIB)
#define BUDGET (2 * MIB)
#define ROOM (4 * MIB)
#define SIZE (16 * MIB)
#define SEGS (SIZE / SEG)
#define THREADS_MAX 4
#define WAIT_SECONDS 80
#define NEW 2

/* The settings of a test case. */
struct job {
	unsigned threads;
	const char *over;      /* UMMAP_OVER_BUDGET; NULL: not set */
	size_t bound;          /* bytes that may be held beyond the budget */
	size_t budget;         /* budget of the mapping; 0: the process's */
	int on_full;           /* UMMAP_FULL_* */
	bool by_variable;      /* on_full is set by UMMAP_ON_FULL, not by the attribute */
};

typedef uint64_t unaligned_word __attribute__((aligned(1), may_alias));

static uint8_t *m;
static _Atomic size_t stored[THREADS_MAX]; /* number of segments that each thread has stored */
static _Atomic bool handled;
static unsigned threads;
static char path[320];

static void set_room(rlim_t bytes)
{
	struct rlimit limit;

	check(getrlimit(RLIMIT_FSIZE, &limit) == 0);
	limit.rlim_cur = bytes;
	check(setrlimit(RLIMIT_FSIZE, &limit) == 0);
}

/* ---- Messages. Standard error of a child is a file. ---- */

static const char *log_path(void)
{
	static char name[320];

	snprintf(name, sizeof(name), "%s/log", temp_dir());
	return name;
}

static unsigned count_messages(const char *text)
{
	char line[1024];
	unsigned n = 0;
	FILE *f = fopen(log_path(), "re");

	check(f);
	while (fgets(line, sizeof(line), f))
		n += strstr(line, text) != NULL;
	fclose(f);
	return n;
}

static void await_message(const char *text)
{
	for (double end = now() + WAIT_SECONDS; !count_messages(text); pause_ms(10))
		check(now() < end, "a message \"%s\"", text);
}

struct logged {
	void (*body)(void *);
	void *arg;
};

static void begin_log(void *arg)
{
	struct logged *l = arg;
	int fd = open(log_path(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);

	check(fd >= 0 && dup2(fd, STDERR_FILENO) >= 0);
	signal(SIGXFSZ, SIG_IGN);
	set_env("UMMAP_LOG", "warn");
	l->body(l->arg);
}

static void show_log(int status, int expected)
{
	char text[8192];
	FILE *f = fopen(log_path(), "re");
	size_t n = f ? fread(text, 1, sizeof(text), f) : 0;

	if (status != expected)
		fwrite(text, 1, n, stderr);
	if (f)
		fclose(f);
	check(status == expected, "%#x", status);
}

static void run(void (*body)(void *), const void *arg)
{
	struct logged l = { body, (void *)(uintptr_t)arg };

	show_log(run_child(begin_log, &l), 0);
}

/* ---- The mapping ---- */

static void map_it(const struct job *j)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	char uri[400];
	void *addr;

	set_budget(j->budget ? 16 * BUDGET : BUDGET);
	if (j->over)
		set_env("UMMAP_OVER_BUDGET", j->over);
	if (j->by_variable)
		set_env("UMMAP_ON_FULL", j->on_full == UMMAP_FULL_SIGBUS ? "sigbus" : "wait");
	close(temp_named("data", 0, path));
	snprintf(uri, sizeof(uri), "posix:%s", path);
	attr.seg_size = SEG;
	attr.budget = j->budget;
	attr.on_full = j->by_variable ? UMMAP_FULL_DEFAULT : j->on_full;
	check(ummap_open(uri, SIZE, 0, READ_WRITE, &attr, &addr) == 0);
	m = addr;
	set_room(ROOM);
}

static void check_data(void)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	/* The error of an earlier background write may still have to be reported. */
	if (umsync(m, 0) < 0) {
		check(errno == EFBIG && strstr(umerrormsg(), "All changes are durable now"), "%s",
		      umerrormsg());
		check_file(fd, 0, SIZE, 0, NEW);
		check(umsync(m, 0) == 0);
	}
	check(stat_of(m).waiting_bytes == 0 && stat_of(m).dirty_bytes == 0);
	check(umunmap(m, 1) == 0);
	check(fd >= 0);
	check_file(fd, 0, SIZE, 0, NEW);
	close(fd);
}

static void store_segment(size_t i)
{
	fill(m + i * SEG, SEG, i * SEG, NEW);
}

static size_t kept; /* number of segments at the end that store_part() does not store */

static void *store_part(void *arg)
{
	size_t t = (size_t)(uintptr_t)arg, part = (SEGS - kept) / threads;

	for (size_t i = 0; i < part; i++) {
		store_segment(t * part + i);
		stored[t]++;
	}
	return NULL;
}

/* Loads do not wait. The segments that they read are evicted for further loads. */
static void check_stored(void)
{
	for (size_t t = 0; t < threads; t++)
		check_bytes(m + t * (SIZE / threads), stored[t] * SEG, t * (SIZE / threads), NEW);
}

/* One load instruction may need two absent segments. */
static void check_boundaries(void)
{
	for (size_t t = 0; t < threads; t++) {
		size_t from = t * (SIZE / threads);

		for (size_t i = 1; i < stored[t]; i++) {
			size_t at = from + i * SEG - sizeof(uint64_t) / 2;
			uint64_t word = *(volatile unaligned_word *)(m + at);

			check_bytes((const uint8_t *)&word, sizeof(word), at, NEW);
		}
	}
}

static void check_bound(const struct job *j)
{
	struct umstat all = stat_of(NULL), st = stat_of(m);
	/* Each thread may use one segment more, and so may each load. */
	size_t slack = (2 * threads + 4) * SEG;

	if (j->budget)
		check(st.resident_bytes + st.inactive_bytes <= j->budget + j->bound + slack,
		      "%" PRIu64 " + %" PRIu64, st.resident_bytes, st.inactive_bytes);
	else
		check(all.over_budget_peak <= j->bound + slack, "%" PRIu64, all.over_budget_peak);
	/* The write of a segment that has its space in the file may have just succeeded. */
	for (double end = now() + WAIT_SECONDS; !st.waiting_bytes; st = stat_of(m), pause_ms(1))
		check(now() < end);
	check(st.waiting_bytes == st.dirty_bytes);
}

/* ---- Threads that wait ---- */

static void store_waits_and_continues(void *arg)
{
	const struct job *j = arg;
	pthread_t thread[THREADS_MAX];
	double begin = now();
	size_t all = 0;

	map_it(j);
	threads = j->threads;
	for (size_t t = 0; t < threads; t++)
		check(pthread_create(&thread[t], NULL, store_part, (void *)(uintptr_t)t) == 0);
	await_message("cannot store more to");
	check(count_messages(path) > 0);
	check_bound(j);
	check_stored();
	check_boundaries();
	check_bound(j);
	check_fails(umsync(m, 0), EFBIG);
	for (size_t t = 0; t < threads; t++)
		all += stored[t];
	check(all < SEGS);
	/* A thread may store the last segment that fits while a second thread begins to wait. */
	check(count_messages("cannot store more to") <= 1 + (now() - begin) / 60);
	set_room(RLIM_INFINITY);
	for (size_t t = 0; t < threads; t++)
		check(pthread_join(thread[t], NULL) == 0);
	check_data();
}

static void make_room(int sig)
{
	(void)sig;
	handled = true;
	setrlimit(RLIMIT_FSIZE, &(struct rlimit){ RLIM_INFINITY, RLIM_INFINITY });
}

static void *send_signal(void *thread)
{
	await_message("cannot store more to");
	check(!handled && pthread_kill(*(pthread_t *)thread, SIGUSR1) == 0);
	return NULL;
}

/* A signal handler runs while the thread waits. */
__attribute__((unused)) static void take_signals(void *arg)
{
	pthread_t self = pthread_self(), other;

	(void)arg;
	signal(SIGUSR1, make_room);
	map_it(&(struct job){ 0 });
	threads = 1;
	check(pthread_create(&other, NULL, send_signal, &self) == 0);
	store_part(NULL);
	check(handled && pthread_join(other, NULL) == 0);
	check_data();
}

static void store_for_ever(void *arg)
{
	(void)arg;
	map_it(&(struct job){ 0 });
	threads = 1;
	store_part(NULL);
}

static void end_by_signal(void)
{
	struct logged l = { store_for_ever, NULL };
	pid_t pid;

	check(unlink(log_path()) == 0 && close(open(log_path(), O_WRONLY | O_CREAT, 0600)) == 0);
	pid = start_child(begin_log, &l);
	await_message("cannot store more to");
	check(kill(pid, SIGTERM) == 0);
	check_killed(wait_child(pid), SIGTERM);
}

static void child_ends(void *arg)
{
	(void)arg;
	check_fails(umstat(m, &(struct umstat){ .struct_size = sizeof(struct umstat) }), EINVAL);
}

static void *pin_all(void *arg)
{
	(void)arg;
	for (size_t i = SEGS - kept; i < SEGS; i++) {
		check(umpin(m + i * SEG, SEG, READ_WRITE) == 0);
		store_segment(i);
		check(umunpin(m + i * SEG, SEG) == 0);
		stored[1]++;
	}
	return NULL;
}

/* A pin for writing waits, too. A fork does not wait. Later writes may succeed and let both threads
 * go on, but for no more segments than have room in the file, so neither thread can end. */
static void pin_and_fork(void *arg)
{
	pthread_t storing, pinning;

	(void)arg;
	map_it(&(struct job){ 0 });
	threads = 1;
	kept = 100;
	check(pthread_create(&storing, NULL, store_part, NULL) == 0);
	await_message("cannot store more to");
	check(pthread_create(&pinning, NULL, pin_all, NULL) == 0);
	check_exits(run_child(child_ends, NULL), 0);
	check(stored[0] < SEGS - kept && stored[1] < kept);
	set_room(RLIM_INFINITY);
	check(pthread_join(storing, NULL) == 0 && pthread_join(pinning, NULL) == 0 &&
	      stored[1] == kept);
	check_data();
}

/* Memory is full of segments that cannot be written. Other segments are still written. */
static void write_what_can_be(void *arg)
{
	(void)arg;
	map_it(&(struct job){ 0 });
	threads = 1;
	for (size_t i = SEGS / 2; i < SEGS / 2 + (2 * BUDGET - 4 * SEG) / SEG; i++)
		store_segment(i);
	for (int round = 0; round < 3; round++) {
		for (size_t i = 0; i < ROOM / SEG; i++)
			store_segment(i);
	}
	check_fails(umsync(m, 0), EFBIG);
	check(stat_of(NULL).over_budget_peak <= BUDGET + 6 * SEG);
	set_room(RLIM_INFINITY);
	store_part(NULL);
	check_data();
}

/* Segments that storage refuses, stored backward, were evicted first. Each try begins with another
 * segment, so those that storage takes are written, too. */
static void try_others(void *arg)
{
	int fd;

	(void)arg;
	map_it(&(struct job){ 0 });
	threads = 1;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	check(fd >= 0);
	for (size_t i = SEGS / 2 + 3; i-- > SEGS / 2;)
		store_segment(i);
	for (size_t i = 0; i < ROOM / SEG; i += 2)
		store_segment(i);
	for (double end = now() + WAIT_SECONDS; file_size(fd) == 0; pause_ms(10))
		check(now() < end, "no segment was written");
	close(fd);
	set_room(RLIM_INFINITY);
	store_part(NULL);
	check_data();
}

/* ---- SIGBUS ---- */

static _Atomic int told;

static void note_error(void *addr, int error)
{
	check((uint8_t *)addr >= m && (uint8_t *)addr < m + SIZE);
	told = error;
}

/* Stores segments from number n on. Returns the number of the first one that is refused. */
static size_t store_until_refused(size_t n)
{
	for (; n < SEGS && try_store(m + n * SEG, pattern_word(n * SEG, NEW)); n++) {
		store_segment(n);
		stored[0]++;
	}
	return n;
}

static void get_sigbus(void *arg)
{
	const struct job *j = arg;
	size_t n = 0;
	uint64_t value;

	map_it(j);
	threads = 1;
	catch_sigbus();
	check(umonerror(note_error) == 0);
	n = store_until_refused(n);
	/* No segment that storage would take is left, so no write makes room from now on. */
	check(umsync_range(m, ROOM, 0) == 0 || errno == EFBIG);
	n = store_until_refused(n);
	check(n < SEGS && told == EFBIG, "%zu %d", n, told);
	check((uint8_t *)bus_info.si_addr >= m + n * SEG &&
	      (uint8_t *)bus_info.si_addr < m + (n + 1) * SEG);
	check_bound(j);
	for (int tries = 0; tries < 5; tries++)
		check(!try_store(m + n * SEG, 1) && !try_store(m + (SEGS - 1) * SEG, 1));
	check_fails(umpin(m + n * SEG, SEG, READ_WRITE), EFBIG);
	/* The same addresses can be loaded from. */
	check(try_load(m + n * SEG, &value) && value == 0);
	check(!try_store(m + n * SEG, 1));
	check(try_load(m + n * SEG, &value) && value == 0);
	check_stored();
	check_bound(j);
	set_room(RLIM_INFINITY);
	check(umsync(m, 0) == 0 || umsync(m, 0) == 0);
	for (; n < SEGS; n++)
		store_segment(n);
	check_data();
}

/* Storage takes some segments and refuses others. A write that succeeds does not let further stores
 * exceed the bound. */
static void mix_success_and_failure(void *arg)
{
	const struct job *j = arg;
	size_t n = ROOM / SEG;

	map_it(j);
	threads = 1;
	catch_sigbus();
	for (size_t i = 0; i < n; i++)
		store_segment(i);
	check(umsync(m, 0) == 0);
	for (uint64_t round = 0; round < 60; round++) {
		/* Reports failures of earlier background writes, too. */
		check(umsync_range(m, SEG, 0) == 0 || errno == EFBIG);
		(void)try_store(m, round);
		for (int i = 0; i < 4 && n < SEGS; i++)
			n += try_store(m + n * SEG, 1);
		check_bytes(m + ROOM / 2, 8 * SEG, ROOM / 2, NEW);
	}
	check(n < SEGS, "%zu", n);
	check(stat_of(m).dirty_bytes <= j->budget + j->bound + SEG, "%" PRIu64,
	      stat_of(m).dirty_bytes);
}

/* ---- Exit ---- */

static void lose_at_exit(void *arg)
{
	(void)arg;
	map_it(&(struct job){ .over = "10000%" });
	threads = 1;
	store_part(NULL);
	check(stat_of(NULL).over_budget_peak > 2 * BUDGET);
	check_fails(umsync(m, 0), EFBIG);
	exit(0);
}

static void lose_nothing(void *arg)
{
	(void)arg;
	map_it(&(struct job){ .over = "64M" });
	threads = 1;
	store_part(NULL);
	check_fails(umsync(m, 0), EFBIG);
	set_room(RLIM_INFINITY);
	check(umsync(m, 0) == 0 || umsync(m, 0) == 0);
	exit(0);
}

static void check_exits_with(void (*body)(void *), unsigned messages)
{
	run(body, NULL);
	check(count_messages("bytes of changes to") == messages);
	check(count_messages("at exit; they are lost") == messages);
	check(count_messages(strerror(EFBIG)) >= messages);
}

static void refuse_values(void *arg)
{
	static const char *const bad[] = { "", "x", "-1", "1X", "%", "50%%", "-5%", "10001%" };
	void *addr;

	(void)arg;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		set_env("UMMAP_OVER_BUDGET", bad[i]);
		check_fails(ummap(SEG, SEG, READ_WRITE, temp_file(SEG), 0, -1, 1, UMMAP_PTYPE_FIFO,
				  &addr),
			    EINVAL);
	}
	unsetenv("UMMAP_OVER_BUDGET");
	set_env("UMMAP_ON_FULL", "no");
	check_fails(ummap(SEG, SEG, READ_WRITE, temp_file(SEG), 0, -1, 1, UMMAP_PTYPE_FIFO, &addr),
		    EINVAL);
	unsetenv("UMMAP_ON_FULL");
	set_env("UMMAP_DRIVER", "posix");
	for (int v = -1; v <= 3; v += 4) {
		struct ummap_attr attr = UMMAP_ATTR_INIT;

		attr.on_full = v;
		check_fails(ummap_open("mem:", SEG, 0, READ_WRITE, &attr, &addr), EINVAL);
	}
}

int main(void)
{
	static const struct job waits[] = {
		{ 1, NULL, BUDGET, 0, UMMAP_FULL_DEFAULT, false },
		{ 4, NULL, BUDGET, 0, UMMAP_FULL_WAIT, false },
		{ 1, "0", 0, 0, UMMAP_FULL_WAIT, true },
		{ 2, "1M", MIB, 0, UMMAP_FULL_DEFAULT, false },
		{ 1, "150%", BUDGET * 3 / 2, BUDGET, UMMAP_FULL_DEFAULT, false },
	};
	static const struct job fails[] = {
		{ 1, NULL, BUDGET, 0, UMMAP_FULL_SIGBUS, false },
		{ 1, "50%", BUDGET / 2, 0, UMMAP_FULL_SIGBUS, true },
		{ 1, NULL, BUDGET, BUDGET, UMMAP_FULL_SIGBUS, false },
	};

	temp_dir();
	run(refuse_values, NULL);
	for (size_t i = 0; i < sizeof(waits) / sizeof(*waits); i++)
		run(store_waits_and_continues, &waits[i]);
#ifndef __SANITIZE_THREAD__  /* TSan delays handlers until a later call */
	run(take_signals, NULL);
#endif
	end_by_signal();
	run(pin_and_fork, NULL);
	run(write_what_can_be, NULL);
	run(try_others, NULL);
	for (size_t i = 0; i < sizeof(fails) / sizeof(*fails); i++)
		run(get_sigbus, &fails[i]);
	run(mix_success_and_failure, &fails[2]);
	check_exits_with(lose_at_exit, 1);
	check_exits_with(lose_nothing, 0);
	return 0;
}
