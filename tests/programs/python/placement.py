"""Tasks with a resource and then actors with the same one: every unit can be used again."""
# modes: cluster
# expect: 20 tasks, then 2 actors on 2 nodes

import sys

import bireme

bireme.init(*sys.argv[1:])


@bireme.remote(resources={"slot": 1}, num_cpus=0)
def where():
    return bireme.get_runtime_context().get_node_id()


@bireme.remote(resources={"slot": 1})
class Holder:
    def where(self):
        return bireme.get_runtime_context().get_node_id()


tasks = bireme.get([where.remote() for _ in range(20)], timeout=60)
holders = [Holder.remote() for _ in range(2)]
places = bireme.get([holder.where.remote() for holder in holders], timeout=60)
print(f"{len(tasks)} tasks, then {len(holders)} actors on {len(set(places))} nodes")
