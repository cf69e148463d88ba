// What can be asked of a model: the fields to fill in, the request they make, and how its answer is shown.

"use strict";

// A task: { id, kind (of predictions), title, about, fields, examples, request(values, model), full(answer, values), brief(answer, values), texts(values) }.
// `fields` are { name, label, hint, rows, list }; `values` are texts by the name of their field, lists where `list` is set.
function tasksOf(model) {
  const can = (request) => model.can.includes(request);
  return [
    can("predict") ? predictTask(model) : null,
    can("fill") ? fillTask(model) : null,
    can("order") ? orderTask() : null,
    can("embeddings") ? likenessTask() : null,
  ].filter(Boolean);
}

const TITLES = { classify: "Labels", multilabel: "Labels", regress: "Score", choice: "Choice", span: "Answer" };

function predictTask(model) {
  const { task } = model;
  const kind = PREDICTED[task.kind];
  const fields = predictFields(task);
  return {
    id: "predict",
    kind: task.kind,
    title: TITLES[task.kind],
    about: `${task.labels.length ? `Knows ${task.labels.length} labels. ` : ""}Reads ${task.max_tokens} tokens at a time.`,
    fields,
    examples: [],
    request: (values, asked) => {
      const given = fields.some((one) => (one.list ? values[one.name].length > 1 : values[one.name].trim()));
      const lacking = task.kind === "choice" || task.kind === "span" || (task.pairs && !task.columns.length)
        ? fields.some((one) => !one.optional && (one.list ? values[one.name].length < 2 : !values[one.name].trim())) : !given;
      return lacking ? null : { route: "/predict", body: { inputs: [itemOf(values, asked.task ?? task, fields)] } };
    },
    full: (answer, values) => kind.full(answer.results[0], values),
    brief: (answer) => kind.brief(answer.results[0]),
    texts: (values) => predictTexts(values, task, fields),
  };
}

// One field for each column that the model was fine-tuned on, or for each text it reads.
function predictFields(task) {
  if (task.kind === "choice") {
    return [
      { name: "passage", label: "Passage", hint: "if there is one", rows: 4, optional: true },
      { name: "question", label: "Question", rows: 1 },
      { name: "options", label: "Options", hint: "one on each line", rows: 4, list: true },
    ];
  }
  if (task.kind === "span") return [{ name: "question", label: "Question", rows: 1 }, { name: "context", label: "Text with the answer", rows: 6 }];
  const columns = task.columns.flatMap((part) => part.split("+"));
  if (columns.length) return columns.map((name) => ({ name, label: name, rows: columns.length > 1 ? 1 : 3 }));
  return task.pairs ? [{ name: "first", label: "First text", rows: 2 }, { name: "second", label: "Second text", rows: 2 }]
    : [{ name: "text", label: "Text", rows: 3 }];
}

function itemOf(values, task, fields) {
  if (task.kind === "choice" || task.kind === "span" || task.columns.length) return { ...values };
  const texts = fields.map((one) => values[one.name]);
  return task.pairs ? texts.slice(0, 2) : texts.join("\n");
}

// What the model reads, as one text or two, to show its tokens.
function predictTexts(values, task, fields) {
  if (task.kind === "span") return [values.question, values.context];
  if (task.kind === "choice") return [values.passage || values.question, `${values.passage ? `${values.question} ` : ""}${values.options[0] ?? ""}`];
  const parts = task.columns.length ? task.columns.map((part) => part.split("+").map((name) => values[name].trim()).filter(Boolean).join("\n"))
    : fields.map((one) => values[one.name]);
  return parts.slice(0, task.pairs ? 2 : 1);
}

function fillTask(model) {
  const gap = model.mask_token;
  return {
    id: "fill",
    title: "Fill in words",
    about: `Write ${gap} where a word is missing.`,
    fields: [{ name: "text", label: "Text", hint: `with ${gap} for each missing word`, rows: 2, insert: gap }],
    examples: [`The cat ${gap} on the mat.`, `London is the ${gap} of England.`, `She opened the ${gap} and looked outside.`].map((text) => ({ text })),
    request: ({ text }) => (text.includes(gap) ? { route: "/fill", body: { inputs: text, top: 8 } } : null),
    full: (answer) => filled(answer.results[0]),
    brief: (answer) => {
      const best = answer.results[0].masks.map(([guess]) => guess);
      return { text: best.map((guess) => guess.word || guess.token).join(", "), share: best[0].probability };
    },
    texts: ({ text }) => [text],
  };
}

function orderTask() {
  return {
    id: "order",
    title: "Order",
    about: "Which of two neighbouring texts comes first?",
    fields: [{ name: "first", label: "One text", rows: 2 }, { name: "second", label: "The other", rows: 2 }],
    examples: [
      { first: "The rain had not stopped for three days.", second: "So on the fourth morning the river came over its banks." },
      { first: "It was bought by the city in 1921 and became a museum.", second: "The house was built in 1880 by a wealthy merchant." },
    ],
    request: ({ first, second }) => (first.trim() && second.trim() ? { route: "/order", body: { inputs: [[first, second]] } } : null),
    full: (answer, { first, second }) => ordered(answer.results[0], [first, second]),
    brief: (answer) => {
      const share = answer.results[0].in_order;
      return { text: share >= 0.5 ? "as given" : "the other way round", share: Math.max(share, 1 - share) };
    },
    texts: ({ first, second }) => [first, second],
  };
}

function likenessTask() {
  return {
    id: "likeness",
    title: "Similarity",
    about: "The cosine between the vectors of texts: 1 is the same direction.",
    fields: [{ name: "text", label: "Text", rows: 2 }, { name: "others", label: "Compare with", hint: "one on each line", rows: 4, list: true }],
    examples: [{
      text: "Where is my parcel?",
      others: ["My package has not arrived.", "I would like my money back.", "The weather is lovely today."],
    }],
    request: ({ text, others }) => (text.trim() && others.length ? { route: "/v1/embeddings", body: { input: [text, ...others] } } : null),
    full: (answer, { others }) => bars(likeness(answer.data, others)),
    brief: (answer, { others }) => {
      const [best] = likeness(answer.data, others);
      return { text: best.name, share: best.share };
    },
    texts: ({ text }) => [text],
  };
}
