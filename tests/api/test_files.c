/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The effects of a mapping on its file and on the caller's descriptor: only the bytes of its range
 * change. Files that grow, files that end early, zeros, block devices, read-only mappings, and
 * flush intervals.
 */
#include <criterion/criterion.h>

#include "common.h"

#define SEG (64 * KIB)
#define OLD 1  /* seed of the contents of files before the test */
#define NEW 2  /* seed of the data stored into mappings */

static const char *const direct_modes[] = { "auto", "always", "never" };

/* Maps an unaligned part, loads and changes all of it, and checks the bytes around it. */
static void odd_part(void *seg_size)
{
	const size_t file = 1 * MIB, offset = 12345, size = 300001, seg = *(size_t *)seg_size;
	int fd = temp_file(0);
	uint8_t *m;

	set_budget(512 * KIB);
	file_fill(fd, 0, file, 0, OLD);
	m = map_file(fd, size, seg, READ_WRITE, offset);
	check_bytes(m, size, offset, OLD);
	check(umsync(m, 1) == 0);
	check_file(fd, 0, file, 0, OLD);
	fill(m, size, offset, NEW);
	check_bytes(m, size, offset, NEW);
	check(umunmap(m, 1) == 0);
	check(file_size(fd) == file);
	check_file(fd, 0, offset, 0, OLD);
	check_file(fd, offset, size, offset, NEW);
	check_file(fd, offset + size, file - offset - size, offset + size, OLD);
}

Test(bytes, around_an_odd_part_stay)
{
	size_t sizes[] = { 4 * KIB, 64 * KIB, 512 * KIB };

	for (size_t i = 0; i < 3; i++) {
		for (size_t mode = 0; mode < 3; mode++) {
			set_env("UMMAP_DIRECT", direct_modes[mode]);
			check_exits(run_child(odd_part, &sizes[i]), 0);
		}
	}
}

/* Two mappings of adjacent ranges, whose border is inside a disk block, do not undo each other. */
Test(bytes, of_a_neighbour_mapping_stay)
{
	const size_t border = 2 * SEG + 777, file = 4 * SEG;
	int fd = temp_file(file);
	uint8_t *low = map_file(fd, border, SEG, READ_WRITE, 0);
	uint8_t *high = map_file(fd, file - border, SEG, READ_WRITE, border);

	fill(low, border, 0, NEW);
	fill(high, file - border, border, NEW);
	check(umsync(low, 0) == 0);
	check(umsync(high, 1) == 0);
	low[border - 1] ^= 2;
	check(umunmap(low, 1) == 0);
	check_bytes(high, file - border, border, NEW);
	check(umunmap(high, 1) == 0);
	check_file(fd, 0, border - 1, 0, NEW);
	check_file(fd, border, file - border, border, NEW);
	check(file_size(fd) == file);
	close(fd);
}

Test(bytes, that_did_not_change_are_not_written)
{
	int fd = filled_file(4 * SEG, OLD);
	uint8_t *m = map_file(fd, 4 * SEG, SEG, READ_WRITE, 0);

	check_bytes(m, 4 * SEG, 0, OLD);
	file_fill(fd, 0, SEG, 0, NEW);  /* another program writes where the mapping has no change */
	m[3 * SEG] = 0;
	check(umsync(m, 0) == 0);
	check(umunmap(m, 1) == 0);
	check_file(fd, 0, SEG, 0, NEW);
	check_file(fd, SEG, 2 * SEG, SEG, OLD);
	check_file(fd, 3 * SEG + 1, SEG - 1, 3 * SEG + 1, OLD);
	check_file_zeros(fd, 3 * SEG, 1);
	close(fd);
}

Test(bytes, are_dropped_by_umunmap_without_sync)
{
	int fd = filled_file(4 * SEG, OLD);
	uint8_t *m = map_file(fd, 4 * SEG, SEG, READ_WRITE, 0);

	fill(m, 2 * SEG, 0, NEW);
	check(umsync_range(m + 100, 1, 0) == 0);
	check(umunmap(m, 0) == 0);
	check_file(fd, 0, SEG, 0, NEW);
	check_file(fd, SEG, 3 * SEG, SEG, OLD);
	close(fd);
}

