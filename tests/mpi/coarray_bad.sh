#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Runs that continue with PCAF_FORCE although they do not match the files, missing files, and
# folders without space or without the right to write.
. "$(dirname "$0")/coarray_job"

runs() { # line, NAME=VALUE ... -- ARGUMENT ...
	local line=$1
	shift
	job "$@" > "$out" 2>&1 || fail "the program fails"
	grep -q "^$line$" "$out" || fail "the output lacks the line: $line"
}

# ---- PCAF_FORCE ----

runs 'from 0 same 0 field 0' -- 3
refuse 'of 200000 bytes: the one in PCAF_PATH has 160000 bytes' -- 3 50000
# Only coarrays that differ begin anew.
runs 'from 3 same 3 field 0' PCAF_FORCE=true -- 3 50000
runs 'from 6 same 6 field 6' -- 3 50000
cp "$program" "$UMMAP_TEST_FOLDER/other"
program=$UMMAP_TEST_FOLDER/other runs 'from 9 same 9 field 9' PCAF_FORCE=true -- 3 50000
refuse 'are of the program "other"' -- 3 50000
# An additional image begins anew. With fewer images, the remaining ones continue.
ranks=$((ranks + 1)) runs 'from 12 same 12 field 12' PCAF_FORCE=true -- 3 50000
ranks=1 runs 'from 15 same 15 field 15' PCAF_FORCE=true -- 3 50000
ranks=1 runs 'from 18 same 18 field 18' -- 3 50000
ls "$folder"/OpenCoarrays_"$ranks"_*.win > /dev/null ||
	fail "the files of images that this run does not have were removed"

# ---- A file that is missing ----

runs 'from 0 same 0 field 0' PCAF_PREFIX=whole_ -- 3
whole=$(find "$folder" -name "whole_${ranks}_*" -size +63M)
mv "$whole" "$UMMAP_TEST_FOLDER/whole"
missing="'$whole' of image $ranks is missing, although '.*' of $ranks images lists it"
refuse "cannot go on from the coarrays in PCAF_PATH: $missing" PCAF_PREFIX=whole_ -- 3
mv "$UMMAP_TEST_FOLDER/whole" "$whole"
runs 'from 3 same 3 field 3' PCAF_PREFIX=whole_ -- 3

# ---- A job that ended in its first sync ----

# The manifest lists coarrays whose files exist, but have no contents.
! job PCAF_PREFIX=first_ PCAF_CONSISTENT=false UMMAP_DRIVER='error+posix:?error.op=write' -- 3 \
	> "$out" 2>&1 || fail "the first sync does not fail"
grep -q '^coarray 0 ' "$folder/first_manifest" || fail "the manifest does not list the coarrays"
runs 'from 0 same 0 field 0' PCAF_PREFIX=first_ PCAF_CONSISTENT=false -- 3

# ---- A manifest that is missing ----

runs 'from 0 same 0 field 0' PCAF_PREFIX=lost_ -- 3
rm "$folder/lost_manifest"
runs 'from 3 same 3 field 3' PCAF_PREFIX=lost_ -- 3
grep -q "lost_manifest' is missing; using the copy of image 1" "$out" ||
	fail "the message does not name the copy"
[ -e "$folder/lost_manifest" ] || fail "the manifest was not restored"
rm "$folder/lost_manifest"
"$build/commands/ummap-caf" --prefix lost_ ls "$folder" |
	grep -q "program ${program##*/}, $ranks images" ||
	fail "ummap caf does not find the copy"
rm "$folder"/lost_*.manifest-copy
sums() { find "$folder" -name 'lost_*.win' -exec cksum {} + | sort; }
before=$(sums)
refuse "lost_[0-9_]*.win' has contents, but 'lost_manifest' and its copies are missing" \
	PCAF_PREFIX=lost_ -- 3
