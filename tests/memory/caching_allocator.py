"""A small model of torch's caching allocator that writes a snapshot and knows its own statistics.

It is written from the allocator's rules with blocks as linked objects, and shares nothing with profkit's replay.
"""

from dataclasses import dataclass, field

KIB, MIB = 1 << 10, 1 << 20


@dataclass
class Block:
    segment: "Segment"
    address: int
    size: int
    requested: int = 0
    state: str = "inactive"


@dataclass
class Segment:
    address: int
    size: int
    stream: int
    small: bool
    blocks: list[Block] = field(default_factory=list)


class CachingAllocator:
    """One device. ``roundup`` and ``max_split`` are bytes as in the real settings."""

    def __init__(self, max_split=None, roundup=0, base=1 << 45):
        self.max_split, self.roundup, self.base = max_split, roundup, base
        self.segments, self.trace, self.clock = [], [], 0
        self.stats = []
        self._note()

    def totals(self):
        blocks = [b for s in self.segments for b in s.blocks]
        return {
            "allocated": sum(b.size for b in blocks if b.state == "active_allocated"),
            "active": sum(b.size for b in blocks if b.state != "inactive"),
            "reserved": sum(s.size for s in self.segments),
        }

    def _note(self):
        self.stats.append(self.totals())

    def _write(self, action, address, size, stream, stack):
        self.clock += 3
        frames = [{"filename": "train.py", "line": stack, "name": "f"}] if stack else []
        self.trace.append(
            {
                "action": action,
                "addr": address,
                "size": size,
                "stream": stream,
                "time_us": self.clock,
                "frames": frames,
            }
        )
        self._note()

    def _round(self, size):
        if self.roundup > 1 and size > 512 * self.roundup:
            power = 1 << (size.bit_length() - 1)
            step = power // self.roundup
            return size if size == power else -(-size // step) * step
        return max(512, -(-size // 512) * 512)

    def alloc(self, request, stream=0, stack=1):
        size = self._round(request)
        small = size <= MIB
        found = None
        for segment in self.segments:
            if segment.stream != stream or segment.small != small:
                continue
            for block in segment.blocks:
                if block.state != "inactive" or block.size < size:
                    continue
                if self.max_split and size < self.max_split <= block.size:
                    continue
                if self.max_split and size >= self.max_split and block.size >= size + 20 * MIB:
                    continue
                if found is None or (block.size, block.address) < (found.size, found.address):
                    found = block
        found = found or self._cuda_malloc(size, stream, small, stack)
        rest = found.size - size
        if rest >= 512 if small else (rest > MIB and not (self.max_split and size >= self.max_split)):
            at = found.segment.blocks.index(found)
            found.segment.blocks.insert(at + 1, Block(found.segment, found.address + size, rest))
            found.size = size
        found.state, found.requested = "active_allocated", request
        self._write("alloc", found.address, request, stream, stack)
        return found

    def _cuda_malloc(self, size, stream, small, stack):
        length = 2 * MIB if small else 20 * MIB if size < 10 * MIB else -(-size // (2 * MIB)) * 2 * MIB
        address = self.base
        for segment in sorted(self.segments, key=lambda s: s.address):
            if segment.address - address >= length:
                break
            address = segment.address + segment.size
        segment = Segment(address, length, stream, small)
        segment.blocks.append(Block(segment, address, length))
        self.segments.append(segment)
        self._write("segment_alloc", address, length, stream, stack)
        return segment.blocks[0]

    def request_free(self, block, stack=1):
        block.state = "active_pending_free"
        self._write("free_requested", block.address, block.requested, block.segment.stream, stack)

    def finish(self, block, stack=1):
        """The other streams are done: the block is free, and one with its free neighbours."""
        blocks, address = block.segment.blocks, block.address
        block.state = "inactive"
        at = blocks.index(block)
        near = [blocks[i] for i in (at - 1, at + 1) if 0 <= i < len(blocks) and blocks[i].state == "inactive"]
        for other in near:
            block.address, block.size = min(block.address, other.address), block.size + other.size
            blocks.remove(other)
        self._write("free_completed", address, block.requested, block.segment.stream, stack)

    def free(self, block, stack=1):
        self.request_free(block, stack)
        self.finish(block, stack)

    def empty_cache(self):
        for segment in [s for s in self.segments if len(s.blocks) == 1 and s.blocks[0].state == "inactive"]:
            self.segments.remove(segment)
            self._write("segment_free", segment.address, segment.size, segment.stream, 1)

    def snapshot(self, keep=None, skip=()):
        """What ``_snapshot()`` would return, with the newest ``keep`` entries and without the ``skip`` actions."""
        trace = self.trace if keep is None else self.trace[len(self.trace) - keep :]
        divisions = {str(1 << i): self.roundup for i in range(16)}
        return {
            "segments": [
                {
                    "device": 0,
                    "address": s.address,
                    "total_size": s.size,
                    "stream": s.stream,
                    "segment_type": "small" if s.small else "large",
                    "segment_pool_id": (0, 0),
                    "is_expandable": False,
                    "blocks": [
                        {
                            "address": b.address,
                            "size": b.size,
                            "requested_size": b.requested,
                            "state": b.state,
                            "frames": [],
                        }
                        for b in s.blocks
                    ],
                }
                for s in self.segments
            ],
            "device_traces": [[e for e in trace if e["action"] not in skip]],
            "allocator_settings": {
                "max_split_size": self.max_split or -1,
                "roundup_power2_divisions": divisions,
            },
        }
