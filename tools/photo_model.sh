#!/usr/bin/env bash
# Trains and scores the model for photos (docs/results/model-card.md), and writes caption/models/photos.safetensors.
#
#   pip install ".[photos]" && tools/photo_model.sh [FOLDER]     (default runs/photos)
#
# Run it from the repository, with Flickr8k in data/flickr8k (caption prepare flickr8k). About three hours.
# Called again, it skips what is finished and resumes the rest.
set -euo pipefail
folder=${1:-runs/photos}
mkdir -p "$folder"
larger=(-c configs/training/larger_input.yaml --data.features "$folder/larger_features")
largest=(-c configs/training/largest_input.yaml --data.features "$folder/largest_features"
    --data.flip.features "$folder/largest_mirrored_features")

fit() { # NAME ARGUMENTS...
    [ -e "$folder/$1.done" ] && return 0
    caption fit -c configs/flickr8k_soft.yaml "${@:2}" --trainer.default_root_dir "$folder/$1" \
        --trainer.precision bf16-mixed --ckpt_path auto
    touch "$folder/$1.done"
}

caption features -c configs/flickr8k_soft.yaml --out "$folder/features"
caption features -c configs/flickr8k_soft.yaml -c configs/training/larger_input.yaml --out "$folder/larger_features"
caption features -c configs/flickr8k_soft.yaml -c configs/training/largest_input.yaml --out "$folder/largest_features"
caption features -c configs/flickr8k_soft.yaml -c configs/training/largest_input.yaml \
    --out "$folder/largest_mirrored_features" --mirrored
# 1. Soft attention. 2. On larger photos, its maps are drawn to where words are seen. 3. Whole captions are rewarded.
# 4. On still larger photos, attention is smoothed. 5. BLEU-4 is rewarded, too.
fit soft --data.features "$folder/features"
fit guided -c configs/training/guided_attention.yaml "${larger[@]}" --model.warm_start "$folder/soft/best.ckpt"
fit rewarded -c configs/training/self_critical_guided.yaml "${larger[@]}" \
    --model.warm_start "$folder/guided/best.ckpt"
fit smoothed -c configs/training/smoothed_attention.yaml "${largest[@]}" --model.warm_start "$folder/rewarded/best.ckpt"
fit bleu -c configs/training/bleu_reward.yaml "${largest[@]}" --model.warm_start "$folder/smoothed/best.ckpt"

rm -f "$folder/photos.safetensors"
caption export "$folder/bleu/best.ckpt" --format safetensors --precision float16 --beam-size 3 \
    --out "$folder/photos.safetensors"
cp "$folder/photos.safetensors" caption/models/
# From the photos: the stored regions are those of the encoder before its rounding.
caption test -c configs/flickr8k_soft.yaml -c configs/training/bleu_reward.yaml \
    -c configs/training/largest_input.yaml --data.features null --data.flip null \
    --ckpt_path caption/models/photos.safetensors --model.search.init_args.beam_size 3 \
    --trainer.default_root_dir "$folder/test"
