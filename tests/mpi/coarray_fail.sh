#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# ummap cafrun: a job whose images fail is started again, and has the result of one whose images do not.
. "$(dirname "$0")/coarray_job"
# As `launch` would.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

cafrun() { # ARGUMENT ...
	LD_PRELOAD=${layer/${program%\/tests\/mpi\/*}\/libummap-mpi-$mpi.so.0/} UMMAP_GROUP=coarray.$$ LD_LIBRARY_PATH=${program%/tests/mpi/*}:${LD_LIBRARY_PATH:-} \
		tools/cafrun --path "$folder" -n "$ranks" "$@" > "$out" 2>&1
}

! cafrun --restarts 1 "$program" || fail "one restart was not to be enough"
grep -q '^ummap cafrun: images have died .*restart 1 of 1' "$out" || fail "the restart was to be told"
grep -q '^ummap cafrun: images have died .* no restarts left' "$out" || fail "the end was to be told"
cafrun --restarts 3 "$program" || fail "three restarts were to be enough"
[ "$(grep -c '^ummap-coarray: restarted from sync [1-9]' "$out")" -gt 0 ] ||
	fail "the sync from which the job restarted was to be reported"
grep -qw 'steps 60 total 1770 tries 3' "$out" || fail "the result was to be that without failures"
# A launcher that hangs once, after its images have died. It waits without a child.
if [ "$mpi" = openmpi ]; then
	rm -r "$folder"
	mkdir "$UMMAP_TEST_FOLDER/bin"
	mkfifo "$UMMAP_TEST_FOLDER/bin/never"
	cat > "$UMMAP_TEST_FOLDER/bin/mpirun.openmpi" << END
#!/usr/bin/env bash
"$(command -v mpirun.openmpi)" "\$@"
status=\$?
mkdir "$UMMAP_TEST_FOLDER/bin/once" 2> /dev/null || exit \$status
exec 3<> "$UMMAP_TEST_FOLDER/bin/never"
while :; do read -r line <&3; done
END
	chmod +x "$UMMAP_TEST_FOLDER/bin/mpirun.openmpi"
	PATH=$UMMAP_TEST_FOLDER/bin:$PATH cafrun --restarts 3 "$program" ||
		fail "a launcher that hangs was to be ended"
	grep -q '^ummap cafrun: mpirun.openmpi (process [0-9]*) has not ended within 30 seconds after its images: ending it' "$out" ||
		fail "the end of the launcher was to be told"
	grep -qw 'steps 60 total 1770 tries 3' "$out" ||
		fail "the result was to be that without failures"
fi
# By itself: also with the exit status that signals have, or more than there are.
for end in 'error 7' 'error 9' 'error 137' 'error 200' 'stop 9' 'stop 139'; do
	rm -r "$folder"
	# shellcheck disable=SC2086 # two words
	! cafrun --restarts 3 "$program" $end || fail "the program has ended with an error"
	! grep -q 'starting again' "$out" || fail "a program that ends by \"$end\" was not to be started again"
done

# What was stored before a stop, whose syncs are those at the beginning.
exported() { # order, image, how od shows it
	local tool=${program%/tests/mpi/*}/commands/ummap-caf
	"$tool" export "$folder" "$1" "$2" "$UMMAP_TEST_FOLDER/bytes" && od -An -v -w8 -t"$3" "$UMMAP_TEST_FOLDER/bytes" | sort -u | tr -d ' '
}
rm -r "$folder"
for code in '' 0; do
	cafrun "$program" stop ${code:+"$code"} || fail "stop is no error"
done
order=$("${program%/tests/mpi/*}/commands/ummap-caf" ls "$folder" | awk '$2 == 160000 { print $1 }')
for ((image = 1; image <= ranks; image++)); do
	[ "$(exported "$order" "$image" f8)" = 2 ] || fail "image $image has lost what it had stored before the stop"
done

# As if an image had noticed that another one has ended before the launcher did.
cat > "$folder/notices" << END
#!/bin/sh
mkdir "$folder/once" 2> /dev/null || exit 0
echo "libummap-mpi: cannot access the part of the window at rank 1: the rank has ended" >&2
exit 14
END
chmod +x "$folder/notices"
cafrun --mpi "$mpi" --restarts 1 "$folder/notices" || fail "what an image has noticed was to be enough"
grep -q 'starting again, restart 1 of 1' "$out" || fail "that restart was to be told"

refuse() { # sentence, ARGUMENT ...
	local sentence=$1
	shift
	! cafrun "$@" || fail "nothing was refused: $sentence"
	grep -q "^ummap cafrun: $sentence" "$out" || fail "this should have been said: $sentence"
}

refuse "cannot use '--restart': there is no such option" --restart 4 "$program"
refuse "cannot use --restarts 'many': it must be a number" --restarts many "$program"
refuse 'cannot run: there is no program' --restarts 1
refuse "cannot run '.*/none': it is no program" "$UMMAP_TEST_FOLDER/none"
refuse 'cannot tell the MPI' /bin/true
