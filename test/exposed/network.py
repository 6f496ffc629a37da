"""
Runs a command where there is a network: a namespace of its own, in which `NETWORK` is an address of this machine that is not loopback.
Nothing in it can be reached from outside of it, and ports there are free.

    unshare --map-root-user --net python3 network.py COMMAND …
"""

import fcntl
import os
import socket
import struct
import sys

NETWORK = "192.0.2.1"
SIOCSIFFLAGS, SIOCSIFADDR = 0x8914, 0x8916
IFF_UP, IFF_RUNNING = 0x1, 0x40

with socket.socket() as one:
    fcntl.ioctl(one, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", IFF_UP | IFF_RUNNING))
    fcntl.ioctl(one, SIOCSIFADDR, struct.pack("16sHH4s8x", b"lo:1", socket.AF_INET, 0, socket.inet_aton(NETWORK)))
os.execvpe(sys.argv[1], sys.argv[1:], {**os.environ, "NEREID_TEST_NETWORK": NETWORK})
