"""docs/advice.md says the constants that the code uses: whoever changes one changes the other."""

from pathlib import Path

import pytest

from profkit.simulation import copies, fusion, layouts, optimizers, predict, recorder_cost, replay
from profkit.simulation.constants import LIKELY, SCENARIOS

PAGE = " ".join((Path(__file__).parents[2] / "docs" / "advice.md").read_text().split())


def percent(share):
    return f"{round(share * 100)} %"


@pytest.mark.parametrize(
    "text",
    [
        f"`{LIKELY.start_ns / 1000:g} µs + max(FLOP / ({LIKELY.matrix:.2f} x peak), "
        f"bytes / ({LIKELY.memory:.2f} x bandwidth))`",
        f"cost {LIKELY.light_launch:g} of a usual one, entering a graph {LIKELY.compiled_entry:g} times the root",
        f"one launch; kernels follow each other after {LIKELY.node_ns / 1000:g} µs",
        f"({LIKELY.compiled_entry * fusion._FORWARD**0.5:g} without any)",
        f"{LIKELY.misaligned:g} of the peak on Tensor Cores where columns or depth are no multiple of 4",
        f"FLOP at {LIKELY.attention:g} of the 16-bit peak",
        f"a call takes the host {layouts._FUSED_LAUNCHES:g} usual launches",
        f"the host's time at {SCENARIOS[1].host:g} and at {SCENARIOS[0].host:g} times",
        f"beyond the {recorder_cost._LAUNCH_US:g} µs that it takes without",
        f"{percent(recorder_cost._OF_EVENTS)} of what the host took for an event",
        f"{percent(recorder_cost._OF_LAUNCH)} of the first",
        f"at least {LIKELY.normed:g} of its time",
        f"{LIKELY.idle:g} of what the device stood idle after them",
        f"{percent(predict._DEVICE_ERROR - 1)} for the replay itself where the device is the limit",
        f"else {percent(predict._HOST_ERROR - 1)}",
        f"{percent(predict._GUESSED)} of the gain (its logarithm) for `compile`",
        f"At most {replay.QUEUE_DEPTH} launches queue",
        f"fetching takes {copies._FETCH_NS / 1e6:g} ms",
        f"{copies._PINNED_BYTES_PER_S / 1e9:g} GB/s, on a stream of its own",
        f"{optimizers._FUSED_BYTES['adam']:g} bytes a parameter for Adam",
        f"{optimizers._FUSED_BYTES['sgd']:g} for SGD with momentum, in one pass",
        f"{optimizers._FOREACH_KERNELS:g} kernels for each that a fused optimizer launches",
        f"{optimizers._HOST['adam']['single'][1]:g} usual launches for each parameter by itself (Adam)",
        "{:g} + {:g} over lists".format(*optimizers._HOST["adam"]["foreach"]),
        "{:g} + {:g} fused".format(*optimizers._HOST["adam"]["fused"]),
    ],
)
def test_the_page_says_the_constants_of_the_code(text):
    assert text in PAGE
