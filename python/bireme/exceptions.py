"""Every error of the package, in one tree under `BiremeError`.

The names are Ray's without the prefix `Ray`; Ray's own names are aliases, so that `except ray.exceptions.X` keeps
working with `import bireme as ray`. (`RaySystemError` is `BiremeSystemError`: `SystemError` is Python's.) Each class
takes a message and optional facts as keyword arguments; without a message it says what is known in general. The
extension makes all of its errors with `make_exception`.

>>> error = ActorDiedError(actor_name="counter", signal=9, pid=4711)
>>> str(error).split(";")[0]
'the actor died and will not be restarted (actor counter, pid 4711, killed by SIGKILL)'
>>> isinstance(error, RayActorError)
True
"""

from __future__ import annotations

import builtins
from typing import Any

from bireme._error_facts import FactualError
from bireme._raised import describe_exception as describe_exception
from bireme._raised import from_exception as from_exception
from bireme._raised import to_exception as to_exception
from bireme._task_error import BiremeError as BiremeError
from bireme._task_error import TaskError as TaskError
from bireme._task_error import UnserializableException as UnserializableException
from bireme._task_error import task_error as task_error


class UserCodeException(BiremeError):
    """User code failed inside of a library on top of the engine; look at its `__cause__`."""

    _sentence = "user code failed"


class CrossLanguageError(FactualError):
    """Code of another language failed (an error or panic of a Rust task); the message is its own."""

    _sentence = "a task written in another language failed"


class TaskCancelledError(FactualError):
    """The task was cancelled before it had a result; do not ask for its result, or submit it again."""

    _sentence = "the task was cancelled"


class WorkerCrashedError(FactualError):
    """The worker process died while it ran the task; `signal`, `exit_code` and `stderr_tail` say how."""

    _sentence = "the worker died while it ran this task"
    _advice = "set max_retries to have the task run again"


class NodeDiedError(FactualError):
    """The node that ran the task is dead or cannot be reached; set `max_retries` to have the task run elsewhere."""

    _sentence = "the node died"


class LocalNodeDiedError(NodeDiedError):
    """The node of this process is gone, so nothing can run; call `shutdown` and `init` again."""

    _sentence = "the node of this process died"


class OutOfMemoryError(FactualError):
    """The process was ended because memory ran out; ask for less at a time, or declare `memory` so that fewer run at
    once.
    """

    _sentence = "memory ran out and the process was ended"
    _advice = "run fewer at once by declaring `memory`, or use smaller pieces"


class ActorError(FactualError):
    """An actor could not finish a call; catch it for both a dead and a briefly unavailable actor."""

    _sentence = "the actor could not finish this call"
    preempted: bool = False
    actor_init_failed: bool = False

    @property
    def error_msg(self) -> str:
        """Ray's name for the text."""
        return str(self)


class ActorDiedError(ActorError):
    """The actor is dead and stays so; `__cause__` has the error of its constructor when that was the reason."""

    _sentence = "the actor died and will not be restarted"
    _advice = "set max_restarts to have it restarted, or catch this error"

    @staticmethod
    def from_task_error(
        error: TaskError, *, actor_id: str | None = None, actor_name: str | None = None
    ) -> ActorDiedError:
        """The error of every call of an actor whose constructor raised."""
        died = ActorDiedError(f"the actor's constructor raised: {error}", actor_id=actor_id, actor_name=actor_name)
        died.actor_init_failed = True
        died.__cause__ = error.cause
        return died


class ActorUnavailableError(ActorError):
    """The actor cannot be reached now but may come back; the call may or may not have run, so call again only if that
    is harmless.
    """

    _sentence = "the actor is unavailable now; this call may or may not have run"


class ActorAlreadyExistsError(BiremeError, ValueError):
    """An actor with this name exists in the namespace; choose another name or pass `get_if_exists=True`."""

    _sentence = "an actor with this name exists already; pass get_if_exists=True to get it"


class ActorHandleNotFoundError(BiremeError, ValueError):
    """The handle belongs to an actor that this runtime does not know, such as one from before a `shutdown`; create the
    actor again.
    """

    _sentence = "this handle belongs to no actor of this runtime"


