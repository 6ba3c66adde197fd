"""DataParallel against DistributedDataParallel, on all GPUs of one host.

What it teaches: DataParallel copies the model in every step and launches everything from one Python process;
DistributedDataParallel has a process for each GPU and reduces gradients while backward still runs.

    python examples/before_after/data_parallel.py                                   # DataParallel
    torchrun --nproc-per-node=2 examples/before_after/data_parallel.py              # DistributedDataParallel
"""

import os

import torch
import torch.nn.functional as F
from steps import BF16, GPT, adamw, needs_gpus, timed, training

BATCH_OF_ONE_GPU = 8
STEPS = 20


def main():
    rank = int(os.environ.get("LOCAL_RANK", 0))
    distributed = "LOCAL_RANK" in os.environ
    needs_gpus(int(os.environ.get("LOCAL_WORLD_SIZE", 1)) if distributed else 2)
    device = torch.device("cuda", rank)
    torch.cuda.set_device(device)
    torch.manual_seed(0)
    model = GPT(768, 4, 12, 8192, naive=False, checkpointed=False).to(device)
    batch = BATCH_OF_ONE_GPU
    if distributed:
        torch.distributed.init_process_group("nccl", device_id=device)
        model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[rank])
    else:
        model = torch.nn.DataParallel(model)
        batch *= torch.cuda.device_count()
    ids = torch.randint(0, 8192, (batch, 513), device=device)

    def loss_of():
        with torch.autocast("cuda", dtype=BF16):
            return F.cross_entropy(model(ids[:, :-1]).flatten(0, 1).float(), ids[:, 1:].flatten())

    milliseconds, _ = timed(training(loss_of, adamw(model.parameters(), fused=True)), steps=STEPS)
    if rank == 0:
        kind = "DistributedDataParallel" if distributed else "DataParallel"
        print(f"{kind}: {milliseconds:.2f} ms a step, {BATCH_OF_ONE_GPU} sequences on each GPU")
    if distributed:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