Test(umsync_range, works_on_the_segments_it_touches)
{
	int fd = temp_file(8 * SEG);
	uint8_t *m = map_file(fd, 8 * SEG, SEG, READ_WRITE, 0);

	fill(m, 8 * SEG, 0, NEW);
	check(umsync_range(m + SEG + 10, SEG, UMMAP_EVICT) == 0);
	check_file_zeros(fd, 0, SEG);
	check_file(fd, SEG, 2 * SEG, SEG, NEW);
	check_file_zeros(fd, 3 * SEG, 5 * SEG);
	check(stat_of(m).resident_bytes == 6 * SEG && stat_of(m).dirty_bytes == 6 * SEG);
	check(umadvise(m + 4 * SEG, 1, UMMAP_ADV_DONTNEED) == 0);
	check_bytes(m, 8 * SEG, 0, NEW);
	check(umsync_range(m, 8 * SEG, UMMAP_ASYNC | UMMAP_NOFLUSH) == 0);
	for (double end = now() + 60; stat_of(m).dirty_bytes > 0; pause_ms(10))
		check(now() < end, "an asynchronous sync comes to an end");
	check_file(fd, 0, 8 * SEG, 0, NEW);
	check(umunmap(m, 0) == 0);
	close(fd);
}

/* Another thread writes the same segments slowly. The sync waits until they are written. */
Test(umsync_range, waits_for_a_write_under_way)
{
	char path[320], uri[512];
	int fd = temp_named("slow", SEG, path);
	void *addr;

	snprintf(uri, sizeof(uri), "error+posix:%s?error.op=write&error.nth=100&error.delay=400000",
		 path);
	check(ummap_open(uri, SEG, 0, READ_WRITE, NULL, &addr) == 0);
	fill(addr, SEG, 0, NEW);
	check(umsync_range(addr, SEG, UMMAP_ASYNC | UMMAP_NOFLUSH) == 0);
	pause_ms(100);
	check(umsync_range(addr, SEG, UMMAP_NOFLUSH) == 0);
	check_file(fd, 0, SEG, 0, NEW);
	check(umunmap(addr, 0) == 0);
	close(fd);
}

/* There are more writes than threads, so that some have not begun. */
Test(umsync_range, waits_for_writes_to_come)
{
	enum { MAPPINGS = 12 };
	char name[32], path[320], uri[512];
	void *addr[MAPPINGS];
	int fd[MAPPINGS];

	for (int i = 0; i < MAPPINGS; i++) {
		snprintf(name, sizeof(name), "slow%d", i);
		fd[i] = temp_named(name, SEG, path);
		snprintf(uri, sizeof(uri),
			 "error+posix:%s?error.op=write&error.nth=100&error.delay=100000", path);
		check(ummap_open(uri, SEG, 0, READ_WRITE, NULL, &addr[i]) == 0);
		fill(addr[i], SEG, 0, NEW);
	}
	for (int i = 0; i < MAPPINGS; i++)
		check(umsync_range(addr[i], SEG, UMMAP_ASYNC | UMMAP_NOFLUSH) == 0);
	for (int i = MAPPINGS - 1; i >= 0; i--) {
		check(umunmap(addr[i], 0) == 0);
		check_file(fd[i], 0, SEG, 0, NEW);
		close(fd[i]);
	}
}

static atomic_bool stop;

static void *sync_all_the_time(void *m)
{
	while (!atomic_load(&stop))
		check(umsync_range(m, 4096 * 4 * KIB, UMMAP_NOFLUSH) == 0);
	return NULL;
}

