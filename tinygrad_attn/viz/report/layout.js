// Where the boxes of the graph stand. Every scope is laid out by itself, as layers, and is then one box in the
// scope around it: so nothing overlaps, whatever is folded. Steps that follow one another go to the right,
// everything else goes down.

const GAP = { box: 22, layer: 36, step: 40, frame: 14, title: 24 };

const scopeKey = (scope) => scope.join("\u0000");

/** Whether a name ends in a number, as "step 3" does. */
const isNumbered = (name) => /\d+$/.test(name);

/**
 * @param boxes [{id, scope, width, height}] in the order of the computation
 * @param lines [{source, target}]
 * @param folded a Set of scope keys that are one box each
 * @param foldedSize (scope) => {width, height}
 * @returns {items: Map id -> {x, y, width, height, scope?}, frames: [...], ends: Map box id -> item id, width, height}
 */
function layOut(boxes, lines, folded, foldedSize) {
  const root = { key: "", scope: [], children: new Map(), order: 0, item: null };
  const ends = new Map();
  boxes.forEach((box, order) => {
    let here = root;
    for (let depth = 1; depth <= box.scope.length; depth++) {
      const scope = box.scope.slice(0, depth), key = scopeKey(scope);
      if (!here.children.has(`scope:${key}`)) {
        here.children.set(`scope:${key}`, { key, id: `scope:${key}`, scope, children: new Map(), order, parent: here });
      }
      here = here.children.get(`scope:${key}`);
      if (folded.has(key)) break;
    }
    if (here !== root && folded.has(here.key)) {
      here.folded = true;
      ends.set(box.id, here);
    } else {
      const leaf = { id: box.id, order, width: box.width, height: box.height, parent: here };
      here.children.set(box.id, leaf);
      ends.set(box.id, leaf);
    }
  });

  /** Lines between the children of each scope, found by climbing to where two ends part. */
  const links = new Map();
  const chain = (node) => {
    const up = [];
    for (let at = node; at; at = at.parent) up.unshift(at);
    return up;
  };
  for (const { source, target } of lines) {
    const a = chain(ends.get(source)), b = chain(ends.get(target));
    let depth = 0;
    while (depth < a.length && depth < b.length && a[depth] === b[depth]) depth++;
    if (depth >= a.length || depth >= b.length) continue;
    const parent = a[depth - 1];
    if (!links.has(parent)) links.set(parent, []);
    links.get(parent).push([a[depth], b[depth]]);
  }

  const measure = (node) => {
    if (node.folded) Object.assign(node, foldedSize(node.scope));
    else if (node.children) arrange(node);
  };

  function arrange(scope) {
    const children = [...scope.children.values()];
    children.forEach(measure);
    const steps = children.filter((child) => child.scope && isNumbered(child.scope[child.scope.length - 1]));
    const joined = links.get(scope) ?? [];
    const place = steps.length > 1 ? inSteps(children, steps, joined) : layers(children, joined);
    const top = scope === root ? 0 : GAP.frame + GAP.title, side = scope === root ? 0 : GAP.frame;
    for (const child of children) {
      child.x = place.x.get(child) + side;
      child.y = place.y.get(child) + top;
    }
    scope.width = place.width + 2 * side;
    scope.height = place.height + top + side;
    if (scope !== root) scope.width = Math.max(scope.width, 40 + 8 * scope.scope[scope.scope.length - 1].length);
  }

  measure(root);
  const items = new Map(), frames = [];
  (function put(node, x, y) {
    for (const child of node.children.values()) {
      const at = { id: child.id, x: x + child.x, y: y + child.y, width: child.width, height: child.height, scope: child.scope };
      if (child.children && !child.folded) {
        frames.push(at);
        put(child, at.x, at.y);
      } else items.set(child.id, at);
    }
  })(root, 0, 0);
  return { items, frames, ends: new Map([...ends].map(([id, node]) => [id, node.id])), width: root.width, height: root.height };
}

