"""Scripts in the style of Keras' gallery of examples, each as its author would write it.

`train(fit)` is the script from its data to its `fit`; `fit` is a function that takes the model and
the arguments of the model's own. That call is all that a user changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Fit = Callable[..., Any]


def convnet(fit: Fit) -> Any:
    """A small image classifier, with the callbacks that scripts bring."""
    import keras
    from keras import layers

    r = np.random.default_rng(0)
    y = r.integers(0, 3, 160)
    x = (r.normal(size=(160, 12, 12, 1)) + y[:, None, None, None]).astype("float32")
    y = keras.utils.to_categorical(y, 3)
    model = keras.Sequential(
        [
            keras.Input(shape=(12, 12, 1)),
            layers.Conv2D(4, kernel_size=(3, 3), activation="relu"),
            layers.MaxPooling2D(pool_size=(2, 2)),
            layers.Flatten(),
            layers.Dropout(0.2),
            layers.Dense(3, activation="softmax"),
        ]
    )
    model.compile(loss="categorical_crossentropy", optimizer="adam", metrics=["accuracy"])
    return fit(
        model,
        x,
        y,
        batch_size=8,
        epochs=3,
        validation_split=0.2,
        verbose=2,
        shuffle=True,
        callbacks=[
            keras.callbacks.EarlyStopping(patience=30, restore_best_weights=True),
            keras.callbacks.TerminateOnNaN(),
        ],
    )


def text_transformer(fit: Fit) -> Any:
    """A classifier with a block of attention, whose layers have no `get_config`."""
    import keras
    from keras import layers, ops

    class TransformerBlock(layers.Layer):  # type: ignore[misc]
        def __init__(self, embed_dim: int, num_heads: int, ff_dim: int, rate: float = 0.1) -> None:
            super().__init__()
            self.att = layers.MultiHeadAttention(num_heads=num_heads, key_dim=embed_dim)
            self.ffn = keras.Sequential(
                [layers.Dense(ff_dim, activation="relu"), layers.Dense(embed_dim)]
            )
            self.norm1 = layers.LayerNormalization(epsilon=1e-6)
            self.norm2 = layers.LayerNormalization(epsilon=1e-6)
            self.drop1 = layers.Dropout(rate)
            self.drop2 = layers.Dropout(rate)

        def call(self, inputs: Any) -> Any:
            attended = self.drop1(self.att(inputs, inputs))
            out = self.norm1(inputs + attended)
            return self.norm2(out + self.drop2(self.ffn(out)))

    class TokenAndPositionEmbedding(layers.Layer):  # type: ignore[misc]
        def __init__(self, maxlen: int, vocab_size: int, embed_dim: int) -> None:
            super().__init__()
            self.token_emb = layers.Embedding(input_dim=vocab_size, output_dim=embed_dim)
            self.pos_emb = layers.Embedding(input_dim=maxlen, output_dim=embed_dim)

        def call(self, x: Any) -> Any:
            return self.token_emb(x) + self.pos_emb(ops.arange(0, ops.shape(x)[-1], 1))

    r = np.random.default_rng(1)
    x = r.integers(1, 40, (160, 10))
    y = (x.mean(axis=1) > 20).astype(int)
    inputs = layers.Input(shape=(10,))
    hidden = TransformerBlock(8, 2, 8)(TokenAndPositionEmbedding(10, 40, 8)(inputs))
    hidden = layers.Dropout(0.1)(layers.GlobalAveragePooling1D()(hidden))
    model = keras.Model(inputs=inputs, outputs=layers.Dense(2, activation="softmax")(hidden))
    model.compile(optimizer="adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    return fit(model, x[:128], y[:128], batch_size=8, epochs=2, validation_data=(x[128:], y[128:]))


def vision_transformer(fit: Fit) -> Any:
    """Patches by a layer of its own, trained with AdamW from logits, two metrics."""
    import keras
    from keras import layers, ops

    class Patches(layers.Layer):  # type: ignore[misc]
        def __init__(self, patch_size: int) -> None:
            super().__init__()
            self.patch_size = patch_size

        def call(self, images: Any) -> Any:
            patches = ops.image.extract_patches(images, size=self.patch_size)
            return ops.reshape(patches, (ops.shape(images)[0], -1, 4 * 4 * 3))

    class PatchEncoder(layers.Layer):  # type: ignore[misc]
        def __init__(self, num_patches: int, projection_dim: int) -> None:
            super().__init__()
            self.num_patches = num_patches
            self.projection = layers.Dense(units=projection_dim)
            self.position = layers.Embedding(input_dim=num_patches, output_dim=projection_dim)

        def call(self, patch: Any) -> Any:
            positions = ops.expand_dims(ops.arange(0, self.num_patches, 1), axis=0)
            return self.projection(patch) + self.position(positions)

    r = np.random.default_rng(2)
    y = r.integers(0, 2, (96, 1))
    x = (r.normal(size=(96, 8, 8, 3)) + y[:, :, None, None]).astype("float32")
    inputs = keras.Input(shape=(8, 8, 3))
    augmented = keras.Sequential([layers.RandomFlip("horizontal")])(inputs)
    encoded = PatchEncoder(4, 8)(Patches(4)(augmented))
    normal = layers.LayerNormalization(epsilon=1e-6)(encoded)
    attended = layers.MultiHeadAttention(num_heads=2, key_dim=8, dropout=0.1)(normal, normal)
    features = layers.Flatten()(layers.Add()([attended, encoded]))
    model = keras.Model(inputs=inputs, outputs=layers.Dense(2)(features))
    model.compile(
        optimizer=keras.optimizers.AdamW(learning_rate=0.003, weight_decay=0.0001),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=[
            keras.metrics.SparseCategoricalAccuracy(name="accuracy"),
            keras.metrics.SparseTopKCategoricalAccuracy(2, name="top-2-accuracy"),
        ],
    )
    return fit(model=model, x=x, y=y, batch_size=8, epochs=3, validation_split=0.25)


def miniature_gpt(fit: Fit) -> Any:
    """A language model on a Dataset, with a callback that generates text by the model."""
    import keras
    import tensorflow as tf
    from keras import layers, ops

    class Block(layers.Layer):  # type: ignore[misc]
        def __init__(self, embed_dim: int) -> None:
            super().__init__()
            self.att = layers.MultiHeadAttention(2, embed_dim)
            self.norm = layers.LayerNormalization(epsilon=1e-6)

        def call(self, inputs: Any) -> Any:
            return self.norm(inputs + self.att(inputs, inputs, use_causal_mask=True))

    class TextGenerator(keras.callbacks.Callback):  # type: ignore[misc]
        def __init__(self) -> None:
            self.texts: list[list[int]] = []

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            tokens = [1, 2]
            while len(tokens) < 4:
                predicted = self.model.predict(
                    np.array([tokens + [0] * (8 - len(tokens))]), verbose=0
                )
                tokens.append(int(predicted[0, len(tokens) - 1].argmax()))
            self.texts.append(tokens)

    r = np.random.default_rng(3)
    text = (r.integers(0, 12, (128, 1)) + np.arange(9)) % 12
    data = tf.data.Dataset.from_tensor_slices((text[:, :-1], text[:, 1:])).batch(8)
    inputs = layers.Input(shape=(8,), dtype="int32")
    x = layers.Embedding(12, 8)(inputs) + layers.Embedding(8, 8)(ops.arange(8))
    model = keras.Model(inputs=inputs, outputs=layers.Dense(12)(Block(8)(x)))
    model.compile("adam", loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    generator = TextGenerator()
    record = fit(
        model, data, validation_data=data.take(4), verbose=2, epochs=3, callbacks=[generator]
    )
    assert generator.texts
    return record


def addition(fit: Fit) -> Any:
    """Sequence to sequence with LSTM; trained epoch by epoch, as the gallery's is."""
    import keras
    from keras import layers

    r = np.random.default_rng(4)
    x = np.eye(5, dtype=bool)[r.integers(0, 5, (160, 4))]
    y = x[:, 2:]
    model = keras.Sequential()
    model.add(layers.Input((4, 5)))
    model.add(layers.LSTM(8))
    model.add(layers.RepeatVector(2))
    model.add(layers.LSTM(8, return_sequences=True))
    model.add(layers.Dense(5, activation="softmax"))
    model.compile(loss="categorical_crossentropy", optimizer="adam", metrics=["accuracy"])
    record = None
    for _ in range(2):
        record = fit(
            model, x[:128], y[:128], batch_size=8, epochs=1, validation_data=(x[128:], y[128:])
        )
    return record


