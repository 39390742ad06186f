#!/usr/bin/env bash
# All that needs a GPU: tests, the GPU sections of docs/results/performance.md, trainings on Flickr8k and MS COCO.
#
#   tools/on_gpu.sh [FOLDER]     (default runs/on_gpu)
#
# The benchmark beside sgrvinod's tutorial needs a clone of it: SGRVINOD=CLONE tools/on_gpu.sh.
# Run it from the repository, with the extra "photos". Flickr8k is trained where data/flickr8k holds it: all models and all
# estimators of hard attention with three seeds, and the paper's encoder; data/photos holds the photos of
# docs/results/photo_boxes.json and photo_boxes_unseen.json. COCO is trained where data/coco holds it (configs/coco_soft.yaml
# says how). Each step writes FOLDER/STEP.log, and FOLDER/STEP.done when it has succeeded; called again, finished steps are
# skipped and trainings resumed.
set -uo pipefail
folder=${1:-runs/on_gpu}
mkdir -p "$folder"
failed=0

step() { # NAME COMMAND...
    local name=$1
    shift
    [ -e "$folder/$name.done" ] && return 0
    echo "$(date +%T) $name: $*"
    if "$@" >>"$folder/$name.log" 2>&1; then
        touch "$folder/$name.done"
    else
        echo "$name failed; see $folder/$name.log"
        failed=1
        return 1
    fi
}

fit() { # NAME ARGUMENTS...: train into FOLDER/NAME, or resume
    step "$1" caption fit "${@:2}" --trainer.default_root_dir "$folder/$1" --trainer.accelerator gpu \
        --trainer.precision bf16-mixed --ckpt_path auto
}

python -c 'import torch; assert torch.cuda.is_available(), "PyTorch finds no GPU"' || exit 1
step tests python -m pytest -q tests/kernels tests/training/test_compiling.py tests/search/test_search_everywhere.py
for section in training search photos ${SGRVINOD:+sgrvinod}; do
    step "benchmark_$section" python -m tools.benchmark --only "$section" --device cuda ${SGRVINOD:+--sgrvinod "$SGRVINOD"} \
        --write docs/results/performance.md
done
if [ -e data/flickr8k/Flickr8k.token.txt ]; then
    table() { # NAME ARGUMENTS...: a table of docs/results, with three seeds
        step "$1" python -m tools.tables "$1" --data data/flickr8k --photos data/photos --out "$folder/tables" --seeds 0 1 2 \
            "${@:2}" --trainer.accelerator gpu --trainer.precision bf16-mixed --write
    }
    table flickr8k
    table hard_on_flickr8k
    table doubly_stochastic_on_flickr8k
    table attention_flickr8k \
        --model.encoder.init_args '{weights: IMAGENET1K_V1, mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225]}'
    step flickr8k_vgg_features caption features -c flickr8k_vgg --out runs/flickr8k_vgg_features --device cuda
    fit flickr8k_paper_soft -c flickr8k_vgg -c presets/paper_soft \
        --model.optimizer caption.training.arctic_optimizers.ArcticRMSprop --model.optimizer.lr 1.0e-4
    fit flickr8k_arctic_hard -c flickr8k_vgg -c presets/arctic_flickr8k
else
    echo "data/flickr8k is missing: Flickr8k is not trained"
fi
if [ -e data/coco/dataset_coco.json ]; then
    step coco_features caption features -c coco_soft --out runs/coco_features --device cuda
    for preset in "" paper arctic; do
        soft="coco_${preset:+${preset}_}soft" hard="coco_${preset:+${preset}_}hard"
        fit "$soft" -c coco_soft ${preset:+-c "presets/${preset}_soft"} &&
            fit "$hard" -c coco_hard ${preset:+-c "presets/${preset}_hard"} \
                --model.warm_start "$folder/$soft/best.ckpt"
    done
    fit coco_sgrvinod -c coco_soft -c presets/sgrvinod
else
    echo "data/coco is missing: MS COCO is not trained"
fi
exit $failed
