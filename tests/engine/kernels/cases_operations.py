"""What the decoder's operations must give, in plain torch and as kernels, on any device: against the slow references.

Sums run in another order than the references', so that one value in many lands on the other side of a rounding to bf16.
Triton's interpreter, where kernels run on a CPU, truncates instead of rounding: there any value may be off by as much.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from recall_service.engine.kernels.gate import gate_reference
from recall_service.engine.kernels.operations import TritonOperations
from recall_service.engine.kernels.rms_norm import add_norm_reference, norm_reference
from recall_service.engine.kernels.turn_and_store import turn_and_store_reference
from recall_service.engine.kv_cache import KvTarget
from recall_service.engine.models.operations import Operations, TorchOperations
from recall_service.engine.models.rope import RopeScaling, rotation_table

EPS = 1e-6
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
IMPLEMENTATIONS: dict[str, Operations] = {"torch": TorchOperations(), "triton": TritonOperations()}
NORM_SHAPES = ((1, 1), (7, 7), (9, 33), (31, 64), (3, 257), (32, 48), (128, 16), (2, 2048), (1, 5120))
HEAD_SHAPES = (  # rows, query heads, KV heads, head dim
    (1, 1, 1, 2),
    (7, 4, 2, 12),
    (33, 16, 8, 16),
    (5, 14, 2, 64),
    (3, 16, 8, 128),
    (31, 7, 1, 8),
    (2, 20, 20, 32),
)
GATE_SHAPES = ((1, 1), (7, 48), (33, 127), (2, 1023), (9, 1024), (3, 1025), (129, 16))


def assert_same_rounding(operations: Operations, actual: Tensor, expected: Tensor) -> None:
    """fp32: equal to 1e-5. bf16: within a rounding or two, and all but one in a hundred are the same."""
    if expected.dtype == torch.float32:
        torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)
        return
    torch.testing.assert_close(actual, expected, atol=2**-6 * float(expected.abs().max()), rtol=2**-6)
    truncates = isinstance(operations, TritonOperations) and not expected.is_cuda
    assert truncates or int((actual != expected).sum()) <= 1 + expected.numel() // 100


def random(generator: torch.Generator, *shape: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Standard normal values, the same on every device."""
    return torch.randn(shape, generator=generator).to(device, dtype)


def norms_equal_the_reference(
    operations: Operations, dtype: torch.dtype, shape: tuple[int, int], device: torch.device
) -> None:
    make = partial(random, torch.Generator().manual_seed(shape[1]), dtype=dtype, device=device)
    states, update, weight = 3 * make(*shape), make(*shape), 1 + make(shape[1])
    states[0] = 0  # its norm is all epsilon
    given = states.clone()
    assert_same_rounding(operations, operations.norm(states, weight, EPS), norm_reference(states, weight, EPS))
    sums, normed = operations.add_norm(states, update, weight, EPS)
    expected_sums, expected_normed = add_norm_reference(states, update, weight, EPS)
    assert_same_rounding(operations, sums, expected_sums)
    assert_same_rounding(operations, normed, expected_normed)
    torch.testing.assert_close(states, given, atol=0, rtol=0)


def gates_equal_the_reference(
    operations: Operations, dtype: torch.dtype, shape: tuple[int, int], device: torch.device
) -> None:
    make = partial(random, torch.Generator().manual_seed(shape[1]), dtype=dtype, device=device)
    gate_up = 4 * make(shape[0], 2 * shape[1])
    gate_up[0, 0], gate_up[-1, shape[1] - 1] = 300.0, -300.0  # exp overflows in one of them
    assert_same_rounding(operations, operations.gate(gate_up), gate_reference(gate_up))


