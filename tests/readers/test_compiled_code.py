"""Lines of compiled kernels from Inductor's debug folder, as three versions of PyTorch write it."""

import json

import pytest

from profkit.api.run_folder import compiled_lines
from profkit.model import RangeKind
from profkit.readers.compiled_code import DEBUG_FOLDER, lines_of_kernels
from profkit.report.assembly import summarise
from profkit.report.views import Options
from tests.builders import TraceBuilder

GRAPH = """class GraphModule(torch.nn.Module):
    def forward(self, primals_1: "f32[64]", primals_3: "f32[4, 64]"):
        # File: /home/someone/model.py:9 in forward, code: y = self.norm(x)
        var_mean = torch.ops.aten.var_mean.correction(primals_3, [1], correction = 0, keepdim = True)
        getitem: "f32[4, 1]" = var_mean[0]
        mul_1: "f32[4, 64]" = torch.ops.aten.mul.Tensor(mul, primals_1);  mul = primals_1 = None

        # File: /home/someone/model.py:10 in forward, code: return x + torch.nn.functional.gelu(y)
        erf: "f32[4, 128]" = torch.ops.aten.erf.default(mul_3);  mul_3 = None
        return (erf,)
"""
CODE = """
# kernel path: /tmp/torchinductor_someone/ab/cabc.py
# Topologically Sorted Source Nodes: [y, gelu], Original ATen: [aten.native_layer_norm, aten.gelu]
# Source node to ATen node mapping:
#   gelu => erf
#   y => getitem, mul_1, var_mean
# Graph fragment:
#   %erf : [num_users=1] = call_function[target=torch.ops.aten.erf.default](args = (%mul_3,), kwargs = {})
triton_per_fused_gelu_native_layer_norm_0 = async_compile.triton('triton_per_fused_gelu_native_layer_norm_0', '''
import triton
''', device_str='cuda')


# kernel path: /tmp/torchinductor_someone/de/cdef.py
# Topologically Sorted Source Nodes: [unknown], Original ATen: []
# Source node to ATen node mapping:
#   unknown => gone
triton_poi_fused_1 = async_compile.triton('triton_poi_fused_1', '''
''', device_str='cuda')
"""
NORM, GELU = "/home/someone/model.py(9): forward", "/home/someone/model.py(10): forward"
FUSED = "triton_per_fused_gelu_native_layer_norm_0"


@pytest.fixture
def folder(tmp_path):
    graph = tmp_path / DEBUG_FOLDER / "run_1" / "torchinductor" / "model__0_forward_1.0"
    graph.mkdir(parents=True)
    (graph / "output_code.py").write_text(CODE)
    (graph / "fx_graph_readable.py").write_text(GRAPH)
    return graph


def test_a_kernel_comes_from_the_lines_of_the_nodes_that_it_was_fused_from(folder):
    assert lines_of_kernels(folder.parents[2]) == {FUSED: (GELU, NORM)}


def test_newer_versions_map_kernels_by_name_and_handle(folder):
    kernels = {"triton_poi_fused_2:7": ["erf"], "extern_kernels.addmm:8": ["nothing"], "bad": 3}
    mapping = folder / "inductor_provenance_tracking_node_mappings.json"
    mapping.write_text(json.dumps({"cppCodeToPost": kernels}))

    assert lines_of_kernels(folder)["triton_poi_fused_2"] == (GELU,)


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"[" * 100_000, b'{"cppCodeToPost": [1]}', b""])
def test_damaged_files_tell_nothing(folder, content):
    (folder / "inductor_provenance_tracking_node_mappings.json").write_bytes(content)
    assert lines_of_kernels(folder) == {FUSED: (GELU, NORM)}

    (folder / "fx_graph_readable.py").write_bytes(content)
    assert lines_of_kernels(folder) == {}


def test_a_folder_beside_the_recording_gives_its_kernels_lines(folder, tmp_path):
    made = TraceBuilder().range(0, 100, "/home/x/train.py(3): step", kind=RangeKind.PYTHON)
    made.kernel(200, 300, name=FUSED, launch=(30, 40)).kernel(400, 500, name="other", launch=(50, 60))
    told = compiled_lines([str(tmp_path / "trace.json")])
    rows = {row.name: row for row in summarise([made.trace()], Options(compiled_lines=told)).kernels}

    # Where the compiled code was called says less than what it was compiled from.
    assert rows[FUSED].source_lines == {"model.py:10 forward": 1, "model.py:9 forward": 1}
    assert rows["other"].source_lines == {"train.py:3 step": 1}
    assert compiled_lines(["-", "s3://bucket/trace.json", str(folder / "trace.json")]) == {}
