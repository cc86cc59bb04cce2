/* SPDX-License-Identifier: BSD-3-Clause */
/* Signatures of requests for S3 (AWS Signature Version 4). */
#ifndef DRIVERS_HTTP_S3_SIGN_H
#define DRIVERS_HTTP_S3_SIGN_H

#include "http.h"

/*
 * Appends the lines that sign a request: its date, the hash of its body, the session token and the
 * signature, which includes the lines x-amz-* that `lines` has already. The signature is valid for
 * 15 minutes. url: with the query; the path and the query are encoded, and the query is sorted.
 * Returns 0 or -ENOMEM; without a signer, it only returns 0.
 */
int s3_sign(struct curl_slist **lines, const struct signer *signer, const char *method,
	    const char *url, bool has_body);

#endif
