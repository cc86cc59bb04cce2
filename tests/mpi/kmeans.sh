#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The centers are those that awk finds, also if ranks are killed. Coordinates are integers, so their
# sums are exact.
set -u
. tests/mpi/mapreduce.bash

awk 'BEGIN { srand(3); for (i = 0; i < 6000; i++)
	printf "%d %d\t%d\n", rand() * 1000 + i % 4 * 800, rand() * 1000, i % 4 * 700 }' > "$in"
cat > "$folder/kmeans.awk" <<'PROGRAM'
{ for (d = 1; d <= 3; d++) x[NR, d] = $d }
END {
	for (k = 1; k <= 4; k++) for (d = 1; d <= 3; d++) center[k, d] = x[k, d]
	for (run = moved = 1; moved && run <= 100; run++) {
		moved = 0
		for (k = 1; k <= 4; k++) count[k] = sum[k, 1] = sum[k, 2] = sum[k, 3] = 0
		for (i = 1; i <= NR; i++) {
			least = -1
			for (k = 1; k <= 4; k++) {
				far = 0
				for (d = 1; d <= 3; d++) far += (x[i, d] - center[k, d]) ^ 2
				if (least < 0 || far < least) { least = far; best = k }
			}
			count[best]++
			for (d = 1; d <= 3; d++) sum[best, d] += x[i, d]
		}
		for (k = 1; k <= 4; k++) for (d = 1; d <= 3; d++) {
			moved += center[k, d] != sum[k, d] / count[k]
			center[k, d] = sum[k, d] / count[k]
		}
	}
	for (k = 1; k <= 4; k++)
		printf "%d %.9g %.9g %.9g\n", count[k], center[k, 1], center[k, 2], center[k, 3]
}
PROGRAM
awk -f "$folder/kmeans.awk" "$in" > "$want"

for ranks in 1 2 3 5; do by_ranks $ranks; matches -k 4 -t 10K "$in"; done
by_ranks 3
killed matches -k 4 -t 20K "$in"

# The second cluster moves and loses all its points, while other clusters still move. A job that is
# continued after that must know its center. The job waits for a reader of its result.
printf '13 2\n9 1\n17 12\n6 19\n1 14\n4 16\n2 15\n15 2\n' > "$in"
printf '%s\n' "4 13.5 4.25" "0 5 7.5" "4 3.25 16" > "$want"
matches -k 3 "$in"
mkfifo "$folder/pipe"
"${launch[@]}" -n 3 -k 3 -s "$folder/windows" --sync 1 -o "$folder/pipe" "$in" \
	> "$folder/out" 2>&1 &
for ((tries = 0; tries < 600; tries++)); do
	[ "$(grep -c done "$folder/out")" -lt 3 ] || break
	sleep 0.1
done
# shellcheck disable=SC2046 # one word for each
kill -9 $(ranks_of $!) 2> /dev/null
await $! && wrong "nothing was interrupted"
matches -k 3 -s "$folder/windows" --sync 1 "$in"

by_ranks 1
expect 0 "usage: kmeans [options]" --help
expect 1 "cannot use line 1 of '/dev/null' as an initial center: there is no such line" /dev/null
expect 1 "cannot read '$folder/nothing': No such file" "$folder/nothing"
expect 2 "cannot use '1001' for -k: the value is invalid" -k 1001 "$in"
printf '1 2\n3 4\n5\n' > "$in"
expect 1 "the line at byte 8 does not have 2 numbers" "$in"
printf '1 2\n3\n5 6\n' > "$in"
expect 1 "cannot use line 2 of '$in' as an initial center: it does not have as many numbers" "$in"
printf '1 2\n3 4\nnan 6\n' > "$in"
expect 1 "the line at byte 8 does not have 2 numbers" "$in"
printf '1 2\n3 4\n5%20000000s6\n' "" > "$in"
printf '%s\n' "1 1 2" "2 4 5" > "$want"
matches "$in"
