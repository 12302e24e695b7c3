"""Put figures, times and foreign text into the words that a person reads."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime

_DAY_SECONDS = 86_400.0
_ESCAPES = re.compile(r"\x1b(\[[0-9;?]*[ -/]*[@-~]|.)?")


def count(number: int) -> str:
    """Return a whole number with separators, for example `12,340`."""
    return f"{number:,}"


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, for example `1 point` or `1,797 points`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def points_done(done: int, total: int) -> str:
    """Return for example `812 of 1,797 points`."""
    return f"{count(done)} of {counted(total, 'point')}"


def duration(seconds: float) -> str:
    """Return a duration with at most two units, for example `0.83 s`, `1 min 19 s` or `3 d 4 h`."""
    if not math.isfinite(seconds):
        return "for ever"
    seconds = max(seconds, 0.0)
    if seconds < 9.95:
        return f"{seconds:.2g} s" if seconds >= 0.0995 else f"{seconds * 1000:.2g} ms"
    whole = round(seconds)
    for unit, size, small, small_size in (
        ("d", 86_400, "h", 3600),
        ("h", 3600, "min", 60),
        ("min", 60, "s", 1),
    ):
        if whole >= size:
            rest = whole % size // small_size
            return f"{whole // size} {unit} {rest} {small}" if rest else f"{whole // size} {unit}"
    return f"{whole} s"


def clock(at: float, now: float) -> str:
    """Return a Unix time as the local clock shows it, with the day unless it is today: `Thu 17:40`."""
    then, today = datetime.fromtimestamp(at, UTC).astimezone(), datetime.fromtimestamp(now, UTC).astimezone()
    if then.date() == today.date():
        return f"{then:%H:%M}"
    if abs(at - now) < 6 * _DAY_SECONDS:
        return f"{then:%a %H:%M}"
    return f"{then:%a} {then.day} {then:%b %H:%M}" + ("" if then.year == today.year else f" {then.year}")


def pace(points_per_second: float) -> str:
    """Return a rate in the unit that gives a handy number: points/s, or s, min or h per point."""
    if points_per_second <= 0 or not math.isfinite(points_per_second):
        return "no rate yet"
    if points_per_second >= 0.995:
        return f"{_three_digits(points_per_second)} points/s"
    seconds = 1 / points_per_second
    for unit, size in (("h", 3600.0), ("min", 60.0)):
        if seconds >= 1.5 * size:
            return f"{_three_digits(seconds / size)} {unit}/point"
    return f"{_three_digits(seconds)} s/point"


def percent(done: int, total: int) -> str:
    """Return a share in percent that shows 100 only when it is all, and 0 only when it is nothing."""
    if total <= 0 or done >= total:
        return "100 %"
    share = 100 * done / total
    if share >= 99.9:
        return f"{math.floor(share * 10) / 10:.1f} %"
    return f"{share:.1f} %" if 0 < share < 9.95 else f"{min(round(share), 99)} %"


def amount(size_bytes: float) -> str:
    """Return a size in the binary unit that gives a handy number, for example `1.5 GiB`."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size_bytes < 1024:
            return f"{size_bytes:.0f} {unit}" if unit == "bytes" else f"{_three_digits(size_bytes)} {unit}"
        size_bytes /= 1024
    return f"{_three_digits(size_bytes)} TiB"


def points_of(start: int, stop: int) -> str:
    """Return a range of points as a person says it: `point 7`, or `[7, 14)`."""
    return f"point {start}" if stop == start + 1 else f"[{start}, {stop})"


def one_line(text: str, limit: int = 200) -> str:
    """Return foreign text (somebody's exception message) as one short line without control characters."""
    flat = " ".join(_ESCAPES.sub("", text[: limit * 4]).split())
    clean = "".join(letter if letter.isprintable() else "?" for letter in flat)
    return clean if len(clean) <= limit else clean[: max(limit - 3, 0)] + "..."


def block(text: str) -> str:
    """Return foreign text of many lines (a traceback) with its lines kept and control characters gone."""
    lines = _ESCAPES.sub("", text).expandtabs().splitlines()
    return "\n".join("".join(c if c.isprintable() else "?" for c in line).rstrip() for line in lines)


def _three_digits(number: float) -> str:
    if number >= 99.95:
        return f"{number:,.0f}"
    return f"{number:.1f}" if number >= 9.995 else f"{number:.2f}".rstrip("0").rstrip(".")
