"""Ends processes that runners leave behind (B-PYR-09): `python -I -S guardian.py SERVER`, one per server.

A model may start processes outside its runner's group: daemons, spawned workers. They are found by the runner's session
and group, and the variable that descendants inherit; not if they leave the session *and* clear the environment.

Reads lines from descriptor 0: `+ID PID START` adds a runner, which leads session PID and began at START (of
/proc/PID/stat); `-ID` removes it. When the server ends, in whatever way, the kernel closes that descriptor.

All imports are at the top: this program's environment may be removed meanwhile. Needs no other file.
"""
import os
import select
import signal
import sys
import time

VARIABLE = b"NEREID_RUNNER="
#: Time limit for processes that the kernel does not end, or that start others faster than they are found.
SECONDS = 5
#: Time for a server to end after it closed its descriptors.
SERVER_SECONDS = 30
ENVIRONMENT_BYTES_MAX = 8 << 20


def stat_of(pid):
    """(is it running, group, session, start), or None."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        return fields[0] not in (b"Z", b"X"), int(fields[2]), int(fields[3]), int(fields[19])
    except (OSError, IndexError, ValueError):
        return None


def variable_of(pid):
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            parts = file.read(ENVIRONMENT_BYTES_MAX).split(b"\0")
    except OSError:
        return None
    return next((part[len(VARIABLE):] for part in parts if part.startswith(VARIABLE)), None)


class Belonging:
    """Predicate: a process belongs to runners that have ended."""

    def __init__(self, leaders, is_meant):
        self.leaders, self.is_meant = leaders, is_meant
        self.since = min(leaders.values(), default=0)

    def __call__(self, pid):
        found = stat_of(pid)
        if found is None or not found[0] or found[3] < self.since:
            return False
        # A session's number is not reused while it has a process; a leader of another age leads another session.
        if any(self.leads(leader) for leader in found[1:3]):
            return True
        value = variable_of(pid)
        return value is not None and self.is_meant(value)

    def leads(self, pid):
        if pid not in self.leaders:
            return False
        found = stat_of(pid)
        return found is None or found[3] == self.leaders[pid]


def kill(pid, belongs):
    """Kills a process if it belongs; returns True if it did."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    except (AttributeError, OSError):
        # On an old or restricted kernel. The pid could be reused between this check and the next line.
        if belongs(pid):
            os.kill(pid, signal.SIGKILL)
            return True
        return False
    try:
        # Checked again: the pid may have been reused before the descriptor was opened.
        if belongs(pid):
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            return True
        return False
    finally:
        os.close(descriptor)


def sweep(belongs):
    """Kills all processes that belong, until none is found; returns their ids."""
    killed, end, pause = set(), time.monotonic() + SECONDS, 0.001
    while True:
        found = False
        for name in os.listdir("/proc"):
            if not name.isdigit() or int(name) in (1, os.getpid()):
                continue
            try:
                if belongs(int(name)) and kill(int(name), belongs):
                    killed.add(int(name))
                    found = True
            except OSError:
                # It has ended, or may not be killed by us.
                pass
        if not found or time.monotonic() > end:
            return killed
        # A killed process takes a moment to end.
        time.sleep(pause)
        pause = min(pause * 2, 0.1)


class Guardian:
    def __init__(self, server):
        self.server = server.encode()
        #: Pid and start of each runner, by id.
        self.runners = {}

    def hear(self, lines):
        """Processes lines; returns and removes the runners that have ended."""
        over = {}
        for line in lines:
            words = line[1:].split()
            if line[:1] == b"+":
                self.runners[words[0]] = (int(words[1]), int(words[2]))
            elif line[:1] == b"-":
                over[words[0]] = self.runners.pop(words[0], None)
        return over

    def over(self, over):
        """Ends the remains of some runners."""
        values = {self.server + b"-" + name for name in over}
        killed = sweep(Belonging(dict(runner for runner in over.values() if runner), values.__contains__))
        if killed:
            say(f"ended processes that a model had left running: {', '.join(map(str, sorted(killed)))}")

    def all_over(self):
        """Ends the remains of all runners of the server, also of unreported ones."""
        sweep(Belonging(dict(self.runners.values()), lambda value: value.startswith(self.server + b"-")))


def say(text):
    try:
        os.write(1, text.encode() + b"\n")
    except OSError:
        pass


def is_gone(server, descriptor):
    """True if our parent has ended; waits for one that is about to."""
    if descriptor is not None:
        return bool(select.select([descriptor], [], [], SERVER_SECONDS)[0])
    end = time.monotonic() + SERVER_SECONDS
    while os.getppid() == server and time.monotonic() < end:
        time.sleep(0.01)
    return os.getppid() != server


def main():
    # These signals are for the server, which takes its time to end.
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    guardian = Guardian(sys.argv[1])
    server = int(sys.argv[1].split("-")[0])
    try:
        descriptor = os.pidfd_open(server) if os.getppid() == server else None
    except (AttributeError, OSError):
        descriptor = None
    rest = b""
    while True:
        try:
            came = os.read(0, 65536)
        except OSError:
            break
        if not came:
            break
        *lines, rest = (rest + came).split(b"\n")
        over = guardian.hear(lines)
        if over:
            guardian.over(over)
    if is_gone(server, descriptor):
        guardian.all_over()


if __name__ == "__main__":
    main()
