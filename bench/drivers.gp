# SPDX-License-Identifier: BSD-3-Clause
# Drivers and the best depth of the deep floor, by segment size. Variables: medians, picture.
set terminal pngcairo size 1500,420 font ",10"
set output picture
set datafile separator ","
set datafile missing NaN
set multiplot layout 1,5
set style fill solid 0.8 noborder
set boxwidth 0.2
set grid ytics
set yrange [0:*]
set xrange [-0.5:1.5]
set key outside bottom center vertical samplen 1
is(method, driver, pattern, op) = \
	strcol(2)[1:strlen(method)] eq method && strcol(11) eq driver && strcol(3) eq pattern && \
		strcol(4) eq op
place(small) = column(5) == small ? 0 : 1
# The best depth for each of the two sizes.
best(pattern, op, small, at) = is("deep", "-", pattern, op) && place(small) == at ? column(7) : NaN
patterns = "seq stride seq seq rand"
ops = "read read write modify read"
titles = "'sequential read' 'every 4th segment read' 'sequential write, flushed' " . \
	"'sequential, read and written' 'random read, 8 threads'"
# uMMAP-IO v2 on a similar machine: segments of 256K, a file of 2G, half of it in memory.
$V2 << END
1,0,445,370,520
3,0,445,445,445
END
do for [i = 1:5] {
	pattern = word(patterns, i)
	op = word(ops, i)
	small = pattern eq "rand" ? 4096 : 262144
	set xtics (small == 4096 ? "4K" : "256K" 0, small == 4096 ? "64K" : "2M" 1)
	set title word(titles, i)
	set ylabel (i == 1 ? "MiB/s" : "")
	stats medians every ::1 using (best(pattern, op, small, 0)) name "small" nooutput
	stats medians every ::1 using (best(pattern, op, small, 1)) name "large" nooutput
	set print $FLOOR
	print sprintf("0,%g", small_max)
	print sprintf("1,%g", large_max)
	unset print
	plot $FLOOR using ($1 - 0.22):2 with boxes lc rgb "#444444" \
			title (pattern eq "rand" \
				? "deep floor, depth 8" : "deep floor, best depth"), \
		medians every ::1 using (place(small)):(is("ummap", "uring", pattern, op) \
			? column(7) : NaN) \
			with boxes lc rgb "#d62728" title "uring", \
		medians every ::1 using (place(small) + 0.22):(is("ummap", "posix", pattern, op) \
			? column(7) : NaN) \
			with boxes lc rgb "#ff9896" title "posix", \
		$V2 using ($1 == i ? $2 + 0.38 : NaN):3:4:5 with yerrorbars \
			lc rgb "#1f77b4" pt 7 ps 0.7 \
			title (i == 1 || i == 3 ? "uMMAP-IO v2 (1/2 in memory)" : "")
}
unset multiplot
