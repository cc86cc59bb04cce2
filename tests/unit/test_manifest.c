/* SPDX-License-Identifier: BSD-3-Clause */
/* The manifest of coarrays: it is read as it was written, damage is detected, and it is replaced
 * atomically. */
#include <criterion/criterion.h>

#include <signal.h>
#include <sys/resource.h>

#include "clients/window/manifest.c"

#include "common.h"

static struct manifest sample(void)
{
	struct manifest m = { .program = { "a program", 16384, "0123abcd" },
			      .sync = 9,
			      .images = 3,
			      .next_id = 4,
			      .shared_file = true };
	struct entry pool = { .order = ENTRY_POOL, .id = 1, .size = 1 << 20, .since = 1 };
	struct entry far = { .order = 2,
			     .id = 3,
			     .size = 100000,
			     .at = 65536,
			     .since = 7,
			     .state = ENTRY_PARKED,
			     .type = "real 8",
			     .folder = "/a folder" };
	struct entry gone = {
		.order = 1, .id = 2, .size = 10, .small = true, .state = ENTRY_DOOMED
	};

	check(manifest_add(&m, &pool) && manifest_add(&m, &gone) && manifest_add(&m, &far));
	return m;
}

Test(manifest, is_read_as_it_was_written)
{
	struct manifest m = sample(), again;
	char *text = manifest_write(&m);
	struct entry *far;

	check(!manifest_read(&again, text), "%s", text);
	check(strcmp(again.program.name, "a program") == 0 && again.program.size == 16384);
	check(strcmp(again.program.build, "0123abcd") == 0 && again.sync == 9);
	check(again.images == 3 && again.next_id == 4 && again.shared_file);
	check(again.n == 2, "coarrays that are to be deleted are not in it");
	check(manifest_find(&again, ENTRY_POOL)->size == 1 << 20 &&
	      !*manifest_find(&again, ENTRY_POOL)->folder);
	far = manifest_find(&again, 2);
	check(far && far->id == 3 && far->at == 65536 && far->since == 7 &&
	      far->state == ENTRY_PARKED);
	check(strcmp(far->type, "real 8") == 0 && strcmp(far->folder, "/a folder") == 0);
	free(text);
}

Test(manifest, without_a_build_id_or_entries_is_read)
{
	struct manifest m = { .program = { .name = "p", .size = 1 }, .images = 1, .next_id = 1 },
			again;
	char *text = manifest_write(&m);

	check(!manifest_read(&again, text), "%s", text);
	check(again.n == 0 && !*again.program.build);
	free(text);
}

Test(manifest, with_any_byte_changed_is_damaged)
{
	struct manifest m = sample(), again;
	char *text = manifest_write(&m);

	for (size_t i = 0; text[i + 1]; i++) {
		text[i] ^= 1;
		check(manifest_read(&again, text), "byte %zu", i);
		text[i] ^= 1;
	}
	free(text);
}

/* If the new manifest does not fit, the old one stays. */
Test(manifest, is_replaced_as_a_whole)
{
	struct rlimit none = { 40, RLIM_INFINITY };
	struct manifest m = sample();
	char path[320], old[4000] = "", *text = manifest_write(&m);
	int fd = temp_named("manifest", 0, path);

	check(manifest_replace(path, text) == 0);
	signal(SIGXFSZ, SIG_IGN);
	m.images = 9;
	check(setrlimit(RLIMIT_FSIZE, &none) == 0);
	check(manifest_replace(path, manifest_write(&m)) == -EFBIG);
	close(fd);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	check(read(fd, old, sizeof(old) - 1) == (ssize_t)strlen(text) && strcmp(old, text) == 0);
	close(fd);
	free(text);
}
