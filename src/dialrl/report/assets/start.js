// Puts the page together: which view is shown, what keys do, the theme.

const VIEWS = ["charts", "dialogues", "sides"];
const begun = {};

async function show(asked) {
  const view = content.sets.length ? asked : "charts"; // a study alone has no dialogues
  state.view = view;
  for (const name of VIEWS) byId(name).hidden = name !== view;
  document.querySelectorAll("nav button").forEach((tab) => tab.setAttribute("aria-selected", String(tab.dataset.view === view)));
  if (begun[view]) return;
  begun[view] = true;
  if (view === "charts") await drawCharts();
  if (view === "dialogues") await chooseSet(startingSet());
  if (view === "sides") await startSides();
}

/** The training file if there is one (it has advantages), else the last. */
function startingSet() {
  const training = content.sets.findIndex((set) => set.role === "training");
  return training >= 0 ? training : content.sets.length - 1;
}

async function startSides() {
  const named = (role, other) => (content.sets.findIndex((set) => set.role === role) + 1 || other + 1) - 1;
  byId("left").value = named("before", 0);
  byId("right").value = named("after", Math.min(1, content.sets.length - 1));
  await refreshPairs();
}

async function toggleTheme() {
  setTheme(!isDark());
  for (const view of VIEWS) if (view !== state.view) begun[view] = view === "charts" ? false : begun[view];
  await redraw();
}

/** Charts take their colours when drawn, so a change of theme draws them again. */
async function redraw() {
  if (state.view === "charts") await drawCharts();
  if (state.view === "dialogues") await openChosen();
  if (state.view === "sides") await choosePair(pairs.chosen);
}

async function toggleTokens() {
  state.tokens = !state.tokens;
  byId("tokens").checked = state.tokens;
  await redraw();
}

const step = (by) => (state.view === "sides" ? choosePair(pairs.chosen + by) : choose(state.chosen + by));

const KEYS = {
  1: () => show("charts"), 2: () => show("dialogues"), 3: () => show("sides"),
  j: () => step(1), k: () => step(-1), ArrowDown: () => step(1), ArrowUp: () => step(-1),
  ArrowRight: () => chooseSet(state.set + 1), ArrowLeft: () => chooseSet(state.set - 1),
  t: toggleTokens, d: toggleTheme, "?": () => byId("keys").showModal(),
};
const ONLY_BROWSING = new Set(["j", "k", "ArrowDown", "ArrowUp", "ArrowRight", "ArrowLeft"]);

async function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || byId("keys").open) return;
  if (event.target.matches("input[type=search]")) {
    if (event.key === "Escape") {
      event.preventDefault(); // the browser would empty the box without an input event once the focus is gone
      event.target.value = "";
      event.target.blur();
      await refreshList();
    } else if (event.key === "Enter") event.target.blur();
    return;
  }
  if (event.key === "/" && content.sets.length) {
    event.preventDefault();
    await show("dialogues");
    byId("search").focus();
    return;
  }
  const action = KEYS[event.key];
  const scrolls = ONLY_BROWSING.has(event.key) && (state.view === "charts" || event.target.matches("select"));
  const otherFiles = event.key.startsWith("Arrow") && !event.key.endsWith("Up") && !event.key.endsWith("Down") && state.view !== "dialogues";
  if (!action || scrolls || otherFiles) return;
  event.preventDefault();
  await action();
}

function listen() {
  document.addEventListener("keydown", onKey);
  document.querySelectorAll("nav button").forEach((tab) => tab.addEventListener("click", () => show(tab.dataset.view)));
  byId("theme").addEventListener("click", toggleTheme);
  byId("help").addEventListener("click", KEYS["?"]);
  byId("list").addEventListener("scroll", drawRows);
  byId("set").addEventListener("change", (event) => chooseSet(Number(event.target.value)));
  for (const id of ["search", "filter", "order"]) byId(id).addEventListener("input", refreshList);
  byId("tint").addEventListener("change", async (event) => {
    state.tint = event.target.value;
    await openChosen();
  });
  byId("tokens").addEventListener("change", toggleTokens);
  for (const id of ["left", "right"]) byId(id).addEventListener("change", refreshPairs);
  byId("pair").addEventListener("change", (event) => choosePair(Number(event.target.value)));
  byId("next").addEventListener("click", () => choosePair(pairs.chosen + 1));
  byId("previous").addEventListener("click", () => choosePair(pairs.chosen - 1));
  const preferred = window.matchMedia("(prefers-color-scheme: dark)");
  preferred.addEventListener("change", (event) => isDark() !== event.matches && toggleTheme());
  setTheme(preferred.matches);
}

listen();
fillControls();
chartsPage();
byId("sides").dataset.files = content.sets.length;
document.querySelector('[data-view="dialogues"]').hidden = content.sets.length < 1;
document.querySelector('[data-view="sides"]').hidden = content.sets.length < 2;
const asked = location.hash.replace("#/", ""); // page.html#/dialogues opens there
window.ready = show(VIEWS.includes(asked) ? asked : "charts");
