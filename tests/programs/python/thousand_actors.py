"""A thousand actors at once."""
# slow: a thousand processes
# modes: embedded
# expect: 1000 actors, sum 499500

import bireme

bireme.init()


@bireme.remote
class Holder:
    def __init__(self, value):
        self.value = value

    def read(self):
        return self.value


holders = [Holder.remote(number) for number in range(1000)]
print(f"{len(holders)} actors, sum {sum(bireme.get([holder.read.remote() for holder in holders]))}")
