"""Runs a program under a filter of system calls: `filtered.py ALLOWED PROGRAM ARGUMENT...`, where ALLOWED is a file with a name on each line.

All other calls fail with EPERM, as with SystemCallErrorNumber=EPERM of systemd.
"""

import errno
import os
import sys

import seccomp

wanted = seccomp.SyscallFilter(seccomp.ERRNO(errno.EPERM))
for name in open(sys.argv[1]).read().split():
    # What this machine does not know is not in its table.
    try:
        wanted.add_rule(seccomp.ALLOW, name)
    except (OSError, RuntimeError, ValueError):
        pass
wanted.load()
os.execv(sys.argv[2], sys.argv[2:])
