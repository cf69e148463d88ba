"""The machines a plan can be made for: memory, the rate of large matrix products, memory bandwidth.

Some figures are measured, others are the vendor's; each device says which. ``auto`` is this machine, measured now.
"""

import functools
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch

from litebert.errors import InputError, nearest
from litebert.nn.attention import has_flash
from litebert.train.settings import Precision

Kind = Literal["cuda", "cpu"]
GIB = 2**30
DTYPES: Mapping[Precision, torch.dtype] = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
PRODUCT_SIZES = {"cuda": 8192, "cpu": 1024}
PRODUCT_SECONDS = {"cuda": 0.5, "cpu": 0.2}  # a share of the peak is wanted, not a third digit of it
# Of a vendor's figure, what a large product reaches: 793 of the 989 TFLOP/s that the H200's vendor states.
REACHED_SHARE = 0.8
# Of the memory, what a step may use: the rest goes to the driver, the allocator's gaps, on a CPU the system.
USABLE_SHARE: Mapping[Kind, float] = {"cuda": 0.94, "cpu": 0.9}
# One core's fp32 product, measured with `litebert plan albert-base --device auto` on a 2-core AVX-512 machine.
CORE_FLOPS = 95e9
CORE_BANDWIDTH = 17e9


@dataclass(frozen=True, kw_only=True)
class Device:
    """What a plan has to know of a machine."""

    name: str
    label: str
    kind: Kind
    memory_bytes: float
    flops: Mapping[Precision, float]  # reached by large matrix products, a second
    bandwidth: float  # bytes a second
    figures: str  # which of these are measured
    flash: bool = True  # whether a GPU is new enough for flash attention

    @property
    def usable_bytes(self) -> float:
        return self.memory_bytes * USABLE_SHARE[self.kind]

    @property
    def usual_precision(self) -> Precision:
        """What training uses there by default."""
        if self.kind == "cpu":
            return "fp32"
        return "bf16" if "bf16" in self.flops else "fp16"


VENDORS = "all are the vendor's; of the rates 80% are taken to be reached, as measured on an H200"
NAMED: dict[str, Device] = {
    device.name: device
    for device in (
        Device(
            name="h200",
            label="an H200",
            kind="cuda",
            memory_bytes=139 * GIB,
            flops={"fp32": 67e12 * REACHED_SHARE, "bf16": 793e12, "fp16": 793e12},
            bandwidth=4.8e12,
            figures="memory and the half-precision rate measured; the fp32 rate and the bandwidth are the vendor's",
        ),
        Device(
            name="a100",
            label="an A100 (80 GB)",
            kind="cuda",
            memory_bytes=79 * GIB,
            flops={"fp32": 19.5e12 * REACHED_SHARE, "bf16": 312e12 * REACHED_SHARE, "fp16": 312e12 * REACHED_SHARE},
            bandwidth=2.04e12,
            figures=VENDORS,
        ),
        Device(
            name="t4",
            label="a T4 (16 GB)",
            kind="cuda",
            memory_bytes=14.5 * GIB,
            flops={"fp32": 8.1e12 * REACHED_SHARE, "fp16": 65e12 * REACHED_SHARE},
            bandwidth=0.32e12,
            flash=False,
            figures=VENDORS,
        ),
    )
}
DEVICE_NAMES = (*NAMED, "cpu", "auto")


def find_device(name: str, precision: Precision | None) -> Device:
    """The device of a name; ``auto`` is measured in the precision that will be used."""
    if name in NAMED:
        return NAMED[name]
    if name == "cpu":
        cores = os.cpu_count() or 1
        rate = CORE_FLOPS * cores
        return Device(
            name="cpu",
            label=f"a CPU with {cores} cores",
            kind="cpu",
            memory_bytes=installed_memory(),
            flops={"fp32": rate, "bf16": rate, "fp16": rate},
            bandwidth=CORE_BANDWIDTH * cores,
            figures="this machine's memory and cores; the rates of a core were measured on another (AVX-512)",
        )
    if name in ("auto", "here"):  # "here": its older name
        return _this_machine(precision)
    raise InputError(f"there is no device '{name}'{nearest(name, DEVICE_NAMES)}")


def installed_memory() -> float:
    """Bytes of main memory."""
    return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))


@functools.lru_cache(maxsize=4)
def _this_machine(precision: Precision | None) -> Device:
    kind: Kind = "cuda" if torch.cuda.is_available() else "cpu"
    chosen: Precision = precision or ("fp32" if kind == "cpu" else "bf16")
    device = torch.device(kind)
    rate, bandwidth = product_rate(device, chosen), _copy_rate(device)
    if kind == "cuda":
        label, memory = torch.cuda.get_device_name(), float(torch.cuda.get_device_properties(0).total_memory)
    else:
        threads = torch.get_num_threads()
        label, memory = f"this CPU ({threads} thread{'' if threads == 1 else 's'})", installed_memory()
    return Device(
        name="auto",
        label=label,
        kind=kind,
        memory_bytes=memory,
        flops={chosen: rate},
        bandwidth=bandwidth,
        figures=f"all measured just now ({rate / 1e12:.3g} TFLOP/s, {bandwidth / 1e9:.0f} GB/s)",
        flash=kind == "cuda" and has_flash(),
    )


@functools.cache
def product_rate(device: torch.device, precision: Precision) -> float:
    """Operations per second of a large matrix product in this precision, measured once in a process."""
    size = PRODUCT_SIZES[device.type]
    draw = torch.Generator(device).manual_seed(0)  # a run's own random numbers stay as they are
    left, right = (torch.randn(size, size, device=device, generator=draw).to(DTYPES[precision]) for _ in range(2))
    out = torch.empty_like(left)
    seconds = _best_seconds(lambda: torch.mm(left, right, out=out), device, PRODUCT_SECONDS[device.type])
    if device.type == "cuda":
        del left, right, out
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
    return 2.0 * size**3 / seconds


def _copy_rate(device: torch.device) -> float:
    """Bytes per second read and written by a large copy, measured."""
    source = torch.zeros(1 << (28 if device.type == "cuda" else 24), device=device)
    target = torch.empty_like(source)
    return 2.0 * source.nbytes / _best_seconds(lambda: target.copy_(source), device, 0.5)


def _best_seconds(action: Callable[[], object], device: torch.device, seconds: float) -> float:
    """The time of an action, the best of as many tries (four at a time, as in a step) as the seconds allow."""
    wait: Callable[[], None] = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    best, spent = float("inf"), 0.0
    action()
    while spent < seconds:
        wait()
        begun = time.perf_counter()
        for _ in range(4):
            action()
        wait()
        passed = time.perf_counter() - begun
        best, spent = min(best, passed / 4), spent + passed
    return best