/* A sync is complete whichever thread writes the segments, and whenever that began. */
Test(umsync_range, keeps_its_promise_while_others_sync)
{
	const size_t segs = 4096, seg = 4 * KIB;
	int fd = temp_file(segs * seg);
	uint8_t *m = map_file(fd, segs * seg, seg, READ_WRITE, 0);
	uint64_t random = 1, found;
	pthread_t others[2];

	for (int i = 0; i < 2; i++)
		check(pthread_create(&others[i], NULL, sync_all_the_time, m) == 0);
	for (uint64_t i = 1; i <= 1000; i++) {
		size_t at = next_random(&random) % segs * seg;

		*(volatile uint64_t *)(m + at) = i;
		check(umsync_range(m + at, 8, UMMAP_NOFLUSH) == 0);
		check(pread(fd, &found, 8, at) == 8);
		check(found == i, "%" PRIu64 " instead of %" PRIu64, found, i);
	}
	atomic_store(&stop, true);
	for (int i = 0; i < 2; i++)
		check(pthread_join(others[i], NULL) == 0);
	check(umunmap(m, 0) == 0);
	close(fd);
}

/* ---- Files that grow, and files that end inside the mapping ---- */

static void grow(void *mode)
{
	const size_t size = 4 * SEG + 1000;
	int fd = temp_file(0);
	uint8_t *m;

	set_env("UMMAP_DIRECT", mode);
	file_fill(fd, 0, 5000, 0, OLD);
	m = map_file(fd, size, SEG, READ_WRITE, 0);
	check_bytes(m, 5000, 0, OLD);
	check_zeros(m + 5000, size - 5000);
	check(umsync(m, 0) == 0 && file_size(fd) == 5000);

	m[10] = pattern(10, NEW);  /* inside the file: the length stays */
	check(umsync(m, 0) == 0 && file_size(fd) == 5000);
	m[5000] = 7;               /* the first byte after the end */
	check(umsync(m, 0) == 0 && file_size(fd) == 5001, "%" PRIu64, file_size(fd));
	m[SEG + 6000] = 7;         /* in the next segment */
	check(umsync(m, 1) == 0 && file_size(fd) == SEG + 6001, "%" PRIu64, file_size(fd));
	m[4999] = 0;               /* a zero inside the file is written */
	m[3 * SEG] = 0;            /* a zero after the end is there already */
	check(umsync(m, 0) == 0 && file_size(fd) == SEG + 6001, "%" PRIu64, file_size(fd));
	m[size - 1] = 7;           /* the last byte of the mapping, in a short segment */
	check(umunmap(m, 1) == 0 && file_size(fd) == size, "%" PRIu64, file_size(fd));
	check_file(fd, 0, 10, 0, OLD);
	check_file(fd, 10, 1, 10, NEW);
	check_file(fd, 11, 4988, 11, OLD);
	check_file_zeros(fd, 4999, 1);
	check_file_zeros(fd, 5001, SEG + 6000 - 5001);
	check_file_zeros(fd, SEG + 6001, size - SEG - 6002);
}

Test(growth, ends_at_the_last_byte_written)
{
	for (size_t mode = 0; mode < 3; mode++)
		check_exits(run_child(grow, (void *)direct_modes[mode]), 0);
}

Test(growth, of_an_empty_file_out_of_memory_bounds)
{
	const size_t offset = 333, size = 64 * SEG - 5;
	int fd = temp_file(0);
	uint8_t *m;

	set_budget(8 * SEG);
	m = map_file(fd, size, SEG, READ_WRITE, offset);
	fill(m, size - 100, offset, NEW);
	check_bytes(m, size - 100, offset, NEW);
	check_zeros(m + size - 100, 100);
	check(umunmap(m, 1) == 0);
	check(file_size(fd) == offset + size - 100, "%" PRIu64, file_size(fd));
	check_file_zeros(fd, 0, offset);
	check_file(fd, offset, size - 100, offset, NEW);
	close(fd);
}

/* Each segment ends in zeros. The file must end with the last nonzero byte, but before it adjacent
 * segments are written together. */
