"""More objects than the store has room for: the oldest go to disk and come back."""
# modes: embedded
# expect: 30 arrays of 8 MB through a store of 80 MB

import numpy

import bireme

bireme.init(object_store_memory=80_000_000)


@bireme.remote
def make(number):
    return numpy.full(1_000_000, number)


@bireme.remote
def check(array, number):
    return bool((array == number).all())


refs = [bireme.put(numpy.full(1_000_000, number)) if number % 2 else make.remote(number) for number in range(30)]
assert all(bireme.get([check.remote(ref, number) for number, ref in enumerate(refs)]))
for number, ref in enumerate(refs):
    assert int(bireme.get(ref)[-1]) == number
print("30 arrays of 8 MB through a store of 80 MB")
