# SPDX-License-Identifier: BSD-3-Clause
# Throughput and CPU time of the methods by segment size. Variables: medians, picture.
set terminal pngcairo size 1700,900 font ",10"
set output picture
set datafile separator ","
set datafile missing NaN
set multiplot layout 2,4
set logscale x 2
set logscale y
set grid
set xtics ("64K" 65536, "256K" 262144, "1M" 1048576, "4M" 4194304, "16M" 16777216)
set key outside bottom center horizontal maxrows 4 samplen 2
methods = "ummap floor mmap inplace"
colours = "#d62728 #444444 #1f77b4 #2ca02c"
pick(col, method, pattern, op, threads) = \
	(strcol(2) eq method && strcol(3) eq pattern && strcol(4) eq op && column(6) == threads) \
		? column(col) : NaN
do for [col = 7:8] {
	set ylabel (col == 7 ? "MiB/s" : "CPU microseconds per MiB")
	do for [op in "read write"] {
		do for [pattern in "seq rand"] {
			set title (pattern eq "seq" \
				? "sequential " : "random ") . op . ", by size of segment"
			plot for [i = 1:4] for [t = 1:2] medians every ::1 \
				using 5:(pick(col, word(methods, i), pattern, op, t)) \
				with linespoints lc rgb word(colours, i) dt t pt (t == 1 ? 7 : 6) \
				title sprintf("%s, %d thread%s", word(methods, i), t, t == 1 \
					? "" : "s")
		}
	}
}
unset multiplot
