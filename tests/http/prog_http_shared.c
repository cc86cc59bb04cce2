/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * prog_http_shared - several processes use one near file of cache+http. The first one fills it, and
 * the others read it. Processes that read are killed at any time, while blocks are evicted.
 */
#include "nginx.h"
#include "objects.h"
#include "plugins.h"

#define READERS 4

static char uri[900];

static void use_near(const char *name, const char *size)
{
	snprintf(uri, sizeof(uri), "cache+http://127.0.0.1:%d/object?cache.path=%s&cache.size=%s",
		 nginx_port, in_dir(name), size);
}

static int count_loads(void)
{
	return nginx_count(" 206 ");
}

/* ---- A host and its guests ---- */

/* Tells the parent when all bytes are in the near file, and waits for its end. */
static void be_host(void *pipe)
{
	check_bytes(map_object(uri), SIZE, 0, SEED);
	check(write((int)(intptr_t)pipe, "x", 1) == 1);
	for (;;)
		pause_ms(1000);
}

/* The host commits once a second. Returns whether few bytes come from the server. */
static bool read_as_guest(void)
{
	int before;
	uint8_t *bytes;

	nginx_forget();
	before = count_loads();
	bytes = map_object(uri);
	check_bytes(bytes, SIZE, 0, SEED);
	check(umunmap(bytes, 0) == 0);
	return count_loads() - before <= 2;
}

static void check_guest(void)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	bool is_served = false;
	int ends[2];
	uint8_t *bytes;
	void *addr;
	pid_t pid;
	char c;

	use_near("near", "12M");
	check(pipe(ends) == 0);
	pid = start_child(be_host, (void *)(intptr_t)ends[1]);
	check(read(ends[0], &c, 1) == 1);
	for (int i = 0; i < 100 && !is_served; i++) {
		is_served = read_as_guest();
		pause_ms(is_served ? 0 : 100);
	}
	check(is_served, "the guest finds nothing in the near file");
	/* A guest stays when its host dies. */
	bytes = map_object(uri);
	check_bytes(bytes, SEG, 0, SEED);
	kill(pid, SIGKILL);
	check_killed(wait_child(pid), SIGKILL);
	check_bytes(bytes, SIZE, 0, SEED);
	check(umunmap(bytes, 0) == 0);
	/* The next host finds the blocks. */
	check(read_as_guest());
	/* A near file that is a guest's cannot be another object's. */
	pid = start_child(be_host, (void *)(intptr_t)ends[1]);
	check(read(ends[0], &c, 1) == 1);
	check(shell("cp %s/files/object %s/files/other", nginx_folder, nginx_folder) == 0);
	snprintf(uri, sizeof(uri), "cache+http://127.0.0.1:%d/other?cache.path=%s", nginx_port,
		 in_dir("near"));
	check(ummap_open(uri, SIZE, 0, PROT_READ, &attr, &addr) == -1 && errno == EINVAL, "%s",
	      umerrormsg());
	kill(pid, SIGKILL);
	check_killed(wait_child(pid), SIGKILL);
}

/* ---- Killed readers ---- */

/* Each process may be the host or a guest. The near file has room for a part of the object, and the
 * memory, too. */
static void read_forever(void *number)
{
	uint64_t seed = (uintptr_t)number;

	set_budget(MIB);
	for (;;) {
		uint8_t *bytes = map_object(uri);

		for (unsigned i = 0; i < 200; i++) {
			size_t at = next_random(&seed) % (SIZE / SEG) * SEG;

			check_bytes(bytes + at, SEG, at, SEED);
		}
		check(umunmap(bytes, 0) == 0);
	}
}

static void check_kills(unsigned kills)
{
	pid_t pids[READERS];
	uint64_t seed = 9;

	use_near("small", "3M");
	for (uintptr_t i = 0; i < READERS; i++)
		pids[i] = start_child(read_forever, (void *)(i + 1));
	for (unsigned k = 0; k < kills; k++) {
		unsigned i = (unsigned)(next_random(&seed) % READERS);

		pause_ms((unsigned)(next_random(&seed) % 300));
		kill(pids[i], SIGKILL);
		/* A reader that has found wrong bytes has ended by itself. */
		check_killed(wait_child(pids[i]), SIGKILL);
		pids[i] = start_child(read_forever, (void *)(uintptr_t)(k + 10));
	}
	for (unsigned i = 0; i < READERS; i++) {
		kill(pids[i], SIGKILL);
		check_killed(wait_child(pids[i]), SIGKILL);
	}
}

int main(void)
{
	set_group();
	use_plugins();
	nginx_start();
	nginx_write("object", SIZE, SEED);
	check_guest();
	check_kills(by_time(30, 300));
	return 0;
}
