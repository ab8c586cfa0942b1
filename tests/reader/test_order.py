"""The order of samples: what comes where, how random that is, and which rank takes it."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from draws import tries
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from rawpack import Ranks, Reader
from rawpack.errors import UsageError
from rawpack.order import launcher
from rawpack.order.base import Order
from rawpack.order.keys import stream
from rawpack.order.launcher import ranks_of, resolve_rank
from rawpack.order.permutation import permuted
from rawpack.order.ranks import RankSplit
from rawpack.order.sampled import Sampled
from rawpack.order.shuffled import BlockShuffled, Sequential, Shuffled

Rows = NDArray[np.int64]
SEEDS = st.integers(-(2**70), 2**70)
EPOCHS = st.integers(0, 2**40)
WORST = 5.0
"""Standard deviations that a statistic may lie from what chance gives: p is 6e-7."""


def epoch_of(order: Order, epoch: int = 0) -> Rows:
    return order.samples(epoch, 0, order.length(epoch))


# What order version 1 is, in plain integers ---------------------------------------------------------------------

M64 = 2**64 - 1


def plain_finalise(z: int) -> int:
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & M64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & M64
    return z ^ (z >> 31)


def plain_key(purpose: str, *numbers: int) -> int:
    state = 0
    for number in [int.from_bytes(purpose.encode(), "little"), *numbers]:
        limbs = [abs(number) >> shift & M64 for shift in range(0, max(1, abs(number).bit_length()), 64)]
        for word in [2 * len(limbs) + (1 if number < 0 else 0), *limbs]:
            state = plain_finalise(((state ^ word) + 0x9E3779B97F4A7C15) & M64)
    return state


def plain_output(key: int, index: int) -> int:
    return plain_finalise((key + (index + 1) * 0x9E3779B97F4A7C15) & M64)


def plain_sorted(n: int, key: int) -> list[int]:
    return sorted(range(n), key=lambda i: (plain_output(key, i) >> n.bit_length(), i))


def plain_bijection(n: int, key: int, position: int) -> int:
    bits = max(2, (n - 1).bit_length())
    x = position
    while True:
        x ^= x >> bits // 2
        for r in range(7):
            x = (x * (plain_output(key, 2 * r) | 1) + plain_output(key, 2 * r + 1)) % 2**bits
            x ^= x >> bits // 2
        if x < n:
            return x


def test_keys_are_splitmix64() -> None:
    """The stream of a key is splitmix64's, by the values published for the seed 1234567."""
    outputs = stream(1234567)
    assert [next(outputs) for _ in range(3)] == [6457827717110365317, 3203168211198807973, 9817491932198370423]


@pytest.mark.parametrize(("n", "seed", "epoch"), [(1, 0, 0), (7, 0, 0), (64, -3, 5), (1000, 2**64, 2**33)])
def test_small_sets_are_sorted_by_hashes(n: int, seed: int, epoch: int) -> None:
    """Up to 65,536 samples, the order is the one that plain integers give."""
    assert epoch_of(Shuffled(n, seed), epoch).tolist() == plain_sorted(n, plain_key("shuffle", n, seed, epoch))


