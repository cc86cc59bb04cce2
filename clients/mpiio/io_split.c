/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks that become I/O ranks of their machine: they do the work of the processes that `ummap
 * ioranks` starts. Each compute rank holds a connection to each I/O rank of its machine, which ends
 * its work after the last of them. The variable UMMAP_IO_RANKS tells the filter ioranks+ of the
 * compute ranks where to connect.
 */
#include "pmpi/error.h"

#include "../drivers/ioranks.h"
#include "../tools/ioranks/server.h"
#include "common/process.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>
#include <ummap-mpi.h>

/* This rank in the ranks of comm on its machine. */
struct place {
	MPI_Comm machine;               /* these ranks */
	int rank, ranks;                /* rank, and number of ranks */
	int k;                          /* number of I/O ranks, which are the last ones */
	/* Name of the I/O ranks. */
	char name[IORANKS_MAX_NAME_LEN + 1];
};

/* Connections of a compute rank. Attributes of its new communicator and of MPI_COMM_SELF, which
 * MPI_Finalize deletes first, end them. */
struct holder {
	int attributes;                 /* number of attributes that have it */
	int n;                          /* number of connections */
	int fd[IORANKS_MAX_PROCESSES];
};

static bool is_io_rank(const struct place *p)
{
	return p->rank >= p->ranks - p->k;
}

/* ---- Connections ---- */

static void end_connections(struct holder *h)
{
	if (h->n > 0)
		unsetenv("UMMAP_IO_RANKS");
	/* A forked child may have a copy of the descriptor. */
	for (int i = 0; i < h->n; i++) {
		shutdown(h->fd[i], SHUT_RDWR);
		close(h->fd[i]);
	}
	h->n = 0;
}

static int delete_attribute(MPI_Comm comm, int key, void *value, void *extra)
{
	struct holder *h = value;

	(void)comm, (void)key, (void)extra;
	end_connections(h);
	if (--h->attributes == 0)
		free(h);
	return MPI_SUCCESS;
}

static int set_attributes(MPI_Comm compute, struct holder *h)
{
	int key, code;

	code = PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, delete_attribute, &key, NULL);
	if (code != MPI_SUCCESS)
		return code;
	code = PMPI_Comm_set_attr(compute, key, h);
	h->attributes += code == MPI_SUCCESS;
	if (code == MPI_SUCCESS)
		code = PMPI_Comm_set_attr(MPI_COMM_SELF, key, h);
	h->attributes += code == MPI_SUCCESS;
	PMPI_Comm_free_keyval(&key);
	return code;
}

static int make_socket(const struct place *p, int number, struct sockaddr_un *address,
		       socklen_t *len)
{
	*len = ioranks_address(address, geteuid(), p->name, IORANKS_MAX_NAME_LEN, (unsigned)number);
	return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
}

/* Returns the socket of an I/O rank. */
static int listen_as_io_rank(const struct place *p, struct error *e)
{
	struct sockaddr_un address;
	socklen_t len;
	int fd = make_socket(p, p->rank - (p->ranks - p->k), &address, &len);

	if (fd < 0 || bind(fd, (struct sockaddr *)&address, len) < 0 || listen(fd, SOMAXCONN) < 0)
		error_errno(e, errno, "cannot become an I/O rank: no socket: %m");
	return fd;
}

/* Connects a compute rank to the I/O ranks of its machine, which may accept it later. */
static struct holder *connect_to_io_ranks(const struct place *p, struct error *e)
{
	struct holder *h = calloc(1, sizeof(*h));
	struct sockaddr_un address;
	socklen_t len;

	if (!h)
		error_errno(e, ENOMEM, "cannot connect to I/O ranks: no memory");
	for (int i = 0; i < p->k && e->class == MPI_SUCCESS; i++) {
		int fd = make_socket(p, i, &address, &len);

		if (fd < 0 || connect(fd, (struct sockaddr *)&address, len) < 0)
			error_errno(e, errno, "cannot connect to an I/O rank: %m. Try to run all "
				    "ranks of a machine in one network namespace");
		if (fd >= 0)
			h->fd[h->n++] = fd;
	}
	return h;
}

/* ---- The call ---- */

/* Finds the place of this rank. All ranks of a machine get the name that its first rank makes. */
static void find_place(MPI_Comm comm, int k, struct place *p, struct error *e)
{
	static unsigned splits;
	struct process_id self = process_identify(getpid());

	p->k = k;
	PMPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &p->machine);
	PMPI_Comm_rank(p->machine, &p->rank);
	PMPI_Comm_size(p->machine, &p->ranks);
	snprintf(p->name, sizeof(p->name), "split-%d-%x-%u", (int)self.pid, self.start_time,
		 splits++);
	PMPI_Bcast(p->name, sizeof(p->name), MPI_CHAR, 0, p->machine);
	if (k < 1 || k > IORANKS_MAX_PROCESSES || k >= p->ranks)
		error_set(e, MPI_ERR_ARG, "cannot make %d of the %d ranks of a machine I/O ranks. "
			  "Try a number from 1 to %d that leaves a rank", k, p->ranks,
			  IORANKS_MAX_PROCESSES);
}

static void compute_with(const struct place *p, MPI_Comm compute, struct holder *h)
{
	char value[sizeof(p->name) + 16];

	snprintf(value, sizeof(value), "%s,%d", p->name, p->k);
	setenv("UMMAP_IO_RANKS", value, 1);
	/* Without attributes, the I/O ranks could not learn that the work has ended. */
	if (set_attributes(compute, h) != MPI_SUCCESS)
		end_connections(h);
}

int ummpi_io_split(MPI_Comm comm, int k, MPI_Comm *compute)
{
	struct error e = { 0 };
	struct holder *h = NULL;
	int listener = -1, rank;
	struct place p;

	*compute = MPI_COMM_NULL;
	PMPI_Comm_rank(comm, &rank);
	find_place(comm, k, &p, &e);
	if (e.class == MPI_SUCCESS && is_io_rank(&p))
		listener = listen_as_io_rank(&p, &e);
	error_agree(comm, &e);
	if (e.class == MPI_SUCCESS)
		PMPI_Comm_split(comm, is_io_rank(&p) ? MPI_UNDEFINED : 0, rank, compute);
	if (e.class == MPI_SUCCESS && !is_io_rank(&p))
		h = connect_to_io_ranks(&p, &e);
	/* The first compute rank may end its work before an I/O rank has looked for the others, so
	 * all of them have connected here. */
	error_agree(comm, &e);
	PMPI_Comm_free(&p.machine);
	if (e.class != MPI_SUCCESS) {
		if (h)
			end_connections(h);
		free(h);
		if (*compute != MPI_COMM_NULL)
			PMPI_Comm_free(compute);
	} else if (h) {
		compute_with(&p, *compute, h);
	} else {
		serve(listener, true);
	}
	if (listener >= 0)
		close(listener);
	return e.class == MPI_SUCCESS ? MPI_SUCCESS : error_tell_comm(comm, &e);
}
