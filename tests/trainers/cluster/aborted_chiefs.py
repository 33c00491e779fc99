"""Chiefs that TensorFlow's runtime has aborted, told from those that anything else has ended.

Its remote execution is not made for servers that die: now and then the end of one destroys the
memory of the chief, at once or later. The run goes on from its last checkpoint on another cluster.
"""

from __future__ import annotations

import re

import pytest

_ABORTED = re.compile(r"the cluster of \d+ workers died of SIG(ABRT|SEGV|BUS|ILL|FPE|TRAP); ")


def aborted_chiefs(log: pytest.LogCaptureFixture | str) -> int:
    """How many there were in a test, or in what a program has written."""
    text = log if isinstance(log, str) else log.text
    return len(_ABORTED.findall(text))
