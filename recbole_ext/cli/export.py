"""`recbole-ext export`: from a checkpoint to a program that torch alone serves."""

import os
from collections.abc import Sequence

from recbole_ext.cli.options import FILE, OptionParser
from recbole_ext.utils.paths import check_outputs
from recbole_ext.utils.validators import Str

parser = OptionParser(
    "export",
    "export --checkpoint=FILE --out=FILE.pt2 [--device=NAME]",
    "Write the scoring of MEANTIME, LightSANs, BST or TiSASRec as a program of torch.export, which torch alone loads\n"
    "and runs. The file holds the item tokens and the meaning of the inputs in serving.json. The program is compared\n"
    "with the model on random requests, and not written if they differ.",
)
parser.add_option("checkpoint", "FILE", FILE, "the file that training wrote", required=True)
parser.add_option(
    "out", "FILE", Str(expected="the name of a file that ends in .pt2"), "the program, a file that ends in .pt2",
    required=True,
)  # fmt: skip
parser.add_option(
    "device", "NAME", Str(expected="the name of a device, e.g. cpu"),
    "where it will run: cpu (default), or cuda:0 for a GPU, which this machine must have", "cpu",
)  # fmt: skip


def main(argv: Sequence[str]) -> None:
    options = parser.parse(argv)
    check_outputs({"--out": options.out}, {"--checkpoint": options.checkpoint})

    from recbole_ext.serving.exporter import program_file
    from recbole_ext.serving.recommender import Recommender

    out = program_file(options.out)
    difference = Recommender.load(options.checkpoint, options.device).export(out)
    size = os.path.getsize(out) / 2**20
    print(f"{out}: {size:.1f} MiB; largest difference from the model on random requests: {difference:.1e}")
