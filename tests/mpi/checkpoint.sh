#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Kills examples/mpi/checkpoint KILLS times (6), each time at another call of a sync or of the
# start, and continues it: `tests/mpi/checkpoint.sh LAUNCH MPI RANKS PROGRAM`, in UMMAP_TEST_FOLDER.
# The last run must have the result of a run that was not killed. After one kill in three, the other
# ranks have one commit more than the rank that died, independent of the load of the machine.
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

# Prints the step after which all ranks have continued; "" if no rank has printed one.
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
	! grep -q '^after step' "$out" || fail "kill $kill did not end the job"
	! grep -q 'cannot\|libummap-mpi:' "$out" || fail "kill $kill caused an error"
	from=$(continued_from) || fail "the ranks of run $kill continued after different steps"
	[ "${from:-$last}" -ge "$last" ] ||
		fail "run $kill continued after step $from, but step $last was durable"
	[ -z "$from" ] || continued=$((continued + 1))
	now=$(sed -n 's/^step \([0-9]*\) is durable$/\1/p' "$out" | tail -n 1)
	[ -z "$now" ] || last=$now
done
job "$folder/ring.%r" "$steps" || fail "the last run fails"
from=$(continued_from) || fail "the ranks of the last run continued after different steps"
[ "${from:-0}" -ge "$last" ] ||
	fail "the last run continued after step ${from:-0}, but step $last was durable"
[ "$(grep '^after step' "$out")" = "$want" ] || fail "the result is not: $want"
! ls "$folder"/*.wal 2> /dev/null || fail "logs are left"

refuse() { # sentence, file
	! job "$2" "$steps" || fail "the job was not refused: $1"
	grep -q "$1" "$out" || fail "the output lacks: $1"
}
ranks=$((ranks + 1)) refuse \
	"with $((ranks + 1)) ranks: it was written by a job of $ranks ranks" "$folder/ring.%r"
# A checkpoint needs the files of all ranks.
mv "$folder/ring.0" "$folder/kept"
[ "$ranks" -eq 1 ] ||
	refuse 'its contents or its manifest .* are missing, and other ranks have' "$folder/ring.%r"
rm -f "$folder"/ring.0
mv "$folder/kept" "$folder/ring.0"
mv "$folder/ring.0.manifest" "$folder/kept"
refuse 'it is longer than the window.s part, and has no manifest' "$folder/ring.%r"
mv "$folder/kept" "$folder/ring.0.manifest"
job "$folder/ring.%r" "$steps" || fail "the job fails with the original files"
[ "$(grep '^after step' "$out")" = "$want" ] || fail "a refused job has changed the files"
echo "$kills kills, after $continued of which the job could continue; $want"