def collaborative_filtering(fit: Fit) -> Any:
    """A subclassed model with arguments, without `get_config`, built by its first batch."""
    import keras
    from keras import layers, ops

    class RecommenderNet(keras.Model):  # type: ignore[misc]
        def __init__(self, num_users: int, num_movies: int, embedding_size: int, **kwargs: Any):
            super().__init__(**kwargs)
            self.user_embedding = layers.Embedding(
                num_users,
                embedding_size,
                embeddings_initializer="he_normal",
                embeddings_regularizer=keras.regularizers.l2(1e-6),
            )
            self.user_bias = layers.Embedding(num_users, 1)
            self.movie_embedding = layers.Embedding(num_movies, embedding_size)
            self.movie_bias = layers.Embedding(num_movies, 1)

        def call(self, inputs: Any) -> Any:
            user = self.user_embedding(inputs[:, 0])
            movie = self.movie_embedding(inputs[:, 1])
            dot = ops.sum(user * movie, axis=1, keepdims=True)
            bias = self.user_bias(inputs[:, 0]) + self.movie_bias(inputs[:, 1])
            return ops.nn.sigmoid(dot + bias)

    r = np.random.default_rng(5)
    x = r.integers(0, 12, (240, 2))
    y = ((x[:, 0] + x[:, 1]) % 5 / 4).astype("float32")
    model = RecommenderNet(12, 12, 4)
    model.compile(
        loss=keras.losses.BinaryCrossentropy(), optimizer=keras.optimizers.Adam(learning_rate=0.001)
    )
    return fit(
        model=model,
        x=x[:200],
        y=y[:200],
        batch_size=16,
        epochs=3,
        verbose=1,
        validation_data=(x[200:], y[200:]),
    )


