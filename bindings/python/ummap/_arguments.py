# SPDX-License-Identifier: BSD-3-Clause
"""Parsers of the arguments that ummap.open, ummap.memmap and ummap.load share."""
import os
import re
from dataclasses import dataclass
from typing import Any, Iterator, Optional, Union

from . import _ummap

Size = Union[int, str, None]

MODES = ["r", "c", "r+", "w+"]
ADVICE = {"normal": 0, "random": 1, "sequential": 2, "willneed": 3, "dontneed": 4}
PAGE_BYTES = os.sysconf("SC_PAGESIZE")
# The smallest limit of a process that the library accepts.
_MIN_LIMIT_PAGES = 4
_MODE_NAMES = {"readonly": "r", "copyonwrite": "c", "readwrite": "r+", "write": "w+"}
_ENGINES = {None: 0, "auto": 1, "segv": 2, "uffd": 3, "sigbus": 4}
_ON_FULL = {None: 0, "wait": 1, "sigbus": 2}
_MAX_ROW_SEGMENT_BYTES = 2 << 20
# UMMAP_SEG_AUTO: segments are pages, and the library finds how many of them are loaded together.
_SEGMENT_AUTO = 1
# Maximum number of pages that a copy pins at a time with "auto".
_MAX_PINNED_PAGES = 64
# If no segment size is given, a limit has room for this number of segments.
_SEGMENTS_PER_LIMIT = 32
_URI = re.compile(r"[a-z][a-z0-9-]*(\+[a-z][a-z0-9-]*)*:")
_SIZE_FORMS = 'a number of bytes, or a number with a unit such as "64M", "64MB", "64MiB" or "0.5G"'


def is_uri(store: Any) -> bool:
    """Return whether `store` is a URI (``scheme:...``) and not a path. ``"./a:b"`` is a path."""
    return isinstance(store, str) and _URI.match(store) is not None


def parse_mode(mode: str) -> str:
    """Return the short name of a mode. An unknown mode raises ValueError with numpy's message."""
    mode = _MODE_NAMES.get(mode, mode)
    if mode not in MODES:
        raise ValueError(f"mode must be one of {MODES + list(_MODE_NAMES)!r} (got {mode!r})")
    return mode


def parse_advice(advice: str) -> int:
    """Return the library's number of an advice. Unknown advice raises ValueError."""
    if advice not in ADVICE:
        raise ValueError(f"advice must be one of {list(ADVICE)!r} (got {advice!r})")
    return ADVICE[advice]


def parse_engine(engine: Optional[str]) -> int:
    """Return the library's number of an engine. An unknown engine raises ValueError."""
    if engine not in _ENGINES:
        raise ValueError(f"engine must be one of {list(_ENGINES)!r} (got {engine!r})")
    return _ENGINES[engine]


def parse_on_full(on_full: Optional[str]) -> int:
    """Return the library's number for an argument `on_full`. Others raise ValueError."""
    if on_full not in _ON_FULL:
        raise ValueError(f"on_full must be one of {list(_ON_FULL)!r} (got {on_full!r})")
    return _ON_FULL[on_full]


def _is_percentage(size: Size) -> bool:
    return isinstance(size, str) and size.strip().endswith("%")


def _parse_percentage(text: str, name: str) -> float:
    try:
        return _ummap.parse_percent(text.strip())
    except ValueError:
        raise ValueError(f'{name} is "{text}": a percentage must be more than 0% and at '
                         'most 100%') from None


def _parse_bytes(size: Union[int, str], name: str, forms: str) -> int:
    if isinstance(size, str):
        try:
            size = _ummap.parse_size(size.strip())
        except ValueError:
            raise ValueError(f'{name} is "{size}": it must be {forms}') from None
    if isinstance(size, bool) or not hasattr(size, "__index__"):
        raise TypeError(f'{name} must be bytes or a string such as "4G", not {size!r}')
    size = size.__index__()
    if size <= 0:
        raise ValueError(f"{name} is {size}: it must be more than 0 bytes")
    return size


def parse_size(size: Size, name: str) -> int:
    """Return the bytes of a size such as 4096, "64K", "64KiB" or "1.5G", and 0 for None.

    `name` is the argument's name, for messages. Raises ValueError or TypeError for anything else.
    """
    if size is None:
        return 0
    if _is_percentage(size):
        raise ValueError(f'{name} is "{size}": it must be {_SIZE_FORMS}. Only limits may be a '
                         "percentage")
    return _parse_bytes(size, name, _SIZE_FORMS)


def machine_memory() -> int:
    """Return the bytes of the machine's memory."""
    return os.sysconf("SC_PHYS_PAGES") * PAGE_BYTES


