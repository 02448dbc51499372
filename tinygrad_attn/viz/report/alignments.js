// Alignments of test examples: a list to choose from, the matrix, and what the chosen row says.

function drawAlignments(place, examples) {
  const predictions = examples?.predictions ?? [];
  if (!predictions.length) {
    fill(place, html("p", { class: "missing" }, "No alignments yet: they are kept when training ends, or by `tinygrad-attn report`."));
    return;
  }
  const text = (tokens) => tokens.flatMap((token, i) => [i ? " " : null, word(token)]);
  const main = html("div", { class: "chosen" });
  const items = predictions.map((one, index) =>
    html("button", { type: "button", role: "option", onclick: () => choose(index) },
      html("span", { class: "from" }, text(one.source)),
      html("span", { class: "to" }, "→ ", text(one.tokens)),
      one.right ? null : html("span", { class: "wrong" }, "wrong")),
  );
  const list = html("div", { class: "examples", role: "listbox", "aria-label": "Examples of the test set" }, items);
  onKeys(list, (event) => {
    const here = items.indexOf(document.activeElement);
    const next = { ArrowDown: here + 1, ArrowRight: here + 1, ArrowUp: here - 1, ArrowLeft: here - 1, Home: 0, End: items.length - 1 }[event.key];
    if (here < 0 || !items[next]) return;
    event.preventDefault();
    items[next].focus();
    choose(next);
  });

  function choose(index) {
    items.forEach((item, i) => {
      item.setAttribute("aria-selected", String(i === index));
      item.tabIndex = i === index ? 0 : -1;
    });
    const { source, tokens, reference, right, weights, log_probability: log } = predictions[index];
    if (!tokens.length) {
      fill(main, html("p", { class: "missing" }, "The model ended this output at once: there is no alignment."));
      return;
    }
    const says = html("p", { class: "says", "aria-live": "polite" });
    const strip = source.map((token) => html("span", {}, word(token)));
    const matrix = heatTable({
      caption: "Alignment: output words by row, source words by column",
      source, target: tokens, values: weights,
      light(i) {
        const order = weights[i].map((weight, j) => [size(weight), j]).sort(([a], [b]) => b - a);
        const terms = order.filter(([weight], k) => k === 0 || (weight >= 0.02 && k < 5));
        fill(says,
          html("span", { class: "formula" },
            html("b", {}, `c${subscript(i + 1)}`), " = ",
            terms.flatMap(([weight, j], k) => [k ? " + " : null, `${show(weight)} h${subscript(j + 1)}`]),
            order.slice(terms.length).some(([weight]) => weight >= 0.0005) ? " + …" : null),
          html("span", {}, word(tokens[i]), " looked at ", word(source[order[0][1]]), `, α = ${show(order[0][0], 5)}`),
        );
        strip.forEach((span, j) => span.style.setProperty("--lit", size(weights[i][j]).toFixed(3)));
      },
    });
    const [item, top] = [items[index], list.scrollTop];
    if (item.offsetTop < top || item.offsetTop + item.offsetHeight > top + list.clientHeight) list.scrollTop = item.offsetTop - list.clientHeight / 3;
    fill(main,
      html("div", { class: "strip", role: "group", "aria-label": "Source words, by their weight" }, strip),
      says,
      html("div", { class: "with-scale" }, matrix.element, matrix.note, greyScale()),
      html("p", { class: "quiet" },
        right ? "Right" : html("span", {}, "Wrong; expected ", text(reference)),
        ` · log probability ${show(log)}`),
    );
    main.querySelector("table.heat tbody tr").dispatchEvent(new Event("pointerenter"));
  }
  fill(place, list, main);
  choose(predictions.findIndex((one) => one.source.length >= 7) >= 0 ? predictions.findIndex((one) => one.source.length >= 7) : 0);
}