def structured_data(fit: Fit) -> Any:
    """Columns by name, adapted preprocessing, class weights, six metrics, a schedule by epochs."""
    import keras
    from keras import layers

    r = np.random.default_rng(6)
    ages, towns = r.normal(40, 9, (160, 1)).astype("float32"), r.integers(0, 4, (160, 1))
    y = ((ages[:, 0] > 42) & (towns[:, 0] > 0)).astype("float32")
    normal = layers.Normalization()
    normal.adapt(ages)
    age = keras.Input((1,), name="age")
    town = keras.Input((1,), name="town", dtype="int64")
    town_vector = layers.CategoryEncoding(num_tokens=4, output_mode="one_hot")(town)
    hidden = layers.Dense(8, activation="relu")(layers.concatenate([normal(age), town_vector]))
    model = keras.Model({"age": age, "town": town}, layers.Dense(1, activation="sigmoid")(hidden))
    model.compile(
        optimizer=keras.optimizers.Adam(1e-2),
        loss="binary_crossentropy",
        metrics=[
            keras.metrics.AUC(name="auc"),
            keras.metrics.Precision(name="precision"),
            keras.metrics.Recall(name="recall"),
        ],
    )
    return fit(
        model,
        {"age": ages, "town": towns},
        y,
        batch_size=8,
        epochs=4,
        validation_split=0.25,
        class_weight={0: 1.0, 1: 2.0},
        callbacks=[
            keras.callbacks.LearningRateScheduler(
                lambda epoch, rate: rate * (0.5 if epoch == 2 else 1)
            ),
            keras.callbacks.EarlyStopping(monitor="val_recall", mode="max", patience=30),
        ],
    )


def autoencoder(fit: Fit) -> Any:
    """Convolutions whose labels are their inputs."""
    import keras
    from keras import layers

    x = np.random.default_rng(7).random((96, 8, 8, 1)).astype("float32")
    inputs = layers.Input(shape=(8, 8, 1))
    code = layers.MaxPooling2D((2, 2), padding="same")(
        layers.Conv2D(4, (3, 3), activation="relu", padding="same")(inputs)
    )
    decoded = layers.Conv2DTranspose(4, (3, 3), strides=2, activation="relu", padding="same")(code)
    outputs = layers.Conv2D(1, (3, 3), activation="sigmoid", padding="same")(decoded)
    model = keras.Model(inputs, outputs)
    model.compile(optimizer="adam", loss="binary_crossentropy")
    return fit(
        model, x=x, y=x, epochs=3, batch_size=8, shuffle=True, validation_data=(x[:32], x[:32])
    )


GALLERY: dict[str, Callable[[Fit], Any]] = {
    one.__name__: one
    for one in (
        convnet,
        text_transformer,
        vision_transformer,
        miniature_gpt,
        addition,
        collaborative_filtering,
        structured_data,
        autoencoder,
    )
}
