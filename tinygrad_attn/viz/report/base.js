"use strict";
// What all parts of the page share: making elements, and showing numbers. Everything that comes from the data
// is put in as text (`textContent`), never as markup.

const SVG = "http://www.w3.org/2000/svg";

/** An element; `on...` are listeners, `style` holds properties, null and false leave an attribute out. */
function make(parent, tag, attributes = {}, ...children) {
  const element = parent === SVG ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") {
      // By property, because the page's policy forbids style attributes.
      for (const [property, setting] of Object.entries(value)) element.style.setProperty(property, setting);
    } else element.setAttribute(name, value === true ? "" : String(value));
  }
  return fill(element, ...children);
}

/** Puts children in place of those there are; lists within lists are gone through, null and false left out. */
function fill(element, ...children) {
  element.replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

const html = (tag, attributes, ...children) => make(null, tag, attributes, ...children);
const svg = (tag, attributes, ...children) => make(SVG, tag, attributes, ...children);

/** A word of the data: kept apart from the direction of the text around it. */
const word = (text) => html("bdi", { class: "word" }, text);

/** Text of at most so many characters. */
const shorten = (text, length) => ([...text].length > length ? `${[...text].slice(0, length - 1).join("")}…` : text);

/** A number to so many significant digits; what is not finite comes as a string. */
function show(x, digits = 3) {
  if (x === null || x === undefined) return "–";
  if (typeof x === "string") return x.replace("-Infinity", "−∞").replace("Infinity", "∞");
  if (x === 0) return "0";
  const size = Math.abs(x);
  const text =
    size >= 1e5 || size < 1e-3
      ? x.toExponential(digits - 1).replace(/\.?0+e/, "e").replace("e+", "e")
      : String(Number(x.toPrecision(digits)));
  return text.replace(/-/g, "−");
}

const subscript = (number) => String(number).replace(/\d/g, (digit) => "₀₁₂₃₄₅₆₇₈₉"[digit]);

/** "s2" as the papers write it. */
const inPrint = (label) => label.replace(/\d+$/, subscript);

/** Numbers alone: what is not finite (it comes as a string) counts as nothing where sizes are compared. */
const size = (x) => (typeof x === "number" ? Math.abs(x) : 0);
const largest = (numbers) => numbers.reduce((most, x) => Math.max(most, size(x)), 0);

/** Round steps that cover low to high, about `count` of them. */
function ticks(low, high, count = 4) {
  if (!(high > low)) return [low];
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((k) => k * power).find((k) => k >= rough * 0.999);
  const found = [];
  for (let x = Math.ceil(low / step - 1e-9) * step; x <= high + step * 1e-9; x += step) {
    found.push(Number(x.toPrecision(10)));
  }
  return found;
}

/** A region that scrolls sideways where its content is wider; an end beyond which there is more fades out. */
function sideways(label, ...content) {
  const region = html("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": label }, ...content);
  const tell = () => {
    region.classList.toggle("more-left", region.scrollLeft > 4);
    region.classList.toggle("more-right", region.scrollLeft < region.scrollWidth - region.clientWidth - 4);
  };
  region.addEventListener("scroll", tell, { passive: true });
  new ResizeObserver(tell).observe(region);
  return region;
}

/** The width of a chart's own units: those of the screen, where that is narrow, so that its text stays readable. */
const chartWidth = () => Math.min(460, Math.max(280, innerWidth - 36));

/** A number that only this page's ids use. */
let lastId = 0;
const newId = (what) => `${what}-${++lastId}`;

/** Listens for keys; those pressed with Ctrl, Alt or Meta are commands of the browser and stay that. */
function onKeys(element, act) {
  element.addEventListener("keydown", (event) => {
    if (!event.ctrlKey && !event.altKey && !event.metaKey) act(event);
  });
}

/** A row of buttons of which one is pressed; arrow keys move. `choose(index)` is told. */
function choices(label, names, choose, chosen = 0) {
  const buttons = names.map((name, index) =>
    html("button", { type: "button", role: "radio", onclick: () => press(index) }, name),
  );
  function press(index, told = true) {
    buttons.forEach((button, i) => {
      button.setAttribute("aria-checked", String(i === index));
      button.tabIndex = i === index ? 0 : -1;
    });
    if (told) choose(index);
  }
  press(chosen, false);
  const group = html("div", { class: "choices", role: "radiogroup", "aria-label": label }, buttons);
  onKeys(group, (event) => {
    const move = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!move) return;
    event.preventDefault();
    const next = (buttons.indexOf(document.activeElement) + move + buttons.length) % buttons.length;
    press(next);
    buttons[next].focus();
  });
  return group;
}

/** A slider with its name before it and what it stands at behind it. */
function slider(label, count, start, describe, moved) {
  const id = newId("slider");
  const shown = html("output", { for: id });
  const input = html("input", { type: "range", id, min: 0, max: Math.max(0, count - 1), step: 1 });
  input.value = start;
  const tell = () => {
    shown.textContent = describe(Number(input.value));
    input.setAttribute("aria-valuetext", shown.textContent);
  };
  input.addEventListener("input", () => {
    tell();
    moved(Number(input.value));
  });
  tell();
  const element = html("div", { class: "slider" }, html("label", { for: id }, label), input, shown);
  return {
    element,
    get value() {
      return Number(input.value);
    },
    set value(next) {
      input.value = next;
      tell();
    },
    /** Another number of places. */
    resize(places) {
      input.max = Math.max(0, places - 1);
      tell();
    },
  };
}
