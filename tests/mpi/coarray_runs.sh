#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# A program without calls of the library continues where its last run has ended or died. The script
# also checks the messages of runs that cannot continue.
. "$(dirname "$0")/coarray_job"

run() { # number, NAME=VALUE ...
	local n=$1
	shift
	job "$@" > "$out" 2>&1 && grep -q "run $n$" "$out" || fail "this is not run $n"
}

# With consistent syncs, one run dies.
run 1
run 2
if [ "${PCAF_CONSISTENT:-}" != false ]; then
	! job -- die > "$out" 2>&1 || fail "the run has not died"
	! grep -q wrong: "$out" || fail "the contents are wrong"
fi
run 3
! ls "$folder"/*.wal 2> /dev/null || fail "there are logs left"

[ -n "${REFUSED:-}" ] || exit 0

# Image 1 prints an error once.
refuse 'PCAF_ENABLED is "yes": it must be' PCAF_ENABLED=yes
refuse 'PCAF_SYNCFREQ is "often": it must be a number of milliseconds' PCAF_SYNCFREQ=often
refuse 'PCAF_SEGSIZE is "5000": it must be auto, or a power of two' PCAF_SEGSIZE=5000
refuse 'PCAF_PATH is ".*/none": it must be a folder' PCAF_PATH="$folder/none"
refuse 'PCAF_PREFIX is "a/b": it must be' PCAF_PREFIX=a/b
refuse 'UMMAP_ENGINE is "tape": it must be' UMMAP_ENGINE=tape
refuse "cannot find the driver 'tape'" PCAF_PREFIX=tape UMMAP_DRIVER=tape
refuse "cannot use UMMAP_DRIVER 'wal+posix': PCAF_CONSISTENT=true adds wal+" UMMAP_DRIVER=wal+posix
refuse 'PCAF_PATH is not set' PCAF_PATH=
refuse 'were created with PCAF_SHAREDFILE=false' PCAF_SHAREDFILE=true
strip -o "$UMMAP_TEST_FOLDER/bare" "$program"
if [ "${CAF:-}" = static ]; then
	program=$UMMAP_TEST_FOLDER/bare refuse 'cannot find libcaf .*: the symbols were removed'
fi

# Programs and numbers of images that do not match the files.
cp "$program" "$UMMAP_TEST_FOLDER/other"
program=$UMMAP_TEST_FOLDER/other \
	refuse "are of the program \"$(basename "$program")\" (.*), and this is \"other\""
ranks=$((ranks + 1)) refuse "of a run with $ranks images, and this one has $((ranks + 1))"
mkdir "$UMMAP_TEST_FOLDER/changed"
cp "${program/runs/kill}" "$UMMAP_TEST_FOLDER/changed/$(basename "$program")"
program=$UMMAP_TEST_FOLDER/changed/$(basename "$program") \
	refuse 'are of the program .*, and this is' -- 1
sed -i.right 's/^images.*/images 7/' "$folder"/OpenCoarrays_manifest
refuse "cannot use the manifest '.*': its contents do not have its checksum"
mv "$folder"/OpenCoarrays_manifest.right "$folder"/OpenCoarrays_manifest

# Files that the manifest lists are missing: all of them, or those of one image.
mkdir "$UMMAP_TEST_FOLDER/gone"
for which in '*' '1_*'; do
	for file in "$folder"/OpenCoarrays_$which; do
		case $file in
		*manifest* | *lock*) ;;
		*) mv "$file" "$UMMAP_TEST_FOLDER/gone" ;;
		esac
	done
	[ "$(ls "$UMMAP_TEST_FOLDER/gone")" ] || fail "no file fits OpenCoarrays_$which"
	refuse "cannot go on from the coarrays in PCAF_PATH: '.*' of image [0-9]* is missing"
	mv "$UMMAP_TEST_FOLDER"/gone/* "$folder"
done

# A folder that another job uses, and one without the right to write.
endless=${program/runs/kill}
EXEC=exec program=$endless job PCAF_PREFIX=other_ -- 1000000 > "$UMMAP_TEST_FOLDER/first" 2>&1 &
first=$!
until grep -q '^step' "$UMMAP_TEST_FOLDER/first"; do
	kill -0 "$first" || fail "the first of two jobs has ended"
	sleep 0.1
done
program=$endless refuse 'cannot use the coarrays in PCAF_PATH .* of another job uses them' \
	PCAF_PREFIX=other_ -- 1
kill_images
wait "$first" 2> /dev/null
refuse "cannot open '.*' for reading and writing" PCAF_PATH=/proc/self

# Storage that fails.
refuse 'Input/output error' PCAF_PREFIX=error_ PCAF_CONSISTENT=false \
	UMMAP_DRIVER='error+posix:?error.op=write&error.nth=9'
run 4
