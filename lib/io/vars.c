/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The values of variables in URIs: predefined ones, and those of the program, which are copied.
 * Independent of URIs. Lock: `lock`, a leaf, held while the list is walked.
 */
#include "io/vars.h"

#include "base/log.h"
#include "base/sys.h"
#include "common/fork.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NAME_CHARS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_"
#define NAME_MAX_LEN 63
#define VARS_MAX 256 /* variables of the program */

struct var {
	struct var *next;
	char *value;             /* value; in the same allocation, after the name */
	char name[];
};

static struct var *vars;
static size_t count;
static _Atomic uint32_t lock;

__attribute__((constructor))
static void register_fork_handler(void)
{
	fork_register(FORK_VARIABLES, &lock, NULL, NULL);
}

/* Launchers give each process its rank in one of these variables. */
static int put_rank(char *value)
{
	static const char *const names[] = { "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK",
					     "SLURM_PROCID" };

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		const char *text = secure_getenv(names[i]);

		if (!text)
			continue;
		if (!*text || strlen(text) > 20 || text[strspn(text, "0123456789")])
			return fail(EINVAL, "cannot replace {rank} in a URI: %s is '%s', which is "
				    "not a number", names[i], text);
		return sprintf(value, "%s", text);
	}
	return fail(EINVAL, "cannot replace {rank} in a URI: OMPI_COMM_WORLD_RANK, PMI_RANK, "
		    "PMIX_RANK and SLURM_PROCID are not set. Try to start the program by a "
		    "launcher (mpirun, srun)");
}

static int put_pid(char *value)
{
	return sprintf(value, "%d", (int)getpid());
}

static int put_host(char *value)
{
	if (gethostname(value, VARS_VALUE_MAX) < 0)
		return fail(EINVAL, "cannot replace {host} in a URI: %s", strerror(errno));
	return (int)strlen(value);
}

static const struct builtin {
	const char *name;
	int (*put)(char *value);
} builtins[] = { { "rank", put_rank }, { "pid", put_pid }, { "host", put_host } };

static const struct builtin *find_builtin(const char *name, size_t len)
{
	for (size_t i = 0; i < sizeof(builtins) / sizeof(*builtins); i++) {
		if (strlen(builtins[i].name) == len && memcmp(builtins[i].name, name, len) == 0)
			return &builtins[i];
	}
	return NULL;
}

/* Under the lock: returns the pointer that points to the variable, or that ends the list. */
static struct var **find(const char *name, size_t len)
{
	struct var **at = &vars;

	while (*at && (strlen((*at)->name) != len || memcmp((*at)->name, name, len) != 0))
		at = &(*at)->next;
	return at;
}

size_t vars_name_len(const char *s)
{
	return strspn(s, NAME_CHARS);
}

int vars_get(const char *name, size_t len, char value[static VARS_VALUE_MAX + 1])
{
	const struct builtin *builtin = find_builtin(name, len);
	const struct var *var;
	int n = -EINVAL;

	if (builtin)
		return builtin->put(value);
	futex_lock(&lock);
	var = *find(name, len);
	if (var)
		n = sprintf(value, "%s", var->value);
	futex_unlock(&lock);
	if (n < 0)
		fail(EINVAL, "cannot replace {%.*s} in a URI: there is no such variable. Try "
		     "{rank}, {pid}, {host} or a variable that ummap_setvar has set",
		     (int)min_size(len, NAME_MAX_LEN), name);
	return n;
}

static struct var *make_var(const char *name, const char *value)
{
	size_t name_size = strlen(name) + 1, value_size = strlen(value) + 1;
	struct var *var = malloc(sizeof(*var) + name_size + value_size);

	if (!var)
		return NULL;
	memcpy(var->name, name, name_size);
	var->value = memcpy(var->name + name_size, value, value_size);
	return var;
}

/* Under the lock. */
static struct var *take_out(const char *name)
{
	struct var **at = find(name, strlen(name)), *var = *at;

	if (var) {
		*at = var->next;
		count--;
	}
	return var;
}

static bool put_in(struct var *var)
{
	if (count == VARS_MAX)
		return false;
	var->next = vars;
	vars = var;
	count++;
	return true;
}

static int check_name(const char *name)
{
	size_t len = name ? vars_name_len(name) : 0;

	if (len == 0 || name[len] || len > NAME_MAX_LEN)
		return fail(EINVAL, "cannot set the variable '%.*s': its name must be 1 to %d "
			    "letters, digits and '_'", NAME_MAX_LEN, name ? name : "(NULL)",
			    NAME_MAX_LEN);
	if (find_builtin(name, len))
		return fail(EINVAL, "cannot set the variable {%s}: it is built in", name);
	return 0;
}

int vars_set(const char *name, const char *value)
{
	struct var *var = NULL, *old;
	bool room;
	int err = check_name(name);

	if (err)
		return err;
	if (value && strnlen(value, VARS_VALUE_MAX + 1) > VARS_VALUE_MAX)
		return fail(EINVAL, "cannot set the variable {%s}: its value has more than %d "
			    "bytes", name, VARS_VALUE_MAX);
	if (value) {
		var = make_var(name, value);
		if (!var)
			return fail(ENOMEM, "cannot set the variable {%s}: no memory", name);
	}
	futex_lock(&lock);
	old = take_out(name);
	room = !var || put_in(var);
	futex_unlock(&lock);
	free(old);
	if (room)
		return 0;
	free(var);
	return fail(ENOMEM, "cannot set the variable {%s}: there are %d variables already, the "
		    "maximum. Try to remove one", name, VARS_MAX);
}
