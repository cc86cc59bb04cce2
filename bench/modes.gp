# SPDX-License-Identifier: BSD-3-Clause
# Resident memory of the processes over time, stacked, in each mode, in the
# first repetition. Usage: gnuplot bench/modes.gp (in the top folder).
set terminal pngcairo size 1500,700 font ",11"
set output "bench/results/modes.png"
rows = "<awk -F, 'NR == 1 || $1 == 1' bench/results/modes.csv"
set datafile separator ","
stats rows every ::1 using 3 nooutput
last = STATS_max / 1000
stats rows every ::1 using 6 nooutput
most = STATS_max
set multiplot layout 1,3 title "Resident memory of the processes on a node"
modes = "static dynamic free"
set xrange [0:last]
set yrange [0:1.1 * most]
set xlabel "seconds"
set ylabel "MiB"
set grid front
set key outside bottom center horizontal maxrows 3 samplen 1
# Sum of processes 1 to n.
upto(n, mode) = strcol(2) eq mode ? sum [i = 1:n] column(6 + i) : NaN
seconds(mode) = strcol(2) eq mode ? column(3) / 1000 : NaN
do for [mode in modes] {
	set title mode eq "free" ? "without a limit" : mode . " mode"
	plot for [p = 8:1:-1] rows every ::1 using (seconds(mode)):(upto(p, mode)) \
		with filledcurves y1=0 lc p title sprintf("process %d", p), \
		rows every ::1 using (seconds(mode)):(mode eq "free" ? NaN : column(5)) \
		with lines lc rgb "black" dt 2 lw 2 title "limit"
}
unset multiplot
