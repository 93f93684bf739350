"""Tensors of torch: changed in place without being seen by others, in reduces and groups, and random in every worker.

Not part of the gate, since torch is large: ``pytest python/tests/slow_torch.py`` in an environment that has it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from conftest import Program

import bireme
from bireme.context import Context
from bireme.exceptions import CollectiveUsageError, ReduceError

torch = pytest.importorskip("torch", reason="NOT TESTED: torch is not installed (pip install torch)")

# In a message, copied out of the store, and mapped.
LENGTHS = [100, 20_000, 500_000]


def round_trip(value: Any) -> Any:
    return bireme.get(bireme.put(value))


def kind_of_memory(address: int) -> str:
    """How this process has mapped an address: as `/proc/self/maps` says it, with the file."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, access, _offset, _device, _inode, *name = line.split()
        start, end = (int(part, 16) for part in span.split("-"))
        if start <= address < end:
            return f"{access} {' '.join(name)}"
    return ""


@bireme.remote
def give_back(value: Any) -> Any:
    return value


@bireme.remote
def add_in_place(tensor: Any) -> float:
    tensor += 1
    return float(tensor.sum())


def test_a_model_that_was_read_is_trained(runtime: Context) -> None:
    model = torch.nn.Linear(500, 500)
    ref = bireme.put(model)
    read, other = bireme.get(ref), bireme.get(ref)
    for optimizer in (torch.optim.SGD(read.parameters(), lr=0.1), torch.optim.Adam(read.parameters())):
        optimizer.zero_grad()
        read(torch.ones(3, 500)).sum().backward()
        optimizer.step()
    assert not torch.equal(read.weight, model.weight)
    assert torch.equal(other.weight, model.weight) and torch.equal(bireme.get(ref).bias, model.bias)
    assert read.weight.requires_grad and type(read.weight) is torch.nn.Parameter


@pytest.mark.parametrize("length", LENGTHS)
def test_a_tensor_changes_for_its_reader_only(runtime: Context, length: int) -> None:
    ref = bireme.put(torch.zeros(length))
    mine, other = bireme.get(ref), bireme.get(ref)
    mine += 1
    assert float(mine.sum()) == length and float(other.sum()) == 0
    assert bireme.get([add_in_place.remote(ref) for _ in range(4)]) == [length] * 4
    assert float(bireme.get(ref).sum()) == 0
    changed = bireme.get(ref, copy=True)
    changed.fill_(7)
    assert float(bireme.get(ref).sum()) == 0


