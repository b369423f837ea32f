"""The public interface of a trained model: recommend, explain, export and vectors."""

import os
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pandas as pd

from recbole_ext.checkpoint.training_run import read_run
from recbole_ext.data.files.table import Table
from recbole_ext.errors import InputError
from recbole_ext.serving.explain.explainer import explain
from recbole_ext.serving.explain.explanation import Explanation
from recbole_ext.serving.exporter import program_file, write
from recbole_ext.serving.ranking import candidate_ids, ranked_blocks, result_frame
from recbole_ext.serving.requests import Requests
from recbole_ext.serving.scoring import Vectors, item_table, item_vectors, user_vectors
from recbole_ext.serving.served_model import ServedModel
from recbole_ext.utils.paths import check_outputs, writable_file


class Recommender(ServedModel):
    """Ranks items for histories. `Recommender.load` makes one from a checkpoint, without the training data.

    For its attributes see `ServedModel`.
    """

    def recommend(
        self,
        histories: pd.DataFrame,
        k: int = 10,
        at: Any = None,
        exclude_seen: bool = True,
        items: Iterable[Any] | None = None,
        users: Iterable[Any] | None = None,
        show_progress: bool | None = None,
        trained_items_only: bool = False,
    ) -> pd.DataFrame:
        """The best items for each user, given the user's events.

        Args:
            histories: one event a row, in any order; events with equal times keep the order of their rows. Columns are
                user, item and time as in the training `.inter` file; times can be dates. Users and events need not be
                in the training data. A model that reads no times needs no column of times; then the order of the rows
                counts. `context_features` are required columns and features of users are optional ones; both are taken
                from the user's last event. Events with items unknown to the model are skipped with a warning.
            k: number of items; a user gets fewer if there are fewer candidates.
            at: time of the requests, in the unit of the column of times or as a date: one time for all users, or a
                mapping from users to times. Later events are left out. `None` means just after each user's last event.
            exclude_seen: leave out items of the user's events.
            items: the candidates; `None` means all items. Unknown items are skipped with a warning.
            users: users to recommend for, in order; `None` means all of `histories`, in order of appearance.
            show_progress: whether to show a progress bar; `None` shows it on a terminal.
            trained_items_only: leave out items without a training event, about which the model has learnt nothing:
                items that occur only in the `.item` file, or only in validation and test data.

        Returns:
            at most k rows for each user, in the order of the users: user, `rank` from 1, item, `item_name` if the
            recommender has names (the token for items without a name), `score`. Users and items are text. Users who
            have seen all candidates get no row; a warning counts them, and users who get fewer than k rows because of
            seen items.

        Raises:
            InputError: a column is missing or has a wrong value; a user has no event with a known item; `k` is not a
                whole number above 0; no candidate is left.
        """
        blocks = list(self.blocks(histories, k, at, exclude_seen, items, users, show_progress, trained_items_only))
        return pd.concat(blocks, ignore_index=True) if blocks else result_frame(self, [], [], np.zeros(0, np.int64), [])

    def blocks(
        self,
        histories: pd.DataFrame | Table,
        k: int = 10,
        at: Any = None,
        exclude_seen: bool = True,
        items: Iterable[Any] | Table | None = None,
        users: Iterable[Any] | Table | None = None,
        show_progress: bool | None = None,
        trained_items_only: bool = False,
    ) -> Iterator[pd.DataFrame]:
        """The result of `recommend`, some users at a time. All input is checked before the first block."""
        requests = self.reader.read(histories, users, at)
        return self.blocks_of(requests, k, exclude_seen, items, show_progress, trained_items_only)

    def blocks_of(
        self,
        requests: Requests,
        k: int = 10,
        exclude_seen: bool = True,
        items: Iterable[Any] | Table | None = None,
        show_progress: bool | None = None,
        trained_items_only: bool = False,
    ) -> Iterator[pd.DataFrame]:
        """`blocks` for requests that have been read already."""
        if isinstance(k, bool) or not isinstance(k, (int, np.integer)) or k < 1:
            raise InputError(f"k is {k!r}; it should be a whole number, at least 1.")
        exclude_seen = check_bool("exclude_seen", exclude_seen)
        candidates = candidate_ids(self, items, check_bool("trained_items_only", trained_items_only))
        return ranked_blocks(self, requests, int(k), candidates, exclude_seen, show_progress)

    def item_vectors(self, trained_items_only: bool = False) -> Vectors:
        """A vector for each item, for an index of nearest neighbours by inner product.

        The inner product of a user vector and an item vector is the score that `recommend` gives. For models with item
        biases, such as MEANTIME, the last value of an item vector is the bias, and the last value of a user vector 1.

        Args:
            trained_items_only: leave out items without a training event, as in `recommend`.

        Returns:
            tokens [V] and vectors, float32 [V, D]. D is the model's hidden size, plus one for models with biases.

        Raises:
            InputError: the model's score is not an inner product: BST, RecBole's models.
        """
        item_table(self.model)  # refuses such models first
        ids = np.arange(1, len(self.items.tokens))
        if check_bool("trained_items_only", trained_items_only):
            ids = ids[self.trained_items()[ids]]
        return item_vectors(self, ids)

    def user_vectors(
        self, histories: pd.DataFrame | Table, at: Any = None, users: Iterable[Any] | Table | None = None
    ) -> Vectors:
        """A vector for each user at the time of the request, to query an index of `item_vectors`.

        Args:
            histories, at, users: as for `recommend`.

        Returns:
            tokens of the users [n], in the order of the requests, and vectors, float32 [n, D].

        Raises:
            InputError: as for `recommend` and `item_vectors`.
        """
        item_table(self.model)
        return user_vectors(self, self.reader.read(histories, users, at))

    def explain(
        self,
        histories: pd.DataFrame | Table,
        user: Any,
        item: Any = None,
        at: Any = None,
        exclude_seen: bool = True,
        trained_items_only: bool = False,
    ) -> Explanation:
        """Which past events a score depends on, and which attention heads attended to them.

        Args:
            histories: as for `recommend`; events of other users have no influence.
            user: one user of `histories`.
            item: the item to explain; `None` means the best item.
            at: time of the request, as for `recommend`.
            exclude_seen: whether items of the user's events are left out of the ranking.
            trained_items_only: whether items without a training event are left out of the ranking.

        Returns:
            score and rank, and a row for each event that the model read with its `effect`: the score minus the score
            without that event. See `Explanation`.

        Raises:
            InputError: as for `recommend`; the user is not in the histories, or has no event before the request; the
                model does not know the item.
        """
        exclude_seen = check_bool("exclude_seen", exclude_seen)
        trained_items_only = check_bool("trained_items_only", trained_items_only)
        return explain(self, histories, user, item, at, exclude_seen, trained_items_only)

    def write_report(self, explanation: Explanation, path: str | os.PathLike) -> None:
        """Write an explanation as an HTML page that works offline, with the learning curves of the training.

        Args:
            explanation: the result of `explain`.
            path: of the HTML file, which is written completely or not at all.

        Raises:
            InputError: `path` is not the name of a file that can be written, or is the checkpoint; `explanation` is not
                an explanation.
            OSError: the file cannot be written.
        """
        from recbole_ext.serving.explain.page import page
        from recbole_ext.utils.atomic_write import write_whole

        if not isinstance(explanation, Explanation):
            raise InputError(f"explanation is a {type(explanation).__name__}; it should be the result of explain.")
        name = os.fspath(path) if isinstance(path, (str, os.PathLike)) else ""
        if not isinstance(name, str) or not os.path.basename(name):
            raise InputError(f"path is {path!r}; it should be the name of a file.")
        check_outputs({"path": path}, {"the checkpoint": self.path})
        run = None if self.path is None else read_run(self.path, self.checkpoint)
        with write_whole(writable_file(name, "the page")) as file:
            file.write(page(explanation, run).encode())

    def export(self, path: str | os.PathLike) -> float:
        """Write the model as a program of `torch.export`, which needs only torch to load and run.

        The program takes ids, lengths and times of histories. It returns scores of all items or, for BST, of
        candidates. Batches and lists can have any size. `serving.json` in the file holds the tokens of the items and
        describes the inputs. The written program is read again and compared with the model.

        Args:
            path: the file to write, ending in `.pt2`.

        Returns:
            the largest difference between scores of the program and of the model in this comparison.

        Raises:
            InputError: the model cannot be exported, or the file cannot be written; an existing file stays as it was.
        """
        check_outputs({"path": path}, {"the checkpoint": self.path})
        return write(self, program_file(path))


def check_bool(argument: str, value: Any) -> bool:
    """The value of an argument that should be True or False; `InputError` for other values."""
    if not isinstance(value, (bool, np.bool_)):
        raise InputError(f"{argument} is {value!r}; it should be True or False.")
    return bool(value)