@pytest.mark.parametrize("n", [65_537, 1_300_000, 2**20, 2**32 - 1, 2**32, 2**32 + 1, 10**12, 2**62])
def test_large_sets_go_through_a_bijection(n: int) -> None:
    """Above, each position's sample is the one that plain integers give, in 32 bits, 64 bits and in between."""
    key = plain_key("shuffle", n, -1, 3)
    for start in (0, n // 3, n - 20):
        expected = [plain_bijection(n, key, position) for position in range(start, start + 20)]
        assert Shuffled(n, -1).samples(3, start, start + 20).tolist() == expected


def test_order_version_1_of_blocks_stays() -> None:
    """Orders that were written down: where this fails, `version` must go up."""
    assert Shuffled.version == BlockShuffled.version == 1
    assert epoch_of(BlockShuffled(17, 0, block=3, window=2)).tolist() == [
        14, 6, 13, 8, 12, 7, 0, 9, 1, 10, 11, 2, 3, 15, 16, 5, 4
    ]  # fmt: skip
    of_many = BlockShuffled(10**7, 1).samples(4, 5_000_000, 5_000_005)
    assert of_many.tolist() == [1436527, 7790130, 4902250, 4994149, 4511701]


# Each sample once, whatever is asked for --------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(n=st.integers(1, 5000), seed=SEEDS, epoch=EPOCHS, key=st.integers(0, M64))
@example(n=1, seed=0, epoch=0, key=0)
@example(n=4096, seed=-1, epoch=1, key=M64)
@example(n=4097, seed=1, epoch=0, key=1)
def test_a_shuffle_gives_each_sample_once(n: int, seed: int, epoch: int, key: int) -> None:
    """Every epoch of every seed is a permutation, and so is what is made for large sets, of any size."""
    assert np.sort(epoch_of(Shuffled(n, seed), epoch)).tolist() == list(range(n))
    assert np.sort(permuted(n, key, 0, n)).tolist() == list(range(n))


@settings(max_examples=tries(100), deadline=None)
@given(n=st.integers(0, 2000), seed=SEEDS, epoch=EPOCHS, block=st.integers(1, 300), window=st.integers(1, 50))
@example(n=100, seed=0, epoch=0, block=10, window=3)
@example(n=5, seed=0, epoch=0, block=10, window=3)
def test_a_block_shuffle_gives_each_sample_once(n: int, seed: int, epoch: int, block: int, window: int) -> None:
    """Every block and window size gives a permutation, in which only neighbours of two blocks part company."""
    rows = epoch_of(BlockShuffled(n, seed, block, window), epoch).tolist()
    assert sorted(rows) == list(range(n))
    position = {row: at for at, row in enumerate(rows)}
    parted = [row for row in range(n) if abs(position[row] - position[(row + 1) % n]) >= block * window]
    assert len(parted) <= -(-n // block)


def orders() -> dict[str, Order]:
    return {
        "sequential": Sequential(70_000),
        "sorted": Shuffled(5_000, 3),
        "bijection": Shuffled(70_000, 3),
        "block": BlockShuffled(5_003, 3, block=10, window=7),
        "sampled": Sampled(lambda epoch: np.arange(epoch, 5_000)[::-1], 5_000),
    }


@pytest.mark.parametrize("name", orders())
@settings(max_examples=tries(40), deadline=None)
@given(data=st.data())
def test_any_split_of_positions_gives_the_same(name: str, data: st.DataObject) -> None:
    """Positions may be asked for in any pieces, epochs and sequence, by one order or by a new one each time."""
    order, epoch = orders()[name], data.draw(st.integers(0, 3))
    whole = epoch_of(orders()[name], epoch)
    cuts = data.draw(st.lists(st.integers(0, whole.size), max_size=6))
    for start, stop in zip([0, *sorted(cuts)], [*sorted(cuts), whole.size], strict=True):
        assert np.array_equal(order.samples(epoch, start, stop), whole[start:stop])
    position = data.draw(st.integers(0, whole.size - 1))
    epoch_of(order, epoch + 1)
    assert order.samples(epoch, position, position + 1).tolist() == [whole[position]]


# How random it is -------------------------------------------------------------------------------------------------


def deviations(statistic: float, freedom: int) -> float:
    """How far a chi-square statistic lies from chance, in standard deviations (Wilson and Hilferty)."""
    spread = 2 / (9 * freedom)
    return (math.cbrt(statistic / freedom) - 1 + spread) / math.sqrt(spread)


@pytest.mark.parametrize(("n", "block", "window"), [(60, 10, 2), (30, 8, 100), (30, 1, 4)])
def test_a_block_shuffle_puts_every_sample_anywhere(n: int, block: int, window: int) -> None:
    """Chi-square of the block shuffle's samples at each position, and positions of each sample."""
    number, order = tries(1600), BlockShuffled(n, 0, block, window)
    counts = np.zeros((n, n))
    for epoch in range(number):
        counts[np.arange(n), epoch_of(order, epoch)] += 1
    # One by one: those of a block move together, so the statistic of all is not that of independent counts.
    for axis in (0, 1):
        for statistic in ((counts - number / n) ** 2 / (number / n)).sum(axis):
            assert abs(deviations(float(statistic), n - 1)) < WORST


def test_samplers() -> None:
    """An array is copied, and the order of every epoch. An iterable is drawn anew for each epoch, once, however often
    it is asked about. A function of the epoch may give generators, of varying length."""
    mine = np.array([5, 5, 1], np.int16)
    order = Sampled(mine, 6)
    mine[:] = 0
    assert order.samples(0, 0, 3).tolist() == order.samples(9, 0, 3).tolist() == [5, 5, 1]
    drawn = list[int]()

    class Anew:
        def __iter__(self) -> Iterator[int]:
            drawn.append(len(drawn) + 1)
            return iter([drawn[-1], 0, 0])

    order = Sampled(Anew(), 10)
    assert [order.length(0), len(order), order.samples(0, 0, 2).tolist()] == [3, 3, [1, 0]]
    assert order.samples(1, 0, 1).tolist() == [2]
    assert order.samples(0, 2, 3).tolist() == [0]
    assert drawn == [1, 2]
    order = Sampled(lambda epoch: (i for i in range(epoch + 1)), 100_000)
    assert [order.length(epoch) for epoch in (0, 5, 70_000)] == [1, 6, 70_001]


# A sampler of one's own -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (np.array([0, 10]), r"names the sample 10; the samples are 0 to 9 \(1 of its indices"),
        ([-1], "names the sample -1"),
        (np.zeros(10, bool), "mask, not indices: pass np.flatnonzero"),
        (np.zeros((2, 2), int), r"one-dimensional, not of shape \(2, 2\)"),
        ([[1], [2, 3]], "cannot be read as an array"),
        ([0.0, 1.0], "must be whole numbers, not float64"),
        ([], "must give at least one index"),
        (7, "must be indices, an iterable of them or a function of the epoch, not 7"),
        (iter([1, 2]), "can be iterated only once"),
        (lambda epoch: itertools.count(), "names the sample 10;"),
        (lambda epoch: iter([1, 2.5]), "one whole number after another"),
    ],
)
def test_a_sampler_that_makes_no_sense_is_refused(source: Any, message: str) -> None:
    """A wrong sampler is refused with the value that is wrong and, where there is one, the cure."""
    with pytest.raises(UsageError, match=message):
        Sampled(source, 10).samples(0, 0, 1)


