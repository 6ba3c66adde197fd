"""Steps in which rules about waiting fire, and near misses."""

from profkit.model import RangeKind
from tests.advice.made_steps import ADD, BF16_GEMM, GEMM_SHAPES
from tests.advice.steps_of_arithmetic import ROWS, bf16_products


def loading(step, number, us=5000):
    with step.within("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"):
        step.idle(us)
    bf16_products(step, number)


def loading_hidden(step, number):
    with step.within("data"):
        step.idle(3)
    bf16_products(step, number)


def drawing(step, number, us=5000):
    with step.within("draw_pictures"):
        step.idle(us)
    bf16_products(step, number)


def drawing_little(step, number):
    drawing(step, number, us=80)


def waiting(step, number, us=900):
    for _ in range(4):
        step.launch(BF16_GEMM, us, host=40, operators=("aten::mm",), shapes=GEMM_SHAPES)
        step.wait()
        step.idle(150)


def reading(step, number, values=12, between=0):
    for _ in range(4):
        step.launch(BF16_GEMM, 900, host=40, operators=("aten::mm",), shapes=GEMM_SHAPES)
    for _ in range(values):
        for _ in range(between):
            step.launch(ADD, 3, host=40)
        step.launch(ADD, 2, host=40, operators=("aten::_local_scalar_dense", "aten::item"))
        step.wait()


def reading_what_decides(step, number):
    reading(step, number, between=6)


def waiting_of_a_slow_host(step, number):
    for _ in range(20):
        step.launch(ADD, 3, host=60, operators=("aten::mean",), shapes=[[64, 64]])
        step.wait()


def uploading(step, number, pageable=1):
    step.upload(64 << 20, 8000, pageable=pageable)
    if pageable:
        step.wait()
    bf16_products(step, number)


def uploading_pinned(step, number):
    step.upload(64 << 20, 1300, pageable=0, blocks=False)
    bf16_products(step, number)


def allocating(step, number, api="cudaFree"):
    for _ in range(4):
        step.call(api, 400)
        step.launch(ADD, 100, shapes=ROWS)


def asking(step, number):
    allocating(step, number, "cudaGetDevice")


def blocking(step, number, late=True):
    for _ in range(12):
        call = step.host + 10
        begin, end = call + 6, call + 56
        step.builder.kernel(
            begin * 1000, end * 1000, launch=(call * 1000, (end + 2 if late else call + 5) * 1000), name=ADD
        )
        step.host, step.device = (end + 4 if late else call + 20), end


def not_blocking(step, number):
    for _ in range(12):
        step.launch(ADD, 50, host=20)


def anomalous(step, number, checks=10):
    for _ in range(10):
        step.backward(BF16_GEMM, 30, shapes=GEMM_SHAPES)
    for _ in range(checks):
        step.backward(ADD, 5, operators=("aten::isnan",), host=60)
        step.backward(ADD, 3, operators=("aten::_local_scalar_dense", "aten::item"), host=60)
        step.wait(thread=1)


def checked_once(step, number):
    anomalous(step, number, checks=1)


def collecting(step, number, name="gc.collect"):
    bf16_products(step, number)
    with step.within(name):
        step.idle(4000)
    bf16_products(step, number)


def logging(step, number):
    collecting(step, number, "gcd of collected sizes")


def crumbs(step, number, copies=12):
    for _ in range(copies):
        step.upload(64, 2, host=60, blocks=False)
    step.launch(ADD, 30, shapes=ROWS)


def two_crumbs(step, number):
    crumbs(step, number, 2)


def launching(step, number, functions=("attend", "route"), us=2):
    """Launches of some functions, one after the other."""
    for index, function in enumerate(functions):
        with step.within(f"/home/me/model.py({10 + index}): {function}", kind=RangeKind.PYTHON):
            for _ in range(40):
                step.launch(ADD, us, host=60)


def launching_in_one_function(step, number):
    launching(step, number, functions=("step",))
