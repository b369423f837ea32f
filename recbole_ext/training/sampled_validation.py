"""`eval_users`: validation during training on a sample of the users."""

from logging import getLogger
from typing import Any

from recbole.utils import calculate_valid_score

from recbole_ext.data.user_sample import UserSample, sample_users


class SampledValidation:
    """A mixin for RecBole's trainer classes: `fit` validates on the users of `eval_users`; `evaluate` uses all.

    Attributes:
        user_sample (UserSample | None): the users that validation uses; None before `fit`, and if it uses all users.
    """

    user_sample: UserSample | None = None
    config: Any

    def fit(self, train_data, valid_data=None, *args, **kwargs):
        """RecBole's training; its score and result are those of the sample if there is one."""
        self.user_sample = sample_users(valid_data, self.config)
        if self.config["eval_users"] and valid_data and self.user_sample is None:
            getLogger().info(f"eval_users is {self.config['eval_users']}: validation uses all users, who are not more.")
        return super().fit(train_data, valid_data, *args, **kwargs)

    def _valid_epoch(self, valid_data, *args, **kwargs):
        if self.user_sample is not None:
            getLogger().info(f"the following validation is of {self.user_sample} (eval_users)")
            valid_data = self.user_sample.loader
        return super()._valid_epoch(valid_data, *args, **kwargs)

    def describe_sample(self, result: dict[str, float] | None) -> dict[str, Any] | None:
        """The result of `fit` as `users` of `all_users` and `result`; None if it is of all users or there is none."""
        return None if self.user_sample is None or result is None else self.user_sample.describe(result)

    def validate_all_users(self, valid_data, load_best_model=True, show_progress=False):
        """`evaluate` on the validation data of all users; returns the score, that of `valid_metric`, and the result."""
        result = self.evaluate(valid_data, load_best_model, show_progress=show_progress)
        return calculate_valid_score(result, self.valid_metric), result
