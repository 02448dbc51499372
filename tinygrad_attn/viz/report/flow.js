// The flow of the gradient through one decoder step, at one moment of training.

/** Where the tensors stand in the drawing; the gradient goes from left to right. h̃ takes room where it is. */
function stands(withOutput) {
  const chain = ["loss", "logits", ...(withOutput ? ["h̃"] : []), "c", "α", "e", "h"];
  const places = Object.fromEntries(chain.map((role, i) => [role, [30 + (650 * i) / (chain.length - 1), 130]]));
  const [[c], [h]] = [places.c, places.h];
  return { ...places, s: [c, 46], before: [h, 46], h: [h, 214] };
}

/** The sides of what stands around a point, and whether two such are apart. */
const around = ([x, y], half, high) => [x - half, y - high, x + half, y + high];
const apart = ([left, top, right, bottom], [a, b, c, d]) => c <= left || right <= a || d <= top || bottom <= b;

/** The drawing for step i: tensors, and between them the norm of what flows. */
function flowDrawing(flow, step) {
  const label = { loss: "loss", logits: "logits", "h̃": `h̃${step}`, s: `s${step}`, c: `c${step}`, "α": `α${step}`, e: `e${step}`, before: `s${step - 1}`, h: "h" };
  const place = Object.fromEntries(Object.entries(label).map(([role, name]) => [name, role]));
  // The logits are one tensor of all steps: of the loss's way to them this step's row counts, and the way on to
  // the state before is the step before's.
  const links = flow.links
    .filter(([user, used]) => place[user] && place[used] && !(user === "logits" && used === label.before))
    .map(([user, used, amount]) => [user, used, used === "logits" ? flow.logits[step - 1] : amount]);
  const there = new Set(links.flatMap(([user, used]) => [user, used]));
  const most = largest(links.map(([, , amount]) => amount));
  const at = stands(there.has(label["h̃"]));
  const taken = Object.keys(at).filter((role) => there.has(label[role])).map((role) => around(at[role], 25, 15));
  const lines = [], plates = [], amounts = [], boxes = [];
  for (const [user, used, amount] of links) {
    const [x0, y0] = at[place[user]], [x1, y1] = at[place[used]];
    const flat = y0 === y1 && Math.abs(x1 - x0) < 140;
    const low = y1 > y0 ? 1 : -1;
    // A line of sight for neighbours; around the corner for the rest.
    const straight = flat || x0 === x1;
    const mid = [(x0 + x1) / 2, straight ? (y0 + y1) / 2 : y0 === y1 ? y0 - 40 : y1 + low * 4];
    const path = straight ? `M${x0} ${y0}L${x1} ${y1}` : `M${x0} ${y0}Q${mid[0]} ${mid[1]} ${x1} ${y1}`;
    const on = (t) => [0, 1].map((i) => (1 - t) ** 2 * [x0, y0][i] + 2 * t * (1 - t) * mid[i] + t * t * [x1, y1][i]);
    const width = size(amount) ? Math.max(0.8, 6 + 1.8 * Math.log10(size(amount) / most)) : 0.8;
    lines.push(svg("path", { class: size(amount) || typeof amount === "string" ? "way" : "way none", d: path, "stroke-width": width.toFixed(2) }));
    // Beside a straight line; on a bent one, which a plate interrupts there, clear of the boxes.
    const text = show(amount), half = 3.6 * text.length + 3;
    const clear = (point) => taken.every((other) => apart(around(point, half + 3, 11), other));
    const [x, y] = flat ? [mid[0], mid[1] - 13] : straight ? [mid[0] + half + 6, mid[1]]
      : [0.5, 0.42, 0.58, 0.34, 0.66, 0.26, 0.74].map(on).find(clear) ?? on(0.5);
    if (!straight) plates.push(svg("rect", { class: "plate", x: x - half, y: y - 8, width: 2 * half, height: 16, rx: 4 }));
    amounts.push(svg("text", { class: "amount", x, y: y + 4, "text-anchor": "middle", "data-link": `${user} ${used}` }, text));
    taken.push(around([x, y], half, 8));
  }
  for (const [role, [x, y]] of Object.entries(at)) {
    if (!there.has(label[role])) continue;
    const name = inPrint(label[role]);
    boxes.push(svg("g", { class: "tensor" }, svg("rect", { x: x - 25, y: y - 15, width: 50, height: 30, rx: 6 }), svg("text", { x, y: y + 5, "text-anchor": "middle" }, name)));
  }
  const said = links.map(([user, used, amount]) => `${user} to ${used} ${show(amount)}`).join(", ");
  return svg("svg", { viewBox: "0 12 760 236", role: "img", class: "ways", "aria-label": `Norms of the gradient through step ${step}: ${said}` }, lines, plates, boxes, amounts);
}

