"""Where keys and values live, and which places are free.

Two pools of the same storage: context pages hold each prompt once, shared by all beams of its request; beam slots hold
what each row generated. KV is never moved: rows inherit by copying slot numbers, and a beam slot is free as soon as
no live row names it. That is one set difference over the pool after each step: there are no reference counts to get
wrong, and a request that ends for any reason gives back its slots by no longer being there.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from recall_service.engine.models.config import DecoderConfig
from recall_service.engine.transfer import to_device


class KvTarget(NamedTuple):
    """Where the keys and values of a batch of rows go, in one layer.

    keys, values: [places, kv_heads, head_dim], the whole layer of a storage. places: int64 [n], one for each row.
    """

    keys: Tensor
    values: Tensor
    places: Tensor

    def store(self, keys: Tensor, values: Tensor) -> None:
        """Write keys and values [n, kv_heads, head_dim]."""
        self.keys.index_copy_(0, self.places, keys)
        self.values.index_copy_(0, self.places, values)


class KvStorage:
    """Keys and values per layer and place: [layers, places, kv_heads, head_dim] each."""

    def __init__(self, config: DecoderConfig, num_places: int, dtype: torch.dtype, device: torch.device) -> None:
        shape = (config.num_layers, num_places, config.num_kv_heads, config.head_dim)
        self.keys = torch.empty(shape, dtype=dtype, device=device)
        self.values = torch.empty(shape, dtype=dtype, device=device)

    def target(self, layer: int, places: Tensor) -> KvTarget:
        """One layer as the target of rows that go to places int64 [n]."""
        return KvTarget(self.keys[layer], self.values[layer], places)

    def read(self, layer: int, places: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values [*places.shape, kv_heads, head_dim] of places int64 of any shape."""
        return self.keys[layer][places], self.values[layer][places]

    def read_by_head(self, layer: int, places: Tensor) -> tuple[Tensor, Tensor]:
        """The same as [kv_heads, *places.shape, head_dim], contiguous: what a matrix product per head wants.

        Selected first and transposed then: to select from a transposed view, index_select copies the whole pool.
        """
        keys, values = (
            kv[layer].index_select(0, places.flatten()).transpose(0, 1).contiguous().unflatten(1, places.shape)
            for kv in (self.keys, self.values)
        )
        return keys, values


def page_bytes(config: DecoderConfig, page_len: int, dtype: torch.dtype) -> int:
    """Bytes that one page of `page_len` tokens takes in a KvStorage."""
    return 2 * config.num_layers * config.num_kv_heads * config.head_dim * dtype.itemsize * page_len


class ContextPages:
    """Pages of prompt KV, and which of them are free. Who uses the others is the business of whoever takes them."""

    def __init__(self, config: DecoderConfig, num_pages: int, page_len: int, dtype: torch.dtype, device: torch.device):
        self.storage = KvStorage(config, num_pages * page_len, dtype, device)
        self.page_len, self.num_pages = page_len, num_pages
        self._free = list(range(num_pages - 1, -1, -1))  # a stack: the lowest page is taken first

    @property
    def num_free(self) -> int:
        """Pages that hold nothing."""
        return len(self._free)

    def pages_for(self, num_tokens: int) -> int:
        """How many pages a prompt of that many tokens takes."""
        return -(-num_tokens // self.page_len)

    def allocate(self, num_tokens: int) -> list[int]:
        """Take the pages for a prompt; the caller gives them back with `release`. Asks for no more than are free."""
        count = self.pages_for(num_tokens)
        assert count <= self.num_free, "admission lets in only what fits"
        return [self._free.pop() for _ in range(count)]

    def release(self, pages: list[int]) -> None:
        """Give pages back."""
        assert not set(pages) & set(self._free), "a page is given back once"
        self._free.extend(reversed(pages))

    def places(self, pages: list[int], num_tokens: int) -> Tensor:
        """Storage places int64 [num_tokens] of a prompt's tokens, in order."""
        device = self.storage.keys.device
        first = to_device(pages, device, torch.int64) * self.page_len
        return (first[:, None] + torch.arange(self.page_len, device=device)).flatten()[:num_tokens]


class BeamSlots:
    """One slot per generated token that a live row descends from, and one more, `scratch`, that is nobody's.

    What a row that does not exist would keep goes to scratch.
    """

    def __init__(self, config: DecoderConfig, num_slots: int, dtype: torch.dtype, device: torch.device) -> None:
        self.storage = KvStorage(config, num_slots + 1, dtype, device)
        self.scratch = num_slots
        self._checks_callers = device.type == "cpu"  # on a GPU the host would have to wait for what it checks
        self._used = torch.zeros(num_slots, dtype=torch.bool, device=device)

    @property
    def num_slots(self) -> int:
        """All slots, used and free."""
        return len(self._used)

    @property
    def num_used(self) -> int:
        """Slots that a live row names, or that were just allocated for one."""
        return int(self._used.sum())

    def allocate(self, count: int) -> Tensor:
        """The `count` lowest free slots, int64. Asks for no more than are free: admission sees to that.

        The k-th free slot is the first with k free ones up to it. Found so, no count has to come to the host.
        """
        assert not self._checks_callers or count <= self.num_slots - self.num_used, "admission lets in only what fits"
        num_free_up_to = (~self._used).cumsum(0)
        free = torch.searchsorted(num_free_up_to, torch.arange(1, count + 1, device=self._used.device))
        self._used.index_fill_(0, free, value=True)
        return free

    def keep_only(self, named: Tensor) -> None:
        """Free every slot but those named (int64, any shape, repeats welcome): used before minus kept."""
        kept = torch.zeros_like(self._used)
        kept.index_fill_(0, named.flatten(), value=True)
        is_wrong = kept & ~self._used
        assert not (self._checks_callers and bool(is_wrong.any())), "a live row names a slot that was never allocated"
        self._used = kept
