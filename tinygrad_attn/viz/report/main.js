// Draws the page from the data in it. A part that cannot be drawn says so, and leaves the others as they are.

const run = JSON.parse(document.getElementById("run-data").textContent);
const parts = {
  curves: (place) => drawCurves(place, run.rows),
  "alignment-view": (place) => drawAlignments(place, run.examples),
  "flow-view": (place) => drawFlow(place, run.snapshots, run.examples),
  "graph-view": (place) => drawGraph(place, run.examples?.graph),
};
for (const [id, draw] of Object.entries(parts)) {
  const place = document.getElementById(id);
  try {
    draw(place);
  } catch (error) {
    fill(place, html("p", { class: "missing" }, `A file of the run does not hold what training wrote, so this cannot be drawn (${error.message}).`));
  }
}
document.documentElement.dataset.ready = "yes";
