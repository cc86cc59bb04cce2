#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# A program that knows nothing of storage goes on where its last run has ended, or died; and what it is told where it cannot.
. "$(dirname "$0")/coarray_job"

run() { # which of them, NAME=VALUE ...
	local n=$1
	shift
	job "$@" > "$out" 2>&1 && grep -q "^ *run $n$" "$out" || fail "this should have been run $n"
}

refuse() { # sentence, how often, NAME=VALUE ...
	local sentence=$1
	shift
	! job "$@" > "$out" 2>&1 || fail "nothing was refused: $sentence"
	[ "$(grep -c "ummap-coarray: image [0-9]*: .*$sentence" "$out")" -eq 1 ] || fail "this should have been said once: $sentence"
}

# With consistent syncs, one run dies on the way.
run 1
run 2
if [ "${PCAF_CONSISTENT:-}" != false ]; then
	! job -- die > "$out" 2>&1 || fail "this run should have died"
	grep -q 'as it was told' "$out" || fail "this run should have died as it was told"
fi
run 3
! ls "$folder"/*.wal 2> /dev/null || fail "there are logs left"

# What does not match.
if [ -n "${MISMATCH:-}" ]; then
	refuse 'PCAF_ENABLED is "yes": it must be' PCAF_ENABLED=yes
	refuse 'PCAF_SYNCFREQ is "often": it must be a number of milliseconds' PCAF_SYNCFREQ=often
	refuse 'PCAF_SEGSIZE is "5000": it must be a power of two' PCAF_SEGSIZE=5000
	refuse 'PCAF_PATH is ".*/none": it must be a folder' PCAF_PATH="$folder/none"
	refuse 'PCAF_PATH, the folder for the coarrays.* files, is missing' PCAF_PATH=
	refuse 'made with PCAF_SHAREDFILE=false' PCAF_SHAREDFILE=true
	cp -r "$folder" "$folder.copy"
	sed -i 's/^program .*/program other/' "$folder"/*manifest
	refuse 'the manifest is damaged'
	cp "$folder.copy"/*manifest "$folder"
	change() { # expression for sed
		sed -e "$1" -e '/^check/d' "$folder.copy"/OpenCoarrays_manifest > "$folder/body"
		printf '%scheck %s\n' "$(cat "$folder/body"; echo x)" "$(xxh "$folder/body")" | sed 's/xcheck/check/' > "$folder/OpenCoarrays_manifest"
	}
	ranks=$((ranks + 1)) refuse "of a run with $ranks images, and this one has $((ranks + 1))"
	run 4
fi
