# SPDX-License-Identifier: BSD-3-Clause
# Objects compared with plain files: medians of the ratios of pairs as boxes. Variables: medians,
# picture. More is better, except for gets, which are times.
set terminal pngcairo size 1200,420 font ",10"
set output picture
set datafile separator ","
set style fill solid 0.8 noborder
set boxwidth 0.6
set grid ytics
set yrange [0:*]
set xtics rotate by -35 nomirror noenhanced
set title "object / plain: rates, times of gets; " . \
	"plain / object: times of the skeleton application (ranks-chunk)"
plot medians every ::1 using 0:6:xtic(strcol(2) . " " . strcol(3)) with boxes \
	lc rgb "#1f77b4" notitle, 1 lc rgb "black" dt 2 notitle
