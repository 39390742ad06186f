#!/usr/bin/env bash
# All that needs a GPU: tests, benchmarks, profiles, and the trainings on Flickr8k and MS COCO that wait for one.
#
#   tools/on_gpu.sh [FOLDER [BACK]]     (default runs/on_gpu)
#
# Run it from the repository, with the extra "photos". In this order: the tests of a GPU (two minutes), all forms of a training
# step and of search with a profile (five), the parts from photos to captions (one), the other benchmarks (four), the controls
# of Flickr8k with ten seeds, the model for photos with three, and the rest. Each step writes FOLDER/STEP.log, and
# FOLDER/STEP.done when it has succeeded, or STEP.failed. Called again, both are skipped and trainings resumed; remove
# STEP.failed to try once more.
#
# On a machine that is rented for some minutes at a time:
#   LIMIT=560 tools/on_gpu.sh FOLDER BACK
# ends all work before LIMIT seconds are over, with exit code 3 if some is left, and leaves in BACK at most seven files of 15 MB:
# results.tar.gz (logs, numbers, tables: unpack it here before the next call; to go on elsewhere, name it in EARLIER) and models
# that were finished, in parts to be joined with cat. ONLY="tests forms" runs some of: tests forms parts benchmarks controls
# photos more.
# Photos that do not fit in one call come in parts. In the calls before the trainings, with nothing else in the tree:
#   tar -cf - -C data/flickr8k . | split -b 56M -d - flickr8k.tar.       # four parts of 216 MB, photos as they are
#   PART=flickr8k.tar.00 PARTS=4 tools/on_gpu.sh FOLDER                   # moves the part to FOLDER, unpacks when all are there
#
# Trainings run side by side, because one alone leaves the GPU idle for half of the time: fifteen of Flickr8k's took four and a
# half minutes on an H100 with 16 cores. JOBS=8 sets how many (default: one for each core). data/flickr8k holds Flickr8k,
# data/coco_small and data/coco the parts of COCO that configs/coco_small.yaml and tools/photo_model.sh name, data/coco the whole
# of COCO for configs/coco_soft.yaml, data/photos the photos of docs/results/photo_boxes.json. PHOTOS_FROM is the model from which
# the model for photos goes on (step 7 of tools/photo_model.sh), SGRVINOD a clone of sgrvinod's tutorial.
# GRAPHS=true trains with --model.graphs, which the section "forms" of the benchmarks has to show first.
set -uo pipefail
folder=${1:-runs/on_gpu} back=${2:-}
limit=${LIMIT:-1000000}
sections=" ${ONLY:-tests forms parts benchmarks controls photos more} "
device=${DEVICE:-cuda} quick=${QUICK:-} # DEVICE=cpu QUICK=--quick tries this script without a GPU
export OMP_NUM_THREADS=1 PYTHONUNBUFFERED=1
mkdir -p "$folder"
caption() { python -m caption "$@"; } # for tools/photo_model.sh, where the package is not installed
export -f caption

left() { echo $((limit - 15 - SECONDS)); } # what it has begun may take so long to end

step() { # NAME SECONDS COMMAND...: unless it is done, or fewer seconds are left than it needs at least
    local name=$1 least=$2
    shift 2
    [ -e "$folder/$name.done" ] && return 0
    [ -e "$folder/$name.failed" ] && touch "$folder/failed" && return 1
    if [ "$(left)" -lt "$least" ]; then
        touch "$folder/later"
        return 1
    fi
    echo "$(date +%T) $name: $*"
    timeout --kill-after 14 "$(left)" "$@" >>"$folder/$name.log" 2>&1
    case $? in
        0) touch "$folder/$name.done" ;;
        124 | 137 | 143) touch "$folder/later" && return 1 ;;
        *)
            echo "$name failed; see $folder/$name.log: $(grep -iE '^caption:|error|failed' "$folder/$name.log" | head -n 1)"
            touch "$folder/$name.failed" "$folder/failed"
            return 1
            ;;
    esac
}

part_of() { [[ $sections == *" $1 "* ]]; }

benchmark() { # SECTION SECONDS ARGUMENTS...
    # A try without a GPU writes nothing into the documents.
    local document=(--write docs/results/benchmarks.md)
    [ "$device" = cpu ] && document=()
    step "benchmark_$1" "$2" python -m tools.benchmark --only "$1" --device "$device" $quick "${document[@]}" "${@:3}"
}

fit() { # NAME ARGUMENTS...: train into FOLDER/NAME, or resume
    step "$1" 60 python -m caption fit "${@:2}" "${training[@]}" --trainer.default_root_dir "$folder/$1" --ckpt_path auto
}

row() { # TABLE ROW SEED: train, test and measure one row of a table of docs/results
    step "$1_$2_$3" 45 python -m tools.tables "$1" --rows "$2" --seeds "$3" "${common[@]}"
}

table() { # TABLE SEEDS ROW...: rows of a table side by side; then its sections
    local name=$1 seeds=$2 rows=("${@:3}")
    row "$name" "${rows[0]}" "${seeds%% *}" # stores the regions, which all read
    for seed in $seeds; do
        for each in "${rows[@]}"; do
            while [ "$(jobs -rp | wc -l)" -ge "${JOBS:-$(nproc)}" ]; do wait -n; done
            row "$name" "$each" "$seed" &
        done
    done
    wait
    for each in "${rows[@]}"; do
        for seed in $seeds; do
            [ -e "$folder/${name}_${each}_$seed.done" ] || return 1
        done
    done
    [ "$device" = cpu ] || step "${name}_${rows[0]}" 20 \
        python -m tools.tables "$name" --rows "${rows[@]}" --seeds $seeds "${common[@]}" --write
}

