"""Profiles of simulated clusters: how long they compute, send and wait."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from syncswitch.storage.errors import UserError, one_line
from syncswitch.storage.files import check_plain_file, whole_file
from syncswitch.storage.records.digest import digest_of

_MOST_BYTES = 16 << 20
_PACKAGE = "syncswitch.trainers.simulated"
_STRICT = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, strict=True)
# Within these limits every time that is computed from them is finite.
_LEAST, _MOST = 1e-9, 1e9

_Seconds = Annotated[float, Field(ge=0, le=_MOST)]
_Positive = Annotated[float, Field(ge=_LEAST, le=_MOST)]
_Speed = Annotated[float, Field(ge=1e-6, le=1e6)]
_Bandwidth = Annotated[float, Field(ge=1, le=1e15)]


class Straggler(BaseModel):
    """A worker that is slow for a while."""

    model_config = _STRICT

    worker: int = Field(ge=0)  # from 0
    start_seconds: _Seconds  # training time at which it becomes slow
    duration_seconds: _Positive  # steps that start in it are slow
    delay_seconds: _Seconds = 0.0  # added to each of them
    slowdown: float = Field(default=1.0, ge=1, le=_MOST)  # of their computing, before the delay


class ClusterProfile(BaseModel):
    """A cluster of workers and one parameter server (or several that share the load).

    Attributes:
        description: A note for people on where the figures come from.
        compute_seconds: Mean time in which a worker of relative speed 1 computes one gradient.
        compute_variation: Standard deviation over mean of that time, from step to step; the times
            are log-normal. 0 for constant times.
        relative_speeds: Permanent differences: worker k has speed `relative_speeds[k % length]`.
        parameter_bytes: Size of a copy of the model; None for 4 bytes per parameter.
        worker_bandwidths_bytes_per_second: Bandwidths of the workers' own links, per direction:
            worker k has `worker_bandwidths_bytes_per_second[k % length]`. Empty for no limit.
        server_bandwidth_bytes_per_second: Bandwidth of the parameter server's link, in each
            direction, shared by concurrent pulls and by concurrent pushes. None for no limit.
        latency_seconds: Delay of each message.
        apply_seconds: Time in which the parameter server makes one update; others wait in line.
        barrier_seconds: Cost of completing a round, besides waiting for the slowest worker.
        switch_seconds: Time from the last update of a protocol to the first step of the next.
        stragglers: Workers that are slow for a while.
    """

    model_config = _STRICT

    description: str = ""
    compute_seconds: _Positive
    compute_variation: float = Field(default=0.0, ge=0, le=10)
    relative_speeds: tuple[_Speed, ...] = Field(default=(1.0,), min_length=1)
    parameter_bytes: int | None = Field(default=None, ge=1, le=10**15)
    worker_bandwidths_bytes_per_second: tuple[_Bandwidth, ...] = ()
    server_bandwidth_bytes_per_second: _Bandwidth | None = None
    latency_seconds: _Seconds = 0.0
    apply_seconds: _Seconds = 0.0
    barrier_seconds: _Seconds = 0.0
    switch_seconds: _Seconds = 0.001
    stragglers: tuple[Straggler, ...] = ()

    @property
    def digest(self) -> str:
        """64 hexadecimal digits that identify the cluster, whatever its description says."""
        # Without defaults, so that new fields do not change it; a default must never change.
        content = self.model_dump(mode="json", exclude={"description"}, exclude_defaults=True)
        return digest_of(content)

    def check_workers(self, workers: int, source: str) -> None:
        """Raises UserError if a straggler is not among the workers."""
        for straggler in self.stragglers:
            if straggler.worker >= workers:
                raise UserError(
                    f"profile {source}: straggler.worker is {straggler.worker}, and the "
                    f"{workers} workers are numbered from 0 to {workers - 1}",
                    code="file-unusable",
                )


def profile_names() -> list[str]:
    """Names of the profiles shipped with syncswitch."""
    folder = resources.files(_PACKAGE) / "profiles"
    files = (entry.name for entry in folder.iterdir())
    return sorted(name.removesuffix(".json") for name in files if name.endswith(".json"))


def load_profile(source: str) -> ClusterProfile:
    """Reads a profile from a file, or one of those shipped with syncswitch.

    Args:
        source: Path of a JSON file, or a name.

    Raises:
        UserError: It cannot be read, or is not valid.
    """
    try:
        if source in profile_names():
            content = (resources.files(_PACKAGE) / "profiles" / f"{source}.json").read_bytes()
        else:
            check_plain_file(Path(source), _MOST_BYTES)
            content = Path(source).read_bytes()
    except OSError as error:
        raise UserError(
            f"profile {source!r} cannot be read ({error.strerror or one_line(error)}); give a "
            f"JSON file, or one of {', '.join(profile_names())}",
            code="file-unusable",
        ) from error
    try:
        return ClusterProfile.model_validate_json(content)
    except ValidationError as error:
        raise UserError(f"profile {source}: {_first_of(error)}", code="file-unusable") from error


def write_profile(profile: ClusterProfile, path: Path) -> None:
    """Writes a profile to a JSON file, completely or not at all."""
    first, second, *_ = ClusterProfile.model_fields
    beginnings = tuple(f'{{\n  "{name}":'.encode() for name in (first, second))
    with whole_file(path, replaces=beginnings) as file:
        file.write(profile.model_dump_json(indent=2, exclude_defaults=True).encode() + b"\n")


def _first_of(error: ValidationError) -> str:
    problems = error.errors(include_url=False)
    first = problems[0]
    place = ".".join(map(str, first["loc"]))
    value = "" if first["type"] in ("missing", "json_invalid") else f" is {first['input']!r}"
    further = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    message = f"{first['msg'][:1].lower()}{first['msg'][1:]}"
    if first["type"] == "extra_forbidden":
        known = ClusterProfile if len(first["loc"]) == 1 else Straggler
        message = f"no such field; there are {', '.join(known.model_fields)}"
    return f"{place}{value}: {message}{further}".lstrip(": ")
