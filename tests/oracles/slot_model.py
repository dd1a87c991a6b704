"""O4: which beam slots are in use, by reference counts: one for each row that descends from what a slot holds."""

from collections import Counter

Rows = list[tuple[int, ...]]


class SlotModel:
    """Rows are tuples of the slots they descend from. A slot is free when its count is zero."""

    def __init__(self, num_slots: int) -> None:
        self.num_slots = num_slots
        self.counts: Counter[int] = Counter()
        self.rows: Rows = []

    @property
    def used(self) -> set[int]:
        """Slots with a reference."""
        return {slot for slot, count in self.counts.items() if count > 0}

    def begin(self, num_rows: int) -> None:
        """Rows join that own nothing yet."""
        self.rows += [()] * num_rows

    def extend(self) -> list[int]:
        """Give each row the lowest free slot, in order; return these."""
        free = [slot for slot in range(self.num_slots) if slot not in self.used][: len(self.rows)]
        assert len(free) == len(self.rows)
        self.rows = [(*row, slot) for row, slot in zip(self.rows, free, strict=True)]
        self.counts.update(free)
        return free

    def descend(self, parents: list[int]) -> None:
        """Replace the rows by copies of those named: count the new ones up, then the old ones down."""
        children = [self.rows[parent] for parent in parents]
        for row in children:
            self.counts.update(row)
        for row in self.rows:
            self.counts.subtract(row)
        assert min(self.counts.values(), default=0) >= 0
        self.rows = children
