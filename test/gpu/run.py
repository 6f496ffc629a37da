#!/usr/bin/env python3
"""
The rows of rows.json on this machine: `npm run test:gpu`, or `python run.py` in a bundle. Each is passed, failed, or not run, with the reason.

Needs Python 3.9 and nothing else to say what is missing; rows want numpy, tritonclient and cuda.bindings. Every row runs in a process of its own: what a
driver does to it must not end the others.
"""
import argparse
import functools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import place  # noqa: E402
import report  # noqa: E402
from probe import probe  # noqa: E402

ROW_SECONDS_MAX = 120


def table():
    with open(os.path.join(HERE, "rows.json"), encoding="utf-8") as file:
        return json.load(file)


def is_met(target, figure):
    return figure <= target["most"] if "most" in target else figure >= target["least"]


def run_here(name, options):
    """Runs one row in this process. Its last line of output is what came out, as JSON."""
    import rows
    from context import Context, NotRun

    target = next(row.get("target") for row in table() if row["id"] == name)
    try:
        with Context(options.provider_directory, options.logs and os.path.join(options.logs, name)) as t:
            found = rows.load()[name](t)
        found = found if isinstance(found, dict) else {"note": found} if isinstance(found, str) else {"figure": found}
        found = {"figure": found.get("figure"), "note": found.get("note") or ""}
        if target is not None and found["figure"] is None:
            raise AssertionError("the row has a target and gave no figure")
        found["state"] = "passed" if target is None or is_met(target, found["figure"]) else "failed"
    except NotRun as e:
        found = {"state": "not run", "figure": None, "note": str(e)}
    except Exception as e:  # noqa: BLE001 - whatever a row raises is its result
        words = str(e) or "an assertion does not hold"
        found = {"state": "failed", "figure": None, "note": f"{type(e).__name__}: {words} ({where(e)})"}
    print(json.dumps(found))


def where(error):
    """File and line of the innermost frame that is ours."""
    at = "?"
    trace = error.__traceback__
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if name.startswith(place.ROOT):
            at = f"{os.path.relpath(name, place.ROOT)}:{trace.tb_lineno}"
        trace = trace.tb_next
    return at


