/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * died - a rank dies while it has a lock. On each machine, the second rank of a window locks the
 * part of the first one and kills itself. The other ranks get the lock, and see the data that it
 * has put. Accesses to segments of the dead rank that are not resident return an error. died.sh
 * runs the test, and counts the ranks that come to the end. The launcher of MPI ends a job when a
 * process that it has started ends, so each rank is a child of such a process, and these processes
 * wait for each other.
 */
#include "common.h"

#include <signal.h>
#include <sys/wait.h>

#define SEG (64 * KIB)
#define SIZE (8 * SEG)

static void lock_and_die(MPI_Win win)
{
	int64_t one = 1;

	MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win);
	MPI_Put(&one, 1, MPI_INT64_T, 0, 8, 1, MPI_INT64_T, win);
	MPI_Put(&one, 1, MPI_INT64_T, 0, 0, 1, MPI_INT64_T, win);
	MPI_Win_flush(0, win);
	kill(getpid(), SIGKILL);
}

static void lock_after_death(MPI_Win win, bool paged)
{
	int64_t got[2] = { 0 };
	char far[8];

	/* Ranks that get the lock before the dying rank try again. */
	while (!got[0]) {
		MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win);
		MPI_Get(got, 2, MPI_INT64_T, 0, 0, 2, MPI_INT64_T, win);
		MPI_Win_unlock(0, win);
	}
	check(got[0] == 1 && got[1] == 1);
	if (!paged)
		return;
	MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
	MPI_Win_lock(MPI_LOCK_SHARED, 1, 0, win);
	check_error(MPI_Get(far, 8, MPI_BYTE, 1, 7 * SEG, 8, MPI_BYTE, win), MPI_ERR_OTHER,
		    "at rank 1: the rank has ended");
}

static void leave_file(const char *name, int number)
{
	char path[400];
	int fd;

	snprintf(path, sizeof(path), "%s/%s.%d", getenv("UMMAP_TEST_FOLDER"), name, number);
	fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	check(fd >= 0, "%s", path);
	close(fd);
}

static void wait_for_file(const char *name, int number)
{
	char path[400];

	snprintf(path, sizeof(path), "%s/%s.%d", getenv("UMMAP_TEST_FOLDER"), name, number);
	while (access(path, F_OK) < 0)
		pause_ms(1);
}

#ifdef OPEN_MPI
#define LAUNCHER_SIZE "OMPI_COMM_WORLD_SIZE"
#define LAUNCHER_RANK "OMPI_COMM_WORLD_RANK"
#else
#define LAUNCHER_SIZE "PMI_SIZE"
#define LAUNCHER_RANK "PMI_RANK"
#endif

/* Forks; only the child returns. */
static void become_child(void)
{
	const char *all = getenv(LAUNCHER_SIZE), *mine = getenv(LAUNCHER_RANK);
	pid_t pid = fork();
	int status;

	check(pid >= 0 && all && mine);
	if (pid == 0)
		return;
	check(waitpid(pid, &status, 0) == pid);
	leave_file("ended", atoi(mine));
	for (int i = 0; i < atoi(all); i++)
		wait_for_file("ended", i);
	exit(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL ? 0 : WEXITSTATUS(status));
}

int main(int argc, char **argv)
{
	const char *engine = getenv("UMMAP_ENGINE");
	bool kernel = getenv("DIED_KERNEL");
	MPI_Comm machine;
	char name[64], *base;
	MPI_Info info;
	MPI_Win win;
	int first, here;

	become_child();
	start_mpi(&argc, &argv, MPI_THREAD_SINGLE);
	first = rank;
	MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &machine);
	MPI_Bcast(&first, 1, MPI_INT, 0, machine);
	MPI_Comm_rank(machine, &rank);
	MPI_Comm_size(machine, &here);
	snprintf(name, sizeof(name), "died-%d.%%r", first);
	info = kernel ? storage_hints(name, "storage_alloc_engine", "kernel", NULL) :
	       storage_hints(name, "storage_alloc_segsize", "64K", NULL);
	check(MPI_Win_allocate(SIZE, 1, info, machine, &base, &win) == MPI_SUCCESS);
	MPI_Info_free(&info);
	MPI_Barrier(machine);
	if (rank == 1)
		lock_and_die(win);
	lock_after_death(win, !kernel && (!engine || strcmp(engine, "segv") == 0));
	/*
	 * MPI_Finalize would wait for the dead rank. The memory of the first rank of a machine has
	 * the lock.
	 */
	snprintf(name, sizeof(name), "came-%d", first);
	leave_file(name, rank);
	for (int i = 0; i < here; i++)
		if (i != 1)
			wait_for_file(name, i);
	_exit(0);
}
