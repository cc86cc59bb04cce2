/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Replays the accesses of a trace with the library under its policies, and with simulated policies
 * that see each access. The result is the number of accesses that have to be read from the store.
 */
#include <getopt.h>
#include <inttypes.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kit/common.h"
#include "kit/policy.h"
#include "kit/simulate.h"
#include "kit/tiers.h"
#include "kit/transfers.h"
#include "kit/zipf.h"
#include "ummap.h"

static const char help[] =
	"usage: replay [OPTION ...] [TRACE ...]\n"
	"Plays traces of the driver trace+, or uses by a rule; CSV on stdout: misses a use.\n"
	"  --seg SIZE         of a segment (4K)\n"
	"  --parts LIST       of the segments that are used: so many have room, 2 for a half "
	"(8,4,2)\n"
	"  --rules LIST       of zipf (0.99), scans (zipf, and now and then a scan), loop (in "
	"order, again and again), drift (zipf, whose\n"
	"                     frequent ones change); all of them where there is no TRACE\n"
	"  --segments N       that rules use (16384)\n"
	"  --uses N           that rules make (1000000)\n"
	"  --policies LIST    of the library's (fifo,plru,s3fifo)\n"
	"  --transfers        simulates transfer sizes: fixed ones, and the one that the library "
	"finds\n"
	"  --tiers            simulates three tiers of memory, of which the first has room for a "
	"part of the segments, and the\n"
	"                     second for twice as many\n"
	"  --help\n";

struct uses {
	const char *name;
	uint32_t *segment;
	size_t n, room;
	uint32_t segments;         /* number of segments */
};

struct replay {
	size_t seg, uses, segments;
	unsigned parts[16], n_parts;
	char *policies, *rules;
	int transfers;             /* whether transfer sizes are simulated */
	int tiers;                 /* whether tiers of memory are simulated */
};

static void add(struct uses *u, uint64_t segment)
{
	if (segment >= UINT32_MAX - 8)
		die("%s: there are too many segments", u->name);
	if (u->n == u->room) {
		u->room = u->room ? 2 * u->room : 4096;
		u->segment = realloc(u->segment, u->room * sizeof(*u->segment));
		if (!u->segment)
			die("no memory for %zu uses", u->room);
	}
	u->segment[u->n++] = (uint32_t)segment;
	if (segment >= u->segments)
		u->segments = (uint32_t)segment + 1;
}

/* ---- Traces ---- */

struct request {
	uint64_t start, off, len;
	size_t line;
};

static int compare(const void *a, const void *b)
{
	const struct request *x = a, *y = b;

	return x->start != y->start ? (x->start > y->start) - (x->start < y->start) :
				      (x->line > y->line) - (x->line < y->line);
}

/* A trace has requests in the order of their ends. They are sorted by their beginnings. */
static struct uses read_trace(const char *path, size_t seg)
{
	struct request *requests = NULL, r;
	struct uses u = { .name = path };
	size_t n = 0, room = 0;
	char line[256], op[16];
	FILE *file = fopen(path, "r");

	if (!file)
		die("%s: %s", path, strerror(errno));
	while (fgets(line, sizeof(line), file)) {
		if (sscanf(line, "%" SCNu64 ",%15[a-z],%" SCNu64 ",%" SCNu64, &r.start, op, &r.off,
			   &r.len) != 4 ||
		    r.len == 0 || (strcmp(op, "read") != 0 && strcmp(op, "write") != 0))
			continue;
		if (n == room) {
			room = room ? 2 * room : 4096;
			requests = realloc(requests, room * sizeof(*requests));
			if (!requests)
				die("no memory for %zu requests", room);
		}
		r.line = n;
		requests[n++] = r;
	}
	fclose(file);
	if (n == 0)
		die("%s: this has no requests of trace+", path);
	qsort(requests, n, sizeof(*requests), compare);
	for (size_t i = 0; i < n; i++)
		for (uint64_t s = requests[i].off / seg;
		     s <= (requests[i].off + requests[i].len - 1) / seg; s++)
			add(&u, s);
	free(requests);
	return u;
}

/* ---- Rules ---- */

static struct uses make_uses(const char *rule, const struct replay *r)
{
	enum { SCAN = 8, DRIFTS = 10 };
	uint32_t segments = (uint32_t)r->segments, scan = 0,
		 *zipf = zipf_draws(segments, r->uses, 1, 1);
	struct uses u = { .name = rule };

	for (size_t i = 0; i < r->uses; i++) {
		size_t turn = i / (segments / 2);

		if (!strcmp(rule, "zipf"))
			add(&u, zipf[i]);
		else if (!strcmp(rule, "loop"))
			add(&u, i % segments);
		else if (!strcmp(rule, "scans"))
			/* Some accesses scan other segments once, as many as the distribution has.
			 * */
			add(&u, turn % SCAN == SCAN - 1 ? segments + scan++ % segments : zipf[i]);
		else
			add(&u,
			    (zipf[i] + i / (r->uses / DRIFTS) * (segments / DRIFTS)) % segments);
	}
	free(zipf);
	return u;
}

