/* SPDX-License-Identifier: BSD-3-Clause */
/* Each rank takes times from a barrier on, and the greatest counts: clocks of two machines are
 * never compared. A memory cgroup works on one machine only, so jobs on several machines are
 * refused. */
#include "job.h"

#include "kit/memcg.h"

struct job job = { 0, 1 };

static int here; /* ranks on this machine */
static struct memcg group;

static void share_group(size_t bytes)
{
	if (here != job.ranks)
		die("--budget: a memory cgroup cannot hold ranks of several machines; run them on "
		    "one");
	if (!job.rank && !memcg_create(&group, bytes))
		die("--budget: %s", group.why);
	MPI_Bcast(&group, sizeof(group), MPI_BYTE, 0, MPI_COMM_WORLD);
	if (!memcg_join(&group))
		die("%s: %s", group.dir, strerror(errno));
}

static void remove_group(void)
{
	if (group.dir[0] && !job.rank) {
		memcg_leave(&group);
		memcg_remove(&group);
	}
}

/* Open MPI's osc/rdma lets the kernel copy between processes, and retries forever after EFAULT. */
void job_reach_windows(void)
{
	setenv("OMPI_MCA_osc", "^rdma,ucx", 0);
	setenv("UCX_HANDLE_ERRORS", "none", 0);
}

void job_begin(const struct alloc *a)
{
	int leader = (int)getpid();
	MPI_Comm node;

	MPI_Init(NULL, NULL);
	MPI_Comm_rank(MPI_COMM_WORLD, &job.rank);
	MPI_Comm_size(MPI_COMM_WORLD, &job.ranks);
	MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
	MPI_Comm_size(node, &here);
	MPI_Bcast(&leader, 1, MPI_INT, 0, node);
	MPI_Comm_free(&node);
	alloc_limit(a, (unsigned)here, leader);
}

void job_limit(const struct alloc *a)
{
	if (a->budget)
		share_group(a->budget * (size_t)job.ranks);
}

void job_warm(const struct alloc *a, size_t bytes)
{
	alloc_warm(a, group.dir[0], bytes);
	MPI_Barrier(MPI_COMM_WORLD);
}

void job_end(void)
{
	if (group.dir[0])
		memcg_leave(&group);
	MPI_Barrier(MPI_COMM_WORLD);
	remove_group();
	MPI_Finalize();
}

void job_check(int code, const char *what)
{
	char text[MPI_MAX_ERROR_STRING];
	int len;

	if (code == MPI_SUCCESS)
		return;
	MPI_Error_string(code, text, &len);
	die("%s: %s", what, text);
}

double job_max(double value)
{
	double all;

	MPI_Allreduce(&value, &all, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
	return all;
}

double job_sum(double value)
{
	double all;

	MPI_Allreduce(&value, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
	return all;
}

uint64_t job_total(uint64_t value)
{
	uint64_t all;

	MPI_Allreduce(&value, &all, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
	return all;
}

uint64_t job_start(void)
{
	MPI_Barrier(MPI_COMM_WORLD);
	return now_ns();
}

double job_seconds(uint64_t start)
{
	return job_max((double)(now_ns() - start) * 1e-9);
}

const char *job_path(const char *prefix, int rank)
{
	static char path[PATH_MAX];

	if (snprintf(path, sizeof(path), "%s.%08d", prefix, rank) >= (int)sizeof(path))
		die("%s: the name is too long", prefix);
	return path;
}
