/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The driver s3: an object of a server with the interface of S3. libcurl signs the requests. Its
 * versions before 8.2 sign path and query as they are in the URL, and later ones first bring them
 * into the form that signatures need; a URL that already has this form is right for both.
 */
#include "../keys.h"
#include "options.h"
#include "remote.h"
#include "s3_account.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Hash of no bytes, which a request without a body states. */
#define EMPTY_HASH "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

/* ---- The URL ---- */

/* Encodes all characters except those that signatures leave as they are. */
static void encode_key(char *to, const char *key)
{
	for (; *key; key++) {
		unsigned char c = (unsigned char)*key;

		if (c < 0x80 && (isalnum(c) || strchr("-._~/", c)))
			*to++ = (char)c;
		else
			to += sprintf(to, "%%%02X", c);
	}
	*to = '\0';
}

/* Amazon's server of a bucket has the name of the bucket, unless a certificate cannot have it. */
static int make_url(char *url, size_t room, const char *endpoint, const char *region,
		    const char *bucket)
{
	const char *end = strncmp(region, "cn-", 3) == 0 ? ".cn" : "";
	size_t len = strlen(endpoint);

	while (len > 0 && endpoint[len - 1] == '/')
		len--;
	if (len > 0)
		return snprintf(url, room, "%.*s/%s/", (int)len, endpoint, bucket);
	if (strchr(bucket, '.'))
		return snprintf(url, room, "https://s3.%s.amazonaws.com%s/%s/", region, end,
				bucket);
	return snprintf(url, room, "https://%s.s3.%s.amazonaws.com%s/", bucket, region, end);
}

static int set_url(struct remote *remote, const struct ummap_uri *uri, const char *endpoint,
		   const char *region, struct ummap_geom *geom)
{
	const char *path = strncmp(uri->path, "//", 2) == 0 ? uri->path + 2 : uri->path;
	size_t bucket_len = strcspn(path, "/"), room = strlen(endpoint) + 200 + 3 * strlen(path);
	char bucket[80];
	int len;

	if (bucket_len == 0 || bucket_len >= sizeof(bucket) || !path[bucket_len] ||
	    !path[bucket_len + 1])
		return keys_refuse(geom, EINVAL, "cannot open 's3:%.200s': it has no bucket or no "
				   "key. Try s3:BUCKET/KEY", path);
	snprintf(bucket, sizeof(bucket), "%.*s", (int)bucket_len, path);
	for (const char *c = bucket; *c; c++) {
		if ((unsigned char)*c >= 0x80 || !(isalnum((unsigned char)*c) || strchr("-._", *c)))
			return keys_refuse(geom, EINVAL, "cannot open 's3:%.200s': the name of a "
					   "bucket has letters, digits, '-', '.' and '_' only",
					   path);
	}
	remote->url = malloc(room);
	if (!remote->url || asprintf(&remote->shown, "s3:%s", path) < 0)
		return -ENOMEM;
	len = make_url(remote->url, room, endpoint, region, bucket);
	encode_key(remote->url + len, path + bucket_len + 1);
	remote->scheme = strncmp(remote->url, "http:", 5) == 0 ? "http" : "https";
	return 0;
}

/* ---- The signature ---- */

static int add_line(struct remote *remote, const char *name, const char *value)
{
	char line[MAX_SETTING_BYTES + 40];
	struct curl_slist *lines;

	snprintf(line, sizeof(line), "%s: %s", name, value);
	lines = curl_slist_append(remote->lines, line);
	explicit_bzero(line, sizeof(line));
	if (!lines)
		return -ENOMEM;
	remote->lines = lines;
	return 0;
}

static int set_signer(struct remote *remote, const struct s3_account *account, const char *region,
		      struct ummap_geom *geom)
{
	struct signer *s = &remote->signer;
	int err;

	if (!*account->user || !*account->secret)
		return keys_refuse(geom, EACCES, "cannot open '%.150s': there are no credentials. "
				   "Try AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile in "
				   "~/.aws/credentials, or credentials=none", remote->shown);
	s->user = strdup(account->user);
	s->secret = strdup(account->secret);
	if (!s->user || !s->secret || asprintf(&s->scheme, "aws:amz:%s:s3", region) < 0)
		return -ENOMEM;
	err = add_line(remote, "x-amz-content-sha256", EMPTY_HASH);
	if (!err && *account->token)
		err = add_line(remote, "x-amz-security-token", account->token);
	return err;
}

static int set_account(struct remote *remote, const struct ummap_uri *uri,
		       const struct s3_account *account, struct ummap_geom *geom)
{
	const struct http_keys *keys = &remote->keys;
	const char *endpoint = keys->endpoint ? keys->endpoint : account->endpoint;
	const char *region = keys->region ? keys->region : account->region;
	int err;

	if (!*region)
		region = "us-east-1";
	if (!options_is_region(region))
		return keys_refuse(geom, EINVAL, "cannot use the region '%.100s' of AWS_REGION or "
				   "~/.aws/config: it must have letters, digits and '-' only",
				   region);
	if (*endpoint && !options_is_endpoint(endpoint))
		return keys_refuse(geom, EINVAL, "cannot use AWS_ENDPOINT_URL or endpoint_url in "
				   "~/.aws/config: it must be http(s)://HOST without user and "
				   "query");
	err = set_url(remote, uri, endpoint, region, geom);
	if (err || keys->is_anonymous)
		return err;
	return set_signer(remote, account, region, geom);
}

static int s3_open(const struct ummap_uri *uri, int oflags, void **h, struct ummap_geom *geom)
{
	struct s3_account account;
	struct remote *remote;
	int err;

	if (oflags & UMMAP_O_WRITE)
		return keys_refuse(geom, EACCES, "cannot write to an object of S3. Try "
				   WRITING_FILTER "s3, which keeps the changes in a file");
	remote = remote_new();
	if (!remote)
		return -ENOMEM;
	remote->is_s3 = true;
	err = options_parse_keys(uri, &remote->keys, geom);
	if (!err) {
		s3_account_find(&account, remote->keys.profile);
		err = set_account(remote, uri, &account, geom);
		explicit_bzero(&account, sizeof(account));
	}
	return remote_open(remote, err, h, geom);
}

__attribute__((visibility("default")))
const struct ummap_driver ummap_driver = {
	.struct_size = sizeof(struct ummap_driver),
	.abi = UMMAP_DRIVER_ABI,
	.scheme = "s3",
	.keys = S3_KEYS(KEY_NAME),
	.help = "an object of S3, read-only: s3:BUCKET/KEY",
	.open = s3_open,
	.close = remote_close,
	.read = remote_read,
	.submit = remote_submit,
	.reap = remote_reap,
	.set_notice = remote_set_notice,
};