Test(growth, is_written_in_bulk)
{
	const size_t n = 64, hole = 40;
	int fd = temp_file(0);
	uint8_t *m = map_file(fd, (n + 8) * SEG, SEG, READ_WRITE, 0);
	uint64_t requests;

	for (size_t i = 0; i < n; i++)
		m[i * SEG] = i != hole;
	check(umsync(m, 0) == 0);
	requests = stat_of(m).write_requests;
	check(requests <= 6, "%" PRIu64 " requests", requests);
	check(file_size(fd) == (n - 1) * SEG + 1, "%" PRIu64, file_size(fd));
	check(umunmap(m, 1) == 0);
	for (size_t i = 0; i < n; i++) {
		uint8_t byte;

		check(pread(fd, &byte, 1, (off_t)(i * SEG)) == 1 && byte == (i != hole));
		check_file_zeros(fd, i * SEG + 1, i < n - 1 ? SEG - 1 : 0);
	}
	close(fd);
}

/* ---- read_file 0 ---- */

Test(read_file, zero_starts_with_zeros)
{
	int fd = temp_file(0);
	void *addr;
	uint8_t *m;

	file_fill(fd, 0, 8 * SEG, 0, OLD);
	check(ummap(8 * SEG, SEG, READ_WRITE, fd, 0, -1, 0, UMMAP_PTYPE_PLRU, &addr) == 0);
	m = addr;
	check_zeros(m, 4 * SEG);
	fill(m + SEG, 10, SEG, NEW);
	fill(m + 5 * SEG + 20, 10, 5 * SEG + 20, NEW);
	check(stat_of(m).read_bytes == 0);
	check(umsync(m, 1) == 0);
	check_bytes(m + SEG, 10, SEG, NEW);  /* the mapping has written this, and reads it again */
	check_zeros(m + SEG + 10, SEG - 10);
	check_zeros(m + 2 * SEG, SEG);
	check(umunmap(m, 1) == 0);
	check_file(fd, 0, SEG, 0, OLD);
	check_file(fd, SEG, 10, SEG, NEW);
	check_file_zeros(fd, SEG + 10, SEG - 10);
	check_file(fd, 2 * SEG, 3 * SEG, 2 * SEG, OLD);
	check_file_zeros(fd, 5 * SEG, 20);
	check_file_zeros(fd, 5 * SEG + 30, SEG - 30);
	check_file(fd, 6 * SEG, 2 * SEG, 6 * SEG, OLD);
	close(fd);
}

/* Zeros appear in memory that has held other segments. */
Test(read_file, zero_starts_with_zeros_in_used_memory)
{
	const size_t segs = 64, size = segs * SEG - 100;
	int fd = temp_file(0);
	void *addr;
	uint8_t *m;

	set_budget(8 * SEG);
	check(ummap(size, SEG, READ_WRITE, fd, 0, -1, 0, UMMAP_PTYPE_FIFO, &addr) == 0);
	m = addr;
	for (size_t i = 0; i < segs; i += 2) {
		fill(m + i * SEG, SEG, i * SEG, NEW);
		check_zeros(m + (i + 1) * SEG,
			    SEG); /* for the last segment, to the end of its page */
	}
	check(umunmap(m, 0) == 0);
	close(fd);
}

/* The page of the mapping's end shows no further bytes of a longer file. */
Test(read_file, page_of_the_end_has_no_more)
{
	const size_t segs = 16, size = segs * SEG - 100;
	int fd = filled_file((segs + 1) * SEG, OLD);
	uint8_t *m;

	set_budget(8 * SEG);
	m = map_file(fd, size, SEG, READ_WRITE, 0);
	for (size_t i = 0; i < segs - 1; i++)
		fill(m + i * SEG, SEG, i * SEG, NEW);
	check_zeros(m + size, 100);
	check_bytes(m + (segs - 1) * SEG, SEG - 100, (segs - 1) * SEG, OLD);
	check(umunmap(m, 0) == 0);
	close(fd);
}

/* ---- Descriptors of the caller and of the library ---- */

Test(descriptor, stays_as_it_was)
{
	int fd = temp_file(4 * SEG), status = fcntl(fd, F_GETFL), flags = fcntl(fd, F_GETFD);
	uint8_t *m;

	check(lseek(fd, 4321, SEEK_SET) == 4321);
	m = map_file(fd, 4 * SEG, SEG, READ_WRITE, 0);
	fill(m, 4 * SEG, 0, NEW);
	check(fcntl(fd, F_GETFL) == status);
	check(umunmap(m, 1) == 0);
	check(fcntl(fd, F_GETFL) == status && fcntl(fd, F_GETFD) == flags);
	check(lseek(fd, 0, SEEK_CUR) == 4321);
	close(fd);
}

