"""Connects this process to a Ray cluster as a driver, and reserves room there."""

from __future__ import annotations

import logging
import os
import socket
import threading
from typing import Any

import psutil

from syncswitch.storage.errors import RetryableError, UserError, one_line
from syncswitch.trainers.cluster.ray.options import AUTO, RayOptions, bundles, check_capacity

_LOG = logging.getLogger(__name__)

_PROBE_SECONDS = 2.0
_CONNECT_SECONDS = 30.0
_ROOM_SECONDS = 600.0
_LOOK_SECONDS = 5.0
_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_BACKEND_LOG_LEVEL": "error",
}


def connect(options: RayOptions) -> None:
    """Makes this process a driver of the cluster."""
    if options.address != AUTO and not _listens(*options.host_and_port()):
        raise UserError(
            f"nobody listens at --ray-address {options.address}; start a cluster there with"
            f" `ray start --head`, look at the port, or use {AUTO} on one of its nodes"
        )
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    failures: list[Exception] = []
    # Ray waits for minutes for a cluster that is gone, and cannot be told otherwise.
    thread = threading.Thread(target=_init, args=(options.address, failures), daemon=True)
    thread.start()
    thread.join(_CONNECT_SECONDS)
    if thread.is_alive():
        raise UserError(
            f"the Ray cluster at --ray-address {options.address} does not answer within"
            f" {_CONNECT_SECONDS:.0f} s; look at `ray status`, or give the address of another one"
        )
    if failures:
        raise UserError(
            f"cannot join the Ray cluster at --ray-address {options.address}"
            f" ({one_line(failures[0])}); start one with `ray start --head`, and join this machine"
            " to it with `ray start --address`"
        )
    _warn_of_open_network()


def reserve(options: RayOptions, workers: int) -> Any:
    """Reserves a place for each parameter server and worker, waiting for others to leave.

    Returns:
        The placement group, with the parameter servers' bundles first.

    Raises:
        UserError: They would not fit, though nobody else were there.
        RetryableError: Others stay there for too long.
    """
    import ray
    from ray.util.placement_group import placement_group

    check_capacity([node["Resources"] for node in ray.nodes() if node["Alive"]], options, workers)
    group = placement_group(bundles(options, workers), strategy=options.placement.upper())
    if not group.wait(_LOOK_SECONDS):
        _LOG.warning("waiting for room on the Ray cluster, which others use")
        if not group.wait(_ROOM_SECONDS):
            raise RetryableError(
                f"the Ray cluster had no room for {workers:,} workers for {_ROOM_SECONDS:.0f} s;"
                " look at `ray status` for who uses it"
            )
    return group


def _listens(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=_PROBE_SECONDS).close()
    except OSError:
        return False
    return True


def _init(address: str, failures: list[Exception]) -> None:
    try:
        import ray

        ray.init(address=address, log_to_driver=False, logging_level=logging.CRITICAL)
    except Exception as error:
        failures.append(error)


def _warn_of_open_network() -> None:
    others = [name for name, state in psutil.net_if_stats().items() if state.isup and name != "lo"]
    if others:
        _LOG.warning(
            "Ray asks nobody for a password, unless it was set up to (RAY_AUTH_MODE=token); use it"
            " behind a firewall"
        )