def _cgroup_limits() -> Iterator[int]:
    """Yield the memory limits of this process's cgroups and of all their parents, in bytes."""
    try:
        with open("/proc/self/cgroup") as f:
            lines = f.read().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, group = line.split(":", 2)
        if not controllers:
            files = [("/sys/fs/cgroup", "memory.max"), ("/sys/fs/cgroup/unified", "memory.max")]
        elif "memory" in controllers:
            files = [("/sys/fs/cgroup/memory", "memory.limit_in_bytes")]
        else:
            continue
        parts = group.strip("/").split("/")
        for root, name in files:
            for depth in range(len(parts) + 1):
                try:
                    with open(os.path.join(root, *parts[:depth], name)) as f:
                        text = f.read()
                except OSError:
                    continue
                if not text.startswith("max"):
                    yield int(text)


def usable_memory() -> int:
    """Return the bytes of memory to which percentages refer.

    This is the machine's memory, or the smallest limit of the process's cgroups if that is less.
    The library computes UMMAP_MEM_LIMIT=50% in the same way.
    """
    return min([machine_memory(), *_cgroup_limits()])


def parse_limit(limit: Size, name: str) -> int:
    """Return the bytes of a mapping's limit, which may be a percentage, and 0 for None."""
    if limit is None:
        return 0
    if _is_percentage(limit):
        limit = int(_parse_percentage(limit, name) / 100 * usable_memory())
    return _parse_bytes(limit, name, f'{_SIZE_FORMS}, or a percentage of the memory such as '
                                     '"50%"')


def parse_process_limit(limit: Union[int, str], name: str) -> Union[int, float]:
    """Return the limit of a process in bytes (int), or in per cent of the memory (float).

    Raises ValueError for a limit that the library would refuse.
    """
    if _is_percentage(limit):
        return _parse_percentage(str(limit), name)
    number, memory = parse_limit(limit, name), machine_memory()
    least = _MIN_LIMIT_PAGES * PAGE_BYTES
    if not least <= number <= memory:
        raise ValueError(f"{name} is {number}: it must be at least {least} ({_MIN_LIMIT_PAGES} "
                         f"pages), and at most {memory}, the bytes of this machine's memory")
    return number


def check_offset(offset: int) -> None:
    """Raise ValueError if the offset is negative."""
    if offset < 0:
        raise ValueError(f"offset is {offset}: it must not be negative")


def default_segment_bytes() -> int:
    """Return the segment size of a mapping whose caller gives none."""
    return parse_segment(os.environ.get("UMMAP_SEG_SIZE") or _SEGMENT_AUTO, "UMMAP_SEG_SIZE")


def parse_segment(segment: Size, name: str) -> int:
    """Return the bytes of a segment size, and UMMAP_SEG_AUTO for "auto"."""
    return _SEGMENT_AUTO if segment == "auto" else parse_size(segment, name)


def choose_segment_bytes(segment: Size, limit: int, advice: Optional[str], row: int) -> int:
    """Return the segment size for a mapping, and 0 for the library's default.

    `segment` is the caller's size and has priority. Without it, a mapping for random access gets
    segments of a row (`row` bytes; 0: unknown). A size from UMMAP_SEG_SIZE or of a row is small
    enough that the limit has room for `_SEGMENTS_PER_LIMIT`.
    """
    if segment is not None:
        return parse_segment(segment, "segment")
    default = default_segment_bytes()
    is_row_wanted = advice == "random" and row > 0
    if default == _SEGMENT_AUTO and not is_row_wanted:
        return 0
    wanted = _MAX_ROW_SEGMENT_BYTES if default == _SEGMENT_AUTO else default
    if is_row_wanted:
        wanted = min(wanted, 1 << (row - 1).bit_length())
    if limit:
        wanted = min(wanted, 1 << max(limit // _SEGMENTS_PER_LIMIT, 1).bit_length() - 1)
    return 0 if wanted == default else max(wanted, PAGE_BYTES)


def pin_bytes(segment: int, budget: int) -> int:
    """Return the bytes that copies pin at a time: a segment, or several pages with "auto"."""
    if segment != _SEGMENT_AUTO:
        return max(segment, PAGE_BYTES)
    share = min(budget // _SEGMENTS_PER_LIMIT, _MAX_PINNED_PAGES * PAGE_BYTES)
    return max(share // PAGE_BYTES, 1) * PAGE_BYTES


@dataclass(frozen=True)
class Options:
    """The keyword arguments that ummap.open, ummap.memmap and ummap.load share, checked."""

    limit: Size = None
    segment: Size = None
    policy: Optional[str] = None
    advice: Optional[str] = None
    writers: bool = False
    kernel: bool = False
    engine: Optional[str] = None
    on_full: Optional[str] = None
    node_cache: bool = False
    tiers: Optional[str] = None

    def __post_init__(self) -> None:
        """Raise ValueError or TypeError before a store is opened, which may empty it."""
        parse_limit(self.limit, "limit")
        parse_segment(self.segment, "segment")
        parse_engine(self.engine)
        parse_on_full(self.on_full)
        if self.advice is not None:
            parse_advice(self.advice)
