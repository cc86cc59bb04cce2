# SPDX-License-Identifier: BSD-3-Clause
"""Searches for the nearest vectors with an HNSW graph that is larger than memory.

`hnsw.py make FOLDER [VECTORS]` builds an index of 100,000 vectors with hnswlib, and makes from it a
file of 390 MiB in which each vector, with the numbers of its neighbors, has a page of its own.
`hnsw.py search FOLDER [METHOD [QUERIES]]` looks for the 10 nearest of 100 vectors. It prints the
recall, the sum of the numbers that it found, and on the standard error output the queries per
second. METHOD is how the program reads the graph:
    mapped      numpy.memmap (default)
    random      numpy.memmap with MADV_RANDOM
    advised     numpy.memmap with MADV_WILLNEED for candidates
    rows        ummap.memmap, whose index by a list of rows loads them together
    prefetched  ummap.memmap with prefetch() of candidates
    hnswlib     hnswlib's own search, with its index in the heap
The candidates are the neighbors of the vector that the search visits, and of the one that it will
probably visit next.
"""
import heapq
import mmap
import sys
import time

import numpy as np

COLUMNS, NEIGHBORS, FOUND, EXPANDED = 960, 16, 10, 96
RECORD = 1024  # words of 4 bytes: the number of neighbors, their numbers, the vector
FIRST = 1 + 2 * NEIGHBORS  # word at which the vector begins


def make(folder, count):
    import hnswlib
    rng = np.random.default_rng(1)
    # The vectors are near a space of 24 dimensions, as vectors of texts and images are.
    basis = rng.standard_normal((24, COLUMNS), "f4")

    def vectors(n):
        noise = rng.standard_normal((n, COLUMNS), "f4")
        return rng.standard_normal((n, 24), "f4") @ basis + np.float32(0.1) * noise

    data, queries = vectors(count), vectors(100)
    index = hnswlib.Index("l2", COLUMNS)
    index.init_index(count, M=NEIGHBORS, ef_construction=40, random_seed=1)
    index.add_items(data)
    index.save_index(folder + "/index")
    distances = (data ** 2).sum(axis=1) - 2 * queries @ data.T
    np.savez(folder + "/queries", queries=queries,
             nearest=np.argpartition(distances, FOUND)[:, :FOUND])
    # The header of hnswlib 0.6, the records of level 0, and the neighbors in the other levels.
    with open(folder + "/index", "rb") as file:
        _, _, _, size, label_at, _ = np.fromfile(file, "u8", 6)
        levels, entry = np.fromfile(file, "u4", 2)
        np.fromfile(file, "u8", 5)
        records = np.fromfile(file, "u1", int(count * size)).reshape(count, -1)
        upper = np.fromfile(file, "u4")
    graph = np.zeros((count, RECORD), "u4")
    graph[:, :FIRST + COLUMNS] = records[:, :label_at].view("u4")
    graph.tofile(folder + "/graph")
    labels = np.ascontiguousarray(records[:, label_at:]).view("u8")[:, 0]
    print(f"{count} vectors")
    np.savez(folder + "/upper", levels=levels, entry=entry, neighbors=upper, labels=labels)


class Graph:
    def __init__(self, folder, method):
        self.method = method
        if method in ("rows", "prefetched"):
            import ummap
            self.records = ummap.memmap(folder + "/graph", "u4", "r", advice="random")
        else:
            self.records = np.memmap(folder + "/graph", "u4", "r")
            if method == "random":
                self.records._mmap.madvise(mmap.MADV_RANDOM)
        self.records = self.records.reshape(-1, RECORD)
        file = np.load(folder + "/upper.npz")
        self.entry, self.top, self.labels = int(file["entry"]), int(file["levels"]), file["labels"]
        # The neighbors of each vector that is in levels above 0, from level 1.
        self.upper, words, at = {}, file["neighbors"], 0
        for i in range(len(self.labels)):
            levels = int(words[at]) // (4 * (NEIGHBORS + 1))
            end = at + 1 + levels * (NEIGHBORS + 1)
            if levels:
                self.upper[i] = [words[start + 1:start + 1 + words[start]]
                                 for start in range(at + 1, end, NEIGHBORS + 1)]
            at = end

    def announce(self, rows):
        if self.method == "prefetched":
            self.records.prefetch(rows)
        elif self.method == "advised":
            for row in rows:
                self.records.base._mmap.madvise(mmap.MADV_WILLNEED, int(row) * 4 * RECORD,
                                                4 * RECORD)

    def read(self, rows, query):
        """Returns the distances of vectors and their neighbors."""
        records = self.records[rows]
        distances = ((records[:, FIRST:FIRST + COLUMNS].view("f4") - query) ** 2).sum(axis=1)
        return distances.tolist(), [record[1:1 + record[0]] for record in records]

    def search(self, query):
        """Returns the numbers of the nearest vectors."""
        near, [distance], [links] = self.entry, *self.read([self.entry], query)
        for level in range(self.top - 1, -1, -1):
            # The entry may be alone in its level.
            while len(rows := self.upper[near][level]):
                self.announce(rows)
                distances, lists = self.read(rows, query)
                best = int(np.argmin(distances))
                if distances[best] >= distance:
                    break
                near, distance, links = int(rows[best]), distances[best], lists[best]
        seen, announced = {near}, {near}
        candidates, found = [(distance, near, links)], [(-distance, near)]
        while candidates:
            distance, _, links = heapq.heappop(candidates)
            if distance > -found[0][0] and len(found) == EXPANDED:
                break
            rows = [row for row in links.tolist() if row not in seen]
            following = candidates[0][2].tolist() if candidates else []
            new = [row for row in rows + following if row not in announced]
            announced.update(new)
            if new:
                self.announce(new)
            if not rows:
                continue
            seen.update(rows)
            for row, distance, links in zip(rows, *self.read(rows, query)):
                if len(found) < EXPANDED or distance < -found[0][0]:
                    heapq.heappush(candidates, (distance, row, links))
                    heapq.heappush(found, (-distance, row))
                    if len(found) > EXPANDED:
                        heapq.heappop(found)
        return self.labels[[row for _, row in heapq.nlargest(FOUND, found)]]


def search(folder, method, count):
    file = np.load(folder + "/queries.npz")
    queries, nearest = file["queries"][:count], file["nearest"][:count]
    if method == "hnswlib":
        import hnswlib
        index = hnswlib.Index("l2", COLUMNS)
        index.load_index(folder + "/index")
        index.set_ef(EXPANDED)
        start = time.monotonic()
        found = [index.knn_query(query, FOUND, num_threads=1)[0][0] for query in queries]
    else:
        graph = Graph(folder, method)
        start = time.monotonic()
        found = [graph.search(query) for query in queries]
    seconds = time.monotonic() - start
    hits = sum(len(set(a) & set(b)) for a, b in zip(found, nearest.tolist()))
    print(f"{hits / nearest.size:.3f} {sum(int(labels.sum()) for labels in found)}")
    print(f"{len(queries) / seconds:.2f}", file=sys.stderr)


if sys.argv[1] == "make":
    make(sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 100000)
else:
    search(sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else "mapped",
           int(sys.argv[4]) if len(sys.argv) > 4 else 100)
