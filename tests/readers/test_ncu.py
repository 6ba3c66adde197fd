"""What ``ncu --csv --page raw`` prints, in the ways in which people save it."""

import gzip
from collections import Counter

import numpy as np
import pytest

from profkit.errors import ReadError
from profkit.readers import read
from profkit.readers.ncu.table import CounterTable
from tests.shared import DATA, SHARED, needs_shared

MIXED = DATA / "ncu" / "mixed.csv.gz"


def lines():
    return gzip.decompress(MIXED.read_bytes()).decode().splitlines(keepends=True)


def saved(tmp_path, text):
    path = tmp_path / "counters.txt"
    path.write_text("".join(text))
    return path


def counters(trace):
    return {name: getattr(trace.counters, name) for name in ("duration_ns", "dram_bytes", "tensor_share")}


def test_kernels_stand_in_order_with_their_counters_in_base_units():
    trace = read(MIXED)

    assert trace.source.format == "ncu"
    assert len(trace.operations) == len(trace.counters) == 167
    assert trace.devices[0].name == "NVIDIA H100 80GB HBM3"
    assert trace.devices[0].sm_count == 132
    assert trace.operations.end_ns[0] == trace.operations.start_ns[1]
    assert trace.counters.duration_ns[:3].tolist() == [2752, 3424, 6176]
    assert trace.counters.dram_bytes[:3].tolist() == [8192.0, 1577984.0, 8393728.0]
    assert trace.counters.tensor_share[3] == pytest.approx(0.45, abs=0.001)


def test_without_the_row_of_units_the_numbers_are_the_same(tmp_path):
    text = lines()
    units = next(at for at, line in enumerate(text) if line.startswith('"","'))

    bare = read(saved(tmp_path, text[:units] + text[units + 1 :]))

    for name, column in counters(read(MIXED)).items():
        assert np.array_equal(getattr(bare.counters, name), column, equal_nan=True)


def test_units_other_than_base_units_are_converted(tmp_path):
    text = (
        '"ID","Process ID","Kernel Name","Block Size","Grid Size","Device","CC","gpu__time_duration.sum","dram__bytes.sum"\n'
        '"","","","","","","","us","Mbyte"\n'
        '"0","7","k","(32, 1, 1)","(4, 2, 1)","0","9.0","1.5","2,048.25"\n'
    )

    trace = read(saved(tmp_path, text))

    assert trace.counters.duration_ns.tolist() == [1500]
    assert trace.counters.dram_bytes.tolist() == [2_048_250_000.0]
    assert [trace.operations.grid_x[0], trace.operations.grid_y[0], trace.operations.block_x[0]] == [4, 2, 32]


def test_reads_and_writes_add_up_where_their_sum_was_not_collected(tmp_path):
    text = (
        '"ID","Process ID","Kernel Name","Block Size","Grid Size","Device","CC","dram__bytes_read.sum","dram__bytes_write.sum"\n'
        '"0","7","k","(32, 1, 1)","(4, 2, 1)","0","9.0","100","20"\n'
    )

    assert read(saved(tmp_path, text)).counters.dram_bytes.tolist() == [120.0]


def test_messages_and_the_programs_own_lines_among_the_rows_are_passed_over(tmp_path):
    text = lines()
    text[60:60] = [
        '==PROF== Profiling "add": 0%....50%....100% - 9 passes\n',
        "loss 3.14\n",
        "==ERROR== no luck\n",
    ]

    trace = read(saved(tmp_path, text))

    assert len(trace.operations) == 167
    assert [f.code for f in trace.findings] == ["ncu-errors"]


@pytest.mark.parametrize("cut", [0.3, 0.77])
def test_a_table_that_was_cut_short_gives_what_is_whole_and_says_so(tmp_path, cut):
    text = "".join(lines())
    path = saved(tmp_path, text[: int(len(text) * cut)])

    trace = read(path)

    assert 0 < len(trace.operations) < 167
    assert [f.code for f in trace.findings] == ["truncated"]
    assert trace.dropped == {"incomplete_rows": 1}


def test_another_page_is_refused_with_what_to_do(tmp_path):
    path = saved(
        tmp_path, '"ID","Process ID","Kernel Name","Metric Name","Metric Value"\n"0","1","k","x","1"\n'
    )

    with pytest.raises(ReadError, match="--page raw"):
        read(path)


@pytest.mark.parametrize(
    "text",
    [
        "==PROF== Connected to process 1\n==ERROR== The user does not have permission to access counters\n",
        '==PROF== Connected\n"ID","Process ID"\n',
    ],
)
def test_without_a_table_it_says_what_ncu_said(tmp_path, text):
    with pytest.raises(ReadError, match="ncu --csv --page raw"):
        read(saved(tmp_path, text))


def test_no_profiled_kernel_is_one_line(tmp_path):
    header = next(line for line in lines() if line.startswith('"ID"'))

    with pytest.raises(ReadError, match="profiled no kernel"):
        read(saved(tmp_path, header))


def test_an_ordinary_table_is_not_taken_for_counters(tmp_path):
    with pytest.raises(ReadError, match="plain text"):
        read(saved(tmp_path, "kernel,grid,block\nadd,(1,1,1),(1,1,1)\n"))


def test_hostile_cells_cost_nothing(tmp_path):
    header = '"ID","Process ID","Kernel Name","Block Size","Grid Size","Device","CC","dram__bytes.sum"\n'
    rows = [
        '"0","x","' + "k" * 200_000 + '","(9,,)","(1, 1, 1)","0","9","1"\n',
        '"1","1","k","(32, 1, 1)","(99999999999999, 1, 1)","0","9.0","1e999"\n',
        '"2","1","k","(32, 1, 1)","(1, 1, 1)","-5","","nan"\n',
    ]

    trace = read(saved(tmp_path, header + "".join(rows)))

    assert len(trace.operations) == 2
    assert np.isnan(trace.counters.dram_bytes).all()


def test_a_device_in_each_row_reads_no_column_again(tmp_path, monkeypatch):
    read_columns, text = [], CounterTable.text
    monkeypatch.setattr(
        CounterTable, "text", lambda self, column: read_columns.append(column) or text(self, column)
    )
    header = '"ID","Process ID","Kernel Name","Block Size","Grid Size","Device","CC","dram__bytes.sum"\n'
    rows = [f'"{n}","1","k","(32, 1, 1)","(1, 1, 1)","{n}","9.0","1"\n' for n in range(3000)]

    with pytest.raises(ReadError, match="3000 devices"):
        read(saved(tmp_path, header + "".join(rows)))

    assert max(Counter(read_columns).values()) < 10


@needs_shared
def test_a_raw_export_of_a_public_models_step():
    trace = read(SHARED / "recordings" / "ncu_raw" / "llama2.csv")

    assert len(trace.operations) == 293
    assert [f.code for f in trace.findings] == ["ncu-errors"]
    assert trace.counters.dram_bytes[0] == 16_536_064
