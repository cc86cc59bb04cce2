/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The keys of the driver object and of containers in RADOS and S3. The driver takes its list of
 * keys and the types in its messages from here; `ummap help settings` and ummap-settings(7) print
 * the rows.
 *
 * KEY(name, type, default, meaning)
 */
#ifndef OBJECT_KEYS_H
#define OBJECT_KEYS_H

#define OBJECT_KEYS(KEY)                                                                           \
	KEY("version", "a number of at least 1", "the newest", "Version to read.")                 \
	KEY("id", "a UUID of 32 hexadecimal digits", "none",                                       \
	    "Version to read. The path is the container alone.")                                   \
	KEY("type", "int8 to uint64, float, double or ldouble", "uint8",                           \
	    "Type of the elements of a new object.")                                               \
	KEY("dims", "1 to 32 numbers with x between them (1000x200)", "none",                      \
	    "Dimensions of a new object. Without them it is bytes in one dimension.")              \
	KEY("chunk", "1 to 32 numbers with x between them (100x200)", "1 MiB",                     \
	    "Dimensions of a chunk of a new object.")                                              \
	CONTAINER_KEYS(KEY)

/* The keys that the back end of a container takes. */
#define CONTAINER_KEYS(KEY)                                                                        \
	KEY("conf", "the path of a file", "CEPH_CONF", "RADOS: configuration of the cluster.")     \
	KEY("user", "the name of a user", "admin", "RADOS: user of the cluster.")                  \
	KEY("timeout", "a number of seconds", "30 or 60",                                          \
	    "RADOS, S3: time that the cluster or server has to answer.")                           \
	KEY("lease", "a number of seconds", "60",                                                  \
	    "RADOS, S3: time that a version is held without renewal.")                             \
	KEY("endpoint", "a URL http(s)://HOST without user and query", "as the environment says",  \
	    "S3: server, which has all buckets as its folders.")                                   \
	KEY("region", "a name of letters, digits and '-'", "as the environment says",              \
	    "S3: region of the bucket.")                                                           \
	KEY("profile", "the name of a profile", "AWS_PROFILE",                                     \
	    "S3: profile in ~/.aws that has the credentials.")                                     \
	KEY("credentials", "auto or none", "auto", "S3: none: requests are not signed.")

#define KEY_NAME(name, type, default, meaning) name " "

#endif