/* ---- The library ---- */

static uint64_t play(const struct uses *u, size_t seg, const char *policy)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	struct umstat st = { .struct_size = sizeof(st) };
	char uri[64], *m;
	void *addr;

	attr.seg_size = seg;
	attr.policy = policy;
	snprintf(uri, sizeof(uri), "null:%zu?fill=no", u->segments * seg);
	if (ummap_open(uri, u->segments * seg, 0, PROT_READ, &attr, &addr) ||
	    umadvise(addr, u->segments * seg, UMMAP_ADV_RANDOM))
		die("%s", umerrormsg());
	m = addr;
	for (size_t i = 0; i < u->n; i++)
		*(const volatile char *)(m + u->segment[i] * seg);
	if (umstat(m, &st) || umunmap(m, 0))
		die("%s", umerrormsg());
	return st.read_faults - st.inactive_hits;
}

/* Runs in its own process and memory group, whose limit is `room`. */
static size_t play_in_room(const struct uses *u, size_t seg, const char *policy, uint32_t room)
{
	uint64_t misses = 0;
	int ends[2], status;
	char limit[32], group[32];
	pid_t child;

	snprintf(limit, sizeof(limit), "%zu", room * seg);
	snprintf(group, sizeof(group), "replay.%d", (int)getpid());
	fflush(stdout);
	if (setenv("UMMAP_MEM_LIMIT", limit, 1) || setenv("UMMAP_GROUP", group, 1) || pipe(ends) ||
	    (child = fork()) < 0)
		die("a process for %s: %s", policy, strerror(errno));
	if (child == 0) {
		misses = play(u, seg, policy);
		_exit(write(ends[1], &misses, sizeof(misses)) != sizeof(misses));
	}
	close(ends[1]);
	if (read(ends[0], &misses, sizeof(misses)) != sizeof(misses) ||
	    waitpid(child, &status, 0) != child || status)
		die("%s: the library's run has failed", policy);
	close(ends[0]);
	return misses;
}

/* ---- All policies ---- */

static uint32_t count_used(const struct uses *u)
{
	char *used = calloc(u->segments, 1);
	uint32_t n = 0;

	if (!used)
		die("no memory for %u segments", u->segments);
	for (size_t i = 0; i < u->n; i++) {
		n += !used[u->segment[i]];
		used[u->segment[i]] = 1;
	}
	free(used);
	return n;
}

static void report(const struct uses *u, uint32_t used, uint32_t room, const char *whose,
		   const char *policy, size_t misses)
{
	const char *base = strrchr(u->name, '/');

	printf("%s,%zu,%u,%u,%s%s,%zu,%.4f\n", base ? base + 1 : u->name, u->n, used, room, whose,
	       policy, misses, (double)misses / (double)u->n);
}

static void play_all(const struct uses *u, const struct replay *r)
{
	uint32_t used = count_used(u);

	for (unsigned part = 0; part < r->n_parts; part++) {
		uint32_t room = used / r->parts[part];
		char *policies = strdup(r->policies);

		if (room < 16)
			die("%s: %u segments are used; a part of them has to have room for 16",
			    u->name, used);
		for (int i = 0; simulated_policies[i]; i++)
			report(u, used, room, "", simulated_policies[i],
			       simulate(simulated_policies[i], u->segment, u->n, u->segments,
					room));
		for (char *policy = strtok(policies, ","); policy; policy = strtok(NULL, ","))
			report(u, used, room, "ummap:", policy,
			       play_in_room(u, r->seg, policy, room));
		free(policies);
	}
	free(u->segment);
}

static void play_tiers(const struct uses *u, const struct replay *r)
{
	const char *base = strrchr(u->name, '/');
	uint32_t used = count_used(u);

	for (unsigned part = 0; part < r->n_parts; part++) {
		uint32_t room[2] = { used / r->parts[part], 2 * (used / r->parts[part]) };

		for (int i = 0; tier_policies[i]; i++) {
			struct tier_result t = simulate_tiers(tier_policies[i], u->segment, u->n,
							      u->segments, room);

			printf("%s,%zu,%u,%u,%s,%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64
			       ",%.3f\n", base ? base + 1 : u->name, u->n, used, room[0],
			       tier_policies[i], t.uses[0], t.uses[1], t.uses[2], t.copies,
			       t.seconds);
		}
	}
	free(u->segment);
}

static void report_transfers(const struct uses *u, uint32_t room, const char *size,
			     struct transfers t, double best)
{
	const char *base = strrchr(u->name, '/');

