"""Collective groups: every verb and element type, calls that go on by themselves, and every way in which members can disagree."""

from __future__ import annotations

import os
import pickle
import queue
import signal
import threading
import time
from typing import Any

import pytest

import bireme
from bireme.collective import Group
from bireme.exceptions import (
    ActorDiedError,
    CollectiveError,
    CollectiveMemberLostError,
    CollectiveMismatchError,
    CollectiveTimeoutError,
    CollectiveUsageError,
)

numpy = pytest.importorskip("numpy")

EIGHT_CPUS = pytest.mark.parametrize("runtime", [{"num_cpus": 8}], indirect=True)
NUMBERS = ["float16", "float32", "float64", "int32", "int64", "uint8"]
# Inside messages; streamed by the nodes.
SIZES = [5, 300_000]


@bireme.remote(num_cpus=0.5)
class Member:
    """Makes calls of a group as it is told."""

    def pid(self) -> int:
        return os.getpid()

    def rank(self, group: Group) -> tuple[int, int]:
        return group.rank, group.world_size

    def call(self, group: Group, verb: str, *arguments: Any, **choices: Any) -> Any:
        return getattr(group, verb)(*arguments, **choices)

    def later(self, group: Group, verb: str, *arguments: Any, **choices: Any) -> Any:
        work = getattr(group, verb)(*arguments, **choices, async_op=True)
        return work.wait(30)

    def many_later(self, group: Group, count: int, size: int) -> list[float]:
        works = [group.all_reduce(numpy.full(size, float(n)), async_op=True) for n in range(count)]
        return [float(work.wait()[0]) for work in works]

    def twice(self, group: Group, other: Any) -> list[str]:
        outcomes: queue.Queue[str] = queue.Queue()
        threads = [threading.Thread(target=lambda: outcomes.put(_outcome(group.barrier))) for _ in range(2)]
        for thread in threads:
            thread.start()
        # Whichever comes second is refused, while the first one waits for the other member.
        refused = outcomes.get()
        bireme.get(other.call.remote(group, "barrier"))
        return [refused, outcomes.get()]

    def is_writable(self, group: Group, size: int) -> bool:
        return bool(group.all_gather(numpy.zeros(size))[0].flags.writeable)


def _outcome(call: Any) -> str:
    try:
        call()
    except CollectiveError as error:
        return str(error)
    return "done"


@bireme.remote(num_cpus=0.5)
class AsyncMember:
    async def sum(self, group: Group, value: float) -> float:
        work = group.all_reduce(numpy.array([value]), async_op=True)
        return float((await work)[0])


def actors(count: int) -> list[Any]:
    return [Member.remote() for _ in range(count)]


def every(members: list[Any], group: Group, verb: str, *arguments: Any, **choices: Any) -> list[Any]:
    return bireme.get([member.call.remote(group, verb, *arguments, **choices) for member in members], timeout=60)


def each(members: list[Any], group: Group, verb: str, arguments: list[Any], **choices: Any) -> list[Any]:
    calls = [member.call.remote(group, verb, given, **choices) for member, given in zip(members, arguments, strict=True)]
    return bireme.get(calls, timeout=60)


def ramps(count: int, size: int, dtype: str = "float64") -> list[Any]:
    return [(numpy.arange(size) % 7 + rank + 1).astype(dtype) for rank in range(count)]


