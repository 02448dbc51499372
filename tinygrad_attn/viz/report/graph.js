// The graph of one training step: to move about in, to fold, to search, and to follow the gradient through.

const isWeight = (box) => box.kind === "parameters" || box.kind === "leaf";
const shapeText = (array) => (array?.shape ? (array.shape.length ? array.shape.join("×") : "a number") : "");
const NOTHING_CHOSEN = "Choose a tensor: its value and gradient stand here then, and every path that the gradient takes through it is lit. Titles of frames fold them; folded boxes open again.";

/** Rows of numbers with the size as a tint; what is too large to be here is described. */
function arrayTable(array, name) {
  if (!array) return html("p", { class: "quiet" }, "not known");
  const range = array.low === undefined ? "" : `${array.low} … ${array.high}`;
  if (array.data === null) {
    return html("p", { class: "quiet" }, [shapeText(array), range, `norm ${show(array.norm, 5)}`].filter(Boolean).join(" · "));
  }
  const flat = [array.data].flat(8);
  const last = Array.isArray(array.data) ? array.shape[array.shape.length - 1] : 1;
  const most = largest(flat);
  const cell = (tag) => (value) => {
    const element = html(tag, { "data-value": value, title: show(value, 5) }, show(value));
    paint(element, value, most, true);
    return element;
  };
  let entries;
  if (array.shape.length < 2 || flat.length === last) {
    entries = html("div", { class: "numbers row" }, flat.map(cell("span")));  // broken where the panel ends
  } else {
    const rows = [];
    for (let i = 0; i < flat.length; i += last) rows.push(html("tr", {}, flat.slice(i, i + last).map(cell("td"))));
    entries = html("table", { class: "numbers" }, html("tbody", {}, rows));
  }
  return html("div", {},
    html("div", { class: "scroll entries", tabindex: 0, role: "region", "aria-label": name }, entries),
    flat.length > 1 ? html("p", { class: "quiet" }, `${shapeText(array)} · norm ${show(array.norm, 5)}`) : null);
}

/** All boxes that lead to the one with this id, or that it leads to. */
function reached(start, neighbours) {
  const found = new Set(), stack = [start];
  while (stack.length) {
    for (const next of neighbours.get(stack.pop()) ?? []) {
      if (!found.has(next)) {
        found.add(next);
        stack.push(next);
      }
    }
  }
  return found;
}

