#!/usr/bin/env bash
# All that needs a GPU: tests, the GPU sections of docs/results/benchmarks.md, trainings on Flickr8k and MS COCO.
#
#   tools/on_gpu.sh [FOLDER]     (default runs/on_gpu)
#
# Run it from the repository, with the extra "photos". On an H100 with 16 cores, tests and benchmarks took four minutes.
# Flickr8k is trained where data/flickr8k holds it, three seeds of most rows, and data/photos holds the photos of
# docs/results/photo_boxes.json and photo_boxes_unseen.json. Its trainings run side by side, because one alone leaves the GPU
# idle for half of the time: fifteen took four and a half minutes. JOBS=8 tools/on_gpu.sh sets how many (default: one for each
# core). COCO is trained where data/coco holds it (configs/coco_soft.yaml says how). The benchmark beside sgrvinod's tutorial
# needs a clone of it: SGRVINOD=CLONE tools/on_gpu.sh. Each step writes FOLDER/STEP.log, and FOLDER/STEP.done when it has
# succeeded; called again, finished steps are skipped and trainings resumed.
set -uo pipefail
folder=${1:-runs/on_gpu}
mkdir -p "$folder"
failed=0
export OMP_NUM_THREADS=1

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

row() { # TABLE ROW SEED: train, test and measure one row of a table of docs/results
    step "$1_$2_$3" python -m tools.tables "$1" --rows "$2" --seeds "$3" "${common[@]}"
}

table() { # TABLE SEEDS ROW...: rows of a table side by side; then its sections
    local name=$1 seeds=$2 rows=("${@:3}")
    row "$name" "${rows[0]}" 0 # stores the regions, which all read
    for seed in $seeds; do
        for each in "${rows[@]}"; do
            while [ "$(jobs -rp | wc -l)" -ge "${JOBS:-$(nproc)}" ]; do wait -n; done
            row "$name" "$each" "$seed" &
        done
    done
    wait
    step "${name}_${rows[0]}" python -m tools.tables "$name" --rows "${rows[@]}" --seeds $seeds "${common[@]}" --write
}

common=(--data data/flickr8k --photos data/photos --out "$folder/tables" --anew --trainer.accelerator gpu
    --trainer.precision bf16-mixed --trainer.enable_progress_bar false)
python -c 'import torch; assert torch.cuda.is_available(), "PyTorch finds no GPU"' || exit 1
step tests python -m pytest -q tests/core/test_on_a_gpu.py tests/search/test_search_everywhere.py
for section in training search photos ${SGRVINOD:+sgrvinod}; do
    step "benchmark_$section" python -m tools.benchmark --only "$section" --device cuda ${SGRVINOD:+--sgrvinod "$SGRVINOD"} \
        --write docs/results/benchmarks.md
done
if [ -e data/flickr8k/Flickr8k.token.txt ]; then
    table controls_on_flickr8k "0 1 2" soft fixed_map mean_pooling show_and_tell
    # They start from the soft models of the same seeds, which are trained by now.
    table hard_on_flickr8k "0 1 2" soft paper authors averaged_future leave_one_out
    table entropy_on_flickr8k "0 1 2" soft authors authors_without_entropy authors_of_16 authors_of_16_without_entropy averaged
    table paper_on_flickr8k 0 soft rmsprop one_length ten_thousand_words bleu_stopping all_four paper_soft paper_hard
    table paper_on_flickr8k 0 paper hard_all_four
    table doubly_stochastic_on_flickr8k "0 1 2" soft doubly_stochastic_tenth doubly_stochastic
    step flickr8k_vgg_features caption features --config flickr8k_vgg --out runs/flickr8k_vgg_features --device cuda
    fit flickr8k_paper_soft -c flickr8k_vgg -c presets/paper_soft \
        --model.optimizer caption.training.arctic_optimizers.ArcticRMSprop --model.optimizer.lr 1.0e-4
    fit flickr8k_arctic_hard -c flickr8k_vgg -c presets/arctic_flickr8k
else
    echo "data/flickr8k is missing: Flickr8k is not trained"
fi
if [ -e data/coco/dataset_coco.json ]; then
    step coco_features caption features --config coco_soft --out runs/coco_features --device cuda
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
