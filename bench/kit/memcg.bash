# SPDX-License-Identifier: BSD-3-Clause
# For benchmarks that run programs, each in its own memory cgroup (v1 or v2) of $memory bytes, with
# a cold page cache. $work is a folder for data, which is removed at the end.
work=$(mktemp -d "${TMPDIR:-/var/tmp}/ummap-bench-XXXXXX") || exit 2
if [ -e /sys/fs/cgroup/memory/memory.limit_in_bytes ]; then
	group=/sys/fs/cgroup/memory/ummap-bench.$$
	bound=memory.limit_in_bytes peak=memory.max_usage_in_bytes
else
	group=/sys/fs/cgroup/ummap-bench.$$ bound=memory.max peak=memory.peak
fi

end_memcg() {
	local pid
	for pid in $(cat "$group/cgroup.procs" 2> /dev/null); do kill -9 "$pid"; done
	[ ! -e "$work/swap" ] || swapoff "$work/swap" 2> /dev/null
	rmdir "$group" 2> /dev/null
	rm -rf "$work"
}
trap end_memcg EXIT

# SECONDS COMMAND ...: runs the command for at most this time. Its output is in $work/said and
# $work/log. Sets rc, seconds, peak_mib, and result, which is equal for runs with equal output.
run_in_memcg() {
	local most=$1 start end
	shift
	mkdir "$group" && echo "$memory" > "$group/$bound" || exit 2
	sync
	echo 3 > /proc/sys/vm/drop_caches
	start=$(date +%s.%N)
	(echo "$BASHPID" > "$group/cgroup.procs"
		LC_ALL=C timeout "$most" "$@" > "$work/said" 2> "$work/log")
	rc=$?
	end=$(date +%s.%N)
	seconds=$(awk "BEGIN { printf \"%.3f\", $end - $start }")
	peak_mib=$(($(cat "$group/$peak") >> 20))
	result=$(md5sum < "$work/said" | cut -c1-8)
	until rmdir "$group" 2> /dev/null; do sleep 0.1; done
}
