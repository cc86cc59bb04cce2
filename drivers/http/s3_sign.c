/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * libcurl can sign requests, too, but before version 8.10 it sorts lines by their whole text. Then
 * x-amz-copy-source-range comes before x-amz-copy-source, and servers refuse each copy of a part.
 */
#include "s3_sign.h"

#include "options.h"

#include <errno.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

/* Hash of no bytes, which a request without a body states. */
#define EMPTY_HASH "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define HASH_BYTES 32
#define MAX_SIGNED_LINES 16

/* The text that is hashed, and the names of its lines. */
struct canonical {
	FILE *file;
	char *text;
	size_t len;
	char names[400];
};

static void hex(char *to, const unsigned char *hash)
{
	for (int i = 0; i < HASH_BYTES; i++)
		sprintf(to + 2 * i, "%02x", hash[i]);
}

/* Replaces the key by the code of the text with this key. Returns its length. */
static unsigned authenticate(unsigned char *key, size_t len, const char *text)
{
	unsigned char code[HASH_BYTES];
	unsigned code_len = 0;

	HMAC(EVP_sha256(), key, (int)len, (const unsigned char *)text, strlen(text), code,
	     &code_len);
	memcpy(key, code, sizeof(code));
	explicit_bzero(code, sizeof(code));
	return code_len;
}

static size_t name_len(const char *line)
{
	return strcspn(line, ":");
}

/* Orders lines by their names alone. */
static int compare_names(const void *a, const void *b)
{
	const char *one = *(const char *const *)a, *other = *(const char *const *)b;
	size_t n = name_len(one), m = name_len(other);
	int order = strncmp(one, other, n < m ? n : m);

	return order ? order : (n > m) - (n < m);
}

/* The line host: of a URL, without the port that its scheme has by default. */
static void write_host(FILE *file, const char *url)
{
	const char *host = strstr(url, "://") + 3;
	const char *port = strncmp(url, "https:", 6) == 0 ? ":443" : ":80";
	size_t len = strcspn(host, "/?"), end = strlen(port);

	if (len > end && strncmp(host + len - end, port, end) == 0)
		len -= end;
	fprintf(file, "host:%.*s\n", (int)len, host);
}

/* The signed lines: host, which precedes all names with x-amz-, and these. */
static void write_lines(struct canonical *c, const struct curl_slist *lines, const char *url)
{
	const char *sorted[MAX_SIGNED_LINES];
	size_t n = 0;

	for (; lines && n < MAX_SIGNED_LINES; lines = lines->next) {
		if (strncmp(lines->data, "x-amz-", 6) == 0)
			sorted[n++] = lines->data;
	}
	qsort(sorted, n, sizeof(*sorted), compare_names);
	write_host(c->file, url);
	strcpy(c->names, "host");
	for (size_t i = 0; i < n; i++) {
		size_t len = name_len(sorted[i]), used = strlen(c->names);

		fprintf(c->file, "%.*s:%s\n", (int)len, sorted[i],
			sorted[i] + len + strspn(sorted[i] + len, ": "));
		snprintf(c->names + used, sizeof(c->names) - used, ";%.*s", (int)len, sorted[i]);
	}
}

/* Hashes the canonical form of the request. */
static int hash_request(struct canonical *c, const struct curl_slist *lines, const char *method,
			const char *url, const char *body_hash, char *hash)
{
	const char *path = strchr(strstr(url, "://") + 3, '/'), *query = strchr(url, '?');
	unsigned char bytes[EVP_MAX_MD_SIZE];

	c->file = open_memstream(&c->text, &c->len);
	if (!c->file)
		return -ENOMEM;
	fprintf(c->file, "%s\n%.*s\n%s\n", method, (int)strcspn(path, "?"), path,
		query ? query + 1 : "");
	write_lines(c, lines, url);
	fprintf(c->file, "\n%s\n%s", c->names, body_hash);
	if (fclose(c->file) != 0 ||
	    !EVP_Digest(c->text, c->len, bytes, NULL, EVP_sha256(), NULL)) {
		free(c->text);
		return -ENOMEM;
	}
	free(c->text);
	hex(hash, bytes);
	return 0;
}

/* day: YYYYMMDD. The key of the signature is valid for this day, region and service. */
static int compute_signature(const struct signer *s, const char *day, const char *text,
			     char *signature)
{
	const char *const parts[] = { day, s->region, "s3", "aws4_request", text };
	size_t len = strlen(s->secret) + 4;
	unsigned char *key = malloc(len + HASH_BYTES);

	if (!key)
		return -ENOMEM;
	memcpy(key, "AWS4", 4);
	memcpy(key + 4, s->secret, len - 4);
	for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++)
		len = authenticate(key, len, parts[i]);
	hex(signature, key);
	explicit_bzero(key, HASH_BYTES);
	free(key);
	return 0;
}

static int add_authorization(struct curl_slist **lines, const struct signer *s, const char *date,
			     const char *names, const char *hash)
{
	char day[9], text[400], signature[2 * HASH_BYTES + 1], *line;
	int err;

	snprintf(day, sizeof(day), "%.8s", date);
	snprintf(text, sizeof(text), "AWS4-HMAC-SHA256\n%s\n%s/%s/s3/aws4_request\n%s", date, day,
		 s->region, hash);
	err = compute_signature(s, day, text, signature);
	if (err)
		return err;
	if (asprintf(&line, "AWS4-HMAC-SHA256 Credential=%s/%s/%s/s3/aws4_request, "
		     "SignedHeaders=%s, Signature=%s", s->user, day, s->region, names,
		     signature) < 0)
		return -ENOMEM;
	err = options_add_line(lines, "Authorization", line);
	free(line);
	return err;
}

int s3_sign(struct curl_slist **lines, const struct signer *signer, const char *method,
	    const char *url, bool has_body)
{
	const char *body_hash = has_body ? "UNSIGNED-PAYLOAD" : EMPTY_HASH;
	struct canonical c = { 0 };
	char date[20], hash[2 * HASH_BYTES + 1];
	time_t now = time(NULL);
	struct tm utc;
	int err;

	if (!signer->region)
		return 0;
	strftime(date, sizeof(date), "%Y%m%dT%H%M%SZ", gmtime_r(&now, &utc));
	err = options_add_line(lines, "x-amz-content-sha256", body_hash);
	if (!err)
		err = options_add_line(lines, "x-amz-date", date);
	if (!err && *signer->token)
		err = options_add_line(lines, "x-amz-security-token", signer->token);
	if (!err)
		err = hash_request(&c, *lines, method, url, body_hash, hash);
	return err ? err : add_authorization(lines, signer, date, c.names, hash);
}
