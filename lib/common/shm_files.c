/* SPDX-License-Identifier: BSD-3-Clause */
#include "common/shm_files.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

#define MAX_PATH_BYTES 256

void shm_each_file(const char *begin, void (*found)(const char *path))
{
	DIR *folder = opendir(SHM_FOLDER);
	const struct dirent *entry;
	char path[MAX_PATH_BYTES];

	while (folder && (entry = readdir(folder))) {
		int n = snprintf(path, sizeof(path), SHM_FOLDER "/%s", entry->d_name);

		if (n < (int)sizeof(path) && strncmp(path, begin, strlen(begin)) == 0)
			found(path);
	}
	if (folder)
		closedir(folder);
}