Test(descriptor, may_be_closed_at_once)
{
	char path[320];
	int fd = temp_named("closed", 4 * SEG, path);
	uint8_t *m = map_file(fd, 4 * SEG, SEG, READ_WRITE, 0);

	close(fd);
	fill(m, 4 * SEG, 0, NEW);
	check(umsync(m, 1) == 0);
	check_bytes(m, 4 * SEG, 0, NEW);
	fd = open(path, O_RDONLY);
	check_file(fd, 0, 4 * SEG, 0, NEW);
	check(umunmap(m, 1) == 0);
	close(fd);
}

Test(descriptor, that_appends_is_written_in_place)
{
	char path[320];
	int fd = temp_named("append", 0, path), append;
	uint8_t *m;

	file_fill(fd, 0, 4 * SEG, 0, OLD);
	append = open(path, O_RDWR | O_APPEND | O_CLOEXEC);
	m = map_file(append, 3 * SEG, SEG, READ_WRITE, 100);
	fill(m + SEG, SEG, 100 + SEG, NEW);
	check(umunmap(m, 1) == 0);
	check(fcntl(append, F_GETFL) & O_APPEND);
	check(file_size(fd) == 4 * SEG);
	check_file(fd, 0, 100 + SEG, 0, OLD);
	check_file(fd, 100 + SEG, SEG, 100 + SEG, NEW);
	check_file(fd, 100 + 2 * SEG, 2 * SEG - 100, 100 + 2 * SEG, OLD);
	close(append);
	close(fd);
}

Test(descriptor, of_the_library_closes_on_exec_and_at_the_end)
{
	int mine = temp_file(4 * SEG), before = count_fds(), after;
	bool was_open[1024];
	uint8_t *m;

	for (int fd = 0; fd < 1024; fd++)
		was_open[fd] = fcntl(fd, F_GETFD) >= 0;
	m = map_file(mine, 4 * SEG, SEG, READ_WRITE, 0);
	m[0] = 1;
	check(umsync(m, 0) == 0);
	check(count_fds() > before);
	for (int fd = 0; fd < 1024; fd++)
		if (!was_open[fd] && fcntl(fd, F_GETFD) >= 0)
			check(fcntl(fd, F_GETFD) & FD_CLOEXEC, "descriptor %d", fd);
	check(umunmap(m, 0) == 0);
	after = count_fds();
	for (int i = 0; i < 20; i++) {
		m = map_file(mine, 4 * SEG, SEG, READ_WRITE, 0);
		m[0] = 1;
		check(umunmap(m, i % 2) == 0);
	}
	check(count_fds() == after, "%d, then %d", after, count_fds());
	close(mine);
}

/* ---- Read-only mappings: a store is a fault of the application ---- */

static volatile sig_atomic_t segv_seen;
static void *volatile segv_address;

static void on_segv(int sig, siginfo_t *info, void *context)
{
	(void)sig, (void)context;
	segv_seen++;
	segv_address = info->si_addr;
	siglongjmp(bus_jump, 1);
}

static void store_into_read_only(void *resident)
{
	int fd = temp_file(4 * SEG);
	volatile uint8_t *m = map_file(fd, 4 * SEG, SEG, PROT_READ, 0);

	if (resident)
		check(m[100] == 0);
	m[100] = 1;
}

static void store_and_catch(void *unused)
{
	struct sigaction action = { .sa_sigaction = on_segv, .sa_flags = SA_SIGINFO };
	int fd = temp_file(4 * SEG);
	uint8_t *m = map_file(fd, 4 * SEG, SEG, PROT_READ, 0);

	(void)unused;
	check(sigaction(SIGSEGV, &action, NULL) == 0);
	for (size_t at = 0; at < 4 * SEG; at += SEG / 2) {
		check(!try_store(m + at + 8, 1));  /* jumps out of on_segv */
		check(segv_address == m + at + 8);
	}
	check(segv_seen == 8);
	check_zeros(m, 4 * SEG);
	check(umunmap(m, 1) == 0);
	check(file_size(fd) == 4 * SEG);
	check_file_zeros(fd, 0, 4 * SEG);
}

