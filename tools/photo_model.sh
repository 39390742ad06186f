#!/usr/bin/env bash
# Trains and scores the model for photos (docs/results/model-card.md), and writes caption/models/photos.{safetensors,lens}.
#
#   pip install ".[photos]" && tools/photo_model.sh [FOLDER]     (default runs/photos)
#   tools/photo_model.sh FOLDER MODEL SEEDS ARGUMENTS...         steps 8 to 10 from the model of step 7, for each seed, side
#                                                                by side: FOLDER/photos_SEED.safetensors and their test
#
# Run it from the repository, with Flickr8k in data/flickr8k (docs/data.md), a part of MS COCO in data/coco_small
# (configs/coco_small.yaml says which), and a larger one in data/coco. Some twelve hours on one thread.
# The four trainings of step 6 took eight minutes side by side on a GPU.
# Called again, it skips what is finished and resumes the rest.
set -euo pipefail
folder=${1:-runs/photos}
model=${2:-}
more=("${@:4}")
mkdir -p "$folder"
larger=(-c training/larger_input --data.features "$folder/larger_features")
largest=(-c training/largest_input --data.features "$folder/largest_features"
    --data.flip.features "$folder/largest_mirrored_features")
with_coco=(-c training/with_coco "${largest[@]}")

fit() { # NAME ARGUMENTS...
    [ -e "$folder/$1.done" ] && return 0
    caption fit -c flickr8k_soft "${@:2}" --trainer.default_root_dir "$folder/$1" \
        --trainer.precision bf16-mixed --ckpt_path auto "${more[@]}"
    touch "$folder/$1.done"
}

joined() { # NAME SEED ARGUMENTS...: both kinds of training on, with COCO
    local smoothed=(--model.decoder.init_args.attention.init_args.smoothing 1.0 --model.objective.init_args.smoothing 1.0)
    fit "$1_guided" -c training/guided_attention "${with_coco[@]}" "${smoothed[@]}" --seed_everything "$2" \
        --model.warm_start "$folder/bleu/best.ckpt" "${@:3}"
    fit "$1" -c training/bleu_reward "${with_coco[@]}" --data.batch_size 64 --model.optimizer.init_args.lr 2.0e-4 \
        --trainer.max_epochs 5 --model.scheduler.init_args.T_max 5 --seed_everything "$2" \
        --model.warm_start "$folder/$1_guided/best.ckpt" "${@:3}"
}

if [ -z "$model" ]; then
    caption features -c flickr8k_soft --out "$folder/features"
    caption features -c flickr8k_soft -c training/larger_input --out "$folder/larger_features"
    caption features -c flickr8k_soft -c training/with_coco -c training/largest_input --out "$folder/largest_features"
    caption features -c flickr8k_soft -c training/with_coco -c training/largest_input \
        --out "$folder/largest_mirrored_features" --mirrored
    # 1. Soft attention. 2. On larger photos, its maps are drawn to where words are seen. 3. Whole captions are rewarded.
    # 4. On still larger photos, attention is smoothed. 5. BLEU-4 is rewarded, too. 6. Photos of COCO join with their words, and
    # whole captions are rewarded again: three seeds, and one training that has each photo of COCO twice. 7. Their weights and
    # those of step 5 are averaged.
    fit soft --data.features "$folder/features"
    fit guided -c training/guided_attention "${larger[@]}" --model.warm_start "$folder/soft/best.ckpt"
    fit rewarded -c training/self_critical_guided "${larger[@]}" \
        --model.warm_start "$folder/guided/best.ckpt"
    fit smoothed -c training/smoothed_attention "${largest[@]}" --model.warm_start "$folder/rewarded/best.ckpt"
    fit bleu -c training/bleu_reward "${largest[@]}" --model.warm_start "$folder/smoothed/best.ckpt"
    for seed in 0 1 2; do
        joined "with_coco_$seed" "$seed" --data.reader.init_args.repeats null
    done
    joined with_coco_twice 0
    mean=("$folder/with_coco_twice/best.ckpt=0.525" "$folder/bleu/best.ckpt=0.25")
    for seed in 0 1 2; do
        mean+=("$folder/with_coco_$seed/best.ckpt=0.075")
    done
    python -m tools.average "$folder/mean.ckpt" "${mean[@]}"
fi

