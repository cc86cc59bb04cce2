#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Kills a coarray job at random moments, ROUNDS times (5): one image, all images, or the launcher,
# in turns. The contents of the next run must be of one step, and not of an earlier one than the
# last step that was printed; with PCAF_ASYNC=true, than the step before.
. "$(dirname "$0")/coarray_job"

kill_some() { # round, process of the launcher
	local pids
	read -ra pids <<< "$(list_images | tr '\n' ' ')"
	case $(($1 % 3)) in
	0) kill -9 "${pids[RANDOM % ${#pids[@]}]}" ;;
	1) kill -9 "${pids[@]}" ;;
	2) kill -9 "$2" ;;
	esac 2> /dev/null
}

# Prints the step that a restart would find in the files of an image, a coarray of four bytes.
step_of() { # image
	local tool=$build/commands/ummap-caf order
	order=$("$tool" ls "$folder" | awk '$2 == 4 { print $1 }') &&
		"$tool" export "$folder" "$order" "$1" "$UMMAP_TEST_FOLDER/step" &&
		od -An -td4 "$UMMAP_TEST_FOLDER/step" | tr -d ' '
}

last=0 rounds=${ROUNDS:-5} lag=0
[ "${PCAF_ASYNC:-}" != true ] || lag=1
for ((round = 0; round < rounds; round++)); do
	: > "$out"
	EXEC=exec job -- 1000000 > "$out" 2>&1 &
	launcher=$!
	until grep -q '^step' "$out"; do
		kill -0 "$launcher" 2> /dev/null || fail "the job ended by itself"
		sleep 0.05
	done
	sleep "0.$((RANDOM % 4))$((RANDOM % 10))"
	kill_some "$round" "$launcher"
	{ [ $((round % 3)) -ne 2 ] || kill_images; wait "$launcher"; } 2> /dev/null
	kill_images
	from=$(sed -n 's/^from //p' "$out")
	# A launcher that is killed may lose the last lines.
	[ "$from" -ge $((last - lag)) ] || fail "round $round began with step $from, after $last"
	last=$(sed -n 's/^step //p' "$out" | tail -n 1)
	for ((image = 1; image <= ranks; image++)); do
		step=$(step_of "$image") && [ "$step" -ge $((last - lag)) ] &&
			[ "$step" -eq "$(step_of 1)" ] ||
			fail "the files of image $image are of step ${step:-none}, after $last"
	done
done
job -- $((last + 2)) > "$out" 2>&1 || fail "the last job has failed"
grep -q "^step $((last + 2))$" "$out" || fail "the last job has not made its last step"
# A job that has ended by itself leaves no logs.
! ls "$folder"/*.wal 2> /dev/null || fail "there are logs left"
echo "$rounds rounds, $last steps"