@EIGHT_CPUS
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_every_verb_does_what_it_says(runtime: object, count: int, size: int) -> None:
    members = actors(count)
    group = Group(members)
    arrays = ramps(count, size)
    total = sum(arrays)
    root = count - 1
    for made in each(members, group, "all_reduce", arrays):
        numpy.testing.assert_array_equal(made, total)
    for made in each(members, group, "broadcast", arrays, root=root):
        numpy.testing.assert_array_equal(made, arrays[root])
    reduced = each(members, group, "reduce", arrays, root=root, op="max")
    numpy.testing.assert_array_equal(reduced[root], numpy.max(arrays, axis=0))
    assert [made is None for made in reduced] == [rank != root for rank in range(count)]
    gathered = each(members, group, "gather", arrays, root=root)
    numpy.testing.assert_array_equal(gathered[root], arrays)
    assert sum(made is None for made in gathered) == count - 1
    for made in each(members, group, "all_gather", arrays):
        assert isinstance(made, list)
        numpy.testing.assert_array_equal(made, arrays)
    lists = [arrays if rank == root else None for rank in range(count)]
    for rank, made in enumerate(each(members, group, "scatter", lists, root=root)):
        numpy.testing.assert_array_equal(made, arrays[rank])
    tables = [numpy.stack([array + n for n in range(count)]) for array in arrays]
    for rank, made in enumerate(each(members, group, "reduce_scatter", tables)):
        assert made.shape == (1, size)
        numpy.testing.assert_array_equal(made, sum(tables)[rank : rank + 1])
    given = [[array * (to + 1) for to in range(count)] for array in arrays]
    for rank, made in enumerate(each(members, group, "all_to_all", given)):
        numpy.testing.assert_array_equal(made, [array * (rank + 1) for array in arrays])
    assert every(members, group, "barrier") == [None] * count


@EIGHT_CPUS
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", NUMBERS)
def test_all_element_types_and_ops(runtime: object, dtype: str, size: int) -> None:
    members = actors(3)
    group = Group(members)
    arrays = ramps(3, size, dtype)
    expected = {"sum": sum(arrays), "product": arrays[0] * arrays[1] * arrays[2]}
    expected |= {"min": numpy.min(arrays, axis=0), "max": numpy.max(arrays, axis=0)}
    if dtype.startswith("float"):
        expected["mean"] = (sum(arrays) / 3).astype(dtype)
    for op, result in expected.items():
        for made in each(members, group, "all_reduce", arrays, op=op):
            assert made.dtype == dtype
            numpy.testing.assert_allclose(made, result, rtol=1e-3 if dtype == "float16" else 1e-6)


@EIGHT_CPUS
def test_brain_floats_are_combined_too(runtime: object) -> None:
    kinds = pytest.importorskip("ml_dtypes")
    members = actors(2)
    arrays = [array.astype(kinds.bfloat16) for array in ramps(2, 9)]
    for made in each(members, Group(members), "all_reduce", arrays):
        assert made.dtype == kinds.bfloat16
        numpy.testing.assert_array_equal(made, arrays[0] + arrays[1])


@EIGHT_CPUS
@pytest.mark.parametrize("shape", [(), (0,), (1,), (2, 0, 3), (3, 5)])
def test_shapes_without_elements_and_with_one(runtime: object, shape: tuple[int, ...]) -> None:
    members = actors(2)
    group = Group(members)
    for made in every(members, group, "all_reduce", numpy.ones(shape, "float32")):
        assert made.shape == shape and (made == 2).all()
    for made in every(members, group, "all_gather", numpy.ones(shape, "uint8")):
        assert [array.shape for array in made] == [shape, shape]


@EIGHT_CPUS
@pytest.mark.parametrize("size", SIZES)
def test_one_member_to_another_in_order_and_by_tag(runtime: object, size: int) -> None:
    members = actors(3)
    group = Group(members)
    sent = ramps(3, size)
    got = [members[2].call.remote(group, "recv", 0, tag=8), members[1].call.remote(group, "recv", 0)]
    calls = [members[0].call.remote(group, "send", sent[0], 1), members[0].call.remote(group, "send", sent[2], 2, tag=8)]
    numpy.testing.assert_array_equal(bireme.get(got[0], timeout=60), sent[2])
    numpy.testing.assert_array_equal(bireme.get(got[1], timeout=60), sent[0])
    bireme.get(calls, timeout=60)
    back = members[2].later.remote(group, "send", sent[1], 0)
    numpy.testing.assert_array_equal(bireme.get(members[0].later.remote(group, "recv", 2), timeout=60), sent[1])
    bireme.get(back, timeout=60)


