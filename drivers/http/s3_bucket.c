/* SPDX-License-Identifier: BSD-3-Clause */
/* The path of a URL is encoded as signatures need it (s3_sign.h). */
#include "s3_bucket.h"

#include "../keys.h"
#include "options.h"
#include "s3_account.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- The URL ---- */

void s3_encode(char *to, const char *text, const char *also)
{
	for (; *text; text++) {
		unsigned char c = (unsigned char)*text;

		if (c < 0x80 && (isalnum(c) || strchr("-._~", c) || strchr(also, c)))
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
	remote->bucket_len = (size_t)len;
	s3_encode(remote->url + len, path + bucket_len + 1, "/");
	remote->scheme = strncmp(remote->url, "http:", 5) == 0 ? "http" : "https";
	return 0;
}

/* ---- The signature ---- */

static int refuse_without_keys(const char *shown, const char *profile, struct ummap_geom *geom)
{
	if (!profile)
		return keys_refuse(geom, EACCES, "cannot open '%.150s': there are no credentials. "
				   "Try AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile in "
				   "~/.aws/credentials, or credentials=none", shown);
	return keys_refuse(geom, EACCES, "cannot open '%.150s': there is no profile '%.60s' with "
			   "credentials in ~/.aws. If it obtains them from a role or a login, try "
			   "the variables that 'aws configure export-credentials --format env "
			   "--profile %.60s' prints", shown, profile, profile);
}

static int set_signer(struct remote *remote, const struct s3_account *account, const char *region,
		      struct ummap_geom *geom)
{
	struct signer *s = &remote->signer;

	if (!*account->user || !*account->secret)
		return refuse_without_keys(remote->shown, account->profile, geom);
	s->user = strdup(account->user);
	s->secret = strdup(account->secret);
	s->token = strdup(account->token);
	s->region = strdup(region);
	return s->user && s->secret && s->token && s->region ? 0 : -ENOMEM;
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

int s3_set_up(struct remote *remote, const struct ummap_uri *uri, struct ummap_geom *geom)
{
	struct s3_account account;
	int err = options_parse_keys(uri, &remote->keys, geom);

	remote->is_s3 = true;
	if (err)
		return err;
	s3_account_find(&account, remote->keys.profile);
	err = set_account(remote, uri, &account, geom);
	explicit_bzero(&account, sizeof(account));
	return err;
}