# Ranks ------------------------------------------------------------------------------------------------------------


def model(
    length: int, batch_size: int, world_size: int, uneven: str, drop_last: bool, position: int
) -> list[list[list[int]]]:
    """The batches of each rank, by plain lists."""
    ranks: list[list[list[int]]] = [[] for _ in range(world_size)]
    rest = list(range(position, length))
    while rest:
        step, rest = rest[: batch_size * world_size], rest[batch_size * world_size :]
        if len(step) < batch_size * world_size:
            if drop_last:
                break
            filling = 0
            while uneven == "pad" and len(step) % world_size:
                step.append(filling % length)
                filling += 1
        for rank, batches in enumerate(ranks):
            size = len(step) // world_size + (rank < len(step) % world_size)
            at = sum(len(step) // world_size + (before < len(step) % world_size) for before in range(rank))
            if size:
                batches.append(step[at : at + size])
    return ranks


@settings(max_examples=tries(300), deadline=None)
@given(
    length=st.integers(0, 200),
    batch_size=st.integers(1, 40),
    world_size=st.integers(1, 9),
    uneven=st.sampled_from(["pad", "keep"]),
    drop_last=st.booleans(),
    data=st.data(),
)
def test_ranks_divide_the_epoch_as_lists_do(
    length: int, batch_size: int, world_size: int, uneven: Any, drop_last: bool, data: st.DataObject
) -> None:
    """From any position on, each rank's batches are those of a plain list, their number is told before, and the
    position after each step is that of all ranks."""
    position = data.draw(st.integers(0, length))
    expected = model(length, batch_size, world_size, uneven, drop_last, position)
    order = Shuffled(length, 1)
    rows = epoch_of(order)
    for rank, batches in enumerate(expected):
        split = RankSplit(length, batch_size, rank, world_size, uneven, drop_last)
        assert split.count(position) == len(batches)
        for step, positions in enumerate(batches):
            span = split.batch(step, position)
            assert len(span) == len(positions)
            assert [at for start, stop in span.pieces() for at in range(start, stop)] == positions
            assert span.samples(order, 0).tolist() == rows[positions].tolist()
        with pytest.raises(IndexError):
            split.batch(len(batches), position)
        reached = [min(position + step * batch_size * world_size, length) for step in range(1, len(batches) + 1)]
        assert [split.reached(step, position) for step in range(1, len(batches) + 1)] == reached
        spans = [split.batch(step, position) for step in range(len(batches))]
        assert list(split.spans(position)) == list(zip(spans, reached, strict=True))


# ranks="auto" -----------------------------------------------------------------------------------------------------


LIGHTNING = {"LOCAL_RANK": "1", "NODE_RANK": "0", "WORLD_SIZE": "4"}
"""What Lightning's own launcher sets."""


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, (0, 1)),
        ({"RANK": "3", "WORLD_SIZE": "8"}, (3, 8)),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "2"}, (0, 2)),
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4"}, (1, 4)),
        ({"PMI_RANK": "5", "PMI_SIZE": "6"}, (5, 6)),
        # torchrun once per node by srun: SLURM counts nodes.
        ({"RANK": "9", "WORLD_SIZE": "16", "SLURM_PROCID": "1", "SLURM_NTASKS": "2"}, (9, 16)),
        # mpirun within a batch script: SLURM knows the script only.
        ({"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4", "SLURM_PROCID": "0", "SLURM_NTASKS": "4"}, (3, 4)),
        # WORLD_SIZE exported for torch.distributed, the rank left to srun.
        ({"WORLD_SIZE": "4", "SLURM_PROCID": "2", "SLURM_NTASKS": "4"}, (2, 4)),
        # Lightning's own launcher, on the first machine; also within a batch script of SLURM.
        (LIGHTNING | {"LOCAL_RANK": "2"}, (2, 4)),
        (LIGHTNING | {"LOCAL_RANK": "0", "SLURM_PROCID": "0", "SLURM_NTASKS": "1"}, (0, 4)),
        # On a second machine only who also knows the rank among all processes can say it.
        (LIGHTNING | {"NODE_RANK": "1", "OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4"}, (3, 4)),
        # torchrun sets the local rank too.
        (LIGHTNING | {"LOCAL_RANK": "1", "NODE_RANK": "1", "RANK": "3"}, (3, 4)),
    ],
)
def test_the_launcher_says_the_rank(environ: dict[str, str], expected: tuple[int, int]) -> None:
    """torchrun, Lightning, SLURM, Open MPI and MPICH are understood, the innermost launcher first."""
    assert resolve_rank(Ranks("auto"), environ=environ) == expected


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"RANK": "3"}, "RANK=3 does not say the rank among all processes; start the processes by torchrun"),
        ({"SLURM_NTASKS": "4"}, "SLURM_NTASKS=4 does not say"),
        # What is wrong is not passed over for a launcher that says both.
        (
            {"RANK": "-1", "WORLD_SIZE": "8", "SLURM_PROCID": "0", "SLURM_NTASKS": "8"},
            "RANK=-1 and WORLD_SIZE=8 are not a rank and a number of processes",
        ),
        (LIGHTNING | {"NODE_RANK": "1"}, "WORLD_SIZE=4 and LOCAL_RANK=1 do not say the rank among all processes"),
        (LIGHTNING | {"LOCAL_RANK": "4"}, "LOCAL_RANK=4 and WORLD_SIZE=4 are not a rank"),
        ({"LOCAL_RANK": "0"}, "LOCAL_RANK=0 does not say the rank among all processes; .* call batches()"),
    ],
)
def test_an_environment_that_makes_no_sense_is_refused(environ: dict[str, str], message: str) -> None:
    """Half of a launcher's variables, where no launcher has both, never become a silent rank 0."""
    with pytest.raises(UsageError, match=message):
        resolve_rank(Ranks("auto"), environ=environ)