@EIGHT_CPUS
@pytest.mark.parametrize("size", SIZES)
def test_calls_that_go_on_by_themselves_keep_their_order(runtime: object, size: int) -> None:
    members = actors(3)
    group = Group(members)
    made = bireme.get([member.many_later.remote(group, 10, size) for member in members], timeout=60)
    assert made == [[3.0 * n for n in range(10)]] * 3


@EIGHT_CPUS
def test_many_calls_in_a_row(runtime: object) -> None:
    members = actors(2)
    made = bireme.get([member.many_later.remote(Group(members, name="row"), 100, 2) for member in members], timeout=60)
    assert made[0] == made[1] == [2.0 * n for n in range(100)]


@EIGHT_CPUS
def test_work_can_be_awaited(runtime: object) -> None:
    members = [AsyncMember.remote() for _ in range(2)]
    group = Group(members)
    assert bireme.get([member.sum.remote(group, 1.5) for member in members], timeout=60) == [3.0, 3.0]


@EIGHT_CPUS
def test_members_know_their_ranks_and_results_are_read_only(runtime: object) -> None:
    members = actors(3)
    group = Group(members)
    assert bireme.get([member.rank.remote(group) for member in members]) == [(0, 3), (1, 3), (2, 3)]
    assert pickle.loads(pickle.dumps(group)) == group
    for size in SIZES:
        assert bireme.get([member.is_writable.remote(group, size) for member in members]) == [False] * 3


@bireme.remote(num_cpus=0.5)
def task(group: Group, rank: int) -> float:
    with group.join(rank) as member:
        assert member.rank == rank
        return float(member.all_reduce(numpy.array([rank + 1.0]))[0])


@bireme.remote(num_cpus=0.5)
def named(rank: int) -> float:
    with Group(world_size=3, name="tasks").join(rank) as member:
        return float(member.all_reduce(numpy.array([rank + 1.0]))[0])


@EIGHT_CPUS
def test_tasks_join_with_the_ranks_that_they_are_given(runtime: object) -> None:
    for _ in range(3):
        group = Group(world_size=3)
        assert bireme.get([task.remote(group, rank) for rank in range(3)], timeout=60) == [6.0] * 3
        assert bireme.get([named.remote(rank) for rank in range(3)], timeout=60) == [6.0] * 3


def failures(calls: list[Any], kind: type[Exception]) -> list[Any]:
    found = []
    for call in calls:
        with pytest.raises(kind) as raised:
            bireme.get(call, timeout=60)
        found.append(raised.value)
    return found


@EIGHT_CPUS
@pytest.mark.parametrize("size", SIZES)
def test_members_that_call_different_things_are_told_both(runtime: object, size: int) -> None:
    members = actors(2)
    group = Group(members, timeout=20)
    array = numpy.zeros(size)
    pairs = [
        (("all_reduce", array), ("broadcast", array)),
        (("all_reduce", array), ("all_reduce", array.astype("float32"))),
        (("all_reduce", array), ("all_reduce", numpy.zeros(size + 1))),
        (("reduce", array, "sum", 0), ("reduce", array, "sum", 1)),
        (("all_reduce", array, "sum"), ("all_reduce", array, "max")),
    ]
    for one, other in pairs:
        calls = [members[0].call.remote(group, *one), members[1].call.remote(group, *other)]
        # A call in which a member waits for nobody can be over before the others disagree: then the next one fails.
        calls += [member.call.remote(group, "barrier") for member in members]
        errors = []
        for call in calls:
            try:
                bireme.get(call, timeout=60)
            except CollectiveMismatchError as error:
                errors.append(error)
        assert errors, (one[0], other[0])
        for error in errors:
            assert sorted(error.ranks) == [0, 1]
            assert "rank 0" in str(error) and "rank 1" in str(error), error
        # And they agree again.
        every(members, group, "barrier")


