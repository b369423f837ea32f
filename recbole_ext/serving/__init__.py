"""From a checkpoint to recommendations, without the data set that the model was trained on."""

from recbole_ext.serving.recommender import Recommender

__all__ = ["Recommender"]
