"""What metrics need of a run, collected by RecBole, for metrics that need counts of the training data or users too."""

import torch
from recbole.evaluator import Collector

from recbole_ext.gauc import measures_labels


class CountingCollector(Collector):
    """RecBole's collector, which moves everything to the CPU as if it were a tensor.

    ItemCoverage, GiniIndex, AveragePopularity and TailPercentage need counts, which are none. GAUC of labels needs the
    users too.
    """

    def __init__(self, config):
        super().__init__(config)
        self.of_users = measures_labels(config)
        if self.of_users:
            for need, value in (("rec.meanrank", False), ("rec.score", True), ("data.label", True)):
                setattr(self.register, need, value)

    def eval_batch_collect(self, scores_tensor, interaction, positive_u, positive_i):
        super().eval_batch_collect(scores_tensor, interaction, positive_u, positive_i)
        if self.of_users:
            self.data_struct.update_tensor("data.user", interaction[self.config["USER_ID_FIELD"]].to(self.device))

    def get_data_struct(self):
        held = self.data_struct._data_dict
        counts = {key: held.pop(key) for key, value in list(held.items()) if not isinstance(value, torch.Tensor)}
        collected = super().get_data_struct()
        for struct in (self.data_struct, collected):
            for key, value in counts.items():
                struct.set(key, value)
        held.pop("data.user", None)  # as RecBole does with what it knows to belong to one evaluation
        return collected
