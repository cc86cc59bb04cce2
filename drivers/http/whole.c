/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The download runs in the thread that opens the store. The temporary file has no name, so it ends
 * with the handle. A failed download is repeated from its beginning.
 */
#include "whole.h"

#include "../keys.h"
#include "loop.h"
#include "options.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct download {
	struct remote *remote;
	struct answer answer;          /* header of the answer */
	uint64_t got;                  /* bytes in the file */
	int error;                     /* error of the file; 0: none */
	bool has_stalled;              /* whether the server has sent nothing for some time */
	char text[CURL_ERROR_SIZE];    /* message of libcurl */
};

int whole_make_file(struct ummap_geom *geom)
{
	const char *folder = secure_getenv("TMPDIR");
	int fd;

	if (!folder || !*folder)
		folder = "/var/tmp";
	fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	return fd >= 0 ? fd : keys_refuse(geom, errno, "cannot create a temporary file in "
					  "'%.200s': %s. Try TMPDIR", folder, strerror(errno));
}

static size_t take_line(char *line, size_t size, size_t n, void *arg)
{
	struct download *d = arg;

	answer_line(&d->answer, line, size * n);
	return size * n;
}

static size_t take_bytes(char *bytes, size_t size, size_t n, void *arg)
{
	struct download *d = arg;
	size_t len = size * n;
	ssize_t written;

	if (d->answer.status != 200 || d->answer.is_encoded)
		return 0;
	while (len > 0) {
		written = pwrite(d->remote->fd, bytes, len, (off_t)d->got);
		if (written < 0 && errno != EINTR) {
			d->error = -errno;
			return 0;
		}
		if (written > 0) {
			bytes += written;
			len -= (size_t)written;
			d->got += (uint64_t)written;
		}
	}
	return size * n;
}

/* Whether the answer tells where the object ends: a broken download must not look complete. */
static bool has_end(CURL *easy, const struct answer *head)
{
	long version = 0;

	curl_easy_getinfo(easy, CURLINFO_HTTP_VERSION, &version);
	return head->has_length || head->is_chunked || version >= CURL_HTTP_VERSION_2_0;
}

/* Returns 0 if the file has the object; 1 if a repetition may succeed; or a negative errno
 * value. */
static int try_download(CURL *easy, struct download *d)
{
	struct remote *remote = d->remote;
	CURLcode result;
	bool is_good;

	memset(&d->answer, 0, sizeof(d->answer));
	d->got = 0;
	*d->text = '\0';
	result = options_result(easy, &d->answer, curl_easy_perform(easy));
	d->has_stalled = result == CURLE_OPERATION_TIMEDOUT;
	if (d->error) {
		snprintf(remote->why, sizeof(remote->why), "cannot write the temporary file: %s",
			 strerror(-d->error));
		return d->error;
	}
	is_good = d->answer.status == 200 && !d->answer.is_encoded;
	if (is_good && result == CURLE_OK && !has_end(easy, &d->answer)) {
		snprintf(remote->why, sizeof(remote->why), "the server does not tell the length");
		return -EOPNOTSUPP;
	}
	if (is_good && result == CURLE_OK)
		return 0;
	if (d->answer.is_complete && !is_good) {
		snprintf(remote->why, sizeof(remote->why), "the server answers with status %u%s",
			 d->answer.status, d->answer.is_encoded ? " and a compressed body" : "");
		return answer_is_busy(&d->answer) ? 1 : -EIO;
	}
	snprintf(remote->why, sizeof(remote->why), "%s", options_error_text(result, d->text));
	return options_is_transient(result) ? 1 : -EIO;
}

/* Waits between repetitions like other requests do. These waits and the attempts that have stalled
 * take in sum no longer than the timeout. */
static int repeat_download(CURL *easy, struct download *d)
{
	const struct http_keys *keys = &d->remote->keys;
	int64_t left = (int64_t)keys->timeout * 1000, begin = loop_now(), delay;
	unsigned tries = 0;
	int result;

	while ((result = try_download(easy, d)) == 1) {
		delay = options_delay(tries, &d->answer);
		left -= delay + (d->has_stalled ? loop_now() - begin : 0);
		if (tries++ == keys->retries || left < 0)
			return -EIO;
		poll(NULL, 0, (int)delay);
		begin = loop_now();
	}
	return result;
}

int whole_download(struct remote *remote, struct ummap_geom *geom)
{
	struct download d = { .remote = remote };
	CURL *easy = curl_easy_init();
	int err = easy ? 0 : -ENOMEM;

	if (!err) {
		remote->fd = whole_make_file(geom);
		err = remote->fd < 0 ? remote->fd : 0;
	}
	if (!err) {
		options_set(easy, remote);
		options_limit_stall(easy, &remote->keys);
		curl_easy_setopt(easy, CURLOPT_URL, remote->url);
		curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, take_line);
		curl_easy_setopt(easy, CURLOPT_HEADERDATA, &d);
		curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, take_bytes);
		curl_easy_setopt(easy, CURLOPT_WRITEDATA, &d);
		curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, d.text);
		err = repeat_download(easy, &d);
		if (err)
			keys_refuse(geom, -err, "cannot download '%.150s': %.200s", remote->shown,
				    remote->why);
	}
	curl_easy_cleanup(easy);
	remote->object = (struct validator){ .total = d.got };
	return err;
}

int whole_read(const struct remote *remote, void *buf, size_t len, uint64_t off)
{
	while (len > 0) {
		ssize_t n = pread(remote->fd, buf, len, (off_t)off);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		buf = (char *)buf + n;
		len -= (size_t)n;
		off += (uint64_t)n;
	}
	return 0;
}
