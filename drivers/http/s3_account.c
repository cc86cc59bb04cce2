/* SPDX-License-Identifier: BSD-3-Clause */
#include "s3_account.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *variable(const char *name)
{
	const char *value = secure_getenv(name);

	return value && *value ? value : NULL;
}

/* Stores a value unless there is one. */
static void store(char to[MAX_SETTING_BYTES], const char *value)
{
	if (!*to && value && strlen(value) < MAX_SETTING_BYTES)
		strcpy(to, value);
}

/* Cuts off the blanks at both ends. */
static char *trim(char *text)
{
	char *end = text + strlen(text);

	while (end > text && strchr(" \t\r\n", end[-1]))
		*--end = '\0';
	return text + strspn(text, " \t");
}

static void store_setting(struct s3_account *account, const char *name, const char *value)
{
	const struct {
		const char *name;
		char *to;
	} settings[] = {
		{ "aws_access_key_id", account->user },
		{ "aws_secret_access_key", account->secret },
		{ "aws_session_token", account->token },
		{ "region", account->region },
		{ "endpoint_url", account->endpoint },
	};

	for (unsigned i = 0; i < sizeof(settings) / sizeof(*settings); i++) {
		if (strcmp(name, settings[i].name) == 0)
			store(settings[i].to, value);
	}
}

/* Whether a line [NAME] or [profile NAME] begins the section of the profile. */
static bool is_section(char *line, const char *profile)
{
	line[strcspn(line, "]")] = '\0';
	line = trim(line + 1);
	if (strncmp(line, "profile", 7) == 0 && strchr(" \t", line[7]) && line[7])
		line = trim(line + 7);
	return strcmp(line, profile) == 0;
}

/* Takes the values that a file has in the section of the profile. Lines that begin with a blank
 * belong to nested settings. */
static void read_file(struct s3_account *account, const char *path, const char *profile)
{
	static const char comment[] = "#;";
	char line[MAX_SETTING_BYTES + 64], *value;
	bool is_in = false;
	FILE *f = fopen(path, "re");

	if (!f)
		return;
	while (fgets(line, sizeof(line), f)) {
		if (*line == '[')
			is_in = is_section(line, profile);
		value = strchr(line, '=');
		if (!is_in || !value || strchr(comment, *line) || strchr(" \t[", *line))
			continue;
		*value++ = '\0';
		store_setting(account, trim(line), trim(value));
	}
	explicit_bzero(line, sizeof(line));
	fclose(f);
}

static void read_files(struct s3_account *account, const char *profile)
{
	static const char *const files[][2] = { { "AWS_SHARED_CREDENTIALS_FILE", "credentials" },
						{ "AWS_CONFIG_FILE", "config" } };
	const char *home = variable("HOME");
	char path[4096];

	for (int i = 0; i < 2; i++) {
		if (variable(files[i][0]))
			snprintf(path, sizeof(path), "%s", variable(files[i][0]));
		else if (home)
			snprintf(path, sizeof(path), "%s/.aws/%s", home, files[i][1]);
		else
			continue;
		read_file(account, path, profile);
	}
}

/* A key and a secret always come from one place: the variables count only together. */
void s3_account_find(struct s3_account *account, const char *profile)
{
	bool has_pair = !profile && variable("AWS_ACCESS_KEY_ID") &&
			variable("AWS_SECRET_ACCESS_KEY");

	memset(account, 0, sizeof(*account));
	if (has_pair) {
		store(account->user, variable("AWS_ACCESS_KEY_ID"));
		store(account->secret, variable("AWS_SECRET_ACCESS_KEY"));
	}
	store(account->region, variable("AWS_REGION"));
	store(account->region, variable("AWS_DEFAULT_REGION"));
	store(account->endpoint, variable("AWS_ENDPOINT_URL_S3"));
	store(account->endpoint, variable("AWS_ENDPOINT_URL"));
	account->profile = profile ? profile : variable("AWS_PROFILE");
	read_files(account, account->profile ? account->profile : "default");
	/* A token is valid only with its pair. */
	if (has_pair) {
		*account->token = '\0';
		store(account->token, variable("AWS_SESSION_TOKEN"));
	}
}
