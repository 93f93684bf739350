"""How arrays and tables of other libraries travel, so that they arrive as views of shared memory.

`_serialize` asks `install` when a library has been imported by the program; nothing is imported for its sake. A reducer
gives its large parts as out-of-band buffers, which the extension copies once, straight into the object, each at a
multiple of 64 bytes.
"""

from __future__ import annotations

import functools
import importlib
import pickle
from collections.abc import Callable, Iterator
from typing import Any

from . import _native

Reducer = Callable[[Any], Any]

# A slice of an Arrow array is cut out when that saves at least so many bytes.
ARROW_WASTE_BYTES = 1024


def _subclasses(cls: type) -> Iterator[type]:
    below: type
    for below in cls.__subclasses__():
        yield below
        yield from _subclasses(below)


def _numpy(numpy: Any) -> dict[type, Reducer]:
    ndarray = numpy.ndarray
    buffer_of = pickle.PickleBuffer

    def reduce(array: Any) -> Any:
        dtype = array.dtype
        flags = array.flags
        if dtype.kind in "biufcSU" and flags.c_contiguous and dtype.itemsize:
            # Half the time of numpy's own way, and what it gives is rebuilt without Python code.
            return ndarray, (array.shape, dtype, buffer_of(array))
        if dtype.hasobject or not dtype.itemsize:
            return array.__reduce_ex__(5)
        if flags.f_contiguous and not flags.c_contiguous:
            return ndarray, (array.shape, dtype, _raw(array.T), 0, None, "F")
        return ndarray, (array.shape, dtype, _raw(array if flags.c_contiguous else array.copy("C")))

    def _raw(array: Any) -> pickle.PickleBuffer:
        # Dates and the element types of other packages have no format in the buffer protocol; their bytes have.
        return buffer_of(array.reshape(-1).view(numpy.uint8))

    return {ndarray: reduce}


def _arrow(arrow: Any) -> dict[type, Reducer]:
    def reduce(array: Any) -> Any:
        try:
            waste = array.get_total_buffer_size() - array.nbytes
        except Exception:  # noqa: BLE001 - kinds of arrays that cannot say
            return array.__reduce_ex__(5)
        if waste < ARROW_WASTE_BYTES:
            return array.__reduce_ex__(5)
        # Arrow's own pickle takes the buffers of the whole array that this is a slice of; its file format does not.
        batch = arrow.record_batch([array], names=["0"])
        sink = arrow.BufferOutputStream()
        with arrow.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        return _arrow_array, (sink.getvalue(),)

    def reduce_extension(array: Any) -> Any:
        return _extension_array, (array.type, array.storage)

    reducers: dict[type, Reducer] = dict.fromkeys(_subclasses(arrow.Array), reduce)
    extensions = [arrow.ExtensionArray, *_subclasses(arrow.ExtensionArray)]
    return reducers | dict.fromkeys(extensions, reduce_extension)


def _arrow_array(stream: Any) -> Any:
    arrow = importlib.import_module("pyarrow")
    return importlib.import_module("pyarrow.ipc").open_stream(arrow.py_buffer(stream)).read_next_batch().column(0)


def _extension_array(kind: Any, storage: Any) -> Any:
    return importlib.import_module("pyarrow").ExtensionArray.from_storage(kind, storage)


def _jax(jax: Any) -> dict[type, Reducer]:
    numpy = importlib.import_module("numpy")
    array_class = importlib.import_module("jax._src.array").ArrayImpl

    def reduce(array: Any) -> Any:
        devices = array.devices()
        if len(devices) != 1 or next(iter(devices)).platform != "cpu" or array.weak_type:
            return array.__reduce_ex__(5)
        return _jax_array, (numpy.asarray(array),)

    return {array_class: reduce}


def _jax_array(array: Any) -> Any:
    # Aligned memory of this process becomes the array's own, without a copy.
    return importlib.import_module("jax").device_put(array)