@EIGHT_CPUS
@pytest.mark.parametrize("size", SIZES)
def test_a_member_that_does_not_come_is_named_after_the_timeout(runtime: object, size: int) -> None:
    members = actors(3)
    group = Group(members, timeout=1.0)
    every(members, group, "barrier")
    array = numpy.zeros(size)
    for error in failures([member.call.remote(group, "all_reduce", array) for member in members[:2]], CollectiveTimeoutError):
        assert error.ranks == [2] and "rank 2 (actor Member" in str(error), error
        assert isinstance(error, TimeoutError)
    # Who comes too late hears it at once, and the next call works.
    [late] = failures([members[2].call.remote(group, "all_reduce", array)], CollectiveTimeoutError)
    assert late.ranks == [2]
    assert every(members, group, "barrier") == [None] * 3


@EIGHT_CPUS
def test_a_member_that_never_joined_is_named(runtime: object) -> None:
    members = actors(3)
    group = Group(members, timeout=0.5)
    for error in failures([member.call.remote(group, "barrier") for member in members[1:]], CollectiveTimeoutError):
        assert error.ranks == [0]


@EIGHT_CPUS
@pytest.mark.parametrize("size", SIZES)
def test_a_member_that_is_killed_is_named_to_all_others(runtime: object, size: int) -> None:
    members = actors(3)
    group = Group(members)
    every(members, group, "barrier")
    dead = bireme.get(members[1].pid.remote())
    calls = [members[rank].call.remote(group, "all_reduce", numpy.zeros(size)) for rank in (0, 2)]
    os.kill(dead, signal.SIGKILL)
    begun = time.monotonic()
    for error in failures(calls, CollectiveMemberLostError):
        assert error.ranks == [1] and f"pid {dead}" in str(error), error
    assert time.monotonic() - begun < 10
    for error in failures([members[0].call.remote(group, "barrier")], CollectiveMemberLostError):
        assert error.ranks == [1]
    # Those that are left make another one.
    assert every([members[0], members[2]], Group([members[0], members[2]]), "barrier") == [None, None]


@EIGHT_CPUS
@pytest.mark.parametrize("joins", [True, False])
@pytest.mark.parametrize("first", [0, 1])
def test_a_member_that_dies_before_all_have_joined_is_named_to_all_others(
    runtime: object, joins: bool, first: int
) -> None:
    members = actors(3)
    group = Group(members)
    dead = bireme.get(members[1].pid.remote())
    # Some wait when it dies, and the others come later.
    calls = [members[rank].call.remote(group, "barrier") for rank in (0, 2)[:first]]
    if joins:
        bireme.get(members[1].rank.remote(group))
    begun = time.monotonic()
    os.kill(dead, signal.SIGKILL)
    with pytest.raises(ActorDiedError):
        bireme.get(members[1].pid.remote())
    calls += [members[rank].call.remote(group, "barrier") for rank in (0, 2)[first:]]
    for error in failures(calls, CollectiveMemberLostError):
        assert error.ranks == [1] and "is dead" in str(error), error
    assert time.monotonic() - begun < 20


@bireme.remote(num_cpus=0.5)
def goes(group: Group, how: str) -> None:
    member = group.join(1)
    if how == "raises":
        raise ValueError("no")
    if how == "dies":
        os._exit(1)
    member.leave()


@EIGHT_CPUS
@pytest.mark.parametrize("how", ["raises", "dies", "leaves"])
def test_a_task_that_goes_before_all_have_joined_is_named_to_those_who_come(runtime: object, how: str) -> None:
    group = Group(world_size=3)
    begun = time.monotonic()
    calls = [goes.options(max_retries=0).remote(group, how)]
    bireme.wait(calls, timeout=60)
    for error in failures([task.remote(group, rank) for rank in (0, 2)], CollectiveMemberLostError):
        assert error.ranks == [1] and "broken" in str(error), error
        assert ("is dead" if how == "dies" else "has left the group before its first call") in str(error), error
    assert time.monotonic() - begun < 20
    # A name is free again when all have left.
    bireme.wait([goes.options(max_retries=0).remote(Group(world_size=3, name="tasks"), how)], timeout=60)
    assert bireme.get([named.remote(rank) for rank in range(3)], timeout=60) == [6.0] * 3


