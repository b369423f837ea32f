"""From collected scores to metrics: RecBole's, GAUC of labels, and registered metrics."""

from collections.abc import Callable
from typing import Any

import torch
from recbole.evaluator import Collector, Evaluator, metric_information

from recbole_ext.config.metrics import registered
from recbole_ext.errors import InputError
from recbole_ext.evaluation.best_items import RankedItems
from recbole_ext.evaluation.per_user import gauc, measures_gauc_of_labels

TRAINING_COUNTS = ("data.num_items", "data.num_users", "data.count_items", "data.count_users")


class LabelEvaluator(Evaluator):
    """RecBole's evaluator, with GAUC of labels.

    Attributes:
        keeps_collected (bool): whether `collected` is set.
        collected: the data of the last evaluation, for `per_user_table`; None unless `keeps_collected`.
    """

    def __init__(self, config):
        super().__init__(config)
        self.keeps_collected, self.collected = False, None
        if measures_gauc_of_labels(config):
            self.metric_class["gauc"] = self
            self.decimals = config["metric_decimal_place"]

    def evaluate(self, dataobject: Any) -> dict[str, float]:
        """All metrics by name.

        Raises:
            InputError: a registered metric returns results under other names than its own.
        """
        for name in ("rec.score", "data.label"):  # RecBole's metrics squeeze a single label to a number
            if name in dataobject and dataobject.get(name).shape == (1,):
                dataobject.set(name, dataobject.get(name).unsqueeze(-1))
        result = super().evaluate(dataobject)
        self.collected = dataobject if self.keeps_collected else None
        if user_metrics := registered(self.config["metrics"]):
            names = " and ".join(f"'{metric.__name__.lower()}'" for metric in user_metrics)
            for name in result:
                if name.partition("@")[0] not in self.metrics:
                    raise InputError(
                        f"a metric returns '{name}'; results of registered metrics should be called {names}, with @k "
                        f"for several k."
                    )
            if self.config["valid_metric"].lower() not in result:
                raise InputError(
                    f"valid_metric is '{self.config['valid_metric']}', which no metric returns; the results are "
                    f"{', '.join(result)}."
                )
        return result

    def calculate_metric(self, struct: Any) -> dict[str, float]:
        """GAUC of labels, from the data of a `LabelCollector`; RecBole calls it as it calls its metrics."""
        user, label, score = (struct.get(key).numpy().ravel() for key in ("data.user", "data.label", "rec.score"))
        return {"gauc": round(gauc(user, label, score), self.decimals)}


class LabelCollector(Collector):
    """RecBole's collector, which also collects users and supports item counts.

    RecBole's collector moves all data to the CPU as tensors, but ItemCoverage, GiniIndex, AveragePopularity and
    TailPercentage need item counts, which are not tensors. GAUC of labels and metrics of each user need the users.

    Attributes:
        keeps_rows (bool): whether the user and the number of positives of each row are collected.
        row_of_candidate: the row of each candidate in the next batch, [C]; None if each entry of the batch is a row.
        merge: changes the collected data before any metric is computed, where several processes evaluate; or None.
    """

    def __init__(self, config):
        super().__init__(config)
        self.needs_users = measures_gauc_of_labels(config)
        self.keeps_rows = False
        self.row_of_candidate: torch.Tensor | None = None
        self.merge: Callable[[Any], None] | None = None
        if self.needs_users:
            for need, value in (("rec.meanrank", False), ("rec.score", True), ("data.label", True)):
                setattr(self.register, need, value)

    def check_training_data(self) -> None:
        """`InputError` if a metric needs counts of the training data, which `data_collect` has not received."""
        missing = [need for need in TRAINING_COUNTS if self.register.need(need) and need not in self.data_struct]
        if missing:
            names = [metric for metric in self.config["metrics"] if missing[0] in metric_information[metric.lower()]]
            raise InputError(
                f"{names[0]} needs counts of the training data; call trainer.eval_collector.data_collect(train_data) "
                f"before trainer.evaluate."
            )

    def needs_best_items_only(self) -> bool:
        """Whether the metrics read the best items of each row only, not the scores of the others."""
        return not any(map(self.register.need, ("rec.meanrank", "rec.score", "data.label")))

    def eval_batch_collect(self, scores_tensor, interaction, positive_u, positive_i):
        if isinstance(scores_tensor, RankedItems):
            self._collect_ranked(scores_tensor.items, positive_u, positive_i)
            scores_tensor = scores_tensor.scores
        else:
            super().eval_batch_collect(scores_tensor, interaction, positive_u, positive_i)
        if not (self.needs_users or self.keeps_rows):
            return
        users = interaction[self.config["USER_ID_FIELD"]].to(self.device)
        if self.row_of_candidate is not None and scores_tensor.dim() == 2:
            rows = self.row_of_candidate.to(self.device)
            users = users.new_zeros(len(scores_tensor)).scatter(0, rows, users)
        self.data_struct.update_tensor("data.user", users)
        if self.keeps_rows and positive_u is not None:
            positives = torch.bincount(positive_u.to(self.device), minlength=len(scores_tensor))
            self.data_struct.update_tensor("data.positives", positives)

    def _collect_ranked(self, items: torch.Tensor, positive_u: torch.Tensor, positive_i: torch.Tensor) -> None:
        """Collect what RecBole's collector takes from all scores, from the best items [B, k]."""
        if self.register.need("rec.items"):
            self.data_struct.update_tensor("rec.items", items)
        if self.register.need("rec.topk"):
            row, positive = positive_u.to(items.device), positive_i.to(items.device)
            size = int(max(items.max(), positive.max())) + 1
            rows = torch.arange(len(items), device=items.device).unsqueeze(1)
            is_positive = torch.isin(rows * size + items, row * size + positive)
            count = row.bincount(minlength=len(items)).unsqueeze(1)
            self.data_struct.update_tensor("rec.topk", torch.cat([is_positive, count], dim=1).to(torch.int32))

    def get_data_struct(self):
        data = self.data_struct._data_dict
        counts = {key: data.pop(key) for key, value in list(data.items()) if not isinstance(value, torch.Tensor)}
        collected = super().get_data_struct()
        for struct in (self.data_struct, collected):
            for key, value in counts.items():
                struct.set(key, value)
        for key in ("data.user", "data.positives"):  # they belong to one evaluation; RecBole resets only its data
            data.pop(key, None)
        if self.merge is not None:
            self.merge(collected)
        return collected
