"""Trains with Keras, saves a checkpoint after every third batch, and writes down what it trained on.

STORE FOLDER EPOCHS CALLBACK [STEPS]: after STEPS more steps, it ends without warning. CALLBACK is "checkpoint", or
"epoch" or "5" for Keras's own BackupAndRestore, which saves after each epoch or so many batches. The layer `Seen`
counts, among the model's own weights, how often each sample was trained on.
"""

import os
import sys
from pathlib import Path

import keras
import numpy as np

from rawpack import Reader
from rawpack.transforms import RandomHorizontalFlip

SAMPLES, BATCH = 50, 4


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

    def __init__(self, steps):
        super().__init__()
        self.steps = steps

    def on_train_batch_end(self, batch, logs=None):
        self.steps -= 1
        if not self.steps:
            os._exit(7)


if __name__ == "__main__":
    store, folder, epochs, kind, *steps = sys.argv[1:]
    data, model = make_data(store, workers=2), make_model()
    place = Path(folder) / "checkpoint"
    if kind == "checkpoint":
        callback = data.checkpoint(place, every=3)
    else:
        save_freq = kind if kind == "epoch" else int(kind)
        callback = keras.callbacks.BackupAndRestore(str(place), save_freq=save_freq, delete_checkpoint=False)
    first = callback.initial_epoch if kind == "checkpoint" else 0
    callbacks = [callback, *(Ends(int(count)) for count in steps)]
    history = model.fit(data, shuffle=False, epochs=int(epochs), initial_epoch=first, callbacks=callbacks, verbose=2)
    np.savez(Path(folder) / "weights.npz", *weights_of(model))
    print(history.epoch[0], *history.history["loss"])
