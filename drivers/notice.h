/* SPDX-License-Identifier: BSD-3-Clause */
/* The receiver of the notices of a handle (set_notice of ummap-driver.h). The lock is a leaf, and
 * is not held while a notice is given. */
#ifndef DRIVERS_NOTICE_H
#define DRIVERS_NOTICE_H

#include <stdarg.h>
#include <stdio.h>
#include <ummap-driver.h>

#include "common/futex.h"

struct notice {
	_Atomic uint32_t lock;
	ummap_notice *give;            /* receiver; NULL: not set yet */
	void *arg;
	char early[512];               /* notice for the first receiver; "": none */
};

static inline void notice_set(struct notice *n, ummap_notice *give, void *arg)
{
	bool any;

	futex_lock(&n->lock);
	n->give = give;
	n->arg = arg;
	any = give && *n->early;
	futex_unlock(&n->lock);
	/* With a receiver, no thread writes `early`. */
	if (any)
		give(arg, n->early);
	if (any)
		*n->early = '\0';
}

__attribute__((format(printf, 2, 3)))
static inline void notice_give(struct notice *n, const char *format, ...)
{
	char sentence[sizeof(n->early)];
	ummap_notice *give;
	va_list args;
	void *arg;

	va_start(args, format);
	vsnprintf(sentence, sizeof(sentence), format, args);
	va_end(args);
	futex_lock(&n->lock);
	give = n->give;
	arg = n->arg;
	if (!give)
		snprintf(n->early, sizeof(n->early), "%s", sentence);
	futex_unlock(&n->lock);
	if (give)
		give(arg, sentence);
}

#endif
