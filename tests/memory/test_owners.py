"""Whose memory it is, by its stack."""

import pytest

from profkit.memory.owners import Mark, Owners
from profkit.readers.snapshot import history_of

MODULE = ("/opt/v/lib/python3.11/site-packages/torch/nn/modules/module.py", 1790, "_call_impl")
USER = ("/home/someone/project/model.py", 40, "forward")


def owners(*stack):
    frames = [{"filename": file, "line": line, "name": name} for file, line, name in stack]
    entry = {"action": "alloc", "addr": 1, "size": 1, "stream": 0, "frames": frames}
    return Owners(history_of({"segments": [], "device_traces": [[entry]]}, "x"))


@pytest.mark.parametrize(
    "inner",
    [
        MODULE,
        ("site-packages/torch/nn/functional.py", 1, "gelu"),
        ("C:\\Users\\x\\Lib\\site-packages\\einops\\einops.py", 5, "rearrange"),
        ("/usr/lib/python3.11/contextlib.py", 81, "inner"),
        ("/home/someone/pytorch/torch/nn/functional.py", 3, "linear"),
        ("/usr/lib/python3.11/runpy.py", 3, "run"),
        ("C:\\Users\\x\\anaconda3\\Lib\\contextlib.py", 81, "inner"),
        ("C:\\Programs\\Python\\Python311\\Lib\\asyncio\\base.py", 81, "run"),
        ("<frozen runpy>", 88, "_run_code"),
        ("<string>", 3, "generated"),
        ("<eval_with_key>.17", 3, "forward"),
        ("/tmp/torchinductor_someone/ab/whatever.py", 700, "call"),
        ("crhiossaoglpuvti342nxooh2plinej272kkprzczs3iwara52va.py", 700, "call"),
        ("??", 0, "PyMethod_New"),
        ("", 0, "at::empty"),
        ("RegisterCUDA_0.cpp", 0, "at::wrapper"),
        ("/build/aten/Memory.cu", 12, "f"),
    ],
)
def test_the_owner_is_the_first_frame_of_the_users_own_code(inner):
    assert owners(inner, USER, ("main.py", 3, "main")).where(0) == "model.py:40 forward"


@pytest.mark.parametrize(
    ("file", "shown"),
    [
        ("D:\\work\\someone\\train.py", "train.py:3 f"),
        ("/home/someone/torch_models/net.py", "net.py:3 f"),
        ("/home/someone/my_site-packages_test.py", "my_site-packages_test.py:3 f"),
        ("torchlike/model.py", "model.py:3 f"),
        ("/tmp/ipykernel_99/1234.py", "1234.py:3 f"),
        ("train/workloads.py", "workloads.py:3 f"),
    ],
)
def test_own_code_is_recognised_and_shown_without_its_folder(file, shown):
    assert owners(MODULE, (file, 3, "f"), ("outer.py", 9, "g")).where(0) == shown


def test_native_backward_threads_are_named_by_their_autograd_node():
    stack = [
        ("??", 0, "at::_ops::mm::call(at::Tensor const&)"),
        ("", 0, "torch::autograd::generated::AddmmBackward0::apply(std::vector<at::Tensor>&&)"),
        ("", 0, "torch::autograd::Node::operator()(std::vector<at::Tensor>&&)"),
        ("??", 0, "torch::autograd::Engine::thread_main(std::shared_ptr<GraphTask> const&)"),
    ]
    found = owners(*stack)

    assert found.where(0) == "autograd AddmmBackward0"
    assert found.marks[0] == Mark.BACKWARD
    assert owners(stack[0]).where(0) == "aten::mm"


def test_library_code_without_a_user_is_named_by_its_place_in_the_package():
    assert owners(MODULE).where(0) == "torch/nn/modules/module.py:1790 _call_impl"


def test_no_stack_has_no_owner_and_no_marks():
    found = owners(USER)
    assert found.where(-1) is None
    assert found.marks[-1] == 0
    assert found.path(-1) == []


@pytest.mark.parametrize(
    ("frame", "mark"),
    [
        (MODULE, Mark.MODULE_CALL),
        (("site-packages/torch/optim/adam.py", 7, "step"), Mark.OPTIMIZER),
        (("site-packages/torch/autograd/graph.py", 7, "_engine_run_backward"), Mark.BACKWARD),
        (("site-packages/torch/_tensor.py", 7, "backward"), Mark.BACKWARD),
        (("site-packages/torch/_tensor.py", 7, "detach"), Mark(0)),
        (("site-packages/torch/nn/modules/module.py", 900, "_apply"), Mark.INITIALISER),
        (("site-packages/torch/nn/modules/linear.py", 108, "__init__"), Mark.INITIALISER),
        (("site-packages/torch/nn/init.py", 108, "kaiming_uniform_"), Mark.INITIALISER),
        (("my/optim/adam.py", 1, "step"), Mark(0)),
        (("??", 0, "at::cuda::getCUDABlasLtWorkspace()"), Mark.WORKSPACE),
        (("??", 0, "at::cuda::blas::getNewWorkspace()"), Mark.WORKSPACE),
    ],
)
def test_stacks_are_marked_by_what_they_pass_through(frame, mark):
    assert owners(frame, USER).marks[0] == mark


def test_paths_are_outermost_first_and_end_in_the_operator():
    found = owners(("??", 0, "at::_ops::mm::call()"), MODULE, USER, ("main.py", 3, "main"))
    assert found.path(0) == [
        "main.py:3 main",
        "model.py:40 forward",
        "torch/nn/modules/module.py:1790 _call_impl",
        "aten::mm",
    ]
