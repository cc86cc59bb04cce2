/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A barrier before Map gives all ranks the same origin of time. An event costs one read of the
 * clock and one of /proc/self/statm.
 */
#include "mapreduce/timeline.h"

#include "mapreduce/error.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_MESSAGE_EVENTS 256

struct event {
	double seconds;       /* time since the start of the run */
	uint64_t memory_kib;  /* resident memory of the rank */
	int32_t phase, kind;  /* UMMR_PHASE_*, enum event_kind */
};

static int open_file(struct timeline *t, const char *path)
{
	t->path = strdup(path);
	if (!t->path)
		return set_error(ENOMEM, "cannot write the timeline '%s': no memory", path);
	t->out = fopen(path, "we");
	if (t->out)
		fputs("run,rank,seconds,phase,event,memory_kib\n", t->out);
	return t->out ? 0 : set_error(errno, "cannot write the timeline '%s': %m", path);
}

int timeline_open(struct timeline *t, MPI_Comm comm, const char *path)
{
	int rank, is_on = path != NULL;

	*t = (struct timeline){ .statm = -1 };
	MPI_Comm_rank(comm, &rank);
	MPI_Bcast(&is_on, 1, MPI_INT, 0, comm);
	t->is_on = is_on;
	if (!is_on)
		return 0;
	t->statm = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
	return agree_result(comm, rank == 0 ? open_file(t, path) : 0);
}

void timeline_close(struct timeline *t)
{
	if (!t->is_on)
		return;
	if (t->out)
		fclose(t->out);
	if (t->statm >= 0)
		close(t->statm);
	free(t->path);
	free(t->events);
	*t = (struct timeline){ .statm = -1 };
}

void timeline_start(struct timeline *t, MPI_Comm comm)
{
	if (!t->is_on)
		return;
	t->run++;
	t->count = 0;
	MPI_Barrier(comm);
	t->start = clock_seconds();
}

/* Returns 0 if there is no /proc. */
static uint64_t resident_kib(const struct timeline *t)
{
	char text[128] = "";
	uint64_t pages = 0;

	if (pread(t->statm, text, sizeof(text) - 1, 0) > 0)
		sscanf(text, "%*s %" SCNu64, &pages);
	return pages * (uint64_t)sysconf(_SC_PAGESIZE) / 1024;
}

void timeline_add(struct timeline *t, int phase, enum event_kind kind)
{
	if (!t->is_on)
		return;
	if (t->count == t->capacity) {
		size_t capacity = 2 * t->capacity + 256;
		struct event *events = realloc(t->events, capacity * sizeof(*events));

		if (!events) {
			t->has_lost_events = true;
			return;
		}
		t->events = events;
		t->capacity = capacity;
	}
	t->events[t->count++] = (struct event){ clock_seconds() - t->start, resident_kib(t), phase,
						(int32_t)kind };
}

/* ---- Writing ---- */

static void write_events(const struct timeline *t, int rank, const struct event *events,
			 size_t count)
{
	static const char *const phases[] = { "map", "reduce", "combine" };
	static const char *const kinds[] = { "begin", "step", "sync", "end" };

	for (size_t i = 0; i < count; i++)
		fprintf(t->out, "%" PRIu64 ",%d,%.6f,%s,%s,%" PRIu64 "\n", t->run, rank,
			events[i].seconds, phases[events[i].phase], kinds[events[i].kind],
			events[i].memory_kib);
}

/* Each rank sends messages of MAX_MESSAGE_EVENTS, and then a shorter one. */
static int receive_events(struct timeline *t, MPI_Comm comm)
{
	struct event message[MAX_MESSAGE_EVENTS];
	int ranks, bytes;

	MPI_Comm_size(comm, &ranks);
	write_events(t, 0, t->events, t->count);
	for (int rank = 1; rank < ranks; rank++) {
		do {
			MPI_Status status;

			MPI_Recv(message, sizeof(message), MPI_BYTE, rank, 0, comm, &status);
			MPI_Get_count(&status, MPI_BYTE, &bytes);
			write_events(t, rank, message, (size_t)bytes / sizeof(*message));
		} while (bytes == sizeof(message));
	}
	return fflush(t->out) == 0 ? 0 : set_error(errno, "cannot write the timeline '%s': %m",
						   t->path);
}

static void send_events(const struct timeline *t, MPI_Comm comm)
{
	size_t sent = 0, count;

	do {
		count = t->count - sent < MAX_MESSAGE_EVENTS ? t->count - sent : MAX_MESSAGE_EVENTS;
		MPI_Send(t->events + sent, (int)(count * sizeof(*t->events)), MPI_BYTE, 0, 0,
			 comm);
		sent += count;
	} while (count == MAX_MESSAGE_EVENTS);
}

int timeline_write(struct timeline *t, MPI_Comm comm)
{
	int result = 0;

	if (!t->is_on)
		return 0;
	if (t->out)
		result = receive_events(t, comm);
	else
		send_events(t, comm);
	if (result == 0 && t->has_lost_events)
		result = set_error(ENOMEM, "cannot write all events of the timeline: no memory");
	return agree_result(comm, result);
}
