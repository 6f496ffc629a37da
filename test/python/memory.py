"""Names of shared memory, to see that nothing is left behind."""
import os
import re
from pathlib import Path

DIRECTORY = Path("/dev/shm")


def named_memory():
    """
    Names of shared memory that this process or a process it started may have left. Not among them: semaphores of Python's own
    multiprocessing, and what other processes hold that run beside this one, which are in the names of their regions.
    """
    if not DIRECTORY.is_dir():
        return set()
    names = {name for name in os.listdir(DIRECTORY) if not name.startswith("sem.mp-") and not belongs_to_another(name)}
    # The process beside may have ended between the two looks, and removed its region before.
    return {name for name in names if (DIRECTORY / name).exists()}


def belongs_to_another(name):
    pids = [int(digits) for digits in re.findall(r"\d+", name)]
    return any(pid > 1 and pid != os.getpid() and Path(f"/proc/{pid}").exists() for pid in pids)
