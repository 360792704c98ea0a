# SPDX-License-Identifier: Apache-2.0
"""What the machine is, for every row: date, driver, clocks, versions. Reads only; sets nothing."""

import datetime
import os
import subprocess

CSV_FIELDS = "name,driver_version,clocks.sm,clocks.mem,clocks.max.sm,power.draw,power.limit,temperature.gpu,memory.used"


def ask_smi(fields=CSV_FIELDS):
    """The first GPU's answers to `nvidia-smi --query-gpu`, by field; empty where there is none."""
    try:
        out = subprocess.run(["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits", "-i", "0"],
                             capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return {}
    return dict(zip(fields.split(","), (cell.strip() for cell in out.strip().split(","))))


class Machine:
    """The columns that all rows share. `sm_clock` is read after each measurement (NVML, else empty)."""

    def __init__(self, torch, script):
        self._script = os.path.basename(script)
        smi = ask_smi()
        cuda = torch.cuda.is_available()
        self._device = torch.cuda.get_device_name(0) if cuda else "CPU"
        self._driver = smi.get("driver_version", "")
        self._library = f"torch {torch.__version__}" + (f" cuda {torch.version.cuda}" if cuda else "")
        self._nvml = _open_nvml() if cuda else None

    def columns(self):
        now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        return {"date": now, "script": self._script, "device": self._device, "driver": self._driver,
                "library": self._library, "sm_mhz": self._clock()}

    def _clock(self):
        if self._nvml is None:
            return None
        nvml, handle = self._nvml
        try:
            return nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)
        except nvml.NVMLError:
            return None


def _open_nvml():
    try:
        import pynvml
        pynvml.nvmlInit()
        return pynvml, pynvml.nvmlDeviceGetHandleByIndex(0)
    except Exception:  # absent, or without rights: the column stays empty
        return None


def describe(torch):
    """All that a reader of the figures may want to know."""
    facts = {"smi": ask_smi(), "torch": torch.__version__, "cuda": torch.version.cuda, "host_cores": os.cpu_count()}
    for key, read in (("cudnn", torch.backends.cudnn.version),
                      ("nccl", lambda: ".".join(map(str, torch.cuda.nccl.version()))),
                      ("triton", lambda: __import__("triton").__version__)):
        try:
            facts[key] = read()
        except Exception as error:  # absent here
            facts[key] = f"unknown: {error}"
    if torch.cuda.is_available():
        gpu = torch.cuda.get_device_properties(0)
        facts["gpu"] = {name: getattr(gpu, name, None) for name in (
            "name", "major", "minor", "total_memory", "multi_processor_count", "L2_cache_size",
            "shared_memory_per_block_optin", "regs_per_multiprocessor")}
    return facts


def main(words=None):
    import argparse
    import json
    parser = argparse.ArgumentParser(description="Writes machine.json: what this machine is.")
    parser.add_argument("--out", default=".", help="folder for machine.json")
    args = parser.parse_args(words)
    try:
        import torch
        facts = describe(torch)
    except ImportError:
        facts = {"smi": ask_smi(), "torch": None}
    facts["date"] = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    os.makedirs(args.out, exist_ok=True)
    with open(os.path.join(args.out, "machine.json"), "w", encoding="utf-8") as file:
        json.dump(facts, file, indent=1)
        file.write("\n")
    print(json.dumps(facts.get("gpu", facts)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