# Coarrays that only serve as memory do not change the files.
runs 'from 0 same 0 field 0' PCAF_PREFIX=lost_ PCAF_UNLINK=true -- 3
[ "$(sums)" = "$before" ] || fail "files without a manifest were changed"
runs 'from 0 same 0 field 0' PCAF_PREFIX=lost_ PCAF_FORCE=true -- 3
runs 'from 3 same 3 field 3' PCAF_PREFIX=lost_ PCAF_UNLINK=false -- 3
runs 'from 0 same 0 field 0' PCAF_PREFIX=lost_ PCAF_UNLINK=true -- 3
runs 'from 6 same 6 field 6' PCAF_PREFIX=lost_ -- 3
# Each image has its own folder, as on machines without a common file system. Image 1 loses its
# manifest and its copy.
export apart=$UMMAP_TEST_FOLDER/apart
cat > "$apart" << END
#!/bin/sh
export PCAF_PATH=$apart.\${OMPI_COMM_WORLD_RANK:-\$PMI_RANK}
mkdir -p "\$PCAF_PATH"
exec "$program" "\$@"
END
chmod +x "$apart"
program=$apart runs 'from 0 same 0 field 0' -- 3 40000 agree
rm "$apart.0"/*manifest*
program=$apart runs 'from 3 same 3 field 3' -- 3 40000 agree
grep -q 'is missing; using the copy of image 2' "$out" ||
	fail "the copy of another image is not used"
rm "$apart".*/*manifest*
program=$apart refuse 'has contents, but .* and its copies are missing' -- 3 40000 agree
# A job that was killed before its first sync has stored nothing, so another job may begin there.
runs 'from 0 same 0 field 0' PCAF_PREFIX=none_ -- 0
for file in "$folder"/none_*.win; do : > "$file"; done
rm "$folder"/none_*manifest*
ranks=$((ranks + 1)) runs 'from 0 same 0 field 0' PCAF_PREFIX=none_ -- 3

# ---- Another program of the same name ----

