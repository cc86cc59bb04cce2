#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# pcaf_open_image: the coarrays of a run that has ended or died, and calls that are refused.
. "$(dirname "$0")/coarray_job"
layer=$other_layers
first=$folder second=$UMMAP_TEST_FOLDER/second before=$ranks

recover() { # images, NAME=VALUE ... -- ARGUMENT ...
	ranks=$1
	shift
	rm -rf "$second" && mkdir "$second"
	folder=$second job PCAF_RECOVER="$first" "$@" > "$out" 2>&1
}

refused() { # sentence, NAME=VALUE ... -- ARGUMENT ...
	rm -rf "$second" && mkdir "$second"
	folder=$second ranks=1 refuse "$1" PCAF_RECOVER="$first" "${@:2}"
}

! job -- die > "$out" 2>&1 || fail "the program does not end with an error"
recover $((before + 1)) -- || fail "the contents of the earlier run are wrong"
grep -q "^recovered $before$" "$out" || fail "nothing was recovered"
recover 1 -- || fail "the contents of the earlier run are wrong"
refused "the run had only images 1 to $before" -- image
refused 'for the copy has 4 bytes, and the coarray in PCAF_RECOVER has 240000' -- size
refused 'cannot find the coarray: the argument must be a whole coarray' -- array
refused 'cannot copy from an earlier run: PCAF_RECOVER is not set' PCAF_RECOVER= -- none
refused 'it is the folder of PCAF_PATH' PCAF_RECOVER="$second" -- none
refused "PCAF_RECOVER: cannot read the manifest '.*manifest': No such file" \
	PCAF_RECOVER="$UMMAP_TEST_FOLDER" -- none

# The files of the earlier run have not changed, so it continues.
ranks=$before
job -- > "$out" 2>&1 || fail "the first run does not continue"
recover $((before > 1 ? before - 1 : 2)) -- ended ||
	fail "the contents of a run that has ended by itself are wrong"