def _torch(torch: Any) -> dict[type, Reducer]:
    def reduce(tensor: Any) -> Any:
        plain = tensor.device.type == "cpu" and tensor.layout == torch.strided and not tensor.is_quantized
        if not plain or tensor.grad_fn is not None or tensor.is_conj() or tensor.is_neg() or tensor.__dict__:
            return tensor.__reduce_ex__(5)
        return _torch_tensor, (_tensor_bytes(torch, tensor), tensor.dtype, tuple(tensor.shape), tensor.requires_grad)

    return {torch.Tensor: reduce}


def _tensor_bytes(torch: Any, tensor: Any) -> pickle.PickleBuffer:
    return pickle.PickleBuffer(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy())


def _torch_tensor(buffer: Any, dtype: Any, shape: tuple[int, ...], requires_grad: bool) -> Any:
    torch = importlib.import_module("torch")
    if 0 in shape:
        tensor = torch.empty(shape, dtype=dtype)
    else:
        # Torch has no tensors that are read-only, and an optimizer writes wherever it likes.
        tensor = torch.frombuffer(writable(buffer), dtype=torch.uint8).view(dtype).reshape(shape)
    return tensor.requires_grad_() if requires_grad else tensor


def tensor_array(tensor: Any) -> tuple[pickle.PickleBuffer, int, tuple[int, ...]] | None:
    """The bytes of a tensor, the number of its element type in array objects and its shape; None for one that is more than
    an array, or lies elsewhere.
    """
    torch = importlib.import_module("torch")
    number = _torch_dtypes(torch).get(tensor.dtype)
    plain = tensor.device.type == "cpu" and tensor.layout == torch.strided and not tensor.requires_grad
    # Attributes that the user has set go with its pickle.
    if number is None or not plain or tensor.is_neg() or tensor.__dict__:
        return None
    return _tensor_bytes(torch, tensor), number, tuple(tensor.shape)


def make_tensor(buffer: Any, dtype: str, shape: tuple[int, ...]) -> Any:
    """A tensor over the bytes of an object, which may be written and changes no other."""
    torch = importlib.import_module("torch")
    name = dtype.lstrip("<")
    return _torch_tensor(buffer, getattr(torch, _NAMES.get(name, name)), shape, False)


# The element types of array objects from number 1 on, by numpy's short names and by those that torch has too.
_NAMES = {
    "u1": "uint8", "u2": "uint16", "u4": "uint32", "u8": "uint64", "i1": "int8", "i2": "int16", "i4": "int32", "i8": "int64",
    "f2": "float16", "bfloat16": "bfloat16", "f4": "float32", "f8": "float64", "?": "bool",
}  # fmt: skip


@functools.lru_cache(maxsize=1)
def _torch_dtypes(torch: Any) -> dict[Any, int]:
    # Older versions lack some of the unsigned ones.
    return {getattr(torch, name): number for number, name in enumerate(_NAMES.values(), 1) if hasattr(torch, name)}


def writable(buffer: Any) -> Any:
    """A buffer with the same bytes that may be written, without being seen by others: pages of its own where the memory is
    shared, a copy of anything else that is read-only.
    """
    if isinstance(buffer, _native.View):
        return buffer.private()
    view = memoryview(buffer)
    return bytearray(view) if view.readonly else view


# By the module whose presence shows that the program uses the library.
_LIBRARIES: dict[str, Callable[[Any], dict[type, Reducer]]] = {
    "numpy": _numpy,
    "pyarrow": _arrow,
    "jax": _jax,
    "torch": _torch,
}


def names() -> set[str]:
    """The libraries that have reducers here."""
    return set(_LIBRARIES)


def install(name: str, module: Any) -> dict[type, Reducer] | None:
    """The reducers for a library; None while it is still being imported."""
    if getattr(getattr(module, "__spec__", None), "_initializing", False):
        return None
    try:
        return _LIBRARIES[name](module)
    except (ImportError, AttributeError):
        # Another version, or another module of that name: its values are pickled their own way.
        return {}
