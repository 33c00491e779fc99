"""Texts of Ray 2.60."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncswitch.trainers.cluster.ray.engine import cause_of_death

KILLED = """The actor died unexpectedly before finishing this task.
\tclass_name: PartActor
\tactor_id: 2d0057eb49b87bedbbeb052302000000
\tpid: 28879
\tip: 127.0.0.1
The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR Worker exit.
"""
NODE = """The actor died unexpectedly before finishing this task.
\tclass_name: PartActor
The actor died because its node has died. Node Id: d92359f37fa8
\tthe actor's node was terminated unexpectedly
"""
MISSING = """The actor died because of an error raised in its creation task, ray::K.__init__()
RuntimeError: The actor with name K failed to import on the worker. This may be because needed:

ray::K.__init__() (pid=31684, ip=127.0.0.1)
                  ^^^^^^^^^
ModuleNotFoundError: No module named 'syncswitch'
"""
FAR = "The actor c909 is unavailable: The actor is temporarily unavailable: RpcError. The task may."


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (KILLED, "The actor is dead because its worker process has died"),
        (NODE, "The actor died because its node has died"),
        (
            MISSING,
            "ModuleNotFoundError: No module named 'syncswitch'; pip install 'syncswitch[ray]' on"
            " each node",
        ),
        (FAR, "The actor c909 is unavailable: The actor is temporarily unavailable: RpcError"),
        ("", "it says nothing"),
    ],
)
def test_the_telling_sentence_is_found(text: str, cause: str) -> None:
    assert cause_of_death(text) == cause


@given(text=st.text())
def test_it_is_always_a_short_line(text: str) -> None:
    cause = cause_of_death(text)
    assert len(cause.splitlines()) <= 1
    assert len(cause) <= 160


def test_neither_ray_nor_tensorflow_is_imported_before_it_is_needed() -> None:
    program = """
import sys
import syncswitch.searcher.backends.ray, syncswitch.trainers.cluster.ray.engine
print({"ray", "tensorflow"} & set(sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "set()\n", done.stderr