class PendingCallsLimitExceeded(FactualError):
    """The actor has `max_pending_calls` calls waiting; wait for some results before calling it again."""

    _sentence = "too many calls of this actor are waiting"
    _advice = "wait for some of their results, or raise max_pending_calls"


class CollectiveError(BiremeError):
    """A call of a collective group has no result; `ranks` are the members that it is about."""

    _sentence = "a call of a collective group has no result"

    def __init__(self, message: str = "", *, ranks: list[int] | None = None) -> None:
        super().__init__(message)
        self.ranks = [] if ranks is None else list(ranks)


class CollectiveMismatchError(CollectiveError):
    """Members of a collective group called different things; the message has both. Make the same calls in the same order."""

    _sentence = "members of a collective group called different things"


class CollectiveTimeoutError(CollectiveError, TimeoutError):
    """Members of a collective group did not come in time; `ranks` are those. They may be stuck, or not make the call."""

    _sentence = "members of a collective group did not come in time"


class CollectiveMemberLostError(CollectiveError):
    """A member of a collective group is dead or has left, and with it the group; make another one of those that are left."""

    _sentence = "a member of a collective group is gone"


class CollectiveUsageError(CollectiveError, ValueError):
    """A call of a collective group makes no sense: a wrong root, no member, an array that does not fit; the message says."""

    _sentence = "a call of a collective group makes no sense"


class AsyncioActorExit(BiremeError):
    """An async actor ended itself with `exit_actor`; nothing has to be done."""

    _sentence = "the actor ended itself"


class BiremeSystemError(BiremeError):
    """The engine itself failed, or is not running; the message says which part and what to do."""

    _sentence = "the engine failed"


class NotRunningError(BiremeSystemError):
    """The runtime is not running; call `bireme.init()` first."""

    _sentence = "the runtime is not running; call bireme.init() first"


class ForkedProcessError(BiremeSystemError, RuntimeError):
    """The runtime was used in a process forked from the driver; start processes with "spawn", or call `init` in the
    child.
    """

    _sentence = "this process was forked from the one that runs the runtime and cannot use it"


class AuthenticationError(BiremeSystemError):
    """The cluster refused this program; check its token."""

    _sentence = "the cluster refused the connection"


class RpcError(BiremeSystemError):
    """A message between processes could not be delivered; try again."""

    _sentence = "a message could not be delivered"
    rpc_code: int | None = None


class SerializationError(BiremeError, TypeError):
    """A value cannot be pickled or unpickled; `path` names the member that is to blame."""

    _sentence = "a value cannot be serialized"

    def __init__(self, message: str = "", *, path: str | None = None, type_name: str | None = None) -> None:
        super().__init__(message)
        self.path = path
        self.type_name = type_name


class OutOfBandObjectRefSerializationError(SerializationError):
    """An `ObjectRef` was pickled outside of the engine, which could not know of the copy; pass it as an argument
    instead.
    """

    _sentence = "an ObjectRef was pickled outside of the engine"


class NotSupportedError(BiremeError, ValueError):
    """Something that Ray has and this package does not have yet; leave it out."""

    _sentence = "this is not supported yet"


class ObjectStoreFullError(FactualError):
    """The object does not fit into the store; drop refs, or give `init` more `object_store_memory`."""

    _sentence = "the object store is full"
    _advice = "drop refs that are not needed any more, or give init() more object_store_memory"


class OutOfDiskError(FactualError):
    """The store is full and so is the disk to which it spills; free space, or spill elsewhere."""

    _sentence = "the object store is full and the disk is too"


class ObjectLostError(FactualError):
    """Every copy of the object is gone and it could not be made again; run its task again."""

    _sentence = "the object is lost"
    call_site: str = ""

    @property
    def object_ref_hex(self) -> str | None:
        """Ray's name for `object_id`."""
        return self.object_id


class ObjectFetchTimedOutError(ObjectLostError):
    """No copy of the object was found in time; its node may be dead."""

    _sentence = "no copy of the object was found in time"


class ReferenceCountingAssertionError(ObjectLostError, AssertionError):
    """The object was freed while a ref to it was left, which is a bug of the engine; please report it."""

    _sentence = "the object was freed while a ref to it was left"


class ObjectFreedError(ObjectLostError):
    """The object was freed on purpose; free it later."""

    _sentence = "the object was freed"


