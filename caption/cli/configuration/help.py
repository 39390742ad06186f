"""The help of Lightning's verbs, whose options would fill twenty screens: the main ones."""

SUMMARY = """\
usage: caption {verb} -c CONFIG [-c CONFIG ...] [--GROUP.OPTION VALUE ...]

{summary}. Every entry of a configuration is an option: --trainer.max_epochs 3.

options that are changed most often:
  -c, --config                      a YAML file, or a name that `caption configs` lists; may be repeated, the last one
                                    counts
  --ckpt_path                       the checkpoint; auto, best, last: those of the run's folder
  --seed_everything                 seed of all random numbers
  --trust                           import classes of this package that a checkpoint names; its code runs
  --print_config                    print the whole configuration, and do nothing
  --trainer.max_epochs              number of epochs
  --trainer.default_root_dir        folder of the run: checkpoints and logs
  --trainer.accelerator             cpu, gpu, mps, auto
  --trainer.precision               32-true, bf16-mixed, 16-mixed, ...
  --data.reader                     reads the captions
  --data.batch_size                 images in a batch
  --data.features                   folder of precomputed regions, from caption features
  --model.encoder                   image to regions
  --model.decoder                   regions to words, with its attention
  --model.objective                 what is minimised
  --model.optimizer                 for the decoder
  --model.encoder_learning_rate     fine-tunes the encoder
  --model.warm_start                model with initial weights: a checkpoint, or the name of an installed one
  --early_stopping.patience         validations without progress after which training ends

groups: trainer, model, data, checkpoint (which epoch is kept), last_checkpoint (how often the state is saved),
early_stopping, attention_figures (in TensorBoard), attention_temperature, optimizer, lr_scheduler. --help all lists
all options of all groups.

--model.decoder.help CLASS, and so on for other parts, lists the arguments of a class.
"""
