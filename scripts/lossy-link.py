"""A link between two network interfaces that loses, repeats, delays and reorders, drawn from a seed.

lossy-link.py NAME_A NAME_B LOSS DUPLICATE REORDER DELAY_MS SEED; shares in percent, as `tc netem` has them: a
packet that is reordered is sent at once, and overtakes those that are being delayed. The interfaces are TUN
devices, which another program may move into network namespaces once "ready" has been printed. Ends with the
standard input, and prints how many packets were passed, lost, repeated and reordered.
"""

import fcntl
import heapq
import os
import random
import select
import struct
import sys
import time

TUNSETIFF = 0x400454CA
IFF_TUN = 0x0001
IFF_NO_PI = 0x1000
MOST = 65_536


def tun(name):
    fd = os.open('/dev/net/tun', os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(fd, TUNSETIFF, struct.pack('16sH22x', name.encode(), IFF_TUN | IFF_NO_PI))
    return fd


def main():
    names = sys.argv[1:3]
    loss, duplicate, reorder = (float(word) / 100 for word in sys.argv[3:6])
    delay = float(sys.argv[6]) / 1000
    draw = random.Random(int(sys.argv[7])).random
    fds = [tun(name) for name in names]
    counts = {'passed': 0, 'lost': 0, 'repeated': 0, 'reordered': 0}
    waiting = []  # (when, order, where to, packet)
    order = 0
    print('ready', flush=True)

    def put(fd, packet):
        try:
            os.write(fd, packet)
            counts['passed'] += 1
        except OSError:
            pass  # the other interface is not up

    while True:
        now = time.monotonic()
        while waiting and waiting[0][0] <= now:
            _, _, fd, packet = heapq.heappop(waiting)
            put(fd, packet)
        timeout = max(0, waiting[0][0] - now) if waiting else None
        readable, _, _ = select.select([*fds, sys.stdin], [], [], timeout)
        if sys.stdin in readable and os.read(sys.stdin.fileno(), 1024) == b'':
            break
        for fd in readable:
            if fd not in fds:
                continue
            other = fds[1 - fds.index(fd)]
            for _ in range(64):
                try:
                    packet = os.read(fd, MOST)
                except OSError:
                    break
                if draw() < loss:
                    counts['lost'] += 1
                    continue
                copies = 1
                if draw() < duplicate:
                    counts['repeated'] += 1
                    copies = 2
                for _ in range(copies):
                    if draw() < reorder:
                        counts['reordered'] += 1
                        put(other, packet)
                    else:
                        order += 1
                        heapq.heappush(waiting, (time.monotonic() + delay, order, other, packet))
    print(' '.join(f'{name} {count}' for name, count in counts.items()), flush=True)


main()
