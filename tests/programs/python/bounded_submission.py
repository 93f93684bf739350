"""A loop that keeps a few tasks in flight and reads results as they come."""
# expect: 300 results, at most 8 in flight

import sys

import bireme

bireme.init(*sys.argv[1:])


@bireme.remote
def work(x):
    return x, x * x


pending, results, most = [], {}, 0
for x in range(300):
    if len(pending) == 8:
        (ready,), pending = bireme.wait(pending, num_returns=1)
        key, value = bireme.get(ready)
        results[key] = value
    pending.append(work.remote(x))
    most = max(most, len(pending))
results.update(bireme.get(pending))
assert results == {x: x * x for x in range(300)}
print(f"{len(results)} results, at most {most} in flight")
