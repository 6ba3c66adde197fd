"""Sums of many small numbers: why products in 16 bits add up in fp32.

    python examples/accumulation.py

What it teaches: 0.01 is no number of any binary format, so 1000 of them are not 10 even where every sum is exact; a sum
in fp16 loses every addend's last bits once it is far larger than the addend; in bf16, with 8 bits of mantissa, it
stops growing. A sum in fp32 of fp16 numbers keeps the error of the numbers and adds none.
"""

from __future__ import annotations

import torch

TIMES = 1000
CASES = (
    (torch.float32, torch.float32),
    (torch.float16, torch.float32),
    (torch.float16, torch.float16),
    (torch.bfloat16, torch.float32),
    (torch.bfloat16, torch.bfloat16),
)
"""The type of the numbers, and that of their sum."""


def accumulate(value: float, times: int, numbers: torch.dtype, into: torch.dtype) -> float:
    """Add a number to a sum again and again, each sum rounded to the sum's type."""
    total, addend = torch.tensor(0.0, dtype=into), torch.tensor(value, dtype=numbers)
    for _ in range(times):
        total += addend.to(into)
    return total.item()


def exact(value: float, times: int, numbers: torch.dtype) -> float:
    """The same sum without any rounding: only the number itself is that of its type."""
    return torch.tensor(value, dtype=numbers).double().item() * times


def main() -> None:
    print(f"{TIMES} times 0.01, one after the other")
    print(f"{'numbers':>10} {'sum in':>10} {'sum':>10} {'of the numbers':>15} {'lost':>9}")
    for numbers, into in CASES:
        total, without_rounding = accumulate(0.01, TIMES, numbers, into), exact(0.01, TIMES, numbers)
        names = [str(each).removeprefix("torch.") for each in (numbers, into)]
        lost = f"{abs(1 - total / without_rounding):.2%}"
        print(f"{names[0]:>10} {names[1]:>10} {total:10.4f} {without_rounding:15.4f} {lost:>9}")
    print(
        "\nIn bf16 the sum stands still at 4: the next number is 0.03125 away, and 0.01 is less than half of that.\n"
        "Tensor Cores multiply 16-bit numbers and add in fp32: the second and fourth line. profkit calls that type by\n"
        "its inputs: `bf16` on `Tensor Cores` in the table `Precision`."
    )


if __name__ == "__main__":
    main()
