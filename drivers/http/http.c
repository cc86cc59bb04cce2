/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The drivers http and https: an object at a URL, read-only. The Makefile compiles this file once
 * for each SCHEME; a plug-in has one driver.
 */
#include "../keys.h"
#include "options.h"
#include "remote.h"

#include <errno.h>

static int http_open(const struct ummap_uri *uri, int oflags, void **h, struct ummap_geom *geom)
{
	struct remote *remote;
	int err;

	if (oflags & UMMAP_O_WRITE)
		return keys_refuse(geom, EACCES, "cannot write to an object at a URL. Try to "
				   "open it for reading only, or " WRITING_FILTER SCHEME ", which "
				   "keeps the changes in a file");
	remote = remote_new();
	if (!remote)
		return -ENOMEM;
	remote->scheme = SCHEME;
	err = options_parse_keys(uri, &remote->keys, geom);
	if (!err)
		err = options_make_url(uri, &remote->url, &remote->shown, geom);
	return remote_open(remote, err, h, geom);
}

__attribute__((visibility("default")))
const struct ummap_driver ummap_driver = {
	.struct_size = sizeof(struct ummap_driver),
	.abi = UMMAP_DRIVER_ABI,
	.scheme = SCHEME,
	.keys = HTTP_KEYS(KEY_NAME),
	.help = "an object at a URL, read-only: " SCHEME "://HOST/PATH",
	.open = http_open,
	.close = remote_close,
	.read = remote_read,
	.submit = remote_submit,
	.reap = remote_reap,
	.set_notice = remote_set_notice,
};
