#!/usr/bin/env bash
# Trains and scores the model for photos (docs/results/model-card.md), and writes caption/models/photos.safetensors.
#
#   pip install ".[photos]" && tools/photo_model.sh [FOLDER]     (default runs/photos)
#
# Run it from the repository, with Flickr8k in data/flickr8k (caption prepare flickr8k) and a part of MS COCO in
# data/coco_small (configs/coco_small.yaml says which). About five hours on one thread; step 6 and 7 took five minutes on a GPU.
# Called again, it skips what is finished and resumes the rest.
set -euo pipefail
folder=${1:-runs/photos}
mkdir -p "$folder"
larger=(-c training/larger_input --data.features "$folder/larger_features")
largest=(-c training/largest_input --data.features "$folder/largest_features"
    --data.flip.features "$folder/largest_mirrored_features")
with_coco=(-c training/with_coco "${largest[@]}")

fit() { # NAME ARGUMENTS...
    [ -e "$folder/$1.done" ] && return 0
    caption fit -c flickr8k_soft "${@:2}" --trainer.default_root_dir "$folder/$1" \
        --trainer.precision bf16-mixed --ckpt_path auto
    touch "$folder/$1.done"
}

caption features -c flickr8k_soft --out "$folder/features"
caption features -c flickr8k_soft -c training/larger_input --out "$folder/larger_features"
caption features -c flickr8k_soft -c training/with_coco -c training/largest_input --out "$folder/largest_features"
caption features -c flickr8k_soft -c training/with_coco -c training/largest_input \
    --out "$folder/largest_mirrored_features" --mirrored
# 1. Soft attention. 2. On larger photos, its maps are drawn to where words are seen. 3. Whole captions are rewarded.
# 4. On still larger photos, attention is smoothed. 5. BLEU-4 is rewarded, too. 6. Photos of COCO join, with their words.
# 7. Whole captions are rewarded again.
fit soft --data.features "$folder/features"
fit guided -c training/guided_attention "${larger[@]}" --model.warm_start "$folder/soft/best.ckpt"
fit rewarded -c training/self_critical_guided "${larger[@]}" \
    --model.warm_start "$folder/guided/best.ckpt"
fit smoothed -c training/smoothed_attention "${largest[@]}" --model.warm_start "$folder/rewarded/best.ckpt"
fit bleu -c training/bleu_reward "${largest[@]}" --model.warm_start "$folder/smoothed/best.ckpt"
fit guided_with_coco -c training/guided_attention "${with_coco[@]}" --model.warm_start "$folder/bleu/best.ckpt" \
    --model.decoder.init_args.attention.init_args.smoothing 1.0 --model.objective.init_args.smoothing 1.0
fit rewarded_with_coco -c training/bleu_reward "${with_coco[@]}" --model.warm_start "$folder/guided_with_coco/best.ckpt" \
    --data.batch_size 64 --model.optimizer.init_args.lr 2.0e-4 \
    --trainer.max_epochs 5 --model.scheduler.init_args.T_max 5

rm -f "$folder/photos.safetensors"
caption export "$folder/rewarded_with_coco/best.ckpt" --format safetensors --precision float16 --beam-size 3 \
    --out "$folder/photos.safetensors"
cp "$folder/photos.safetensors" caption/models/
# From the photos: the stored regions are those of the encoder before its rounding.
caption test -c flickr8k_soft -c training/bleu_reward \
    -c training/largest_input --data.features null --data.flip null \
    --ckpt_path caption/models/photos.safetensors --model.search.init_args.beam_size 3 \
    --trainer.default_root_dir "$folder/test"
caption test -c coco_small --data.features null --ckpt_path caption/models/photos.safetensors \
    --trainer.default_root_dir "$folder/test_coco"