@pytest.mark.parametrize("length", LENGTHS)
def test_tensors_come_back_as_they_were(runtime: Context, length: int) -> None:
    for dtype in (torch.float32, torch.int64, torch.bfloat16, torch.bool, torch.uint8, torch.float16, torch.complex64):
        tensor = (torch.arange(length) % 2).to(dtype).reshape(10, -1)
        for back in (round_trip(tensor), bireme.get(give_back.remote([tensor]))[0]):
            assert type(back) is torch.Tensor and back.dtype == dtype and torch.equal(back, tensor)
            assert not back.requires_grad
    strided = torch.arange(length).reshape(10, -1).T
    assert torch.equal(round_trip(strided), strided)
    assert torch.equal(bireme.get(give_back.remote(strided)), strided)
    leaf = torch.ones(length, requires_grad=True)
    assert round_trip(leaf).requires_grad and round_trip({"leaf": leaf})["leaf"].is_leaf
    made = (leaf * 2).detach()
    assert torch.equal(round_trip(made), made)
    weights = torch.nn.Linear(30, length // 10)
    assert torch.equal(round_trip(weights).weight, weights.weight)


def test_odd_tensors_come_back_too(runtime: Context) -> None:
    assert round_trip(torch.tensor(3)).item() == 3 and round_trip(torch.tensor(3)).shape == ()
    assert round_trip(torch.empty(0, 5)).shape == (0, 5)
    sparse = torch.eye(5).to_sparse()
    assert torch.equal(round_trip(sparse).to_dense(), torch.eye(5))
    named = torch.ones(3)
    named.colour = "blue"
    assert round_trip(named).colour == "blue"
    conjugate = torch.tensor([1 + 2j]).conj()
    assert torch.equal(round_trip(conjugate), conjugate)
    both = torch.ones(100_000)
    pair = round_trip((both, both))
    pair[0][0] = 5
    assert pair[1][0] == 5, "one tensor twice in a value is one tensor"


def test_a_large_tensor_shares_its_pages_until_it_is_written(runtime: Context) -> None:
    tensor = round_trip(torch.zeros(1_000_000))
    assert kind_of_memory(tensor.data_ptr()).startswith("rw-p /memfd:bireme-arena")


@pytest.mark.parametrize("length", LENGTHS)
def test_tensors_are_reduced_to_tensors(runtime: Context, length: int) -> None:
    refs = [bireme.put(torch.full((length,), float(n))) for n in range(4)] + [give_back.remote(torch.full((length,), 4.0))]
    total = bireme.get(bireme.reduce(refs))
    assert type(total) is torch.Tensor and torch.equal(total, torch.full((length,), 10.0))
    total.zero_()
    halves = [bireme.put(torch.full((length,), float(n), dtype=torch.bfloat16)) for n in (1, 2)]
    mean = bireme.get(bireme.reduce(halves, "mean"))
    assert mean.dtype == torch.bfloat16 and bool((mean == 1.5).all())
    with pytest.raises(ReduceError, match="a tensor of torch"):
        bireme.get(bireme.reduce([refs[0], bireme.put(torch.zeros(length).numpy())]))


@bireme.remote(num_cpus=0.5)
class Member:
    def run(self, group: Any, length: int) -> dict[str, Any]:
        mine = torch.full((length,), 1.0 + group.rank)
        calls = {
            "all_reduce": group.all_reduce(mine),
            "mean": group.all_reduce(mine.to(torch.bfloat16), "mean"),
            "broadcast": group.broadcast(mine, root=1),
            "all_gather": group.all_gather(mine),
            "reduce_scatter": group.reduce_scatter(mine),
            "all_to_all": group.all_to_all([mine, mine]),
            "later": group.all_reduce(mine, "max", async_op=True).wait(),
            "grad": group.all_reduce(torch.ones(3, requires_grad=True)),
        }
        if group.rank == 0:
            group.send(mine, 1)
            calls["scatter"] = group.scatter([mine, mine + 10])
        else:
            calls["recv"] = group.recv(0, like=mine)
            calls["scatter"] = group.scatter(like=mine)
        for made in calls.values():
            for tensor in made if isinstance(made, list) else [made]:
                assert type(tensor) is torch.Tensor
                if not tensor.requires_grad:
                    tensor += 0
        return calls

    def mistakes(self, group: Any) -> list[str]:
        texts = []
        for tensors in ([torch.ones(2), torch.ones(3)], [torch.eye(2).to_sparse()] * 2, [torch.ones(2) * 1j] * 2):
            try:
                group.all_to_all(tensors)
            except CollectiveUsageError as error:
                texts.append(str(error))
        return texts


@pytest.mark.parametrize("length", [4, 400_000])
def test_groups_exchange_tensors(runtime: Context, length: int) -> None:
    members = [Member.remote() for _ in range(2)]
    group = bireme.collective.Group(members)
    first, second = bireme.get([member.run.remote(group, length) for member in members])

    def filled(value: float, count: int = length) -> Any:
        return torch.full((count,), value)

    for calls in (first, second):
        assert torch.equal(calls["all_reduce"], filled(3))
        assert torch.equal(calls["mean"].float(), filled(1.5))
        assert torch.equal(calls["broadcast"], filled(2))
        assert [float(each[0]) for each in calls["all_gather"]] == [1, 2]
        assert torch.equal(calls["reduce_scatter"], filled(3, length // 2))
        assert [float(each[-1]) for each in calls["all_to_all"]] == [1, 2]
        assert torch.equal(calls["later"], filled(2))
        assert calls["grad"].tolist() == [2, 2, 2]
    assert torch.equal(first["scatter"], filled(1)) and torch.equal(second["scatter"], filled(11))
    assert torch.equal(second["recv"], filled(1))
    texts = bireme.get(members[0].mistakes.remote(group))
    assert ["one type and shape" in texts[0], "dense" in texts[1], "complex64" in texts[2]] == [True] * 3


def test_preloaded_torch_is_random_in_every_worker(program: Program) -> None:
    output, _ = program.run(source="""
    import bireme

    @bireme.remote
    class Dice:
        def roll(self):
            import torch
            return float(torch.rand(1)), int(torch.initial_seed())

    with bireme.init(num_cpus=3, preload=["torch"]):
        dice = [Dice.remote() for _ in range(3)]
        rolls = bireme.get([each.roll.remote() for each in dice])
        print(len({roll for roll, _ in rolls}), len({seed for _, seed in rolls}))
    """)
    assert output == "3 3\n"


def test_torch_trains_in_tasks_and_in_a_driver_with_threads(runtime: Context) -> None:
    @bireme.remote
    def step(model: Any, seed: int) -> Any:
        generator = torch.Generator().manual_seed(seed)
        inputs = torch.rand(64, 20, generator=generator)
        loss = (model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
        loss.backward()
        return [parameter.grad for parameter in model.parameters()]

    model = torch.nn.Linear(20, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    inputs = torch.rand(200, 20)

    def error() -> float:
        return float((model(inputs) - inputs.sum(1, keepdim=True)).square().mean().detach())

    before = error()
    for turn in range(20):
        shared = bireme.put(model)
        gradients = bireme.get([step.remote(shared, 10 * turn + n) for n in range(4)])
        for parameter, *parts in zip(model.parameters(), *gradients, strict=True):
            parameter.grad = torch.stack(parts).mean(0)
        optimizer.step()
    assert error() < before / 4
