"""What metrics need of a run, collected by RecBole, for metrics that need counts of the training data or users too."""

import torch
from recbole.evaluator import Collector, metric_information

from recbole_ext.errors import InputError
from recbole_ext.evaluation.gauc import measures_labels

OF_TRAINING = ("data.num_items", "data.num_users", "data.count_items", "data.count_users")


class CountingCollector(Collector):
    """RecBole's collector, which moves everything to the CPU as if it were a tensor.

    ItemCoverage, GiniIndex, AveragePopularity and TailPercentage need counts, which are no tensors. GAUC of labels and
    metrics of each user need the users, too.

    Attributes:
        keeps_rows (bool): whether the user and the number of positives of each row are collected.
        row_of_candidate: of the batch to come, the row of each of its candidates, [C]; None where each line of the
            batch is a row.
    """

    def __init__(self, config):
        super().__init__(config)
        self.of_users = measures_labels(config)
        self.keeps_rows = False
        self.row_of_candidate: torch.Tensor | None = None
        if self.of_users:
            for need, value in (("rec.meanrank", False), ("rec.score", True), ("data.label", True)):
                setattr(self.register, need, value)

    def check_training_data(self) -> None:
        """Refuse metrics that need the training data where `data_collect` was not given it."""
        missing = [need for need in OF_TRAINING if self.register.need(need) and need not in self.data_struct]
        if missing:
            names = [metric for metric in self.config["metrics"] if missing[0] in metric_information[metric.lower()]]
            raise InputError(
                f"{names[0]} needs counts of the training data; call trainer.eval_collector.data_collect(train_data) "
                f"before trainer.evaluate."
            )

    def eval_batch_collect(self, scores_tensor, interaction, positive_u, positive_i):
        super().eval_batch_collect(scores_tensor, interaction, positive_u, positive_i)
        if not (self.of_users or self.keeps_rows):
            return
        users = interaction[self.config["USER_ID_FIELD"]].to(self.device)
        if self.row_of_candidate is not None and scores_tensor.dim() == 2:
            rows = self.row_of_candidate.to(self.device)
            users = users.new_zeros(len(scores_tensor)).scatter(0, rows, users)
        self.data_struct.update_tensor("data.user", users)
        if self.keeps_rows and positive_u is not None:
            positives = torch.bincount(positive_u.to(self.device), minlength=len(scores_tensor))
            self.data_struct.update_tensor("data.positives", positives)

    def get_data_struct(self):
        held = self.data_struct._data_dict
        counts = {key: held.pop(key) for key, value in list(held.items()) if not isinstance(value, torch.Tensor)}
        collected = super().get_data_struct()
        for struct in (self.data_struct, collected):
            for key, value in counts.items():
                struct.set(key, value)
        for key in ("data.user", "data.positives"):  # as RecBole does with what belongs to one evaluation
            held.pop(key, None)
        return collected
