# SPDX-License-Identifier: BSD-3-Clause
# Completes the arguments of umrun, umtop, umwal, umcow, umcache, ummap-cache, umobject, ummap-trace, ummap-timeline, ummap-caf, ummap-cafrun and driver-conform in bash.
# Installed once under the name of each.
# shellcheck shell=bash

# Options are those that the program's --help names.
_ummap_options() { # program
	"$1" --help 2> /dev/null | grep -oE -- '(^|[][ |])--[a-z][a-z-]*' | tr -d '][ |' | sort -u
}

_ummap_complete() { # program, word, the word before
	local words=() file=
	case ${1##*/}:$3 in
	umtop:-s | umtop:--sort)
		read -ra words <<< "$("$1" --help | sed -n '/--sort/,/(held)/{s/.*by one of: //;s/(held)//;s/,/ /g;p}' | tr '\n' ' ')"
		;;
	umtop:-n | umtop:--count | umtop:-d | umtop:--delay | umtop:-g | umtop:--group | umtop:-f | umtop:--filter) ;;
	driver-conform:--only) mapfile -t words < <("$1" --list | cut -d' ' -f1) ;;
	driver-conform:--size | driver-conform:--seed | driver-conform:--free | driver-conform:--beside | driver-conform:--seconds) ;;
	ummap-timeline:--run | ummap-caf:--prefix | ummap-cafrun:-n | ummap-cafrun:--restarts | ummap-cafrun:--mpirun) ;;
	umrun:--limit | umrun:--heap-min | umrun:--segment | umrun:--policy | umrun:--driver | umrun:--engine | umrun:--only | umrun:--min) ;;
	umobject:--keep | umobject:--dims | umobject:--chunk | umobject:--attribute) ;;
	umobject:--type) words=(int8 uint8 int16 uint16 int32 uint32 int64 uint64 float double ldouble) ;;
	ummap-cafrun:--mpi) words=(openmpi mpich) ;;
	ummap-cafrun:--path | umrun:--heap | ummap-cafrun:--recover | ummap-trace:-o | ummap-trace:--output | ummap-timeline:-o | ummap-timeline:--output | umwal:--log | umwal:ls | umwal:check | umwal:apply | umwal:back | umwal:drop | \
		umcow:--changes | umcow:ls | umcow:commit | umcow:discard | \
		umcache:--cache | umcache:ls | umcache:flush | umcache:drop)
		file=yes
		;;
	*)
		if [[ $2 = -* ]]; then
			mapfile -t words < <(_ummap_options "$1")
		elif [ "${1##*/}" = umwal ]; then
			words=(ls check apply back drop)
		elif [ "${1##*/}" = umcow ]; then
			words=(ls commit discard)
		elif [ "${1##*/}" = umcache ] || [ "${1##*/}:$3" = ummap-cache:ummap-cache ]; then
			words=(ls flush drop)
		elif [ "${1##*/}:$3" = umobject:umobject ]; then
			words=(create put get export ls stat rm cp gc check)
		elif [ "${1##*/}:$3" = ummap-caf:ummap-caf ]; then
			words=(ls show export)
		elif [[ ${1##*/} = ummap-[ct]* || ${1##*/} = umrun || ${1##*/} = umobject ]]; then
			file=yes
		fi
		;;
	esac
	if [ "$file" ]; then
		mapfile -t COMPREPLY < <(compgen -f -- "$2")
		compopt -o filenames 2> /dev/null
	else
		mapfile -t COMPREPLY < <(compgen -W "${words[*]}" -- "$2")
	fi
}

complete -F _ummap_complete umrun umtop umwal umcow umcache ummap-cache umobject ummap-trace ummap-timeline ummap-caf ummap-cafrun driver-conform
