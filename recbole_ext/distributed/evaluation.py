"""Evaluation by several processes: each ranks for some of the users, and all merge what was collected for each user.

The batches are those of a single process. Their results are put in the order of the data before any metric is computed,
so that metrics have the same digits for any number of processes.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from recbole_ext.distributed import processes
from recbole_ext.utils.batch_samplers import batches_of


@dataclass
class OwnBatches:
    """The batches of an evaluation that this process computes: every n-th one of n processes.

    A process for which there is none computes the first one, whose results do not count.

    Attributes:
        all_rows: a sampler, which yields the rows of each batch of all processes.
        rows: scored rows of each batch that has been computed.
    """

    all_rows: Any
    rows: list[int] = field(default_factory=list)

    @property
    def numbers(self) -> range:
        """The numbers of the batches."""
        return range(processes.rank(), len(self.all_rows), processes.size())

    def __len__(self) -> int:
        return max(len(self.numbers), 1)

    def __iter__(self) -> Iterator[list[int]]:
        numbers = self.numbers or (0,)
        return (rows for number, rows in enumerate(self.all_rows) if number in numbers)

    def merge(self, collected: Any) -> None:
        """Replace the rows of this process, in data that RecBole's collector has collected, by those of all."""
        counts = processes.gathered(torch.tensor(self.rows if self.numbers else [], dtype=torch.int64), patient=True)
        names = sorted(name for name, values in collected._data_dict.items() if isinstance(values, Tensor))
        for name in names:
            parts = processes.gathered(collected.get(name), patient=True)
            batches: dict[int, Tensor] = {}
            for number, (part, rows) in enumerate(zip(parts, counts, strict=True)):
                pieces = part[: int(rows.sum())].split(rows.tolist())
                batches |= {number + place * len(parts): piece for place, piece in enumerate(pieces)}
            collected.set(name, torch.cat([batches[number] for number in sorted(batches)]))


class SharedEvaluation:
    """A mixin, before all others, for the trainer of one of several processes.

    Attributes:
        own_batches (OwnBatches | None): during an evaluation.
    """

    eval_collector: Any
    own_batches: OwnBatches | None = None
    _seen_items: Any

    def evaluate(self, eval_data, *args, **kwargs):
        """The metrics of all users; see `CheckedTrainer.evaluate`."""
        if not eval_data:
            return super().evaluate(eval_data, *args, **kwargs)
        own = self.own_batches = OwnBatches(eval_data.batch_sampler)
        self.eval_collector.merge = own.merge
        try:
            with batches_of(eval_data, own):
                result = super().evaluate(eval_data, *args, **kwargs)
        finally:
            self.own_batches = self.eval_collector.merge = None
        values = processes.of_first(torch.tensor(list(result.values()), dtype=torch.float64))
        return type(result)(zip(result, values.tolist(), strict=True))

    def _full_sort_batch_eval(self, batched_data):
        own = self.own_batches
        if self._seen_items is not None and own is not None and own.numbers:
            self._seen_items.next_row = own.numbers[len(own.rows)] * own.all_rows.batch_size
        evaluated = super()._full_sort_batch_eval(batched_data)
        if self._seen_items is not None and own is not None and not own.numbers:
            self._seen_items.repeated_targets = 0
        return self._counted(evaluated)

    def _neg_sample_batch_eval(self, batched_data):
        return self._counted(super()._neg_sample_batch_eval(batched_data))

    def _counted(self, evaluated: tuple) -> tuple:
        if self.own_batches is not None:
            scores = evaluated[1]  # a tensor, or the best items and their scores
            self.own_batches.rows.append(len(getattr(scores, "scores", scores)))
        return evaluated
