"""A parameter server: workers take parameters and give gradients; synchronous steps equal those of one process."""
# expect: 30 steps of 4 workers give the parameters of one process

import sys

import numpy

import bireme

bireme.init(*sys.argv[1:])
WORKERS, STEPS, RATE = 4, 30, 0.1


def shard(rank):
    draw = numpy.random.default_rng(rank)
    inputs = draw.normal(size=(200, 10))
    return inputs, inputs @ numpy.arange(10.0) + draw.normal(size=200)


def gradient(parameters, data):
    inputs, targets = data
    return inputs.T @ (inputs @ parameters - targets) / len(targets)


@bireme.remote
class Server:
    def __init__(self):
        self.parameters = numpy.zeros(10)

    def step(self, *gradients):
        self.parameters = self.parameters - RATE * sum(gradients) / len(gradients)
        return self.parameters

    def read(self):
        return self.parameters


@bireme.remote
class Worker:
    def __init__(self, rank):
        self.data = shard(rank)

    def gradient(self, parameters):
        return gradient(parameters, self.data)


server = Server.remote()
workers = [Worker.remote(rank) for rank in range(WORKERS)]
parameters = server.read.remote()
for _ in range(STEPS):
    parameters = server.step.remote(*(worker.gradient.remote(parameters) for worker in workers))

alone = numpy.zeros(10)
for _ in range(STEPS):
    alone = alone - RATE * sum(gradient(alone, shard(rank)) for rank in range(WORKERS)) / WORKERS
assert numpy.array_equal(bireme.get(parameters), alone)
print(f"{STEPS} steps of {WORKERS} workers give the parameters of one process")
