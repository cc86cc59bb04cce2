/* SPDX-License-Identifier: BSD-3-Clause */
/* prog_object_numpy - runs arrays.py with numpy and h5py. Exit status 77: they are not installed.
 * Argument: a seed. */
#include "object.h"

int main(int argc, char **argv)
{
	char command[2048];
	int status;

	snprintf(command, sizeof(command), "for p in python3 /usr/bin/python3; do \"$p\" -c "
		 "'import numpy, h5py' 2> /dev/null && command -v h5dump > /dev/null && { "
		 "PYTHONDONTWRITEBYTECODE=1 \"$p\" '%s/arrays.py' '%s/../libummap-object.so' '%s' "
		 "%s; exit; }; done; exit 77", OBJECT_TESTS, OBJECT_PLUGINS, temp_dir(), argc > 1 ?
		 argv[1] : "1");
	status = system(command);
	check(WIFEXITED(status));
	return WEXITSTATUS(status);
}
