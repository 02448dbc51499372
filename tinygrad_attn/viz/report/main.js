// Draws the page from the data in it.

const run = JSON.parse(document.getElementById("run-data").textContent);
const at = (id) => document.getElementById(id);
drawCurves(at("curves"), run.rows);
drawAlignments(at("alignment-view"), run.examples);
drawFlow(at("flow-view"), run.snapshots, run.examples);
drawGraph(at("graph-view"), run.examples?.graph);
document.documentElement.dataset.ready = "yes";
