"""The slow, obvious trie: nested dicts from code to subtree, and the items of each SID in a dict of lists."""

from collections.abc import Sequence


class DictTrie:
    """Items and their SIDs, one after another; `ids` order as Python orders them."""

    def __init__(self, rows: Sequence[tuple[int | str, tuple[int, ...]]]) -> None:
        self.root: dict = {}
        self.items: dict[tuple[int, ...], list[int | str]] = {}
        for item_id, sid in sorted(set(rows), key=lambda row: (row[1], _sort_key(row[0]))):
            node = self.root
            for code in sid:
                node = node.setdefault(code, {})
            self.items.setdefault(sid, []).append(item_id)

    def children(self, prefix: tuple[int, ...]) -> list[int]:
        node = self.root
        for code in prefix:
            node = node[code]
        return sorted(node)

    def prefixes(self, depth: int) -> list[tuple[int, ...]]:
        return sorted({sid[:depth] for sid in self.items})

    def leaf(self, sid: tuple[int, ...]) -> int:
        sids = sorted(self.items)
        return sids.index(sid) if sid in self.items else -1


def _sort_key(item_id: int | str) -> int | bytes:
    return item_id.encode() if isinstance(item_id, str) else item_id
