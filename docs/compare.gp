# SPDX-License-Identifier: BSD-3-Clause
# Draws the picture of README.md from bench/results/compare.csv: medians of blocks of 256 KiB.
# Usage: gnuplot docs/compare.gp (in the top folder); `make docs` runs it.
set terminal svg size 800,300 font "sans-serif,13" background "#ffffff"
set output "docs/compare.svg"
# The bare io_uring loop makes sequential requests of 2 MiB, because libummap joins neighbors, too.
medians = "<awk -F, '$5 == ($2 == \"deep32\" && $3 == \"seq\" ? 2097152 : 262144) \
	{ print $2, $3 \"-\" $4, $7 }' bench/results/compare.csv | sort -k1,2 -k3,3g | \
	awk '{ n[$1 \" \" $2]++ } n[$1 \" \" $2] == 2'"
methods = "deep32 ummap mmap"
titles = "'io\\_uring loop' libummap 'kernel mmap'"
colors = "#666666 #d62728 #1f77b4"
patterns = "seq-read rand-read seq-write rand-write"
set style fill solid 0.85 noborder
set boxwidth 0.26
set logscale y
set yrange [20:6000]
set xrange [0.5:4.5]
set ylabel "MiB/s (logarithmic)"
set grid ytics lc "#cccccc"
set border 3
set tics nomirror
set key outside top center horizontal
set bmargin 3.5
set xtics ("sequential read" 1, "random read" 2, \
	"sequential write,\ndurable" 3, "random write,\ndurable" 4)
rate(m, p) = strcol(1) eq word(methods, m) && strcol(2) eq word(patterns, p) ? column(3) : NaN
plot for [m = 1:3] for [p = 1:4] medians using (p + 0.27 * (m - 2)):(rate(m, p)) with boxes \
		lc rgb word(colors, m) title (p == 1 ? word(titles, m) : ""), \
	for [m = 1:3] for [p = 1:4] medians \
		using (p + 0.27 * (m - 2)):(rate(m, p)):(sprintf("%.0f", rate(m, p))) \
		with labels offset 0,0.6 font ",10" notitle
