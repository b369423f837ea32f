"""BST: a transformer over the history and the target item, then an MLP."""

from recbole_ext.model.bst.model import BST

__all__ = ["BST"]
