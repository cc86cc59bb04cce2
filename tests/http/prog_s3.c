/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * prog_s3 - mappings of objects of S3, from the server s3-server: credentials of the environment
 * and of profiles, names, refusals, an object that changes, and a near file.
 */
#include "s3.h"

static char uri[500];

/* ---- Mappings ---- */

/* No message has a secret. */
static void check_refused(const char *at, int error, const char *text)
{
	check_not_open(at, error, text);
	check(!strstr(umerrormsg(), SECRET) && !strstr(umerrormsg(), "TOKEN"));
}

static void check_names(void)
{
	check_map("s3:bucket/object");
	check_map("s3://bucket/object");
	check_map("s3:bucket/object?requests=2&range=64K");
	/* Each character of a key has one encoding in a signature. */
	check_map("s3:bucket/a %25b%3d%3f&'()*!~$@:;,[]+/..//\xc3\xa9");
	check_refused("s3:bucket", EINVAL, "s3:BUCKET/KEY");
	check_refused("s3:bucket/", EINVAL, "s3:BUCKET/KEY");
	check_refused("s3:/object", EINVAL, "s3:BUCKET/KEY");
	check_refused("s3:buck@et/object", EINVAL, "letters");
	check_refused("s3:bucket/missing", ENOENT, "no such object");
	check_refused("s3:bucket/object?region=a:b", EINVAL, "region");
	check_refused("s3:bucket/object?credentials=yes", EINVAL, "credentials");
	check_refused("s3:bucket/object?endpoint=ftp://host", EINVAL, "endpoint");
	check_refused("s3:bucket/object?endpoint=http://me:word@host", EINVAL, "endpoint");
}

/* ---- Credentials ---- */

static void write_file(const char *name, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

static void write_file(const char *name, const char *format, ...)
{
	FILE *f = fopen(in_dir(name), "w");
	va_list args;

	check(f);
	va_start(args, format);
	vfprintf(f, format, args);
	va_end(args);
	fclose(f);
}

static void check_variables(void)
{
	set_env("AWS_SECRET_ACCESS_KEY", "other");
	check_refused("s3:bucket/object", EACCES, "SignatureDoesNotMatch");
	set_env("AWS_ACCESS_KEY_ID", "OTHER");
	check_refused("s3:bucket/object", EACCES, "InvalidAccessKeyId");
	unsetenv("AWS_ACCESS_KEY_ID");
	check_refused("s3:bucket/object", EACCES, "no credentials");
	check_refused("s3:bucket/object?credentials=none", EACCES, "credentials=auto");
	check_map("s3:public/object?credentials=none");
	set_credentials();
	control("token=%s", "TOKEN%2f%3d");
	check_refused("s3:bucket/object", EACCES, "InvalidToken");
	set_env("AWS_SESSION_TOKEN", "TOKEN/=");
	check_map("s3:bucket/object");
	control("token=");
	unsetenv("AWS_SESSION_TOKEN");
}

static void check_profiles(void)
{
	char at[300];

	check(mkdir(in_dir(".aws"), 0700) == 0);
	set_env("HOME", folder);
	unsetenv("AWS_ACCESS_KEY_ID");
	unsetenv("AWS_ENDPOINT_URL");
	write_file(".aws/credentials", "# [default]\n[default]\naws_access_key_id = TESTKEY\n"
		   "aws_secret_access_key=wrong\n\n[ other ]\n aws_access_key_id = nested\n"
		   "aws_access_key_id\t=TESTKEY \r\naws_secret_access_key = %s\n"
		   "[last]\naws_access_key_id = TESTKEY\n", SECRET);
	write_file(".aws/config", "[default]\nendpoint_url = http://127.0.0.1:%d/\n"
		   "[profile other]\nregion = us-east-1\ns3 =\n  endpoint_url = nested\n"
		   "endpoint_url = http://127.0.0.1:%d\n[profile far]\nregion = a:b\n", port, port);
	check_refused("s3:bucket/object", EACCES, "SignatureDoesNotMatch");
	check_map("s3:bucket/object?profile=other");
	check_refused("s3:bucket/object?profile=last", EACCES, "--profile last");
	check_refused("s3:bucket/object?profile=far", EINVAL, "AWS_REGION");
	set_env("AWS_PROFILE", "other");
	check_map("s3:bucket/object");
	/* A profile in the URI counts more than the variables. */
	set_env("AWS_ACCESS_KEY_ID", "OTHER");
	check_refused("s3:bucket/object", EACCES, "InvalidAccessKeyId");
	check_map("s3:bucket/object?profile=other");
	unsetenv("AWS_PROFILE");
	set_credentials();
	snprintf(at, sizeof(at), "s3:bucket/object?endpoint=http://127.0.0.1:%d/", port);
	check_map(at);
	snprintf(at, sizeof(at), "http://127.0.0.1:%d", port);
	set_env("AWS_ENDPOINT_URL", at);
}

static void check_regions(void)
{
	control("region=eu-test-1");
	check_refused("s3:far/object", EIO, "Try region=eu-test-1");
	check_map("s3:far/object?region=eu-test-1");
	set_env("AWS_REGION", "eu-test-1");
	check_map("s3:far/object");
	unsetenv("AWS_REGION");
}

/* ---- Changes, writes, a near file ---- */

static void check_change(void)
{
	uint8_t *bytes;
	uint64_t value;

	write_object("bucket/changing", SEED);
	bytes = map_object("s3:bucket/changing");
	check_bytes(bytes, SEG, 0, SEED);
	write_object("bucket/changing", SEED + 1);
	catch_sigbus();
	check(!try_load((uint64_t *)(bytes + 80 * SEG), &value));
	check_bytes(bytes, SEG, 0, SEED);
	check(umunmap(bytes, 0) == 0);
}

static void check_write(void)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	uint8_t *bytes;
	void *addr;

	snprintf(uri, sizeof(uri), "cow+s3:bucket/object?cow.path=%s", in_dir("changes"));
	check(ummap_open(uri, SIZE, 0, READ_WRITE, &attr, &addr) == 0, "%s", umerrormsg());
	bytes = addr;
	memset(bytes + 5, 1, 10);
	check(umsync(bytes, 0) == 0 && umunmap(bytes, 0) == 0);
	check(ummap_open(uri, SIZE, 0, PROT_READ, &attr, &addr) == 0, "%s", umerrormsg());
	bytes = addr;
	check(bytes[5] == 1 && bytes[14] == 1);
	check_bytes(bytes + 15, SIZE - 15, 15, SEED);
	check(umunmap(bytes, 0) == 0);
}

/* The second mapping asks the server for the first byte, and at most for the end. */
static void check_cache(void)
{
	int before, after;

	snprintf(uri, sizeof(uri), "cache+s3:bucket/object?cache.path=%s&cache.size=12M",
		 in_dir("near"));
	before = count_requests(" 206 ");
	check_map(uri);
	after = count_requests(" 206 ");
	check(after - before > 5);
	check_map(uri);
	check(count_requests(" 206 ") - after <= 2, "%d", count_requests(" 206 ") - after);
	write_object("bucket/object", SEED + 1);
	check_refused(uri, ESTALE, "changed");
	write_object("bucket/object", SEED);
}

int main(void)
{
	if (!set_up_s3())
		return 77;
	write_object("bucket/object", SEED);
	write_object("public/object", SEED);
	write_object("far/object", SEED);
	write_object("bucket/a%20%25b%3d%3f%26%27()*!~$@:;,[]%2b/..//%c3%a9", SEED);
	check_names();
	check_variables();
	check_profiles();
	check_regions();
	check_change();
	check_write();
	check_cache();
	return 0;
}
