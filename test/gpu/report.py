"""What a run found, as a line for the terminal, as JSON and as a page, with the conditions it was found under."""
import importlib.metadata
import json
import os
import platform
import subprocess
import time

import place

PACKAGES = ("numpy", "tritonclient", "cuda-bindings", "onnxruntime-gpu", "nvidia-cuda-runtime", "nvidia-cublas", "nvidia-cudnn-cu13", "nvidia-cufft", "nvidia-curand", "nvidia-cuda-nvrtc")
SMI = "name,driver_version,vbios_version,clocks.sm,clocks.mem,clocks.max.sm,power.limit,temperature.gpu,compute_mode,mig.mode.current"


def target_of(row):
    target = row.get("target")
    if target is None:
        return ""
    unit = "" if target["unit"] == "×" else f" {target['unit']}"
    return f"at most {target['most']}{unit}" if "most" in target else f"at least {target['least']}{unit}"


def figure_of(row, found):
    if found["figure"] is None:
        return ""
    unit = (row.get("target") or {}).get("unit", "")
    return f"{found['figure']:.4g}{'' if unit == '×' else f' {unit}'}"


def line(row, found, mock):
    """`passed   shm-http  …`, `failed …: why`, `not run  …: why`."""
    figure = figure_of(row, found)
    words = "; ".join(text for text in (f"{figure}, {target_of(row)}" if figure and row.get("target") else figure, found["note"]) if text)
    state = f"{found['state']} (mock)" if mock and found["state"] != "not run" else found["state"]
    return f"{state:<{16 if mock else 8}} {row['id']}{f': {words}' if words else ''}"


def ask(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=True, cwd=place.ROOT).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def version(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def conditions(probed):
    about = os.path.join(place.ROOT, "bundle.json")
    bundle = json.load(open(about, encoding="utf-8")) if os.path.exists(about) else {}
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        cpu = next((text.split(":")[1].strip() for text in file if text.startswith("model name")), "unknown")
    smi = ask("nvidia-smi", f"--query-gpu={SMI}", "--format=csv,noheader")
    return {
        "commit": bundle.get("commit") or ask("git", "rev-parse", "--short=9", "HEAD"),
        "modified": bundle.get("modified", (ask("git", "status", "--porcelain", "--untracked-files=no", "crates", "src", "test/gpu", "bench") or "") != ""),
        "bundle": bundle or None,
        "devices": probed["devices"],
        "cuda": probed["version"],
        "nvidia-smi": None if smi is None else [dict(zip(SMI.split(","), (cell.strip() for cell in row.split(",")))) for row in smi.splitlines()],
        "cpu": cpu,
        "cpus": os.cpu_count(),
        "load": os.getloadavg(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "node": ask(place.node(), "--version") if place.node() else None,
        "packages": {name: version(name) for name in PACKAGES},
    }


def write(directory, rows, done, probed, mock):
    """`<date>-<device>` as JSON and as a page; of a stand-in, `mock`, which nothing takes for a result."""
    under = conditions(probed)
    device = probed["devices"][0]["name"].lower().replace("nvidia", "").strip().replace(" ", "-")
    name = "mock" if mock else f"{time.strftime('%Y-%m-%d')}-{device}"
    os.makedirs(directory, exist_ok=True)
    result = {"schema": 1, "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "mock": mock, "conditions": under, "probe": probed, "rows": done}
    with open(os.path.join(directory, f"{name}.json"), "w", encoding="utf-8") as out:
        out.write(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    with open(os.path.join(directory, f"{name}.md"), "w", encoding="utf-8") as out:
        out.write(page(result, {row["id"]: row for row in rows}))
    print(f"written to {os.path.join(directory, name)}.json and .md")


def page(result, rows):
    under = result["conditions"]
    devices = ", ".join(d["name"] for d in under["devices"])
    about = f"{result['date'][:10]}; {devices}, CUDA {under['cuda']}; {under['cpus']} × {under['cpu']}, Linux {under['kernel']}; Python {under['python']}, Node {under['node']}; commit {under['commit']}{' with changes' if under['modified'] else ''}."
    packages = ", ".join(f"{name} {found}" for name, found in under["packages"].items() if found)
    probed = "; ".join(f"{name}: {result['probe'][name] or 'works'}" for name in ("ipc", "host-register", "nvml"))
    lines = [f"# {'A stand-in, no GPU: t' if result['mock'] else 'T'}he rows of `npm run test:gpu` on {devices}", "", about, "", f"Packages: {packages}. Probe: {probed}.", "", "| row | what it shows | | figure | target | note |", "|---|---|---|---|---|---|"]
    for one in result["rows"]:
        row = rows[one["id"]]
        note = one["note"].replace("|", "\\|").replace("\n", " ")
        lines.append(f"| {row['id']} | {row['shows']} | {one['state']} | {figure_of(row, one)} | {target_of(row)} | {note} |")
    return "\n".join(lines) + "\n"