class OwnerDiedError(ObjectLostError):
    """The process that made the ref died, and the object with it; make refs in a process that lives as long as they are
    needed.
    """

    _sentence = "the owner of the object died"


class ObjectReconstructionFailedError(ObjectLostError):
    """The object is lost and its task cannot run again; `reason` says why."""

    _sentence = "the object is lost and cannot be made again"


class GetTimeoutError(BiremeError, TimeoutError):
    """`get` waited as long as `timeout` allows; the task still runs, so `get` may be called again."""

    _sentence = "the result was not there in time"


class ObjectNotAvailable(BiremeError):
    """The object was not there in time."""

    _sentence = "the object was not there in time"


class RuntimeEnvSetupError(BiremeError):
    """The `runtime_env` cannot be set up; the message names the field and what is wrong with it."""

    _sentence = "the runtime environment cannot be set up"

    @property
    def error_message(self) -> str:
        """Ray's name for the text."""
        return str(self)


class TaskPlacementGroupRemoved(BiremeError):
    """The placement group of the task was removed."""

    _sentence = "the placement group of this task was removed"


class ActorPlacementGroupRemoved(BiremeError):
    """The placement group of the actor was removed."""

    _sentence = "the placement group of this actor was removed"


class PlacementGroupUnschedulableError(FactualError):
    """The placement group can never be placed; `reason` says why. Ask for less in its bundles, or for another strategy."""

    _sentence = "the placement group can never be placed"


class ReduceError(FactualError):
    """A reduce has no result; `reason` says why and names the inputs. Give arrays of one dtype and shape."""

    _sentence = "the reduce has no result"


class TaskUnschedulableError(FactualError):
    """No node can ever run the task; ask for resources that exist."""

    _sentence = "the task can run nowhere"


class ActorUnschedulableError(FactualError):
    """No node can ever run the actor; ask for resources that exist."""

    _sentence = "the actor can run nowhere"


class ObjectRefStreamEndOfStreamError(BiremeError):
    """A generator task has no further items; iterate with `for` to have this handled."""

    _sentence = "the generator has no further items"


class StreamingGeneratorReplayInconsistentError(BiremeSystemError):
    """A generator task that ran again gave another number of items; make it deterministic or set `max_retries=0`."""

    _sentence = "the generator task ran again and gave another number of items"


class ChannelError(BiremeSystemError):
    """A channel between actors failed."""

    _sentence = "a channel failed"


class ChannelTimeoutError(ChannelError, TimeoutError):
    """A channel between actors was not ready in time."""

    _sentence = "a channel was not ready in time"


class CgraphCapacityExceeded(BiremeSystemError):
    """The buffer of a compiled graph is full; take results out before putting more in."""

    _sentence = "the buffer of the compiled graph is full"


class DirectTransportError(BiremeSystemError):
    """A transfer straight between devices failed."""

    _sentence = "a direct transfer failed"


RayError = BiremeError
RayTaskError = TaskError
RayActorError = ActorError
RaySystemError = BiremeSystemError
RayChannelError = ChannelError
RayChannelTimeoutError = ChannelTimeoutError
RayCgraphCapacityExceeded = CgraphCapacityExceeded
RayDirectTransportError = DirectTransportError
LocalRayletDiedError = LocalNodeDiedError
PlasmaObjectNotAvailable = ObjectNotAvailable
OufOfBandObjectRefSerializationException = OutOfBandObjectRefSerializationError


def make_exception(class_name: str, message: str, fields: dict[str, Any]) -> BaseException:
    """The exception for an error of the engine: a class of this module or of Python by name, its message and its facts.

    A `TaskError` takes two facts more: `exception`, the payload of `from_exception` (may be empty), and `type_name`,
    for when it is.

    >>> make_exception("ObjectLostError", "object-7 is lost", {"object_id": "object-7"}).object_id
    'object-7'
    """
    if class_name != "TaskError":
        kind = globals().get(class_name) or getattr(builtins, class_name)
        made: BaseException = kind(message, **fields)
        return made
    payload, type_name = fields.pop("exception", b""), fields.pop("type_name", None)
    if payload:
        return task_error(to_exception(bytes(payload)), **fields)
    if type_name:
        lost = UnserializableException(type_name, message, fields.get("traceback_text", ""))
        return task_error(lost, **fields)
    return task_error(None, message=message, **fields)
