import bireme


@bireme.remote
def square(x: int) -> int:
    return x * x


@bireme.remote
class Counter:
    def __init__(self, start: int) -> None:
        self.total = start

    def add(self, n: int) -> int:
        self.total += n
        return self.total


squares = [square.remote(x) for x in range(1, 11)]
counter = Counter.remote(0)
totals = bireme.get([counter.add.remote(square) for square in squares])
print("the running totals of ten squares:", totals)
assert totals[-1] == 385
