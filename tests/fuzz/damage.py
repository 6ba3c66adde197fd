"""What all mutations share: odd values, damaged texts, damaged bytes. Everything comes from one seeded source."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any


@dataclass(frozen=True)
class Made:
    """An input that was made up: its bytes, and what is known of it beforehand."""

    data: bytes
    suffix: str
    kernels_at_most: int | None = None
    """How many kernels it can hold; None where its bytes were damaged and nobody can tell."""
    beside: Made | None = None
    """Another input that is analysed together with it."""


NUMBERS: list[Any] = [
    0, -1, 1, 7, 255, 2**16, 2**31 - 1, 2**31, 2**32, 2**53 + 1, 2**62, -(2**62), 2**63 - 1, 2**63, -(2**63), 2**64,
    10**30, 0.0, -0.0, 0.1, 1.5, 1e-300, 1e300, 1e308, -1e308, float("nan"), float("inf"), float("-inf"),
]  # fmt: skip
"""Numbers at which types end."""

TEXTS: list[str] = [
    "", " ", "x", "12.5", "0x10", "1e9", "NaN", "null", "ProfilerStep#3", "ProfilerStep#-1", "ProfilerStep#" + "9" * 40,
    "step", "step 1", "forward", "a/b/c", "../../etc/passwd", "/", "aten::mm", "aten::mm, seq = 3", "x, sizes = [[1, ",
    "aten::mm, seq = 99999999999999999999, op_id = -1, sizes = [[-1, 2**9], [[]]]", "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
    "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "cudaLaunchKernel", "cudaStreamSynchronize",
    "cudaGraphLaunch", "Memcpy HtoD (Pinned -> Device)", "Memcpy PtoP (Device -> Device)", "{\"a\":", "[" * 300, "(" * 300,
    "<" * 300, "</script><script>alert(1)</script>", "<img src=x onerror=alert(1)>", "=1+1", "@SUM(A1)", "\t=1", "+1",
    "\x1b[2J\x1b]0;owned\x07", "\u202egnp.exe", "\u2028", "\ufeff", "a\x00b", "a\nb\rc", "\x1f", "%s%n{0}{x}", "`|`", "[a](b)",
    "\U0001f525", "e\u0301", "void f<" * 80, "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_x", "k" * 5000,
    "ampere_sgemm_128x64_tn", "void at::native::vectorized_elementwise_kernel<4, x, std::array<char*, 3ul> >(int, x)",
]  # fmt: skip
"""Names that mean something to a reader, a page, a terminal or a spreadsheet."""


def odd_value(random: Random) -> Any:
    """A value of any type that JSON and pickle know."""
    kind = random.random()
    if kind < 0.45:
        return random.choice(NUMBERS)
    if kind < 0.8:
        return random.choice(TEXTS)
    return random.choice(
        [None, True, False, [], {}, [[]], [1, "x", None], {"a": 1}, [2**70] * 3, {"": {"": {}}}]
    )


def damaged(data: bytes, random: Random) -> bytes:
    """The bytes with a few flips, cuts, insertions, repeats or a lost end."""
    made = bytearray(data)
    for _ in range(random.randint(1, 12)):
        if not made:
            break
        place = random.randrange(len(made))
        length = random.choice([1, 1, 2, 8, 100, 4096])
        match random.randrange(7):
            case 0:
                made[place] ^= 1 << random.randrange(8)
            case 1:
                made[place] = random.randrange(256)
            case 2:
                del made[place : place + length]
            case 3:
                made[place:place] = random.randbytes(length)
            case 4:
                made[place:place] = made[place : place + length]
            case 5:
                made[place : place + length] = bytes([random.choice([0, 0xFF, 0x22, 0x5C])]) * min(
                    length, len(made) - place
                )
            case _:
                if random.random() < 0.15:
                    del made[place:]
    return bytes(made)
