"""Runs a module in the network of another process.

python -m tests.trainers.cluster.ray.enter_network PROCESS_ID MODULE [ARGUMENT ...]
"""

from __future__ import annotations

import runpy
import sys

from tests.private_network import enter_network

if __name__ == "__main__":
    enter_network(int(sys.argv[1]))
    del sys.argv[:2]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
