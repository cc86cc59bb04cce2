/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * prog_s3_gateway - the driver s3 and containers in S3 at a real server: Ceph's radosgw, in front
 * of the cluster that the script rados-cluster makes. Runs the programs that test both with
 * s3-server, without the faults that only s3-server has. `make check` does so for the driver alone.
 */
#include "s3.h"

#define CLUSTER HTTP_TESTS "/../object/rados-cluster"

/* Ends the test if a program is missing. Returns the URL of the server. */
static const char *start_gateway(void)
{
	static char url[100];
	FILE *f;
	int status = shell(CLUSTER " up '%s' %d", in_dir("cluster"), (int)getpid());

	if (!status)
		status = shell(CLUSTER " gateway '%s' > '%s'", in_dir("cluster"), in_dir("url"));
	if (status == 77)
		exit(77);
	check(status == 0, "there is no gateway");
	f = fopen(in_dir("url"), "r");
	check(f && fscanf(f, "%99s", url) == 1);
	fclose(f);
	return url;
}

static void run_program(const char *name, const char *url)
{
	char path[500];

	snprintf(path, sizeof(path), HTTP_PLUGINS "/../tests/%s", name);
	if (access(path, X_OK) == 0)
		check(shell("%s %s", path, url) == 0, "%s", name);
}

int main(void)
{
	const char *url;

	set_credentials();
	url = start_gateway();
	run_program("prog_s3_write", url);
	if (by_time(0, 1))
		run_program("prog_object_s3", url);
	check(shell(CLUSTER " down '%s'", in_dir("cluster")) == 0);
	return 0;
}
