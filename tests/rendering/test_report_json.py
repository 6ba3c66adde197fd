import copy
import json
import math

import jsonschema
import numpy as np
import pytest

from profkit.rendering.report_json import render_json, report_schema
from tests.rendering.sample_reports import SAMPLES, compute_bound
from tests.rendering.samples import as_result


@pytest.mark.parametrize("name", SAMPLES)
def test_every_sample_is_what_the_schema_says(name):
    report = json.loads(render_json(as_result(SAMPLES[name]())))
    jsonschema.Draft202012Validator(report_schema()).validate(report)


def test_the_schema_is_one_itself():
    jsonschema.Draft202012Validator.check_schema(report_schema())


def broken(report, path, value):
    *parents, last = path
    target = report
    for key in parents:
        target = target[key]
    if value is KeyError:
        del target[last]
    else:
        target[last] = value


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["schema"], "profkit.report/2"),
        (["verdict", "bound"], "cpu"),
        (["verdict", "shares", "transfer"], KeyError),
        (["verdict", "confidence"], None),
        (["window", "device_ns"], 1.5),
        (["window", "steps", 0, "kept"], "yes"),
        (["kernels", 0, "total_ns"], None),
        (["kernels", 0, "phases"], [["forward", 1]]),
        (["kernels", 0, "bound"], "slow"),
        (["kernels", 0, "share"], 1.2),
        (["phases", 0, "path"], KeyError),
        (["idle", "by_cause", "tail"], KeyError),
        (["idle", "total_ns"], -1),
        (["health", "findings"], None),
        (["inputs", 0, "format"], "chrome"),
        (["memory", "complete"], None),
        (["memory", "at_peak", 0, "bytes"], None),
        (["advice", 0, "speedup"], {"low": 1.0}),
        (["totals", "kernel_count"], "7"),
        (["operators", 0, "host_self_ns"], KeyError),
    ],
)
def test_the_schema_refuses_a_report_that_breaks_the_contract(path, value):
    report = json.loads(render_json(as_result(compute_bound())))
    changed = copy.deepcopy(report)
    broken(changed, path, value)
    assert jsonschema.Draft202012Validator(report_schema()).is_valid(report)
    assert not jsonschema.Draft202012Validator(report_schema()).is_valid(changed)


def test_unknown_names_are_allowed_since_the_contract_may_grow():
    report = json.loads(render_json(as_result(compute_bound())))
    report["kernels"][0]["occupancy"] = 0.5
    report["weather"] = "fine"
    jsonschema.Draft202012Validator(report_schema()).validate(report)


def test_numpy_and_what_is_not_finite_become_strict_json():
    result = as_result(compute_bound())
    result.kernels[0] |= {
        "efficiency": math.nan,
        "flop": np.int64(7),
        "gbs": np.float32(0.5),
        "tflops": math.inf,
    }
    result.window["steps"][0]["kept"] = np.bool_(True)
    result.method["times"] = np.arange(3)

    def refuse(constant):
        raise AssertionError(constant)

    report = json.loads(render_json(result), parse_constant=refuse)
    kernel = report["kernels"][0]
    assert (kernel["efficiency"], kernel["flop"], kernel["gbs"], kernel["tflops"]) == (None, 7, 0.5, None)
    assert report["window"]["steps"][0]["kept"] is True
    assert report["method"]["times"] == [0, 1, 2]


def test_the_same_result_gives_the_same_bytes_in_whatever_order_its_maps_were_filled():
    first, second = as_result(compute_bound()), as_result(compute_bound())
    for row in second.kernels:
        row["phases"] = dict(reversed(row["phases"].items()))
    assert render_json(first) == render_json(second)
    assert render_json(first).encode("utf-8")


def test_a_lone_surrogate_does_not_make_a_file_that_nobody_can_read():
    json.loads(render_json(as_result(SAMPLES["hostile"]())).encode("utf-8"))


def test_an_object_that_is_no_plain_value_is_a_bug_that_shows():
    result = as_result(compute_bound())
    result.method["object"] = object()
    with pytest.raises(TypeError, match="plain values, not object"):
        render_json(result)
