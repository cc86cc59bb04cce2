# SPDX-License-Identifier: BSD-3-Clause
# README's picture: medians as boxes, each turn as a point. Variables: medians, csv, picture. For
# sequential access, the floor has requests of 2 MiB for each segment size, because the library
# transfers adjacent segments together, too.
set terminal pngcairo size 1200,420 font ",10"
set output picture
set datafile separator ","
set datafile missing NaN
set multiplot layout 1,4
set style fill solid 0.8 noborder
set boxwidth 0.2
set logscale y
set yrange [20:8000]
set grid ytics
set key outside bottom center vertical maxrows 4 samplen 1 noenhanced
methods = "deep32 ummap fresh mmap"
colours = "#444444 #d62728 #ff9896 #1f77b4"
titles = "'io_uring, 32 in flight' 'libummap, budget full' 'libummap, budget empty' mmap"
do for [op in "read write"] {
	sizes = op eq "read" ? "65536 262144 2097152" : "262144 2097152"
	names = op eq "read" ? "64K 256K 2M" : "256K 2M"
	set xrange [0.5:words(sizes) + 0.5]
	set xtics () nomirror
	do for [p = 1:words(sizes)] { set xtics add (word(names, p) p) }
	do for [pattern in "seq rand"] {
		set title (pattern eq "seq" ? "sequential " : "random ") . (op eq "read" \
			? "read" : "write, durable")
		set ylabel (op eq "read" && pattern eq "seq" ? "MiB/s" : "")
		size_of(i, p) = i == 1 && pattern eq "seq" ? 2097152 : int(word(sizes, p))
		rate(i, p) = strcol(2) eq word(methods, i) && strcol(3) eq pattern && \
			strcol(4) eq op && \
			column(5) == size_of(i, p) ? column(7) : NaN
		plot for [i = 1:4] for [p = 1:words(sizes)] medians every ::1 \
			using (p + 0.2 * (i - 2.5)):(rate(i, p)) \
				with boxes lc rgb word(colours, i) \
				title (p == 1 ? word(titles, i) : ""), \
			for [i = 1:4] for [p = 1:words(sizes)] csv every ::1 \
				using (p + 0.2 * (i - 2.5)):(rate(i, p)) \
				with points pt 6 ps 0.6 lc rgb "#000000" notitle
	}
}
unset multiplot
