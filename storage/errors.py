"""All errors that syncswitch raises on purpose.

```
SyncSwitchError
├── UserError            the user must act: the message says what, the value, what is allowed and
│   │                    what to do
│   ├── WorkloadError    a workload cannot be loaded, or is not the one of a policy
│   ├── DatabaseError    the database is missing, foreign, older or newer than this version
│   ├── PolicyError      a policy file is truncated or altered, or no such policy exists
│   └── RecordingError   a recorded run, or the manifest that lists it, cannot be imported
├── RetryableError       the same call may succeed later: a lost worker
│   └── DatabaseAwayError  the database is busy or away; it is waited for longer
└── FatalError           a defect or a broken environment; trying again does not help
```

The command line turns a `UserError` into one line and exit status 2, the other two into one line
and exit status 1.
"""

from __future__ import annotations

import re

__all__ = [
    "DatabaseAwayError",
    "DatabaseError",
    "FatalError",
    "PolicyError",
    "RecordingError",
    "RetryableError",
    "SyncSwitchError",
    "UserError",
    "WorkloadError",
    "escaped",
    "one_line",
    "reason_of",
]

_LONGEST_QUOTE = 300


class SyncSwitchError(Exception):
    """Base of all errors of this project."""


class UserError(SyncSwitchError):
    """Something only the user can put right; the message is one complete line."""


class WorkloadError(UserError):
    """A workload that cannot be loaded or does not fit."""


class UnsuitableProtocolError(UserError):
    """A protocol with which a workload cannot be trained."""


class DatabaseError(UserError):
    """A database that cannot be used as it is."""


class PolicyError(UserError):
    """A timing policy that does not exist, is damaged, or belongs to another workload."""


class RecordingError(UserError):
    """A recorded run, or a manifest of such runs, that cannot be imported."""


class RetryableError(SyncSwitchError):
    """A passing fault of the infrastructure; the same call may succeed later."""


class DatabaseAwayError(RetryableError):
    """A database that is busy or does not answer; its server may be restarted meanwhile."""


class FatalError(SyncSwitchError):
    """A fault that another try does not cure."""


# Control characters except tabs and line ends, and characters that change the writing direction.
STEERING = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def escaped(text: str) -> str:
    """Returns a text whose characters that would control a terminal are spelt out."""
    return STEERING.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def one_line(error: BaseException) -> str:
    """Returns any error for use in a line: its class and the start of its text."""
    try:
        text = " ".join(str(error).split())
    except Exception:  # `str` runs foreign code
        text = ""
    if len(text) > _LONGEST_QUOTE:
        text = f"{text[:_LONGEST_QUOTE]}..."
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def reason_of(error: BaseException) -> str:
    """Returns any error for use in a line; our own errors without their class."""
    return str(error) if isinstance(error, SyncSwitchError) else one_line(error)
