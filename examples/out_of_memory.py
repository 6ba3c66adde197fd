"""An out-of-memory: what filled the GPU, and in which phase.

What it teaches: with ``memory=True`` the snapshot of the moment is kept (``memory_oom.pickle``), and the
program's own exception comes out as it would without a recording. Without a GPU there is nothing to run out of.

    python examples/out_of_memory.py
    profkit analyze runs/out_of_memory
"""

import sys

import torch

import profkit


def main(folder="runs/out_of_memory"):
    if not torch.cuda.is_available():
        print("no GPU: nothing to run out of")
        return
    torch.cuda.set_per_process_memory_fraction(0.02)  # as on a small GPU, so that nobody else is disturbed
    kept = []
    with profkit.record(folder, wait=0, warmup=0, steps=1000, memory=True) as recorder:
        while True:
            with profkit.phase("forward"):
                kept.append(torch.ones(64 << 20, device="cuda"))  # 256 MiB that no one frees
            recorder.step()


if __name__ == "__main__":
    main(*sys.argv[1:])
