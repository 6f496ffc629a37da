"""The program that ends what models leave behind, by itself: B-PYR-09."""
import os
import signal
import subprocess
import sys
import time

import pytest
from runner_host import RUNTIME, until

SCRIPT = os.path.join(RUNTIME, "nereid_runner", "guardian.py")
SERVER = f"{os.getpid()}-1-abc"


def start_of(pid):
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[19])


def sleeping(marker=None, session=True, environment=None):
    """A process in a session of its own that sleeps, with the variable if a value is named."""
    env = dict(os.environ if environment is None else environment)
    if marker is not None:
        env["NEREID_RUNNER"] = marker
    return subprocess.Popen(["/bin/sleep", "600"], env=env, start_new_session=session)


class Guardian:
    def __init__(self, server=SERVER):
        self.process = subprocess.Popen([sys.executable, "-I", "-S", SCRIPT, server], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def tell(self, *lines):
        self.process.stdin.write("".join(line + "\n" for line in lines).encode())
        self.process.stdin.flush()


@pytest.fixture
def guardian():
    one = Guardian()
    yield one
    one.process.kill()
    one.process.wait()
    one.process.stdin.close()
    one.process.stdout.close()


@pytest.fixture
def made():
    processes = []
    yield lambda *args, **options: processes.append(sleeping(*args, **options)) or processes[-1]
    for one in processes:
        one.kill()
        one.wait()


def is_over(process):
    return process.poll() == -signal.SIGKILL


def test_b_pyr_09_what_a_runner_left_behind_is_ended_and_nothing_else(guardian, made):
    led, marked, bare = made(), made(f"{SERVER}-7"), made()
    others = [made(f"{SERVER}-77"), made(f"{SERVER}x-7"), made(f"{os.getpid()}-1-ab-7"), made("")]
    # A process that cleared its environment and stayed in the session of its runner.
    guardian.tell(f"+7 {led.pid} {start_of(led.pid)}", "-7")
    until(lambda: is_over(marked) and is_over(led))
    assert guardian.process.stdout.readline().decode().startswith("ended processes that a model had left running: ")
    assert not [one for one in (*others, bare) if one.poll() is not None]


def test_b_pyr_09_a_number_that_another_process_has_by_now_is_left_alone(guardian, made):
    another, marked = made(), made(f"{SERVER}-3")
    guardian.tell(f"+3 {another.pid} {start_of(another.pid) - 1}", "-3")
    until(lambda: is_over(marked))
    # One that it never heard of has its variable.
    unknown = made(f"{SERVER}-4")
    guardian.tell("-4")
    until(lambda: is_over(unknown))
    assert another.poll() is None


def test_b_pyr_09_a_closed_pipe_of_a_living_server_ends_nothing(made):
    # The parent of the guardian is this process, which lives: it would wait for its end.
    guardian, marked = Guardian(), made(f"{SERVER}-1")
    guardian.process.stdin.close()
    time.sleep(0.5)
    assert marked.poll() is None
    guardian.process.kill()
    guardian.process.wait()
    guardian.process.stdout.close()


def test_b_pyr_09_signals_for_the_server_do_not_end_it(guardian, made):
    guardian.tell("+1 1 1")
    marked = made(f"{SERVER}-1")
    # It has set its signals once it ended one.
    first = made(f"{SERVER}-2")
    guardian.tell("-2")
    until(lambda: is_over(first))
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        guardian.process.send_signal(number)
    guardian.tell("-1")
    until(lambda: is_over(marked))


KILLED = '''import os, subprocess, sys, time
server = f"{os.getpid()}-1-killed"
guardian = subprocess.Popen([sys.executable, "-I", "-S", sys.argv[1], server], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
env = dict(os.environ, NEREID_RUNNER=server + "-1")
left = [subprocess.Popen(["/bin/sleep", "600"], env=env, start_new_session=True) for _ in range(3)]
print(guardian.pid, *[one.pid for one in left], flush=True)
time.sleep(600)
'''


def test_b_pyr_09_the_end_of_the_server_is_the_end_of_all():
    server = subprocess.Popen([sys.executable, "-c", KILLED, SCRIPT], stdout=subprocess.PIPE)
    pids = [int(pid) for pid in server.stdout.readline().split()]
    server.kill()
    server.wait()
    server.stdout.close()
    until(lambda: not [pid for pid in pids if is_there(pid)])


def is_there(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
