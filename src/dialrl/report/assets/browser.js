// The dialogue browser (a list that draws only what is in view, and the dialogue chosen) and the side-by-side view.

const ROW = 56;
const state = { view: "charts", set: 0, chosen: 0, found: [], tint: "a", tokens: false };
const loaded = []; // dialogues of each file, once unpacked

/** Dialogues of file ``index``: base64, gzip, JSON. */
async function dialoguesOf(index) {
  if (!loaded[index]) {
    const packed = atob(document.querySelectorAll("script.dialogues")[index].textContent);
    const bytes = Uint8Array.from(packed, (character) => character.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    loaded[index] = JSON.parse(await new Response(stream).text()).map(withFigures);
  }
  return loaded[index];
}

/** What the list orders and filters by, computed once. */
function withFigures(dialogue) {
  const values = (key) => dialogue.t.map((turn) => turn[key]).filter((value) => value !== undefined);
  dialogue.total = totalReward(dialogue);
  dialogue.largest = Math.max(0, ...values("a").map(Math.abs));
  dialogue.missing = dialogue.t.filter((turn) => turn.js === "missing").length;
  dialogue.flagged = dialogue.t.reduce((sum, turn) => sum + (turn.fl || []).length, 0);
  dialogue.broken = dialogue.er !== undefined || dialogue.t.some((turn) => turn.fr);
  return dialogue;
}

function searched(dialogue) {
  dialogue.text ??= [dialogue.i, ...dialogue.t.flatMap((turn) => [turn.r || "", ...(turn.m || []).map((m) => m[1])])].join("\n").toLowerCase();
  return dialogue.text;
}

const FILTERS = { all: () => true, missing: (d) => d.missing > 0, flags: (d) => d.flagged > 0, broken: (d) => d.broken };
const ORDERS = {
  file: null,
  advantage: (a, b) => b.largest - a.largest,
  best: (a, b) => (b.total ?? -Infinity) - (a.total ?? -Infinity),
  worst: (a, b) => (a.total ?? Infinity) - (b.total ?? Infinity),
  long: (a, b) => b.t.length - a.t.length,
};

async function refreshList() {
  const all = await dialoguesOf(state.set);
  const wanted = byId("search").value.trim().toLowerCase();
  const kept = all.filter(FILTERS[byId("filter").value]).filter((d) => !wanted || searched(d).includes(wanted));
  const order = ORDERS[byId("order").value];
  state.found = order ? kept.slice().sort(order) : kept;
  state.chosen = 0;
  state.scale = {};
  byId("list").scrollTop = 0;
  byId("rows").style.height = `${state.found.length * ROW}px`;
  drawRows();
  await openChosen();
}

/** Only the rows in view, so that thousands cost nothing. */
function drawRows() {
  const list = byId("list");
  const first = Math.max(0, Math.floor(list.scrollTop / ROW) - 4);
  const last = Math.min(state.found.length, Math.ceil((list.scrollTop + list.clientHeight) / ROW) + 4);
  const rows = [];
  for (let index = first; index < last; index++) rows.push(listRow(state.found[index], index));
  byId("rows").replaceChildren(...rows);
}

function listRow(dialogue, index) {
  const notes = [`${dialogue.t.length} turns`, dialogue.e ? dialogue.e.replaceAll("_", " ") : null, dialogue.missing ? `${dialogue.missing} missing` : null, dialogue.flagged ? `${dialogue.flagged} flags` : null, dialogue.largest ? `|A| ${shown(dialogue.largest)}` : null];
  const total = dialogue.total === null ? "" : signed(dialogue.total);
  const row = element("div", { class: "row", role: "option", "aria-selected": index === state.chosen ? "true" : "false", style: `top:${index * ROW}px` }, element("div", { class: "top" }, element("span", {}, dialogue.i), element("b", {}, total)), element("span", { class: "soft" }, notes.filter(Boolean).join(" · ")));
  row.addEventListener("click", () => choose(index));
  return row;
}

async function choose(index) {
  if (!state.found.length) return;
  state.chosen = Math.min(Math.max(index, 0), state.found.length - 1);
  const list = byId("list");
  const top = state.chosen * ROW;
  if (top < list.scrollTop) list.scrollTop = top;
  if (top + ROW > list.scrollTop + list.clientHeight) list.scrollTop = top + ROW - list.clientHeight;
  drawRows();
  await openChosen();
}

/** The value at which a colour is full: the 95th percentile of all turns of the file. */
function scaleOf(dialogues, key) {
  const values = dialogues.flatMap((d) => d.t.map((turn) => Math.abs(turn[key] ?? NaN))).filter((value) => value === value).sort((a, b) => a - b);
  return values.length ? values[Math.floor(0.95 * (values.length - 1))] || 1 : 1;
}

async function openChosen() {
  const place = byId("dialogue");
  const dialogue = state.found[state.chosen];
  if (!dialogue) {
    place.replaceChildren(element("p", { class: "empty" }, "No dialogue is like that."));
    return;
  }
  const set = content.sets[state.set];
  state.scale[state.tint] ??= scaleOf(await dialoguesOf(state.set), state.tint);
  const box = dialogueView(set, dialogue, { tint: state.tint, scale: state.scale[state.tint], tokens: state.tokens });
  place.replaceChildren(box);
  place.scrollTop = 0;
  if (box.pathPlace) state.path = await drawPath(box.pathPlace, dialogue);
}

function fillControls() {
  const names = content.sets.map((set, index) => element("option", { value: index }, `${set.name} (${set.shown === set.dialogues ? set.shown : `${set.shown} of ${set.dialogues}`})`));
  for (const id of ["set", "left", "right"]) byId(id).replaceChildren(...names.map((option) => option.cloneNode(true)));
  byId("tint").replaceChildren(...Object.entries(TINTS).map(([key, name]) => element("option", { value: key }, `colour: ${name}`)));
}

async function chooseSet(index) {
  state.set = (index + content.sets.length) % content.sets.length;
  byId("set").value = state.set;
  const all = await dialoguesOf(state.set);
  const has = (key) => all.some((d) => d.t.some((turn) => turn[key] !== undefined));
  state.tint = ["a", "v", "w"].find(has) || "w";
  byId("tint").value = state.tint;
  await refreshList();
}

// side by side --------------------------------------------------------------------------------------------------------

const pairs = { common: [], chosen: 0 };

/** Dialogues of the same group and sample in both files. */
async function refreshPairs() {
  const [left, right] = [await dialoguesOf(Number(byId("left").value)), await dialoguesOf(Number(byId("right").value))];
  const there = new Map(right.map((dialogue) => [dialogue.i, dialogue]));
  pairs.common = left.filter((dialogue) => there.has(dialogue.i)).map((dialogue) => [dialogue, there.get(dialogue.i)]);
  byId("pair").replaceChildren(...pairs.common.map(([dialogue], index) => element("option", { value: index }, dialogue.i)));
  await choosePair(0);
}

async function choosePair(index) {
  pairs.chosen = Math.min(Math.max(index, 0), Math.max(pairs.common.length - 1, 0));
  byId("pair").value = pairs.chosen;
  const pair = pairs.common[pairs.chosen];
  for (const [side, place] of [[0, "left"], [1, "right"]]) {
    const number = Number(byId(place).value);
    const set = content.sets[number];
    const target = byId(`side-${place}`);
    if (!pair) {
      target.replaceChildren(element("p", { class: "empty" }, "These two files share no dialogue (the same group and sample)."));
      continue;
    }
    const key = ["a", "w"].find((name) => pair.every((d) => d.t.some((turn) => turn[name] !== undefined))) || "w";
    const scale = scaleOf([...loaded[Number(byId("left").value)], ...loaded[Number(byId("right").value)]], key);
    const box = dialogueView(set, pair[side], { tint: key, scale, tokens: state.tokens });
    target.replaceChildren(element("h3", {}, set.name), box);
    if (box.pathPlace) await drawPath(box.pathPlace, pair[side]);
  }
}
