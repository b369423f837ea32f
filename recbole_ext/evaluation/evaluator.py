"""From what was collected to metrics: RecBole's, GAUC of labels, and metrics of one's own."""

from typing import Any

from recbole.evaluator import Evaluator

from recbole_ext.errors import InputError
from recbole_ext.evaluation.gauc import gauc, measures_labels
from recbole_ext.evaluation.metrics import registered


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