# 8. Photos of COCO without people join, three times in an epoch. The last of the six epochs is taken. 9. Whole captions are
# rewarded, less for persons where nobody is and for nonsense. 10. As step 8, from step 9, half of the photos mirrored: three
# seeds. 11. One epoch of step 9 from the first of them, with its word detectors. 12. The mean of the last four.
python -m tools.by_persons data/coco/captions.json data/coco_people/captions.json data/coco_things/captions.json
everyday=(-c training/everyday --data.features "$folder/everyday_features")
mirrored=(--data.flip "{probability: 0.5, features: $folder/everyday_mirrored_features}")
caption features -c flickr8k_soft "${everyday[@]}" --out "$folder/everyday_features"
caption features -c flickr8k_soft "${everyday[@]}" --out "$folder/everyday_mirrored_features" --mirrored
guided() { # NAME SEED MODEL DECAY ARGUMENTS...
    local averaged="[{class_path: caption.training.weight_averaging.AveragedWeights, init_args: {decay: $4}}]"
    fit "$1" --seed_everything "$2" -c training/guided_attention "${everyday[@]}" --trainer.callbacks "$averaged" \
        --model.decoder.init_args.attention.init_args.smoothing 1.0 --model.objective.init_args.smoothing 1.0 \
        --model.warm_start "$3" "${@:5}"
}
sensible() { # NAME SEED MODEL ARGUMENTS...
    fit "$1" --seed_everything "$2" "${everyday[@]}" -c training/sensible_rewards "${mirrored[@]}" --model.warm_start "$3" "${@:4}"
}
again() { # NAME SEED MODEL
    guided "$1" "$2" "$3" 0.997 "${mirrored[@]}" --trainer.max_epochs 2 --model.scheduler.init_args.T_max 2 \
        --model.optimizer.init_args.lr 4.0e-4
}
everyday_and_sensible() { # MODEL [SEED]
    local suffix=${2:+_$2}
    guided "everyday$suffix" "${2:-0}" "$1" 0.998 --trainer.max_epochs 6 --model.scheduler.init_args.T_max 8
    sensible "sensible$suffix" "${2:-0}" "$folder/everyday$suffix/last.ckpt"
}

of_seed() { # SEED
    everyday_and_sensible "$model" "$1"
    again "again_$1" "$1" "$folder/sensible_$1/best.ckpt"
    [ -e "$folder/photos_$1.safetensors" ] ||
        caption export "$folder/again_$1/last.ckpt" --format safetensors --precision float16 \
            --out "$folder/photos_$1.safetensors"
    caption test -c flickr8k_soft "${everyday[@]}" -c training/sensible_rewards --data.flip null "${more[@]}" \
        --ckpt_path "$folder/again_$1/last.ckpt" --trainer.default_root_dir "$folder/test_$1"
}

if [ -n "$model" ]; then
    running=()
    for seed in $3; do
        of_seed "$seed" &
        running+=($!)
    done
    for each in "${running[@]}"; do
        wait "$each"
    done
    exit
fi
everyday_and_sensible "$folder/mean.ckpt"
for seed in 0 1 2; do
    again "again_$seed" "$seed" "$folder/sensible/best.ckpt"
done
sensible sensible_again 0 "$folder/again_0/last.ckpt" --trainer.max_epochs 1
rm -f "$folder/everyday_mean.ckpt"
python -m tools.average "$folder/everyday_mean.ckpt" "$folder/sensible_again/best.ckpt=0.4" "$folder/again_0/last.ckpt=0.2" \
    "$folder/again_1/last.ckpt=0.2" "$folder/again_2/last.ckpt=0.2"

rm -f "$folder/photos.safetensors"
caption export "$folder/everyday_mean.ckpt" --format safetensors --precision float16 --out "$folder/photos.safetensors"
rm -f "$folder/photos.lens"
caption lens "$folder/photos.safetensors" -c flickr8k_soft -c training/everyday --out "$folder/photos.lens"
cp "$folder/photos.safetensors" "$folder/photos.lens" caption/models/
# From the photos: the stored regions are those of the encoder before its rounding.
caption test -c flickr8k_soft -c training/sensible_rewards -c training/largest_input --data.features null --data.flip null \
    --ckpt_path caption/models/photos.safetensors --trainer.default_root_dir "$folder/test"
caption test -c flickr8k_soft -c training/everyday -c training/sensible_rewards --data.features null \
    --ckpt_path caption/models/photos.safetensors --trainer.default_root_dir "$folder/test_everyday"