def run_apart(name, options):
    """The same in a process of its own, with all that it started ended at the end of its time."""
    passed_on = [f"--{flag.replace('_', '-')}={getattr(options, flag)}" for flag in ("provider_directory", "logs") if getattr(options, flag)]
    words = [sys.executable, os.path.abspath(__file__), f"--row={name}", *passed_on, *(["--mock"] if options.mock else [])]
    with tempfile.TemporaryFile("w+") as said:
        child = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=said, text=True, start_new_session=True)
        try:
            out, _ = child.communicate(timeout=ROW_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.communicate()
            return {"state": "failed", "figure": None, "note": f"was not over after {ROW_SECONDS_MAX} s"}
        try:
            return json.loads(out.strip().splitlines()[-1])
        except (IndexError, ValueError):
            said.seek(0)
            return {"state": "failed", "figure": None, "note": f"ended with {child.returncode}: {(said.read() + out).strip()[-400:]}"}


def mocked():
    """Builds the stand-ins of the driver and of NVML, and has this process and its children use it."""
    directory = tempfile.mkdtemp(prefix="nereid-mock-")
    sources = os.path.join(place.ROOT, "crates/device/tests/mock")
    for name, source in (("libcuda.so.1", "libcuda.c"), ("libnvidia-ml.so.1", "libnvidia-ml.c")):
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", f"-Wl,-soname,{name}", "-o", os.path.join(directory, name), os.path.join(sources, source), "-lpthread"], check=True)
    at = functools.partial(os.path.join, directory)
    # What runs on it: a plug-in of ONNX Runtime for the x64 library, with three operators.
    plugin = os.path.join(place.ROOT, "crates/backend-onnx/tests/mock/provider.c")
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", at("libprovider.so"), plugin, "-ldl"], check=True)
    os.environ["NEREID_TEST_PROVIDER_LIBRARY"] = at("libprovider.so")
    os.environ.update(NEREID_LIBCUDA=at("libcuda.so.1"), NEREID_LIBNVML=at("libnvidia-ml.so.1"), NEREID_MOCK_CUDA_DIR=directory, LD_LIBRARY_PATH=directory)
    return directory


def chosen(options):
    rows = table()
    unknown = [name for name in options.only if name not in {row["id"] for row in rows}]
    if unknown:
        sys.exit(f"no row {', '.join(unknown)}: there are {', '.join(row['id'] for row in rows)}")
    return [row for row in rows if not options.only or row["id"] in options.only]


def run_all(options):
    probed = probe()
    needs = place.facts(probed, options.provider_directory)
    print(f"probe: driver {probed['driver'] or probed['version']}; " + "; ".join(f"{name} {probed[name] or 'works'}" for name in ("ipc", "host-register", "nvml")))
    for device in probed["devices"]:
        print(f"device: {device['name']}, {device['bytes'] / 2**30:.0f} GiB, compute capability {device['capability']}")
    rows = chosen(options)

    def run(row):
        # Without a device that is the reason, whatever else is missing.
        missing = probed["driver"] or next((needs[need] for need in row["needs"] if needs[need]), None)
        began = time.monotonic()
        found = {"state": "not run", "figure": None, "note": missing} if missing else run_apart(row["id"], options)
        found = {"id": row["id"], **found, "seconds": round(time.monotonic() - began, 1)}
        print(report.line(row, found, options.mock), flush=True)
        return found

    # Rows with a target measure, so they run alone, behind the others.
    together = [row for row in rows if "target" not in row] if options.jobs > 1 else []
    if together and not probed["driver"] and not needs["server"]:
        # Before several rows would write one.
        place.write_models()
    with ThreadPoolExecutor(options.jobs) as pool:
        found = {one["id"]: one for one in pool.map(run, together)}
    done = [found.get(row["id"]) or run(row) for row in rows]
    count = {state: sum(1 for one in done if one["state"] == state) for state in ("passed", "failed", "not run")}
    print(f"\n{count['passed']} passed, {count['failed']} failed, {count['not run']} not run{' (mock: no GPU was used)' if options.mock else ''}")
    if probed["driver"] is None and options.out:
        report.write(options.out, rows, done, probed, options.mock)
    scaled = scale(options) if options.scale else 0
    return 1 if scaled or count["failed"] or (options.require_gpu and count["not run"]) else 0


def scale(options):
    """The bench suite `scale`, with the interpreter and the load generator that are here."""
    out = [f"--out={options.out}"] if options.out else []
    print("\nnpm run bench -- scale:", flush=True)
    return subprocess.run([place.node(), os.path.join(place.ROOT, "bench/run.mjs"), "scale", "--setup=false", *out], cwd=place.ROOT, check=False).returncode


def main():
    words = argparse.ArgumentParser(description="The rows of test/gpu on this machine.")
    words.add_argument("--require-gpu", action="store_true", help="a row that is not run is an error")
    words.add_argument("--only", action="append", default=[], metavar="ROW", help="this row alone; may be given several times")
    words.add_argument("--out", metavar="DIR", help="where results are written, as JSON and as a page, if there is a GPU")
    words.add_argument("--provider-directory", metavar="DIR", help=f"where {place.PROVIDER} lies")
    words.add_argument("--jobs", type=int, default=1, metavar="N", help="run N rows at a time, but for those that measure")
    words.add_argument("--logs", metavar="DIR", help="where the logs of the rows' servers stay")
    words.add_argument("--mock", action="store_true", help="a stand-in of the driver in the place of a GPU, to try the rows themselves")
    words.add_argument("--scale", action="store_true", help="afterwards the bench suite scale: servers of 1 to 8 reactors")
    words.add_argument("--list", action="store_true", help="print which rows have code, and end")
    words.add_argument("--row", help=argparse.SUPPRESS)
    options = words.parse_args()
    if options.mock and options.require_gpu:
        words.error("--mock is no GPU")
    place.prepare(options.mock)
    if options.list:
        import rows

        print("\n".join(sorted(rows.load())))
        return 0
    if options.logs:
        os.makedirs(options.logs, exist_ok=True)
    if options.row:
        return run_here(options.row, options)
    if not options.mock:
        return run_all(options)
    directory = mocked()
    try:
        return run_all(options)
    finally:
        import shutil

        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
