"""Parses options of protocols."""

from __future__ import annotations

LARGEST = 1_000_000
"""Of any number in an option: beyond all that makes a difference in a job."""


def whole_number(text: str, meaning: str, least: int, most: int = LARGEST) -> int:
    """Reads a number of an option.

    Raises:
        ValueError: It is not a whole number from `least` to `most`.
    """
    digits = text.strip()
    if not (digits.isascii() and digits.isdigit()):
        raise _wrong(meaning, least, most)
    # Python refuses to read thousands of digits, with another message.
    digits = digits.lstrip("0") or "0"
    if len(digits) > len(str(most)) or not least <= int(digits) <= most:
        raise _wrong(meaning, least, most)
    return int(digits)


def _wrong(meaning: str, least: int, most: int) -> ValueError:
    return ValueError(f"{meaning} must be a whole number from {least} to {most}")
