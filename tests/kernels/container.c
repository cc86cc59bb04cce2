/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Runs a command without the system calls that the default profile of Docker, or an administrator,
 * forbids to ordinary users: `container COMMAND [ARGUMENT ...]` (check-user). The calls fail with
 * EPERM.
 */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static const unsigned forbidden[] = {
	SYS_userfaultfd, SYS_io_uring_setup, SYS_process_vm_readv, SYS_process_vm_writev,
	SYS_mbind, SYS_set_mempolicy, SYS_move_pages, SYS_perf_event_open,
};

#define CALLS (sizeof(forbidden) / sizeof(*forbidden))

int main(int argc, char **argv)
{
	struct sock_filter filter[1 + 2 * CALLS + 1] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		[1 + 2 * CALLS] = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof(filter) / sizeof(*filter), filter };

	for (size_t i = 0; i < CALLS; i++) {
		filter[1 + 2 * i] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K,
								forbidden[i], 0, 1);
		filter[2 + 2 * i] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K,
								SECCOMP_RET_ERRNO | 1 /* EPERM */);
	}
	if (argc < 2 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
		perror("container: cannot forbid system calls");
		return 127;
	}
	execvp(argv[1], argv + 1);
	perror(argv[1]);
	return 127;
}
