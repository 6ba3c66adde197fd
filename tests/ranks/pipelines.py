"""Pipelines of several ranks, played by hand and written as the traces that torch.profiler would export.

Every rank runs a program of steps: kernels, sends and receives. A message is over for both sides when the second one
has entered it and the transfer is done (a large one), or for the sender once it is in a buffer (a small one).
"""

import json
from dataclasses import dataclass, field

MS, US = 1_000_000, 1_000
EPOCH = 1_790_000_000_000_000_000
SEND_RECV = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
GAP = 20 * US


@dataclass
class Kernel:
    """Something that ran on a rank's GPU, on the common clock."""

    start: int
    end: int
    messages: tuple = ()
    """What it carries: (``send`` or ``recv``, the other rank)."""
    waiting: int = 0
    """How much of it passed before the other side entered."""


@dataclass
class Played:
    """What happened."""

    kernels: dict
    """By rank, in order."""
    waits: dict = field(default_factory=dict)
    """By (who, for whom): ns."""

    def waiting(self, rank):
        return sum(k.waiting for k in self.kernels[rank])


def gpipe(stages, micro_batches, forward, backward):
    """The program of every stage: all forward passes, then all backward passes.

    Args:
        stages: How many.
        micro_batches: How many.
        forward: ns of a stage, by its number.
        backward: The same of the backward pass.
    """
    programs = {}
    for s in range(stages):
        program = []
        for _ in range(micro_batches):
            program += [("recv", s - 1)] if s else []
            program += [("run", forward(s))]
            program += [("send", s + 1)] if s < stages - 1 else []
        for _ in range(micro_batches):
            program += [("recv", s + 1)] if s < stages - 1 else []
            program += [("run", backward(s))]
            program += [("send", s - 1)] if s else []
        programs[s] = program
    return programs


def play(programs, *, steps=3, transfer=200 * US, buffered=False, depth=None):
    """Run the programs, step after step; a rank goes on to its next step by itself.

    Args:
        programs: What each rank does in a step.
        steps: How many.
        transfer: Of a message, in ns.
        buffered: Whether sends are over without their receivers.
        depth: How many messages the buffer holds; a send waits until an earlier one has been taken out. None: any.
    """
    ranks = sorted(programs)
    todo = {r: [*programs[r]] * steps for r in ranks}
    free = dict.fromkeys(ranks, GAP)
    played = Played({r: [] for r in ranks})
    entered, counts, taken = {}, {}, {}
    at = dict.fromkeys(ranks, 0)
    while any(at[r] < len(todo[r]) for r in ranks):
        moved = False
        for r in ranks:
            if at[r] == len(todo[r]):
                continue
            what, value = todo[r][at[r]]
            if what == "run":
                played.kernels[r].append(Kernel(free[r], free[r] + value))
                free[r] += value + GAP
                at[r], moved = at[r] + 1, True
                continue
            pair = (
                (r, value) if what == "send" else (value, r) if what == "recv" else tuple(sorted((r, value)))
            )
            key = (what if what == "both" else "message", pair, counts.setdefault((r, what, value), 0))
            entered.setdefault(key, {})[r] = free[r]
            early = buffered and what == "send"
            if value not in entered[key] and not early:
                continue
            other = entered[key].get(value, 0)
            if early:
                earlier = counts[r, what, value] - depth if depth else -1
                other = taken.get((r, value, earlier)) if earlier >= 0 else 0
                if other is None:
                    continue
            end = max(free[r], other) + transfer
            waiting = max(other - free[r], 0)
            if what == "recv":
                taken[value, r, counts[r, what, value]] = end
            messages = (("send", value), ("recv", value)) if what == "both" else ((what, value),)
            played.kernels[r].append(Kernel(free[r], end, messages, waiting))
            if waiting:
                played.waits[r, value] = played.waits.get((r, value), 0) + waiting
            counts[r, what, value] += 1
            free[r], at[r], moved = end + GAP, at[r] + 1, True
        assert moved, "the programs wait for each other"
    return played


def write(folder, played, programs, *, told="kernel", clocks=None, world=None, epoch=EPOCH, group="0"):
    """One trace a rank.

    Args:
        folder: Where to.
        played: What happened.
        programs: The programs, whose lengths mark the steps.
        told: Where the other rank is named: ``kernel`` (one message), ``host`` (a batch), ``both``, ``title`` (an
            old torch), ``nowhere``.
        clocks: What each rank's clock shows more, in ns.
        world: The number of ranks of the job.
        epoch: The Unix time of time zero, or None.
        group: The process group.
    """
    paths = []
    for rank, kernels in played.kernels.items():
        events = list(_events(rank, kernels, len(programs[rank]), told, group))
        for event in events:
            event["ts"] += (clocks or {}).get(rank, 0) / 1000
        document = {
            "schemaVersion": 1,
            "deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}],
            "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": world or len(played.kernels)},
            **({"baseTimeNanoseconds": epoch} if epoch else {}),
            "traceEvents": events,
        }
        paths.append(folder / f"rank{rank}.json")
        paths[-1].write_text(json.dumps(document))
    return paths


def _events(rank, kernels, length, told, group):
    for number, kernel in enumerate(kernels):
        launch = kernel.start - 15 * US
        args = {"device": 0, "context": 1, "stream": 20 if kernel.messages else 7, "correlation": number + 1}
        if kernel.messages:
            yield from _asked(rank, kernel, launch, told, group)
            if told in ("kernel", "both"):
                args |= _comms(*kernel.messages[0], group)
        name = SEND_RECV if kernel.messages else "ampere_sgemm_128x64_tn"
        yield _event("kernel", name, kernel.start, kernel.end, args, pid=0, tid=args["stream"])
        yield _event("cuda_runtime", "cudaLaunchKernel", launch, launch + 5 * US, {"correlation": number + 1})
    for step in range(len(kernels) // length):
        mine = kernels[step * length : (step + 1) * length]
        begin, end = mine[0].start - 19 * US, mine[-1].start - 5 * US
        yield _event("user_annotation", f"ProfilerStep#{step}", begin, end, {})


def _asked(rank, kernel, launch, told, group):
    """What the host does around the launch of a send or receive."""
    for at, (what, peer) in enumerate(kernel.messages):
        if told in ("host", "both"):
            since = launch - 3 * US + at * US
            yield _event("cpu_op", "record_param_comms", since, since + 500, _comms(what, peer, group))
        if told == "title":
            title = f"nccl:{what} {rank}{'->' if what == 'send' else '<-'}{peer}"
            yield _event("user_annotation", title, launch - US, launch + 6 * US, {})
    if told in ("host", "both"):
        yield _event("user_annotation", "nccl:coalesced", launch - US, launch + 6 * US, {})


def _comms(what, peer, group):
    side = {"Dst Rank": peer} if what == "send" else {"Src Rank": peer}
    return {
        "Collective name": what, "In msg nelems": 1 << 20, "Out msg nelems": 1 << 20, "Group size": 4,
        "dtype": "BFloat16", "Process Group Name": group, "Process Group Description": "default_pg",
        "Rank": peer, **side,
    }  # fmt: skip


def _event(category, name, start, end, args, pid=100, tid=100):
    duration = (end - start) / 1000
    return {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, "ts": start / 1000, "dur": duration, "args": args}  # fmt: skip
