/* SPDX-License-Identifier: BSD-3-Clause */
#include "mapreduce/together.h"

#include "mapreduce/error.h"
#include "mapreduce/input.h"

#include <stdlib.h>

static bool is_shared(const struct input *in, const struct file *f)
{
	return f->size > 0 && f->start / in->task_size != (f->start + f->size - 1) / in->task_size;
}

static void close_file(struct together *t)
{
	if (t->open)
		MPI_File_close(&t->file);
	t->open = false;
}

/* Files follow each other: the one that is open may be the one that the round before ended in. */
static int open_file(struct input *in, MPI_Comm comm, uint64_t number)
{
	struct together *t = &in->together;
	int code;

	if (t->open && t->number == number)
		return 0;
	close_file(t);
	code = infile_open_mpiio(comm, in->files[number].path, MPI_MODE_RDONLY, in->config, &t->file);
	t->number = number;
	code = check_all(comm, code);
	t->open = code == 0;
	return code;
}

/* All ranks make as many calls as the longest part of a task takes. */
static int read_calls(struct input *in, const char *path, struct piece *piece, size_t size)
{
	size_t record = in->config->record_size, ahead = INPUT_LOOK_AHEAD + 1;
	size_t longest = in->task_size + (record > ahead ? record : ahead);
	int result = piece_make_room(piece, size, path);
	size_t wanted = result == 0 ? size : 0;

	piece->size = 0;
	for (size_t done = 0; done < longest; done += MPI_CALL_MAX) {
		size_t rest = wanted - piece->size, part = rest < MPI_CALL_MAX ? rest : MPI_CALL_MAX;
		MPI_Status status;
		int got, code = MPI_File_read_at_all(in->together.file, (MPI_Offset)(piece->from + piece->size),
						     piece->data + piece->size, (int)part, MPI_BYTE, &status);

		if (result < 0 || (result = check_mpi(code, path)) < 0)
			continue;
		/* What is missing will be missed by whoever reads on behind it. */
		MPI_Get_count(&status, MPI_BYTE, &got);
		piece->size += (size_t)got;
		wanted = (size_t)got < part ? piece->size : wanted;
	}
	return result;
}

/* What this rank's task has of the file; false: nothing. */
static bool find_part(const struct input *in, int64_t task, uint64_t number, struct part *part)
{
	uint64_t at = 0;

	while (task >= 0 && input_next_part(in, task, &at, part))
		if (part->number == number)
			return true;
	*part = (struct part){ .number = number };
	return false;
}

int together_read(struct input *in, MPI_Comm comm, int64_t task, uint64_t first, uint64_t last)
{
	struct together *t = &in->together;
	struct piece none = { 0 };
	int result = 0, used = 0, opened;

	t->read[0].piece.size = t->read[1].piece.size = 0;
	for (uint64_t number = first; number <= last; number++) {
		struct piece *piece = &none;
		struct part part;

		if (!is_shared(in, &in->files[number]))
			continue;
		opened = open_file(in, comm, number);
		if (opened != 0)
			return opened;
		if (find_part(in, task, number, &part)) {
			t->read[used].number = number;
			piece = &t->read[used++].piece;
		}
		piece->from = part.from;
		if (read_calls(in, in->files[number].path, piece, (size_t)(part.to - part.from)) < 0)
			result = -1;
	}
	return result;
}

bool together_take(struct together *t, uint64_t number, uint64_t from, struct piece *piece)
{
	for (int i = 0; i < 2; i++) {
		struct piece taken = t->read[i].piece;

		if (taken.size == 0 || t->read[i].number != number || taken.from != from)
			continue;
		t->read[i].piece = (struct piece){ piece->data, 0, piece->room, 0 };
		*piece = taken;
		return true;
	}
	return false;
}

void together_close(struct together *t)
{
	close_file(t);
	free(t->read[0].piece.data);
	free(t->read[1].piece.data);
	*t = (struct together){ 0 };
}
