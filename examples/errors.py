"""Errors: an exception of the function, a dead worker, a bad request, a wait that takes too long."""

import os
import signal

import bireme
from bireme.exceptions import (
    GetTimeoutError,
    TaskCancelledError,
    TaskError,
    TaskUnschedulableError,
    WorkerCrashedError,
)


class NoWind(Exception):
    pass


@bireme.remote
def sail(wind: int) -> int:
    if wind == 0:
        raise NoWind("there is no wind; row")
    return wind * 2


@bireme.remote(max_retries=0)
def sink() -> None:
    print("going down")
    os.kill(os.getpid(), signal.SIGKILL)


@bireme.remote
def drift() -> None:
    while True:
        pass


def main() -> None:
    try:
        bireme.get(sail.remote(0))
    except NoWind as error:
        # Also a TaskError, which has the traceback of the worker.
        assert isinstance(error, TaskError)
        print("an error of the function:", str(error).splitlines()[-1])

    try:
        bireme.get(sink.remote())
    except WorkerCrashedError as error:
        print("a dead worker:", error)

    try:
        sail.options(num_cpus=-1)
    except ValueError as error:
        print("a bad request:", error)

    try:
        bireme.get(sail.options(num_cpus=100_000).remote(1))
    except TaskUnschedulableError as error:
        print("a task that can never run:", error)

    drifting = drift.remote()
    try:
        bireme.get(drifting, timeout=0.1)
    except GetTimeoutError as error:
        print("a wait that took too long:", error)
    bireme.cancel(drifting)
    try:
        bireme.get(drifting)
    except TaskCancelledError as error:
        print("a cancelled task:", error)


if __name__ == "__main__":
    main()
