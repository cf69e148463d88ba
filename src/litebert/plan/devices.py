"""The machines a plan can be made for: memory, the rate of large matrix products, memory bandwidth.

Some figures are measured, others are what the vendor says; each device says which. ``here`` is measured when asked.
"""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from litebert.errors import InputError, nearest
from litebert.plan.work import Kind, Precision

GIB = 2**30
# Of a vendor's figure, what a large product reaches: 793 of the 989 TFLOP/s that the H200's vendor states.
REACHED_SHARE = 0.8
# Of the memory, what a step may use: the rest goes to the driver, the allocator's gaps, on a CPU the system.
USABLE_SHARE: Mapping[Kind, float] = {"cuda": 0.94, "cpu": 0.9}
# One core's fp32 product, measured with `litebert plan albert-base --device here` on a 2-core AVX-512 machine.
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
        """What training uses there when nothing is said."""
        if self.kind == "cpu":
            return "fp32"
        return "bf16" if "bf16" in self.flops else "fp16"


NAMED: dict[str, Device] = {
    "h200": Device(
        name="h200",
        label="an H200",
        kind="cuda",
        memory_bytes=139 * GIB,
        flops={"fp32": 67e12 * REACHED_SHARE, "bf16": 793e12, "fp16": 793e12},
        bandwidth=4.8e12,
        figures="memory and the half-precision rate measured; the fp32 rate and the bandwidth are the vendor's",
    ),
    "a100": Device(
        name="a100",
        label="an A100 (80 GB)",
        kind="cuda",
        memory_bytes=79 * GIB,
        flops={"fp32": 19.5e12 * REACHED_SHARE, "bf16": 312e12 * REACHED_SHARE, "fp16": 312e12 * REACHED_SHARE},
        bandwidth=2.04e12,
        figures="all are the vendor's; of the rates 80% are taken to be reached, as measured on an H200",
    ),
    "t4": Device(
        name="t4",
        label="a T4 (16 GB)",
        kind="cuda",
        memory_bytes=14.5 * GIB,
        flops={"fp32": 8.1e12 * REACHED_SHARE, "fp16": 65e12 * REACHED_SHARE},
        bandwidth=0.32e12,
        flash=False,
        figures="all are the vendor's; of the rates 80% are taken to be reached, as measured on an H200",
    ),
}
DEVICE_NAMES = (*NAMED, "cpu", "here")


def find_device(name: str, precision: Precision | None) -> Device:
    """The device of a name; ``here`` is measured in the precision that will be used."""
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
    if name == "here":
        return _measured_here(precision)
    raise InputError(f"there is no device '{name}'{nearest(name, DEVICE_NAMES)}")


def present_kind() -> Kind:
    """What is in this machine."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def installed_memory() -> float:
    """Bytes of main memory."""
    return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))


def _measured_here(precision: Precision | None) -> Device:
    import torch

    from litebert.nn.attention import has_flash
    from litebert.plan.product import product_rate

    kind = present_kind()
    chosen: Precision = precision or ("fp32" if kind == "cpu" else "bf16")
    rate, bandwidth = product_rate(torch.device(kind), chosen), _copy_rate(kind)
    if kind == "cuda":
        label, memory = torch.cuda.get_device_name(), float(torch.cuda.get_device_properties(0).total_memory)
    else:
        threads = torch.get_num_threads()
        label, memory = f"this CPU ({threads} thread{'' if threads == 1 else 's'})", installed_memory()
    return Device(
        name="here",
        label=label,
        kind=kind,
        memory_bytes=memory,
        flops={chosen: rate},
        bandwidth=bandwidth,
        figures=f"all measured just now ({rate / 1e12:.3g} TFLOP/s, {bandwidth / 1e9:.0f} GB/s)",
        flash=kind == "cuda" and has_flash(),
    )


def _copy_rate(kind: Kind) -> float:
    import torch

    source = torch.zeros(1 << (28 if kind == "cuda" else 24), device=kind)
    target = torch.empty_like(source)
    return 2.0 * source.nbytes / _seconds_of(lambda: target.copy_(source), kind)


def _seconds_of(action: Callable[[], object], kind: Kind, seconds: float = 0.5) -> float:
    """The mean time of an action, repeated for about half a second after a warm-up."""
    import torch

    wait: Callable[[], None] = torch.cuda.synchronize if kind == "cuda" else lambda: None
    for _ in range(3):
        action()
    wait()
    start, count = time.perf_counter(), 0
    while count < 3 or time.perf_counter() - start < seconds:
        action()
        wait()
        count += 1
    return (time.perf_counter() - start) / count
