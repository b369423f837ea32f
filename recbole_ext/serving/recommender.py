"""A trained model as something to ask: histories in, ranked items out."""

import os
from collections.abc import Iterable, Iterator, Mapping
from logging import getLogger
from typing import Any

import numpy as np
import pandas as pd
import torch
from recbole.data.interaction import Interaction
from recbole.data.transform import construct_transform
from recbole.utils import ModelType
from tqdm import tqdm

from recbole_ext.checkpoint import file as checkpoint
from recbole_ext.checkpoint.file import read_run
from recbole_ext.checkpoint.restore import (
    build,
    build_config,
    load_weights,
    naming_checkpoint,
    parse_device,
    resolve_class,
)
from recbole_ext.config.config import OfflineConfig
from recbole_ext.config.metrics import for_serving
from recbole_ext.data.description import DatasetDescription
from recbole_ext.data.files.item_files import ITEM_NAME, resolve_item_names
from recbole_ext.data.files.table import Table, values_table
from recbole_ext.errors import InputError
from recbole_ext.serving.columns import Vocabulary, as_text
from recbole_ext.serving.explain.explainer import explain
from recbole_ext.serving.explain.explanation import Explanation
from recbole_ext.serving.exporter import target_file, write
from recbole_ext.serving.histories import HistoryReader, Requests
from recbole_ext.serving.scoring import best, scorer_of
from recbole_ext.serving.vectors import Vectors, check_vectors, item_vectors, user_vectors
from recbole_ext.utils import random_state
from recbole_ext.utils.paths import check_outputs, writable_file
from recbole_ext.utils.wording import counted, quoted


