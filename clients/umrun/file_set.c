/* SPDX-License-Identifier: BSD-3-Clause */
#include "umrun/file_set.h"

#include "umrun/next_calls.h"

bool file_of(int fd, struct file_id *file)
{
	int error = errno;
	struct stat st;
	bool is = fstat(fd, &st) == 0 && S_ISREG(st.st_mode);

	if (is)
		*file = (struct file_id){ st.st_dev, st.st_ino };
	errno = error;
	return is;
}

bool is_open_for_writing(int fd)
{
	return (fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDONLY;
}

bool file_set_has(const struct file_set *set, struct file_id file)
{
	for (size_t i = 0; i < set->count; i++) {
		if (is_same_file(set->files[i], file))
			return true;
	}
	return false;
}

int file_set_add(struct file_set *set, struct file_id file)
{
	size_t room = set->room ? 2 * set->room : page_bytes() / sizeof(file);
	struct file_id *more;

	if (file_set_has(set, file))
		return 0;
	if (set->count == set->room) {
		more = map_private(room * sizeof(file));
		if (more == MAP_FAILED)
			return -1;
		if (set->room) {
			memcpy(more, set->files, set->count * sizeof(file));
			kernel_munmap(set->files, set->room * sizeof(file));
		}
		set->files = more;
		set->room = room;
	}
	set->files[set->count++] = file;
	return 0;
}
