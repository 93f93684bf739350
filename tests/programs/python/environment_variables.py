"""Tasks that change their environment do not read each other's, whatever runs at the same time."""
# expect: 40 of 40 tasks read what they wrote

import os
import sys
import time

import bireme

bireme.init(*sys.argv[1:])


@bireme.remote
def step(number):
    os.environ["STEP"] = str(number)
    bireme.available_resources()
    time.sleep(0.02)  # a task that is still running
    return os.environ["STEP"] == str(number)


results = bireme.get([step.remote(number) for number in range(40)])
print(f"{sum(results)} of {len(results)} tasks read what they wrote")