def test_a_given_rank_is_checked(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank given by hand is taken whatever the environment says; the environment is read only for "auto"."""
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert resolve_rank(ranks_of("auto")) == (1, 2)
    assert resolve_rank(ranks_of((3, 4))) == resolve_rank(Ranks(3, 4, last="keep")) == (3, 4)
    assert next(iter(reader.batches(4, workers=0, ranks="auto")))["index"].tolist() == [4, 5, 6, 7]
    wrong: list[tuple[Callable[[], object], str]] = [
        (lambda: ranks_of((4, 4)), "rank=4 must be below world_size=4"),
        (lambda: ranks_of((-1, 4)), "rank=-1 must be"),
        (lambda: ranks_of((0, 0)), "world_size=0 must be"),
        (lambda: ranks_of("all"), r'Ranks\(\'all\'\) must be "auto" alone'),
        (lambda: Ranks(2), r"Ranks\(2\) does not say of how many: pass \(rank, world_size\)"),
        (lambda: Ranks("auto", 4), 'must be "auto" alone'),
        (lambda: reader.batches(2, ranks=4), "ranks=4 must be None"),  # type: ignore[arg-type]
    ]
    for call, words in wrong:
        with pytest.raises(UsageError, match=words):
            call()


def torch_says(monkeypatch: pytest.MonkeyPatch, rank: int, world_size: int, initialized: bool = True) -> None:
    """Put a torch.distributed in place."""
    functions = {"get_rank": lambda: rank, "get_world_size": lambda: world_size}
    state = {"is_available": lambda: True, "is_initialized": lambda: initialized}
    monkeypatch.setitem(sys.modules, "torch.distributed", SimpleNamespace(**functions, **state))  # type: ignore[arg-type]


def read_alone(reader: Reader, **options: Any) -> int:
    """How many samples come."""
    batches = reader.batches(5, workers=0, fields=["label"], **options)
    assert f"{len(batches)} batches" in repr(batches)
    return sum(len(batch["index"]) for batch in batches)


@pytest.mark.parametrize(
    ("environ", "warned"),
    [
        # One process, or variables that are incomplete: no rank is guessed of them.
        ({}, False),
        ({"RANK": "1"}, False),
        ({"RANK": "0", "WORLD_SIZE": "1"}, False),
        ({"SLURM_NTASKS": "4"}, False),  # within salloc
        ({"RANK": "x", "WORLD_SIZE": "4"}, False),
        ({"LOCAL_RANK": "1", "WORLD_SIZE": "4"}, False),
        # Complete ones may be those of a script that starts one process.
        ({"SLURM_PROCID": "1", "SLURM_NTASKS": "2", "WORLD_SIZE": "2"}, True),
        ({"RANK": "1", "WORLD_SIZE": "2"}, True),
    ],
    ids=str,
)
def test_without_a_group_everything_is_read(
    reader: Reader, no_launcher: None, monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], warned: bool
) -> None:
    """Whatever a launcher's variables say; with a warning, once, where they are complete."""
    for name, text in environ.items():
        monkeypatch.setenv(name, text)
    assert read_alone(reader, ranks=(0, 1)) == 75
    if warned:
        with pytest.warns(UserWarning, match=r'one of [24], .*ranks="auto".* or ranks=\(0, 1\)') as caught:
            assert read_alone(reader) == 75
        assert len(caught) == 1
    assert read_alone(reader) == 75


@pytest.fixture
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in itertools.chain(*launcher.LAUNCHERS.values(), ["NODE_RANK"]):
        monkeypatch.delenv(name, raising=False)


def jax_says(monkeypatch: pytest.MonkeyPatch, rank: int, processes: int, initialized: bool = True) -> None:
    distributed = SimpleNamespace(is_initialized=lambda: initialized)
    jax = SimpleNamespace(distributed=distributed, process_index=lambda: rank, process_count=lambda: processes)
    monkeypatch.setitem(sys.modules, "jax", jax)  # type: ignore[arg-type]


def accelerate_says(monkeypatch: pytest.MonkeyPatch, rank: int, processes: int, initialized: bool = True) -> None:
    partial = SimpleNamespace(process_index=rank, num_processes=processes)
    state = SimpleNamespace(is_initialized=lambda: initialized, PartialState=lambda: partial)
    monkeypatch.setitem(sys.modules, "accelerate.state", state)  # type: ignore[arg-type]


@pytest.mark.parametrize("says", [torch_says, jax_says, accelerate_says])
def test_a_rank_of_a_group_must_be_given(
    says: Callable[..., None], reader: Reader, no_launcher: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A framework that is initialized for several processes, whichever this one is, and whatever a launcher says: an
    error before the first batch. What it advises works, as does a group of one, or one that is not initialized."""
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    for processes, share in ((2, "half"), (3, "a third"), (8, "1/8")):
        says(monkeypatch, processes - 1, processes)
        with pytest.raises(UsageError) as refused:
            read_alone(reader)
        advised = f'ranks="auto" (each reads {share}) or ranks=(0, 1) (each reads everything)'
        assert str(refused.value) == f"{processes} processes: {advised}"
        assert resolve_rank(Ranks("auto")) == (processes - 1, processes)
        assert read_alone(reader, ranks="auto") == -(-75 // processes)
        assert read_alone(reader, ranks=(0, 1)) == 75
    says(monkeypatch, 0, 1)
    assert read_alone(reader) == 75
    says(monkeypatch, 1, 4, initialized=False)
    assert read_alone(reader) == 75
