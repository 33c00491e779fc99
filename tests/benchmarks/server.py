"""One TensorFlow server, for the engine that has to be compared with.

python -m tests.benchmarks.server ADDRESSES_AS_JSON JOB TASK
"""

from __future__ import annotations

import json
import sys

from syncswitch.trainers.cluster.servers.network import die_with_parent
from syncswitch.trainers.cluster.servers.server import do_without_keras, serve

die_with_parent()
do_without_keras()
addresses, job, task = json.loads(sys.argv[1]), sys.argv[2], int(sys.argv[3])
serve(addresses, job, task, int(addresses[job][task].rpartition(":")[2]))
