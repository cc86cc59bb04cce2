/* SPDX-License-Identifier: BSD-3-Clause */
/* The screen that is kept up to date, by ncurses. */
#include "top.h"

#include "base/log.h"

#include <ctype.h>
#include <ncurses.h>
#include <string.h>

#define HEADER_LINES 3 /* lines above the processes */

struct screen {
	struct view *view;
	struct options *o;
	unsigned scroll;     /* number of lines above the visible ones */
	bool asking;         /* whether the user is typing the text of the filter */
	bool helping;        /* whether the keys are shown */
	char message[LINE_MAX_LEN]; /* error of the last update; "": none */
};

static const char *const help[] = {
	"< >   sort by the column to the left or right",
	"r     reverse the order",
	"m     show or hide mappings",
	"/     show processes with this text in a name, or with this number; empty: all",
	"+ -   update more often, or less often",
	"arrows, page up and down: scroll",
	"h     show or hide this help, q: quit",
};

static void show(int y, const char *line)
{
	if (y >= HEADER_LINES && y < LINES)
		mvaddnstr(y, 0, line, COLS);
}

static void draw_head(const struct screen *s)
{
	char line[LINE_MAX_LEN];

	line_summary(line, s->view);
	mvaddnstr(0, 0, line, COLS);
	snprintf(line, sizeof(line), "every %.1f s, sorted by %s%s%s%s%s", s->o->delay,
		 columns[s->o->sort].key, s->o->ascending ? ", smallest first" : "",
		 *s->o->filter || s->asking ? ", only: " : "", s->o->filter,
		 s->asking ? "_" : "    h: help");
	mvaddnstr(1, 0, *s->message ? s->message : line, COLS);
	line_titles(line);
	attron(A_REVERSE);
	mvprintw(HEADER_LINES - 1, 0, "%-*.*s", COLS, COLS, line);
	attroff(A_REVERSE);
}

/* Draws a process from line y on, and returns the line after it. */
static int draw_process(const struct screen *s, const struct process *p, int y)
{
	char line[LINE_MAX_LEN];

	line_process(line, p);
	if (p->self.value[OVER] > 0)
		attron(A_BOLD);
	show(y++, line);
	attroff(A_BOLD);
	for (unsigned i = 0; i < p->page.st.tiers; i++)
		show(y++, line_tier(line, &p->page.st, i));
	for (unsigned i = 0; s->o->maps && i < p->shown; i++) {
		line_map(line, &p->map[i]);
		show(y++, line);
	}
	if (s->o->maps && p->mappings > p->shown)
		show(y++, line_more(line, p));
	return y;
}

static void draw(struct screen *s)
{
	int y = HEADER_LINES - (int)s->scroll;

	view_sort(s->view, s->o->sort, s->o->ascending);
	erase();
	draw_head(s);
	if (s->helping) {
		for (unsigned i = 0; i < sizeof(help) / sizeof(*help); i++)
			show(HEADER_LINES + 1 + (int)i, help[i]);
	} else {
		for (unsigned i = 0; i < s->view->count; i++) {
			if (view_matches(&s->view->process[i], s->o->filter))
				y = draw_process(s, &s->view->process[i], y);
		}
	}
	/* The user has scrolled past the last line. */
	if (y < HEADER_LINES && s->scroll)
		s->scroll = 0;
	refresh();
}

static void ask_key(struct screen *s, int key)
{
	size_t len = strlen(s->o->filter);

	if (key == '\n' || key == KEY_ENTER || key == 27)
		s->asking = false;
	else if ((key == KEY_BACKSPACE || key == 127 || key == '\b') && len > 0)
		s->o->filter[len - 1] = '\0';
	else if (key < 128 && isprint(key) && len < sizeof(s->o->filter) - 1) {
		s->o->filter[len] = (char)key;
		s->o->filter[len + 1] = '\0';
	}
}

static void move_by(struct screen *s, int lines)
{
	s->scroll = (int)s->scroll + lines < 0 ? 0 : s->scroll + (unsigned)lines;
}

/* Handles a key. Returns false if the user quits. */
static bool do_key(struct screen *s, int key)
{
	struct options *o = s->o;

	if (s->asking) {
		ask_key(s, key);
		return true;
	}
	switch (key) {
	case 'q': return false;
	case 'h': case '?': s->helping = !s->helping; break;
	case 'm': o->maps = !o->maps; break;
	case 'r': o->ascending = !o->ascending; break;
	case '<': o->sort = (o->sort + COLUMNS - 1) % COLUMNS; break;
	case '>': o->sort = (o->sort + 1) % COLUMNS; break;
	case '/': s->asking = true; *o->filter = '\0'; break;
	case '+': o->delay = o->delay > 0.4 ? o->delay / 2 : 0.2; break;
	case '-': o->delay = o->delay < 30 ? o->delay * 2 : 60; break;
	case KEY_DOWN: move_by(s, 1); break;
	case KEY_UP: move_by(s, -1); break;
	case KEY_NPAGE: move_by(s, LINES - HEADER_LINES); break;
	case KEY_PPAGE: move_by(s, HEADER_LINES - LINES); break;
	default: break;
	}
	return true;
}

/* Handles keys until the next update is due. Returns false if the user quits. */
static bool wait_for_keys(struct screen *s)
{
	uint64_t end = sys_now() + (uint64_t)(s->o->delay * 1000), now;

	while ((now = sys_now()) < end) {
		int key;

		timeout((int)(end - now));
		key = getch();
		if (key == ERR)
			continue;
		if (!do_key(s, key))
			return false;
		draw(s);
	}
	return true;
}

int screen_run(struct view *view, struct options *o)
{
	struct screen s = { .view = view, .o = o };
	SCREEN *terminal = newterm(NULL, stdout, stdin);

	if (!terminal)
		return fail(ENOTTY,
			    "cannot use this terminal: its type (TERM) is unknown. Try --once");
	cbreak();
	noecho();
	keypad(stdscr, true);
	curs_set(0);
	set_escdelay(50);
	do {
		*s.message = '\0';
		if (view_take(view) < 0)
			snprintf(s.message, sizeof(s.message), "%s", fail_message());
		draw(&s);
	} while (wait_for_keys(&s) && (!o->looks || --o->looks));
	endwin();
	delscreen(terminal);
	return 0;
}
