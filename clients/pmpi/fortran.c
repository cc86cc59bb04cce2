/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fortran's entry points that pmpi/shims.awk cannot make. `error` is NULL if the program leaves the
 * argument out.
 */
#include "pmpi/fortran.h"

#include "pmpi/pmpi.h"

#include <dlfcn.h>
#include <stdint.h>
#include <string.h>

/* Fortran pads strings with blanks. */
void fortran_error_string(const MPI_Fint *code, char *string, MPI_Fint *len, MPI_Fint *error,
			  size_t room)
{
	char text[MPI_MAX_ERROR_STRING];
	int result = pmpi_first.Error_string(*code, text, len);

	if (error)
		*error = result;
	if (result != MPI_SUCCESS)
		return;
	*len = (size_t)*len < room ? *len : (MPI_Fint)room;
	memset(string, ' ', room);
	memcpy(string, text, (size_t)*len);
}

char *fortran_string(const char *text, size_t len)
{
	while (len > 0 && *text == ' ') {
		text++;
		len--;
	}
	while (len > 0 && text[len - 1] == ' ')
		len--;
	return strndup(text, len);
}

static int get_flavor(MPI_Fint win, MPI_Aint *value, MPI_Fint *found)
{
	MPI_Win c_win = MPI_Win_f2c(win);
	int *flavor, code;

	code = pmpi_first.Win_get_attr(c_win, MPI_WIN_CREATE_FLAVOR, &flavor, found);
	if (code == MPI_SUCCESS && *found)
		*value = *flavor;
	return code;
}

/*
 * Only MPI's own Fortran call finds attributes that Fortran has set. dlsym finds that call because
 * the library from which the program called this function is loaded.
 */
void fortran_win_get_attr(MPI_Fint *win, MPI_Fint *key, MPI_Aint *value, MPI_Fint *found,
			  MPI_Fint *error)
{
	__typeof__(&fortran_win_get_attr) next;
	MPI_Fint code;

	if (*key == fortran_flavor) {
		code = get_flavor(*win, value, found);
	} else {
		next = (__typeof__(next))(uintptr_t)dlsym(RTLD_NEXT, fortran_get_attr);
		next(win, key, value, found, &code);
	}
	if (error)
		*error = code;
}
