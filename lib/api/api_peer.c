/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The public calls by which processes of one machine reach each other's mappings. Those that copy are on the way of
 * single loads and stores: they set no guard and leave no sentence.
 */
#include "api/api.h"

#include "base/log.h"
#include "paging/map.h"
#include "memory/object.h"
#include "peer/peer.h"

#include <string.h>

/* What goes by way of a buffer of ours, at a time. */
#define PIECE 4096

int umoffer(void *addr, struct umoffer *offer)
{
	struct guard g;
	struct map *map;
	int err;

	api_enter(&g);
	if (!offer)
		return api_leave(&g, fail(EINVAL, "offer is NULL: there is no place for it"));
	map = map_get(addr);
	if (!map)
		return api_leave(&g, api_no_mapping(addr));
	if (map->set.view != addr)
		err = api_no_mapping(addr);
	else if (!map->set.reach.head)
		err = fail(EOPNOTSUPP, "the mapping was not made with UMMAP_SHARED: nobody can reach it");
	else
		err = reach_offer(&map->set.reach, object_fd(), offer);
	set_put(&map->set);
	return api_leave(&g, err);
}

int umpeer_open(const struct umoffer *offer, struct umpeer **peer)
{
	struct guard g;

	api_enter(&g);
	if (!offer || !peer)
		return api_leave(&g, fail(EINVAL, "%s is NULL", offer ? "peer" : "offer"));
	return api_leave(&g, peer_open(offer, peer));
}

void umpeer_close(struct umpeer *peer)
{
	struct guard g;

	if (!peer)
		return;
	api_enter(&g);
	peer_close(peer);
	api_leave(&g, 0);
}

/* What is mapped itself may be absent, and then waits for a frame of this process, whose segment the other process
 * may be in, while it waits for us. Nothing that is mapped is touched during a visit. */
static size_t get_by_piece(struct umpeer *peer, char *buf, size_t len, uint64_t offset)
{
	char piece[PIECE];
	size_t done = 0, n, got;

	do {
		n = min_size(len - done, sizeof(piece));
		got = peer_get(peer, piece, n, offset + done);
		memcpy(buf + done, piece, got);
		done += got;
	} while (got == n && done < len);
	return done;
}

static size_t put_by_piece(struct umpeer *peer, const char *buf, size_t len, uint64_t offset)
{
	char piece[PIECE];
	size_t done = 0, n, got;

	do {
		n = min_size(len - done, sizeof(piece));
		memcpy(piece, buf + done, n);
		got = peer_put(peer, piece, n, offset + done);
		done += got;
	} while (got == n && done < len);
	return done;
}

size_t umpeer_get(struct umpeer *peer, void *buf, size_t len, uint64_t offset)
{
	return map_meets(buf, len) ? get_by_piece(peer, buf, len, offset) : peer_get(peer, buf, len, offset);
}

size_t umpeer_put(struct umpeer *peer, const void *buf, size_t len, uint64_t offset)
{
	return map_meets(buf, len) ? put_by_piece(peer, buf, len, offset) : peer_put(peer, buf, len, offset);
}