class Turning:
    """Heads of random rows, and a poisoned target in which every row has a place of its own."""

    def __init__(
        self, shape: tuple[int, int, int, int], dtype: torch.dtype, device: torch.device, *, with_norm: bool
    ) -> None:
        num_rows, self.num_heads, self.num_kv_heads, dim = shape
        generator = torch.Generator().manual_seed(sum(shape))
        make = partial(random, generator, dtype=dtype, device=device)
        self.heads = 2 * make(num_rows, self.num_heads + 2 * self.num_kv_heads, dim)
        self.head_norm = 1 + make(self.num_heads + self.num_kv_heads, dim) if with_norm else None
        table = rotation_table(RopeScaling("default", 100.0), dim, 64, dtype)
        positions = torch.randint(64, (num_rows,), generator=generator)
        self.cosines, self.sines = (part[positions].to(device) for part in table)
        ancestors = torch.randperm(2 * num_rows + 6, generator=generator)[: 2 * num_rows].to(device)
        self.places = ancestors.view(num_rows, 2)[:, -1]  # a column of a table, as a step of beams has them
        kept = torch.full((2, 2 * num_rows + 6, self.num_kv_heads, dim), torch.nan, dtype=dtype, device=device)
        self.target = KvTarget(kept[0], kept[1], self.places)

    def run(self, turn_and_store: Callable[..., tuple[Tensor, Tensor, Tensor]]) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values; what is kept is in `target`."""
        return turn_and_store(self.heads, self.head_norm, EPS, self.cosines, self.sines, self.num_heads, self.target)


def turned_heads_equal_the_reference(
    operations: Operations,
    dtype: torch.dtype,
    shape: tuple[int, int, int, int],
    with_norm: bool,
    device: torch.device,
) -> None:
    case, expected = (Turning(shape, dtype, device, with_norm=with_norm) for _ in range(2))
    queries, keys, values = case.run(operations.turn_and_store)
    expected_queries, expected_keys, expected_values = expected.run(turn_and_store_reference)
    assert_same_rounding(operations, queries, expected_queries)
    assert_same_rounding(operations, keys, expected_keys)
    torch.testing.assert_close(values, expected_values, atol=0, rtol=0)
    for kept, written in ((case.target.keys, keys), (case.target.values, values)):
        torch.testing.assert_close(kept[case.places], written, atol=0, rtol=0)
        assert int(kept.isfinite().sum()) == written.numel()  # the places of nobody are as they were


def kernels_turn_in_place(device: torch.device) -> None:
    case = Turning((5, 4, 2, 16), torch.float32, device, with_norm=True)
    queries, keys, values = case.run(TritonOperations().turn_and_store)
    for part, first in ((queries, 0), (keys, 4), (values, 6)):
        assert part.data_ptr() == case.heads[:, first].data_ptr()


def position_zero_turns_nothing(device: torch.device) -> None:
    case = Turning((9, 6, 2, 64), torch.bfloat16, device, with_norm=False)
    case.cosines.fill_(1)
    case.sines.fill_(0)
    given = case.heads.clone()
    torch.testing.assert_close(torch.cat(case.run(TritonOperations().turn_and_store), dim=1), given, atol=0, rtol=0)


def rows_that_share_the_scratch_place_spoil_no_other(device: torch.device) -> None:
    case = Turning((33, 4, 2, 16), torch.bfloat16, device, with_norm=True)
    padding = torch.arange(33, device=device) % 3 != 0
    case.places[padding] = case.places[1].clone()
    case.heads[padding] = torch.nan
    queries, keys, values = case.run(TritonOperations().turn_and_store)
    live = ~padding
    assert bool(queries[live].isfinite().all())
    torch.testing.assert_close(case.target.keys[case.places[live]], keys[live], atol=0, rtol=0)
    torch.testing.assert_close(case.target.values[case.places[live]], values[live], atol=0, rtol=0)
    assert int(case.target.keys.isfinite().sum()) == keys[live].numel()


def places_beyond_32_bits_are_reached(device: torch.device) -> None:
    """P22: 4 GiB of a pool that is asked for and never touched but for two rows."""
    dim, far = 64, 2**31 // 128 + 3
    case = Turning((2, 2, 1, dim), torch.bfloat16, device, with_norm=False)
    pool = torch.empty(far + 1, 2, dim, dtype=torch.bfloat16, device=device)
    case.target = KvTarget(pool[:, :1], pool[:, 1:], torch.tensor([far, 1], device=device))
    _, keys, values = case.run(TritonOperations().turn_and_store)
    for row, place in enumerate((far, 1)):
        torch.testing.assert_close(pool[place], torch.cat([keys[row], values[row]]), atol=0, rtol=0)


def a_poisoned_row_leaks_into_no_other(device: torch.device) -> None:
    """A size that fills no block: what lies behind a row is the next one, and that is NaN."""
    operations, generator = TritonOperations(), torch.Generator().manual_seed(0)
    make = partial(random, generator, dtype=torch.bfloat16, device=device)
    states, update, weight, gate_up = make(9, 33), make(9, 33), make(33), make(9, 66)
    clean = (
        operations.norm(states, weight, EPS),
        *operations.add_norm(states, update, weight, EPS),
        operations.gate(gate_up),
    )
    states[1::2], gate_up[1::2] = torch.nan, torch.nan
    poisoned = (
        operations.norm(states, weight, EPS),
        *operations.add_norm(states, update, weight, EPS),
        operations.gate(gate_up),
    )
    for before, after in zip(clean, poisoned, strict=True):
        torch.testing.assert_close(after[::2], before[::2], atol=0, rtol=0)
        assert bool(after[1::2].isnan().all())


CASES: dict[str, Callable[[torch.device], None]] = {
    "turned-in-place": kernels_turn_in_place,
    "position-zero": position_zero_turns_nothing,
    "shared-scratch-place": rows_that_share_the_scratch_place_spoil_no_other,
    "64-bit-places": places_beyond_32_bits_are_reached,
    "poisoned-rows": a_poisoned_row_leaks_into_no_other,
}
for _name, _operations in IMPLEMENTATIONS.items():
    for _dtype_name, _dtype in DTYPES.items():
        for _shape in NORM_SHAPES:
            CASES[f"norm-{_name}-{_dtype_name}-{'x'.join(map(str, _shape))}"] = partial(
                norms_equal_the_reference, _operations, _dtype, _shape
            )
        for _shape in GATE_SHAPES:
            CASES[f"gate-{_name}-{_dtype_name}-{'x'.join(map(str, _shape))}"] = partial(
                gates_equal_the_reference, _operations, _dtype, _shape
            )
        for _head_shape in HEAD_SHAPES:
            for _with_norm in (True, False):
                _id = f"{_name}-{_dtype_name}-{'x'.join(map(str, _head_shape))}{'-normed' * _with_norm}"
                CASES[f"turn-{_id}"] = partial(
                    turned_heads_equal_the_reference, _operations, _dtype, _head_shape, _with_norm
                )
