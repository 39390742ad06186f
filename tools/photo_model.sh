#!/usr/bin/env bash
# Trains the installed model for photos (docs/model-card.md), scores it, and writes caption/models/photos.safetensors.
#
#   pip install ".[photos]" && tools/photo_model.sh [FOLDER]     (default runs/photos)
#
# Run it from the repository, with Flickr8k in data/flickr8k (caption prepare flickr8k). An hour and a half on two cores.
# Called again, it skips what is finished and resumes the rest.
set -euo pipefail
folder=${1:-runs/photos}
mkdir -p "$folder"
base=(-c configs/flickr8k_soft.yaml)
named=("${base[@]}" -c configs/training/without_hidden.yaml)
tuned=("${named[@]}" -c configs/training/fine_tuning.yaml)
without_hidden=--model.decoder.init_args.readout.init_args.without_hidden

fit() { # NAME ARGUMENTS...
    [ -e "$folder/$1.done" ] && return 0
    caption fit "${@:2}" --trainer.default_root_dir "$folder/$1" --trainer.precision bf16-mixed --ckpt_path auto
    touch "$folder/$1.done"
}

caption features --config configs/flickr8k_soft.yaml --out "$folder/features"
# 1. Attention over frozen regions. 2. The context must tell the word. 3. The encoder learns, and the maps become sharper.
fit soft "${base[@]}" --data.features "$folder/features"
fit named "${named[@]}" --data.features "$folder/features" --model.warm_start "$folder/soft/best.ckpt" \
    --trainer.max_epochs 2 --model.scheduler.init_args.T_max 2 --model.optimizer.init_args.lr 5e-4
fit tuned "${tuned[@]}" --model.warm_start "$folder/named/best.ckpt" \
    "$without_hidden" 0.3 --model.objective.init_args.entropy 0.05

rm -f "$folder/photos.safetensors"
caption export "$folder/tuned/best.ckpt" --format safetensors --precision float16 --out "$folder/photos.safetensors"
cp "$folder/photos.safetensors" caption/models/
caption test "${tuned[@]}" --ckpt_path caption/models/photos.safetensors --trainer.default_root_dir "$folder/test"
