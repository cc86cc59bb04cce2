/* SPDX-License-Identifier: BSD-3-Clause */
/* A manifest is text, whose last line has a checksum of the lines before it. */
#include "window/manifest.h"

#define XXH_INLINE_ALL
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#define FIRST_LINE "coarrays 2"
#define FOLDER "folder "
#define MAGIC "coarray\n"

static const char *const states[] = { "live", "parked", "ended" };

/* ---- Text ---- */

char *manifest_write(const struct manifest *m)
{
	char *text = NULL;
	size_t len;
	FILE *f = open_memstream(&text, &len);

	if (!f)
		return NULL;
	fprintf(f,
		FIRST_LINE "\nprogram %s\nidentity %" PRIu64 " %s\nsync %" PRIu64
			   "\nimages %d\nnext %u\nfile %s\n",
		m->program.name, m->program.size, *m->program.build ? m->program.build : "-",
		m->sync, m->images, m->next_id, m->shared_file ? "shared" : "each");
	for (size_t i = 0; i < m->n; i++) {
		const struct entry *x = &m->entries[i];

		if (x->state == ENTRY_DOOMED)
			continue;
		fprintf(f,
			"coarray %u id %u %s %s size %" PRIu64 " at %" PRIu64 " since %" PRIu64
			" type %s\n",
			x->order, x->id, states[x->state], x->small ? "pooled" : "mapped", x->size,
			x->at, x->since, x->type);
		if (*x->folder)
			fprintf(f, FOLDER "%s\n", x->folder);
	}
	fflush(f);
	fprintf(f, "check %016" PRIx64 "\n", (uint64_t)XXH3_64bits(text, len));
	if (fclose(f) == 0)
		return text;
	free(text);
	return NULL;
}

static bool has_checksum(const char *text)
{
	const char *last = strstr(text, "\ncheck ");
	uint64_t sum;

	return last && sscanf(last, "\ncheck %" SCNx64, &sum) == 1 &&
	       sum == (uint64_t)XXH3_64bits(text, (size_t)(last + 1 - text));
}

/* Reads the line with the folder of the entry before it. */
static bool read_folder(struct manifest *m, const char *line)
{
	if (m->n)
		snprintf(m->entries[m->n - 1].folder, MANIFEST_FOLDER, "%.*s",
			 (int)strcspn(line, "\n"), line);
	return m->n;
}

static bool read_entry(struct manifest *m, const char *line)
{
	struct entry x = { 0 };
	char state[16], kept[16];
	int type = 0;

	if (strncmp(line, FOLDER, strlen(FOLDER)) == 0)
		return read_folder(m, line + strlen(FOLDER));
	if (sscanf(line,
		   "coarray %u id %u %15s %15s size %" SCNu64 " at %" SCNu64 " since %" SCNu64
		   " type%n",
		   &x.order, &x.id, state, kept, &x.size, &x.at, &x.since, &type) != 7 ||
	    !type)
		return false;
	x.small = strcmp(kept, "pooled") == 0;
	for (x.state = ENTRY_LIVE; strcmp(states[x.state], state) != 0; x.state++) {
		if (x.state == ENTRY_ENDED)
			return false;
	}
	line += type + 1;
	snprintf(x.type, sizeof(x.type), "%.*s", (int)strcspn(line, "\n"), line);
	return manifest_add(m, &x);
}

/* Reads the lines before the entries. Returns the line of the first entry; NULL: no manifest. */
static const char *read_header(struct manifest *m, const char *text)
{
	static const char begin[] = FIRST_LINE "\nprogram ";
	const char *name = text + strlen(begin), *line;
	char file[8], build[PROGRAM_BUILD];
	int end = 0;

	if (strncmp(text, begin, strlen(begin)) != 0 || !(line = strchr(name, '\n')))
		return NULL;
	snprintf(m->program.name, sizeof(m->program.name), "%.*s", (int)(line - name), name);
	line++;
	if (sscanf(line, "identity %" SCNu64 " %64s\nsync %" SCNu64 "\nimages %d\nnext %u\n"
			 "file %7s%n",
		   &m->program.size, build, &m->sync, &m->images, &m->next_id, file, &end) != 6 ||
	    line[end] != '\n')
		return NULL;
	strcpy(m->program.build, strcmp(build, "-") == 0 ? "" : build);
	m->shared_file = strcmp(file, "shared") == 0;
	return line + end + 1;
}

const char *manifest_read(struct manifest *m, const char *text)
{
	const char *line;

	*m = (struct manifest){ 0 };
	if (!has_checksum(text))
		return "its contents do not have its checksum: it is damaged";
	line = read_header(m, text);
	while (line && strncmp(line, "check ", 6) != 0 && read_entry(m, line))
		line = strchr(line, '\n') + 1;
	return line && strncmp(line, "check ", 6) == 0
		       ? NULL
		       : "this version of the library does not know its form";
}

/* ---- The file ---- */

