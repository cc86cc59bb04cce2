/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls that are more in Fortran than their parameters by reference. The error may be left out. */
#include "pmpi/fortran.h"

#include "pmpi/pmpi.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Fortran's strings end with blanks. */
void fortran_error_string(const MPI_Fint *code, char *string, MPI_Fint *len, MPI_Fint *error, size_t room)
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

/* A string of C's, without the blanks around it. NULL: there is no memory. */
static char *string(const char *text, size_t len)
{
	while (len > 0 && *text == ' ') {
		text++;
		len--;
	}
	while (len > 0 && text[len - 1] == ' ')
		len--;
	return strndup(text, len);
}

void fortran_file_open(const MPI_Fint *comm, const char *name, const MPI_Fint *amode, const MPI_Fint *info, MPI_Fint *file,
		       MPI_Fint *error, size_t len)
{
	char *c_name = string(name, len);
	MPI_File c_file = MPI_FILE_NULL;
	int code = MPI_ERR_NO_MEM;

	if (c_name)
		code = pmpi_first.File_open(MPI_Comm_f2c(*comm), c_name, *amode, MPI_Info_f2c(*info), &c_file);
	free(c_name);
	if (code == MPI_SUCCESS)
		*file = MPI_File_c2f(c_file);
	if (error)
		*error = code;
}

void fortran_file_delete(const char *name, const MPI_Fint *info, MPI_Fint *error, size_t len)
{
	char *c_name = string(name, len);
	int code = MPI_ERR_NO_MEM;

	if (c_name)
		code = pmpi_first.File_delete(c_name, MPI_Info_f2c(*info));
	free(c_name);
	if (error)
		*error = code;
}

void fortran_file_set_view(const MPI_Fint *file, const MPI_Offset *disp, const MPI_Fint *etype, const MPI_Fint *filetype,
			   const char *datarep, const MPI_Fint *info, MPI_Fint *error, size_t len)
{
	char *c_datarep = string(datarep, len);
	int code = MPI_ERR_NO_MEM;

	if (c_datarep)
		code = pmpi_first.File_set_view(MPI_File_f2c(*file), *disp, MPI_Type_f2c(*etype), MPI_Type_f2c(*filetype), c_datarep,
						MPI_Info_f2c(*info));
	free(c_datarep);
	if (error)
		*error = code;
}

static int get_flavor(MPI_Fint win, MPI_Aint *value, MPI_Fint *found)
{
	int *flavor, code = pmpi_first.Win_get_attr(MPI_Win_f2c(win), MPI_WIN_CREATE_FLAVOR, &flavor, found);

	if (code == MPI_SUCCESS && *found)
		*value = *flavor;
	return code;
}

/* Those that Fortran has set it finds only by MPI's own call. It has called, so its library is there. */
void fortran_win_get_attr(MPI_Fint *win, MPI_Fint *key, MPI_Aint *value, MPI_Fint *found, MPI_Fint *error)
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