/** Numbers with the size as a tint: a row for each quantity, a column for each word, broken as lines of text are. */
function flowTable(flow, step) {
  const i = step - 1;
  const rows = [["α", flow["α"][i]], ["∂loss/∂α", flow["∂α"][i]], ["∂loss/∂e", flow["∂e"][i]]];
  const through = { value: "‖to h as value, through c‖", key: "‖to h as key, through e‖", state: "‖to h through s₀‖" };
  for (const [part, byStep] of Object.entries(flow.h)) rows.push([through[part] ?? `‖to h, ${part}‖`, byStep[i]]);
  const known = rows.filter(([, values]) => values?.length).map(([name, values]) => [name, values, largest(values)]);
  const block = (from, to) => html("table", { class: "numbers" },
    html("thead", {}, html("tr", {}, html("td", {}), flow.source.slice(from, to).map((token) => html("th", { scope: "col" }, word(token))))),
    html("tbody", {}, known.map(([name, values, most]) =>
      html("tr", {}, html("th", { scope: "row" }, name), values.slice(from, to).map((value) => {
        const cell = html("td", { "data-value": value }, show(value));
        paint(cell, value, most, true);
        return cell;
      })))));
  const blocks = [];
  for (let from = 0; from < flow.source.length; from += WORDS) blocks.push(block(from, from + WORDS));
  return sideways("Numbers of this step by source word", blocks);
}

const WORDS = 10;  // beside one another in a table of numbers