epochs() { # GRAPHS: eight epochs of flickr8k_soft from stored regions, alone on the GPU; the log ends with their time
    # A time is that of a whole run, so one that was cut off begins again.
    [ -e "$folder/epochs_graphs_$1.done" ] || rm -rf "$folder/epochs_graphs_$1" "$folder/epochs_graphs_$1.log"
    step "epochs_graphs_$1" 240 bash -c 'time python -m caption fit -c flickr8k_soft "$@"' epochs \
        --data.features "$(find "$folder/tables/regions" -mindepth 1 -maxdepth 1 | head -n 1)" "${training[@]}" \
        --model.graphs "$1" --trainer.default_root_dir "$folder/epochs_graphs_$1" --trainer.enable_progress_bar false
}

bring_back() { # into BACK, where there is one
    [ -n "$back" ] || return 0
    mkdir -p "$back"
    find "$folder" docs/results -newer "$folder/began" -type f \
        \( -name '*.json' -o -name '*.log' -o -name '*.done' -o -name '*.md' -o -name '*.csv' \) -size -2000k -print0 |
        tar -czf "$back/results.tar.gz" --null -T -
    local room=60000000 model size
    for model in "$folder"/*.safetensors; do
        size=$(stat -c %s "$model" 2>/dev/null || echo 0)
        [ "$size" = 0 ] || [ -e "$model.brought" ] || [ "$size" -gt "$room" ] && continue
        split -b 15M -d -a 1 "$model" "$back/$(basename "$model" .safetensors)." && touch "$model.brought"
        room=$((room - (size / 15728640 + 1) * 15728640))
    done
}

finish() {
    local code=0
    [ -e "$folder/later" ] && code=3 && echo "some work is left: call this again"
    [ -e "$folder/failed" ] && code=1
    bring_back
    exit $code
}

if [ -n "${PART:-}" ]; then
    mkdir -p "$folder/parts" data/flickr8k
    mv "$PART" "$folder/parts/"
    if [ "$(find "$folder/parts" -type f | wc -l)" = "$PARTS" ]; then
        cat "$folder"/parts/* | tar -xf - -C data/flickr8k && rm -r "$folder/parts"
    fi
    exit
fi
rm -f "$folder/later" "$folder/failed"
[ -e "$folder/began" ] || touch "$folder/began"
[ -n "${EARLIER:-}" ] && tar -xzmf "$EARLIER" # as new files, which are brought back again
[ "$device" = cpu ] ||
    python -c 'import torch; assert torch.cuda.is_available(), "PyTorch finds no GPU"' || exit 1
training=(--trainer.accelerator gpu --trainer.precision bf16-mixed --model.graphs "${GRAPHS:-false}")
[ "$device" = cpu ] && training=(--trainer.accelerator cpu --trainer.limit_train_batches 2)
common=(--data data/flickr8k --photos data/photos --out "$folder/tables" --anew --trainer.enable_progress_bar false
    "${training[@]}")

part_of tests && step tests 60 python -m pytest -q tests/core/test_on_a_gpu.py tests/search/test_search_everywhere.py
part_of forms && benchmark forms 120 --json "$folder/forms.json"
part_of parts && benchmark parts 60 --json "$folder/parts.json"
if part_of benchmarks; then
    for section in training search photos ${SGRVINOD:+sgrvinod}; do
        benchmark "$section" 60 ${SGRVINOD:+--sgrvinod "$SGRVINOD"}
    done
fi
if [ ! -e data/flickr8k/Flickr8k.token.txt ]; then
    echo "data/flickr8k is missing: Flickr8k is not trained"
    finish
fi
if part_of controls; then
    row controls_on_flickr8k soft 0 # stores the regions
    epochs false
    epochs true
    table controls_on_flickr8k "${SEEDS:-0 1 2 3 4 5 6 7 8 9}" soft fixed_map mean_pooling mean_once
fi
if part_of photos; then
    if [ -n "${PHOTOS_FROM:-}" ] && [ -e data/coco/captions.json ]; then
        step photos 90 tools/photo_model.sh "$folder/photos" "$PHOTOS_FROM" "0 1 2" "${training[@]}"
        cp "$folder"/photos/photos_*.safetensors "$folder/" 2>/dev/null
    else
        echo "PHOTOS_FROM or data/coco is missing: the model for photos is not trained"
    fi
fi
part_of more || finish
# They start from the soft models of the same seeds, which the controls have trained.
table hard_on_flickr8k "0 1 2" soft paper authors averaged_future leave_one_out
table entropy_on_flickr8k "0 1 2" soft authors authors_without_entropy authors_of_16 authors_of_16_without_entropy averaged
table paper_on_flickr8k 0 soft rmsprop one_length ten_thousand_words bleu_stopping all_four paper_soft paper_hard
table paper_on_flickr8k 0 paper hard_all_four
table doubly_stochastic_on_flickr8k "0 1 2" soft doubly_stochastic_tenth doubly_stochastic
step flickr8k_vgg_features 60 python -m caption features --config flickr8k_vgg --out runs/flickr8k_vgg_features --device "$device"
fit flickr8k_paper_soft -c flickr8k_vgg -c presets/paper_soft \
    --model.optimizer caption.training.arctic_optimizers.ArcticRMSprop --model.optimizer.lr 1.0e-4
fit flickr8k_arctic_hard -c flickr8k_vgg -c presets/arctic_flickr8k
if [ -e data/coco/dataset_coco.json ]; then
    step coco_features 60 python -m caption features --config coco_soft --out runs/coco_features --device "$device"
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
finish
