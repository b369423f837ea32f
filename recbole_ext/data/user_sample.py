"""`eval_users`: the users on whom a model is validated during training."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from recbole_ext.data.loaders import SeededLoader, check_classes, seeded
from recbole_ext.utils.random_state import seed_from


@dataclass(frozen=True)
class UserSample:
    """Some users of the validation data.

    Attributes:
        loader: of all events of these users; each gets the same candidates as in the loader of all users.
        users: number of these users.
        all_users: number of users in the validation data.
    """

    loader: Any
    users: int
    all_users: int

    def __str__(self) -> str:
        return f"{self.users:,} of {self.all_users:,} users"

    def describe(self, result: dict[str, float]) -> dict[str, Any]:
        """Metrics of these users as in the result of a run."""
        return {"users": self.users, "all_users": self.all_users, "result": dict(result)}


def sample_users(loader: Any, config: Any) -> UserSample | None:
    """Draw `eval_users` users of the validation data.

    The users depend on `seed` and on the tokens of the users only, hence neither on the model nor on the order of the
    data.

    Args:
        loader: of the validation data, or None.
        config: of the run.

    Returns:
        the sample; None if all users are evaluated.

    Raises:
        InputError: AUC or GAUC is measured, but not defined for the labels of these users.
    """
    size = size_of_sample(loader._dataset, config) if loader else None
    if size is None:
        return None
    dataset, (users, ids) = loader._dataset, _users(loader._dataset)
    keys = [seed_from(f"{config['seed']} {token}") for token in dataset.field2id_token[dataset.uid_field][ids]]
    rows = np.flatnonzero(np.isin(users, ids[np.argsort(keys)[: size.users]]))
    part = dataset.copy(dataset.inter_feat[torch.from_numpy(rows)])
    loader_class: Any = next(parent for parent in type(loader).__mro__ if not issubclass(parent, SeededLoader))
    sample = replace(size, loader=seeded(loader_class(config, part, loader._sampler), evaluates=True))
    if config["eval_args"]["mode"]["valid"] == "labeled":
        check_classes(part, f"the valid data of {sample}", config, "or raise eval_users")
    return sample


def size_of_sample(dataset: Any, config: Any) -> UserSample | None:
    """The sample that `sample_users` would draw from validation data, without its loader."""
    count = config["eval_users"]
    total = len(_users(dataset)[1]) if count else 0
    return UserSample(None, count, total) if count and count < total else None


def _users(dataset: Any) -> tuple[np.ndarray, np.ndarray]:
    """The user of each row, and all different users, ascending."""
    users = dataset.inter_feat[dataset.uid_field].numpy()
    return users, np.unique(users)
