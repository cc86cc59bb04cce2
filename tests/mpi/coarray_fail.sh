#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# ummap cafrun restarts a job whose images have died, and the result is that of a job without
# failures.
. "$(dirname "$0")/coarray_job"

cafrun() { # ARGUMENT ...
	run_cafrun --path "$folder" -n "$ranks" "$@" > "$out" 2>&1
}

has_said() { # pattern
	grep -q "^ummap cafrun: $1" "$out" || fail "the output lacks this message: $1"
}

! cafrun --restarts 1 "$program" || fail "one restart is enough"
has_said 'images have died .*restart 1 of 1'
has_said 'images have died .* no restarts left'
cafrun --restarts 3 "$program" || fail "three restarts are not enough"
[ "$(grep -c '^ummap-coarray: restarted from sync [1-9]' "$out")" -gt 0 ] ||
	fail "the output lacks the sync from which the job has restarted"
grep -qw 'steps 60 total 1770 tries 3' "$out" || fail "the result is wrong"
# A launcher that hangs once after its images have died. It waits without a child.
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
		fail "a launcher that hangs is not ended"
	has_said 'mpirun.openmpi (process [0-9]*) has not ended within 30 seconds after its images'
	grep -qw 'steps 60 total 1770 tries 3' "$out" || fail "the result is wrong"
fi
# Programs that end by themselves, also with exit statuses that signals have, or larger ones.
for end in 'error 7' 'error 9' 'error 137' 'error 200' 'stop 9' 'stop 139'; do
	rm -r "$folder"
	# shellcheck disable=SC2086 # two words
	! cafrun --restarts 3 "$program" $end || fail "the error of a program is lost"
	! grep -q 'starting again' "$out" || fail "a program is started again after \"$end\""
done

# The contents that were stored before a `stop`, without a sync. Memory does not hold them all.
print_contents() { # order, image, format of od
	UMMAP_GROUP=export.$$ UMMAP_MEM_LIMIT=64K UMMAP_SEG_SIZE=4K \
		"$build/commands/ummap-caf" export "$folder" "$1" "$2" "$UMMAP_TEST_FOLDER/bytes" &&
		od -An -v -w8 -t"$3" "$UMMAP_TEST_FOLDER/bytes" | sort -u | tr -d ' '
}
rm -r "$folder"
for code in '' 0; do
	cafrun "$program" stop ${code:+"$code"} || fail "stop is no error"
done
order=$("$build/commands/ummap-caf" ls "$folder" | awk '$2 == 160000 { print $1 }')
for ((image = 1; image <= ranks; image++)); do
	[ "$(print_contents "$order" "$image" f8)" = 2 ] ||
		fail "image $image has lost contents that were stored before the stop"
done

# A program that ends like an image which notices the death of another one before the launcher does.
cat > "$folder/notices" << END
#!/bin/sh
mkdir "$folder/once" 2> /dev/null || exit 0
echo "libummap-mpi: cannot access the part of the window at rank 1: the rank has ended" >&2
exit 14
END
chmod +x "$folder/notices"
# Its message arrives late, as on a busy machine.
mkdir -p "$UMMAP_TEST_FOLDER/late"
printf '#!/bin/sh\nsleep 1\nexec %s "$@"\n' "$(command -v tee)" > "$UMMAP_TEST_FOLDER/late/tee"
chmod +x "$UMMAP_TEST_FOLDER/late/tee"
PATH=$UMMAP_TEST_FOLDER/late:$PATH cafrun --mpi "$mpi" --restarts 1 "$folder/notices" ||
	fail "the job is not restarted after an image has noticed a death"
has_said 'images have died .*: starting again, restart 1 of 1'

refuse() { # message, ARGUMENT ...
	! cafrun "${@:2}" || fail "this is not refused: $1"
	has_said "$1"
}

refuse "cannot use '--restart': there is no such option" --restart 4 "$program"
refuse "cannot use --restarts 'many': it must be a number" --restarts many "$program"
refuse 'cannot run: there is no program' --restarts 1
refuse "cannot run '.*/none': it is no program" "$UMMAP_TEST_FOLDER/none"
refuse 'cannot tell the MPI' /bin/true
