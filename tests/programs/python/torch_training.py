"""Training with torch: a module comes back from the store and is trained in place, here and in tasks."""
# needs: torch
# expect: the optimizer stepped on a module from the store
# expect: 2 tasks drew different numbers
# expect: loss fell below 0.1

import sys

import torch

import bireme

bireme.init(*sys.argv[1:])
torch.manual_seed(0)
model = bireme.get(bireme.put(torch.nn.Linear(500, 500)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.ones(1, 500)).sum().backward()
optimizer.step()
print("the optimizer stepped on a module from the store")


@bireme.remote
class Trainer:
    def draw(self):
        return torch.rand(3).tolist()

    def train(self, model, inputs, targets):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(100):
            optimizer.zero_grad()
            loss = ((model(inputs) - targets) ** 2).mean()
            loss.backward()
            optimizer.step()
        return float(loss), model


trainers = [Trainer.remote() for _ in range(2)]
first, second = bireme.get([trainer.draw.remote() for trainer in trainers])
assert first != second
print("2 tasks drew different numbers")
inputs = torch.randn(200, 4)
targets = inputs @ torch.tensor([[1.0], [2.0], [3.0], [4.0]])
loss, trained = bireme.get(trainers[0].train.remote(torch.nn.Linear(4, 1), inputs, targets))
assert loss < 0.1, loss
assert ((trained(inputs) - targets) ** 2).mean() < 0.1
print("loss fell below 0.1")