/** Steps beside one another; before them what they start from, below them what is made of them. */
function inSteps(children, steps, links) {
  const first = steps[0].order;
  const isStep = new Set(steps);
  const early = children.filter((child) => !isStep.has(child) && child.order < first);
  const late = children.filter((child) => !isStep.has(child) && child.order >= first);
  const groups = new Map();
  for (const step of steps) {
    // A row for each name before the numbers: "step 1", "step 2" in one, "turn 1", "turn 2" in the next.
    const name = step.scope[step.scope.length - 1].replace(/\d+$/, "");
    if (!groups.has(name)) groups.set(name, []);
    groups.get(name).push(step);
  }
  const x = new Map(), y = new Map();
  const within = (some) => layers(some, links.filter(([a, b]) => some.includes(a) && some.includes(b)));
  const put = (some, place, dx, dy) => some.forEach((child) => {
    x.set(child, place.x.get(child) + dx);
    y.set(child, place.y.get(child) + dy);
  });
  const before = within(early);
  const indent = early.length ? before.width + GAP.step : 0;
  let width = 0, height = 0;
  for (const row of groups.values()) {
    const tall = Math.max(...row.map((step) => step.height));
    let at = indent;
    for (const step of row.sort((a, b) => a.order - b.order)) {
      x.set(step, at);
      y.set(step, height + (step.folded ? (tall - step.height) / 2 : 0));
      at += step.width + GAP.step;
    }
    width = Math.max(width, at - GAP.step);
    height += tall + GAP.layer;
  }
  height -= GAP.layer;
  put(early, before, 0, Math.max(0, (height - before.height) / 2));
  height = Math.max(height, before.height);
  if (late.length) {
    const below = within(late);
    put(late, below, Math.max(0, indent + (width - indent - below.width) / 2), height + GAP.layer);
    width = Math.max(width, indent + below.width);
    height += GAP.layer + below.height;
  }
  return { x, y, width, height };
}

/** Children in layers, each below all that lead to it; within a layer near to what they are joined with. */
function layers(children, links) {
  if (!children.length) return { x: new Map(), y: new Map(), width: 0, height: 0 };
  const before = new Map(children.map((child) => [child, new Set()])), after = new Map(children.map((child) => [child, new Set()]));
  for (const [a, b] of links) {
    // Folded scopes may lead to one another in a ring; what was computed first stays first.
    if (a.order < b.order || (a.order === b.order && a !== b)) {
      before.get(b).add(a);
      after.get(a).add(b);
    }
  }
  const rank = new Map();
  const sorted = [...children].sort((a, b) => a.order - b.order);
  for (const child of sorted) rank.set(child, Math.max(-1, ...[...before.get(child)].map((other) => rank.get(other) ?? -1)) + 1);
  // What nothing leads to stands right before what it is used by.
  for (const child of [...sorted].reverse()) {
    if (!before.get(child).size && after.get(child).size) {
      rank.set(child, Math.min(...[...after.get(child)].map((other) => rank.get(other))) - 1);
    }
  }
  const lowest = Math.min(...rank.values());
  const rows = [];
  for (const child of sorted) (rows[rank.get(child) - lowest] ??= []).push(child);
  const filled = rows.filter(Boolean);

  const position = new Map();
  const spread = (row) => {
    let at = 0;
    for (const child of row) {
      position.set(child, at + child.width / 2);
      at += child.width + GAP.box;
    }
  };
  filled.forEach(spread);
  const wanted = (child, others) => {
    const found = [...others.get(child)].map((other) => position.get(other));
    return found.length ? found.reduce((a, b) => a + b) / found.length : null;
  };
  for (let round = 0; round < 8; round++) {
    const down = round % 2 === 0;
    for (const row of down ? filled : [...filled].reverse()) {
      const aim = new Map(row.map((child) => [child, wanted(child, down ? before : after) ?? position.get(child)]));
      if (round < 4) row.sort((a, b) => aim.get(a) - aim.get(b) || a.order - b.order);
      settle(row, aim);
    }
  }

  /** Each as near to where it wants to be as the others in its row allow. */
  function settle(row, aim) {
    const least = [], most = [];
    row.forEach((child, i) => {
      const room = i ? least[i - 1] + (row[i - 1].width + child.width) / 2 + GAP.box : -Infinity;
      least[i] = Math.max(aim.get(child), room);
    });
    for (let i = row.length - 1; i >= 0; i--) {
      const room = i < row.length - 1 ? most[i + 1] - (row[i + 1].width + row[i].width) / 2 - GAP.box : Infinity;
      most[i] = Math.min(aim.get(row[i]), room);
    }
    row.forEach((child, i) => position.set(child, (least[i] + most[i]) / 2));
  }

  const start = Math.min(...children.map((child) => position.get(child) - child.width / 2));
  const x = new Map(), y = new Map();
  let at = 0;
  for (const row of filled) {
    const thick = Math.max(...row.map((child) => child.height));
    for (const child of row) {
      x.set(child, position.get(child) - child.width / 2 - start);
      y.set(child, at + (thick - child.height) / 2);
    }
    at += thick + GAP.layer;
  }
  const end = Math.max(...children.map((child) => position.get(child) + child.width / 2)) - start;
  return { x, y, width: end, height: at - GAP.layer };
}