runs 'from 0 same 0 field 0' PCAF_PREFIX=same_ -- 3
mkdir "$UMMAP_TEST_FOLDER/same"
again=$UMMAP_TEST_FOLDER/same/${program##*/}
cp "${program/bad/kill}" "$again"
name="\"${program##*/}\" ([0-9]* bytes, build ID [0-9a-f]*)"
program=$again refuse "are of the program $name, and this is $name" PCAF_PREFIX=same_ -- 3
# A program without symbols is the same program.
if [ "${CAF:-}" != static ]; then
	strip -o "$again" "$program"
	program=$again runs 'from 3 same 3 field 3' PCAF_PREFIX=same_ -- 3
fi

# ---- A program that was removed or compiled again since it was started ----

removed=$UMMAP_TEST_FOLDER/removed
cat > "$removed" << END
#!/bin/sh
own=$removed.\$\$ name=${program##*/}
mkdir "\$own" && cp "$program" "\$own" && exec 3< "\$own/\$name" || exit 1
rm -r "\$own"
exec /proc/self/fd/3 "\$@"
END
chmod +x "$removed"
program=$removed runs 'from 0 same 0 field 0' PCAF_PREFIX=removed_ -- 3
runs 'from 3 same 3 field 3' PCAF_PREFIX=removed_ -- 3
program=$removed runs 'from 6 same 6 field 6' PCAF_PREFIX=removed_ -- 3

# ---- Prefixes with which files have the same names ----

for prefix in run run1_ run11 a1_; do
	shared=false
	[ "$prefix" != a1_ ] || shared=true
	runs 'from 0 same 0 field 0' PCAF_PREFIX="$prefix" PCAF_SHAREDFILE="$shared" -- 1
done
# The files of image 1 of "run" begin as those of "run1_", if these are one for each image. "run1"
# may have an image 11.
refuse "cannot use PCAF_PREFIX 'a' .* with prefix 'a1_'" PCAF_PREFIX=a -- 1
refuse "cannot use PCAF_PREFIX 'run2_' .* with prefix 'run'" \
	PCAF_PREFIX=run2_ PCAF_SHAREDFILE=true -- 1
ranks=11 refuse "cannot use PCAF_PREFIX 'run1' with 11 images.* with prefix 'run11'" \
	PCAF_PREFIX=run1 -- 1
for prefix in run1 run01_ "run$((ranks + 1))_" a; do
	runs 'from 0 same 0 field 0' PCAF_PREFIX="$prefix" PCAF_SHAREDFILE=true -- 1
done
for prefix in run run1_ run11; do
	runs 'from 1 same 1 field 1' PCAF_PREFIX="$prefix" -- 1
done
runs 'from 1 same 1 field 1' PCAF_PREFIX=a1_ PCAF_SHAREDFILE=true -- 1

# As long as the manifest cannot be replaced, the files that it names do not change.
mkdir "$folder/OpenCoarrays_manifest.new"
ranks=1 refuse "cannot write the manifest '.*OpenCoarrays_manifest': Is a directory" \
	PCAF_FORCE=true -- 3 40000
rmdir "$folder/OpenCoarrays_manifest.new"
ranks=1 runs 'from 21 same 21 field 21' -- 3 50000

# ---- No right to write ----

mkdir "$UMMAP_TEST_FOLDER/closed"
chmod 555 "$UMMAP_TEST_FOLDER/closed"
# root may write anyway, unless it drops these capabilities.
drop=() capabilities=-dac_override,-dac_read_search
[ "$(id -u)" -ne 0 ] || drop=(setpriv --bounding-set=$capabilities --inh-caps=$capabilities)
launch_without_rights() { "${drop[@]}" "$launcher" "$@"; }
launcher=$launch launch=launch_without_rights
refuse "cannot open '.*closed/OpenCoarrays_1.lock' for reading and writing: Permission denied" \
	PCAF_PATH="$UMMAP_TEST_FOLDER/closed" -- 3
mkdir "$UMMAP_TEST_FOLDER/half"
launch=$launcher
runs 'from 0 same 0 field 0' PCAF_PATH="$UMMAP_TEST_FOLDER/half" -- 3
chmod 555 "$UMMAP_TEST_FOLDER/half"
launch=launch_without_rights
refuse 'Permission denied' PCAF_PATH="$UMMAP_TEST_FOLDER/half" -- 3
launch=$launcher
chmod 755 "$UMMAP_TEST_FOLDER/half"
runs 'from 3 same 3 field 3' PCAF_PATH="$UMMAP_TEST_FOLDER/half" -- 3

# ---- A full disk ----

# The mount exists only within its own namespace.
if [ "$(id -u)" -ne 0 ] || ! unshare --mount true 2> /dev/null; then
	echo "the tests of a full disk are skipped: they need root"
	exit 0
fi
on_small() { # script
	local mount="mount -t tmpfs -o size=$((2 * ranks))M small '$small'"
	unshare --mount bash -c "$mount || exit 1; $1"
}
small=$UMMAP_TEST_FOLDER/small
mkdir "$small"
export mixed=$UMMAP_TEST_FOLDER/mixed
# Only the last image has its files there. When it fails, the other images have completed this sync,
# and must go back.
cat > "$mixed" << END
#!/bin/sh
[ "\${OMPI_COMM_WORLD_RANK:-\$PMI_RANK}" -ne $((ranks - 1)) ] || export PCAF_PATH=$small
exec "$program" "\$@"
END
chmod +x "$mixed"
fill() { # bytes that stay free
	fallocate -l "$(($(stat -f -c '%a * %S' "$small") - $1))" "$small/filler" ||
		fail "the disk cannot be filled"
}
export -f job fail runs refuse fill
export launch mpi ranks program folder layer out small
folder=$small on_small '
	set -u
	# The pool has holes, so steps fill the disk. The last common sync remains.
	job -- 3 > "$out" 2>&1 || fail "the program fails with enough space"
	fill 100000
	refuse "No space left on device" -- 1000
	last=$(sed -n "s/^step //p" "$out" | tail -n 1)
	rm "$small/filler"
	job -- 3 > "$out" 2>&1 || fail "the program does not continue with enough space"
	from=$(sed -n "s/^from \([0-9]*\) same \1 field \1$/\1/p" "$out")
	[ -n "$from" ] && [ "$from" -ge "${last:-3}" ] ||
		fail "the program has continued from ${from:-several steps}, not from ${last:-3}"
	# A disk that is full from the beginning.
	rm -f "$small"/*
	fill 0
	refuse "No space left on device" -- 3
	rm "$small"/*
	job -- 3 > "$out" 2>&1 || fail "the program does not begin with enough space"
' || exit 1
on_small '
	set -u
	export PCAF_PREFIX=agree_
	program=$mixed job -- 3 40000 agree > "$out" 2>&1 ||
		fail "the program fails with enough space"
	fill 1000000
	program=$mixed refuse "No space left on device" -- 1000 40000 agree
	rm "$small/filler"
	program=$mixed job -- 3 40000 agree > "$out" 2>&1 ||
		fail "the images have not gone back to a common sync"
	grep -q "^from [1-9][0-9]* " "$out" || fail "the program has begun anew"
' || exit 1
