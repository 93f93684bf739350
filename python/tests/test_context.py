"""Starting and ending the runtime, and what code can ask about where it runs."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from conftest import Program, await_condition

import bireme
from bireme import exceptions
from bireme.context import Context


@bireme.remote
def add(a: int, b: int) -> int:
    return a + b


@bireme.remote
class Probe:
    def ask(self) -> dict[str, Any]:
        return facts()

    def gpus(self) -> list[int]:
        return bireme.get_gpu_ids()


@bireme.remote
class AsyncProbe:
    async def ask(self) -> dict[str, Any]:
        return facts()

    async def gpus(self) -> list[int]:
        return bireme.get_gpu_ids()


def facts() -> dict[str, Any]:
    context = bireme.get_runtime_context()
    return {
        "job": context.get_job_id(),
        "node": context.get_node_id(),
        "worker": context.get_worker_id(),
        "task": context.get_task_id(),
        "name": context.get_task_name(),
        "actor": context.get_actor_id(),
        "actor name": context.get_actor_name(),
        "namespace": context.namespace,
        "resources": context.get_assigned_resources(),
        "accelerators": context.get_accelerator_ids(),
    }


def test_a_context_ends_only_the_runtime_that_it_began() -> None:
    with bireme.init(num_cpus=1) as first:
        bireme.shutdown()
        second = bireme.init(num_cpus=1)
    assert bireme.is_initialized()
    first.disconnect()
    assert bireme.get(add.remote(1, 2)) == 3
    second.disconnect()
    assert not bireme.is_initialized()


def test_init_and_shutdown_as_a_context_manager() -> None:
    assert not bireme.is_initialized()
    with bireme.init(num_cpus=1) as context:
        assert bireme.is_initialized()
        assert bireme.get(add.remote(1, 2)) == 3
        assert context.address_info["node_id"] == bireme.get_runtime_context().get_node_id()
    assert not bireme.is_initialized()


def test_the_first_use_starts_the_runtime() -> None:
    for use in (lambda: bireme.get(add.remote(1, 2)), lambda: bireme.put(1), lambda: bireme.cluster_resources()):
        assert not bireme.is_initialized()
        use()
        assert bireme.is_initialized()
        bireme.shutdown()


def test_a_second_init_is_refused_or_ignored(runtime: Context) -> None:
    with pytest.raises(RuntimeError, match=r"running already.*shutdown.*ignore_reinit_error=True"):
        bireme.init()
    bireme.init(ignore_reinit_error=True)
    assert bireme.get(add.remote(1, 2)) == 3


def test_shutdown_can_be_called_at_any_time() -> None:
    bireme.shutdown()
    bireme.shutdown()
    for _ in range(3):
        bireme.init(num_cpus=1)
        bireme.shutdown()
        bireme.shutdown()


def test_many_threads_may_start_the_runtime_at_once() -> None:
    results: list[int] = []
    threads = [threading.Thread(target=lambda: results.append(bireme.get(add.remote(2, 3)))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [5] * 8
    bireme.shutdown()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"num_cpu": 1}, "did you mean 'num_cpus'"),
        ({"num_cpus": -1}, "num_cpus"),
        ({"num_cpus": "two"}, "num_cpus"),
        ({"resources": {"CPU": 1}}, "num_cpus"),
        ({"resources": ["a"]}, "resources"),
        ({"object_store_memory": -5}, "object_store_memory"),
        ({"namespace": 5}, "namespace"),
        ({"logging_level": "loud"}, "logging_level"),
        ({"runtime_env": {"env_var": {}}}, "env_vars"),
        ({"address": "ray://there:1"}, "address"),
    ],
)
def test_wrong_options_are_refused_at_once(options: dict[str, Any], text: str) -> None:
    with pytest.raises((TypeError, ValueError, NotImplementedError, bireme.exceptions.BiremeError), match=text):
        bireme.init(**options)
    assert not bireme.is_initialized()


@pytest.mark.parametrize("runtime", [{"num_cpus": 3, "num_gpus": 2, "resources": {"disk": 1.5}}], indirect=True)
def test_resources_are_what_was_asked_for(runtime: Context) -> None:
    total = bireme.cluster_resources()
    assert (total["CPU"], total["GPU"], total["disk"]) == (3.0, 2.0, 1.5)
    assert bireme.available_resources()["CPU"] == 3.0

    @bireme.remote(num_cpus=1, resources={"disk": 1})
    def assigned() -> dict[str, float]:
        return bireme.get_runtime_context().get_assigned_resources()

    assert bireme.get(assigned.remote()) == {"CPU": 1.0, "disk": 1.0}
    await_condition(lambda: bireme.available_resources()["CPU"] == 3.0, "the task to give back what it had")
    holder = Probe.options(num_cpus=1, num_gpus=1, resources={"disk": 1}).remote()
    bireme.get(holder.ask.remote())
    available = bireme.available_resources()
    assert (available["CPU"], available["GPU"], available["disk"]) == (2.0, 1.0, 0.5)


@pytest.mark.parametrize("runtime", [{"num_cpus": 1, "num_gpus": 1, "resources": {"disk": 1}}], indirect=True)
def test_resources_that_are_used_up_are_still_listed(runtime: Context) -> None:
    holder = Probe.options(num_cpus=1, num_gpus=1, resources={"disk": 1}).remote()
    bireme.get(holder.ask.remote())
    available = bireme.available_resources()
    assert (available["CPU"], available["GPU"], available["disk"]) == (0.0, 0.0, 0.0)
    assert set(available) == set(bireme.cluster_resources())


def test_a_context_shows_itself_in_notebooks(runtime: Context) -> None:
    for text in (repr(runtime), runtime._repr_html_()):
        for fact in ("local", "nodes", "CPUs", "2", bireme.__version__):
            assert fact in text, (fact, text)
    assert runtime._repr_html_().startswith("<b>Bireme</b><table>")
    assert runtime["node_id"] == runtime.address_info["node_id"] == bireme.get_runtime_context().get_node_id()
    assert runtime.dashboard_url is None
    bireme.shutdown()
    assert "ended" in repr(runtime) and "ended" in runtime._repr_html_()


def test_the_folder_for_temporary_files_is_chosen(tmp_path: Path) -> None:
    with bireme.init(num_cpus=1, _temp_dir=str(tmp_path), include_dashboard=True, _memory=2**30):
        assert bireme.cluster_resources()["memory"] == 2**30

        @bireme.remote(runtime_env={"working_dir": os.path.dirname(__file__)})
        def folder() -> str:
            return os.getcwd()

        assert bireme.get(folder.remote()).startswith(str(tmp_path))


def test_nodes_lists_this_machine(runtime: Context) -> None:
    (node,) = bireme.nodes()
    assert node["Alive"] and node["Resources"]["CPU"] == 2.0
    assert node["NodeID"] == bireme.get_runtime_context().get_node_id()


def test_the_driver_has_no_task(runtime: Context) -> None:
    found = facts()
    assert found["task"] is found["actor"] is found["name"] is found["actor name"] is None
    assert found["resources"] == {} and found["accelerators"] == {"GPU": []}
    with pytest.raises(RuntimeError, match="actor"):
        bireme.get_runtime_context().current_actor


@pytest.mark.parametrize("runtime", [{"namespace": "space"}], indirect=True)
def test_tasks_and_actors_know_where_they_run(runtime: Context) -> None:
    @bireme.remote(num_cpus=0.5)
    def ask() -> dict[str, Any]:
        return facts()

    driver = facts()
    ref = ask.remote()
    task = bireme.get(ref)
    assert task["task"] == ref.task_id()
    assert (task["name"], task["actor"]) == ("ask", None)
    assert task["resources"] == {"CPU": 0.5}
    for probe in (Probe, AsyncProbe):
        handle = probe.options(name=f"p {probe.__name__}", num_cpus=1).remote()
        actor = bireme.get(handle.ask.remote())
        assert actor["actor"] == handle._actor_id
        assert actor["actor name"] == f"p {probe.__name__}"
        assert actor["name"] == f"{probe.__name__}.ask"
        assert actor["resources"] == {"CPU": 1.0}
        assert actor["worker"] != driver["worker"]
        assert (actor["job"], actor["node"], actor["namespace"]) == (driver["job"], driver["node"], "space")
        del handle
    assert (task["job"], task["node"], task["namespace"]) == (driver["job"], driver["node"], "space")


@pytest.mark.parametrize("runtime", [{"num_gpus": 2}], indirect=True)
def test_gpus_are_given_by_index(runtime: Context) -> None:
    @bireme.remote(num_gpus=1)
    def gpus() -> list[int]:
        return bireme.get_gpu_ids()

    @bireme.remote
    def none() -> list[int]:
        return bireme.get_gpu_ids()

    assert bireme.get_gpu_ids() == []
    assert bireme.get(none.remote()) == []
    assert bireme.get(gpus.remote()) in ([0], [1])
    one = Probe.options(num_gpus=1).remote()
    other = AsyncProbe.options(num_gpus=1).remote()
    assert sorted(bireme.get([one.gpus.remote(), other.gpus.remote()])) == [[0], [1]]


def test_a_worker_cannot_start_or_end_the_runtime(runtime: Context) -> None:
    @bireme.remote
    def meddle() -> str:
        assert bireme.is_initialized()
        try:
            bireme.init(num_cpus=7)
        except RuntimeError as error:
            bireme.init(ignore_reinit_error=True)
            bireme.shutdown()
            return str(error)
        return "no error"

    assert "a task or actor has the runtime of its program" in bireme.get(meddle.remote())
    assert bireme.get(add.remote(1, 2)) == 3


def test_import_is_light(program: Program) -> None:
    source = "import sys; before = set(sys.modules); import bireme; print(*sorted(set(sys.modules) - before))"
    found = set(program.run("-c", source)[0].split())
    assert "bireme._native" in found
    assert not {"asyncio", "numpy", "multiprocessing", "subprocess"} & found


CLOSED_DESCRIPTORS = """
import os, sys

