/* SPDX-License-Identifier: BSD-3-Clause */
#include "mapreduce/config.h"

#include "mapreduce/error.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define DEFAULT_BUCKET_BYTES (16 * MIB)
#define DEFAULT_TABLE_BYTES (256 * MIB)

/* A transfer must be long enough to be worth the wait for the other rank. */
#define MIN_TRANSFER_BYTES (16 * KIB)
#define MAX_TRANSFER_BYTES (1 * MIB)
#define TRANSFERS_IN_TABLE 256 /* table_size divided by the size of a transfer */

/* A newer header may have more fields, and this library does not know their meaning. */
static bool rest_is_zero(const struct ummr_config *c)
{
	const char *bytes = (const char *)c;
	size_t i = sizeof(*c);

	while (i < c->struct_size && !bytes[i])
		i++;
	return i >= c->struct_size;
}

static int check_functions(const struct ummr_config *c)
{
	if (!c->inputs || !c->inputs[0])
		return set_error(EINVAL, "cannot use config->inputs: it names no file and no "
				 "folder");
	if (!c->map)
		return set_error(EINVAL, "cannot use config->map NULL: a job needs a map function");
	if (!c->reduce && !c->reduce_all)
		return set_error(EINVAL, "cannot use config: reduce and reduce_all are both NULL, "
				 "and a job needs a reduce function");
	if (c->reduce && c->reduce_all)
		return set_error(EINVAL, "cannot use config: it has both reduce and reduce_all, "
				 "and a job has one reduce function");
	if (c->split == UMMR_SPLIT_FIXED && c->record_size == 0)
		return set_error(EINVAL, "cannot use UMMR_SPLIT_FIXED: config->record_size is 0. "
				 "Try the size of records");
	if (c->split == UMMR_SPLIT_OWN && !c->find_record)
		return set_error(EINVAL, "cannot use UMMR_SPLIT_OWN: config->find_record is NULL");
	return 0;
}

static int check_numbers(const struct ummr_config *c)
{
	if (c->split < UMMR_SPLIT_LINES || c->split > UMMR_SPLIT_OWN)
		return set_error(EINVAL, "cannot use config->split %d: it must be one of "
				 "UMMR_SPLIT_*", c->split);
	if (c->combine < UMMR_COMBINE_ON || c->combine > UMMR_COMBINE_OFF)
		return set_error(EINVAL, "cannot use config->combine %d: it must be one of "
				 "UMMR_COMBINE_*", c->combine);
	if (c->order < UMMR_ORDER_ASCENDING || c->order > UMMR_ORDER_DESCENDING)
		return set_error(EINVAL, "cannot use config->order %d: it must be one of "
				 "UMMR_ORDER_*", c->order);
	if (c->bucket_size > PTRDIFF_MAX / 2 || c->task_size > PTRDIFF_MAX / 2 ||
	    c->record_size > PTRDIFF_MAX / 2)
		return set_error(EINVAL, "cannot use config: bucket_size %zu, task_size %zu or "
				 "record_size %zu is larger than memory can be", c->bucket_size,
				 c->task_size, c->record_size);
	if (c->storage && !*c->storage)
		return set_error(EINVAL, "cannot use config->storage '': it must be a folder, or "
				 "NULL for memory");
	return 0;
}

int config_copy(struct ummr_config *to, const struct ummr_config *from)
{
	if (!from)
		return set_error(EINVAL, "cannot create a job: config is NULL");
	if (from->struct_size < sizeof(*from) || from->struct_size > 4096)
		return set_error(EINVAL, "cannot use config->struct_size %zu. Try UMMR_CONFIG_INIT",
				 from->struct_size);
	if (!rest_is_zero(from))
		return set_error(EINVAL, "cannot use config: it has fields that this library does "
				 "not know. Try the library of the header's release");
	*to = *from;
	to->struct_size = sizeof(*to);
	if (check_numbers(to) < 0 || check_functions(to) < 0)
		return -1;
	if (to->bucket_size == 0)
		to->bucket_size = DEFAULT_BUCKET_BYTES;
	if (to->table_size == 0)
		to->table_size = DEFAULT_TABLE_BYTES;
	return 0;
}

size_t config_transfer_size(const struct ummr_config *c)
{
	size_t size = c->table_size / TRANSFERS_IN_TABLE;

	return size < MIN_TRANSFER_BYTES ? MIN_TRANSFER_BYTES :
	       size > MAX_TRANSFER_BYTES ? MAX_TRANSFER_BYTES : size;
}

int config_compare(const struct ummr_config *c, MPI_Comm comm)
{
	const struct {
		const char *name;
		uint64_t value;
	} fields[] = {
		{ "split", (uint64_t)c->split },
		{ "record_size", c->record_size },
		{ "task_size", c->task_size },
		{ "bucket_size", c->bucket_size },
		{ "table_size", c->table_size },
		{ "combine", (uint64_t)c->combine },
		{ "order", (uint64_t)c->order },
		{ "storage (0: NULL)", c->storage != NULL },
		{ "sync_tasks", c->sync_tasks },
		{ "reduce_all (0: NULL)", c->reduce_all != NULL },
		{ "tag", c->tag },
	};
	enum { FIELDS = sizeof(fields) / sizeof(*fields) };
	uint64_t first[FIELDS];
	int i;

	for (i = 0; i < FIELDS; i++)
		first[i] = fields[i].value;
	MPI_Bcast(first, FIELDS, MPI_UINT64_T, 0, comm);
	for (i = 0; i < FIELDS && fields[i].value == first[i]; i++)
		;
	return agree_result(comm, i == FIELDS ? 0 :
		set_error(EINVAL, "cannot create a job: %s is %llu here and %llu at rank 0, and "
			  "must be the same at all ranks", fields[i].name,
			  (unsigned long long)fields[i].value, (unsigned long long)first[i]));
}
