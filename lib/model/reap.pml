/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Threads that clear the slots of an importer that has died (reap_line in peer/export.c), and the
 * next importer, which takes the same line. The locks of lines belong to open file descriptions:
 * they exclude no threads of the exporting process from each other, but `reaping` does.
 */
#define NOBODY 0
#define DEAD 1                /* the first importer */
#define NEXT 2                /* the next importer */
#define EXPORTER 3

#define SEGS 2
#define NO_SEG 9

byte line_lock = DEAD;        /* the lock of the line (F_OFD_SETLK) */
byte slot[2];                 /* two threads of the importer may access a segment each */
bit reaping;

/* export_wait: the caller has locked segment x, and waits until no slot has it. */
inline export_wait(x) {
	do
	:: slot[0] != x && slot[1] != x -> break
	:: atomic { !reaping -> reaping = 1 }
		if
		:: atomic { line_lock == NOBODY || line_lock == EXPORTER -> line_lock = EXPORTER }
			slot[0] = NO_SEG;
			slot[1] = NO_SEG;
			line_lock = NOBODY
		:: else
		fi;
		reaping = 0
	od
}

/* A thread that writes or evicts segment x. */
proctype waiter(byte x) {
	export_wait(x)
}

/* export_close of another mapping. */
proctype closer() {
#ifdef MUTANT_export_close_unlocks
	reaping = 0
#else
	skip
#endif
}

/* The first importer dies while both of its threads are in segments. */
proctype importer_that_dies() {
	slot[0] = 0;
	slot[1] = 1;
	line_lock = NOBODY
}

proctype next_importer() {
	/* take_line */
	atomic { line_lock == NOBODY -> line_lock = NEXT }
	slot[0] = NO_SEG;
	slot[1] = NO_SEG;
	/* An access to segment 0: the slot stays until the importer leaves it. */
	slot[0] = 0;
	assert(slot[0] == 0);
	atomic {
		assert(slot[0] == 0);
		slot[0] = NO_SEG
	}
	line_lock = NOBODY
}

init {
	atomic {
		slot[0] = NO_SEG; slot[1] = NO_SEG;
		run importer_that_dies();
		run next_importer();
		run waiter(0);
		run waiter(1);
		run closer()
	}
}
