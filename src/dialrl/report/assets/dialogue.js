// One dialogue: its path through the state space, and its turns with grades, evidence, reward, return and advantage.

const TINTS = { a: "advantage", v: "return", w: "reward" };

/** The file's dialogue as elements. ``options``: tint (a, v, w), scale (value of full colour), tokens. */
function dialogueView(set, dialogue, options) {
  const parts = [summaryLine(set, dialogue)];
  const path = element("div", { class: "path" });
  if (dialogue.d && dialogue.t.some((turn) => turn.p)) parts.push(path);
  if (options.tokens) parts.push(tokensLegend(dialogue));
  dialogue.t.forEach((turn) => parts.push(turnView(set, dialogue, turn, options)));
  (dialogue.f || []).forEach(([who, text]) => parts.push(message(who, text)));
  const box = element("div", {}, ...parts);
  box.pathPlace = path.isConnected || path.parentNode ? path : null;
  return box;
}

function summaryLine(set, dialogue) {
  const total = totalReward(dialogue);
  const facts = [
    `${dialogue.t.length} turns`,
    total === null ? null : `total ${set.reward} ${shown(total)}`,
    dialogue.o === undefined ? null : `outcome ${shown(dialogue.o)}`,
    dialogue.e ? `ended by ${dialogue.e.replaceAll("_", " ")}` : null,
    dialogue.st === undefined ? null : `a stop rule fired at turn ${dialogue.st}`,
  ].filter(Boolean);
  const error = dialogue.er ? element("span", { class: "flag" }, dialogue.er) : null;
  return element("div", { class: "summary" }, element("h3", {}, dialogue.i), element("span", { class: "soft" }, facts.join(", ")), error);
}

function totalReward(dialogue) {
  const known = dialogue.t.filter((turn) => turn.w !== undefined);
  return known.length ? known.reduce((sum, turn) => sum + turn.w, 0) : null;
}

function turnView(set, dialogue, turn, options) {
  const stopped = dialogue.st !== undefined && turn.n > dialogue.st;
  const parts = (turn.m || []).map(([who, text]) => message(who, text));
  if (turn.h) parts.push(message("thinking", turn.h, "thinking"));
  const reply = message(`policy ${turn.n}`, turn.r === undefined ? "(no reply)" : turn.r || "(an empty reply)", "reply");
  const value = turn[options.tint];
  if (value !== undefined) reply.lastChild.style.background = tint(value, options.scale);
  parts.push(reply, factsLine(set, turn), ...evidence(turn));
  if (options.tokens) parts.push(tokensView(turn));
  return element("div", { class: stopped ? "turn after-stop" : "turn", "data-turn": turn.n }, ...parts);
}

function message(who, text, kind = "") {
  return element("div", { class: `message ${kind}` }, element("div", { class: "who" }, who), element("div", { class: "text", dir: "auto" }, text));
}

/** Blue for above 0, orange for below; full at ``scale``. */
function tint(value, scale) {
  const strength = Math.min(Math.abs(value) / (scale || 1), 1) * 0.6;
  return `rgba(var(${value >= 0 ? "--up" : "--down"}), ${strength.toFixed(3)})`;
}

function factsLine(set, turn) {
  const line = element("div", { class: "facts" });
  const fact = (name, value) => line.append(element("span", {}, `${name} `, element("b", {}, value)));
  if (turn.w !== undefined) fact(set.reward, signed(turn.w));
  if (turn.v !== undefined) fact("return", shown(turn.v));
  if (turn.a !== undefined) fact("advantage", signed(turn.a));
  for (const [term, value] of Object.entries(turn.x || {})) fact(`term ${term}`, signed(value));
  if (turn.p) fact(turn.pe ? "state (carried forward)" : "state", `(${turn.p.map((x) => shown(x)).join(", ")})`);
  if (turn.nk) fact("tokens", `${turn.nk} ${!set.trains ? "sampled" : turn.a === undefined ? "not trained" : "trained"}, ${turn.nc || 0} context`);
  if (turn.js) line.append(element("span", { class: "flag" }, `judgement ${turn.js}${turn.je ? ": " + turn.je : ""}`));
  for (const flag of turn.fl || []) line.append(element("span", { class: "flag" }, flag));
  if (turn.fr) line.append(element("span", { class: "flag" }, turn.fr === "length" ? "cut by the token limit" : turn.fr));
  if (turn.di) line.append(element("span", {}, `director: ${turn.di}`));
  return line;
}

function evidence(turn) {
  return (turn.l || []).map(([indicator, level, quote, reasoning]) => element("div", { class: "evidence" }, element("span", { class: "grade" }, `${indicator} ${level > 0 ? "+" : ""}${level}`), quote ? ` “${quote}”` : "", reasoning ? ` - ${reasoning}` : ""));
}

