"""Workers with GPUs, whose part logical CPUs play."""

from __future__ import annotations

import gc
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from syncswitch.storage.errors import UserError
from syncswitch.trainers.cluster.exchange.gpu import compiled_or, step_of
from syncswitch.trainers.cluster.members.program import Program
from syncswitch.trainers.model.batches.feed import HeldFeed, feed_of
from tests.trainers.jobs import CONSTANT, DENSE
from tests.warm_program import run_code


def test_a_worker_that_sees_no_gpu_says_what_to_do() -> None:
    program = Program(CONSTANT, CONSTANT.load_data(), has_gpus=True)
    with pytest.raises(UserError, match="this worker sees no GPU; look at its driver"):
        step_of(program.worker_plan, HeldFeed(()))


def test_the_compiled_step_computes_the_same() -> None:
    program = Program(DENSE, DENSE.load_data(), has_gpus=True)
    plan = program.worker_plan
    # As in the process of a worker, nothing is left of the function that was traced.
    gc.collect()
    plain = plan.step.restored()
    feed = feed_of(program.data.train, plan.batch_size)
    compiled = compiled_or(plain, plan, feed)
    assert compiled is not plain
    model = program.form.initial(3).parameters
    for step in range(3):
        arguments = model, *feed.rows(step, 1), np.array([step, 1])
        for mine, yours in zip(plain(*arguments), compiled(*arguments), strict=True):
            np.testing.assert_allclose(mine, yours, rtol=1e-4, atol=1e-6)


def test_what_xla_cannot_compile_is_computed_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    def loss() -> Any:
        import tensorflow as tf

        # Strings are no numbers, and XLA knows no others.
        return lambda labels, outputs: outputs * tf.strings.to_number(tf.strings.as_string(labels))

    program = Program(replace(CONSTANT, loss=loss), CONSTANT.load_data(), has_gpus=True)
    plan = program.worker_plan
    plain = plan.step.restored()
    assert compiled_or(plain, plan, feed_of(program.data.train, plan.batch_size)) is plain
    assert "the step is not compiled" in caplog.text


def test_batches_are_made_beside_the_gpu_and_that_changes_no_number() -> None:
    code = """
        import numpy as np, tensorflow as tf
        cpu = tf.config.list_physical_devices("CPU")[0]
        two = [tf.config.LogicalDeviceConfiguration()] * 2
        tf.config.set_logical_device_configuration(cpu, two)
        from syncswitch.trainers.cluster.members.program import Program
        from tests.trainers.jobs import DENSE
        data = DENSE.load_data()
        found = []
        for has_gpus, device in ((False, "/CPU:0"), (True, "/CPU:1")):
            program = Program(DENSE, data, has_gpus=has_gpus)
            step = program.worker_plan.step.restored()
            model = program.form.initial(1).parameters
            with tf.device(device):
                outputs = step(model, data.train_inputs, data.train_labels, np.array([5, 1]))
            assert all(one.device.endswith(device[1:]) for one in outputs), outputs
            found.append([one.numpy() for one in outputs])
        made = {
            operation.type: operation.device for operation in program.step.graph.get_operations()
        }
        assert made["RandomIndexShuffle"] == made["GatherV2"] == "/device:CPU:0", made
        assert made["MatMul"] == "", made
        for mine, yours in zip(*found, strict=True):
            np.testing.assert_array_equal(mine, yours)
        print("the same")
    """
    result = run_code(textwrap.dedent(code), folder=Path(__file__).parents[4])
    assert result.stdout.strip() == "the same", result.stderr
