"""Trains with JAX on all devices of all processes, and saves a checkpoint after each step.

STORE JOURNAL CHECKPOINT EPOCHS DEVICES [STEPS]: DEVICES of this process; after STEPS, it ends without warning.
"""

import json
import os
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from trained import Journal

from rawpack import Ranks, Reader, UsageError

store, journal_folder, path, epochs, devices, *kill_after = sys.argv[1:]
jax.config.update("jax_num_cpu_devices", int(devices))
processes, process = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
if processes > 1:
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"127.0.0.1:{os.environ['MASTER_PORT']}", processes, process)
assert jax.device_count() == int(devices) * processes
journal, checkpoint = Journal(journal_folder, process), Path(path)

mesh = Mesh(jax.devices(), ("data",))
data, replicated = NamedSharding(mesh, PartitionSpec("data")), NamedSharding(mesh, PartitionSpec())
reader = Reader(store)
batches = reader.batches(8 // processes, shuffle=True, workers=2, drop_last=True, ranks=(process, processes))
loader = batches.jax(data)


def refused(words, make):
    try:
        make()
        message = "nothing was refused"
    except UsageError as error:
        message = str(error)
    assert words in message, message


if processes > 1:
    uneven = {"batch_size": 4, "ranks": Ranks(process, processes, last="keep")}
    words = f"this process has 8 of the 8 rows that {processes} ranks read"
    refused(words, lambda: batches.jax(replicated))
    refused('last="keep" gives some ranks fewer samples', lambda: reader.batches(**uneven).jax(data))
    refused(f'{processes} processes: ranks="auto"', lambda: next(iter(reader.batches(4, workers=0))))


def mean_loss(weights, images, labels):
    pixels = images.reshape(len(images), -1) / 255 - 0.4
    logits = jnp.tanh(pixels @ weights["hidden"]) @ weights["out"]
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], 1).mean()


@jax.jit
def step(weights, images, labels):
    loss, slopes = jax.value_and_grad(mean_loss)(weights, images, labels)
    return jax.tree.map(lambda weight, slope: weight - 0.2 * slope, weights, slopes), loss


rng = np.random.default_rng(0)
weights = {"hidden": rng.normal(0, 0.05, (192, 16)), "out": rng.normal(0, 0.1, (16, 4))}
first, steps = 0, 0
if checkpoint.exists():
    saved = json.loads(checkpoint.read_text())
    first = saved["state"]["epoch"]
    weights = saved["weights"]
    loader.load_state_dict(saved["state"])
weights = jax.device_put({name: np.asarray(weight, np.float32) for name, weight in weights.items()}, replicated)

for epoch in range(first, int(epochs)):
    losses = []
    for batch in loader:
        assert batch["image"].shape == (8, 8, 8, 3)
        assert batch["image"].sharding == data
        weights, loss = step(weights, batch["image"], batch["label"])
        losses.append(loss)
        journal.trained(epoch, [n for shard in batch["number"].addressable_shards for n in np.asarray(shard.data)])
        if process == 0:
            kept = {name: np.asarray(weight).tolist() for name, weight in weights.items()}
            checkpoint.write_text(json.dumps({"state": loader.state_dict(), "weights": kept}))
        steps += 1
        if kill_after and steps == int(kill_after[0]):
            jax.block_until_ready(loss)
            os._exit(7)
    print(float(sum(losses) / len(losses)))