@EIGHT_CPUS
def test_who_left_is_named_by_the_calls_that_need_it(runtime: object) -> None:
    with Group(world_size=2, timeout=20).join(0) as group:
        stays = leaves.remote(group)
        group.barrier()
        bireme.get(stays, timeout=60)
        with pytest.raises(CollectiveMemberLostError, match="rank 1 .* left the group after 1 calls"):
            group.barrier()


@bireme.remote
def leaves(group: Group) -> None:
    with group.join(1) as member:
        member.barrier()


@EIGHT_CPUS
def test_calls_that_make_no_sense_are_refused_before_anybody_waits(runtime: object) -> None:
    members = actors(2)
    group = Group(members)
    array = numpy.zeros(4)
    wrong: list[tuple[tuple[Any, ...], str]] = [
        (("broadcast", array, 2), "no root 2"),
        (("reduce", array, "sum", -1), "no root -1"),
        (("all_reduce", array, "average"), "no op 'average'"),
        (("all_reduce", numpy.zeros(3, "bool")), "cannot combine arrays of bool"),
        (("all_reduce", numpy.zeros(3, "int32"), "mean"), "mean is not defined for arrays of int32"),
        (("all_reduce", numpy.zeros(3, "complex64")), "cannot take arrays of complex64"),
        (("reduce_scatter", numpy.zeros((3, 2))), "cannot be split"),
        (("all_to_all", [array]), "a list of 2 arrays"),
        (("all_to_all", [array, numpy.zeros(5)]), "one type and shape"),
        (("send", array, 7), "no rank 7"),
        (("recv", 0, -1), "a tag is a number"),
    ]
    for call, text in wrong:
        with pytest.raises(ValueError, match=text):
            bireme.get(members[0].call.remote(group, *call), timeout=60)
    with pytest.raises(CollectiveUsageError, match="only rank 0, the root, gives arrays"):
        bireme.get(members[1].call.remote(group, "scatter", [array, array]), timeout=60)
    with pytest.raises(CollectiveUsageError, match="this program is no member"):
        group.barrier()
    [stranger] = actors(1)
    with pytest.raises(CollectiveUsageError, match="is no member of the group"):
        bireme.get(stranger.call.remote(group, "barrier"), timeout=60)
    # Nobody was in any of these calls.
    assert every(members, group, "barrier") == [None, None]


@EIGHT_CPUS
def test_groups_that_make_no_sense_are_refused(runtime: object) -> None:
    members = actors(1)
    for arguments, choices in [
        ((), {}),
        ((members,), {"world_size": 1}),
        (([],), {}),
        ((members * 2,), {}),
        ((), {"world_size": 0}),
        ((), {"world_size": 2, "timeout": 0}),
    ]:
        with pytest.raises(CollectiveUsageError):
            Group(*arguments, **choices)
    with pytest.raises(TypeError):
        Group(["an actor"])  # type: ignore[list-item]
    with pytest.raises(CollectiveUsageError, match="no rank 2"):
        Group(world_size=2).join(2)
    group = Group(world_size=2, timeout=5)
    with group.join(0):
        with pytest.raises(CollectiveUsageError, match="has this rank already"):
            bireme.get(task.remote(group, 0), timeout=60)


@EIGHT_CPUS
def test_a_member_that_calls_from_two_threads_at_once_is_refused(runtime: object) -> None:
    member, other = actors(2)
    refused, first = bireme.get(member.twice.remote(Group([member, other]), other), timeout=60)
    assert "from another thread" in refused
    assert first == "done"
