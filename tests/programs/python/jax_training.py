"""Data-parallel training with jax: gradients of shards, averaged, equal the gradient of all data."""
# expect: loss fell to 0.00, parameters agree

import sys

import jax
import jax.numpy as jnp
import numpy

import bireme

bireme.init(*sys.argv[1:])


def loss(parameters, inputs, targets):
    return jnp.mean((inputs @ parameters - targets) ** 2)


draw = numpy.random.default_rng(0)
inputs = draw.normal(size=(400, 5)).astype("float32")
targets = inputs @ numpy.arange(5, dtype="float32")


@bireme.remote
class Shard:
    def __init__(self, inputs, targets):
        self.inputs, self.targets = inputs, targets
        self.gradient_of = jax.jit(jax.grad(loss))

    def gradient(self, parameters):
        return self.gradient_of(parameters, self.inputs, self.targets)


shards = [Shard.remote(inputs[part::2], targets[part::2]) for part in range(2)]
parameters = alone = jnp.zeros(5)
gradient = jax.jit(jax.grad(loss))
for _ in range(60):
    ref = bireme.put(parameters)
    parameters = parameters - 0.1 * sum(bireme.get([shard.gradient.remote(ref) for shard in shards])) / 2
    alone = alone - 0.1 * gradient(alone, inputs, targets)
assert jnp.allclose(parameters, alone, atol=1e-4)
print(f"loss fell to {float(loss(parameters, inputs, targets)):.2f}, parameters agree")
