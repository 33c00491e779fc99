"""One TensorFlow server, for the engine that has to be compared with.

python -m benchmarks.server ADDRESSES_AS_JSON JOB TASK
"""

from __future__ import annotations

import json
import sys

from syncswitch.trainers.parent import die_with_parent


def main() -> None:
    die_with_parent()
    # A server needs no Keras, which is 40 % of the time of the import.
    sys.modules["keras"] = None  # type: ignore[assignment]
    import tensorflow as tf

    addresses, job, task = json.loads(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    tf.distribute.Server(tf.train.ClusterSpec(addresses), job, task, protocol="grpc").join()


if __name__ == "__main__":
    main()
