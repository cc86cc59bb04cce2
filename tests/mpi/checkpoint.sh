#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Kills examples/mpi/checkpoint KILLS times (6), each time at another place of a sync or of the
# beginning, and has it go on:
# `tests/mpi/checkpoint.sh LAUNCH MPI RANKS PROGRAM`, in UMMAP_TEST_FOLDER. In the end it has the
# result of a run that was not killed.
# One kill in three leaves the other ranks a commit ahead of the one that has died, whatever the
# machine's load is.
launch=$1 mpi=$2 ranks=$3 program=$4
folder=${UMMAP_TEST_FOLDER:?} out=${UMMAP_TEST_FOLDER:?}/out
kills=${KILLS:-6} steps=$((10 * ${KILLS:-6} + 4))
preload=$(realpath "${program%/examples/mpi/*}/tests/mpi/$mpi/die.so") || exit 1

fail() { # sentence
	cat "$out"
	echo "checkpoint.sh: $*"
	exit 1
}

job() { # file, steps
	"$launch" "$mpi" "$ranks" "$program" "$1" "$2" > "$out" 2>&1
}

dying_job() { # kill, file, steps
	local where=(behind enter leave)
	truncate -s 0 "$folder/calls"
	truncate -s 4096 "$folder/calls"
	OPENMPI_PRELOAD=$preload MPICH_PRELOAD="$preload ${MPICH_PRELOAD:-}" \
		DIE_FILE=$folder/calls DIE_RANK=$(($1 % ranks)) \
		DIE_CALL=$((RANDOM % 40 + 1)) DIE_WHERE=${where[$1 % 3]} job "$2" "$3"
}

# The step after which all ranks went on; "": none has said one.
continued_from() {
	sed -n 's/^rank [0-9]* continues after step //p' "$out" | sort -u
	[ "$(sed -n 's/^rank [0-9]* continues after step //p' "$out" | sort -u | wc -l)" -le 1 ]
}

job "$folder/whole.%r" "$steps" || fail "a run that is not killed fails"
want=$(grep '^after step' "$out")
last=0 continued=0
for ((kill = 0; kill < kills; kill++)); do
	# The launcher of MPICH 4.2 sometimes returns 0 for a killed job.
	dying_job "$kill" "$folder/ring.%r" "$steps"
	! grep -q '^after step' "$out" || fail "kill $kill was to end the job"
	! grep -q 'cannot\|libummap-mpi:' "$out" || fail "kill $kill has led to an error"
	from=$(continued_from) || fail "ranks of run $kill went on after different steps"
	[ "${from:-$last}" -ge "$last" ] ||
		fail "run $kill went on after step $from, and step $last was durable"
	[ -z "$from" ] || continued=$((continued + 1))
	now=$(sed -n 's/^step \([0-9]*\) is durable$/\1/p' "$out" | tail -n 1)
	[ -z "$now" ] || last=$now
done
job "$folder/ring.%r" "$steps" || fail "the last run fails"
from=$(continued_from) || fail "ranks of the last run went on after different steps"
[ "${from:-0}" -ge "$last" ] ||
	fail "the last run went on after step ${from:-0}, and step $last was durable"
[ "$(grep '^after step' "$out")" = "$want" ] || fail "this was to be the result: $want"
! ls "$folder"/*.wal 2> /dev/null || fail "there are logs left"

refuse() { # sentence, file
	! job "$2" "$steps" || fail "nothing was refused: $1"
	grep -q "$1" "$out" || fail "this should have been said: $1"
}
ranks=$((ranks + 1)) refuse \
	"with $((ranks + 1)) ranks: it was written by a job of $ranks ranks" "$folder/ring.%r"
# A moment needs the files of all ranks.
mv "$folder/ring.0" "$folder/kept"
[ "$ranks" -eq 1 ] ||
	refuse 'its contents or its manifest .* are missing, and other ranks have' "$folder/ring.%r"
rm -f "$folder"/ring.0
mv "$folder/kept" "$folder/ring.0"
mv "$folder/ring.0.manifest" "$folder/kept"
refuse 'it is longer than the window.s part, and has no manifest' "$folder/ring.%r"
mv "$folder/kept" "$folder/ring.0.manifest"
job "$folder/ring.%r" "$steps" || fail "nothing has changed, and it fails"
[ "$(grep '^after step' "$out")" = "$want" ] || fail "what was refused has changed something"
echo "$kills kills, of which $continued left something to go on from; $want"
