#!/bin/sh
# litebert-en-2 from its token store to its figures:
#
#     sh src/litebert_lab/litebert_en/make_2.sh STORE GLUE OUT
#
# STORE is made as docs/litebert_en.md says ("litebert-en-2"). On one H200 it takes 21 minutes of training in two runs, the
# first from litebert-en on the first part of the text, the second on all four parts, and then three minutes of
# fine-tuning. What is done is not done again. FIRST and SECOND (budgets) and FIELDS change what is done, for a trial:
# FIRST=60s SECOND=60s FIELDS=batches.tokens=4096.
set -eu
store=$1 glue=$2 out=$3
mkdir -p "$out"
if [ ! -d "$out/parts" ]; then
    python -m litebert_lab.litebert_en.pack "$store" -o "$out/packed" --apart --megabytes 34 58
    mkdir "$out/unpacked"
    for packed in "$out"/packed/part-*.tar.xz; do
        part=$out/unpacked/$(basename "$packed" .tar.xz)
        mkdir "$part" && tar -xJf "$packed" -C "$part"
    done
    mv "$out/unpacked" "$out/parts"
fi

# train RUN START BUDGET [WORDS]: a run of replaced-token detection, resumed where it was stopped
train() {
    run=$1 start=$2 budget=$3
    shift 3
    [ ! -f "$run/model/model.safetensors" ] || return 0
    resume=$([ -f "$run/run.json" ] && echo --resume || true)
    litebert pretrain albert-base --from "$start" --out "$run" --budget "$budget" "$@" \
        objective=replaced replaced_weight=25 order_grad_ratio=0 masking=plain mask_rate=0.15 \
        schedule.kind=linear schedule.warmup=0.03 batches.tokens=65536 batches.lengths=512 \
        averaging.kind=ema averaging.span=0.02 \
        optimiser.muon_rate=0.003 optimiser.rate=3e-4 optimiser.weight_decay=0.01 ${FIELDS:-} $resume
}
train "$out/first" litebert-en "${FIRST:-552s}" --corpus "$out/parts/part-00"
train "$out/run" "$out/first/model" "${SECOND:-700s}" --corpus "$out/parts/part-00" --corpus "$out/parts/part-01" \
    --corpus "$out/parts/part-02" --corpus "$out/parts/part-03" "batches.parts=[0.178,0.297,0.297,0.228]"
python -m litebert_lab.litebert_en.results "$out/run/model" optimiser.rate=6e-5 sst2:optimiser.rate=3e-5 \
    sst2:max_steps=4000 --settings budget --glue "$glue" -o "$out/results" --jobs "${JOBS:-12}" ${RESULTS:-}
echo "python -m litebert_lab.litebert_en.ship $out/run --name litebert-en-2 --card CARD.md puts it into the package"
