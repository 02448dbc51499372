// Matrices with a row for each output word and a column for each source word.

/** The colour of an entry: grey as in the papers for weights, or by sign for gradients. */
function paint(cell, value, most, signed) {
  cell.classList.toggle("strange", typeof value === "string");
  if (signed) {
    const share = most > 0 ? Math.min(1, size(value) / most) : 0;
    cell.style.setProperty("--share", share.toFixed(3));
    cell.classList.toggle("negative", typeof value === "number" && value < 0);
  } else {
    const level = Math.round(255 * Math.min(1, Math.max(0, typeof value === "number" ? value : 0)));
    cell.style.setProperty("background-color", `rgb(${level}, ${level}, ${level})`);
  }
  cell.classList.toggle("signed", signed);
}

/** How many rows and columns a matrix has at most: a browser takes long over more cells. */
const MOST_WORDS = 100;

/**
 * A heat map as a table, of the beginning where there are more `words` of a side than it has; `note` says so. Output
 * words are buttons: pointing at one or focusing it lights its row and says so by `light(row)`; the arrow keys go from
 * one to the next.
 */
function heatTable({ caption, source: sources, target: targets, words = [sources.length, targets.length], values, signed = false, light, name = "α" }) {
  const [source, target] = [sources, targets].map((side) => side.slice(0, MOST_WORDS));
  const many = source.length > 16;
  const upright = Math.max(...source.map((token) => [...token].length), 1) > (many ? 1 : 3);
  const most = largest(values.flat());
  const columns = source.map((token, j) =>
    html("th", { scope: "col", class: upright ? "upright" : null, "data-column": j }, html("span", {}, word(token))),
  );
  const buttons = [];
  const rows = target.map((token, i) => {
    const button = html("button", { type: "button", tabindex: i ? -1 : 0, "data-row": i }, word(token));
    buttons.push(button);
    const cells = source.map((_, j) => {
      const value = values[i]?.[j] ?? 0;
      const cell = html("td", { "data-value": value, title: `${name}${subscript(i + 1)},${subscript(j + 1)} = ${show(value, 5)}` },
        html("span", { class: "visually-hidden" }, show(value)));
      paint(cell, value, most, signed);
      return cell;
    });
    const row = html("tr", {}, html("th", { scope: "row" }, button), cells);
    row.addEventListener("pointerenter", () => show_(i));
    button.addEventListener("focus", () => show_(i));
    button.addEventListener("click", () => show_(i));
    return row;
  });
  const table = html(
    "table",
    { class: many ? "heat many" : "heat", style: { "--columns": source.length } },
    html("caption", { class: "visually-hidden" }, caption),
    html("thead", {}, html("tr", {}, html("td", {}), columns)),
    html("tbody", {}, rows),
  );
  onKeys(table, (event) => {
    const here = buttons.indexOf(document.activeElement);
    const next = { ArrowDown: here + 1, ArrowUp: here - 1, Home: 0, End: buttons.length - 1 }[event.key];
    if (here < 0 || next === undefined || !buttons[next]) return;
    event.preventDefault();
    buttons[next].focus();
  });

  function show_(i, told = true) {
    rows.forEach((row, k) => row.classList.toggle("lit", k === i));
    buttons.forEach((button, k) => {
      button.tabIndex = k === i ? 0 : -1;
      button.setAttribute("aria-pressed", String(k === i));
    });
    const weights = values[i] ?? [];
    const top = largest(weights);
    columns.forEach((column, j) => {
      const share = signed ? (top ? size(weights[j]) / top : 0) : size(weights[j]);
      column.style.setProperty("--lit", share.toFixed(3));
      column.classList.toggle("lit", share >= 0.1);
    });
    if (told && light) light(i);
  }
  const [columnCount, rowCount] = words;
  const note = columnCount > source.length || rowCount > target.length
    ? html("p", { class: "quiet" }, `Of ${columnCount} source words and ${rowCount} output words, up to ${MOST_WORDS} of each are drawn.`) : null;
  return { element: html("div", { class: "scroll" }, table), note, light: (i) => show_(i, false) };
}

/** The scale beside a heat map. */
const greyScale = () =>
  html("div", { class: "scale", "aria-hidden": "true" }, html("span", {}, "0"), html("i", { class: "grey" }), html("span", {}, "1"));

const signScale = (values) => {
  const most = largest(values.flat());
  return html("div", { class: "scale", "aria-hidden": "true" },
    html("span", {}, `−${show(most)}`), html("i", { class: "signs" }), html("span", {}, show(most)));
};
