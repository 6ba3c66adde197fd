import copy
import json
import math

import jsonschema
import msgspec
import pytest

from profkit.errors import ReadError
from profkit.rendering.report_json import render_json
from profkit.rendering.schema import report_schema
from profkit.saved_runs.report_file import report_of
from tests.rendering.sample_reports import SAMPLES, compute_bound
from tests.rendering.samples import edited


@pytest.mark.parametrize("name", SAMPLES)
def test_every_sample_is_what_the_schema_says(name):
    report = json.loads(render_json(SAMPLES[name]()))
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
        (["schema"], "profkit.report/1"),
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
        (["inputs", 0, "format"], 5),
        (["memory", "complete"], None),
        (["memory", "at_peak", 0, "bytes"], None),
        (["advice", 0, "speedup"], {"low": 1.0}),
        (["totals", "kernel_count"], "7"),
        (["operators", 0, "host_self_ns"], KeyError),
    ],
)
def test_the_schema_refuses_a_report_that_breaks_the_contract(path, value):
    report = json.loads(render_json(compute_bound()))
    changed = copy.deepcopy(report)
    broken(changed, path, value)
    assert jsonschema.Draft202012Validator(report_schema()).is_valid(report)
    assert not jsonschema.Draft202012Validator(report_schema()).is_valid(changed)


def test_a_report_of_another_version_is_refused():
    report = json.loads(render_json(compute_bound()))
    with pytest.raises(ReadError, match=r"profkit\.report/3"):
        report_of({**report, "schema": "profkit.report/3"}, "report.json")


@pytest.mark.parametrize("name", SAMPLES)
def test_what_is_written_is_read_back_as_the_same_report(name):
    text = render_json(SAMPLES[name]())
    assert render_json(report_of(json.loads(text), "report.json")) == text


def test_unknown_names_are_allowed_since_the_contract_may_grow():
    report = json.loads(render_json(compute_bound()))
    report["kernels"][0]["occupancy"] = 0.5
    report["weather"] = "fine"
    jsonschema.Draft202012Validator(report_schema()).validate(report)


def test_what_is_not_finite_becomes_strict_json():
    first, *others = compute_bound().kernels
    odd = msgspec.structs.replace(first, efficiency=math.nan, tflops=math.inf)

    def refuse(constant):
        raise AssertionError(constant)

    report = msgspec.structs.replace(compute_bound(), kernels=[odd, *others])
    kernel = json.loads(render_json(report), parse_constant=refuse)["kernels"][0]
    assert (kernel["efficiency"], kernel["tflops"]) == (None, None)


def test_the_same_report_gives_the_same_bytes_in_whatever_order_its_maps_were_filled():
    def reverse(values):
        for row in values["kernels"]:
            row["phases"] = dict(reversed(row["phases"].items()))

    assert render_json(edited(compute_bound(), reverse)) == render_json(compute_bound())


def test_a_lone_surrogate_does_not_make_a_file_that_nobody_can_read():
    json.loads(render_json(SAMPLES["hostile"]()).encode("utf-8"))
