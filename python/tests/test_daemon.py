"""Programs that attach to a node of its own process, as `bireme start` makes it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Program, await_condition, await_end, is_alive

import bireme
from bireme import exceptions

REPOSITORY = Path(__file__).resolve().parent.parent.parent


class Node:
    """A running node with a state directory of its own."""

    def __init__(self, state: Path, cpus: int = 2, head: str | None = None, **variables: str) -> None:
        state.mkdir(mode=0o700)
        self.environment = {
            **os.environ,
            "BIREME_STATE_DIRECTORY": str(state),
            "BIREME_PYTHON": sys.executable,
            "BIREME_NUM_CPUS": str(cpus),
            "BIREME_OBJECT_STORE_MEMORY": str(64 << 20),
            **({} if head is None else {"BIREME_ADDRESS": head}),
            **variables,
        }
        command = shutil.which("bireme", path=os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"])
        if command is None:
            pytest.skip("the package was installed without its command")
        self.process = subprocess.Popen(
            [command, "start", "--foreground", "--json"],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        lines: list[str] = []
        while not lines or lines[-1] not in ("}\n", ""):
            lines.append(self.process.stdout.readline())
        said = json.loads("".join(lines))
        self.folder = str(Path(said["socket"]).parent)
        self.address = said["address"]

    def end(self) -> None:
        """Stops the node in good order."""
        self.process.terminate()
        assert self.process.wait(timeout=20) == 0
        assert self.process.stdout is not None
        self.process.stdout.close()
        assert not os.path.exists(self.folder)


@pytest.fixture
def node(short_path: Path) -> Iterator[Node]:
    """A node; stopped at the end, unless the test has."""
    made = Node(short_path / "state")
    yield made
    bireme.shutdown()
    if made.process.poll() is None:
        made.end()
    elif made.process.stdout is not None:
        made.process.stdout.close()


@bireme.remote
def add(a: int, b: int) -> int:
    return a + b


@bireme.remote
def pid() -> int:
    return os.getpid()


@bireme.remote
class Counter:
    def __init__(self, start: int) -> None:
        self.value = start

    def count(self) -> int:
        self.value += 1
        return self.value

    def pid(self) -> int:
        return os.getpid()

    def add_remotely(self, n: int) -> int:
        self.value = bireme.get(add.remote(self.value, n))
        return self.value


def test_a_program_runs_on_the_node_and_leaves_it_running(node: Node) -> None:
    with bireme.init(address=node.folder) as context:
        assert bireme.get(add.remote(1, 2)) == 3
        assert bireme.get(bireme.put(b"x" * 1_000_000)) == b"x" * 1_000_000
        counter = Counter.remote(5)
        assert bireme.get(counter.count.remote()) == 6
        assert context.address_info["address"] == node.folder
        assert bireme.cluster_resources()["CPU"] == 2
        worker = bireme.get(pid.remote())
        assert is_alive(worker)
    await_end(worker)
    assert node.process.poll() is None
    with bireme.init(address=node.folder):
        assert bireme.get(add.remote(3, 4)) == 7


def test_what_belongs_to_the_node_cannot_be_chosen(node: Node) -> None:
    with pytest.raises(ValueError, match="cpus belongs to the node"):
        bireme.init(address=node.folder, num_cpus=4)
    with pytest.raises(exceptions.BiremeError, match="does it still run"):
        bireme.init(address="/no/such/node")
    assert not bireme.is_initialized()


def test_the_node_of_this_user_is_found_by_auto(node: Node, program: Program) -> None:
    source = """
        import sys
        import bireme
        bireme.init(address="auto")
        @bireme.remote
        def triple(x):
            print("tripling", x)
            return 3 * x
        # In one piece: `print` writes the end of the line by itself, and a line of the worker may come between.
        sys.stdout.write(f"{bireme.get(triple.remote(5))}\\n")
        bireme.shutdown()
    """
    output, errors = program.run(source=source, env=node.environment)
    lines = output.splitlines()
    assert "15" in lines
    assert any("tripling 5" in line and "triple" in line for line in lines), (output, errors)


def test_a_detached_actor_is_found_by_the_next_program(node: Node) -> None:
    with bireme.init(address=node.folder, namespace="shared"):
        made = Counter.options(name="immortal", lifetime="detached").remote(10)
        actor = bireme.get(made.pid.remote())
    assert is_alive(actor)
    with bireme.init(address=node.folder):
        with pytest.raises(ValueError):
            bireme.get_actor("immortal")
        assert bireme.get(bireme.get_actor("immortal", namespace="shared").count.remote()) == 11
    with bireme.init(address=node.folder, namespace="shared"):
        found = bireme.get_actor("immortal")
        assert bireme.get(found.add_remotely.remote(4)) == 15
        bireme.kill(found)
        await_end(actor)


@bireme.remote
class Shelf:
    def keep(self, kept: list[Any]) -> None:
        self.kept = kept

    def give(self) -> list[Any]:
        return self.kept


def test_two_programs_that_nobody_can_dial_reach_each_other_through_the_head(node: Node, program: Program) -> None:
    source = """
        import sys
        import bireme
        bireme.init(address=sys.argv[1], namespace="shared")
        small, = bireme.get(bireme.get_actor("shelf").give.remote())
        print(bireme.get(small, timeout=20))
        bireme.shutdown()
    """
    with bireme.init(address=node.address, namespace="shared"):
        shelf = Shelf.options(name="shelf").remote()
        bireme.get(shelf.keep.remote([bireme.put("of the first program")]))
        output, _ = program.run(node.address, source=source, env=node.environment)
        assert "of the first program" in output


def test_a_killed_program_leaves_nothing_and_others_notice_nothing(node: Node, program: Program) -> None:
    source = """
        import os, sys, time
        import bireme
        bireme.init(address=sys.argv[1], log_to_driver=False)
        @bireme.remote
        class Holder:
            def __init__(self):
                self.big = bireme.put(b"y" * 2_000_000)
            def pids(self):
                return os.getpid(), os.getppid()
        holder = Holder.remote()
        @bireme.remote
        def hang():
            time.sleep(1000)  # a task that is still running
        hanging = hang.remote()
        print(*bireme.get(holder.pids.remote()), flush=True)
        bireme.get(hanging)
    """
    with bireme.init(address=node.folder):
        assert bireme.get(add.remote(1, 1)) == 2
        other = program.start(node.folder, source=source, env=node.environment)
        assert other.stdout is not None
        actor, keeper = (int(word) for word in other.stdout.readline().split())
        other.send_signal(signal.SIGKILL)
        other.wait()
        await_end(actor)
        await_end(keeper)
        await_condition(lambda: bireme.available_resources()["CPU"] == 2, "its CPUs are free")
        assert _keepers(node) == 1
        assert not list(Path(node.folder).glob("scratch-*"))
        assert bireme.get([add.remote(n, 1) for n in range(20)]) == list(range(1, 21))


def _keepers(node: Node) -> int:
    """The processes that the node has started: a keeper for each program."""
    keepers = 0
    for task in Path(f"/proc/{node.process.pid}/task").iterdir():
        try:
            keepers += len(task.joinpath("children").read_text().split())
        except (FileNotFoundError, ProcessLookupError):
            continue
    return keepers


def test_the_end_of_the_node_is_an_error_of_its_own_at_once(node: Node) -> None:
    bireme.init(address=node.folder, log_to_driver=False)

    @bireme.remote
    def hang() -> None:
        import time

        time.sleep(1000)  # a task that is still running

    hanging, worker = hang.remote(), bireme.get(pid.remote())
    node.process.kill()
    node.process.wait()
    with pytest.raises(exceptions.LocalNodeDiedError, match="the node of this program is gone"):
        bireme.get(hanging)
    with pytest.raises(exceptions.LocalNodeDiedError):
        add.remote(1, 1)
    await_end(worker)
    bireme.shutdown()


def test_another_version_of_python_or_cloudpickle_is_refused_by_both_versions(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    import cloudpickle  # type: ignore[import-untyped]

    there = cloudpickle.__version__
    monkeypatch.setattr(cloudpickle, "__version__", "0.1")
    # The same interpreter would not be asked for its versions.
    monkeypatch.setattr(sys, "executable", "/usr/bin/env")
    with pytest.raises(ConnectionError, match=f"cloudpickle 0.1, but .* cloudpickle {there}"):
        bireme.init(address=node.folder)
    assert not bireme.is_initialized()


@pytest.mark.slow
def test_a_rust_and_a_python_program_share_a_node(node: Node) -> None:
    command = ["cargo", "build", "--quiet", "--package", "bireme-mixed", "--bin", "attached"]
    built = subprocess.run(
        [*command, "--message-format", "json-render-diagnostics"], cwd=REPOSITORY, capture_output=True, text=True
    )
    assert built.returncode == 0, built.stderr
    messages: list[dict[str, Any]] = [json.loads(line) for line in built.stdout.splitlines()]
    executable = next(message["executable"] for message in messages if message.get("executable"))
    with bireme.init(address=node.folder):
        rust = subprocess.run([executable, node.folder], capture_output=True, text=True, timeout=60)
        assert rust.returncode == 0, rust.stderr
        assert rust.stdout.split() == ["285"]
        assert bireme.get(add.remote(40, 2)) == 42


def test_the_output_of_workers_elsewhere_and_all_nodes_are_seen_by_the_driver(short_path: Path, program: Program) -> None:
    head = Node(short_path / "head", cpus=0)
    member = Node(short_path / "member", cpus=2, head=head.address)
    source = """
        import sys
        import bireme
        bireme.init(address="auto")
        @bireme.remote
        def triple(x):
            print("tripling", x)
            print("complaining", x, file=sys.stderr)
            return 3 * x
        # In one piece: `print` writes the end of the line apart, and a worker's line may come between.
        sys.stdout.write(f"{bireme.get(triple.remote(5))}\\n")
        rows = [(n["Alive"], n["Role"], n["Resources"].get("CPU")) for n in bireme.nodes()]
        print(rows, bireme.cluster_resources()["CPU"])
        bireme.shutdown()
    """
    try:
        output, errors = program.run(source=source, env=head.environment)
        lines = output.splitlines()
        assert "15" in lines
        assert any(line.startswith("(triple pid=") and line.endswith(", node-2) tripling 5") for line in lines), output
        assert any(line.endswith(", node-2) complaining 5") for line in errors.splitlines()), errors
        assert "[(True, 'head', 0.0), (True, 'worker', 2.0)] 2.0" in lines, output
        assert "keeper" not in errors, errors
    finally:
        member.end()
        head.end()


def test_a_program_without_a_node_on_its_machine_says_nothing_of_keepers_and_runs_nothing_itself(
    node: Node, program: Program, short_path: Path
) -> None:
    source = """
        import sys
        import bireme
        bireme.init(address=sys.argv[1])
        @bireme.remote(num_cpus=0)
        def place():
            print("running")
            return bireme.get_runtime_context().get_node_id()
        own = bireme.get_runtime_context().get_node_id()
        print("elsewhere", own not in bireme.get([place.remote() for _ in range(4)], timeout=60))
        print("free", bireme.available_resources()["CPU"])
        bireme.shutdown()
    """
    # In a folder of its own it finds no node of this user.
    elsewhere = {**node.environment, "BIREME_STATE_DIRECTORY": str(short_path / "client")}
    output, errors = program.run(node.address, source=source, env=elsewhere)
    lines = output.splitlines()
    assert "elsewhere True" in lines and "free 2.0" in lines, output
    assert any(line.startswith("(place pid=") and line.endswith(", node-1) running") for line in lines), output
    assert errors == ""


def test_actors_start_on_every_node_after_tasks_have_used_what_they_ask_for(short_path: Path, program: Program) -> None:
    head = Node(short_path / "head", cpus=1, BIREME_RESOURCES="r=1")
    member = Node(short_path / "member", cpus=1, head=head.address, BIREME_RESOURCES="r=1")
    source = """
        import bireme
        bireme.init(address="auto")
        @bireme.remote(num_cpus=0, resources={"r": 1})
        def half(x):
            return x / 2
        @bireme.remote(num_cpus=0, resources={"r": 1})
        class Place:
            def node(self):
                return bireme.get_runtime_context().get_node_id()
        assert sum(bireme.get([half.remote(x) for x in range(20)])) == 95
        print("free", bireme.available_resources()["r"])
        actors = [Place.remote() for _ in range(2)]
        print("nodes", len(set(bireme.get([actor.node.remote() for actor in actors], timeout=60))))
        print("left", bireme.available_resources().get("r", 0.0))
        bireme.shutdown()
    """
    try:
        output, _ = program.run(source=source, env=head.environment)
        assert output.splitlines() == ["free 2.0", "nodes 2", "left 0.0"], output
    finally:
        member.end()
        head.end()


def test_a_submit_that_waits_for_a_slow_node_does_not_stop_other_threads(node: Node, program: Program) -> None:
    process = program.start(
        source=f"""
        import os, signal, threading
        import bireme

        @bireme.remote
        def length(text):
            return len(text)

        bireme.init({node.folder!r})
        assert bireme.get(length.remote(b"x")) == 1
        lengths = []

        def submit():
            refs = [length.remote(bytes(50_000)) for _ in range(200)]
            lengths.extend(bireme.get(refs))

        os.kill({node.process.pid}, signal.SIGSTOP)
        try:
            # 10 MB are more than the node leaves unread.
            thread = threading.Thread(target=submit)
            thread.start()
            thread.join(1.0)
            assert thread.is_alive()
            print("main goes on")
        finally:
            os.kill({node.process.pid}, signal.SIGCONT)
        thread.join()
        print(sum(lengths))
        """,
    )
    try:
        said = process.communicate(timeout=60)
    finally:
        node.process.send_signal(signal.SIGCONT)
    assert said == ("main goes on\n10000000\n", "")
