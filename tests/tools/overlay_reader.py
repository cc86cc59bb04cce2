#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Prints the contents of a store at the last commit: overlay_reader.py OVERLAY STORE.

It follows docs/overlay-format.md and shares no code with the library. The exit status is 77 without
libxxhash, and 1 if the overlay is damaged.
"""
import ctypes.util
import pathlib
import struct
import sys

NONE = 2**64 - 1
LIBRARY = ctypes.util.find_library("xxhash")
if not LIBRARY:
    sys.exit(77)
XXH3 = ctypes.CDLL(LIBRARY).XXH3_64bits_withSeed
XXH3.restype = ctypes.c_uint64
XXH3.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint64]


def checksum(data, seed):
    return XXH3(data, len(data), seed)


def numbers(data, count, offset=0):
    return struct.unpack_from(f"={count}Q", data, offset)


class Overlay:
    def __init__(self, path):
        self.bytes = pathlib.Path(path).read_bytes()
        self.read_header()
        self.read_commits()

    def part(self, offset, length):
        return self.bytes[offset:offset + length].ljust(length, b"\0")

    def read_header(self):
        valid = {}
        for i, copy in enumerate((self.part(0, 4096), self.part(4096, 4096))):
            magic, number = numbers(copy, 2)
            if copy[:8] == b"umovrly1" and number % 2 == i and \
                    checksum(copy[:4088], magic) == numbers(copy, 1, 4088)[0]:
                valid[number] = copy
        if not valid:
            sys.exit("there is no whole header")
        self.salt, _, self.block, _, self.base, self.base_size, self.home, _, self.floor, \
            self.goal = numbers(valid[max(valid)], 10, 16)

    def is_whole(self, data):
        return checksum(data[:-8], self.salt) == numbers(data, 1, len(data) - 8)[0]

    def read_commits(self):
        self.commits = {self.base: (self.base_size, 0)}
        newest = self.goal - 1 if self.goal else NONE
        for i in range(32):
            record = self.part(8192 + 512 * i, 64)
            number, _, size, floor, _, digest = numbers(record, 6, 8)
            if record[:8] == b"ovlcmmt1" and self.is_whole(record) and number % 32 == i and \
                    self.base < number <= newest and 0 <= number - floor < 16:
                self.commits[number] = (size, digest)
        record = self.part(24576, 16)
        acknowledged = numbers(record, 1)[0] if self.is_whole(record) else 0
        self.acknowledged = min(max(self.home, self.floor, acknowledged), newest)

    def round_up(self, offset):
        return (offset + self.block - 1) // self.block * self.block

    def read_slots(self, commit):
        """Returns (commit, sum, block, checksum, offset, cut) of the records that count."""
        blocks, group, first, counting = self.round_up(32768), self.round_up(32768), 0, {}
        while group < len(self.bytes):
            for i in range(512):
                slot = first + i % 256
                record = self.part(group + i * 64, 64)
                block, number, _, _, data, own, flags, record_sum = numbers(record, 8)
                if own == slot and self.base < number <= commit and self.is_whole(record):
                    offset = group + blocks + i % 256 * self.block
                    found = (number, record_sum, block, data, offset, bool(flags & 8))
                    counting[slot] = max(found, counting.get(slot, found))
            group += blocks + 256 * self.block
            first += 256
        return sorted(counting.values())

    def holds(self, commit, checks_blocks):
        digest = self.commits[commit][1]
        for number, record_sum, block, data, offset, cut in self.read_slots(commit):
            if checks_blocks and number == commit and block != NONE and not cut and \
                    checksum(self.part(offset, self.block), 0) != data:
                return False
            digest ^= record_sum
        return digest == 0

    def last_commit(self):
        newest, durable = max(self.commits), max(self.base, self.acknowledged)
        if newest >= durable and self.goal in (0, newest + 1) and \
                self.holds(newest, newest > durable):
            return newest
        if newest > durable and not self.goal and newest - 1 in self.commits and \
                self.holds(newest - 1, False):
            return newest - 1
        sys.exit("the overlay is damaged")

    def contents(self, commit, store):
        size = self.commits[commit][0]
        slots = self.read_slots(commit)
        cuts = [(number, block) for number, _, block, _, _, cut in slots if cut and block != NONE]
        end = min([size] + [block * self.block for _, block in cuts])
        result = bytearray(store[:end].ljust(size, b"\0"))
        for number, _, block, _, offset, cut in slots:
            if block != NONE and number > self.home and not cut and \
                    all(number >= n or block < first for n, first in cuts):
                result[block * self.block:(block + 1) * self.block] = self.part(offset, self.block)
        return result[:size]


if __name__ == "__main__":
    overlay = Overlay(sys.argv[1])
    contents = overlay.contents(overlay.last_commit(), pathlib.Path(sys.argv[2]).read_bytes())
    sys.stdout.buffer.write(contents)
