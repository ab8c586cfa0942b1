"""Trains with Keras, with checkpoints, and ends without warning after 18 steps: STORE FOLDER.

The layer `Seen` counts, among the model's own weights, how often each sample was trained on.
"""

import os
import sys

import keras
import numpy as np

from rawpack import Reader
from rawpack.transforms import RandomHorizontalFlip

SAMPLES, BATCH, EVERY = 50, 4, 4


@keras.saving.register_keras_serializable("rawpack tests")
class Seen(keras.layers.Layer):
    """Passes its first input on, and counts the samples that the second one names, in every step of training."""

    def build(self, shapes):
        self.counts = self.add_weight(shape=(SAMPLES,), initializer="zeros", trainable=False, name="counts")

    def call(self, inputs, training=False):
        features, numbers = inputs
        if training:
            self.counts.assign_add(keras.ops.sum(keras.ops.one_hot(numbers, SAMPLES), axis=0))
        return features


def make_model(**compiled):
    """A small model with dropout, whose seeds are weights too."""
    keras.utils.set_random_seed(1)
    image, number = keras.Input((8, 8, 3), name="image"), keras.Input((), dtype="int32", name="number")
    features = keras.layers.Flatten()(keras.layers.Rescaling(1 / 255, offset=-0.4)(image))
    features = keras.layers.Dropout(0.2, seed=2)(keras.layers.Dense(16, "relu")(features))
    outputs = keras.layers.Dense(4)(Seen(name="seen")([features, number]))
    model = keras.Model({"image": image, "number": number}, outputs)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.01), loss, metrics=["accuracy"], **compiled)
    return model


def make_data(store, **options):
    """Shuffled batches with random flips."""
    options = {"shuffle": True, "seed": 3, "workers": 0, "transform": [RandomHorizontalFlip()]} | options
    batches = Reader(store).batches(BATCH, **options)
    return batches.keras(x={"image": "image", "number": "number"}, y="label")


def weights_of(model):
    """All weights, those of the optimizer, and the counts."""
    arrays = [np.asarray(keras.ops.convert_to_numpy(weight)) for weight in model.weights]
    return arrays + [np.asarray(keras.ops.convert_to_numpy(weight)) for weight in model.optimizer.variables]


class Ends(keras.callbacks.Callback):
    """Ends the process after some steps."""

    steps = 0

    def on_train_batch_end(self, batch, logs=None):
        self.steps += 1
        if self.steps == 18:
            os._exit(7)


if __name__ == "__main__":
    store, folder = sys.argv[1:]
    data = make_data(store, workers=2)
    make_model().fit(data, shuffle=False, epochs=3, callbacks=[data.checkpoint(folder, every=EVERY), Ends()], verbose=2)
