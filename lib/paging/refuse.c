/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Who waits for an access by userfaultfd cannot be given an error. So the place of the segment loses all its rights: a
 * thread that tries again gets SIGSEGV, which is ours to turn into SIGBUS, and a system call EFAULT. One thread takes
 * the error; a system call leaves it, and so it is forgiven after a while: in the second round after it, since the
 * first may be now, before the thread has had its turn. Takes the locks of segments.
 */
#include "paging/refuse.h"

void refuse(struct set *set, size_t i, int err)
{
	struct seg *s = set_seg(set, i);

	seg_lock(s);
	if (seg_has(s, SEG_VALID) && !seg_has(s, SEG_STANDBY)) {
		/* Somebody was luckier. */
		set->engine->wake(set_view(set, i), set_view_len(set, i));
	} else {
		set->load_error = err;
		seg_change(s, SEG_FORGIVING, SEG_BARRED);
		set_mark(set->touched, i);
		set->barred = true;
		set->engine->poison(set_view(set, i), set_view_len(set, i));
	}
	seg_unlock(s);
}

int refuse_lift(struct set *set, size_t i, struct seg *s)
{
	int err = set->engine->unpoison(set_view(set, i), set_view_len(set, i));

	if (!err)
		seg_change(s, SEG_BARRED | SEG_FORGIVING, 0);
	return err;
}

int refuse_taken(struct set *set, size_t i)
{
	struct seg *s = set_seg(set, i);
	int err = 0;

	if (!set->engine->by_message)
		return 0;
	seg_lock(s);
	/* One that came to standby meanwhile needs no error. */
	if (seg_has(s, SEG_BARRED) && !seg_has(s, SEG_VALID) && refuse_lift(set, i, s) == 0)
		err = set->load_error;
	seg_unlock(s);
	return err;
}

/* In this round, or in the next one. Also one that came to standby meanwhile. */
static void forgive(struct set *set, size_t i, struct seg *s, bool now)
{
	seg_lock(s);
	if (seg_has(s, SEG_BARRED) && (now || seg_has(s, SEG_FORGIVING))) {
		if (refuse_lift(set, i, s) < 0)
			set->barred = true;
	} else if (seg_has(s, SEG_BARRED)) {
		seg_change(s, 0, SEG_FORGIVING);
		set->barred = true;
	}
	seg_unlock(s);
}

void refuse_forgive(struct set *set, bool now)
{
	if (!atomic_exchange(&set->barred, false))
		return;
	for (size_t i = set_next(set, set->touched, 0); i < set->segs; i = set_next(set, set->touched, i + 1)) {
		struct seg *s = set_seg(set, i);

		if (seg_has(s, SEG_BARRED))
			forgive(set, i, s, now);
	}
}
