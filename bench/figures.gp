# SPDX-License-Identifier: BSD-3-Clause
# Bars with errors, a graph for each part of a figure. Variables: parts, picture, title, and dir.
# The folder dir has part-1 to part-N, with a header row and columns of the median, least and
# greatest value of each series, and the names of the parts in titles.
columns = parts > 3 ? 3 : parts
rows = (parts + columns - 1) / columns
set terminal pngcairo size 560 * columns, 60 + 380 * rows font ",10"
set output picture
set multiplot layout rows, columns title title
set style data histograms
set style histogram errorbars gap 1 linewidth 1
set style fill solid 0.7
set grid ytics
set logscale y
set key outside bottom center horizontal maxrows 2 samplen 1
set xtics rotate by -20
names = "memory ummap mmap posix posix-direct mpiio mpi-window mpi-storage-window combined " . \
	"combined-auto mmap-single mmap-advised ummap-lifo ummap-2m ummap-2m-advised " . \
	"ummap-mapped ummap-told mmap-told posix-kept table 1s 1s-checkpoints 1s-each-task 2s " . \
	"2s-checkpoints sandia out-of-core disk disk-uffd disk-kernel far objects hdf5 " . \
	"hdf5-collective"
colour(name) = word("#7f7f7f #d62728 #2ca02c #1f77b4 #17becf #9467bd #bcbd22 #ff7f0e #e377c2 " . \
	"#f7b6d2 #98df8a #8c564b #ff9896 #ff9896 #8b0000 #e7298a #a50f15 #006d2c #08519c " . \
	"#7f7f7f #d62728 #ff9896 #a50f15 #1f77b4 #9ecae1 #2ca02c #d62728 #d62728 #ff9896 " . \
	"#2ca02c #1f77b4 #d62728 #1f77b4 #9ecae1", \
	sum [n = 1:words(names)] (word(names, n) eq name ? n : 0))
do for [p = 1:parts] {
	file = sprintf("%s/part-%d", dir, p)
	set title system(sprintf("sed -n %dp '%s/titles'", p, dir))
	head = system(sprintf("head -n 1 '%s'", file))
	# A part has no values if all runs took too long.
	if (words(head) == 1) { set multiplot next; continue }
	plot for [i = 2:words(head) - 2:3] file skip 1 using i:i + 1:i + 2:xtic(1) \
		title word(head, i) lc rgb colour(word(head, i))
}
unset multiplot