	printf("%s,%zu,%u,%s,%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%.3f,%.2f\n",
	       base ? base + 1 : u->name, u->n, room, size, t.loads, t.pages >> 8, t.returns,
	       t.seconds, t.seconds / best);
}

static void play_transfers(const struct uses *u, const struct replay *r)
{
	static const char *const sizes[] = {
		"4K", "8K", "16K", "32K", "64K", "128K", "256K", "512K", "1M", "2M"
	};
	struct transfers fixed[10];

	for (unsigned part = 0; part < r->n_parts; part++) {
		uint32_t room = u->segments / r->parts[part];
		double best = 0;

		for (unsigned k = 0; k < 10; k++) {
			fixed[k] = play_fixed(u->segment, u->n, u->segments, room, k);
			best = k && best < fixed[k].seconds ? best : fixed[k].seconds;
		}
		for (unsigned k = 0; k < 10; k++)
			report_transfers(u, room, sizes[k], fixed[k], best);
		report_transfers(u, room, "adaptive",
				 play_adaptive(u->segment, u->n, u->segments, room), best);
	}
	free(u->segment);
}

static void play_patterns(const struct replay *r)
{
	for (unsigned i = 0; transfer_patterns[i]; i++) {
		struct uses u = { .name = transfer_patterns[i], .segments = (uint32_t)r->segments };

		if (r->rules && !strstr(r->rules, u.name))
			continue;
		u.segment = make_pattern(u.name, u.segments, &u.n);
		play_transfers(&u, r);
	}
}

static void parse_parts(struct replay *r, char *list)
{
	r->n_parts = 0;
	for (char *part = strtok(list, ","); part; part = strtok(NULL, ",")) {
		if (r->n_parts == sizeof(r->parts) / sizeof(*r->parts))
			die("--parts: these are too many");
		r->parts[r->n_parts++] = parse_count("parts", part, 1000);
	}
	if (!r->n_parts)
		die("--parts: there are none");
}

static void check_policies(const struct replay *r)
{
	char *policies = strdup(r->policies);

	for (char *policy = strtok(policies, ","); policy; policy = strtok(NULL, ","))
		parse_policy(policy);
	free(policies);
}

int main(int argc, char **argv)
{
	enum { SEG = 1, PARTS, RULES, SEGMENTS, USES, POLICIES, TRANSFERS, TIERS, HELP };
	static const struct option options[] = {
		{ "seg", 1, 0, SEG },
		{ "parts", 1, 0, PARTS },
		{ "rules", 1, 0, RULES },
		{ "segments", 1, 0, SEGMENTS },
		{ "uses", 1, 0, USES },
		{ "policies", 1, 0, POLICIES },
		{ "transfers", 0, 0, TRANSFERS },
		{ "tiers", 0, 0, TIERS },
		{ "help", 0, 0, HELP },
		{ 0 },
	};
	static const char *const all_rules[] = { "zipf", "scans", "loop", "drift" };
	static char policies[] = "fifo,plru,s3fifo";
	struct replay r = { 4 * KIB, 1000000, 16384, { 8, 4, 2 }, 3, policies, NULL, 0, 0 };
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (c) {
		case SEG: r.seg = parse_size("seg", optarg); break;
		case PARTS: parse_parts(&r, optarg); break;
		case RULES: r.rules = optarg; break;
		case SEGMENTS: r.segments = parse_count("segments", optarg, 100000000); break;
		case USES: r.uses = parse_count("uses", optarg, 1000000000); break;
		case POLICIES: r.policies = optarg; break;
		case TRANSFERS: r.transfers = 1; break;
		case TIERS: r.tiers = 1; break;
		case HELP: printf("%s", help); return 0;
		default: fprintf(stderr, "%s", help); return 1;
		}
	}
	check_policies(&r);
	printf(r.tiers ? "trace,uses,segments,first_room,policy,first,second,third,copies,"
			 "seconds\n" :
	       r.transfers ? "trace,uses,room,transfer,loads,mib,returns,seconds,of_best\n" :
			     "trace,uses,segments,room,policy,misses,misses_a_use\n");
	if (r.transfers && (r.rules || optind == argc))
		play_patterns(&r);
	for (unsigned i = 0; i < 4 && !r.transfers; i++) {
		struct uses u;

		if (r.rules ? !strstr(r.rules, all_rules[i]) : optind < argc)
			continue;
		u = make_uses(all_rules[i], &r);
		r.tiers ? play_tiers(&u, &r) : play_all(&u, &r);
	}
	for (; optind < argc; optind++) {
		struct uses u = read_trace(argv[optind], r.seg);

		if (r.tiers)
			play_tiers(&u, &r);
		else if (r.transfers)
			play_transfers(&u, &r);
		else
			play_all(&u, &r);
	}
	return 0;
}
