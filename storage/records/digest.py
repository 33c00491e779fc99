"""The digest of a value, the same on every machine and in every year."""

from __future__ import annotations

import hashlib
import json
from typing import Any


def digest_of(value: Any) -> str:
    """Returns the SHA-256 of a value as canonical JSON, 64 hexadecimal digits.

    Raises ValueError if a number in it is not finite.
    """
    canonical = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()
