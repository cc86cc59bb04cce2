/* SPDX-License-Identifier: BSD-3-Clause */
/* The account of a user of S3: keys, region and server, from the environment and from the folder
 * ~/.aws, as other programs for S3 find them. */
#ifndef DRIVERS_HTTP_S3_ACCOUNT_H
#define DRIVERS_HTTP_S3_ACCOUNT_H

#include <stdbool.h>

#define MAX_SETTING_BYTES 4096  /* longest value; session tokens are long */

/* Values, "" if they are missing. */
struct s3_account {
	char user[MAX_SETTING_BYTES];     /* access key */
	char secret[MAX_SETTING_BYTES];   /* secret key */
	char token[MAX_SETTING_BYTES];    /* session token */
	char region[MAX_SETTING_BYTES];
	char endpoint[MAX_SETTING_BYTES]; /* URL of the server */
	const char *profile;              /* name of the profile that was asked for; NULL: none */
};

/* Finds the account. profile: name of the profile to use instead of the variables; NULL: none. */
void s3_account_find(struct s3_account *account, const char *profile);

#endif
