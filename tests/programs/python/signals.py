"""Tasks that use signals: an alarm as a timeout, a handler of their own."""
# expect: ['alarm', 'alarm', 'alarm', 'alarm']
# expect: ['SIGUSR1', 'SIGUSR1']

import os
import signal
import sys

import bireme

bireme.init(*sys.argv[1:])


class Alarm(Exception):
    pass


@bireme.remote
def limited():
    def ring(*_):
        raise Alarm

    previous = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        while True:
            signal.pause()
    except Alarm:
        return "alarm"
    finally:
        signal.signal(signal.SIGALRM, previous)


@bireme.remote
def handle():
    seen = []
    signal.signal(signal.SIGUSR1, lambda number, _: seen.append(signal.Signals(number).name))
    os.kill(os.getpid(), signal.SIGUSR1)
    return seen[0]


print(bireme.get([limited.remote() for _ in range(4)]))
print(bireme.get([handle.remote() for _ in range(2)]))
