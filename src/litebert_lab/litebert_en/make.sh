#!/bin/sh
# litebert-en from its token store to its card, the figures of the card included:
#
#     sh src/litebert_lab/litebert_en/make.sh STORE GLUE SQUAD RACE OUT
#
# STORE is made as docs/litebert_en.md says, SQUAD by examples/squad_by_article.py. On one H200 it takes 37 minutes of
# training and a quarter of an hour of fine-tuning. Stopped, the same command goes on. FIRST, SECOND, MODEL, FIELDS,
# RESULTS and DEPTHS change what is done, for a trial: FIRST=10s SECOND=10s MODEL=albert-tiny FIELDS=batches.tokens=4096.
set -eu
here=$(dirname "$0")
store=$1 glue=$2 squad=$3 race=$4 out=$5
mkdir -p "$out"

pretrain() { # FOLDER, then what the command has
    folder=$1
    shift
    if [ ! -f "$out/$folder/model/model.safetensors" ]; then
        resume=$([ -f "$out/$folder/run.json" ] && echo --resume || true)
        litebert pretrain "${MODEL:-albert-base}" --corpus "$store" --out "$out/$folder" "$@" $earlier ${FIELDS:-} $resume
    fi
}

# The recipe as it was when both parts ran, and of the first: growth by shares of the time, the order loss from a fifth on.
earlier="reference_tokens=0 order_grad_ratio=0 optimiser.pooler_rate_at_width=0"
pretrain first --budget "${FIRST:-24m}" batches.tokens=32768 reference_steps=0 growth.order_from=0.2 \
    'batches.lengths=[[0.0,128],[0.88,512]]' 'growth.depths=[[0.0,0.25],[0.3,0.5],[0.55,1.0]]'
[ -d "$out/first16" ] || litebert convert "$out/first/model" "$out/first16" --dtype bfloat16
pretrain second --budget "${SECOND:-810s}" --from "$out/first16" --seed 1 --save-every 60s \
    batches.lengths=512 batches.tokens=65536 optimiser.muon_rate=0.0085 optimiser.rate=0.0009 optimiser.weight_decay=0.035
[ -d "$out/litebert-en" ] || litebert convert "$out/second/model" "$out/litebert-en" --dtype bfloat16
python -m litebert_lab.litebert_en.results "$out/litebert-en" sst2:max_steps=4000 race-middle:length=320 --settings budget \
    --glue "$glue" --squad "$squad" --race "$race" -o "$out/results" --depths 12,9,6,4 --jobs 14 ${RESULTS:-}
[ -s "$out/held_out.json" ] ||
    litebert evaluate "$out/litebert-en" --corpus "$store" --depths "${DEPTHS:-9,6,4}" --json >"$out/held_out.json"
litebert-lab card "$out/second" --after "$out/first" --model "$out/litebert-en" --results "$out/results/results.json" \
    --results "$out/held_out.json" --corpus "$store" --hardware "one H200" --watts 700 --text "$here/text.md" --limits "$here/limits.md" \
    --name litebert-en --command "sh src/litebert_lab/litebert_en/make.sh store glue squad race out" -o "$out/CARD.md"
echo "the card is $out/CARD.md; python -m litebert_lab.litebert_en.ship $out/litebert-en --card $out/CARD.md puts it into the package"
