# SPDX-License-Identifier: BSD-3-Clause
# Put and Get between two ranks, on each kind of window; variables: medians, picture.
set terminal pngcairo size 1300,600 font ",11"
set output picture
set datafile separator ","
set multiplot layout 1,2 title "One rank to another on the same machine, operation and flush"
set logscale xy
set xlabel "bytes"
set ylabel "us"
set key left top samplen 2
set grid
pick(op, window, engine, local) = strcol(6) eq op && strcol(3) eq window && strcol(4) eq engine && strcol(5) eq local ? \
	column(8) : NaN
do for [op in "put get"] {
	set title op
	plot medians every ::1 using 7:(pick(op, "create", "-", "-")) with linespoints title "memory, MPI\\_Win\\_create", \
		medians every ::1 using 7:(pick(op, "allocate", "-", "-")) with linespoints title "memory, MPI\\_Win\\_allocate", \
		medians every ::1 using 7:(pick(op, "storage", "uffd", "false")) with linespoints title "storage, uffd", \
		medians every ::1 using 7:(pick(op, "storage", "segv", "false")) with linespoints title "storage, segv", \
		medians every ::1 using 7:(pick(op, "storage", "kernel", "false")) with linespoints title "storage, kernel, by MPI", \
		medians every ::1 using 7:(pick(op, "storage", "kernel", "true")) with linespoints title "storage, kernel"
}
unset multiplot
