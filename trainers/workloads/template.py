"""A training job, for you to put your model and data into.

syncswitch-run FILE:workload --switch-at 100    # as it trains with BSP alone
syncswitch-search run FILE:workload             # finds when to switch
"""

import keras
import numpy as np

from syncswitch import Data, Workload

CLASSES = 3
EXAMPLES = 2000
EPOCHS = 20
BATCH_SIZE = 32
# W, the length of the job. A worker-step is the gradient of one worker on one batch, so W does not
# depend on the number of workers.
STEPS = EPOCHS * EXAMPLES // BATCH_SIZE


def model() -> keras.Model:
    """Builds the model; called for each run, so that the seed determines its initial values."""
    return keras.Sequential(
        [
            keras.Input((8,)),
            keras.layers.Dense(32, activation="relu"),
            keras.layers.Dense(CLASSES, activation="softmax"),
        ]
    )


def data() -> Data:
    """Loads the examples to train and to test with; these are made up."""
    inputs = np.random.default_rng(0).normal(size=(EXAMPLES + 500, 8)).astype("float32")
    labels = inputs[:, :CLASSES].argmax(axis=1)
    return Data(inputs[:EXAMPLES], labels[:EXAMPLES], inputs[EXAMPLES:], labels[EXAMPLES:])


# For a compiled model, `syncswitch.from_compiled(model, x, y, epochs=...)` makes the
# workload.
workload = Workload(
    name="NAME",
    model=model,
    data=data,
    # Identifies the data, which are not compared themselves: change it when you change them.
    data_set="NAME-1",
    total_worker_steps=STEPS,
    # B, of one worker.
    batch_size=BATCH_SIZE,
    # eta, of one worker: workers that wait for each other use n times as much. If that is too much,
    # largest_scaling=... limits the factor.
    learning_rate=0.01,
    # SGD with momentum is the default; any other: optimizer=lambda: keras.optimizers.Adam().
    momentum=0.9,
    # Worker-steps from which on eta is multiplied by a factor. Adam and the like may need none.
    learning_rate_boundaries=((STEPS // 2, 0.1), (3 * STEPS // 4, 0.01)),
    # The last five tests determine the accuracy of a run; 40 in a job are a good number.
    evaluation_interval_worker_steps=max(1, STEPS // 40),
    # As in compile(). If the outputs are not probabilities, a function that builds it:
    # loss=lambda: keras.losses.SparseCategoricalCrossentropy(from_logits=True).
    loss="sparse_categorical_crossentropy",
    # metric=... names or builds a Keras metric, such as "mae" or "loss"; the default is accuracy.
    # For your own metric, metric_goal="min" if less is better, and metric_unit="km" is its unit;
    # further_metrics=("loss",) are recorded beside it.
)
