# SPDX-License-Identifier: BSD-3-Clause
# Median time of each kind of fault by segment size, and the cost of the operations that it needs,
# for both engines. Variables: medians, picture.
set terminal pngcairo size 1400,1300 font ",10"
set output picture
set datafile separator ","
set datafile missing NaN
set multiplot layout 2,2
set logscale x 2
set logscale y
set grid
set ylabel "nanoseconds, median"
set xtics ("4K" 4096, "64K" 65536, "256K" 262144, "2M" 2097152)
set key outside bottom center horizontal maxrows 6 samplen 2
kinds = "zero-read zero-write file-read file-write upgrade standby ahead"
pick(col, kind, evict, engine) = \
	(strcol(1) eq kind && column(3) == evict && strcol(9) eq engine) ? column(col) : NaN
do for [engine in "segv uffd"] {
	do for [evict = 0:1] {
		set title engine . (evict \
			? ", with" : ", without") . " eviction, by size of segment"
		plot for [i = 1:words(kinds)] for [c = 5:7:2] medians every ::1 \
			using 2:(pick(c, word(kinds, i), evict, engine)) \
			with linespoints lc i dt c - 4 pt (c == 5 ? 7 : 6) \
			title word(kinds, i) . (c == 5 ? "" : ", raw cost")
	}
}
unset multiplot
