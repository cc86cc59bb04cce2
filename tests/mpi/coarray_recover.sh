#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# pcaf_open_image: what a run has left that has ended, or died, and what is refused.
. "$(dirname "$0")/coarray_job"
layer=${layer/${program%\/tests\/mpi\/*}\/libummap-mpi-$mpi.so.0/}
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

! job -- die > "$out" 2>&1 || fail "it was to stop"
recover $((before + 1)) -- || fail "there is something else at the earlier images, or nothing"
grep -q "^recovered $before$" "$out" || fail "nothing was recovered"
recover 1 -- || fail "there is something else at the earlier images, or nothing"
refused "the run had only images 1 to $before" -- image
refused 'for the copy has 4 bytes, and the coarray in PCAF_RECOVER has 240000' -- size
refused 'cannot find the coarray: the argument must be a whole coarray' -- array
refused 'cannot copy from an earlier run: PCAF_RECOVER is not set' PCAF_RECOVER= -- none
refused 'it is the folder of PCAF_PATH' PCAF_RECOVER="$second" -- none
refused "PCAF_RECOVER: cannot read the manifest '.*manifest': No such file" PCAF_RECOVER="$UMMAP_TEST_FOLDER" -- none

# Nothing has changed there: the run goes on.
ranks=$before
job -- > "$out" 2>&1 || fail "the first run does not go on"
recover $((before > 1 ? before - 1 : 2)) -- ended || fail "what has ended by itself is not there"