class Recommender:
    """Ranks items for histories, by a checkpoint alone; `Recommender.load` makes one.

    Attributes:
        config: what the model was trained with.
        path: of the checkpoint, if there is one.
        model: in evaluation.
        user_field, item_field, time_field (str): names of the columns that histories need.
        items (Vocabulary): the items it knows.
        item_names: their names for people, object [V + 1], or None; see `load`.
    """

    def __init__(self, config: Any, model: Any, catalogue: DatasetDescription, item_names: Any = None):
        self.config, self.model, self.catalogue = config, model.eval(), catalogue
        self.user_field, self.item_field, self.time_field = (
            catalogue.uid_field, catalogue.iid_field, catalogue.time_field
        )  # fmt: skip
        self.items = Vocabulary(catalogue.field2id_token[self.item_field])
        self.users = Vocabulary(catalogue.field2id_token[self.user_field])
        self.item_names = self._names_of_items(item_names)
        self.reader = HistoryReader(catalogue, self.items, self.users, model)
        self.transform = construct_transform(config)
        self.path: str | os.PathLike | None = None  # of the checkpoint
        self.scorer = scorer_of(model, (config["eval_memory_mb"] or 1024) * 2**20, catalogue.item_feat)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike,
        device: str | torch.device | None = None,
        model: type | None = None,
        item_names: str | os.PathLike | Mapping[Any, str] | bool | None = None,
    ) -> "Recommender":
        """Rebuild the model of a checkpoint; neither data set nor atomic files are needed.

        Args:
            path: a checkpoint of this package.
            device: where the model goes; `None` means the device its configuration gives on this machine.
            model: the class, for a model that is neither ours nor RecBole's.
            item_names: names of items for results, such as titles. `None` takes those that the checkpoint holds
                (training key `item_names`), if any; otherwise a file with two columns, items and names; a mapping; or
                the column that the checkpoint's names come from. `False` leaves names out.

        Raises:
            InputError: the checkpoint cannot be read, is of no sequential model, or does not hold enough to rebuild it;
                the item names cannot be read, or belong to no item of the model.
        """
        state = checkpoint.load(path)
        state["optimizer"] = {}  # twice the size of the weights, and of no use here
        network_class = resolve_class(state, model, str(path))
        state["config"] = for_serving(state["config"])
        with naming_checkpoint(path):
            config = build_config(OfflineConfig, state, network_class, {})
        if config["MODEL_TYPE"] != ModelType.SEQUENTIAL:
            raise InputError(f"checkpoint {path} is of {state['model']}, which is no sequential model: it has no use "
                             f"for histories.")  # fmt: skip
        if device is not None:
            config["device"] = parse_device(device)
            config["use_gpu"] = config["device"].type != "cpu"
        with naming_checkpoint(path):
            network, catalogue = _rebuilt(config, state, path)
        load_weights(network, state, path)
        recommender = cls(config, network, catalogue, item_names)
        recommender.path = path
        return recommender

    def _names_of_items(self, item_names: Any) -> np.ndarray | None:
        names = resolve_item_names(item_names, self.catalogue.item_names, self.items.tokens)
        if names is not None and ITEM_NAME in (self.user_field, self.item_field):
            raise InputError(
                f"item_names adds a column '{ITEM_NAME}', which is also the column of users or items here; set "
                f"item_names to False."
            )
        return names

    def export(self, path: str | os.PathLike) -> float:
        """Write the model as a program of `torch.export`, which torch alone loads and runs.

        The program takes ids, lengths and times of histories, and gives scores of all items or, of BST, of candidates;
        batches and lists of any size. The file holds `serving.json` with the tokens of the items and what the inputs
        are. What was written has been read again and compared with the model.

        Args:
            path: the file to write, ending in `.pt2`.

        Returns:
            the largest difference between scores of the program and of the model that was seen.

        Raises:
            InputError: the model cannot be exported, or the file not be written; what was there before stays.
        """
        check_outputs({"path": path}, {"the checkpoint": self.path})
        return write(self, target_file(path))

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
        """The best items for each user, given what they did.

        Args:
            histories: events, one a row, in any order; those of equal time count in the order of their rows. Columns
                are the user, the item and the time as in the training's `.inter` file (dates will do), whether or not
                user or events were trained on; a model that reads no times does without these, and the order of the
                rows counts; for a model with `context_features` these, and for one with features of
                users these if wanted, both taken from the user's last event. Items that the model does not know are
                counted in a warning and skipped.
            k: items wanted; a user gets fewer if there are not as many candidates.
            at: time of the request, in the unit of the column of times or a date: one for all, or a mapping from users
                to times. Later events are left out. `None` means just after each user's last event.
            exclude_seen: leave out items of the user's own events.
            items: the only items to choose from; unknown ones are counted in a warning and skipped.
            users: whom to ask for, in this order; `None` means all of `histories`, in the order they appear.
            show_progress: whether to show a bar; `None` shows it on a terminal.
            trained_items_only: leave out items without a training event, of which the model has learnt nothing: those
                that occur only in the `.item` file, or only in validation and test data.

        Returns:
            a block of at most k rows for each user asked, in the order asked: user, `rank` from 1, item, `item_name` if
            the recommender has names (the token of an item without one), `score`. Users and items are text. A user who
            has had all items gets no row; a warning counts such users, and those who get fewer rows for that reason.

        Raises:
            InputError: a column is missing or holds something else; a user has no event with a known item; `k` is no
                whole number above 0; no item is left to choose from.
        """
        blocks = list(self.blocks(histories, k, at, exclude_seen, items, users, show_progress, trained_items_only))
        return pd.concat(blocks, ignore_index=True) if blocks else self._frame([], [], np.zeros(0, np.int64), [])

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
        """The same as `recommend`, some users at a time; what is wrong is said before the first of them."""
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
        """The same of requests that were read before."""
        if isinstance(k, bool) or not isinstance(k, (int, np.integer)) or k < 1:
            raise InputError(f"k is {k!r}; it should be a whole number, at least 1.")
        exclude_seen = as_bool("exclude_seen", exclude_seen)
        candidates = self._candidates(items, as_bool("trained_items_only", trained_items_only))
        return self._blocks(requests, int(k), exclude_seen, candidates, show_progress)

    def item_vectors(self, trained_items_only: bool = False) -> Vectors:
        """A vector for each item, for an index of nearest neighbours by inner product.

        The inner product of a user's vector and an item's is the score that `recommend` gives. Where the model adds a
        bias of the item, as MEANTIME does, the last number of an item's vector is that bias, and that of a user's 1.

        Args:
            trained_items_only: leave out items without a training event, as `recommend` does.

        Returns:
            tokens [V] and vectors, float32 [V, D]: D is the model's hidden size, and one more with a bias.

        Raises:
            InputError: the model's score is no such product: BST, RecBole's models.
        """
        check_vectors(self.model)
        ids = np.arange(1, len(self.items.tokens))
        if as_bool("trained_items_only", trained_items_only):
            ids = ids[self.trained_items()[ids]]
        return item_vectors(self, ids)

    def user_vectors(
        self, histories: pd.DataFrame | Table, at: Any = None, users: Iterable[Any] | Table | None = None
    ) -> Vectors:
        """A vector for each user at the time of their request, to ask an index of `item_vectors`.

        Args:
            histories, at, users: as for `recommend`.

        Returns:
            tokens of the users [n], in the order asked, and vectors, float32 [n, D].

        Raises:
            InputError: as for `recommend` and `item_vectors`.
        """
        check_vectors(self.model)
        return user_vectors(self, self.reader.read(histories, users, at))

    def trained_items(self) -> np.ndarray:
        """Which items have training events, by id: bool [V + 1], False for the padding.

        An item has one if it stands in the training part of the data as an event to predict or in a history.

        Raises:
            InputError: the checkpoint is of a version that did not store it.
        """
        trained = self.catalogue.trained_items
        if trained is None:
            raise InputError(
                f"trained_items_only needs to know which items had training events, which this checkpoint does not "
                f"hold; train {type(self.model).__name__} anew."
            )
        return trained.numpy()

    def explain(
        self,
        histories: pd.DataFrame | Table,
        user: Any,
        item: Any = None,
        at: Any = None,
        exclude_seen: bool = True,
        trained_items_only: bool = False,
    ) -> Explanation:
        """Which past events carried a score, and which heads or kernels attended to them.

        Args:
            histories: as for `recommend`; other users' events do not matter.
            user: whose recommendation, one of `histories`.
            item: the item to explain; `None` means the best one.
            at: time of the request, as for `recommend`.
            exclude_seen: whether items of the user's own events have no rank.
            trained_items_only: whether items without a training event have no rank.

        Returns:
            the score and rank, and a row for each event that the model read with its `effect`: the score minus the
            score without that event. See `Explanation`.

        Raises:
            InputError: what `recommend` refuses; the user is not in the histories, or has no event before the request;
                the model does not know the item.
        """
        exclude_seen = as_bool("exclude_seen", exclude_seen)
        trained_items_only = as_bool("trained_items_only", trained_items_only)
        return explain(self, histories, user, item, at, exclude_seen, trained_items_only)

    def write_report(self, explanation: Explanation, path: str | os.PathLike) -> None:
        """Write an explanation as a page for the browser that needs no network, with the learning curves of the run.

        Args:
            explanation: what `explain` returned.
            path: of the HTML file, which is written whole or not at all.

        Raises:
            InputError: the path is no name of a file that could be written, or that of the checkpoint; the explanation
                is none.
            OSError: the file cannot be written.
        """
        from recbole_ext.serving.explain.page import page
        from recbole_ext.utils.atomic_write import write_whole

        if not isinstance(explanation, Explanation):
            raise InputError(f"explanation is a {type(explanation).__name__}; it should be what explain returned.")
        name = os.fspath(path) if isinstance(path, (str, os.PathLike)) else ""
        if not isinstance(name, str) or not os.path.basename(name):
            raise InputError(f"path is {path!r}; it should be the name of a file.")
        check_outputs({"path": path}, {"the checkpoint": self.path})
        with write_whole(writable_file(name, "the page")) as file:
            file.write(page(explanation, None if self.path is None else read_run(self.path)).encode())

    def _candidates(self, items: Iterable[Any] | Table | None, trained_items_only: bool) -> torch.Tensor | slice:
        """Ids to choose from, ascending."""
        everything = slice(1, len(self.items.tokens))
        if items is None and (not trained_items_only or self.trained_items()[everything].all()):
            return everything  # scored without a copy of the item table
        ids = np.arange(1, len(self.items.tokens)) if items is None else self._ids_of(items)
        if trained_items_only:
            ids = ids[self.trained_items()[ids]]
            if not len(ids):
                raise InputError("trained_items_only leaves no item: none of them has a training event.")
        return torch.from_numpy(ids)

    def _ids_of(self, items: Iterable[Any] | Table) -> np.ndarray:
        """Ids of the given items that the model knows, ascending."""
        tokens = as_text(values_table(items, self.item_field, "items"), self.item_field)
        ids = self.items.ids(tokens)
        if (ids == 0).any():
            example = tokens[np.argmax(ids == 0)]
            getLogger().warning(f"items: {(ids == 0).sum():,} that the model does not know are skipped, '{example}' ..")
        known = np.unique(ids[ids > 0])
        if not len(known):
            raise InputError("items holds no item that the model knows; there is nothing to choose from.")
        return known

    def _blocks(
        self, requests: Requests, k: int, exclude_seen: bool, candidates: Any, show_progress: bool | None
    ) -> Iterator[pd.DataFrame]:
        place, count = None, len(self.items.tokens) - 1
        if not isinstance(candidates, slice):
            count = len(candidates)
            place = np.full(len(self.items.tokens), -1)
            place[candidates.numpy()] = np.arange(count)
            candidates = candidates.to(self.config["device"])
        hide = None if show_progress is None else not show_progress
        found: list[np.ndarray] = []  # how many items each user gets
        with tqdm(total=len(requests), desc="Recommend", unit="user", disable=hide) as bar:
            for begin in range(0, len(requests), self.scorer.rows):
                rows = slice(begin, min(begin + self.scorer.rows, len(requests)))
                scores, ids = self._best(requests, rows, k, exclude_seen, candidates, place)
                found.append((scores > -np.inf).sum(axis=1))
                yield self._ranked(requests.users[rows], scores, ids)
                bar.update(rows.stop - begin)
        if found:
            self._report_few(requests.users, np.concatenate(found), min(k, count))

    def _report_few(self, users: np.ndarray, found: np.ndarray, expected: int) -> None:
        """Count the users for whom too few items are left, since they have had the others, in a warning."""
        for few, which, items in (
            ("No recommendation", found == 0, "every item to choose from is"),
            (f"Fewer than {expected} recommendations", (found > 0) & (found < expected), "the other items are"),
        ):
            if which.any():
                names = quoted(users[which])
                getLogger().warning(f"{few} for {counted(which.sum(), 'user')}: {items} among their events ({names}).")

    @torch.inference_mode()
    def _best(
        self, requests: Requests, rows: slice, k: int, exclude_seen: bool, candidates: Any, place: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray]:
        device, count = self.config["device"], rows.stop - rows.start
        prepared = self.prepare(requests, rows)
        barred = torch.zeros(2, 0, dtype=torch.int64, device=device)
        if exclude_seen:
            first = requests.seen_first[rows.start : rows.stop + 1]
            seen = requests.seen[first[0] : first[-1]]
            at = seen - 1 if place is None else place[seen]
            pairs = np.stack([np.repeat(np.arange(count), np.diff(first)), at])[:, at >= 0]
            barred = torch.from_numpy(pairs).to(device)
        scores, ids = best(self.scorer, prepared, candidates, k, (barred[0], barred[1]))
        return scores.cpu().numpy(), ids.cpu().numpy()

    def prepare(self, requests: Requests, rows: slice) -> Any:
        """What scores of any items start from, for some of the requests."""
        given = {name: values[rows].to(self.config["device"]) for name, values in requests.given.items()}
        return self.scorer.prepare(self.request(requests.examples[rows].gather()), given)

    def request(self, batch: Interaction) -> Interaction:
        """Gathered examples as the model takes them, on its device."""
        batch.update(self.catalogue.user_feat[batch[self.user_field]])
        return self.transform(self.catalogue, batch).to(self.config["device"])

    def _ranked(self, users: np.ndarray, scores: np.ndarray, ids: np.ndarray) -> pd.DataFrame:
        if np.isnan(scores).any():
            raise FloatingPointError("the model's scores are not numbers: its training has diverged; train it anew.")
        row, column = np.nonzero(scores > -np.inf)
        return self._frame(users[row], column + 1, ids[row, column], scores[row, column])

    def _frame(self, users: Any, ranks: Any, ids: np.ndarray, scores: Any) -> pd.DataFrame:
        names = {} if self.item_names is None else {ITEM_NAME: pd.Series(self.item_names[ids], dtype=object)}
        return pd.DataFrame({
            self.user_field: pd.Series(users, dtype=object), "rank": pd.Series(ranks, dtype=np.int64),
            self.item_field: pd.Series(self.items.tokens[ids], dtype=object), **names,
            "score": pd.Series(scores, dtype=np.float64),
        })  # fmt: skip


def as_bool(argument: str, value: Any) -> bool:
    """The value of an argument that should be True or False; `InputError` if it is something else."""
    if not isinstance(value, (bool, np.bool_)):
        raise InputError(f"{argument} is {value!r}; it should be True or False.")
    return bool(value)


def _rebuilt(config: Any, state: dict[str, Any], path: str | os.PathLike) -> tuple[Any, DatasetDescription]:
    """The model without its weights, and what stands in for its data; the caller's random numbers stay as they are."""
    if not isinstance(state.get("data"), dict):
        raise InputError(
            f"checkpoint {path} does not say enough of its data to do without; train {state['model']} anew, or use "
            f"load_data_and_model."
        )
    try:
        with random_state.preserved():
            catalogue = DatasetDescription(config, state["data"], state["tokens"], state["time_origin"])
            return build(config, catalogue), catalogue
    except InputError:
        raise
    except (AttributeError, KeyError, TypeError) as error:
        raise InputError(
            f"checkpoint {path} does not say enough of its data for {state['model']} ({error}); use "
            f"load_data_and_model."
        ) from error
