"""From what was collected to metrics: RecBole's, GAUC of labels, and metrics of one's own."""

from typing import Any

import torch
from recbole.evaluator import Collector, Evaluator, metric_information

from recbole_ext.config.metrics import registered
from recbole_ext.errors import InputError
from recbole_ext.evaluation.gauc import gauc, measures_labels


class LabelEvaluator(Evaluator):
    """RecBole's evaluator, with GAUC of labels where that is asked for.

    Attributes:
        collected: what the last evaluation collected, for `per_user_table`; None unless `keeps_collected` is set.
    """

    def __init__(self, config):
        super().__init__(config)
        self.keeps_collected, self.collected = False, None
        if measures_labels(config):
            self.metric_class["gauc"] = self
            self.decimals = config["metric_decimal_place"]

    def evaluate(self, dataobject: Any) -> dict[str, float]:
        """All metrics by their names; `InputError` if a metric of one's own calls its results otherwise."""
        for name in ("rec.score", "data.label"):  # RecBole's metrics squeeze a single label to a number
            if name in dataobject and dataobject.get(name).shape == (1,):
                dataobject.set(name, dataobject.get(name).unsqueeze(-1))
        result = super().evaluate(dataobject)
        self.collected = dataobject if self.keeps_collected else None
        if own := registered(self.config["metrics"]):
            names = " and ".join(f"'{metric.__name__.lower()}'" for metric in own)
            for name in result:
                if name.partition("@")[0] not in self.metrics:
                    raise InputError(
                        f"a metric returns '{name}'; results of your own are called {names}, with @k for several k."
                    )
            if self.config["valid_metric"].lower() not in result:
                raise InputError(
                    f"valid_metric is '{self.config['valid_metric']}', which no metric returns; there are "
                    f"{', '.join(result)}."
                )
        return result

    def calculate_metric(self, struct: Any) -> dict[str, float]:
        """GAUC of what a `CountingCollector` collected."""
        user, label, score = (struct.get(key).numpy().ravel() for key in ("data.user", "data.label", "rec.score"))
        return {"gauc": round(gauc(user, label, score), self.decimals)}


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
