"""What `--help` prints for each command."""

RUN = """usage: recbole-ext [run] --model=MODEL [--dataset=NAME] [--key=value | --key value ...]
       recbole-ext tune --model=MODEL [...]            search for hyper-parameters; see recbole-ext tune --help
       recbole-ext recommend --checkpoint=FILE [...]   rank items for users; see recbole-ext recommend --help
       recbole-ext explain --checkpoint=FILE [...]     why a user gets an item; see recbole-ext explain --help
       recbole-ext export --checkpoint=FILE --out=FILE a program that torch alone serves; see recbole-ext export --help

Train a model, choose its best epoch on validation data and evaluate that on test data.

  --model=NAME             MEANTIME, LightSANs, BST, or a model of RecBole (SASRec, BERT4Rec, DIN, Pop, ...);
                           recbole.LightSANs is RecBole's
  --dataset=NAME           stem of the atomic files; ml-100k if left out, which comes with RecBole
  --data_path=FOLDER       where the data sets lie
  --config_files="A B"     YAML files with keys, or presets by name, e.g. BST-clicks; a name with blanks needs quotes of
                           its own among several: "A 'my file.yaml'"
  --json=FILE              write the result there, for scripts; - prints it in place of the table
  --per_user=FILE          write the test metrics of each user there: .csv or .parquet
  --saved=False            keep no checkpoint; the last epoch is tested
  --resume=FILE            go on from a checkpoint where that training ended, by itself or not, with all its keys;
                           --epochs=N to go further. Neither --model nor --dataset is needed
  --log_dir=FOLDER         where the folders log and log_tensorboard are made (the working directory)
  --any_key=value          every key of RecBole and of the model, e.g. --epochs=5 --topk=[5,10]
  --help, --version

Exit status: 0 done, 1 failed while running, 2 the request was wrong, 130 interrupted, 143 terminated.
"""
TUNE = """usage: recbole-ext tune --model=MODEL [--dataset=NAME] [--option=value ...] [--key=value ...]

Search for the keys that are best on the validation data, with Ray Tune, then test the best trial once. Keys that are
given stay as they are; the search space changes the others.

  --space=FILE             keys and what to try, in YAML or as RecBole's hyper.test; ours for our models
  --num_samples=N          trials (20); with grids, for each point of the grid (1)
  --scheduler=NAME         what stops trials early: asha (default), median, none
  --search_alg=NAME        what proposes values: random (default), optuna, hyperopt
  --grace_period=EPOCHS    no trial is stopped before (10, or a fifth of the epochs)
  --time_budget=SECONDS    end with what there is by then
  --cpus_per_trial=N --gpus_per_trial=N   fractions too; a GPU where there is one, and 1 CPU
  --max_concurrent=N       trials at one time, at most
  --address=auto           use the Ray cluster that this machine belongs to
  --storage_path=FOLDER    where the search gets its folder (tune_results)
  --keep_checkpoints=K     of the K best trials (1)
  --resume[=FOLDER]        continue that search, or the newest one (of --model and --dataset, if given)
  --json=FILE --config_files="A B" --data_path=FOLDER --any_key=value   as without tune

Its folder gets best.yaml (for --config_files), trials.csv, report.html and checkpoints/.
Exit status: as without tune; 1 when no trial came to a result.
"""
RECOMMEND = """usage: recbole-ext recommend --checkpoint=FILE --histories=FILE --out=FILE [--option=value ...]

Rank items for users by what they did, with a checkpoint and without the data it was trained on.

  --checkpoint=FILE        what training wrote
  --histories=FILE         events: user, item and time, in columns called as in training; .inter, .csv or .parquet. A
                           model that reads no times does without: then the order of the rows counts
  --all_users              instead: everyone in the training data, which lies where it lay or at --data_path=FOLDER
  --out=FILE               recommendations: .csv or .parquet, a line for each item, or .jsonl, a line for each user
  --k=N                    items for each user (10)
  --at=TIME                time of the request, as in the histories; later events are left out. Default: after the last
  --exclude_seen=False     recommend items of the user's own events, too
  --trained_items_only     leave out items without a training event, of which the model has learnt nothing
  --items=FILE             choose among these only, one a line
  --users=FILE             ask for these only, in this order, one a line
  --item_names=FILE        a column of names: from a file with two columns, items and names. Default: the names that the
                           checkpoint holds, if any (training key item_names); False for none
  --device=NAME            cpu, cuda:0; by default what training would use here
  --show_progress=False    no bar

Exit status: 0 done, 1 failed while running, 2 the request was wrong, 130 interrupted, 143 terminated.
"""
EXPLAIN = """usage: recbole-ext explain --checkpoint=FILE --histories=FILE --user=USER [--option=value ...]

Tell which past events of a user carried the score of an item, and which heads or kernels looked at them.

  --checkpoint=FILE        what training wrote
  --histories=FILE         events: user, item and time, in columns called as in training; .inter, .csv or .parquet. A
                           model that reads no times does without: then the order of the rows counts
  --user=USER              one of them
  --item=ITEM              the item to explain; the user's best one if left out
  --at=TIME                time of the request, as in the histories; later events are left out. Default: after the last
  --report=FILE.html       a page with pictures that needs no network, with the learning curves of the training
  --out=FILE.csv           a line for each event: time, effect on the score, attention of each head
  --json=FILE.json         all of it, for scripts
  --exclude_seen=False     rank the items of the user's own events, too
  --trained_items_only     rank no items without a training event
  --item_names=FILE        names beside items: from a file with two columns, items and names. Default: the names that
                           the checkpoint holds, if any (training key item_names); False for none
  --device=NAME            cpu, cuda:0; by default what training would use here

Exit status: 0 done, 1 failed while running, 2 the request was wrong, 130 interrupted, 143 terminated.
"""
EXPORT = """usage: recbole-ext export --checkpoint=FILE --out=FILE.pt2 [--device=NAME]

Write the scoring of MEANTIME, LightSANs or BST as a program of torch.export, which torch alone loads and runs. The file
holds the tokens of the items and the meaning of the inputs in serving.json. The program is compared with the model on
random requests, and not written if it differs.

  --checkpoint=FILE        what training wrote
  --out=FILE               the program, ending in .pt2
  --device=NAME            where it will run (cpu); cuda:0 for a GPU, which this machine must have

Exit status: 0 done, 1 failed while running, 2 the request was wrong, 130 interrupted, 143 terminated.
"""
USAGE = {"run": RUN, "tune": TUNE, "recommend": RECOMMEND, "explain": EXPLAIN, "export": EXPORT}
