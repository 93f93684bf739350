"""Tasks that work in a folder of their own, with relative names."""
# expect: 16 files, each with its number

import os
import sys
import tempfile

import bireme

bireme.init(*sys.argv[1:])


@bireme.remote
def write(folder, number):
    os.makedirs(f"{folder}/{number}")
    os.chdir(f"{folder}/{number}")
    with open("result.txt", "w") as file:
        file.write(str(number))
    bireme.get(bireme.put(number))
    with open("result.txt") as file:
        return int(file.read())


with tempfile.TemporaryDirectory() as folder:
    assert bireme.get([write.remote(folder, number) for number in range(16)]) == list(range(16))
    found = sorted(int(open(f"{folder}/{name}/result.txt").read()) for name in os.listdir(folder))
    assert found == list(range(16))
print(f"{len(found)} files, each with its number")