import bireme

for number in map(int, sys.argv[2:]):
    os.close(number)


@bireme.remote
def add_one(value):
    print("printed by a task")
    return value + 1


# A file of the program that has the number of a standard descriptor.
held = open(os.devnull, "w")
with bireme.init(num_cpus=1):
    with open(sys.argv[1], "w") as result:
        print(bireme.get(add_one.remote(1), timeout=60), file=result)
"""


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_driver_without_standard_descriptors_has_workers(program: Program, closed: str) -> None:
    path, result = program.write(CLOSED_DESCRIPTORS), program.folder / "result"
    command = ["sh", "-c", f'exec "$0" "$@" {closed}', sys.executable, str(path), str(result)]
    subprocess.run(command, cwd=program.folder, timeout=120, capture_output=True, check=True)
    assert result.read_text() == "2\n"


@pytest.mark.parametrize("closed", ["0", "1", "2", "0 1 2"])
def test_a_driver_that_closes_its_standard_descriptors_has_workers(program: Program, closed: str) -> None:
    result = program.folder / "result"
    # The interpreter's own end, which flushes what was closed, is not the matter here.
    program.start(str(result), *closed.split(), source=CLOSED_DESCRIPTORS).communicate(timeout=120)
    assert result.read_text() == "2\n"


def test_init_in_a_folder_that_was_deleted(program: Program) -> None:
    source = """
        import os, sys, tempfile
        import bireme

        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
        sys.path.insert(0, "")

        @bireme.remote
        def add_one(value):
            return value + 1

        with bireme.init(num_cpus=1):
            print(bireme.get(add_one.remote(1), timeout=60))
    """
    assert program.run(source=source)[0] == "2\n"


def test_what_has_to_be_started_first_is_named_as_in_python() -> None:
    with bireme.init(num_cpus=1):
        reference = add.remote(1, 2)
    with pytest.raises(exceptions.NotRunningError, match=r"bireme\.init\(\)"):
        bireme.get(reference)