static bool write_all(int fd, const char *text, size_t len)
{
	while (len) {
		ssize_t n = write(fd, text, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		text += n;
		len -= (size_t)n;
	}
	return fsync(fd) == 0;
}

static bool sync_folder(const char *path)
{
	char copy[1000];
	int fd;
	bool done;

	snprintf(copy, sizeof(copy), "%s", path);
	fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	done = fd >= 0 && fsync(fd) == 0;
	if (fd >= 0)
		close(fd);
	return done;
}

char *manifest_read_text(const char *path)
{
	FILE *f = fopen(path, "re");
	char *text = NULL;
	size_t room = 0;
	int err;

	if (!f)
		return NULL;
	err = getdelim(&text, &room, '\0', f) >= 0 ? 0 : feof(f) ? ENODATA : errno;
	fclose(f);
	if (!err)
		return text;
	free(text);
	errno = err;
	return NULL;
}

int manifest_replace(const char *path, const char *text)
{
	char fresh[1000];
	int fd;
	bool done;

	snprintf(fresh, sizeof(fresh), "%s.new", path);
	fd = open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	done = fd >= 0 && write_all(fd, text, strlen(text));
	if (fd >= 0 && close(fd) < 0)
		done = false;
	return done && rename(fresh, path) == 0 && sync_folder(path) ? 0 : -errno;
}

/* ---- Names ---- */

void manifest_path(char *path, const struct names *names)
{
	snprintf(path, MANIFEST_PATH, "%s/%smanifest", names->folder, names->prefix);
}

void manifest_copy(char *path, const struct names *names, int image)
{
	snprintf(path, MANIFEST_PATH, "%s/%s%d.manifest-copy", names->folder, names->prefix, image);
}

void manifest_lock(char *path, const struct names *names, int image)
{
	snprintf(path, MANIFEST_PATH, "%s/%s%d.lock", names->folder, names->prefix, image);
}

void manifest_file(char *path, const struct names *names, int image, const struct entry *entry)
{
	const char *folder = *entry->folder ? entry->folder : names->folder,
		   *suffix = names->temporary ? "tmp" : "win";

	if (names->shared)
		snprintf(path, MANIFEST_PATH, "%s/%s%d.%s", folder, names->prefix, image, suffix);
	else
		snprintf(path, MANIFEST_PATH, "%s/%s%d_%u.%s", folder, names->prefix, image,
			 entry->id, suffix);
}

void manifest_log(char *path, const struct names *names, int image, const struct entry *entry)
{
	const char *folder = *entry->folder ? entry->folder : names->folder;

	snprintf(path, MANIFEST_PATH, "%s/%s%d_%u.win.wal", folder, names->prefix, image,
		 entry->id);
}

/* Whether an image's file has a name that begins with the longer prefix: image 11 of "run1" and
 * image 1 of "run11" have the same file, and so do image 1 of "run" and, in shared files, "run1_".
 */
static bool reaches(const struct names *names, int images, const struct names *longer)
{
	size_t len = strlen(names->prefix);
	const char *rest = longer->prefix + len;
	unsigned long long number;
	char *end;

	if (strncmp(names->prefix, longer->prefix, len) != 0 || *rest < '1' || *rest > '9')
		return false;
	number = strtoull(rest, &end, 10);
	if (strcmp(end, "_") == 0)
		return longer->shared && !names->shared && (unsigned)images >= number;
	return !*end && (unsigned)images / 10 >= number && (unsigned)images > 10 * number;
}

bool manifest_clash(const struct names *names, int images, const struct names *other,
		    int other_images)
{
	return reaches(names, images, other) || reaches(other, other_images, names);
}

/* ---- Entries ---- */

struct entry *manifest_find(struct manifest *m, unsigned order)
{
	for (size_t i = 0; i < m->n; i++) {
		if (m->entries[i].order == order && m->entries[i].state != ENTRY_DOOMED)
			return &m->entries[i];
	}
	return NULL;
}

struct entry *manifest_add(struct manifest *m, const struct entry *entry)
{
	struct entry *more = realloc(m->entries, (m->n + 1) * sizeof(*more));

	if (!more)
		return NULL;
	m->entries = more;
	more[m->n] = *entry;
	return &more[m->n++];
}

void manifest_sweep(struct manifest *m, void (*gone)(const struct entry *entry))
{
	size_t kept = 0;

	for (size_t i = 0; i < m->n; i++) {
		if (m->entries[i].state == ENTRY_DOOMED)
			gone(&m->entries[i]);
		else
			m->entries[kept++] = m->entries[i];
	}
	m->n = kept;
}

uint64_t entry_room(const struct entry *entry)
{
	uint64_t lines = (entry->size + ENTRY_TRAILER - 1) / ENTRY_TRAILER * ENTRY_TRAILER;

	return entry->small ? lines : lines + ENTRY_TRAILER;
}

struct trailer *entry_trailer(char *base, const struct entry *entry)
{
	return (struct trailer *)(void *)(base + entry_room(entry) - ENTRY_TRAILER);
}

bool entry_is_whole(const struct entry *entry, const struct trailer *t)
{
	return memcmp(t->magic, MAGIC, sizeof(t->magic)) == 0 && t->size == entry->size;
}

void entry_stamp(char *base, const struct entry *entry, uint64_t epoch)
{
	struct trailer *t = entry_trailer(base, entry);

	*t = (struct trailer){ .epoch = epoch, .size = entry->size };
	memcpy(t->magic, MAGIC, sizeof(t->magic));
}

uint64_t manifest_place(const struct manifest *m, const struct entry *entry, uint64_t align)
{
	uint64_t at = 0, room = entry_room(entry);

	for (size_t i = 0; i < m->n; i++) {
		const struct entry *x = &m->entries[i];
		uint64_t end = x->at + entry_room(x);

		/* The entry moves behind the other one, and may now overlap an earlier one. */
		if (x->small == entry->small && x->at < at + room && at < end) {
			at = (end + align - 1) / align * align;
			i = (size_t)-1;
		}
	}
	return at;
}
