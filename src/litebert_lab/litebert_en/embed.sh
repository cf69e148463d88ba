#!/bin/sh
# litebert-en-embed out of a pretrained model, a teacher of sentence vectors and texts:
#
#     sh src/litebert_lab/litebert_en/embed.sh START TEACHER TEXTS OUT [STS]
#
# TEXTS is made by litebert_lab.litebert_en.pairs; TEACHER is a model folder, or a file that litebert_lab.litebert_en.
# carry made of one. STS is a folder with STS12-en-test to STS16-en-test and STSBenchmark. Stopped, the same command goes
# on. BUDGET, FIELDS and CONTRAST change the training, for a trial: BUDGET=30s FIELDS=batch=64.
set -eu
start=$1 teacher=$2 texts=$3 out=$4 sts=${5:-}
mkdir -p "$out"
if [ -f "$teacher" ]; then
    [ -d "$out/teacher" ] || python -m litebert_lab.litebert_en.carry unpack "$teacher" -o "$out/teacher"
    teacher=$out/teacher
fi
if [ ! -f "$out/run/model/model.safetensors" ]; then
    resume=$([ -f "$out/run/run.json" ] && echo --resume || true)
    litebert distill "$teacher" "$start" --vectors --contrast "${CONTRAST:-0.02}" --data "$texts" -o "$out/run" \
        --budget "${BUDGET:-230s}" --save-every 60s optimiser.rate=1.5e-4 batch=512 length=64 steps=200000 scores=4 \
        score_items=500 ${FIELDS:-} $resume
fi
[ -d "$out/litebert-en-embed" ] || litebert convert "$out/run/model" "$out/litebert-en-embed" --dtype bfloat16
[ -z "$sts" ] || litebert-lab suite "$out/litebert-en-embed" --sts "$sts" -o "$out/sts.json"
