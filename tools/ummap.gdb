# SPDX-License-Identifier: BSD-3-Clause
# For debugging programs that use libummap: `gdb -x ummap.gdb PROGRAM`, or `source` it before `run`.
# From the first mapping on, SIGSEGV is how the library pages, and SIGBUS from the first one with the engine sigbus on: gdb
# lets them pass. One that is nobody's is let happen again by the library, and gdb stops at the instruction that did it.
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