function drawGraph(place, data) {
  if (!data) {
    fill(place, html("p", { class: "missing" }, "No graph yet: it is kept when training ends, or by `tinygrad-attn report`."));
    return;
  }
  const byId = new Map(data.boxes.map((box) => [box.id, box]));
  const scopes = new Map();
  for (const box of data.boxes) {
    box.scope.forEach((_, depth) => scopes.set(scopeKey(box.scope.slice(0, depth + 1)), box.scope.slice(0, depth + 1)));
  }
  const forward = new Map(), back = new Map();
  const put = (map, key, value) => map.set(key, [...(map.get(key) ?? []), value]);
  for (const line of data.lines) {
    if (!line.gradient) continue;
    put(forward, line.source, line.target);
    put(back, line.target, line.source);
  }
  const most = largest(data.lines.map((line) => line.gradient?.norm));
  const mostInBoxes = largest(data.boxes.map((box) => (box.id === data.output ? 0 : box.gradient?.norm)));
  const steps = [...scopes].filter(([, scope]) => isNumbered(scope[scope.length - 1])).map(([key]) => key);

  // The first two steps show how one leads to the next; the others open when they are wanted.
  const folded = new Set(steps.filter((key) => Number(/\d+$/.exec(key)[0]) > 2));
  let withWeights = false, chosen = null, found = new Set(), layout = null;
  // What is seen, whether the reader went there, and the size of the frame then.
  let view = { x: 0, y: 0, k: 1 }, steered = false, frame = null;

  // The drawing, and how it is moved.
  const world = svg("g");
  const drawing = svg("svg", { class: "canvas", role: "group", "aria-label": "Graph of the computation. Arrow keys go to the next box, Enter chooses or opens, plus and minus zoom, Escape lets go." }, world);
  const panel = html("aside", { class: "panel", "aria-live": "polite", "aria-label": "The chosen tensor" });
  let nodes = new Map();

  function move() {
    world.setAttribute("transform", `translate(${view.x.toFixed(2)} ${view.y.toFixed(2)}) scale(${view.k.toFixed(4)})`);
    drawing.classList.toggle("far", view.k < 0.55);
    steered = true;
  }
  function measure() {
    frame = drawing.getBoundingClientRect();
    // In its own units the drawing keeps its place when it is printed, on a paper of another width.
    if (frame.width) drawing.setAttribute("viewBox", `0 0 ${frame.width} ${frame.height}`);
  }
  function fit() {
    measure();
    if (!frame.width || !layout) return;
    const k = Math.min((frame.width - 32) / layout.width, (frame.height - 32) / layout.height, 1.25);
    view = { k, x: (frame.width - k * layout.width) / 2, y: (frame.height - k * layout.height) / 2 };
    move();
    steered = false;
  }
  /** The whole, where that can be read; of what is wider than a narrow screen, its first step. */
  function overview() {
    fit();
    const first = layout.frames.find((frame) => isNumbered(frame.scope[frame.scope.length - 1])) ?? layout.items.get(layout.ends.get(data.output));
    if (view.k < 0.45) {
      view.k = 0.7;
      centre(first);
      steered = false;
    }
  }
  /** In a frame of another size: the whole, or what the reader went to, still in the middle. */
  function resized() {
    if (!steered) return overview();
    const before = frame;
    measure();
    view.x += (frame.width - before.width) / 2;
    view.y += (frame.height - before.height) / 2;
    move();
  }
  function centre(item) {
    const box = drawing.getBoundingClientRect();
    view.x = box.width / 2 - (item.x + item.width / 2) * view.k;
    view.y = box.height / 2 - (item.y + item.height / 2) * view.k;
    move();
  }
  function zoom(factor, at = null) {
    const box = drawing.getBoundingClientRect();
    const [x, y] = at ? [at[0] - box.left, at[1] - box.top] : [box.width / 2, box.height / 2];
    const k = Math.min(4, Math.max(0.08, view.k * factor));
    view = { k, x: x - ((x - view.x) * k) / view.k, y: y - ((y - view.y) * k) / view.k };
    move();
  }
  /** Brings an item into sight, without moving when it is. */
  function look(id) {
    const item = layout.items.get(id) ?? layout.frames.find((frame) => frame.id === id);
    if (!item) return;
    const box = drawing.getBoundingClientRect();
    const k = Math.max(view.k, 0.6);
    const x = item.x * view.k + view.x, y = item.y * view.k + view.y;
    if (k === view.k && x > 8 && y > 8 && x + item.width * k < box.width - 8 && y + item.height * k < box.height - 8) return;
    view.k = k;
    centre(item);
  }

  const subtitle = (box) => (box.kind === "parameters" ? box.parts.length && box.parts.map((part) => part.label).join(", ")
    : !box.value ? `${box.tensors} tensors` : box.operation && box.operation !== box.label ? box.operation : shapeText(box.value)) || "";

  function render(focus = null) {
    const seen = data.boxes.filter((box) => withWeights || !isWeight(box));
    const sized = seen.map((box) => ({
      id: box.id, scope: box.scope, height: 42,
      width: Math.max(56, 18 + Math.max(9 * [...shorten(box.label, 22)].length, 6.2 * [...shorten(subtitle(box), 26)].length)),
    }));
    const ids = new Set(seen.map((box) => box.id));
    const lines = data.lines.filter((line) => ids.has(line.source) && ids.has(line.target));
    layout = layOut(sized, lines, folded, (scope) => ({ width: Math.max(96, 34 + 9 * scope[scope.length - 1].length), height: 46 }));
    nodes = new Map();

    const frames = layout.frames.map((frame) => {
      const name = frame.scope[frame.scope.length - 1];
      const title = svg("g", { class: "title", role: "button", tabindex: -1, "data-id": frame.id, "aria-label": `Fold ${name}`, "aria-expanded": "true", onclick: () => fold(frame.scope) },
        svg("rect", { x: frame.x + 4, y: frame.y + 4, width: 30 + 7.5 * name.length, height: 22, rx: 4 }),
        svg("text", { x: frame.x + 12, y: frame.y + 20 }, `▾ ${name}`));
      nodes.set(frame.id, { element: title, item: { x: frame.x, y: frame.y, width: 80, height: 20 } });
      return svg("g", {},
        svg("rect", { class: frame.scope.length % 2 ? "ground" : "ground deep", x: frame.x, y: frame.y, width: frame.width, height: frame.height, rx: 10 }), title);
    });

    const joined = new Map();
    for (const line of lines) {
      const a = layout.ends.get(line.source), b = layout.ends.get(line.target);
      if (a === b) continue;
      const key = `${a} ${b}`;
      if (!joined.has(key)) joined.set(key, { a, b, parts: [] });
      joined.get(key).parts.push(line);
    }
    const ways = [...joined.values()].map((way) => {
      const { path, along } = course(layout.items.get(way.a), layout.items.get(way.b));
      const amount = largest(way.parts.map((line) => line.gradient?.norm));
      const strange = way.parts.map((line) => line.gradient?.norm).find((norm) => typeof norm === "string");
      const width = amount && most ? Math.max(0.8, 5 + 1.3 * Math.log10(amount / most)) : 0.8;
      const known = way.parts.filter((line) => line.gradient);
      const several = way.parts.length > 1 || way.parts[0].gradient?.several;
      const text = strange ? show(strange) : several && known.length ? `≤ ${show(amount)}` : show(known[0]?.gradient.norm);
      const name = (id) => byId.get(id)?.label ?? layout.items.get(id).scope.join(" / ");
      const element = svg("path", { class: strange ? "edge strange" : "edge", d: path, "stroke-width": width.toFixed(2), "data-from": way.a, "data-to": way.b },
        svg("title", {}, `${name(way.a)} → ${name(way.b)}: gradient ${text}`));
      const label = svg("text", { class: "amount", "text-anchor": "middle" }, text);
      return { ...way, element, label, along, amount };
    });

    const boxes = [...layout.items.values()].map((item) => {
      const box = byId.get(item.id);
      const name = box ? box.label : item.scope[item.scope.length - 1];
      const within = box ? [] : data.boxes.filter((one) => item.scope.every((part, i) => one.scope[i] === part));
      const inside = within.reduce((sum, one) => sum + (one.tensors ?? 1), 0);
      const below = box ? shorten(subtitle(box), 26) : `${inside} tensors`;
      const gradient = box?.gradient?.norm;
      const shade = gradient && mostInBoxes ? Math.min(1, Math.max(0, 1 + Math.log10(size(gradient) / mostInBoxes) / 4)) : 0;
      const classes = ["box", box ? box.kind : "module", box && typeof gradient === "string" ? "strange" : ""];
      const element = svg("g", {
        class: classes.join(" "), role: "button", tabindex: -1, "data-id": item.id, transform: `translate(${item.x} ${item.y})`,
        "aria-label": box ? `${name}, ${below}${box.gradient ? `, gradient of norm ${show(gradient)}` : ""}` : `Open ${name}, ${below}`,
        "aria-expanded": box ? null : "false",
        onclick: () => (box ? choose(item.id) : fold(item.scope)),
      },
      svg("rect", { width: item.width, height: item.height, rx: box ? 6 : 10 }),
      shade ? svg("rect", { class: "shade", width: item.width, height: item.height, rx: 6, opacity: (0.32 * shade).toFixed(3) }) : null,
      svg("text", { class: "name", x: item.width / 2, y: 18, "text-anchor": "middle" }, box ? shorten(name, 22) : `▸ ${name}`),
      svg("text", { class: "below", x: item.width / 2, y: 32, "text-anchor": "middle" }, below));
      nodes.set(item.id, { element, item });
      return element;
    });
    fill(world,
      svg("g", {}, frames.map((frame) => frame.firstChild)), svg("g", { class: "edges" }, ways.map((way) => way.element)),
      svg("g", {}, frames), svg("g", {}, boxes), svg("g", { class: "amounts" }, ways.map((way) => way.label)));
    drawn = ways;
    light();
    rove(nodes.has(focus) ? focus : layout.ends.get(data.output), nodes.has(focus));
  }
  let drawn = [];

  /** The way of a line: down, or to the right where the target stands beside or above. */
  function course(a, b) {
    const down = b.y >= a.y + a.height - 2;
    const [x0, y0] = down ? [a.x + a.width / 2, a.y + a.height] : [a.x + a.width, a.y + a.height / 2];
    // Where something stands over the target, the line comes in from the left and does not hide behind it.
    const middle = b.x + b.width / 2;
    const aside = down && [...layout.items.values()].some((one) =>
      one !== a && one.x < middle && one.x + one.width > middle && one.y > a.y + a.height && one.y + one.height < b.y);
    const [x1, y1] = down && !aside ? [b.x + b.width / 2, b.y] : [b.x, b.y + b.height / 2];
    const reach = down ? (y1 - y0) * 0.5 : Math.max(30, Math.abs(x1 - x0) * 0.4);
    const [p, q] = down ? [[x0, y0 + reach], aside ? [x1 - 26, y1 - 40] : [x1, y1 - reach]] : [[x0 + reach, y0], [x1 - reach, y1]];
    const along = (t) => [0, 1].map((i) => (1 - t) ** 3 * [x0, y0][i] + 3 * t * (1 - t) ** 2 * p[i] + 3 * t * t * (1 - t) * q[i] + t ** 3 * [x1, y1][i]);
    return { path: `M${x0} ${y0}C${p[0]} ${p[1]} ${q[0]} ${q[1]} ${x1} ${y1}`, along };
  }

  /** Puts the amounts of lit lines where they cover neither a box nor one another; for what finds no room, the line's own title tells. */
  function placeAmounts(ways) {
    const taken = [...layout.items.values()].map(({ x, y, width, height }) => [x, y, x + width, y + height]);
    const free = ([a, b, c, d]) => taken.every(([left, top, right, bottom]) => c <= left || right <= a || d <= top || bottom <= b);
    for (const way of ways) {
      const half = 3.4 * way.label.textContent.length;
      const spot = [0.5, 0.4, 0.6, 0.3, 0.7, 0.22, 0.78].map(way.along).find(([x, y]) => free([x - half, y - 7, x + half, y + 7]));
      way.label.classList.toggle("lit", Boolean(spot));
      if (!spot) continue;
      taken.push([spot[0] - half, spot[1] - 7, spot[0] + half, spot[1] + 7]);
      way.label.setAttribute("x", spot[0].toFixed(1));
      way.label.setAttribute("y", (spot[1] + 4).toFixed(1));
    }
  }

  /** Marks the chosen box, and the lines of all paths through it. */
  function light() {
    const on = chosen ? [reached(chosen, forward).add(chosen), reached(chosen, back).add(chosen)] : [];
    const isOn = (line) => line.gradient && on.some((side) => side.has(line.source) && side.has(line.target));
    world.classList.toggle("choosing", Boolean(chosen));
    const touched = new Set(chosen ? [layout.ends.get(chosen)] : []);
    for (const way of drawn) {
      const lit = way.parts.filter(isOn);
      way.element.classList.toggle("lit", lit.length > 0);
      way.near = lit.some((line) => line.source === chosen || line.target === chosen);
      way.label.classList.remove("lit");
      way.label.classList.toggle("near", way.near);
      if (lit.length) touched.add(way.a).add(way.b);
    }
    const bright = drawn.filter((way) => way.element.classList.contains("lit"));
    placeAmounts(bright.sort((a, b) => b.near - a.near || b.amount - a.amount));
    for (const [id, { element }] of nodes) {
      element.classList.toggle("lit", touched.has(id));
      element.classList.toggle("chosen", Boolean(chosen) && id === layout.ends.get(chosen));
      element.classList.toggle("found", found.has(id) || [...found].some((one) => layout.ends.get(one) === id));
    }
  }

  function choose(id) {
    chosen = chosen === id ? null : id;
    light();
    describe();
    if (chosen) rove(layout.ends.get(chosen));
  }
  /** Chooses a box wherever it is: unfolds what hides it. */
  function reveal(id) {
    const box = byId.get(id);
    if (isWeight(box) && !withWeights) {
      withWeights = weights.checked = true;
    }
    box.scope.forEach((_, depth) => folded.delete(scopeKey(box.scope.slice(0, depth + 1))));
    chosen = id;
    render();
    rove(id);
    look(id);
    describe();
  }
  function fold(scope) {
    const key = scopeKey(scope);
    if (!folded.delete(key)) folded.add(key);
    const focused = drawing.contains(document.activeElement);
    render(focused ? `scope:${key}` : null);
    overview();
    look(`scope:${key}`);
  }

  function describe() {
    const box = byId.get(chosen);
    if (!box) {
      fill(panel, html("p", { class: "quiet" }, NOTHING_CHOSEN));
      return;
    }
    const amounts = (lines, end, say) => {
      const top = largest(lines.map((line) => line.gradient.norm));
      return html("ul", { class: "amounts" }, lines.map((line) => {
        const other = byId.get(line[end]);
        const where = other.scope.length ? ` in ${other.scope.join(" / ")}` : "";
        return html("li", {}, html("button", { type: "button", class: "plain", onclick: () => reveal(other.id), "aria-label": `${say} ${other.label}${where}` }, other.label),
          html("i", { class: "bar", style: { "--share": (top ? size(line.gradient.norm) / top : 0).toFixed(3) }, "aria-hidden": "true" }),
          html("span", { "data-value": line.gradient.norm }, show(line.gradient.norm, 4)));
      }));
    };
    const uses = data.lines.filter((line) => line.source === chosen && line.gradient);
    const inputs = data.lines.filter((line) => line.target === chosen && line.gradient);
    const part = (title, content) => html("div", {}, html("h4", {}, title), content);
    fill(panel,
      html("header", {},
        html("h3", {}, html("bdi", {}, box.label), " ", html("span", { class: "quiet" }, [box.scope.join(" / "), box.operation && `${box.operation} ${box.settings}`.trim(), shapeText(box.value)].filter(Boolean).join(" · "))),
        html("button", { type: "button", class: "plain", onclick: () => choose(chosen), "aria-label": "Let go of the chosen tensor" }, "Close")),
      html("div", { class: "parts" },
        box.value && [part("Value", arrayTable(box.value, `Value of ${box.label}`)), part("Gradient", arrayTable(box.gradient, `Gradient of ${box.label}`))],
        uses.length > 0 && part(uses.length > 1 ? `The sum of what comes back through ${uses.length} uses` : "Comes back through", amounts(uses, "target", "Go to")),
        inputs.length > 0 && part("Goes on to", amounts(inputs, "source", "Go to")),
        !box.value && part("Inside", box.parts.map((inner) => html("details", {},
          html("summary", {}, html("bdi", {}, inner.label), " ", html("span", { class: "quiet" }, shapeText(inner.value))),
          part("Value", arrayTable(inner.value, `Value of ${inner.label}`)), part("Gradient", arrayTable(inner.gradient, `Gradient of ${inner.label}`)))))));
  }

  // The keyboard: one box at a time takes part in the order of the Tab key; arrows go to the nearest.
  let current = null;
  function rove(id, focus = false) {
    nodes.get(current)?.element.setAttribute("tabindex", -1);
    current = id;
    const element = nodes.get(id)?.element;
    element?.setAttribute("tabindex", 0);
    if (focus) element?.focus({ preventScroll: true });
  }
  function nearest(from, [dx, dy]) {
    let best = null, least = Infinity;
    const centre = ({ item }) => [item.x + item.width / 2, item.y + item.height / 2];
    const [x, y] = centre(nodes.get(from));
    for (const [id, node] of nodes) {
      const [a, b] = centre(node);
      const ahead = (a - x) * dx + (b - y) * dy, beside = Math.abs((a - x) * dy) + Math.abs((b - y) * dx);
      if (id !== from && ahead > 1 && ahead + 2.5 * beside < least) [best, least] = [id, ahead + 2.5 * beside];
    }
    return best;
  }
  onKeys(drawing, (event) => {
    const way = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] }[event.key];
    if (way && event.shiftKey) {
      view.x -= 60 * way[0];
      view.y -= 60 * way[1];
      move();
    } else if (way) {
      const next = nearest(current, way);
      if (next) {
        rove(next, true);
        look(next);
      }
    } else if (event.key === "Enter" || event.key === " ") document.activeElement.dispatchEvent(new MouseEvent("click", { bubbles: true }));
    else if (event.key === "+" || event.key === "=") zoom(1.25);
    else if (event.key === "-") zoom(0.8);
    else if (event.key === "0") fit();
    else if (event.key === "Escape" && chosen) choose(chosen);
    else return;
    event.preventDefault();
  });
  drawing.addEventListener("focusin", (event) => {
    const id = event.target.closest("[data-id]")?.dataset.id;
    if (id) rove(id);
  });

  // The pointer: dragging moves, two fingers or the wheel with Ctrl zoom.
  const pointers = new Map();
  let moved = false;
  drawing.addEventListener("pointerdown", (event) => {
    pointers.set(event.pointerId, [event.clientX, event.clientY]);
    moved = false;
  });
  drawing.addEventListener("pointermove", (event) => {
    const before = pointers.get(event.pointerId);
    if (!before) return;
    const after = [event.clientX, event.clientY];
    if (!moved && Math.hypot(after[0] - before[0], after[1] - before[1]) < 4) return;
    if (!moved) drawing.setPointerCapture(event.pointerId);
    moved = true;
    const other = [...pointers].find(([id]) => id !== event.pointerId)?.[1];
    if (other) {
      const far = (point) => Math.hypot(point[0] - other[0], point[1] - other[1]) || 1;
      zoom(far(after) / far(before), [(after[0] + other[0]) / 2, (after[1] + other[1]) / 2]);
    } else {
      view.x += after[0] - before[0];
      view.y += after[1] - before[1];
      move();
    }
    pointers.set(event.pointerId, after);
  });
  for (const end of ["pointerup", "pointercancel", "pointerleave"]) drawing.addEventListener(end, (event) => pointers.delete(event.pointerId));
  drawing.addEventListener("click", (event) => {
    // The click that ends a drag is none.
    if (moved) event.stopPropagation();
    moved = false;
  }, true);
  drawing.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    zoom(Math.exp(-event.deltaY * 0.004), [event.clientX, event.clientY]);
  }, { passive: false });

  // The tools.
  let results = [], next = 0;
  const count = html("output", { class: "quiet" });
  const search = html("input", { type: "search", placeholder: "Search tensors", "aria-label": "Search tensors by name, operation or scope", autocomplete: "off", spellcheck: "false" });
  search.addEventListener("input", () => {
    const wanted = search.value.trim().toLowerCase().normalize("NFKC");
    // The very name first, then names that begin so, then all else that has it.
    const plain = (text) => text.toLowerCase().normalize("NFKC");
    const fits = (box) => [box.label, box.operation ?? "", box.scope.join("/"), ...box.parts.map((part) => part.label)]
      .some((text) => plain(text).includes(wanted));
    const rank = (box) => (plain(box.label) === wanted ? 0 : plain(box.label).startsWith(wanted) ? 1 : 2);
    results = wanted ? data.boxes.filter(fits).sort((a, b) => rank(a) - rank(b)).map((box) => box.id) : [];
    next = 0;
    found = new Set(results);
    count.textContent = wanted ? `${results.length} found` : "";
    light();
  });
  search.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !results.length) return;
    reveal(results[next % results.length]);
    next += 1;
    count.textContent = `${((next - 1) % results.length) + 1} of ${results.length}`;
  });
  const button = (text, act, label = null) => html("button", { type: "button", class: "plain", onclick: act, "aria-label": label }, text);
  const refold = (keys) => () => {
    folded.clear();
    keys.forEach((key) => folded.add(key));
    render();
    overview();
  };
  const weights = html("input", { type: "checkbox" });
  weights.addEventListener("change", () => {
    withWeights = weights.checked;
    render();
    overview();
  });
  const top = [...scopes].filter(([, scope]) => scope.length === 1).map(([key]) => key);
  fill(place,
    html("p", { class: "note" }, "The loss on one example, ", html("span", { class: "example" }, data.source.flatMap((token) => [word(token), " "]), "→ ", data.target.flatMap((token) => [word(token), " "])),
      "with the best weights, gone forward and back. The gradient flows against the lines; the wider a line, the more of it."),
    html("div", { class: "tools", role: "toolbar", "aria-label": "Graph" }, search, count,
      button("Fold all", refold(top)), steps.length ? button("Fold steps", refold(steps)) : null, button("Unfold all", refold([])),
      html("label", { class: "check" }, weights, "weights"),
      html("span", { class: "zoom" }, button("−", () => zoom(0.8), "Zoom out"), button("Fit", fit, "Fit to the frame"), button("+", () => zoom(1.25), "Zoom in"))),
    html("div", { class: "canvas-and-panel" }, drawing, panel),
    data.notices.map((notice) => html("p", { class: "quiet" }, notice)));
  render();
  describe();
  fit();
  // On a narrow screen so much is folded at first that the whole can be read.
  for (const keys of [steps, [...steps, ...top]]) {
    if (view.k >= 0.55) break;
    refold(keys)();
    fit();
  }
  new ResizeObserver(resized).observe(drawing);
}
