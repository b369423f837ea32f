"""What metrics need of a run, collected by RecBole, for metrics that need counts of the training data too."""

import torch
from recbole.evaluator import Collector


class CountingCollector(Collector):
    """RecBole's collector, which moves everything to the CPU as if it were a tensor.

    ItemCoverage, GiniIndex, AveragePopularity and TailPercentage need counts, which are none.
    """

    def get_data_struct(self):
        held = self.data_struct._data_dict
        counts = {key: held.pop(key) for key, value in list(held.items()) if not isinstance(value, torch.Tensor)}
        collected = super().get_data_struct()
        for struct in (self.data_struct, collected):
            for key, value in counts.items():
                struct.set(key, value)
        return collected
