"""Getting perf_analyzer to run: see binary()."""
import functools
import glob
import os
import shutil
import struct
import subprocess
import sys
import zipfile

HERE = os.path.dirname(__file__)
VERSION = "2.60.0"
# Newest first: pip takes the first that the wheel names.
PLATFORMS = ["manylinux_2_39_x86_64", "manylinux_2_38_x86_64", "manylinux_2_35_x86_64"]
NEW_VERSIONS = [b"GLIBC_2.38", b"GLIBCXX_3.4.31", b"GLIBCXX_3.4.32"]
SHT_GNU_VERNEED = 0x6FFFFFFE
VER_FLG_WEAK = 2


class Unavailable(Exception):
    """Why perf_analyzer cannot run here."""


def weaken(path):
    """
    Marks the library versions that this system may lack as weak in the ELF file, so that the loader goes on without them.
    The symbols themselves come from compat.cc.
    """
    with open(path, "rb") as f:
        data = bytearray(f.read())
    offset, = struct.unpack_from("<Q", data, 0x28)
    size, count = struct.unpack_from("<HH", data, 0x3A)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, offset + i * size) for i in range(count)]
    changed = 0
    for section in sections:
        if section[1] != SHT_GNU_VERNEED:
            continue
        names = sections[section[6]][4]
        need = section[4]
        while True:
            _, aux_count, _, aux, following = struct.unpack_from("<HHIII", data, need)
            at = need + aux
            for _ in range(aux_count):
                _, flags, _, name, step = struct.unpack_from("<IHHII", data, at)
                start = names + name
                if bytes(data[start : data.index(0, start)]) in NEW_VERSIONS:
                    struct.pack_into("<H", data, at + 4, flags | VER_FLG_WEAK)
                    changed += 1
                at += step
            if following == 0:
                break
            need += following
    with open(path, "wb") as f:
        f.write(data)
    return changed


def run(command, what):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise Unavailable(f"{what}: {(done.stderr or done.stdout).strip()[-300:]}")
    return done.stdout


def build(compiler, home, source, name):
    out = os.path.join(home, name)
    run([compiler, "-shared", "-fPIC", "-O1", "-o", out, os.path.join(HERE, source)], source)
    return out


def works(command, env):
    done = subprocess.run([*command, "--version"], capture_output=True, text=True, env=env)
    return done.returncode == 0, f"exit code {done.returncode}: {(done.stderr or done.stdout).strip()[-300:]}"


@functools.cache
def binary():
    """
    (command, environment) of a perf_analyzer that runs.

    Its wheel is built for glibc 2.38. Where that is newer than the system's, the binary is told that the newer versions
    are optional, and a small library brings the seven functions it wants from them.

    @raises Unavailable with the reason
    """
    if sys.platform != "linux" or os.uname().machine != "x86_64":
        raise Unavailable("perf_analyzer is only built for Linux x86_64")
    home = os.path.join(sys.prefix, "perf_analyzer", VERSION)
    path = os.path.join(home, "perf_analyzer", "bin", "perf_analyzer")
    if not os.path.exists(path):
        os.makedirs(home, exist_ok=True)
        options = [o for p in PLATFORMS for o in ("--platform", p)]
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", "--dest", home]
        run([*pip, *options, f"perf-analyzer=={VERSION}"], "pip could not get perf-analyzer")
        with zipfile.ZipFile(glob.glob(os.path.join(home, "*.whl"))[0]) as wheel:
            wheel.extractall(home)
        os.chmod(path, 0o755)
    compiler = shutil.which("c++") or shutil.which("g++")
    env = dict(os.environ)
    if compiler is not None:
        build(compiler, home, "cudart.cc", "libcudart.so")
        # Behind whatever is there: a real libcudart comes first.
        env["LD_LIBRARY_PATH"] = ":".join(filter(None, [env.get("LD_LIBRARY_PATH"), home]))
    ok, said = works([path], env)
    if ok:
        return path, env
    if compiler is None:
        raise Unavailable(f"needs a newer system or a C++ compiler: {said}")
    weaken(path)
    env["LD_PRELOAD"] = build(compiler, home, "compat.cc", "compat.so")
    ok, said = works([path], env)
    if not ok:
        raise Unavailable(said)
    return path, env
