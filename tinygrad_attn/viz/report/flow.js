// The flow of the gradient through one decoder step, at one moment of training.

/** Where the tensors stand in the drawing; the gradient goes from left to right. */
const STANDS = {
  loss: [30, 130], logits: [142, 130], "h̃": [220, 130], s: [300, 46], c: [300, 130], "α": [412, 130], e: [522, 130],
  before: [640, 46], h: [640, 214],
};

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
  const lines = [], plates = [], amounts = [], boxes = [];
  for (const [user, used, amount] of links) {
    const [x0, y0] = STANDS[place[user]], [x1, y1] = STANDS[place[used]];
    const flat = y0 === y1 && Math.abs(x1 - x0) < 120;
    const low = y1 > y0 ? 1 : -1;
    // A line of sight for neighbours; around the corner for the rest.
    const mid = flat ? [(x0 + x1) / 2, y0] : x0 === x1 ? [x0, (y0 + y1) / 2] : y0 === y1 ? [(x0 + x1) / 2, y0 - 20] : [(x0 + x1) / 2, y1 + low * 4];
    const path = flat || x0 === x1 ? `M${x0} ${y0}L${x1} ${y1}` : `M${x0} ${y0}Q${mid[0]} ${mid[1] + (y0 === y1 ? -20 : 0)} ${x1} ${y1}`;
    const on = flat || x0 === x1 ? mid : [(x0 + x1) / 4 + mid[0] / 2, (y0 + y1) / 4 + (mid[1] + (y0 === y1 ? -20 : 0)) / 2];
    const width = size(amount) ? Math.max(0.8, 6 + 1.8 * Math.log10(size(amount) / most)) : 0.8;
    lines.push(svg("path", { class: size(amount) || typeof amount === "string" ? "way" : "way none", d: path, "stroke-width": width.toFixed(2) }));
    // Beside a straight line; on a bent one, which a plate interrupts there.
    const text = show(amount), half = 3.6 * text.length + 3;
    const [x, y] = flat ? [on[0], on[1] - 9] : x0 === x1 ? [on[0] + half + 6, on[1] + 4] : [on[0], on[1] + 4];
    if (!flat && x0 !== x1) plates.push(svg("rect", { class: "plate", x: x - half, y: y - 12, width: 2 * half, height: 16, rx: 4 }));
    amounts.push(svg("text", { class: "amount", x, y, "text-anchor": "middle", "data-link": `${user} ${used}` }, text));
  }
  for (const [role, [x, y]] of Object.entries(STANDS)) {
    if (!there.has(label[role])) continue;
    const name = inPrint(label[role]);
    boxes.push(svg("g", { class: "tensor" }, svg("rect", { x: x - 25, y: y - 15, width: 50, height: 30, rx: 6 }), svg("text", { x, y: y + 5, "text-anchor": "middle" }, name)));
  }
  const said = links.map(([user, used, amount]) => `${user} to ${used} ${show(amount)}`).join(", ");
  return svg("svg", { viewBox: "0 12 700 236", role: "img", class: "ways", "aria-label": `Norms of the gradient through step ${step}: ${said}` }, lines, plates, boxes, amounts);
}

/** Numbers with the size as a tint: a row for each quantity, a column for each word. */
function flowTable(flow, step) {
  const i = step - 1;
  const rows = [["α", flow["α"][i], true], ["∂loss/∂α", flow["∂α"][i], true], ["∂loss/∂e", flow["∂e"][i], true]];
  const through = { value: "‖to h as value, through c‖", key: "‖to h as key, through e‖", state: "‖to h through s₀‖" };
  for (const [part, byStep] of Object.entries(flow.h)) rows.push([through[part] ?? `‖to h, ${part}‖`, byStep[i], true]);
  return sideways("Numbers of this step by source word",
    html("table", { class: "numbers" },
      html("thead", {}, html("tr", {}, html("td", {}), flow.source.map((token) => html("th", { scope: "col" }, word(token))))),
      html("tbody", {}, rows.filter(([, values]) => values?.length).map(([name, values]) => {
        const most = largest(values);
        return html("tr", {}, html("th", { scope: "row" }, name), values.map((value) => {
          const cell = html("td", { "data-value": value }, show(value));
          paint(cell, value, most, true);
          return cell;
        }));
      }))));
}

/** Bars: a group for each label, in it one for each series. */
function bars(title, labels, series, marked = -1) {
  const width = 460, height = 150, below = 26, above = 8, left = 46;
  const most = largest(series.flatMap((one) => one.values)) || 1;
  const room = (width - left) / labels.length;
  const each = Math.min(22, (room * 0.7) / series.length);
  const y = (value) => (height - below - above) * (size(value) / most);
  const groups = labels.map((label, k) => {
    const x = left + room * (k + 0.5);
    return svg("g", { class: k === marked ? "group marked" : "group" },
      series.map((one, n) => svg("rect", {
        class: `bar ${one.kind}`, x: x + (n - series.length / 2) * each, width: Math.max(1, each - 1.5),
        y: height - below - y(one.values[k]), height: y(one.values[k]),
      }, svg("title", {}, `${one.label}: ${show(one.values[k], 5)}`))),
      // With many words only as many names as have room.
      k % Math.ceil(18 / room) ? null : svg("text", { x, y: height - 8, "text-anchor": "middle" }, shorten(label, Math.max(2, Math.floor(room / 7.5)))));
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
    if (now.moment === moments.length - 1) now.moment = -1;
    play.textContent = "Pause";
    const next = () => {
      now.moment += 1;
      moment.value = now.moment;
      update();
      if (now.moment === moments.length - 1) stop();
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
      caption: `${name}: output words by row, source words by column`, source: here.source, target: here.target,
      values: here[key], signed, name,
      light(i) {
        if (now.step === i + 1) return;
        now.step = i + 1;
        step.value = i;
        details();
      },
    });
    fill(left, html("div", { class: "with-scale" }, matrix.element, signed ? signScale(here[key]) : greyScale()));
    matrix.light(now.step - 1);
    if (focused) left.querySelector(`[data-row="${now.step - 1}"]`).focus();
    loss.textContent = `loss ${show(here.loss)}`;
    details();
  }
  function details() {
    const here = flow();
    fill(right,
      html("h3", {}, `Through step ${now.step}: `, word(here.target[now.step - 1])),
      sideways("The flow through this step", flowDrawing(here, now.step)), flowTable(here, now.step));
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