/** Bars: a group for each label, in it one for each series. */
function bars(title, labels, series, marked = -1) {
  const width = chartWidth(), height = 150, below = 26, above = 8, left = 46;
  const most = largest(series.flatMap((one) => one.values)) || 1;
  const room = (width - left) / labels.length;
  // With many words only as many names as have room.
  const every = Math.ceil(Math.min(30, 8 * largest(labels.map((label) => [...label].length)) + 4) / room);
  const each = Math.min(22, (room * 0.7) / series.length);
  const y = (value) => (height - below - above) * (size(value) / most);
  const groups = labels.map((label, k) => {
    const x = left + room * (k + 0.5);
    return svg("g", { class: k === marked ? "group marked" : "group" },
      series.map((one, n) => svg("rect", {
        class: `bar ${one.kind}`, x: x + (n - series.length / 2) * each, width: Math.max(1, each - 1.5),
        y: height - below - y(one.values[k]), height: y(one.values[k]),
      }, svg("title", {}, `${one.label}: ${show(one.values[k], 5)}`))),
      k % every ? null : svg("text", { x, y: height - 8, "text-anchor": "middle" }, shorten(label, Math.max(2, Math.floor((every * room) / 7.5)))));
  });
  const said = series.map((one) => `${one.label}: ${one.values.map((value) => show(value)).join(", ")}`).join("; ");
  return html("figure", { class: "chart" },
    html("figcaption", {}, html("strong", {}, title), html("span", { class: "keys" }, series.map((one) => html("span", { class: `key block ${one.kind}` }, one.label)))),
    svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${title}. ${said}` },
      ticks(0, most, 2).map((tick) => [
        svg("line", { class: "grid", x1: left, x2: width, y1: height - below - y(tick), y2: height - below - y(tick) }),
        svg("text", { x: left - 8, y: height - below - y(tick) + 4, "text-anchor": "end" }, show(tick))]),
      groups));
}

function drawFlow(place, snapshots, examples) {
  const moments = snapshots.map((one) => ({ ...one, text: one.step ? `after step ${one.step.toLocaleString("en")}` : "before training" }));
  if (examples?.flows?.length) {
    moments.push({ step: examples.step, flows: examples.flows, text: `best weights, step ${examples.step.toLocaleString("en")}` });
  }
  if (!moments.length || !moments[0].flows.length) {
    fill(place, html("p", { class: "missing" }, "Nothing was kept of the gradient flow of this run."));
    return;
  }
  const kinds = [
    { name: "α", key: "α", signed: false },
    { name: "∂loss/∂α", key: "∂α", signed: true },
    { name: "∂loss/∂e", key: "∂e", signed: true },
  ].filter(({ key }) => moments[0].flows[0][key].length);
  const now = { example: 0, moment: moments.length - 1, step: 1, kind: 0 };
  const flow = () => moments[now.moment].flows[now.example];

  const which = choices("Example", moments[0].flows.map((one) => one.source.flatMap((token, i) => [i ? " " : null, word(token)])), (index) => {
    now.example = index;
    now.step = Math.min(now.step, flow().target.length);
    step.resize(flow().target.length);
    step.value = now.step - 1;
    update();
  });
  const moment = slider("Training", moments.length, now.moment, (index) => moments[index].text, (index) => { now.moment = index; update(); });
  const step = slider("Decoder step", flow().target.length, 0, (index) => `${index + 1} of ${flow().target.length}`, (index) => { now.step = index + 1; update(); });
  const kind = choices("Matrix", kinds.map(({ name }) => name), (index) => { now.kind = index; update(); });

  let timer = null;
  const play = html("button", { type: "button", class: "plain", onclick: () => (timer ? stop() : start()) }, "Play training");
  function stop() {
    clearInterval(timer);
    timer = null;
    play.textContent = "Play training";
  }
  function start() {
    const last = moments.length - 1;
    if (now.moment >= last) now.moment = -1;
    play.textContent = "Pause";
    const next = () => {
      if (now.moment < last) {  // the slider may have been moved meanwhile
        now.moment += 1;
        moment.value = now.moment;
        update();
      }
      if (now.moment >= last) stop();
    };
    timer = setInterval(next, 700);
    next();
  }

  const beside = html("div", { class: "beside" }), left = html("div", { class: "left" }), right = html("div", { class: "right" }), low = html("div", { class: "curves" });
  const loss = html("span", { class: "quiet" });
  let matrix;
  function update() {
    const here = flow(), { key, signed, name } = kinds[now.kind];
    beside.classList.toggle("stacked", here.source.length > 12);
    const focused = left.contains(document.activeElement);
    matrix = heatTable({
      caption: `${name}: output words by row, source words by column`, source: here.source, target: here.target, words: here.words,
      values: here[key], signed, name,
      light(i) {
        if (now.step === i + 1) return;
        now.step = i + 1;
        step.value = i;
        details();
      },
    });
    fill(left, html("div", { class: "with-scale" }, matrix.element, matrix.note, signed ? signScale(here[key]) : greyScale()));
    matrix.light(now.step - 1);
    if (focused) left.querySelector(`[data-row="${now.step - 1}"]`)?.focus();
    loss.textContent = `loss ${show(here.loss)}`;
    details();
  }
  function details() {
    const here = flow();
    fill(right,
      html("h3", {}, `Through step ${now.step}: `, word(here.target[now.step - 1])),
      sideways("The flow through this step", flowDrawing(here, now.step)),
      html("p", { class: "quiet" }, "A line is all that flows from one tensor to another without passing a third; what comes from other steps is not drawn."),
      flowTable(here, now.step));
    const parts = Object.keys(here.s).filter((part) => part !== "whole");
    fill(low,
      bars("‖∂loss/∂sᵢ‖ over the steps", here.s.whole.map((_, i) => `s${subscript(i)}`), [
        { label: "whole", values: here.s.whole, kind: "first" },
        ...parts.map((part, n) => ({ label: part, values: here.s[part], kind: ["second", "third", "fourth"][n % 3] })),
      ], now.step),
      bars("‖∂loss/∂hⱼ‖ over the source", here.source, [
        { label: "whole", values: here.all.whole, kind: "first" },
        ...Object.keys(here.all).filter((part) => part !== "whole").map((part, n) => ({ label: part, values: here.all[part], kind: ["second", "third", "fourth"][n % 3] })),
      ]));
  }
  fill(place,
    html("div", { class: "controls" }, which, html("div", { class: "together" }, moment.element, play), step.element),
    fill(beside, html("div", {}, html("div", { class: "together" }, kind, loss), left), right), low);
  update();
}
