"""Map and reduce over text."""
# expect: the 3000, oar 2000, galley 1000

import sys
from collections import Counter

import bireme

bireme.init(*sys.argv[1:])

TEXT = "the oar of the galley and the oar"


@bireme.remote
def count(lines):
    return Counter(word for line in lines for word in line.split())


@bireme.remote
def merge(*counters):
    return sum(counters, Counter())


counters = [count.remote([TEXT] * 50) for _ in range(20)]
while len(counters) > 1:
    counters = [merge.remote(*counters[at : at + 4]) for at in range(0, len(counters), 4)]
total = bireme.get(counters[0])
print(", ".join(f"{word} {total[word]}" for word in ("the", "oar", "galley")))
