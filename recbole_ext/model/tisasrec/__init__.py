"""TiSASRec: causal self-attention with embeddings of positions and of time intervals."""

from recbole_ext.model.tisasrec.model import TiSASRec

__all__ = ["TiSASRec"]
