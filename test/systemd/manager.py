"""A service manager for one service: keeps its sockets, starts and replaces its process, hears its notifications. Linux.

Told on the command line, as JSON: `command`, `listen` (a list of {name, port, kind}), `notify` (a path, or @ and an abstract name),
`env`. Takes lines on stdin: `start`, `term`, `quit`. Says on stdout, as JSON lines, what happens.
"""

import json
import os
import select
import signal
import socket
import sys

KINDS = {
    "tcp": (socket.AF_INET, socket.SOCK_STREAM, "127.0.0.1"),
    "tcp6": (socket.AF_INET6, socket.SOCK_STREAM, "::1"),
    "udp": (socket.AF_INET, socket.SOCK_DGRAM, "127.0.0.1"),
    "idle": (socket.AF_INET, socket.SOCK_STREAM, "127.0.0.1"),
    "unix": (socket.AF_UNIX, socket.SOCK_STREAM, None),
}


def say(**what):
    print(json.dumps(what), flush=True)


def opened(kind, port):
    family, style, address = KINDS[kind]
    one = socket.socket(family, style)
    if kind != "unix":
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    one.bind((address, port) if address else "\0nereid-test-%d" % os.getpid())
    if style == socket.SOCK_STREAM and kind != "idle":
        one.listen(128)
    return one


def start(command, sockets, names, env):
    pid = os.fork()
    if pid:
        return pid
    try:
        # What is said on stdout is the manager's alone.
        os.dup2(2, 1)
        # Out of the way first: one of them may already be where another belongs.
        high = [os.dup2(one.fileno(), 100 + i) for i, one in enumerate(sockets)]
        for i, fd in enumerate(high):
            os.dup2(fd, 3 + i, inheritable=True)
            os.close(fd)
        env = dict(env)
        if sockets:
            env.setdefault("LISTEN_PID", str(os.getpid()))
            env.setdefault("LISTEN_FDS", str(len(sockets)))
            if any(names):
                env["LISTEN_FDNAMES"] = ":".join(names)
        os.execve(command[0], command, {**os.environ, **env})
    finally:
        os._exit(127)


def main():
    told = json.loads(sys.argv[1])
    listen = told.get("listen", [])
    sockets = [opened(one.get("kind", "tcp"), one.get("port", 0)) for one in listen]
    names = [one.get("name", "") for one in listen]
    env = dict(told.get("env", {}))
    poll = [sys.stdin]
    heard = None
    if told.get("notify"):
        heard = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        heard.bind(told["notify"].replace("@", "\0", 1) if told["notify"].startswith("@") else told["notify"])
        env["NOTIFY_SOCKET"] = told["notify"]
        poll.append(heard)
    say(ports=[one.getsockname()[1] if one.family != socket.AF_UNIX else 0 for one in sockets])
    child = None
    while True:
        readable, _, _ = select.select(poll, [], [], 0.02)
        if heard in readable:
            say(notify=heard.recv(65536).decode())
        if sys.stdin in readable:
            line = sys.stdin.readline().strip()
            if line == "start":
                child = start(told["command"], sockets, names, env)
                say(pid=child)
            elif line == "term" and child:
                os.kill(child, signal.SIGTERM)
            elif line in ("quit", ""):
                if child:
                    os.kill(child, signal.SIGKILL)
                return
        if child:
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid:
                say(exit=os.waitstatus_to_exitcode(status))
                child = None


main()
