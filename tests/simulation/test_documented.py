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
        f"`{LIKELY.matrix_start_ns / 1000:g} µs + max(FLOP / ({LIKELY.matrix:.2f} x peak), "
        f"bytes / ({LIKELY.memory:.2f} x bandwidth))`",
        f"pointwise kernels take {LIKELY.half:g} of their time",
        f"to {percent(LIKELY.kept)} in forward",
        f"cost {LIKELY.compiled_launch:g} of a usual one, entering a graph {LIKELY.compiled_entry:g},",
        f"one launch; kernels follow each other after {LIKELY.node_ns / 1000:g} µs",
        f"no waits, and {percent(1 - LIKELY.asked)} less of what asking",
        f"in training besides {LIKELY.compiled_gradient:g} times the root",
        f"Beside convolutions {percent(LIKELY.convolved)} of what",
        f"FLOP at {LIKELY.attention:g} of the 16-bit peak",
        f"a call takes the host {LIKELY.attention_call:g} usual launches",
        f"the host's time at {SCENARIOS[1].host:g} and at {SCENARIOS[0].host:g} times",
        f"beyond the {recorder_cost._LAUNCH_US:g} µs that it takes without",
        f"{percent(recorder_cost._OF_EVENTS)} of what the host took for an event",
        f"{percent(recorder_cost._OF_LAUNCH)} of the first",
        f"at least {LIKELY.normed:g} of its time",
        f"{LIKELY.idle:g} of what the device stood idle after them",
        f"{fusion._INSTRUCTIONS['transcendental']:g} instructions an element",
        f"{fusion._INSTRUCTIONS['random']:g} for a random number",
        f"a batch every (time of fetching x {LIKELY.worker:g} / N)",
        f"{percent(predict._DEVICE_ERROR - 1)} for the replay itself where the device is the limit",
        f"else {percent(predict._HOST_ERROR - 1)}",
        f"{percent(predict._FUSED)} of the gain (its logarithm) for `compile`",
        f"its backward {layouts._BACKWARD_LAUNCHES:g}",
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
