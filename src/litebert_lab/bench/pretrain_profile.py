"""Where the time of our own pretraining step goes: its kernels (on a CPU its operators), by what they are for."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch.profiler import ProfilerActivity, profile

from litebert.nn.network import pretraining_network
from litebert.planning.devices import product_rate
from litebert.pretraining.objective import batch_flops
from litebert_lab.bench.ours import OurPretraining
from litebert_lab.bench.pretrain import CLIP, Setting, time_steps
from litebert_lab.bench.theirs import Step

# The first kind with one of its words in a kernel's name has it.
KINDS = (
    ("gelu", ("gelu",)),
    ("loss", ("softmax", "nll", "argmax", "exp_")),
    ("norms", ("layer_norm",)),
    ("attention", ("attend", "attention", "flash", "fmha", "_forward", "_backward_keys", "_backward_queries", "_row_")),
    ("products", ("gemm", "nvjet", "cutlass", "cublas", "xmma", "splitk", "::mm", "addmm", "bmm")),
    ("optimiser", ("multi_tensor", "adam", "foreach")),
    ("sums", ("fused_sum", "reduce_kernel", "::sum")),
    ("copies", ("memcpy", "memset", "::copy_", "::cat", "direct_copy")),
)
MOST = 12  # kernels that are named

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Kernel:
    """A kernel in one step: its time alone, and how often it ran."""

    name: str
    milliseconds: float
    count: float


@dataclass(frozen=True)
class Profile:
    """A step of our own on one kind of text."""

    text: str
    tokens_per_second: float
    mfu: float
    step_milliseconds: float  # by the clock, without the profiler
    peak_bytes: int | None
    kinds: dict[str, float]  # milliseconds of kernels a step, the largest first
    kernels: tuple[Kernel, ...]  # those that take longest


def profile_pretrain(setting: Setting) -> list[Profile]:
    """Our step on every kind of text, timed and then profiled."""
    torch.manual_seed(0)
    network = pretraining_network(setting.config)
    peak = product_rate(setting.device, setting.precision)
    log.info(f"a large matrix product runs at {peak / 1e12:.3g} TFLOP/s")
    engine = OurPretraining(
        network, setting.device, setting.precision, setting.compiled, setting.optimiser, setting.length
    )
    found = []
    for text, batches in setting.texts.items():
        log.info(f"taking steps on {text} ...")
        step = engine.step_on(batches, CLIP)
        seconds, peak_bytes = time_steps(step, len(batches), setting.device)
        kernels = sorted(_kernels(step, len(batches), setting.device), key=lambda kernel: -kernel.milliseconds)
        found.append(
            Profile(
                text=text,
                tokens_per_second=sum(batch.num_tokens for batch in batches) / seconds,
                mfu=sum(batch_flops(setting.config, batch) for batch in batches) / seconds / peak,
                step_milliseconds=1e3 * seconds / len(batches),
                peak_bytes=peak_bytes,
                kinds=by_kind(kernels),
                kernels=tuple(kernels[:MOST]),
            )
        )
    return found


def by_kind(kernels: Sequence[Kernel]) -> dict[str, float]:
    """Milliseconds of each kind, the largest first."""
    found: dict[str, float] = {}
    for kernel in kernels:
        name = kernel.name.lower()
        kind = next((kind for kind, words in KINDS if any(word in name for word in words)), "other")
        found[kind] = found.get(kind, 0.0) + kernel.milliseconds
    return dict(sorted(found.items(), key=lambda pair: -pair[1]))


def table(profiles: Sequence[Profile]) -> str:
    """What a person reads."""
    return "\n\n".join("\n".join(_lines(each)) for each in profiles)


def _lines(found: Profile) -> Iterator[str]:
    memory = f", {found.peak_bytes / 2**30:.1f} GiB" if found.peak_bytes else ""
    total = sum(found.kinds.values())
    yield (
        f"{found.text}: {found.tokens_per_second:,.0f} tokens/s, {found.mfu:.1%} of peak, "
        f"{found.step_milliseconds:.1f} ms a step{memory}"
    )
    yield f"{total:.1f} ms of it computing (measured apart, which slows a CPU down):"
    for kind, milliseconds in found.kinds.items():
        yield f"  {kind:<12}{milliseconds:>9.2f} ms {milliseconds / total:>6.1%}"
    yield "what takes longest, and how often a step has it:"
    for kernel in found.kernels:
        yield f"  {kernel.milliseconds:>9.2f} ms  x{kernel.count:<5.0f} {kernel.name[:56]}"


def _kernels(step: Step, count: int, device: torch.device) -> Iterator[Kernel]:
    """Each kernel's own time a step."""
    on_cuda = device.type == "cuda"
    with profile(activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_cuda else [])]) as recorded:
        for index in range(count):
            step(index, False)
        if on_cuda:
            torch.cuda.synchronize()
    for event in recorded.key_averages():
        own = event.self_device_time_total if on_cuda else event.self_cpu_time_total
        if own > 0 and (not on_cuda or "CUDA" in str(event.device_type)) and "Optimizer" not in event.key:
            yield Kernel(event.key, own / 1e3 / count, event.count / count)
