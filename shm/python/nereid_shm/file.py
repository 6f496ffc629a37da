"""POSIX shared memory as a file in /dev/shm: made, opened, mapped and removed.

Not `multiprocessing.shared_memory`: up to Python 3.12 its resource tracker removes regions that belong to others when a process that only
opened them ends. Linux only.
"""
import errno
import mmap
import os
import secrets

from .layout import RegionError

DIRECTORY = "/dev/shm"
# Of a file's name.
KEY_BYTES_MAX = 255


def fresh_key() -> str:
    """A key that no other process has: its owner's process id, for whoever looks at /dev/shm, and 64 random bits."""
    return f"/nereid-{os.getpid()}-{secrets.token_hex(8)}"


def path_of(key: str) -> str:
    name = key.lstrip("/")
    if not name or name in (".", "..") or "/" in name or "\0" in name or len(os.fsencode(name)) > KEY_BYTES_MAX:
        raise RegionError(f"key {key!r}: a name of 1 to {KEY_BYTES_MAX} bytes without inner slashes is needed")
    return f"{DIRECTORY}/{name}"


def create(key: str, byte_size: int) -> mmap.mmap:
    """A new file of `byte_size` zero bytes, readable by this user only, and mapped.

    Its memory is taken now, so that a /dev/shm that is full is an OSError here, not a SIGBUS of whoever touches the last page later.
    """
    path = path_of(key)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, byte_size)
        return mmap.mmap(descriptor, byte_size)
    except BaseException:
        os.unlink(path)
        raise
    finally:
        os.close(descriptor)


def attach(key: str, byte_size: int) -> mmap.mmap:
    """The first `byte_size` bytes of an existing file, mapped.

    Raises FileNotFoundError, and RegionError when it has less than `byte_size`.
    """
    descriptor = os.open(path_of(key), os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        there = os.fstat(descriptor).st_size
        if there < byte_size:
            raise RegionError(f"region {key}: the file has {there} bytes, the tensors need {byte_size}")
        return mmap.mmap(descriptor, byte_size)
    finally:
        os.close(descriptor)


def unlink(key: str, owner: int) -> None:
    """Removes the file, unless it is gone, or this is a fork of the process `owner`."""
    if os.getpid() != owner:
        return
    try:
        os.unlink(path_of(key))
    except OSError as error:
        if error.errno != errno.ENOENT:
            raise
