"""Files that TensorBoard reads.

The format is that of the package `tensorboard`, of which only parts that do without TensorFlow are
imported: a process that runs a user's command has none.
"""

from __future__ import annotations

import itertools
import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_numbers = itertools.count()


class EventFile:
    """A new file of events in a folder; each is written at once, so a killed run leaves them all.

    All methods raise OSError where it cannot be written.
    """

    def __init__(self, folder: Path) -> None:
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.summary.writer.record_writer import RecordWriter

        self._events, self._summaries = event_pb2, summary_pb2
        # TensorBoard reads the files of a folder in the order of their names.
        name = (
            f"events.out.tfevents.{time.time():017.6f}.{socket.gethostname()}.{os.getpid()}"
            f".{next(_numbers)}"
        )
        folder.mkdir(parents=True, exist_ok=True)
        self._writer = RecordWriter((folder / name).open("xb", buffering=0))
        self._write(event_pb2.Event(file_version="brain.Event:2"))

    def begin_session(self, step: int, parameters: Mapping[str, bool | float | str]) -> None:
        """Discards what earlier files say of this step and later ones."""
        from tensorboard.plugins.hparams import summary_v2

        started = self._events.SessionLog(status=self._events.SessionLog.START)
        self._write(self._events.Event(step=step, session_log=started))
        self._summarize(0, summary_v2.hparams_pb(parameters))

    def end_session(self, *, is_success: bool) -> None:
        """Says how it ended."""
        from tensorboard.plugins.hparams import api_pb2, metadata, plugin_data_pb2

        status = api_pb2.STATUS_SUCCESS if is_success else api_pb2.STATUS_FAILURE
        ended = plugin_data_pb2.SessionEndInfo(status=status, end_time_secs=time.time())
        content = plugin_data_pb2.HParamsPluginData(session_end_info=ended)
        value = self._summaries.Summary.Value(
            tag=metadata.SESSION_END_INFO_TAG,
            metadata=metadata.create_summary_metadata(content),
            tensor=metadata.NULL_TENSOR,
        )
        self._summarize(0, self._summaries.Summary(value=[value]))

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Numbers by name."""
        parts = [self._summaries.Summary.Value(tag=n, simple_value=v) for n, v in values.items()]
        self._summarize(step, self._summaries.Summary(value=parts))

    def text(self, step: int, name: str, text: str) -> None:
        """Words."""
        from tensorboard.compat.proto import tensor_pb2, types_pb2
        from tensorboard.plugins.text import metadata

        tensor = tensor_pb2.TensorProto(
            dtype=types_pb2.DT_STRING, string_val=[text.encode(errors="replace")]
        )
        value = self._summaries.Summary.Value(
            tag=name, tensor=tensor, metadata=metadata.create_summary_metadata(name, "")
        )
        self._summarize(step, self._summaries.Summary(value=[value]))

    def close(self) -> None:
        """Ends the file."""
        self._writer.close()

    def _summarize(self, step: int, summary: Any) -> None:
        self._write(self._events.Event(step=step, summary=summary))

    def _write(self, event: Any) -> None:
        event.wall_time = time.time()
        self._writer.write(event.SerializeToString())
