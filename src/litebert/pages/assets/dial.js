// The depth dial: a slider drawn as the layers of the model, each as high as an answer at that depth took.

"use strict";

class Dial {
  // `change` is called with the depth whenever it changes.
  constructor(model, depth, change) {
    this.times = new Map();
    this.output = element("output", {});
    this.slider = element("input", { type: "range", min: 1, max: model.layers, step: 1, id: freshId("depth"), disabled: !model.any_depth });
    this.slider.value = depth;
    this.slider.addEventListener("input", () => { this.draw(); change(this.depth); });
    this.layers = Array.from({ length: model.layers }, () => element("span", {}, element("i")));
    this.total = model.layers;
    this.node = element("div.dial", {},
      element("div.top", {}, element("label", { for: this.slider.id }, "Depth"), this.output),
      element("div.layers", { hidden: !model.any_depth }, this.layers, this.slider),
      model.any_depth ? null : element("p.quiet.small", {}, "The layers of this model differ, so it always runs all of them."));
    this.draw();
  }

  get depth() { return Number(this.slider.value); }

  // Remembers how long an answer at a depth took, the shortest time of the same text: others may use the processor, too.
  took(depth, time) {
    this.times.set(depth, Math.min(time, this.times.get(depth) ?? Infinity));
    this.draw();
  }

  forget() {
    this.times.clear();
    this.draw();
  }

  // With exits the input decides how deep it goes, and the dial rests.
  rest(resting) {
    this.slider.disabled = resting;
    this.draw();
  }

  draw() {
    const most = Math.max(...this.times.values(), 0);
    this.layers.forEach((layer, place) => {
      const time = this.times.get(place + 1);
      layer.classList.toggle("on", place < this.depth);
      layer.firstChild.style.setProperty("--height", time === undefined ? (most ? "8%" : "") : `${Math.max(8, (100 * time) / most)}%`);
    });
    const time = this.times.get(this.depth);
    this.output.replaceChildren(element("b", {}, this.depth), ` of ${this.total} layers`);
    this.slider.setAttribute("aria-valuetext", `${this.depth} of ${this.total} layers${time === undefined ? "" : `, ${milliseconds(time)} ms`}`);
  }
}
