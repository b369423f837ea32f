"""A trained model as something to ask: histories in, ranked items out."""

import os
from collections.abc import Iterable, Iterator
from logging import getLogger
from typing import Any

import numpy as np
import pandas as pd
import torch
from recbole.data.interaction import Interaction
from recbole.data.transform import construct_transform
from recbole.utils import ModelType
from tqdm import tqdm

from recbole_ext import checkpoint
from recbole_ext.config.config import ConfigWithoutData
from recbole_ext.config.paths import check_outputs
from recbole_ext.data.catalogue import Catalogue
from recbole_ext.data.table import Table, values_table
from recbole_ext.errors import InputError
from recbole_ext.evaluation.metrics import for_serving
from recbole_ext.rebuild import build, class_of, config_of, device_named
from recbole_ext.serving.explaining import explain
from recbole_ext.serving.explanation import Explanation
from recbole_ext.serving.exporting import target_file, write
from recbole_ext.serving.histories import Histories, Reader
from recbole_ext.serving.scoring import best, scorer_of
from recbole_ext.serving.training import read_run
from recbole_ext.serving.values import Vocabulary, as_text


class Recommender:
    """Ranks items for histories, by a checkpoint alone; `Recommender.load` makes one.

    Attributes:
        config: what the model was trained with.
        path: of the checkpoint, if there is one.
        model: in evaluation.
        user_field, item_field, time_field (str): names of the columns that histories need.
        items (Vocabulary): the items it knows.
    """

    def __init__(self, config: Any, model: Any, catalogue: Catalogue):
        self.config, self.model, self.catalogue = config, model.eval(), catalogue
        self.user_field, self.item_field, self.time_field = (
            catalogue.uid_field, catalogue.iid_field, catalogue.time_field
        )  # fmt: skip
        self.items = Vocabulary(catalogue.field2id_token[self.item_field])
        self.users = Vocabulary(catalogue.field2id_token[self.user_field])
        self.reader = Reader(catalogue, self.items, self.users, model)
        self.transform = construct_transform(config)
        self.path: str | os.PathLike | None = None  # of the checkpoint
        self.scorer = scorer_of(model, (config["eval_memory_mb"] or 1024) * 2**20, catalogue.item_feat)

    @classmethod
    def load(
        cls, path: str | os.PathLike, device: str | torch.device | None = None, model: type | None = None
    ) -> "Recommender":
        """Rebuild the model of a checkpoint; neither data set nor atomic files are needed.

        Args:
            path: a checkpoint of this package.
            device: where the model goes; `None` means the device its configuration gives on this machine.
            model: the class, for a model that is neither ours nor RecBole's.

        Raises:
            InputError: the checkpoint cannot be read, is of no sequential model, or does not hold enough to rebuild it.
        """
        state = checkpoint.load(path)
        state["optimizer"] = {}  # twice the size of the weights, and of no use here
        network_class = class_of(state, model, str(path))
        state["config"] = for_serving(state["config"])
        config = config_of(ConfigWithoutData, state, network_class, {})
        if config["MODEL_TYPE"] != ModelType.SEQUENTIAL:
            raise InputError(f"checkpoint {path} is of {state['model']}, which is no sequential model: it has no use "
                             f"for histories.")  # fmt: skip
        if device is not None:
            config["device"] = device_named(device)
            config["use_gpu"] = config["device"].type != "cpu"
        network, catalogue = _rebuilt(config, state, path)
        checkpoint.load_weights(network, state, path)
        recommender = cls(config, network, catalogue)
        recommender.path = path
        return recommender

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

        Returns:
            a block of at most k rows for each user asked, in the order asked: user, `rank` from 1, item, `score`.
            Users and items are text.

        Raises:
            InputError: a column is missing or holds something else; a user has no event with a known item; `k` is no
                whole number above 0; no item is left to choose from.
        """
        blocks = list(self.blocks(histories, k, at, exclude_seen, items, users, show_progress))
        return pd.concat(blocks, ignore_index=True) if blocks else self._frame([], [], [], [])

    def blocks(
        self,
        histories: pd.DataFrame | Table,
        k: int = 10,
        at: Any = None,
        exclude_seen: bool = True,
        items: Iterable[Any] | Table | None = None,
        users: Iterable[Any] | Table | None = None,
        show_progress: bool | None = None,
    ) -> Iterator[pd.DataFrame]:
        """The same as `recommend`, some users at a time; what is wrong is said before the first of them."""
        asked = self.reader.read(histories, users, at)
        return self.blocks_of(asked, k, exclude_seen, items, show_progress)

    def blocks_of(
        self,
        asked: Histories,
        k: int = 10,
        exclude_seen: bool = True,
        items: Iterable[Any] | Table | None = None,
        show_progress: bool | None = None,
    ) -> Iterator[pd.DataFrame]:
        """The same of requests that were read before."""
        if isinstance(k, bool) or not isinstance(k, (int, np.integer)) or k < 1:
            raise InputError(f"k is {k!r}; it should be a whole number, at least 1.")
        if not isinstance(exclude_seen, (bool, np.bool_)):
            raise InputError(f"exclude_seen is {exclude_seen!r}; it should be True or False.")
        return self._blocks(asked, int(k), bool(exclude_seen), self._candidates(items), show_progress)

    def explain(
        self, histories: pd.DataFrame | Table, user: Any, item: Any = None, at: Any = None, exclude_seen: bool = True
    ) -> Explanation:
        """Which past events carried a score, and which heads or kernels attended to them.

        Args:
            histories: as for `recommend`; other users' events do not matter.
            user: whose recommendation, one of `histories`.
            item: the item to explain; `None` means the best one.
            at: time of the request, as for `recommend`.
            exclude_seen: whether items of the user's own events have no rank.

        Returns:
            the score and rank, and a row for each event that the model read with its `effect`: the score minus the
            score without that event. See `Explanation`.

        Raises:
            InputError: what `recommend` refuses; the user is not in the histories, or has no event before the request;
                the model does not know the item.
        """
        return explain(self, histories, user, item, at, exclude_seen)

    def write_report(self, explanation: Explanation, path: str | os.PathLike) -> None:
        """Write an explanation as a page for the browser that needs no network, with the learning curves of the run.

        Args:
            explanation: what `explain` returned.
            path: of the HTML file, which is written whole or not at all.

        Raises:
            InputError: the path is that of the checkpoint.
            OSError: the file cannot be written.
        """
        from recbole_ext.serving.why_page import page
        from recbole_ext.whole_file import write_whole

        check_outputs({"path": path}, {"the checkpoint": self.path})
        with write_whole(os.fspath(path)) as file:
            file.write(page(explanation, None if self.path is None else read_run(self.path)).encode())

    def _candidates(self, items: Iterable[Any] | Table | None) -> torch.Tensor | slice:
        """Ids to choose from, ascending."""
        everything = slice(1, len(self.items.tokens))
        if items is None:
            return everything
        tokens = as_text(values_table(items, self.item_field, "items"), self.item_field)
        ids = self.items.ids(tokens)
        if (ids == 0).any():
            example = tokens[np.argmax(ids == 0)]
            getLogger().warning(f"items: {(ids == 0).sum():,} that the model does not know are skipped, '{example}' ..")
        known = np.unique(ids[ids > 0])
        if not len(known):
            raise InputError("items holds no item that the model knows; there is nothing to choose from.")
        return torch.from_numpy(known)

    def _blocks(
        self, asked: Histories, k: int, exclude_seen: bool, candidates: Any, show_progress: bool | None
    ) -> Iterator[pd.DataFrame]:
        place = None
        if not isinstance(candidates, slice):
            place = np.full(len(self.items.tokens), -1)
            place[candidates.numpy()] = np.arange(len(candidates))
            candidates = candidates.to(self.config["device"])
        hide = None if show_progress is None else not show_progress
        with tqdm(total=len(asked), desc="Recommend", unit="user", disable=hide) as bar:
            for begin in range(0, len(asked), self.scorer.rows):
                rows = slice(begin, min(begin + self.scorer.rows, len(asked)))
                scores, ids = self._best(asked, rows, k, exclude_seen, candidates, place)
                yield self._ranked(asked.users[rows], scores, ids)
                bar.update(rows.stop - begin)

    @torch.inference_mode()
    def _best(
        self, asked: Histories, rows: slice, k: int, exclude_seen: bool, candidates: Any, place: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray]:
        device, count = self.config["device"], rows.stop - rows.start
        prepared = self.scorer.prepare(
            self.request(asked.examples[rows].gather()),
            {name: values[rows].to(device) for name, values in asked.given.items()},
        )
        barred = torch.zeros(2, 0, dtype=torch.int64, device=device)
        if exclude_seen:
            first = asked.seen_first[rows.start : rows.stop + 1]
            seen = asked.seen[first[0] : first[-1]]
            at = seen - 1 if place is None else place[seen]
            pairs = np.stack([np.repeat(np.arange(count), np.diff(first)), at])[:, at >= 0]
            barred = torch.from_numpy(pairs).to(device)
        scores, ids = best(self.scorer, prepared, candidates, k, (barred[0], barred[1]))
        return scores.cpu().numpy(), ids.cpu().numpy()

    def request(self, batch: Interaction) -> Interaction:
        """Gathered examples as the model takes them, on its device."""
        batch.update(self.catalogue.user_feat[batch[self.user_field]])
        return self.transform(self.catalogue, batch).to(self.config["device"])

    def _ranked(self, users: np.ndarray, scores: np.ndarray, ids: np.ndarray) -> pd.DataFrame:
        if np.isnan(scores).any():
            raise FloatingPointError("the model's scores are not numbers: its training has diverged; train it anew.")
        row, column = np.nonzero(scores > -np.inf)
        return self._frame(users[row], column + 1, self.items.tokens[ids[row, column]], scores[row, column])

    def _frame(self, users: Any, ranks: Any, items: Any, scores: Any) -> pd.DataFrame:
        return pd.DataFrame({
            self.user_field: pd.Series(users, dtype=object), "rank": pd.Series(ranks, dtype=np.int64),
            self.item_field: pd.Series(items, dtype=object), "score": pd.Series(scores, dtype=np.float64),
        })  # fmt: skip


def _rebuilt(config: Any, state: dict[str, Any], path: str | os.PathLike) -> tuple[Any, Catalogue]:
    """The model without its weights, and what stands in for its data; the caller's random numbers stay as they are."""
    if not isinstance(state.get("data"), dict):
        raise InputError(
            f"checkpoint {path} does not say enough of its data to do without; train {state['model']} anew, or use "
            f"load_data_and_model."
        )
    numbers = np.random.get_state()
    try:
        with torch.random.fork_rng(devices=[]):
            catalogue = Catalogue(config, state["data"], state["tokens"], state["time_origin"])
            return build(config, catalogue), catalogue
    except InputError:
        raise
    except (AttributeError, KeyError, TypeError) as error:
        raise InputError(
            f"checkpoint {path} does not say enough of its data for {state['model']} ({error}); use "
            f"load_data_and_model."
        ) from error
    finally:
        np.random.set_state(numbers)
