#!/bin/sh
# litebert-en-2 from its token store to its figures:
#
#     sh src/litebert_lab/litebert_en/make_2.sh STORE GLUE OUT
#
# STORE is made as docs/litebert_en.md says ("litebert-en-2"). On one H200 it takes nine minutes of training, which begins
# with litebert-en, and three minutes of fine-tuning. The run reads the first three shards of the store: what could be
# carried to the GPU at once. BUDGET and FIELDS change what is done, for a trial: BUDGET=60s FIELDS=batches.tokens=4096.
set -eu
store=$1 glue=$2 out=$3
mkdir -p "$out"
if [ ! -d "$out/store" ]; then
    python -m litebert_lab.litebert_en.pack "$store" -o "$out/parts" --megabytes 34
    mkdir "$out/store" && tar -xJf "$out/parts/part-00.tar.xz" -C "$out/store"
fi
if [ ! -f "$out/run/model/model.safetensors" ]; then
    resume=$([ -f "$out/run/run.json" ] && echo --resume || true)
    litebert pretrain albert-base --from litebert-en --corpus "$out/store" --out "$out/run" --budget "${BUDGET:-552s}" \
        objective=replaced replaced_weight=25 order_grad_ratio=0 masking=plain mask_rate=0.15 \
        schedule.kind=linear schedule.warmup=0.03 batches.tokens=65536 batches.lengths=512 \
        averaging.kind=ema averaging.span=0.02 \
        optimiser.muon_rate=0.003 optimiser.rate=3e-4 optimiser.weight_decay=0.01 ${FIELDS:-} $resume
fi
python -m litebert_lab.litebert_en.results "$out/run/model" sst2:max_steps=4000 --settings budget --glue "$glue" \
    -o "$out/results" --jobs "${JOBS:-12}" ${RESULTS:-}
echo "python -m litebert_lab.litebert_en.ship $out/run --name litebert-en-2 --card CARD.md puts it into the package"
