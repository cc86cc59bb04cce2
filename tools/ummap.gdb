# SPDX-License-Identifier: BSD-3-Clause
# For debugging programs that use libummap: `gdb -x ummap.gdb PROGRAM`, or `source` it before `run`.
# The library pages by SIGSEGV after the first mapping, and by SIGBUS after the first mapping of the
# engine sigbus: gdb lets these signals pass. A signal that is no fault of a mapping is raised again
# by the library, and gdb stops at the instruction that caused it.
set breakpoint pending on

break ummap_debug_begin
commands
	silent
	handle SIGSEGV nostop noprint pass
	continue
end

break ummap_debug_begin_bus
commands
	silent
	handle SIGBUS nostop noprint pass
	continue
end

break ummap_debug_crash
commands
	silent
	handle SIGSEGV SIGBUS stop print pass
	# Other threads wait: their faults are not served any more.
	set scheduler-locking on
	continue
end
