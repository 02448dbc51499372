// Training curves: small charts, each with a line for the place that is pointed at or stepped to.

/** One chart. A series: {label, points: [[step, value]], strong, share}. */
function chart({ title, unit, series, top = null }) {
  const width = chartWidth(), height = 220;
  const left = 46, right = 14, above = 14, below = 30;
  const points = series.flatMap((one) => one.points);
  const xs = points.map(([x]) => x);
  const x1 = Math.max(largest(xs), 1), highest = largest(points.map(([, y]) => y));
  const yTicks = ticks(0, top ?? Math.max(highest, 1e-9) * 1.02);
  const y1 = top ?? Math.max(highest, yTicks[yTicks.length - 1]);
  const x = (step) => left + ((width - left - right) * step) / x1;
  const y = (value) => height - below - ((height - above - below) * value) / y1;

  const lines = series.map((one) =>
    svg("path", {
      class: one.strong ? "line strong" : "line",
      d: one.points.map(([a, b], i) => `${i ? "L" : "M"}${x(a).toFixed(1)} ${y(b).toFixed(1)}`).join(""),
    }),
  );
  // A single figure is no line.
  for (const one of series.filter(({ points: some }) => some.length === 1)) {
    lines.push(svg("circle", { class: one.strong ? "alone strong" : "alone", r: 3, cx: x(one.points[0][0]), cy: y(one.points[0][1]) }));
  }
  const cursor = svg("g", { class: "cursor", visibility: "hidden" }, svg("line", { y1: above, y2: height - below }));
  const dots = series.map((one) => {
    const dot = svg("circle", { r: 3.5, class: one.strong ? "strong" : null });
    cursor.append(dot);
    return dot;
  });
  const last = series.map((one) => one.points[one.points.length - 1]);
  const summary = series.map((one, i) => `${one.label} ${show(last[i]?.[1])} at step ${last[i]?.[0]}`).join(", ");
  const drawing = svg(
    "svg",
    { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${title} over training steps. At the end: ${summary}.`, tabindex: 0 },
    yTicks.map((tick) => [
      svg("line", { class: "grid", x1: left, x2: width - right, y1: y(tick), y2: y(tick) }),
      svg("text", { x: left - 8, y: y(tick) + 4, "text-anchor": "end" }, show(tick)),
    ]),
    ticks(0, x1, 5).map((tick) => svg("text", { x: x(tick), y: height - below + 18, "text-anchor": "middle" }, tick.toLocaleString("en"))),
    lines,
    cursor,
  );
  const readout = html("p", { class: "readout", "aria-live": "polite" });
  const steps = [...new Set(xs)].sort((a, b) => a - b);
  let place = steps.length - 1;

  function at(index) {
    place = Math.min(steps.length - 1, Math.max(0, index));
    const step = steps[place];
    cursor.setAttribute("visibility", "visible");
    cursor.firstChild.setAttribute("x1", x(step));
    cursor.firstChild.setAttribute("x2", x(step));
    const told = series.map((one, i) => {
      // The newest figure up to this step: not every series has one at every step.
      const found = one.points.filter(([a]) => a <= step).pop();
      dots[i].setAttribute("visibility", found ? "visible" : "hidden");
      if (found) {
        dots[i].setAttribute("cx", x(found[0]));
        dots[i].setAttribute("cy", y(found[1]));
      }
      return found && `${one.label} ${one.share ? `${show(100 * found[1])} %` : show(found[1])}`;
    });
    readout.textContent = [`step ${step.toLocaleString("en")}`, ...told.filter(Boolean)].join(" · ");
  }
  function rest() {
    cursor.setAttribute("visibility", "hidden");
    readout.textContent = "";
  }
  drawing.addEventListener("pointermove", (event) => {
    const box = drawing.getBoundingClientRect();
    const step = ((((event.clientX - box.left) / box.width) * width - left) / (width - left - right)) * x1;
    at(steps.reduce((best, one, i) => (Math.abs(one - step) < Math.abs(steps[best] - step) ? i : best), 0));
  });
  drawing.addEventListener("pointerleave", rest);
  drawing.addEventListener("focus", () => at(place));
  drawing.addEventListener("blur", rest);
  onKeys(drawing, (event) => {
    const next = { ArrowRight: place + 1, ArrowLeft: place - 1, Home: 0, End: steps.length - 1 }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    at(next);
  });
  const keys = series.map((one) => html("span", { class: one.strong ? "key strong" : "key" }, one.label));
  return html("figure", { class: "chart" },
    html("figcaption", {}, html("strong", {}, title), " ", html("span", { class: "unit" }, unit), html("span", { class: "keys" }, keys)),
    drawing, readout);
}

function drawCurves(place, rows) {
  const trained = rows.filter((row) => row.event === "train");
  const judged = rows.filter((row) => row.event === "evaluation");
  const of = (some, key) => some.filter((row) => typeof row[key] === "number").map((row) => [row.step, row[key]]);
  const charts = [
    { title: "Loss", unit: "nats per token", series: [
      { label: "training", points: of(trained, "loss") },
      { label: "development", points: of(judged, "loss"), strong: true },
    ] },
    { title: "Right", unit: "share of the development set", top: 1, series: [
      { label: "tokens", points: of(judged, "token_accuracy"), share: true },
      { label: "sequences", points: of(judged, "exact_match"), strong: true, share: true },
    ] },
    { title: "Alignment", unit: "weight on the true source word", top: 1, series: [
      { label: "largest there", points: of(judged, "alignment_accuracy"), share: true },
      { label: "weight", points: of(judged, "alignment_weight"), strong: true, share: true },
    ] },
    { title: "Gradient", unit: "global norm before clipping", series: [
      { label: "mean", points: of(trained, "gradient_norm"), strong: true },
    ] },
  ];
  for (const one of charts) {
    one.series = one.series.filter((some) => some.points.length);
    if (one.series.length) place.append(chart(one));
  }
  if (!place.children.length) place.append(html("p", { class: "missing" }, "There are no figures yet: training has just begun."));
}
