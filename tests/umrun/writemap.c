/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A client of LMDB that stores through its map (MDB_WRITEMAP), for check-umrun. `writemap FOLDER
 * COUNT` commits COUNT records, 100 at a time, and prints their number after each commit. `writemap
 * FOLDER` checks the records, which must be those up to some commit.
 */
#include <lmdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOGETHER 100

static void must(int err, const char *what)
{
	if (err) {
		fprintf(stderr, "writemap: %s: %s\n", what, mdb_strerror(err));
		exit(1);
	}
}

static void make_value(char value[500], unsigned n)
{
	for (unsigned i = 0; i < 500; i++)
		value[i] = (char)('a' + (n * 7919 + i * 31) % 26);
}

static void store(MDB_env *env, MDB_dbi db, unsigned first)
{
	char value[500];
	MDB_txn *txn;

	must(mdb_txn_begin(env, NULL, 0, &txn), "begin");
	for (unsigned n = first; n < first + TOGETHER; n++) {
		unsigned key = n * 2654435761u;
		MDB_val k = { sizeof(key), &key }, v = { sizeof(value), value };

		make_value(value, n);
		must(mdb_put(txn, db, &k, &v, 0), "put");
	}
	must(mdb_txn_commit(txn), "commit");
	printf("%u\n", first + TOGETHER);
	fflush(stdout);
}

static unsigned check(MDB_env *env, MDB_dbi db)
{
	char value[500];
	unsigned n = 0;
	MDB_txn *txn;

	must(mdb_txn_begin(env, NULL, MDB_RDONLY, &txn), "begin");
	for (;; n++) {
		unsigned key = n * 2654435761u;
		MDB_val k = { sizeof(key), &key }, v;
		int err = mdb_get(txn, db, &k, &v);

		if (err == MDB_NOTFOUND)
			break;
		must(err, "get");
		make_value(value, n);
		if (v.mv_size != sizeof(value) || memcmp(v.mv_data, value, sizeof(value)) != 0)
			must(MDB_CORRUPTED, "a value");
	}
	mdb_txn_abort(txn);
	if (n % TOGETHER)
		must(MDB_CORRUPTED, "half a transaction");
	return n;
}

int main(int argc, char **argv)
{
	unsigned count = argc > 2 ? (unsigned)atoi(argv[2]) : 0, there;
	MDB_env *env;
	MDB_txn *txn;
	MDB_dbi db;

	must(mdb_env_create(&env), "create");
	must(mdb_env_set_mapsize(env, 64 << 20), "map size");
	must(mdb_env_open(env, argv[1], MDB_WRITEMAP, 0600), "open");
	must(mdb_txn_begin(env, NULL, 0, &txn), "begin");
	must(mdb_dbi_open(txn, NULL, MDB_INTEGERKEY, &db), "database");
	must(mdb_txn_commit(txn), "commit");
	there = check(env, db);
	if (!count)
		printf("%u\n", there);
	for (unsigned n = there; n < there + count; n += TOGETHER)
		store(env, db, n);
	mdb_env_close(env);
	return 0;
}