/** Context in grey, sampled tokens tinted by how unlikely they were, trained ones underlined. */
function tokensView(turn) {
  if (!turn.k) return element("div", { class: "tokens soft" }, turn.nk ? "ids are not in this page; see dialrl inspect --dialogue ID --tokens" : "no token ids in this file");
  const trained = turn.a !== undefined;
  const context = (turn.c || []).map((id) => element("span", { class: "token context", title: `id ${id}, context` }, piece(id)));
  const sampled = turn.k.map((id, index) => {
    const logprob = turn.q ? turn.q[index] : undefined;
    const token = element("span", { class: trained ? "token trained" : "token", title: `id ${id}${logprob === undefined ? "" : `, log-prob ${logprob}`}` }, piece(id));
    if (logprob !== undefined) token.style.background = `rgba(var(--down), ${(1 - Math.exp(logprob)) * 0.5})`;
    return token;
  });
  return element("div", { class: "tokens" }, ...context, ...sampled);
}

/** What the marks of ``tokensView`` mean, as far as the dialogue has them. */
function tokensLegend(dialogue) {
  const has = (test) => dialogue.t.some((turn) => turn.k && test(turn));
  const words = [["grey: context", () => true], ["orange: the less likely when drawn, the stronger", (turn) => turn.q], ["underlined: trained", (turn) => turn.a !== undefined]];
  return element("div", { class: "caption" }, words.filter(([, test]) => has(test)).map(([text]) => text).join("; "));
}

const piece = (id) => content.pieces[id] ?? String(id);

// the path ------------------------------------------------------------------------------------------------------------

/** Axes by turn, and the path in the plane of the first two with the third as colour. */
function pathRows(dialogue) {
  const points = [[0, dialogue.d], ...dialogue.t.filter((turn) => turn.p).map((turn) => [turn.n + 1, turn.p])];
  return points.map(([turn, point]) => Object.fromEntries([["turn", turn], ...point.map((value, index) => [axisName(index, point.length), value])]));
}

const axisName = (index, axes) => (axes === 3 ? "CAP"[index] : `axis ${index + 1}`);

async function drawPath(place, dialogue) {
  const rows = pathRows(dialogue);
  const names = Object.keys(rows[0]).filter((name) => name !== "turn");
  const [lines, plane] = [element("div", { class: "plot" }), element("div", { class: "plot" })];
  place.replaceChildren(lines, ...(names.length > 1 ? [plane] : []));
  const drawn = [await draw(lines, pathLines(rows, names))];
  if (names.length > 1) drawn.push(await draw(plane, pathPlane(rows, names)));
  return drawn;
}

function pathLines(rows, names) {
  const x = { field: "turn", type: "quantitative", title: "turn (0: at the start)", axis: { tickMinStep: 1, format: "d", grid: false } };
  const y = { field: "value", type: "quantitative", title: "state" };
  const colour = { field: "axis", type: "nominal", sort: names, legend: { orient: "top", title: null } };
  return {
    width: "container", height: 150, data: { name: "rows", values: rows }, transform: [{ fold: names, as: ["axis", "value"] }],
    layer: [
      { mark: { type: "rule", strokeDash: [4, 4], color: "#8a8f98" }, encoding: { y: { datum: 0 } } },
      { mark: { type: "line", strokeWidth: 2, point: { size: 30, filled: true } }, encoding: { x, y, color: colour, tooltip: [{ field: "axis" }, { field: "turn" }, { field: "value" }] } },
    ],
  };
}

const spread = (rows, field) => Math.max(...rows.map((row) => row[field])) - Math.min(...rows.map((row) => row[field]));

function pathPlane(rows, [first, second, third]) {
  const axis = (field) => (spread(rows, field) >= 2 ? { tickMinStep: 1 } : {});
  const along = (field) => ({ field, type: "quantitative", title: field, scale: { zero: false, padding: 8 }, axis: axis(field) });
  const point = { x: along(first), y: along(second), tooltip: ["turn", first, second, third].filter(Boolean).map((field) => ({ field })) };
  const shade = third ? { color: { field: third, type: "quantitative", scale: { scheme: "viridis" }, legend: { orient: "top", title: third, gradientLength: 90, ...axis(third) } } } : {};
  return {
    width: "container", height: 150, data: { name: "rows", values: rows },
    layer: [
      { mark: { type: "line", strokeWidth: 1.2, color: "#8a8f98" }, encoding: { x: point.x, y: point.y, order: { field: "turn" } } },
      { mark: { type: "point", filled: true, size: 60, opacity: 1, stroke: "#8a8f98", strokeWidth: 1 }, encoding: { ...point, ...shade } },
      { transform: [{ filter: "datum.turn == 0" }], mark: { type: "text", dy: 13, text: "start", fontSize: 11, color: "#8a8f98" }, encoding: { x: point.x, y: point.y } },
    ],
  };
}