Test(read_only, store_is_a_real_sigsegv)
{
	static int yes;

	check_killed(run_child(store_into_read_only, NULL), SIGSEGV);
	check_killed(run_child(store_into_read_only, &yes), SIGSEGV);
	check_exits(run_child(store_and_catch, NULL), 0);
}

Test(read_only, descriptor_suffices)
{
	char path[320];
	int fd = temp_named("read-only", 0, path), reader;
	uint8_t *m;

	file_fill(fd, 0, 3 * SEG, 0, OLD);
	reader = open(path, O_RDONLY | O_CLOEXEC);
	m = map_file(reader, 2 * SEG, SEG, PROT_READ, SEG / 3);
	check_bytes(m, 2 * SEG, SEG / 3, OLD);
	check(umsync(m, 1) == 0);
	check_bytes(m, 2 * SEG, SEG / 3, OLD);
	check(umunmap(m, 1) == 0);
	close(reader);
	close(fd);
}

/* ---- Block devices ---- */

Test(block_device, is_mapped_like_a_file)
{
	const size_t device_size = 4 * MIB, offset = 1 * MIB + 777, size = 2 * MIB - 1000;
	int file = temp_file(0), device;
	uint8_t *m;

	if (geteuid() != 0)
		cr_skip_test("a loop device needs root");
	file_fill(file, 0, device_size, 0, OLD);
	check(fsync(file) == 0);
	device = loop_attach(file);
	check(device >= 0);
	set_budget(512 * KIB);
	m = map_file(device, size, SEG, READ_WRITE, offset);
	check_bytes(m, size, offset, OLD);
	fill(m, size, offset, NEW);
	check(umsync(m, 1) == 0);
	check_bytes(m, size, offset, NEW);
	check(umunmap(m, 1) == 0);
	m = map_file(device, device_size + SEG, SEG, PROT_READ, 0);  /* ends after the device */
	check_bytes(m, offset, 0, OLD);
	check_zeros(m + device_size, SEG);
	check(umunmap(m, 0) == 0);
	check_file(file, 0, offset, 0, OLD);
	check_file(file, offset, size, offset, NEW);
	check_file(file, offset + size, device_size - offset - size, offset + size, OLD);
	close(device);
	close(file);
}

/* ---- flush_interval: negative values mean never; 0 means 1 ---- */

/* Waits for the background thread, however slowly it runs. */
static void await_byte(int fd, off_t at, uint8_t value, int interval)
{
	uint8_t byte = 0;

	for (double end = now() + 60; pread(fd, &byte, 1, at) == 1 && byte != value && now() < end;)
		pause_ms(20);
	check(byte == value, "interval %d", interval);
}

Test(flush_interval, writes_by_itself)
{
	static const int intervals[] = { 0, 1, 2, -1 };
	int fds[4];
	void *maps[4];
	uint8_t byte = 0;

	for (int i = 0; i < 4; i++) {
		fds[i] = temp_file(SEG);
		check(ummap(SEG, SEG, READ_WRITE, fds[i], 0, intervals[i], 1, UMMAP_PTYPE_FIFO,
			    &maps[i]) == 0);
		((uint8_t *)maps[i])[SEG / 2] = 1;
	}
	for (int i = 0; i < 3; i++)
		await_byte(fds[i], SEG / 2, 1, intervals[i]);
	((uint8_t *)maps[1])[1] = 9;  /* a second change is written, too */
	await_byte(fds[1], 1, 9, intervals[1]);
	check(pread(fds[3], &byte, 1, SEG / 2) == 1 && byte == 0, "an interval of never");
	for (int i = 0; i < 4; i++)
		check(umunmap(maps[i], 0) == 0);
}
