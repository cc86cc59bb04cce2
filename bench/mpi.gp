# SPDX-License-Identifier: BSD-3-Clause
# Put and Get between two ranks, for each kind of window. Variables: medians, picture.
set terminal pngcairo size 1300,600 font ",11"
set output picture
set datafile separator ","
set multiplot layout 1,2 title "One rank to another on the same machine, operation and flush"
set logscale xy
set xlabel "bytes"
set ylabel "us"
set key left top samplen 2
set grid
# Selects the rows of one kind of window, so that a line connects them.
select = "$6 == \"%s\" && $3 == \"%s\" && $4 == \"%s\" && $5 == \"%s\""
rows(op, window, engine, local) = \
	sprintf("< awk -F, '" . select . "' %s", op, window, engine, local, medians)
do for [op in "put get"] {
	set title op
	plot rows(op, "create", "-", "-") using 7:8 with linespoints \
		title "memory, MPI\\_Win\\_create", \
		rows(op, "allocate", "-", "-") using 7:8 with linespoints \
			title "memory, MPI\\_Win\\_allocate", \
		rows(op, "storage", "uffd", "false") using 7:8 with linespoints \
			title "storage, uffd", \
		rows(op, "storage", "segv", "false") using 7:8 with linespoints \
			title "storage, segv", \
		rows(op, "storage", "kernel", "false") using 7:8 with linespoints \
			title "storage, kernel, by MPI", \
		rows(op, "storage", "kernel", "true") using 7:8 with linespoints \
			title "storage, kernel"
}
unset multiplot
