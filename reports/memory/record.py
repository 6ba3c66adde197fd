"""Record small memory snapshots whose truth is known, on a GPU: `python record.py OUT_FOLDER`.

Each case runs in a process of its own with its own allocator settings, resets the peaks when its history
begins, and writes ``NAME.pickle.gz`` beside what ``torch.cuda.memory_stats`` said (``truth.json``). Paths are cut
to ``train/record.py`` and ``site-packages/...``.
"""

import gc
import gzip
import json
import os
import pickle
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

MIB = 1 << 20
CASES = {}
STATS = {
    "peak_allocated": "allocated_bytes.all.peak",
    "peak_active": "active_bytes.all.peak",
    "peak_requested": "requested_bytes.all.peak",
    "peak_reserved": "reserved_bytes.all.peak",
    "allocated": "allocated_bytes.all.current",
    "active": "active_bytes.all.current",
    "reserved": "reserved_bytes.all.current",
    "inactive_split": "inactive_split_bytes.all.current",
    "ooms": "num_ooms",
}


def case(conf="", **history):
    def register(body):
        CASES[body.__name__] = (body, conf, history)
        return body

    return register


def phase(name):
    return torch.profiler.record_function("profkit::" + name)


def device(*shape, dtype=torch.uint8):
    return torch.empty(shape, dtype=dtype, device="cuda")


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(b, t, 3, 4, d // 4).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(a.transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.ln2(x))))


class GPT(nn.Module):
    def __init__(self, d=256, layers=3, vocab=3000):
        super().__init__()
        self.emb = nn.Embedding(vocab, d)
        self.blocks = nn.ModuleList(Block(d) for _ in range(layers))
        self.head = nn.Linear(d, vocab, bias=False)

    def forward(self, ids):
        x = self.emb(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def gpt_step(model, optimizer, ids):
    with phase("forward"):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            logits = model(ids[:, :-1])
        with phase("loss"):
            loss = F.cross_entropy(logits.reshape(-1, logits.size(-1)).float(), ids[:, 1:].reshape(-1))
    with phase("backward"):
        loss.backward()
    with phase("optimizer"):
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return loss.detach()


def gpt_parts(batch=8):
    torch.manual_seed(0)
    model = GPT().cuda()
    return model, torch.optim.AdamW(model.parameters()), torch.randint(0, 3000, (batch, 129), device="cuda")


def train(steps, parts=None, each=None):
    model, optimizer, ids = parts or gpt_parts()
    for step in range(steps):
        with torch.profiler.record_function(f"ProfilerStep#{step}"):
            loss = gpt_step(model, optimizer, ids)
            if each:
                each(loss)
    return model, optimizer, loss


@case(global_record_annotations=True)
def gpt(dump):
    kept = train(3)
    torch.cuda.synchronize()
    dump()
    return kept


@case(stacks="all")
def gpt_cpp_frames(dump):
    kept = train(1)
    dump()
    return kept


@case("expandable_segments:True")
def expandable(dump):
    kept = train(2)
    big = [device(70 * MIB) for _ in range(3)]
    del big[1]
    torch.cuda.empty_cache()
    small = [device(random.randrange(1, 3 * MIB)) for _ in range(100)]
    del small[::3]
    dump()
    return kept


@case()
def streams(dump):
    side, other = torch.cuda.Stream(), torch.cuda.Stream()
    kept = []
    for round_ in range(4):
        with torch.cuda.stream(side):
            a = torch.randn(3 * MIB + round_, device="cuda")
        b = torch.randn(5 * MIB, device="cuda")
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            torch.cuda._sleep(1_000_000)
            kept.append((a * 2).sum())
            b.record_stream(side)
        del b
        with torch.cuda.stream(other):
            a.record_stream(other)
            kept.append(torch.zeros(random.randrange(1, 2 * MIB), device="cuda"))
        del a
    late = device(33 * MIB)
    with torch.cuda.stream(side):
        torch.cuda._sleep(4_000_000_000)
    late.record_stream(side)
    del late
    dump()
    torch.cuda.synchronize()


@case()
def graph_pools(dump):
    model = nn.Sequential(*[m for _ in range(6) for m in (nn.Linear(512, 512), nn.ReLU())]).cuda()
    x = torch.randn(1024, 512, device="cuda")
    warm = torch.cuda.Stream()
    warm.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(warm):
        model(x).sum().backward()
    torch.cuda.current_stream().wait_stream(warm)
    model.zero_grad(set_to_none=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = model(x).square().mean()
        out.backward()
    for _ in range(3):
        graph.replay()
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        held = [device(7 * MIB + i) for i in range(5)]
        del held[1]
        held.append(device(6 * MIB))
    torch.cuda.synchronize()
    dump()
    return graph, out, held, pool


@case("roundup_power2_divisions:[256:1,512:2,>:4],max_split_size_mb:64")
def rounding(dump):
    random.seed(1)
    held = {}
    for i in range(400):
        held[i] = device(int(2 ** random.uniform(4, 28)))
        for key in random.sample(sorted(held), k=min(len(held), random.choice((0, 1, 2)))):
            del held[key]
    dump()


@case()
def churn(dump):
    """Sizes that leave rests between 512 bytes and 1 MiB, and segments that are given back."""
    random.seed(2)
    held = {}
    for i in range(600):
        held[i] = device(random.choice((5, 7, 9, 12, 19)) * MIB + random.randrange(-MIB, MIB))
        while len(held) > 25:
            del held[random.choice(sorted(held))]
        if i % 150 == 149:
            torch.cuda.empty_cache()
    dump()


@case()
def leak_steps(dump):
    history = []
    kept = train(8, each=lambda loss: history.append(loss.expand(300_000).contiguous()))
    dump()
    return kept, history


@case(start_late=True)
def late(dump):
    random.seed(3)
    held = {i: device(random.choice((3, 5, 11, 23)) * MIB + random.randrange(MIB)) for i in range(60)}
    for key in random.sample(sorted(held), 20):
        del held[key]
    kept = train(1)
    dump.start()
    for i in range(100, 200):
        del held[random.choice(sorted(held))]
        held[i] = device(random.choice((3, 5, 11, 23)) * MIB + random.randrange(MIB))
    dump()
    return kept


@case(max_entries=400)
def ring_buffer(dump):
    kept = train(2)
    dump()
    return kept


@case()
def fragmentation_oom(dump):
    torch.cuda.set_per_process_memory_fraction(1200 * MIB / torch.cuda.get_device_properties(0).total_memory)
    activations = [device(8 * MIB) for _ in range(100)]
    del activations[::2]
    with phase("forward"):
        try:
            logits = [device(48 * MIB) for _ in range(8)]
            return logits
        except torch.OutOfMemoryError:
            dump()


@case()
def oom_observer(dump):
    torch.cuda.set_per_process_memory_fraction(2000 * MIB / torch.cuda.get_device_properties(0).total_memory)
    torch._C._cuda_attach_out_of_memory_observer(lambda *_: dump())
    cache = []
    try:
        for _ in range(100):
            with phase("forward"):
                cache.append(torch.randn(50 * MIB // 4, device="cuda"))
                device(20 * MIB)
    except torch.OutOfMemoryError:
        pass


@case(context="alloc", skip_actions=["free_requested", "segment_alloc"])
def skipped(dump):
    kept = train(1)
    dump()
    return kept


@case(alone=True)
def oom(dump):
    hold = []
    try:
        while True:
            hold.append(device(8 << 30))
    except torch.OutOfMemoryError:
        dump()


class Dump:
    def __init__(self, path, history):
        self.path, self.history, self.done = path, history, False

    def start(self):
        torch.cuda.reset_peak_memory_stats()
        try:
            torch.cuda.memory._record_memory_history(**self.history)
        except TypeError:
            for new in ("skip_actions", "global_record_annotations"):
                self.history.pop(new, None)
            torch.cuda.memory._record_memory_history(**self.history)

    def __call__(self):
        if self.done:
            return
        self.done = True
        snapshot, stats = torch.cuda.memory._snapshot(), torch.cuda.memory_stats()
        truth = {key: stats.get(name) for key, name in STATS.items()}
        truth["history"] = {k: v for k, v in self.history.items() if k != "max_entries"}
        scrub(snapshot)
        with gzip.open(f"{self.path}.pickle.gz", "wb", 9) as file:
            file.write(pickle.dumps(snapshot, protocol=4))
        Path(f"{self.path}.json").write_text(json.dumps(truth))


def scrub(snapshot):
    entries = [e for trace in snapshot["device_traces"] for e in trace]
    entries += [b for s in snapshot["segments"] for b in s["blocks"]] + list(snapshot["segments"])
    frames = {id(f): f for e in entries for f in e.get("frames") or ()}
    for frame in frames.values():
        name = frame["filename"]
        if name == __file__ or name.endswith("/record.py"):
            frame["filename"] = "train/record.py"
        elif "site-packages/" in name or "dist-packages/" in name:
            frame["filename"] = "site-packages/" + name.split("-packages/")[1]
        elif name.startswith("/"):
            frame["filename"] = Path(name).name


def run_case(name, out):
    body, _, history = CASES[name]
    history = {"max_entries": 100_000, "stacks": "python", **history}
    history.pop("alone", None)
    late_start = history.pop("start_late", False)
    torch.zeros(1, device="cuda")
    torch.cuda.synchronize()
    gc.collect()
    torch.cuda.empty_cache()
    dump = Dump(f"{out}/{name}", history)
    if not late_start:
        dump.start()
    body(dump)
    torch.cuda.synchronize()


def main():
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)

    def spawn(name):
        env = {**os.environ, "PYTORCH_CUDA_ALLOC_CONF": CASES[name][1]}
        done = subprocess.run(
            [sys.executable, __file__, str(out), name], env=env, capture_output=True, text=True, check=False
        )
        print(name, done.returncode, done.stderr[-600:] if done.returncode else "", flush=True)

    with ThreadPoolExecutor(7) as pool:
        list(pool.map(spawn, [n for n in CASES if not CASES[n][2].get("alone")]))
    for name in CASES:
        if CASES[name][2].get("alone"):
            spawn(name)
    truth = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__}
    for file in sorted(out.glob("*.json")):
        truth[file.stem] = json.loads(file.read_text())
        file.unlink()
    (out / "truth.json").write_text(json.dumps(truth, indent=1))


if __name__ == "__main__":
    run_case(sys.argv[2], sys.argv[1]) if len(sys.argv) > 2 else main()
